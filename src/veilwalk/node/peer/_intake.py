"""The receiving half of a node's custody: what neighbours offer, and what becomes of it when they give it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from veilwalk.core.errors import ProtocolError
from veilwalk.node.peer._departures import Departures, NoOffers, Offers
from veilwalk.node.peer._draws import Draws
from veilwalk.node.peer._held import Held, HeldMessages
from veilwalk.node.peer._repeats import Visits
from veilwalk.node.peer._routing import NextHop
from veilwalk.node.sealing import Bytes, OpenedHeader, Opener
from veilwalk.node.spool import DamageError, Row, Spares, Spool, Taken, Verdict, hit

# Remembered in memory, and only so many: whoever can seal can have any number of them given up, without any training.
_GIVEN_UP = 4096


class Intake(Departures):
    """Messages on their way into one node, and out again. Used by one thread at a time."""

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
        offers: Offers | None = None,
    ) -> None:
        super().__init__(spool, next_hop=next_hop, draws=draws, spares=spares, gone=gone)
        self._offers = offers or NoOffers()
        self.visits = visits
        self.held = HeldMessages(spool)
        # The ids of those that were opened and given up.
        self._given_up: deque[bytes] = deque(maxlen=_GIVEN_UP)
        self.opener = opener
        self._quota = quota
        # With a constant dwell time a message is pinned when that is over; else at once, which saves a commit.
        self._dwells = dwells

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

    def slept(self, seconds: float) -> None:
        """Note that nothing could come by for so long."""
        if self.visits is not None:
            self.visits.slept(seconds)

    def look_at_held(self, peer: str) -> None:
        """See whether what a neighbour offered is for this node, while it makes up its mind to give it.

        Only where nothing dwells: else somebody who gives nothing could learn from the time it takes.
        """
        if not self._dwells:
            self.held.look_at(peer, self.opener)

    def take(self, peer: str, seq: int) -> Taken:
        """Take message number ``seq``, which is held and now given; once this returns it is safe to say so.

        Raises:
            SpoolError: It could not be stored, and was not taken.
        """
        hit("take.received")
        if self.has_taken(peer, seq):
            self.held.let_go(peer)
            return Taken(Verdict.AGAIN)
        held = self.held.pop(peer, seq)
        if held is None:
            # The neighbour may send it another way then: it must be certain.
            self.spool.settle()
            return Taken(Verdict.UNKNOWN)
        opened = held.open(self.opener)
        for_us = self._is_new(opened)
        # Every visit counts, whatever it is.
        wait_s, is_last = (0.0, False) if self.visits is None else self.visits.visit(held.digest)
        wait_s = 0.0 if for_us else wait_s
        goes_on = not for_us and not wait_s and not self._dwells
        row, early, crowded_out = self._write(peer, held, goes_on=goes_on, rests=wait_s > 0)
        if wait_s:
            self._resting.add(row.id)
            if is_last:
                self._outlived.add(row.id)
        if opened is not None and for_us:
            self._ours[row.id] = opened.header.update_id
        body = held.stored.inline if early else None
        return Taken(Verdict.TAKEN, row, for_us=for_us, wait_s=wait_s, body=body, crowded_out=crowded_out)

    def has_taken(self, peer: str, seq: int) -> bool:
        """Return whether that number of a neighbour's was taken."""
        return seq <= (self.spool.tables.taken(peer) or 0)

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

    def _is_new(self, opened: OpenedHeader | None) -> bool:
        """Return whether a message opens here for the first time.

        What was opened before, or given up, or waits for the training, goes on like what never was: a neighbour may
        bring it again to see what becomes of it.
        """
        if opened is None:
            return False
        update_id = opened.header.update_id
        if update_id in self._ours.values() or update_id in self._given_up:
            return False
        return not self.spool.tables.is_opened(update_id)

    def _write(self, peer: str, held: Held, *, goes_on: bool, rests: bool) -> tuple[Row, bool, int | None]:
        """Take a message into custody; return it, whether it is being offered already, and which had to go for it."""
        onward, number, early = None, None, False
        try:
            with self.spool.transaction() as register:
                if goes_on:
                    onward = self._next(peer)
                    number = register.number(onward)
                    early = self._offer_early(onward, number, held)
                register.set_taken(peer, held.seq)
                register.count("taken")
                crowded_out = self._make_room(register, peer, self._quota)
                if rests:
                    register.count("rested")
                row = register.add_message(held.stored, came_from=peer, owed=held.seq, peer=onward, seq=number)
                if early:
                    # With its number, before it is said: one commit less on its way. A process that dies before it
                    # says so leaves a message that may be in use.
                    register.give(str(row.peer), row.seq or 0)
                hit("take.before_commit")
        except BaseException:
            if early:
                self._offers.withdraw(str(onward))
            self.spool.discard(held.stored)
            raise
        hit("take.committed")
        if early:
            self._told[str(row.peer), row.seq or 0] = False
        if crowded_out is not None:
            self._let_go(crowded_out)
        return row, early, crowded_out

    def _offer_early(self, onward: str, number: int, held: Held) -> bool:
        """Offer a message on while the disk is busy with it, where it is short and the link free; return whether so.

        The neighbour uses nothing that was not given to it, and nothing is given before this disk has it. Where it
        never comes to that, the number is given out again: so a process gives nothing that it has not offered itself.
        """
        body = held.stored.inline
        return body is not None and self._offers.offer(onward, number, held.digest, body)

    def _refusal(self, peer: str, seq: int, body: Bytes) -> Verdict | None:
        tables = self.spool.tables
        taken = tables.taken(peer)
        if taken is not None and seq <= taken:
            return Verdict.AGAIN
        # Where nothing is known, here or there a disk was lost: whatever is offered first is next.
        if taken is not None and seq > taken + 1:
            raise ProtocolError("a peer offered a number far ahead")
        return None if self.opener.is_current(body) else Verdict.REFUSED
