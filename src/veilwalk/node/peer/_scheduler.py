"""Schedules the work on each message: its dwell, the one storage thread, and the queue of those that open here."""

from __future__ import annotations

import asyncio
import math
import secrets
import sqlite3
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from veilwalk.core.errors import SpoolError
from veilwalk.node.link import Offer, answer_spread
from veilwalk.node.members import MAX_LANES
from veilwalk.node.peer._custody import Custody
from veilwalk.node.peer._destination import Destination
from veilwalk.node.peer._trainer import OUT_OF_TIME
from veilwalk.node.sealing import Bytes
from veilwalk.node.spool import Row, SignedEnd, Verdict

if TYPE_CHECKING:
    from veilwalk.node.peer._node import Node

T = TypeVar("T")

_RETRY_STORAGE_S = 1.0
# The event loop counts in milliseconds from whatever it did last, which after training is another phase than after
# relaying: a message that dwells is called up this much early, and the rest is waited for exactly.
_EARLY_S = 0.003
# An end is announced at a random moment within so many steps of a walk, and signed at one within so many, which is long
# beside the time in which all hear of it: the first to sign must not be the one that made it.
_ANNOUNCING_STEPS, _SIGNING_STEPS = 4, 60
#: What a disk that fails for a while raises: nothing is lost by trying again.
_STORAGE_FAILURES = (SpoolError, sqlite3.Error, OSError)
_dice = secrets.SystemRandom()


