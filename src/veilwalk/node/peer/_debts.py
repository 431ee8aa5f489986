"""Spare copies that neighbours keep for this node: each is released at a time that does not tell what became of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from veilwalk.core.errors import SpoolError
from veilwalk.node.peer._custody import Custody

T = TypeVar("T")

# Far more than come within the time after which they are released.
_MOST_REMEMBERED = 4096
# What is let go in the dwell in which it came, or the next, is released after so many.
_DWELLS = 2


class Debts:
    """What this node owes its neighbours a word about, and its word to them."""

    def __init__(
        self,
        custody: Custody,
        *,
        dwell_s: float,
        spare_s: float,
        storage: Callable[..., Awaitable[Any]],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        trouble: Callable[[str], None],
    ) -> None:
        self._custody = custody
        self._dwell_s = dwell_s
        self._spare_s = spare_s
        self._storage = storage
        self._spawn = spawn
        self._trouble = trouble
        self._due: set[tuple[str, int]] = set()
        # When what is to be released came.
        self._came: dict[tuple[str, int], float] = {}
        # What was to be released before it was owed: whether it was.
        self._early: dict[tuple[str, int], bool] = {}
        #: Tells a neighbour that its spare copy may go; the links put theirs here.
        self.release: Callable[[str, int], Awaitable[bool]] = _nobody
        self._is_over = False

    def close(self) -> None:
        """Release nothing more."""
        self._is_over = True

    def came(self, peer: str | None, seq: int | None, *, waits: bool) -> None:
        """Note that a message came now, and whether it may have long to wait: it opens here, or came too often.

        What is here when a node starts has come now: its dwell begins anew. What was made here came from nobody.

        Such a one is released when most are, whether it has gone on or not. By a late release whoever has given this
        node work to do would know that a message was opened; and who brings the same bytes until they rest, how often
        they had been here before.
        """
        if self._custody.spares is None or peer is None or seq is None:
            return
        loop, debt = asyncio.get_running_loop(), (peer, seq)
        _remember(self._came, debt, loop.time())
        if waits and self._dwell_s:
            self._due.add(debt)
            loop.call_at(self._came[debt] + _DWELLS * self._dwell_s + self._spare_s, self._pay, debt)

    def released(self, peer: str, seq: int) -> None:
        """Drop the spare copy of a message that ``peer`` has long handed on."""
        if self._custody.spares is not None:
            self._spawn(self._drop(peer, seq))

    async def pay_later(self) -> None:
        """See to it that what is owed is released in time."""
        if self._custody.spares is None:
            return
        for debt in await self._storage(self._custody.spares.debts):
            if self._early.get(debt):
                del self._early[debt]
                await self._storage(self._custody.spares.paid, *debt)
            elif debt not in self._due:
                self._due.add(debt)
                asyncio.get_running_loop().call_at(self._time_for(debt), self._pay, debt)

    def _time_for(self, debt: tuple[str, int]) -> float:
        """Return when to release: a fixed time after the second dwell since it came, or the one it left in, is over.

        What is let go leaves some milliseconds earlier than what has to be handed on first.
        """
        now = asyncio.get_running_loop().time()
        came = self._came.pop(debt, None)
        if came is None or not self._dwell_s:
            return now + self._spare_s
        dwells = max(_DWELLS, math.floor((now - came) / self._dwell_s) + 1)
        return came + dwells * self._dwell_s + self._spare_s

    def _pay(self, debt: tuple[str, int]) -> None:
        self._spawn(self._send_release(debt))

    async def _send_release(self, debt: tuple[str, int]) -> None:
        self._due.discard(debt)
        self._came.pop(debt, None)
        spares = self._custody.spares
        if spares is None or self._is_over:
            return
        try:
            if await self.release(*debt):
                if not await self._storage(spares.paid, *debt) or debt in self._early:
                    _remember(self._early, debt, True)  # noqa: FBT003  a value, no switch
                return
            if await self._storage(spares.owe_now, *debt):
                _remember(self._early, debt, False)  # noqa: FBT003  a value, no switch
            await self.pay_later()
        except SpoolError as error:
            self._trouble(str(error))

    async def _drop(self, peer: str, seq: int) -> None:
        try:
            if self._custody.spares is not None:
                await self._storage(self._custody.spares.released, peer, seq)
        except SpoolError as error:
            self._trouble(str(error))


def _remember(notes: dict[tuple[str, int], T], debt: tuple[str, int], note: T) -> None:
    """Note something of a debt; where there are too many, the oldest are of debts that were forgotten."""
    notes[debt] = note
    if len(notes) > _MOST_REMEMBERED:
        del notes[next(iter(notes))]


async def _nobody(peer: str, seq: int) -> bool:
    """Release nothing: there are no links yet."""
    del peer, seq
    return False
