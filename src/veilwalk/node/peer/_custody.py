"""What a node owes: every message it took and has not handed on. Each method is one step that a crash cannot halve.

    offered -> held --given--> taken --not for us--> pinned to (peer, number) --> given --done--> gone
                                |--for us, known id--> gone when it would be pinned
                                |--for us, new id--> trained --> {id noted, old row out, new row, checkpoint} --> ...

A message is pinned before its first byte is sent, and offered under that number; a receiver holds it, uses it only when
it is given, and has it on disk before it says so. So a crash anywhere repeats a step, which the receiver knows by its
number. What was not given may go another way; what was given may be used already, and waits for the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from veilwalk.core.errors import ProtocolError
from veilwalk.node.peer._departures import Departures
from veilwalk.node.peer._draws import Draws
from veilwalk.node.peer._ends import VOUCHERS
from veilwalk.node.peer._held import HeldMessages
from veilwalk.node.peer._repeats import Visits
from veilwalk.node.peer._routing import NextHop
from veilwalk.node.sealing import Bytes, OpenedHeader, Opener
from veilwalk.node.spool import (
    ASKED,
    STEP,
    DamageError,
    Discard,
    Progress,
    Register,
    Row,
    Spares,
    Spool,
    Taken,
    Verdict,
    add_claim,
    forget_claims,
    hit,
    of_lane,
)


class Custody(Departures):
    """The messages of one node and the rules they follow. Used by one thread at a time."""

    def __init__(
        self,
        spool: Spool,
        *,
        opener: Opener,
        next_hop: NextHop,
        draws: Draws,
        quota: int,
        dwells: bool,
        spares: Spares | None = None,
        visits: Visits | None = None,
        gone: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        super().__init__(spool, next_hop=next_hop, draws=draws, spares=spares, gone=gone)
        self.visits = visits
        self.held = HeldMessages(spool)
        self.opener = opener
        self._quota = quota
        # With a constant dwell time a message is pinned when that is over; else at once, which saves a commit.
        self._dwells = dwells

    def follow(self, *, opener: Opener, next_hop: NextHop, allowed_visits: int) -> None:
        """Open, route and slow down as a new roster asks."""
        self.opener = opener
        self.next_hop = next_hop
        if self.visits is not None:
            self.visits.allowed = allowed_visits

    def greeted(self, peer: str, incarnation: bytes, settled: int = 0) -> int:
        """Note which disk a neighbour has that is about to offer messages; return the last number taken from it.

        Where that is less than the neighbour has ``settled``, this disk was put back, or the neighbour forgot some that
        it never offered: what it offers next is next.
        """
        if not self.spool.tables.is_disk_of(peer, incarnation):
            self.held.let_go(peer)
            with self.spool.transaction() as register:
                register.greeted(peer, incarnation)
        taken = self.spool.tables.taken(peer)
        if taken is None:
            return 0
        if taken < settled:
            with self.spool.transaction() as register:
                register.set_taken(peer, settled)
        return max(taken, settled)

    def hold(self, peer: str, seq: int, digest: bytes, body: Bytes) -> Verdict:
        """Keep message number ``seq``, which a neighbour offers, without using it.

        Raises:
            ProtocolError: The neighbour left a number out.
            SpoolError: It could not be stored.
        """
        hit("hold.received")
        refusal = self._refusal(peer, seq, body)
        if refusal is not None:
            return refusal
        try:
            self.held.put(peer, seq, digest, body)
        except DamageError:
            return Verdict.DAMAGED
        return Verdict.HELD

    def take(self, peer: str, seq: int) -> Taken:
        """Take message number ``seq``, which is held and now given; once this returns it is safe to say so.

        Raises:
            SpoolError: It could not be stored, and was not taken.
        """
        hit("take.received")
        if seq <= (self.spool.tables.taken(peer) or 0):
            return Taken(Verdict.AGAIN)
        held = self.held.pop(peer, seq)
        if held is None:
            # The neighbour may send it another way then: it must be certain.
            self.spool.settle()
            return Taken(Verdict.UNKNOWN)
        opened = self.opener.open(held.body)
        copy = opened is not None and self.spool.tables.is_opened(opened.header.update_id)
        for_us = opened is not None and not copy
        # Every visit counts, whatever it is: a neighbour may bring the same bytes again to see how long they stay.
        wait_s = 0.0 if self.visits is None else self.visits.wait_s(held.digest)
        wait_s = 0.0 if for_us else wait_s
        try:
            with self.spool.transaction() as register:
                register.set_taken(peer, seq)
                register.count("taken")
                self._note_use(register, peer)
                self._make_room(register, peer, self._quota)
                if wait_s:
                    register.count("rested")
                at_once = opened is None and not wait_s and not self._dwells
                onward = self._next(register, peer) if at_once else None
                row = register.add_message(held.stored, came_from=peer, owed=seq, peer=onward)
                hit("take.before_commit")
        except BaseException:
            self.spool.discard(held.stored)
            raise
        hit("take.committed")
        if copy:
            self._copies.add(row.id)
        if wait_s:
            self._resting.add(row.id)
        if for_us:
            self._ours.add(row.id)
        return Taken(Verdict.TAKEN, row, for_us=for_us, wait_s=wait_s)

    def recover(self) -> list[tuple[Row, bool]]:
        """Return every message in custody, and whether it is for us; damaged ones are thrown away."""
        found = []
        with self.spool.transaction() as register:
            rows = register.messages()
        for row in rows:
            if self.drop_if_damaged(row):
                continue
            opened = self.opener.open(self.spool.read(row)) if row.peer is None else None
            for_us = opened is not None and not self._is_copy(row.id, opened)
            if for_us:
                self._ours.add(row.id)
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
        if opened is not None and self._is_copy(number, opened):
            # It came while the first was being trained on.
            return row, None
        return row, opened

    def statistics(self) -> tuple[dict[str, int], int]:
        """Return all tallies, and how many messages are in custody."""
        return self.spool.tables.tallies(), len(self.spool.tables.messages())

    def has_a_walk(self) -> bool:
        """Return whether a message is here that may be a walk: one that did not come too often."""
        return any(row.id not in self._resting for row in self.spool.tables.messages())

    def count(self, name: str) -> None:
        """Add one to a tally; not worth waiting for the disk."""
        with self.spool.transaction(durable=False) as register:
            register.count(name)

    def pin(self, number: int) -> Row | None:
        """Draw the next hop of a held message; None if it is gone, or goes now because it was opened here before."""
        if number in self._copies:
            self.drop(number, "duplicates")
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

    def cancelled(self, peer: str, seq: int) -> None:
        """Note that a neighbour will not offer number ``seq``: it went another way, or is damaged there.

        One that was taken already stays: it may be the only copy.

        Raises:
            ProtocolError: The neighbour left a number out.
        """
        self.held.let_go(peer)
        with self.spool.transaction() as register:
            taken = register.taken(peer)
            if taken is not None and seq > taken + 1:
                raise ProtocolError("a peer cancelled a number far ahead")
            if taken is None or seq == taken + 1:
                register.set_taken(peer, seq)
            hit("cancel.before_commit")

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
            peer = None if self._dwells else self._next(register, None)
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
                self._ours.discard(row.id)
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
            if done.message is not None and row is not None:
                # It goes on as the message it replaces would have: not straight back where that came from.
                stored = self.spool.store(done.message)
                onward = None if self._dwells else self._next(register, row.came_from)
                made = register.add_message(stored, came_from=row.came_from, owed=row.owed, peer=onward)
            elif self.spares is not None and row is not None:
                self.spares.owe(register, row.came_from, row.owed)
            for peer, farewell in done.farewells.items():
                register.add_message(self.spool.store(farewell), came_from=None, peer=peer, fixed=1 + lane)
            hit("train.before_commit" if kind == "checkpoint" else "finish.before_commit")
        hit("train.committed" if kind == "checkpoint" else "finish.committed")
        return made

    def discard(self, row: Row, done: Discard) -> None:
        """Let an opened message go, with what came of it besides."""
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

    def _answer(self, register: Register, farewells: Mapping[str, Bytes], lane: int, most: int = 1) -> None:
        for peer, message in farewells.items():
            if sum(row.fixed == 1 + lane for row in register.pinned_to(peer)) < most:
                register.add_message(self.spool.store(message), came_from=None, peer=peer, fixed=1 + lane)

    def _is_copy(self, number: int, opened: OpenedHeader) -> bool:
        """Return whether a message was opened here before; then it is let go when it would be pinned.

        Until then it is held as a message for somebody else is: a neighbour that brings old bytes again must not see
        from how long they stay whether this node was their destination.
        """
        if self.spool.tables.is_opened(opened.header.update_id):
            self._copies.add(number)
        return number in self._copies

    def _refusal(self, peer: str, seq: int, body: Bytes) -> Verdict | None:
        tables = self.spool.tables
        taken = tables.taken(peer)
        if taken is not None and seq <= taken:
            return Verdict.AGAIN
        # Where nothing is known, here or there a disk was lost: whatever is offered first is next.
        if taken is not None and seq > taken + 1:
            raise ProtocolError("a peer offered a number far ahead")
        return None if self.opener.is_current(body) else Verdict.REFUSED
