"""The sending half of a node's custody: where a message goes next, and when it may be let go."""

from __future__ import annotations

from veilwalk.node.peer._draws import Draws
from veilwalk.node.peer._routing import NextHop
from veilwalk.node.spool import DamageError, Outgoing, Register, Row, Spares, Spool, hit


class Departures:
    """Messages on their way out of one node. Used by one thread at a time."""

    def __init__(self, spool: Spool, *, next_hop: NextHop, draws: Draws, spares: Spares | None) -> None:
        self.spool = spool
        self.spares = spares
        self.next_hop = next_hop
        self._draws = draws
        # Messages that wait because they came too often, and from whom: no neighbour's quota is used up by them.
        self._resting: dict[int, str] = {}

    def outgoing(self, peer: str) -> Outgoing | None:
        """Return what is next on the link to ``peer``: the lowest number that is neither delivered nor cancelled."""
        tables = self.spool.tables
        rows, cancelled = tables.pinned_to(peer), tables.cancelled(peer)
        if cancelled and (not rows or cancelled[0] < (rows[0].seq or 0)):
            return Outgoing(cancelled[0], None, b"")
        if not rows:
            return None
        try:
            seq = rows[0].seq or 0
            return Outgoing(seq, rows[0], self.spool.read_unchecked(rows[0]), given=tables.is_given(peer, seq))
        except DamageError:
            self.drop(rows[0].id, "damaged")
            return self.outgoing(peer)

    def waits_for(self, peer: str) -> bool:
        """Return whether anything is to be handed over to ``peer``."""
        return bool(self.spool.tables.pinned_to(peer) or self.spool.tables.cancelled(peer))

    def give(self, peer: str, seq: int) -> bool:
        """Note that a message is the neighbour's to use, before it is told so; it goes no other way from now on.

        Return whether it may be: it may have gone another way since it was offered.
        """
        # After a power cut, which may undo this, everything pinned counts as given: no need to wait for the disk.
        with self.spool.transaction(durable=False) as register:
            if register.pinned(peer, seq) is None:
                return False
            register.give(peer, seq)
            hit("give.before_commit")
        hit("give.committed")
        return True

    def not_given(self, peer: str, seq: int) -> None:
        """Note that the neighbour said it did not take a message."""
        with self.spool.transaction(durable=False) as register:
            register.not_given(peer, seq)

    def delivered(self, peer: str, seq: int) -> None:
        """Let go of a message that ``peer`` has taken, or of a cancellation that it knows of."""
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
        """Pin the messages of a silent neighbour that were not given to others; return to whom."""
        if set(self.next_hop.neighbours) <= {peer}:
            return set()
        chosen = set()
        with self.spool.transaction() as register:
            for row in register.pinned_to(peer):
                if not row.fixed and not register.is_given(peer, row.seq or 0):
                    moved = self._pin(register, row, avoid=avoid | {peer})
                    register.count("rerouted")
                    chosen.add(str(moved.peer))
        return chosen

    def part_from(self, peer: str) -> list[Row]:
        """Forget what was for a neighbour that has left for good; return what it had been given and may have lost.

        It may have passed that on before: then there are two walks, which merge. Better than none.
        """
        revived: list[Row] = []
        with self.spool.transaction() as register:
            for row in register.pinned_to(peer):
                if row.fixed:
                    register.drop(row)
                else:
                    revived.append(self._pin(register, row))
                    register.count("rerouted")
            if self.spares is not None:
                for row in self.spares.revive(register, peer):
                    revived.append(self._pin(register, row))
                    register.count("revived")
            for seq in register.cancelled(peer):
                register.cancel_done(peer, seq)
        return revived

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
