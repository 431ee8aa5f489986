"""What a node owes: every message it took and has not handed on. Each method is one step that a crash cannot halve.

    taken -> held --not for us--> pinned to (peer, number) --acknowledged--> gone
              |--for us, known id--> gone
              |--for us, new id--> trained --> {id noted, old row out, new row held, checkpoint} --> pinned ...

A message is pinned before its first byte is sent, and offered under that number until it is acknowledged; a receiver
has it on disk before it acknowledges. So a crash anywhere repeats an offer, which the receiver knows by its number.
"""

from __future__ import annotations

from veilwalk.core.errors import ProtocolError
from veilwalk.node.peer._draws import Draws
from veilwalk.node.peer._repeats import Visits
from veilwalk.node.peer._routing import NextHop
from veilwalk.node.sealing import Bytes, OpenedHeader, Opener
from veilwalk.node.spool import (
    DamageError,
    Outgoing,
    Progress,
    Register,
    Row,
    Spares,
    Spool,
    Stored,
    Taken,
    Verdict,
    hit,
)

_MOST_RESTING = 64


class Custody:
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
    ) -> None:
        self.spool = spool
        self.spares = spares
        self.visits = visits
        # Messages that wait because they came too often, and from whom: no neighbour's quota is used up by them.
        self._resting: dict[int, str] = {}
        self.opener = opener
        self.next_hop = next_hop
        self._draws = draws
        self._quota = quota
        # With a constant dwell time a message is pinned when that is over; else at once, which saves a commit.
        self._dwells = dwells

    def follow(self, *, opener: Opener, next_hop: NextHop, allowed_visits: int) -> None:
        """Open, route and slow down as a new roster asks."""
        self.opener = opener
        self.next_hop = next_hop
        if self.visits is not None:
            self.visits.allowed = allowed_visits

    def greeted(self, peer: str, incarnation: bytes) -> None:
        """Note which disk a neighbour has that is about to offer messages."""
        with self.spool.transaction() as register:
            register.greeted(peer, incarnation)

    def take(self, peer: str, seq: int, digest: bytes, body: Bytes) -> Taken:
        """Take message number ``seq`` from a neighbour; once this returns it is safe to acknowledge.

        Raises:
            ProtocolError: The neighbour left a number out.
            SpoolError: It could not be stored, and was not taken.
        """
        hit("take.received")
        stored: Stored | None = None
        try:
            with self.spool.transaction() as register:
                refusal = self._refusal(register, peer, seq, body)
                if refusal is not None:
                    return refusal
                opened = self.opener.open(body)
                wait_s = 0.0 if opened is not None or self.visits is None else self.visits.wait_s(digest)
                register.set_taken(peer, seq)
                register.count("taken")
                self._note_use(register, peer)
                if opened is not None and register.is_opened(opened.header.update_id):
                    register.count("duplicates")
                    if self.spares is not None:
                        self.spares.owe(register, peer, seq)
                    return Taken(Verdict.TAKEN)
                stored = self.spool.store(body, digest=digest)
                hit("take.file_written")
                if wait_s:
                    register.count("rested")
                at_once = opened is None and not wait_s and not self._dwells
                onward = self._next(register, peer) if at_once else None
                row = register.add_message(stored, came_from=peer, owed=seq, peer=onward)
                hit("take.before_commit")
        except DamageError:
            return Taken(Verdict.DAMAGED)
        except BaseException:
            if stored is not None:
                self.spool.discard(stored)
            raise
        hit("take.committed")
        if wait_s:
            self._resting[row.id] = peer
        return Taken(Verdict.TAKEN, row, for_us=opened is not None, wait_s=wait_s)

    def recover(self) -> list[tuple[Row, bool]]:
        """Return every message in custody, and whether it is for us; damaged ones are thrown away."""
        found = []
        with self.spool.transaction() as register:
            rows = register.messages()
        for row in rows:
            if self.drop_if_damaged(row):
                continue
            message = self.spool.read(row)
            for_us = row.peer is None and self.opener.open(message) is not None
            found.append((row, for_us))
        return found

    def examine(self, number: int) -> tuple[Row, OpenedHeader | None] | None:
        """Return a held message with its header, if it opens; None if it is gone, damaged or on its way."""
        row = self.spool.tables.message(number)
        if row is None or row.peer is not None:
            return None
        if self.drop_if_damaged(row):
            return None
        opened = self.opener.open(self.spool.read(row))
        if opened is not None and self.spool.tables.is_opened(opened.header.update_id):
            # A copy that came while the first was being trained on.
            self.drop(number, "duplicates")
            return None
        return row, opened

    def outgoing(self, peer: str) -> Outgoing | None:
        """Return what is next on the link to ``peer``: the lowest number that is neither delivered nor cancelled."""
        tables = self.spool.tables
        rows, cancelled = tables.pinned_to(peer), tables.cancelled(peer)
        if cancelled and (not rows or cancelled[0] < (rows[0].seq or 0)):
            return Outgoing(cancelled[0], None, b"")
        if not rows:
            return None
        try:
            return Outgoing(rows[0].seq or 0, rows[0], self.spool.read_unchecked(rows[0]))
        except DamageError:
            self.drop(rows[0].id, "damaged")
            return self.outgoing(peer)

    def statistics(self) -> tuple[dict[str, int], int]:
        """Return all tallies, and how many messages are in custody."""
        return self.spool.tables.tallies(), len(self.spool.tables.messages())

    def waits_for(self, peer: str) -> bool:
        """Return whether anything is to be handed over to ``peer``."""
        return bool(self.spool.tables.pinned_to(peer) or self.spool.tables.cancelled(peer))

    def pin(self, number: int) -> Row | None:
        """Draw the next hop of a held message; None if it is gone."""
        self._resting.pop(number, None)
        with self.spool.transaction() as register:
            row = register.message(number)
            if row is None or row.peer is not None:
                return row
            row = self._pin(register, row)
            hit("route.before_commit")
        hit("route.committed")
        return row

    def delivered(self, peer: str, seq: int) -> None:
        """Let go of a message, or a cancellation, that ``peer`` has acknowledged."""
        hit("send.before_delete")
        # Undone by a power cut, it is offered again and acknowledged again: no need to wait for the disk.
        with self.spool.transaction(durable=False) as register:
            row = register.pinned(peer, seq)
            if row is None:
                register.cancel_done(peer, seq)
            elif self.spares is None or row.fixed:
                register.drop(row)
                register.count("farewells" if row.fixed else "hops")
            else:
                self.spares.keep(register, row)
                self.spares.owe(register, row.came_from, row.owed)
                register.count("hops")
        hit("send.deleted")

    def reroute(self, peer: str, *, avoid: frozenset[str]) -> set[str]:
        """Give the messages pinned to a silent neighbour to others; return to whom."""
        if set(self.next_hop.neighbours) <= {peer}:
            return set()
        chosen = set()
        with self.spool.transaction() as register:
            for row in register.pinned_to(peer):
                if not row.fixed:
                    moved = self._pin(register, row, avoid=avoid | {peer})
                    register.count("rerouted")
                    chosen.add(str(moved.peer))
        return chosen

    def part_from(self, peer: str) -> list[Row]:
        """Forget what was for a neighbour that has left for good; return what it had been given and may have lost."""
        revived: list[Row] = []
        with self.spool.transaction() as register:
            for row in register.pinned_to(peer):
                if row.fixed:
                    register.drop(row)
            if self.spares is not None:
                for row in self.spares.revive(register, peer):
                    revived.append(self._pin(register, row))
                    register.count("revived")
            for seq in register.cancelled(peer):
                register.cancel_done(peer, seq)
        return revived

    def cancelled(self, peer: str, seq: int) -> None:
        """Note that a neighbour will not offer number ``seq``: it went another way, or is damaged there.

        One that was taken already stays: it may be the only copy, and of two the destination drops one.

        Raises:
            ProtocolError: The neighbour left a number out.
        """
        with self.spool.transaction() as register:
            taken = register.taken(peer)
            if taken is not None and seq > taken + 1:
                raise ProtocolError("a peer cancelled a number far ahead")
            if taken is None or seq == taken + 1:
                register.set_taken(peer, seq)
            hit("cancel.before_commit")

    def drop(self, number: int, count: str) -> None:
        """Let a message go for good, and count why."""
        self._resting.pop(number, None)
        with self.spool.transaction() as register:
            row = register.message(number)
            if row is not None:
                register.drop(row, undelivered=True)
                register.count(count)
                if self.spares is not None:
                    self.spares.owe(register, row.came_from, row.owed)

    def drop_if_damaged(self, row: Row) -> bool:
        """Let a message go if its file is not what was written; return whether it was so."""
        try:
            self.spool.read(row)
        except DamageError:
            self.drop(row.id, "damaged")
            return True
        return False

    def expire(self) -> None:
        """Let go of messages whose epoch is over: nobody opens them any more."""
        with self.spool.transaction() as register:
            rows = register.messages()
        for row in rows:
            if not self.drop_if_damaged(row) and not self.opener.is_current(self.spool.read(row)):
                self.drop(row.id, "expired")

    def create(self, message: Bytes, count: str) -> Row:
        """Put a walk made here under way."""
        with self.spool.transaction() as register:
            register.count(count)
            peer = None if self._dwells else self._next(register, None)
            return register.add_message(self.spool.store(message), came_from=None, peer=peer)

    def progress(self, row: Row, done: Progress) -> Row | None:
        """Put what came of an opened message in its place; return the new message, if there is one."""
        hit("train.sealed")
        kind = "final" if done.message is None else "checkpoint"
        made: Row | None = None
        with self.spool.transaction() as register:
            register.add_opened(done.header.update_id, done.epoch)
            register.saw_walk(done.header.walk_tag, done.iteration, register.count("turns"))
            register.drop(row)
            stored = self.spool.store(done.model, plain=True)
            register.set_model(kind, stored, tag=done.header.walk_tag, iteration=done.iteration)
            if done.learner_state is not None:
                register.set_learner_state(done.learner_state)
            for name in done.counts:
                register.count(name)
            if done.message is not None:
                # It goes on as the message it replaces would have: not straight back where that came from.
                stored = self.spool.store(done.message)
                onward = None if self._dwells else self._next(register, row.came_from)
                made = register.add_message(stored, came_from=row.came_from, owed=row.owed, peer=onward)
            elif self.spares is not None:
                self.spares.owe(register, row.came_from, row.owed)
            for peer, farewell in done.farewells.items():
                register.add_message(self.spool.store(farewell), came_from=None, peer=peer, fixed=True)
            hit("train.before_commit" if kind == "checkpoint" else "finish.before_commit")
        hit("train.committed" if kind == "checkpoint" else "finish.committed")
        return made

    def _refusal(self, register: Register, peer: str, seq: int, body: Bytes) -> Taken | None:
        taken = register.taken(peer)
        if taken is not None and seq <= taken:
            return Taken(Verdict.AGAIN)
        # Where nothing is known, here or there a disk was lost: whatever is offered first is next.
        if taken is not None and seq > taken + 1:
            raise ProtocolError("a peer offered a number far ahead")
        resting = min(list(self._resting.values()).count(peer), _MOST_RESTING)
        if register.count_from(peer) >= self._quota + resting:
            return Taken(Verdict.BUSY)
        return None if self.opener.is_current(body) else Taken(Verdict.REFUSED)

    def _pin(self, register: Register, row: Row, *, avoid: frozenset[str] = frozenset()) -> Row:
        return register.pin(row, self._next(register, row.came_from, avoid=avoid))

    def _next(self, register: Register, came_from: str | None, *, avoid: frozenset[str] = frozenset()) -> str:
        """Draw the next hop of a message that came from there."""
        clocks = register.edge_clocks() if self.next_hop.walk.remembers else {}
        peer = self.next_hop.choose(self._draws, came_from=came_from, clocks=clocks, avoid=avoid)
        self._note_use(register, peer)
        return peer

    def _note_use(self, register: Register, peer: str) -> None:
        if self.next_hop.walk.remembers:
            register.used_edge(peer)
