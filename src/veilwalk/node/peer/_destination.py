"""What a node does with a message that opens for it: check, train, seal for those who may open it next.

Three steps, because training takes long and storage must not wait for it: :meth:`Destination.look` reads what is
needed, :meth:`Destination.work` computes, and :meth:`veilwalk.node.peer._custody.Custody.progress` writes the result.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.core.errors import CryptoError, ProtocolError, TrainingError
from veilwalk.node.members import RunRules, decode_params, encode_params
from veilwalk.node.peer._draws import Draws
from veilwalk.node.peer._routing import DestinationRow
from veilwalk.node.sealing import Header, OpenedHeader, open_body, seal
from veilwalk.node.spool import DamageError, Progress, Row, SeenWalk, Spool, hit

if TYPE_CHECKING:
    from veilwalk.learning import Array, Learner, Params, Partition
    from veilwalk.node.members import Manifest, Roster

_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What this node learns with, on what.

    Attributes:
        learner: The model and how it is updated.
        data: This node's examples.
        manifest: How a model is encoded.
        index: This node's number in the roster.
        max_loss_ratio: A model whose loss on this node's data is more than this many times that of the node's own
            last model is refused; 0 for no such check.
        test: The run's public test set, where it has one.
    """

    learner: Learner
    data: Partition
    manifest: Manifest
    index: int
    max_loss_ratio: float = 0.0
    test: Partition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """An opened message, with what this node knows that bears on it."""

    row: Row
    opened: OpenedHeader
    message: bytes
    walks: Mapping[bytes, SeenWalk]
    checkpoint: bytes | None
    checkpoint_iteration: int
    checkpoint_tag: bytes
    final_iteration: int
    final_digest: bytes
    state: Mapping[str, bytes]
    step: int


