"""What a node does with a message that opens for it: check, train, seal for those who may open it next.

Three steps, because training takes long and storage must not wait for it: :meth:`Destination.look` reads what is
needed, :meth:`Destination.work` computes, and :meth:`veilwalk.node.peer._custody.Custody.progress` writes the result.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from veilwalk.core.errors import CryptoError, ProtocolError
from veilwalk.node.members import NodeKeys, RunRules, decode_params
from veilwalk.node.peer._draws import Draws
from veilwalk.node.peer._ends import ASKS, Known, is_near, is_vouched, vouch, voucher
from veilwalk.node.peer._routing import DestinationRow
from veilwalk.node.peer._trainer import Lesson, Trainer
from veilwalk.node.sealing import Header, OpenedHeader, open_body, seal
from veilwalk.node.spool import (
    ASKED,
    STEP,
    UNDONE,
    Claim,
    DamageError,
    Discard,
    Progress,
    Register,
    Row,
    SeenWalk,
    Spool,
    StoredModel,
    claims,
    hit,
)

if TYPE_CHECKING:
    from veilwalk.node.members import Manifest, Roster


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """An opened message, with what this node knows that bears on it."""

    row: Row
    opened: OpenedHeader
    message: bytes
    walks: Mapping[bytes, SeenWalk]
    known: Known
    known_tag: bytes
    final: StoredModel | None
    final_model: bytes | None
    claims: Mapping[str, tuple[bytes, int]]
    undone: bytes | None
    state: Mapping[str, bytes]
    step: int


class Destination:
    """Trains models that arrive here, and seals them for the next."""

    def __init__(
        self,
        trainer: Trainer,
        manifest: Manifest,
        rules: RunRules,
        *,
        law: DestinationRow,
        draws: Draws,
        keys: NodeKeys,
    ) -> None:
        self.trainer = trainer
        self._manifest = manifest
        self._rules = rules
        #: For whom it seals, and in whose name; both may change with the roster.
        self.law = law
        self.keys = keys
        self._draws = draws

    def look(self, spool: Spool, row: Row, opened: OpenedHeader) -> Arrival:
        """Read what :meth:`work` needs."""
        with spool.transaction(durable=False) as register:
            stored, final, step = register.model("checkpoint"), register.model("final"), register.mark(STEP)
            return Arrival(
                row=row,
                opened=opened,
                message=spool.read(row),
                walks=register.walks(),
                known=Known(
                    model=_model(spool, register, stored),
                    iteration=0 if stored is None else stored.iteration,
                    step=0.0 if step is None else float(step),
                ),
                known_tag=b"" if stored is None else stored.tag,
                final=final,
                final_model=_model(spool, register, final),
                claims=claims(register),
                undone=register.mark(UNDONE),
                state=register.learner_state(),
                step=register.tally("updates"),
            )

    def work(self, arrival: Arrival, roster: Roster) -> Progress | Discard:
        """Return what becomes of an arrival."""
        header = arrival.opened.header
        if not self._rules.allow(header, body_bytes=self._manifest.body_bytes):
            return Discard(count="set_aside")
        if header.dummy:
            return Discard(count="dummies")
        if header.final:
            return self._finished(arrival, roster)
        return self._given_up(arrival, roster) or self._trained(arrival, roster)

    def _given_up(self, arrival: Arrival, roster: Roster) -> Discard | None:
        """Return how a walk ends here; None where it goes on."""
        header = arrival.opened.header
        if arrival.final is not None:
            # Somebody does not know yet: the neighbour that brought it, or one behind it.
            to = () if arrival.row.came_from is None else (arrival.row.came_from,)
            lost = header.iteration - header.made_at
            return Discard(count="retired", lost=lost, farewells=self._answer(arrival, roster, to))
        if is_fork(header, arrival.walks):
            return Discard(count="forks")
        ahead = walks_ahead(header, arrival.walks)
        return Discard(count="retired", lost=updates_lost(header, ahead)) if ahead else None

    def new_walk(self, spool: Spool, roster: Roster, *, first: bool) -> bytes | None:
        """Return a message that starts a walk from this node's last model, or from the run's first.

        None if there is nothing to start: the run is finished, or its first walk was made here before.
        """
        with spool.transaction(durable=False) as register:
            stored = register.model("checkpoint")
            if register.model("final") is not None or (first and register.tally("started")):
                return None
            body = _model(spool, register, stored)
        iteration = 0 if stored is None or body is None else stored.iteration
        about = Header(update_id=b"", walk_tag=os.urandom(8), iteration=iteration, body_length=0, made_at=iteration)
        return self._seal(roster, about, self.trainer.first() if body is None else body)

    def farewell(self, spool: Spool, roster: Roster, peer: str) -> bytes | None:
        """Return the finished model sealed for a neighbour that seems not to have it; None where there is none."""
        with spool.transaction(durable=False) as register:
            stored = register.model("final")
            model = _model(spool, register, stored)
        if stored is None or model is None:
            return None
        return self._farewells(roster, model, stored.iteration, [peer]).get(peer)

    def _trained(self, arrival: Arrival, roster: Roster) -> Progress:
        header, known = arrival.opened.header, arrival.known
        hit("train.opened")
        # Where another walk brought a better model here before, this one goes on with it.
        merges = known.model is not None and known.iteration > header.iteration and arrival.known_tag != header.walk_tag
        iteration = known.iteration if merges else header.iteration
        learnt = self.trainer.update(
            Lesson(
                received=known.model if merges else _body(arrival),
                own=known.model,
                iteration=iteration,
                step=arrival.step,
                state=arrival.state,
            )
        )
        hit("train.updated")
        made_at = iteration if merges else header.made_at
        # Without an update there is nothing to count: the model goes on as it came.
        iteration += learnt.state is not None
        about = replace(header, iteration=iteration, made_at=made_at)
        done = iteration >= self._rules.updates or learnt.reached
        return Progress(
            message=None if done else self._seal(roster, about, learnt.model),
            model=learnt.model,
            header=replace(header, made_at=made_at),
            epoch=arrival.opened.context.epoch,
            iteration=iteration,
            learner_state=learnt.state,
            counts=(*learnt.counts, *(["merged"] if merges else [])),
            farewells=self._farewells(roster, learnt.model, iteration) if done else {},
            step=learnt.moved,
            lost=header.iteration - header.made_at if merges else 0,
        )

    def _finished(self, arrival: Arrival, roster: Roster) -> Progress | Discard:
        header, final = arrival.opened.header, arrival.final
        body = _body(arrival)
        if body is None or not self._is_model(body):
            return Discard(count="refused")
        digest = hashlib.sha256(body).digest()
        by = voucher(roster, header.vouch, header.iteration, digest)
        if by is None or digest == arrival.undone:
            return Discard(count="refused")
        # Two walks may both come to an end: all members keep the same one, that of more updates, or of equals either.
        if final is not None and (header.iteration, digest) <= (final.iteration, final.digest):
            behind = (header.iteration, digest) < (final.iteration, final.digest)
            return Discard(count="duplicates", farewells=self._answer(arrival, roster, [by] if behind else []))
        reaches = self.trainer.reaches_target(body)
        if header.iteration < self._rules.updates and not reaches:
            return Discard(count="refused")
        if not reaches and not self._is_credible(arrival, roster, body, by=by, digest=digest):
            claim = Claim(peer=by, digest=digest, iteration=header.iteration, model=body)
            return Discard(count="unbelieved", claim=claim)
        return self._end(roster, header, body, arrival.opened.context.epoch)

    def _is_credible(self, arrival: Arrival, roster: Roster, body: bytes, *, by: str, digest: bytes) -> bool:
        """Return whether a finished model is near what this node knows, or enough neighbours vouch for it."""
        iteration, known, final = arrival.opened.header.iteration, arrival.known, arrival.final
        if final is not None and any(final.tag):
            # Made here. One that others brought is no knowledge: near it may be far from what this node saw itself.
            known = replace(known, model=arrival.final_model, iteration=final.iteration)
        if is_near(self._manifest, known, body, iteration, len(roster.ids)):
            return True
        return is_vouched(roster, self.keys.id, arrival.claims, by=by, digest=digest, iteration=iteration)

    def overdue(self, spool: Spool, roster: Roster) -> Progress | None:
        """Return the end that a neighbour vouches for, once asking has been in vain; None where it has not."""
        with spool.transaction(durable=False) as register:
            stored, asked, vouched = register.model("claimed"), int(register.mark(ASKED) or 0), claims(register)
            model = _model(spool, register, stored)
        if stored is None or model is None or asked < ASKS or (stored.digest, stored.iteration) not in vouched.values():
            return None
        header = Header(
            update_id=os.urandom(16), walk_tag=bytes(8), iteration=stored.iteration, body_length=len(model), final=True
        )
        return self._end(roster, header, model, roster.epoch)

    def _end(self, roster: Roster, header: Header, model: bytes, epoch: int) -> Progress:
        farewells = self._farewells(roster, model, header.iteration)
        return Progress(
            message=None, model=model, header=header, epoch=epoch, iteration=header.iteration, farewells=farewells
        )

    def _is_model(self, body: bytes) -> bool:
        try:
            decode_params(self._manifest, body)
        except ProtocolError:
            return False
        return True

    def _answer(self, arrival: Arrival, roster: Roster, peers: Iterable[str]) -> dict[str, bytes]:
        """Return the finished model for neighbours that showed that they do not have it."""
        if arrival.final is None or arrival.final_model is None:
            return {}
        return self._farewells(roster, arrival.final_model, arrival.final.iteration, peers)

    def _farewells(
        self, roster: Roster, model: bytes, iteration: int, peers: Iterable[str] | None = None
    ) -> dict[str, bytes]:
        """Return the finished model sealed for ``peers``, or for each neighbour, who does the same: so all get it."""
        neighbours = roster.neighbours(self.keys.id)
        context = roster.seal_context(self._manifest)
        word = vouch(self.keys, roster.run_id, iteration, hashlib.sha256(model).digest())
        return {
            peer: seal(
                context,
                [roster.kem_key(peer, context.epoch)],
                walk_tag=bytes(8),
                iteration=iteration,
                body=model,
                final=True,
                vouch=word,
            )
            for peer in neighbours
            if peers is None or peer in peers
        }

    def _seal(self, roster: Roster, about: Header, body: bytes) -> bytes:
        context = roster.seal_context(self._manifest)
        goals = self.law.choose(self._draws, context.recipients)
        keys = [roster.kem_key(goal, context.epoch) for goal in goals]
        return seal(context, keys, walk_tag=about.walk_tag, iteration=about.iteration, made_at=about.made_at, body=body)


def is_fork(header: Header, walks: Mapping[bytes, SeenWalk]) -> bool:
    """Return whether a walk has forked and this branch is behind: this node has opened a later state of the same walk.

    Every opening adds to the iteration, so one walk never comes back with less. Somebody copied a message for several,
    and two of them opened it. The branch that is furthest on is never given up: nobody has opened anything later.
    """
    seen = walks.get(header.walk_tag)
    return seen is not None and header.iteration < seen.iteration


def walks_ahead(header: Header, walks: Mapping[bytes, SeenWalk]) -> list[SeenWalk]:
    """Return the walks that make this one too many: seen here later, alive and further on.

    It must have been seen *after* this one was first seen here; an older walk that is further on may be dead. Two
    walks never both give way: the one that does is behind the other, and stays behind it.
    """
    mine = walks.get(header.walk_tag)
    if mine is None:
        return []
    return [
        other
        for tag, other in walks.items()
        if tag != header.walk_tag and other.iteration > header.iteration and other.last_turn > mine.first_turn
    ]


def updates_lost(header: Header, ahead: Iterable[SeenWalk]) -> int:
    """Return about how many updates are lost with a walk that gives way to others.

    Those it has had since it or the other was made, for of two walks the later one was mostly made from a model of the
    earlier. Both of a third, they parted before that, and this is too little.
    """
    parted = max((walk.made_at for walk in ahead), default=0)
    return max(header.iteration - max(header.made_at, parted), 0)


def _model(spool: Spool, register: Register, stored: StoredModel | None) -> bytes | None:
    """Return a stored model; a damaged one is as good as none."""
    if stored is None:
        return None
    try:
        return spool.read(stored)
    except DamageError:
        register.count("damaged")
        return None


def _body(arrival: Arrival) -> bytes | None:
    """Return the body of a message; None where it is not what was sealed."""
    try:
        return open_body(arrival.opened, arrival.message)
    except CryptoError:
        return None
