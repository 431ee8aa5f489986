"""The sending half of a node's custody: where a message goes next, and when it may be let go."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Protocol

from veilwalk.core.errors import ProtocolError, SpoolError
from veilwalk.node.peer._draws import Draws
from veilwalk.node.peer._routing import NextHop
from veilwalk.node.sealing import Bytes
from veilwalk.node.spool import DamageError, Outgoing, Register, Row, Spares, Spool, hit

# A neighbour may say that it has taken so many. Half of the numbers that a table holds are left after that.
_MOST_TAKEN = 2**62


class Offers(Protocol):
    """The links of a node, as its custody sees them: to offer what is being written."""

    def offer(self, peer: str, seq: int, digest: bytes, body: Bytes, /) -> bool:
        """Offer a message whose number is not on disk yet, if the link is free; return whether it is offered."""
        ...

    def withdraw(self, peer: str, /) -> None:
        """Break the link off: what was offered came to nothing."""
        ...


class NoOffers:
    """No links: nothing is offered before it is on disk."""

    def offer(self, peer: str, seq: int, digest: bytes, body: Bytes, /) -> bool:
        """Offer nothing."""
        del peer, seq, digest, body
        return False

    def withdraw(self, peer: str, /) -> None:
        """Nothing was offered."""


class Departures:
    """Messages on their way out of one node. Used by one thread at a time."""

    def __init__(
        self,
        spool: Spool,
        *,
        next_hop: NextHop,
        draws: Draws,
        spares: Spares | None,
        gone: Callable[[], frozenset[str]],
    ) -> None:
        self.spool = spool
        self.spares = spares
        self.next_hop = next_hop
        self._draws = draws
        # Neighbours that are known not to be there: with all links up, none, and the walk is the simulator's.
        self._gone = gone
        # Messages that wait because they came too often.
        self._resting: set[int] = set()
        # Messages that open here and wait for the training, with the ids of their updates.
        self._ours: dict[int, bytes] = {}
        # Messages that are too old to go on: let go at the moment they would be pinned.
        self._outlived: set[int] = set()
        # What this process has noted as given: whether it has said so. What an earlier one noted is not here.
        self._told: dict[tuple[str, int], bool] = {}

    def outgoing(self, peer: str) -> Outgoing | None:
        """Return what is next on the link to ``peer``: the lowest number that is neither delivered nor cancelled."""
        row, inline, given, cancelled = self.spool.tables.next_for(peer)
        if cancelled is not None and (row is None or cancelled < (row.seq or 0)):
            return Outgoing(cancelled, None, b"")
        if row is None:
            return None
        try:
            body = inline if inline is not None else self.spool.read_unchecked(row)
            # A number of an earlier process may have been offered with another message: not asked about, but offered.
            return Outgoing(row.seq or 0, row, body, given=given and self._told.get((peer, row.seq or 0), False))
        except DamageError:
            self.drop(row.id, "damaged")
            return self.outgoing(peer)

    def next_out(self, row: Row | None, body: bytes | None = None) -> tuple[str, Outgoing] | None:
        """Return a message that was just pinned with its link and its bytes, if it is next there."""
        if row is None or row.peer is None:
            return None
        if body is not None:
            return row.peer, Outgoing(row.seq or 0, row, body)
        with contextlib.suppress(SpoolError):
            outgoing = self.outgoing(row.peer)
            if outgoing is not None and outgoing.row is not None and outgoing.row.id == row.id:
                return row.peer, outgoing
        return None

    def settled(self, peer: str) -> int:
        """Return the last number on the link to ``peer`` before those that are yet to be handed over."""
        tables = self.spool.tables
        open_numbers = [row.seq or 0 for row in tables.pinned_to(peer)[:1]] + tables.cancelled(peer)[:1]
        return min(open_numbers) - 1 if open_numbers else tables.sent(peer)

    def renumbered(self, peer: str, taken: int) -> bool:
        """Number what waits for ``peer`` anew where it has taken more than was ever sent by this disk's account.

        Then this disk was put back to an earlier day: what it would send under an old number ``peer`` would take for
        what it has already, and throw away. Return whether it was so.

        Raises:
            ProtocolError: There would be no numbers left.
        """
        if taken <= self.spool.tables.sent(peer):
            return False
        if taken > _MOST_TAKEN:
            raise ProtocolError("a peer has taken more than anybody can have sent")
        with self.spool.transaction() as register:
            register.set_sent(peer, taken)
            for row in register.pinned_to(peer):
                self._told.pop((peer, row.seq or 0), None)
                register.pin(row, peer)
            for seq in register.cancelled(peer):
                register.cancel_done(peer, seq)
            register.count("put_back")
        return True

    def waits_for(self, peer: str) -> bool:
        """Return whether anything is to be handed over to ``peer``."""
        return bool(self.spool.tables.pinned_to(peer) or self.spool.tables.cancelled(peer))

    def give(self, peer: str, seq: int) -> bool:
        """Note that a message is the neighbour's to use, before it is told so; it goes no other way from now on.

        Return whether it may be: it may have gone another way since it was offered.
        """
        if (peer, seq) in self._told:
            # Noted with its number.
            self._told[peer, seq] = True
            return True
        # After a power cut, which may undo this, everything pinned counts as given: no need to wait for the disk.
        with self.spool.transaction(durable=False) as register:
            if not register.give(peer, seq):
                return False
            hit("give.before_commit")
        hit("give.committed")
        self._told[peer, seq] = True
        return True

    def not_given(self, peer: str, seq: int) -> None:
        """Note that the neighbour said it did not take a message."""
        self._told.pop((peer, seq), None)
        with self.spool.transaction(durable=False) as register:
            register.not_given(peer, seq)

    def delivered(self, peer: str, seq: int) -> None:
        """Let go of a message that ``peer`` has taken, or of a cancellation that it knows of."""
        hit("send.before_delete")
        self._told.pop((peer, seq), None)
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
        if set(self.next_hop.neighbours) <= avoid | {peer}:
            # Nobody else is there: every draw would only leave another number to cancel.
            return set()
        chosen = set()
        with self.spool.transaction() as register:
            for row in register.pinned_to(peer):
                if not row.fixed and not self._is_given(register, row):
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
        self._let_go(number)
        with self.spool.transaction() as register:
            row = register.message(number)
            if row is not None:
                register.drop(row, undelivered=True)
                register.count(count)
                if self.spares is not None:
                    self.spares.owe(register, row.came_from, row.owed)

    def _make_room(self, register: Register, peer: str, quota: int) -> int | None:
        """Let one of a neighbour's messages go where it has brought more than it may, and return which.

        No other's is touched for it. Nobody waits for room, so none can be waited for in a circle: what nobody can open
        must not stop what somebody can. An honest network never has as many messages as one neighbour may bring. What
        came too often goes first, then any that is not for this node; the oldest of those may be at work.
        """
        brought = register.not_given_from(peer)
        if len(brought) < quota:
            return None
        resting = [row for row in brought if row.id in self._resting]
        strange = [row for row in brought if row.id not in self._ours]
        options = resting or strange or brought[1:] or brought
        row = options[self._draws.below(len(options))]
        register.drop(row, undelivered=True)
        register.count("crowded_out")
        if self.spares is not None:
            self.spares.owe(register, row.came_from, row.owed)
        return row.id

    def _let_go(self, number: int) -> None:
        self._resting.discard(number)
        self._ours.pop(number, None)
        self._outlived.discard(number)

    def drop_if_damaged(self, row: Row) -> bool:
        """Let a message go if its file is not what was written; return whether it was so."""
        try:
            self.spool.read(row)
        except DamageError:
            self.drop(row.id, "damaged")
            return True
        return False

    def _is_given(self, register: Register, row: Row) -> bool:
        """Return whether the neighbour may be using a pinned message: it was told so, or may have been long ago."""
        peer, seq = str(row.peer), row.seq or 0
        return self._told.get((peer, seq), True) and register.is_given(peer, seq)

    def _pin(self, register: Register, row: Row, *, avoid: frozenset[str] = frozenset()) -> Row:
        if row.peer is not None:
            self._told.pop((row.peer, row.seq or 0), None)
        return register.pin(row, self._next(row.came_from, avoid=avoid))

    def _next(self, came_from: str | None, *, avoid: frozenset[str] = frozenset()) -> str:
        """Draw the next hop of a message that came from there."""
        gone = avoid | self._gone()
        if gone.issuperset(self.next_hop.neighbours):
            # Better one that took nothing lately than the one that it waited for in vain.
            gone = avoid
        return self.next_hop.choose(self._draws, came_from=came_from, avoid=gone)