class Destination:
    """Trains models that arrive here, and seals them for the next."""

    def __init__(self, task: Task, rules: RunRules, law: DestinationRow, draws: Draws) -> None:
        self._task = task
        self._rules = rules
        self.law = law
        self._draws = draws

    def look(self, spool: Spool, row: Row, opened: OpenedHeader) -> Arrival:
        """Read what :meth:`work` needs."""
        with spool.transaction(durable=False) as register:
            stored, final = register.model("checkpoint"), register.model("final")
            try:
                checkpoint = None if stored is None else spool.read(stored)
            except DamageError:
                # A damaged checkpoint is as good as none.
                checkpoint = None
                register.count("damaged")
            return Arrival(
                row=row,
                opened=opened,
                message=spool.read(row),
                walks=register.walks(),
                checkpoint=checkpoint,
                checkpoint_iteration=0 if stored is None else stored.iteration,
                checkpoint_tag=b"" if stored is None else stored.tag,
                final_iteration=-1 if final is None else final.iteration,
                final_digest=b"" if final is None else final.digest,
                state=register.learner_state(),
                step=register.tally("updates"),
            )

    def work(self, arrival: Arrival, roster: Roster) -> Progress | str:
        """Return what becomes of an arrival, or the name of the tally of messages thrown away for that reason."""
        header = arrival.opened.header
        if header.dummy:
            return "dummies"
        if header.final:
            return self._finished(arrival, roster)
        if arrival.final_iteration < 0 and is_fork(header, arrival.walks):
            return "forks"
        if arrival.final_iteration >= 0 or is_surplus(header, arrival.walks):
            return "retired"
        return self._trained(arrival, roster)

    def new_walk(self, spool: Spool, roster: Roster, *, first: bool) -> bytes | None:
        """Return a message that starts a walk from this node's last model, or from the run's first.

        None if there is nothing to start: the run is finished, or its first walk was made here before.
        """
        body, iteration = self._first_model(), 0
        with spool.transaction(durable=False) as register:
            stored = register.model("checkpoint")
            if register.model("final") is not None or (first and register.tally("started")):
                return None
            try:
                if stored is not None:
                    body, iteration = spool.read(stored), stored.iteration
            except DamageError:
                register.count("damaged")
        about = Header(update_id=b"", walk_tag=os.urandom(8), iteration=iteration, body_length=0)
        return self._seal(roster, about, body)

    def _trained(self, arrival: Arrival, roster: Roster) -> Progress:
        header = arrival.opened.header
        counts = ["updates"]
        received, iteration = self._accepted(arrival, counts)
        hit("train.opened")
        state = _read_state(arrival.state, counts)
        try:
            model = encode_params(self._task.manifest, self._update(received, arrival.step, iteration, state))
        except TrainingError:
            # This node's own data made it worse than useless: pass on what came.
            model = encode_params(self._task.manifest, received)
            counts.append("diverged")
        hit("train.updated")
        iteration += 1
        about = Header(update_id=b"", walk_tag=header.walk_tag, iteration=iteration, body_length=0)
        done = iteration >= self._rules.updates or self._reached(model, iteration)
        return Progress(
            message=None if done else self._seal(roster, about, model),
            model=model,
            header=header,
            epoch=arrival.opened.context.epoch,
            iteration=iteration,
            learner_state={name: _written(array) for name, array in state.items()},
            counts=tuple(counts),
            farewells=self._farewells(roster, model, iteration, os.urandom(16)) if done else {},
        )

    def _reached(self, model: bytes, iteration: int) -> bool:
        """Return whether a model is as good as the run asks for, by the public test set, after so many updates."""
        from veilwalk.learning import evaluation_points

        task, rules = self._task, self._rules
        if not rules.target or task.test is None:
            return False
        if iteration not in evaluation_points(rules.updates, rules.evaluations):
            return False
        accuracy = task.learner.evaluate(decode_params(task.manifest, model), task.test).get("accuracy")
        return accuracy is not None and accuracy >= rules.target

    def _accepted(self, arrival: Arrival, counts: list[str]) -> tuple[Params, int]:
        """Return the model to train on: the one that came, or this node's own where that one is refused."""
        manifest, iteration = self._task.manifest, arrival.opened.header.iteration
        own = decode_params(manifest, arrival.checkpoint or self._first_model())
        try:
            params = decode_params(manifest, open_body(arrival.opened, arrival.message))
        except (CryptoError, ProtocolError):
            counts.append("refused")
            return own, iteration
        ratio = self._task.max_loss_ratio
        if ratio and not self._loss(params) <= ratio * max(self._loss(own), 1e-9):
            counts.append("refused")
            return own, iteration
        if arrival.checkpoint_iteration > iteration and arrival.checkpoint_tag != arrival.opened.header.walk_tag:
            # Another walk brought a better model here before: this one goes on with it.
            counts.append("merged")
            return own, arrival.checkpoint_iteration
        return params, iteration

    def _finished(self, arrival: Arrival, roster: Roster) -> Progress | str:
        header = arrival.opened.header
        try:
            body = open_body(arrival.opened, arrival.message)
            decode_params(self._task.manifest, body)
        except (CryptoError, ProtocolError):
            return "refused"
        # Two walks may both come to an end: all members keep the same one, that of more updates, or of equals either.
        digest = hashlib.sha256(body).digest()
        if (header.iteration, digest) <= (arrival.final_iteration, arrival.final_digest):
            return "duplicates"
        return Progress(
            message=None,
            model=body,
            header=header,
            epoch=arrival.opened.context.epoch,
            iteration=header.iteration,
            farewells=self._farewells(roster, body, header.iteration, header.update_id),
        )

    def _farewells(self, roster: Roster, model: bytes, iteration: int, update_id: bytes) -> dict[str, bytes]:
        """Return the finished model sealed for each neighbour, who does the same: so it reaches every member."""
        me = roster.ids[self._task.index]
        context = roster.seal_context(self._task.manifest)
        return {
            peer: seal(
                context,
                [roster.kem_key(peer, context.epoch)],
                walk_tag=bytes(8),
                iteration=iteration,
                body=model,
                final=True,
                update_id=update_id,
            )
            for peer in roster.neighbours(me)
        }

    def _seal(self, roster: Roster, about: Header, body: bytes) -> bytes:
        context = roster.seal_context(self._task.manifest)
        goals = self.law.choose(self._draws, context.recipients)
        keys = [roster.kem_key(goal, context.epoch) for goal in goals]
        return seal(context, keys, walk_tag=about.walk_tag, iteration=about.iteration, body=body)

    def _update(self, params: Params, step: int, age: int, state: dict[str, Array]) -> Params:
        # Imported here because it takes half a second, which a relay need not wait for.
        from veilwalk.learning import apply_update

        task = self._task
        with np.errstate(all="ignore"):
            return apply_update(
                task.learner,
                params,
                task.data,
                seed=task.manifest.seed,
                node=task.index,
                step=step,
                age=age,
                state=state,
            ).params

    def _first_model(self) -> bytes:
        from veilwalk.learning import init_generator

        first = self._task.learner.init_params(init_generator(self._task.manifest.seed))
        return encode_params(self._task.manifest, first)

    def _loss(self, params: Params) -> float:
        return float(self._task.learner.evaluate(params, self._task.data)["loss"])


def is_fork(header: Header, walks: Mapping[bytes, SeenWalk]) -> bool:
    """Return whether a walk has forked and this branch is behind: this node has opened a later state of the same walk.

    Every opening adds to the iteration, so one walk never comes back with less. Somebody copied a message for several,
    and two of them opened it. The branch that is furthest on is never given up: nobody has opened anything later.
    """
    seen = walks.get(header.walk_tag)
    return seen is not None and header.iteration < seen.iteration


def is_surplus(header: Header, walks: Mapping[bytes, SeenWalk]) -> bool:
    """Return whether a walk is one too many: another was seen here later, alive and further on.

    It must have been seen *after* this one was first seen here; an older walk that is further on may be dead. Two
    walks never both give way: the one that does is behind the other, and stays behind it.
    """
    mine = walks.get(header.walk_tag)
    if mine is None:
        return False
    return any(
        other.iteration > header.iteration and other.last_turn > mine.first_turn
        for tag, other in walks.items()
        if tag != header.walk_tag
    )


def _written(array: Array) -> bytes:
    """Return an array of the learner's as it is kept: after its digest, so that damage is noticed."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=False)
    return hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue()


def _read_state(kept: Mapping[str, bytes], counts: list[str]) -> dict[str, Array]:
    """Return what the learner kept; where any of it is damaged, none, for its parts belong together."""
    for data in kept.values():
        if hashlib.sha256(data[_DIGEST_BYTES:]).digest() != data[:_DIGEST_BYTES]:
            counts.append("damaged")
            return {}
    return {name: np.load(io.BytesIO(data[_DIGEST_BYTES:]), allow_pickle=False) for name, data in kept.items()}