class Scheduler:
    """Takes messages in, works on those that open here, and gives each to its link when its dwell is over.

    It works on one message at a time, in a thread of its own: storage never waits for training.
    """

    def __init__(
        self, node: Node, custody: Custody, destination: Destination, *, dwell_s: float, step_s: float, meets: bool
    ) -> None:
        self.custody = custody
        self._destination = destination
        self._node = node
        self._watches, self.neighbours = node.watches, node.neighbours
        self._dwell_s, self._meets = dwell_s, meets
        self._announcing_s, self._signing_s = _ANNOUNCING_STEPS * step_s, _SIGNING_STEPS * step_s
        # Custody belongs to this thread, so it needs no locks.
        self._storage = ThreadPoolExecutor(1, thread_name_prefix="storage")
        self._is_closed = False
        self._training = ThreadPoolExecutor(1, thread_name_prefix="training")
        #: Whether this node is about to leave, and takes nothing new.
        self.draining = False
        self._arrived: dict[int, float] = {}
        self._to_open: asyncio.Queue[int] = asyncio.Queue()
        # The next work on each message in custody.
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Digest and signatures of the end that was announced last, by lane.
        self._announced: dict[int, tuple[bytes, bytes]] = {}
        # When it is signed here.
        self._signs_at: dict[int, float] = {}
        # When it begins here, where it does.
        self._starts_at: dict[int, float] = {}

    async def recover(self) -> None:
        """Go on with everything that was in custody when the node stopped."""
        for row, for_us in await self.store(self.custody.recover):
            self._settle(row, for_us=for_us)
        for lane in await self.store(self.custody.spool.tables.lanes, "end"):
            self._announce_later(lane)

    async def store(self, work: Callable[..., T], *values: object) -> T:
        """Do a step of storage in its turn.

        Raises:
            SpoolError: The disk failed.
        """
        if self._is_closed:
            raise SpoolError("storage: the node is about to stop")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._storage, work, *values)
        except sqlite3.Error as error:
            # Of looking at the tables, outside of a transaction.
            raise SpoolError(f"storage: {error}") from error

    # Asked by links.

    async def greet(self, peer: str, incarnation: bytes) -> None:
        """Note which disk a neighbour has that is about to offer messages; a new one gets the finished model again."""
        if await self.store(self.custody.greet, peer, incarnation):
            self._node.new_disk(peer)
            await self.store(self._bid_farewell, peer)
            self._node.wake([peer])

    async def hold(self, peer: str, offer: Offer, body: Bytes) -> Verdict:
        """Keep a message that a neighbour offers, and do nothing with it yet."""
        if self.draining and not await self.store(self.custody.spool.tables.has_taken, peer, offer.key):
            return Verdict.BUSY
        return await self.store(self.custody.hold, peer, offer.key, offer.digest, body)

    async def take(self, peer: str, key: bytes) -> Verdict:
        """Take a held message that the neighbour has given; on disk when this returns."""
        taken = await self.store(self.custody.take, peer, key)
        if taken.crowded_out is not None:
            self._forget(taken.crowded_out)
        if taken.row is not None:
            self.neighbours.on_brought(peer, is_junk=taken.wait_s > 0)
            if not taken.wait_s:
                # What comes too often is no sign of life.
                self._watches.on_arrival()
                self._watches.pace.on_arrival(taken.row.id)
                self._destination.limits.on_sight()
            self._settle(taken.row, for_us=taken.for_us, wait_s=taken.wait_s)
        return taken.verdict

    async def deliver(self, peer: str, row: Row, *, taken_s: float | None) -> None:
        """Let go of what ``peer`` has taken, in that time where it was not only asked about."""
        if taken_s is not None and row.end_lane is None:
            self.neighbours.on_handed(peer, taken_s, is_junk=self.custody.visits.is_frequent(row.digest))
        self._watches.pace.on_departure(row.id)
        await self.store(self.custody.deliver, peer, row.key or b"")

    async def reroute(self, peer: str) -> bool:
        """Send what waits for ``peer``, and was not given, another way; return whether anything was."""
        chosen = await self.store(partial(self.custody.reroute, peer, avoid=self._node.silent()))
        self._node.wake(chosen)
        return bool(chosen)

    # Asked by the node.

    async def part_from(self, peer: str) -> None:
        """Send what waits for a neighbour that has left another way, or nowhere where it was for that one alone."""
        for row in await self.store(self.custody.part_from, peer):
            self._settle(row, for_us=False)

    async def create(self, *, first: bool, walks: Sequence[int] | None = None) -> None:
        """Make all walks or some: the run's first, or such as take the place of those that seem lost."""
        present = await self.store(lambda: self.custody.spool.tables.round)
        for walk in self._watches.lanes if walks is None else walks:
            lane = present * len(self._watches.lanes) + walk
            # Where the run has ended and nobody heard of it, this is the time to say so again.
            self._announce_later(lane, again=True)
            make = partial(self._destination.new_walk, self.custody.spool, self._node.roster, lane, first=first)
            message = await self.store(make)
            if message is not None:
                count = "started" if first else "created"
                self._settle(await self.store(self.custody.create, message, count), for_us=False)
            self._watches.on_opening(lane)
        self._watches.on_arrival()
        self.neighbours.on_silence_over()

    async def start_after_meeting(self) -> None:
        """Let walks go on whose last update before a meeting this node made, now that all ends are here."""
        starts = await self.store(self.custody.spool.tables.lanes_to_start)
        now = asyncio.get_running_loop().time()
        for lane, came_from in starts.items():
            # At a random moment: the first message after a meeting would name who made the last update before.
            if now < self._starts_at.setdefault(lane, now + _dice.random() * self._signing_s):
                continue
            make = partial(self._destination.new_walk, self.custody.spool, self._node.roster, lane, first=False)
            message = await self.store(make)
            if message is not None:
                start = partial(self.custody.create, message, "started", lane=lane, came_from=came_from)
                self._settle(await self.store(start), for_us=False)

    async def create_if_late(self) -> None:
        """Make walks if no message has come by, or none of one could be opened, for too long; and start what waited."""
        if self._meets:
            await self.start_after_meeting()
        if self._watches.is_quiet and await self.store(self.custody.has_a_walk, self._watches.late_s / 2):
            # One is here: whatever it waits for, it is not lost.
            self._watches.on_arrival()
        lost = self._watches.lost
        if lost:
            await self.create(first=False, walks=lost)

    async def train(self) -> None:
        """Work on messages that open here, one after the other, until cancelled."""
        while True:
            number = await self._to_open.get()
            work = self._open
            while True:
                try:
                    await work(number)
                    break
                except _STORAGE_FAILURES as error:
                    # Still here: nothing is lost by trying again.
                    self._node.trouble(str(error))
                    await asyncio.sleep(_RETRY_STORAGE_S)
                except (Exception, SystemExit) as error:  # noqa: BLE001  it must not end the node, now or at every start
                    self._node.set_aside(type(error).__name__)
                    work = self._set_aside

    def close(self) -> None:
        """Stop all work; what is in custody waits on disk."""
        for handle in self._timers.values():
            handle.cancel()
        # A task that has not begun would find the storage closed, and end as a fault.
        for task in self._tasks:
            task.cancel()
        self._destination.trainer.close()
        self._training.shutdown(wait=False, cancel_futures=True)
        self._is_closed = True
        self._storage.shutdown(wait=True, cancel_futures=True)
        self.custody.spool.close()

    async def _open(self, number: int) -> None:
        examined = await self.store(self.custody.examine, number)
        if examined is None:
            self._arrived.pop(number, None)
            return
        row, opened = examined
        if opened is None:
            # Its epoch ended while it waited, or it is one of two copies.
            self._settle(row, for_us=False)
            return
        arrival = await self.store(self._destination.read_arrival, self.custody.spool, row, opened)
        outcome = await self._compute(self._destination.work, arrival, self._node.roster)
        if OUT_OF_TIME in outcome.counts:
            self._node.set_aside("an update took longer than training_s")
        now = asyncio.get_running_loop().time()
        arrived = self._arrived.get(number, now)
        if outcome.header is not None:
            self._watches.on_opening(outcome.lane)
        if outcome.message is not None and 0 < self._dwell_s < now - arrived:
            outcome = replace(outcome, counts=(*outcome.counts, "dwell_overruns"))
        successor = await self.store(self.custody.replace, row, outcome)
        self._node.wake(outcome.farewells)
        if outcome.end is not None and outcome.end.is_final:
            self._node.end_taken(outcome.end.lane, outcome.end.digest)
        elif outcome.end is not None:
            self._announce_later(outcome.end.lane)
        if successor is not None:
            # It leaves as the message it replaces would have left, or a whole number of dwells later.
            self._arrived[successor.id] = arrived
            self._settle(successor, for_us=False)
        self._arrived.pop(number, None)

    async def _compute(self, work: Callable[..., T], *values: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._training, work, *values)

    async def _set_aside(self, number: int) -> None:
        await self.store(self.custody.drop, number, "set_aside")
        self._arrived.pop(number, None)

    def _forget(self, number: int) -> None:
        """Wait no more for the moment of a message that is gone: what rests may have long to wait."""
        self._arrived.pop(number, None)
        handle = self._timers.pop(number, None)
        if handle is not None:
            handle.cancel()

    def _settle(self, row: Row, *, for_us: bool, wait_s: float = 0.0) -> None:
        """Put a message where it belongs: to the training, to its link, or to the side until its dwell is over."""
        arrived = self._arrived.setdefault(row.id, asyncio.get_running_loop().time())
        if row.peer is not None:
            self._arrived.pop(row.id, None)
            self._node.wake([row.peer])
        elif for_us:
            # When its giver has its answer, which the work on it would delay.
            due = arrived + answer_spread(self._dwell_s)
            self._call_at(due, row.id, partial(self._to_open.put_nowait, row.id))
        else:
            self._pin_later(row.id, wait_s)

    def _pin_later(self, number: int, wait_s: float = 0.0) -> None:
        """Let a message go on after a whole number of dwells; one of 0 is over at once."""
        now = asyncio.get_running_loop().time()
        arrived = self._arrived.setdefault(number, now)
        stays_s = max(wait_s, now - arrived)
        dwell_s = self._dwell_s
        due = arrived + (max(1, math.ceil(stays_s / dwell_s)) * dwell_s if dwell_s else wait_s)
        self._call_at(due - _EARLY_S * bool(dwell_s), number, lambda: self._spawn(self._pin(number, due)))

    def _call_at(self, when: float, number: int, call: Callable[[], None]) -> None:
        def due() -> None:
            self._timers.pop(number, None)
            call()

        before = self._timers.pop(number, None)
        if before is not None:
            before.cancel()
        self._timers[number] = asyncio.get_running_loop().call_at(when, due)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pin(self, number: int, due: float) -> None:
        try:
            row = await self.store(self._pin_at, number, due)
        except SpoolError as error:
            self._node.trouble(str(error))
            await asyncio.sleep(_RETRY_STORAGE_S)
            # When it would leave if it had been trained on and could not be written.
            self._pin_later(number)
            return
        self._arrived.pop(number, None)
        if row is not None and row.peer is not None:
            self._node.wake([row.peer])

    def _pin_at(self, number: int, due: float) -> Row | None:
        time.sleep(max(0.0, due - time.monotonic()))
        return self.custody.pin(number)

    # Ends.

    def _announce_later(self, lane: int, *, again: bool = False) -> None:
        """Announce the end of a lane at a random moment; what comes until then is announced with it."""
        if again:
            self._announced.pop(lane, None)
        # Numbers of messages are positive.
        number = -1 - lane
        if number not in self._timers:
            due = asyncio.get_running_loop().time() + _dice.random() * self._announcing_s
            self._call_at(due, number, lambda: self._spawn(self._announce(lane)))

    async def _announce(self, lane: int) -> None:
        """Announce an end as it came, and sign it when it is time for that."""
        announced, now = self._announced.get(lane), asyncio.get_running_loop().time()
        try:
            end = await self._sign_end(lane, announced, is_time=now >= self._signs_at.get(lane, math.inf))
        except SpoolError as error:
            self._node.trouble(str(error))
            self._announce_later(lane)
            return
        if end is None:
            return
        self._announced[lane] = end.digest, end.signatures
        if end.is_final:
            self._node.end_taken(lane, end.digest)
        elif announced is None or announced[0] != end.digest:
            self._signs_at[lane] = now + _dice.random() * self._signing_s
            number = -1 - lane - MAX_LANES
            self._call_at(self._signs_at[lane], number, partial(self._announce_later, lane))

    async def _sign_end(self, lane: int, announced: tuple[bytes, bytes] | None, *, is_time: bool) -> SignedEnd | None:
        """Announce the end of a lane to all neighbours, signed where it was announced before and ``is_time``.

        None where nothing is announced: there is no end, or it was announced just so.
        """
        noted, own = await self.store(self._destination.read_end, self.custody.spool, lane)
        if noted is None:
            return None
        signs = is_time and announced is not None and announced[0] == noted.digest
        end = await self._compute(self._destination.sign, noted, self._node.roster, own if signs else None)
        if announced == (end.digest, end.signatures):
            return None
        farewells = await self._compute(self._destination.seal_end, end, self._node.roster)
        if not await self.store(self.custody.sign_end, end, farewells):
            return None
        self._node.wake(farewells)
        return end

    def _bid_farewell(self, peer: str) -> None:
        """Put what is finished, where anything is, under way to a neighbour."""
        for lane, message in self._destination.farewells(self.custody.spool, self._node.roster, peer).items():
            self.custody.announce({peer: message}, lane)
