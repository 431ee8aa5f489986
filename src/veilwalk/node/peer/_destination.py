"""What a node does with a message that opens for it: check, train, seal for those who may open it next.

Three steps, because training takes long and storage must not wait for it: :meth:`Destination.look` reads what is
needed, :meth:`Destination.work` computes, and :meth:`veilwalk.node.peer._custody.Custody.progress` writes the result.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from veilwalk.core.errors import ProtocolError
from veilwalk.node.members import NodeKeys, RunRules, decode_params, final_tag
from veilwalk.node.peer._arrival import Arrival, look_at, read_model
from veilwalk.node.peer._draws import Draws
from veilwalk.node.peer._ends import MOST_ENDS, is_fresh, is_near, is_overdue, is_vouched, vouch, voucher
from veilwalk.node.peer._routing import DestinationRow
from veilwalk.node.peer._trainer import Lesson, Trainer
from veilwalk.node.sealing import Header, OpenedHeader, seal
from veilwalk.node.spool import ASKED, Claim, Discard, Progress, Row, SeenWalk, Spool, claims, hit, of_lane

if TYPE_CHECKING:
    from veilwalk.node.members import Manifest, Roster


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
        lane = self._rules.lane_of(opened.header.walk_tag)
        return look_at(spool, row, opened, lane=lane, several=self._rules.walks > 1, most=self._rules.share(lane) - 1)

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
            farewells = self._answer(arrival, roster, to)
            return Discard(count="retired", lost=lost, farewells=farewells, lane=arrival.lane)
        if is_fork(header, arrival.walks):
            return Discard(count="forks")
        ahead = walks_ahead(header, arrival.walks)
        return Discard(count="retired", lost=updates_lost(header, ahead)) if ahead else None

    def new_walk(self, spool: Spool, roster: Roster, lane: int, *, first: bool) -> bytes | None:
        """Return a message that starts a walk from this node's last model of a lane, or from the run's first.

        None if there is nothing to start: the lane is finished, or its first walk was made here before.
        """
        with spool.transaction(durable=False) as register:
            stored = register.model(of_lane("checkpoint", lane))
            # The first walks are made in the order of their lanes.
            if register.model(of_lane("final", lane)) is not None or (first and register.tally("started") > lane):
                return None
            body = read_model(spool, register, stored)
        # Nobody takes one that is done, as it may be under a manifest that asks for fewer updates.
        iteration = 0 if stored is None or body is None else min(stored.iteration, self._rules.share(lane) - 1)
        tag = self._rules.new_tag(lane)
        about = Header(update_id=b"", walk_tag=tag, iteration=iteration, body_length=0, made_at=iteration)
        return self._seal(roster, about, self.trainer.first() if body is None else body)

    def farewells(self, spool: Spool, roster: Roster, peer: str) -> dict[int, bytes]:
        """Return what is finished, by lane, sealed for a neighbour that seems not to have it, and has none waiting."""
        found: dict[int, bytes] = {}
        # To seal takes long, and a neighbour may come with a new disk as often as it likes.
        waiting = {row.fixed - 1 for row in spool.tables.pinned_to(peer)}
        for lane in set(self._rules.lanes) - waiting:
            with spool.transaction(durable=False) as register:
                stored = register.model(of_lane("final", lane))
                model = read_model(spool, register, stored)
            if stored is not None and model is not None:
                found[lane] = self._farewells(roster, model, stored.iteration, lane, [peer]).get(peer, b"")
        return {lane: message for lane, message in found.items() if message}

    def _trained(self, arrival: Arrival, roster: Roster) -> Progress:
        header, known = arrival.opened.header, arrival.known
        hit("train.opened")
        # Where another walk brought a better model here before, this one goes on with it.
        merges = known.model is not None and known.iteration > header.iteration and arrival.known_tag != header.walk_tag
        iteration = known.iteration if merges else header.iteration
        body = None if self._comes_too_soon(header) else arrival.body
        learnt = self.trainer.update(
            Lesson(
                received=known.model if merges else body,
                own=known.model,
                iteration=iteration,
                step=arrival.step,
                state=arrival.state,
                lane=arrival.lane,
                own_iteration=known.iteration,
            )
        )
        hit("train.updated")
        if learnt.own and not merges:
            # The walk that brought it ends here, and one of this node's own model begins: no older than it is, so that
            # whoever holds a newer one goes on with that.
            iteration = 0 if known.model is None else known.iteration
            header = replace(header, walk_tag=self._rules.new_tag(arrival.lane), iteration=iteration, made_at=iteration)
        made_at = iteration if merges else header.made_at
        # Without an update there is nothing to count: the model goes on as it came.
        iteration += learnt.state is not None
        about = replace(header, iteration=iteration, made_at=made_at)
        done = iteration >= self._rules.share(arrival.lane) or learnt.reached
        return Progress(
            message=None if done else self._seal(roster, about, learnt.model),
            model=learnt.model,
            header=replace(header, made_at=made_at),
            epoch=arrival.opened.context.epoch,
            iteration=iteration,
            learner_state=learnt.state,
            counts=(*learnt.counts, *(["merged"] if merges else [])),
            farewells=self._farewells(roster, learnt.model, iteration, arrival.lane) if done else {},
            step=learnt.moved,
            lost=header.iteration - header.made_at if merges else 0,
            lane=arrival.lane,
        )

    def _finished(self, arrival: Arrival, roster: Roster) -> Progress | Discard:
        header, final, lane = arrival.opened.header, arrival.final, arrival.lane
        body = arrival.body
        if body is None or not self._is_model(body):
            return Discard(count="refused")
        digest = hashlib.sha256(body).digest()
        by = voucher(roster, self._manifest.run_id, header.vouch, header.iteration, digest, lane=lane)
        if by is None or digest in arrival.undone:
            return Discard(count="refused")
        # Two walks may both come to an end: all members keep the same one, that of more updates, or of equals either.
        if final is not None and (header.iteration, digest) <= (final.iteration, final.digest):
            behind = (header.iteration, digest) < (final.iteration, final.digest)
            farewells = self._answer(arrival, roster, [by] if behind else [])
            return Discard(count="duplicates", farewells=farewells, lane=lane)
        enough = final is not None and arrival.ends >= MOST_ENDS
        reaches = not enough and self.trainer.reaches_target(body)
        if enough or (not reaches and (self._comes_too_soon(header) or header.iteration < self._rules.share(lane))):
            return Discard(count="refused")
        came = by if by in roster.neighbours(self.keys.id) else arrival.row.came_from
        claim = Claim(by=by, digest=digest, iteration=header.iteration, brought_by=came or "")
        if not reaches and not self._is_credible(arrival, roster, body, claim):
            told = self._passed_on(arrival, roster, body, claim)
            return Discard(count="unbelieved", claim=claim, claimed=body, farewells=told, lane=lane)
        return self._end(roster, header, body, arrival.opened.context.epoch)

    def _comes_too_soon(self, header: Header) -> bool:
        """Return whether nobody can have made so many updates yet: then it is a lie, and the model the liar's."""
        return header.iteration > self._rules.possible(time.time())

    def _passed_on(self, arrival: Arrival, roster: Roster, body: bytes, claim: Claim) -> dict[str, bytes]:
        """Return somebody's word on an end for the other neighbours, where this node knows too little to judge it.

        So nodes that know nothing, side by side, hear more than one. Once for each member: one that says ever new
        things is not helped to.
        """
        knows = arrival.final is not None or is_fresh(arrival.known, claim.iteration, len(roster.ids))
        if knows or claim.by in arrival.claims:
            return {}
        others = set(roster.neighbours(self.keys.id)) - {claim.by, arrival.row.came_from}
        word = arrival.opened.header.vouch
        return self._farewells(roster, body, claim.iteration, arrival.lane, others, word=word)

    def _is_credible(self, arrival: Arrival, roster: Roster, body: bytes, claim: Claim) -> bool:
        """Return whether a finished model is near what this node knows, or enough members vouch for it."""
        iteration, known, final = claim.iteration, arrival.known, arrival.final
        if final is not None and final.tag != final_tag(arrival.lane):
            # Made here. One that others brought is no knowledge: near it may be far from what this node saw itself.
            known = replace(known, model=arrival.final_model, iteration=final.iteration)
        if is_near(self._manifest, known, body, iteration, len(roster.ids)):
            return True
        return is_vouched(roster, self.keys.id, arrival.claims.values(), claim)

    def overdue(self, spool: Spool, roster: Roster, lane: int) -> Progress | None:
        """Return the end that members vouch for, once asking has been in vain; None where it has not."""
        with spool.transaction(durable=False) as register:
            stored, vouched = register.model(of_lane("claimed", lane)), claims(register, lane)
            asked = int(register.mark(of_lane(ASKED, lane)) or 0)
            model = read_model(spool, register, stored)
        if stored is None or model is None:
            return None
        if not is_overdue(roster, vouched.values(), (stored.digest, stored.iteration), asked=asked):
            return None
        header = Header(
            update_id=os.urandom(16),
            walk_tag=final_tag(lane),
            iteration=stored.iteration,
            body_length=len(model),
            final=True,
        )
        return self._end(roster, header, model, roster.epoch)

    def _end(self, roster: Roster, header: Header, model: bytes, epoch: int) -> Progress:
        lane = self._rules.lane_of(header.walk_tag)
        return Progress(
            message=None,
            model=model,
            header=header,
            epoch=epoch,
            iteration=header.iteration,
            farewells=self._farewells(roster, model, header.iteration, lane),
            lane=lane,
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
        return self._farewells(roster, arrival.final_model, arrival.final.iteration, arrival.lane, peers)

    def _farewells(
        self,
        roster: Roster,
        model: bytes,
        iteration: int,
        lane: int,
        peers: Iterable[str] | None = None,
        *,
        word: bytes = b"",
    ) -> dict[str, bytes]:
        """Return the finished model sealed for ``peers``, or for each neighbour, who does the same: so all get it.

        With another's ``word`` for it, or this node's own.
        """
        neighbours = roster.neighbours(self.keys.id)
        context = roster.seal_context(self._manifest)
        run = self._manifest.run_id
        word = word or vouch(self.keys, run, iteration, hashlib.sha256(model).digest(), lane=lane)
        return {
            peer: seal(
                context,
                [roster.kem_key(peer, context.epoch)],
                walk_tag=final_tag(lane),
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
