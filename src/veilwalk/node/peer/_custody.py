"""What a node owes: every message it took and has not handed on. Each method is one step that a crash cannot halve.

    offered -> held --given--> taken --not for us, or opened before--> pinned to (peer, number) --> given --done--> gone
                                |--for us, new id--> trained --> {id noted, old row out, new row, checkpoint} --> ...

A message has its number before it is given, and is offered under that; a receiver holds it, uses it only when
it is given, and has it on disk before it says so. So a crash anywhere repeats a step, which the receiver knows by its
number. What was not given may go another way; what was given may be used already, and waits for the answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from veilwalk.node.peer._ends import VOUCHERS
from veilwalk.node.peer._intake import Intake
from veilwalk.node.peer._routing import NextHop
from veilwalk.node.sealing import Bytes, OpenedHeader, Opener
from veilwalk.node.spool import (
    ASKED,
    ENDS,
    STEP,
    Discard,
    Progress,
    Register,
    Row,
    add_claim,
    forget_claims,
    hit,
    of_lane,
)


class Custody(Intake):
    """The messages of one node and the rules they follow. Used by one thread at a time."""

    def follow(self, *, opener: Opener, next_hop: NextHop, allowed_visits: int) -> None:
        """Open, route and slow down as a new roster asks."""
        self.opener = opener
        self.held.keep_current(opener)
        self.next_hop = next_hop
        if self.visits is not None:
            self.visits.allowed = allowed_visits

    def recover(self) -> list[tuple[Row, bool]]:
        """Return every message in custody, and whether it is for us; damaged ones are thrown away."""
        found = []
        with self.spool.transaction() as register:
            rows = register.messages()
        for row in rows:
            if self.drop_if_damaged(row):
                continue
            opened = self.opener.open(self.spool.read(row)) if row.peer is None else None
            for_us = self._is_new(opened)
            if opened is not None and for_us:
                self._ours[row.id] = opened.header.update_id
            found.append((row, for_us))
        return found

    def examine(self, number: int) -> tuple[Row, OpenedHeader | None] | None:
        """Return a held message with its header, if it is to be opened; None if it is gone, damaged or on its way."""
        row = self.spool.tables.message(number)
        if row is None or row.peer is not None:
            return None
        if self.drop_if_damaged(row):
            return None
        opened = self.opener.open(self.spool.read(row))
        if opened is not None and self.spool.tables.is_opened(opened.header.update_id):
            # It came while the first was being trained on, which had been crowded out meanwhile.
            self._ours.pop(number, None)
            return row, None
        return row, opened

    def statistics(self) -> tuple[dict[str, int], int]:
        """Return all tallies, and how many messages are in custody."""
        return self.spool.tables.tallies(), len(self.spool.tables.messages())

    def has_a_walk(self) -> bool:
        """Return whether a message is here that may be a walk: no finished model, nor one that came too often."""
        return any(not row.fixed and row.id not in self._resting for row in self.spool.tables.messages())

    def count(self, name: str) -> None:
        """Add one to a tally; not worth waiting for the disk."""
        with self.spool.transaction(durable=False) as register:
            register.count(name)

    def pin(self, number: int) -> Row | None:
        """Draw the next hop of a held message; None if it is gone, or goes now because it is too old."""
        if number in self._outlived:
            self.drop(number, "outlived")
            return None
        self._let_go(number)
        with self.spool.transaction() as register:
            row = register.message(number)
            if row is None or row.peer is not None:
                return row
            row = self._pin(register, row)
            hit("route.before_commit")
        hit("route.committed")
        return row

    def expire(self) -> None:
        """Let go of messages whose epoch is over, which nobody opens any more, and of what was opened then."""
        with self.spool.transaction() as register:
            register.forget_opened_before(self.opener.oldest_epoch)
            rows = register.messages()
        for row in rows:
            if not self.drop_if_damaged(row) and not self.opener.is_current(self.spool.read(row)):
                self.drop(row.id, "expired")

    def create(self, message: Bytes, count: str, lane: int = 0) -> Row:
        """Put a walk made here under way."""
        asked = of_lane(ASKED, lane)
        with self.spool.transaction() as register:
            register.count(count)
            register.set_mark(asked, str(int(register.mark(asked) or 0) + 1).encode())
            peer = None if self._dwells else self._next(None)
            return register.add_message(self.spool.store(message), came_from=None, peer=peer)

    def progress(self, row: Row | None, done: Progress) -> Row | None:
        """Put what came of an opened message, if it came of one, in its place; return the new message, if there is."""
        hit("train.sealed")
        kind, lane = "final" if done.message is None else "checkpoint", done.lane
        made: Row | None = None
        with self.spool.transaction() as register:
            register.add_opened(done.header.update_id, done.epoch)
            register.saw_walk(done.header.walk_tag, done.iteration, register.count("turns"), done.header.made_at)
            register.set_mark(of_lane(ASKED, lane), b"0")
            if row is not None:
                self._let_go(row.id)
                register.drop(row)
            stored = self.spool.store(done.model, plain=True)
            register.set_model(of_lane(kind, lane), stored, tag=done.header.walk_tag, iteration=done.iteration)
            if done.learner_state is not None:
                register.set_learner_state(done.learner_state)
            if done.step is not None:
                register.set_mark(of_lane(STEP, lane), repr(done.step).encode())
            for name in done.counts:
                register.count(name)
            if done.lost:
                register.count("discarded", done.lost)
            if kind == "final":
                forget_claims(register, lane)
                ends = of_lane(ENDS, lane)
                register.set_mark(ends, str(int(register.mark(ends) or 0) + 1).encode())
            if done.message is not None and row is not None:
                # It goes on as the message it replaces would have: not straight back where that came from.
                stored = self.spool.store(done.message)
                onward = None if self._dwells else self._next(row.came_from)
                made = register.add_message(stored, came_from=row.came_from, owed=row.owed, peer=onward)
            elif self.spares is not None and row is not None:
                self.spares.owe(register, row.came_from, row.owed)
            for peer, farewell in done.farewells.items():
                self._withdraw(register, peer, lane)
                register.add_message(self.spool.store(farewell), came_from=None, peer=peer, fixed=1 + lane)
            hit("train.before_commit" if kind == "checkpoint" else "finish.before_commit")
        hit("train.committed" if kind == "checkpoint" else "finish.committed")
        return made

    def discard(self, row: Row, done: Discard) -> None:
        """Let an opened message go, with what came of it besides."""
        if row.id in self._ours:
            self._given_up.append(self._ours[row.id])
        self._let_go(row.id)
        with self.spool.transaction() as register:
            register.drop(row, undelivered=True)
            register.count(done.count)
            if done.lost:
                register.count("discarded", done.lost)
            if done.claim is not None:
                add_claim(register, done.claim, lane=done.lane)
                stored = self.spool.store(done.claimed, plain=True)
                register.set_model(of_lane("claimed", done.lane), stored, tag=b"", iteration=done.claim.iteration)
            # As many words on an end as are believed; the model itself once, however often a neighbour asks.
            self._answer(register, done.farewells, done.lane, most=1 if done.claim is None else VOUCHERS)
            if self.spares is not None:
                self.spares.owe(register, row.came_from, row.owed)

    def farewell(self, peer: str, message: Bytes, lane: int) -> None:
        """Put the finished model of a lane under way to a neighbour."""
        with self.spool.transaction() as register:
            self._answer(register, {peer: message}, lane)

    def _withdraw(self, register: Register, peer: str, lane: int) -> None:
        """Let go of an earlier end that waits for a neighbour: of ends there can be ever better ones."""
        for row in register.pinned_to(peer):
            if row.fixed == 1 + lane and not self._is_given(register, row):
                register.drop(row, undelivered=True)

    def _answer(self, register: Register, farewells: Mapping[str, Bytes], lane: int, most: int = 1) -> None:
        for peer, message in farewells.items():
            if sum(row.fixed == 1 + lane for row in register.pinned_to(peer)) < most:
                register.add_message(self.spool.store(message), came_from=None, peer=peer, fixed=1 + lane)
