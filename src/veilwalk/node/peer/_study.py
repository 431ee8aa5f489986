"""Where a node works on what opens for it: storage by the desk's thread, training beside it, and no way to fail."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from veilwalk.core.errors import SpoolError
from veilwalk.node.members import Roster
from veilwalk.node.peer._custody import Custody
from veilwalk.node.peer._destination import Destination
from veilwalk.node.peer._storage import Storage
from veilwalk.node.peer._trainer import OUT_OF_TIME
from veilwalk.node.sealing import OpenedHeader
from veilwalk.node.spool import Discard, Progress, Row

#: What a disk that fails for a while raises: nothing is lost by trying again.
STORAGE_FAILURES = (SpoolError, sqlite3.Error, OSError)


class Study:
    """Works on opened messages, one at a time."""

    def __init__(
        self,
        custody: Custody,
        destination: Destination,
        *,
        storage: Storage,
        roster: Callable[[], Roster],
        failed: Callable[[str], None],
    ) -> None:
        self._custody = custody
        self._destination = destination
        self._storage = storage
        self._roster = roster
        #: Notes that something could not be worked on.
        self.failed = failed
        self._training = ThreadPoolExecutor(1, thread_name_prefix="training")

    async def work(self, row: Row, opened: OpenedHeader) -> Progress | Discard:
        """Return what becomes of an opened message; one that makes anything fail is set aside, here and for good."""
        loop, destination = asyncio.get_running_loop(), self._destination
        try:
            arrival = await self._storage.do(destination.look, self._custody.spool, row, opened)
            outcome = await loop.run_in_executor(self._training, destination.work, arrival, self._roster())
        except STORAGE_FAILURES:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  it would meet the node again at every start
            self.failed(type(error).__name__)
            return Discard(count="set_aside")
        if isinstance(outcome, Progress) and OUT_OF_TIME in outcome.counts:
            self.failed("an update took longer than training_s")
        return outcome

    async def new_walk(self, lane: int, *, first: bool) -> bytes | None:
        """Return a message that starts a walk; None if there is nothing to start."""
        make = partial(self._destination.new_walk, self._custody.spool, self._roster(), lane, first=first)
        return await self._storage.do(make)

    async def believe_overdue(self, lane: int) -> Iterable[str]:
        """Take the finished model that a neighbour vouches for, once asking was in vain; return whom to hand it to."""
        return await self._storage.do(self._believe_overdue, lane)

    async def bid_farewell(self, peer: str) -> None:
        """Put what is finished, where anything is, under way to a neighbour."""
        await self._storage.do(self._bid_farewell, peer)

    def close(self) -> None:
        """Give up what is being trained."""
        self._destination.trainer.close()
        self._training.shutdown(wait=False, cancel_futures=True)

    def _believe_overdue(self, lane: int) -> Iterable[str]:
        ended = self._destination.overdue(self._custody.spool, self._roster(), lane)
        if ended is None:
            return ()
        self._custody.progress(None, ended)
        return tuple(ended.farewells)

    def _bid_farewell(self, peer: str) -> None:
        for lane, message in self._destination.farewells(self._custody.spool, self._roster(), peer).items():
            self._custody.farewell(peer, message, lane)
