"""The desk of a node: every message passes over it, from the link it came by to the link it leaves by.

Storage is done one step at a time, so that it needs no locks; training by another, so that storage never waits for it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from veilwalk.core.errors import SpoolError
from veilwalk.node.link import Hello, Offer, answer_spread
from veilwalk.node.members import Roster
from veilwalk.node.peer._age import Watches
from veilwalk.node.peer._custody import Custody
from veilwalk.node.peer._debts import Debts
from veilwalk.node.peer._destination import Destination
from veilwalk.node.peer._routing import NextHop
from veilwalk.node.peer._storage import Storage
from veilwalk.node.peer._study import STORAGE_FAILURES, Study
from veilwalk.node.peer._timers import Timers
from veilwalk.node.sealing import Bytes, Opener
from veilwalk.node.spool import Outgoing, Progress, Row, Taken, Verdict

_RETRY_STORAGE_S = 1.0
# The event loop counts in milliseconds from whatever it did last, which after training is another phase than after
# relaying: a message is called up this much early, and the rest is waited for exactly.
_EARLY_S = 0.003


class Desk:
    """Takes messages in, works on those that open here, and gives each to the link it is pinned to."""

    def __init__(
        self,
        custody: Custody,
        destination: Destination,
        *,
        watches: Watches,
        dwell_s: float,
        spare_s: float,
        wake: Callable[[str], None],
        roster: Callable[[], Roster],
        trouble: Callable[[str], None],
        failed: Callable[[str], None],
        new_disk: Callable[[str], None],
    ) -> None:
        self.custody = custody
        self._watches = watches
        self._dwell_s = dwell_s
        self._storage = Storage()
        self.storage = self._storage.do
        self.debts = Debts(
            custody, dwell_s=dwell_s, spare_s=spare_s, storage=self.storage, spawn=self._spawn, trouble=trouble
        )
        #: Drops the spare copy of a message that a neighbour has long handed on.
        self.released = self.debts.released
        self._wake = wake
        #: Notes that the disk failed.
        self.trouble = trouble
        self._new_disk = new_disk
        #: Whether this node is about to leave, and takes nothing new.
        self.draining = False
        self._arrived: dict[int, float] = {}
        # What was pinned last, read before it is asked for: one trip to the storage thread less for every hop.
        self._ahead: tuple[str, Outgoing] | None = None
        self._to_open: asyncio.Queue[int] = asyncio.Queue()
        self._timers = Timers()
        self._tasks: set[asyncio.Task[None]] = set()
        self._study = Study(custody, destination, storage=self._storage, roster=roster, failed=failed)

    async def recover(self) -> None:
        """Go on with everything that was in custody when the node stopped."""
        for row, for_us in await self.storage(self.custody.recover):
            self.debts.came(row.came_from, row.owed, waits=for_us)
            self._settle(row, for_us=for_us)
        await self.debts.pay_later()

    async def follow(self, *, opener: Opener, next_hop: NextHop, allowed_visits: int) -> None:
        """Work under a new roster: what is stored or routed from now on follows it."""
        await self.storage(
            partial(self.custody.follow, opener=opener, next_hop=next_hop, allowed_visits=allowed_visits)
        )

    async def greeted(self, peer: str, hello: Hello) -> int:
        """Note which disk a neighbour has that is about to offer messages; return the last number taken from it."""
        known = await self.storage(self.custody.spool.tables.is_disk_of, peer, hello.incarnation)
        taken = await self.storage(self.custody.greeted, peer, hello.incarnation, hello.settled)
        if not known:
            # It gets the finished model again.
            self._new_disk(peer)
            await self._study.bid_farewell(peer)
            self._wake(peer)
        return taken

    async def settled(self, peer: str) -> int:
        """Return the last number on the link to ``peer`` before those that are yet to be handed over."""
        return await self.storage(self.custody.settled, peer)

    async def answered(self, peer: str, hello: Hello) -> bool:
        """Note what ``peer`` has taken; where this disk knows less, number what waits for it anew, and return that."""
        renumbered = await self.storage(self.custody.renumbered, peer, hello.settled)
        if renumbered:
            self._ahead = None
        return renumbered

    async def hold(self, peer: str, offer: Offer, body: Bytes) -> Verdict:
        """Keep a message that a neighbour offers, and do nothing with it yet."""
        if self.draining and not await self._storage.do_briefly(self.custody.has_taken, peer, offer.seq):
            return Verdict.BUSY
        try:
            return await self._storage.do_briefly(self.custody.hold, peer, offer.seq, offer.digest, body)
        except SpoolError as error:
            self.trouble(str(error))
            raise

    async def held(self, peer: str) -> None:
        """Note that a neighbour was told that its message is held: there is time to look at it."""
        await self._storage.do_briefly(self.custody.look_at_held, peer)

    async def take(self, peer: str, seq: int) -> Verdict:
        """Take a held message that the neighbour has given; on disk when this returns."""
        try:
            taken, ahead = await self._storage.do_briefly(self._take_in, peer, seq)
        except SpoolError as error:
            self.trouble(str(error))
            raise
        if taken.row is not None and not taken.wait_s:
            # What comes too often is no sign of life.
            self._watches.came()
            self._watches.pace.came(taken.row.id)
        if taken.crowded_out is not None:
            self._timers.forget(taken.crowded_out)
            self._arrived.pop(taken.crowded_out, None)
        if taken.row is not None:
            self._ahead = ahead or self._ahead
            self.debts.came(peer, seq, waits=taken.for_us or taken.wait_s > 0)
            self._settle(taken.row, for_us=taken.for_us, wait_s=taken.wait_s)
        return taken.verdict

    async def cancelled(self, peer: str, seq: int) -> None:
        """Note that a message went another way; on disk when this returns."""
        await self.storage(self.custody.cancelled, peer, seq)

    async def outgoing(self, peer: str) -> Outgoing | None:
        """Return what is next for ``peer``."""
        if self._ahead is not None and self._ahead[0] == peer:
            (_, outgoing), self._ahead = self._ahead, None
            return outgoing
        return await self._storage.do_briefly(self.custody.outgoing, peer)

    async def waits_for(self, peer: str) -> bool:
        """Return whether anything is to be handed over to ``peer``."""
        return await self._storage.do_briefly(self.custody.waits_for, peer)

    async def give(self, peer: str, outgoing: Outgoing) -> bool:
        """Note that a message is ``peer``'s from now on, before it is told so; return whether it may be."""
        return await self._storage.do_briefly(self.custody.give, peer, outgoing.seq)

    async def not_given(self, peer: str, outgoing: Outgoing) -> None:
        """Note that ``peer`` said it did not take it."""
        self._ahead = None
        await self._storage.do_briefly(self.custody.not_given, peer, outgoing.seq)

    async def delivered(self, peer: str, outgoing: Outgoing) -> None:
        """Let go of what ``peer`` has taken."""
        self._ahead = None
        if outgoing.row is not None:
            self._watches.pace.went(outgoing.row.id)
        await self._storage.do_briefly(self.custody.delivered, peer, outgoing.seq)
        await self.debts.pay_later()

    async def damaged(self, outgoing: Outgoing) -> None:
        """Throw a message away if it is damaged on this node's own disk; a walk is lost, never passed on broken."""
        if outgoing.row is not None:
            await self.storage(self.custody.drop_if_damaged, outgoing.row)

    async def reroute(self, peer: str, *, silent: frozenset[str]) -> bool:
        """Send what waits for ``peer``, and was not given, another way; return whether anything was."""
        self._ahead = None
        chosen = await self.storage(partial(self.custody.reroute, peer, avoid=silent))
        for other in chosen:
            self._wake(other)
        return bool(chosen)

    async def part_from(self, peer: str) -> None:
        """Send what waits for a neighbour that has left another way, or nowhere where it was for that one alone."""
        await self.reroute(peer, silent=frozenset())
        for row in await self.storage(self.custody.part_from, peer):
            self._settle(row, for_us=False)

    async def create(self, *, first: bool, lanes: Sequence[int] | None = None) -> None:
        """Make walks, in all lanes or in some: the run's first, or such as take the place of those that seem lost."""
        for lane in self._watches.lanes if lanes is None else lanes:
            for peer in await self._study.believe_overdue(lane):
                self._wake(peer)
            message = await self._study.new_walk(lane, first=first)
            if message is not None:
                count = "started" if first else "created"
                self._settle(await self.storage(self.custody.create, message, count, lane), for_us=False)
            self._watches.opened(lane)
        self._watches.came()

    async def create_if_late(self) -> None:
        """Make walks if no message has come by, or none of a lane could be opened, for too long."""
        if self._watches.is_quiet and await self.storage(self.custody.has_a_walk):
            # One is here: whatever it waits for, it is not lost.
            self._watches.came()
        lost = self._watches.lost
        if lost:
            await self.create(first=False, lanes=lost)

    async def train(self) -> None:
        """Work on messages that open here, one after the other, until cancelled."""
        while True:
            number = await self._to_open.get()
            work = self._open
            while True:
                try:
                    await work(number)
                    break
                except STORAGE_FAILURES as error:
                    # Still held: nothing is lost by trying again.
                    self.trouble(str(error))
                    await asyncio.sleep(_RETRY_STORAGE_S)
                except Exception as error:  # noqa: BLE001  a message must not end the node, now or at every start
                    self._study.failed(type(error).__name__)
                    work = self._set_aside

    def close(self) -> None:
        """Stop all work; what is in custody waits on disk."""
        self._timers.close()
        # What has not begun would find the storage closed, and end as a fault that nobody asks for.
        for task in self._tasks:
            task.cancel()
        self.debts.close()
        self._study.close()
        self._storage.close()
        self.custody.spool.close()

    async def _open(self, number: int) -> None:
        found = await self.storage(self.custody.examine, number)
        if found is None:
            self._arrived.pop(number, None)
            return
        row, opened = found
        if opened is None:
            # Its epoch ended while it waited, or it is one of two copies.
            self._settle(row, for_us=False)
            return
        outcome = await self._study.work(row, opened)
        if not isinstance(outcome, Progress):
            await self.storage(self.custody.discard, row, outcome)
            self._arrived.pop(number, None)
            for peer in outcome.farewells:
                self._wake(peer)
            await self.debts.pay_later()
            return
        self._watches.opened(outcome.lane)
        made = await self.storage(self.custody.progress, row, outcome)
        for peer in outcome.farewells:
            self._wake(peer)
        if made is not None:
            # It leaves as the message it replaces would have left, or a whole number of dwells later.
            now = asyncio.get_running_loop().time()
            self._arrived[made.id] = self._arrived.get(number, now)
            if self._dwell_s and now - self._arrived[made.id] > self._dwell_s:
                await self.storage(self.custody.count, "dwell_overruns")
            self._settle(made, for_us=False)
        self._arrived.pop(number, None)

    async def _set_aside(self, number: int) -> None:
        await self.storage(self.custody.drop, number, "set_aside")
        self._arrived.pop(number, None)

    def _settle(self, row: Row, *, for_us: bool, wait_s: float = 0.0) -> None:
        """Put a message where it belongs: to the training, to its link, or to the side until its dwell is over."""
        arrived = self._arrived.setdefault(row.id, asyncio.get_running_loop().time())
        if row.peer is not None:
            self._arrived.pop(row.id, None)
            self._wake(row.peer)
        elif for_us and not self._dwell_s:
            self._to_open.put_nowait(row.id)
        elif for_us:
            # When its giver has its answer, which the work on it would delay.
            self._timers.at(arrived + answer_spread(self._dwell_s), row.id, partial(self._to_open.put_nowait, row.id))
        else:
            self._pin_later(row.id, wait_s)

    def _pin_later(self, number: int, wait_s: float = 0.0) -> None:
        """Let a message go on after a whole number of dwells; where nothing dwells, at once or when it has rested."""
        now = asyncio.get_running_loop().time()
        arrived = self._arrived.setdefault(number, now)
        stays_s = max(wait_s, now - arrived)
        due = arrived + (max(1, math.ceil(stays_s / self._dwell_s)) * self._dwell_s if self._dwell_s else wait_s)
        self._timers.at(due - _EARLY_S, number, lambda: self._spawn(self._pin(number, due)))

    def _take_in(self, peer: str, seq: int) -> tuple[Taken, tuple[str, Outgoing] | None]:
        taken = self.custody.take(peer, seq)
        return taken, self.custody.next_out(taken.row, taken.body)

    def _pin_at(self, number: int, due: float) -> tuple[Row | None, tuple[str, Outgoing] | None]:
        time.sleep(max(0.0, due - time.monotonic()))
        row = self.custody.pin(number)
        return row, self.custody.next_out(row)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pin(self, number: int, due: float) -> None:
        try:
            row, ahead = await self.storage(self._pin_at, number, due)
        except SpoolError as error:
            self.trouble(str(error))
            await asyncio.sleep(_RETRY_STORAGE_S)
            # When it would leave if it had been trained on and could not be written.
            self._pin_later(number)
            return
        self._arrived.pop(number, None)
        if row is None:
            await self.debts.pay_later()
        elif row.peer is not None:
            self._ahead = ahead or self._ahead
            self._wake(row.peer)
