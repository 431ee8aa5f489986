"""Spare copies that neighbours keep for this node: each is released at a time that does not tell what became of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from veilwalk.core.errors import SpoolError
from veilwalk.node.peer._custody import Custody

# Far more than come within the time after which they are released.
_MOST_REMEMBERED = 4096


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
        #: Tells a neighbour that its spare copy may go; the links put theirs here.
        self.release: Callable[[str, int], Awaitable[bool]] = _nobody

    def came(self, peer: str, seq: int) -> None:
        """Note that a message came now."""
        if self._custody.spares is not None:
            self._came[peer, seq] = asyncio.get_running_loop().time()
            if len(self._came) > _MOST_REMEMBERED:
                # Of a debt that was forgotten, for there are newer ones.
                del self._came[next(iter(self._came))]

    def released(self, peer: str, seq: int) -> None:
        """Drop the spare copy of a message that ``peer`` has long handed on."""
        if self._custody.spares is not None:
            self._spawn(self._drop(peer, seq))

    async def pay_later(self) -> None:
        """See to it that what is owed is released in time."""
        if self._custody.spares is None:
            return
        for debt in await self._storage(self._custody.spares.debts):
            if debt not in self._due:
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
        dwells = max(2, math.floor((now - came) / self._dwell_s) + 1)
        return came + dwells * self._dwell_s + self._spare_s

    def _pay(self, debt: tuple[str, int]) -> None:
        self._spawn(self._send_release(debt))

    async def _send_release(self, debt: tuple[str, int]) -> None:
        self._due.discard(debt)
        try:
            if self._custody.spares is not None and await self.release(*debt):
                await self._storage(self._custody.spares.paid, *debt)
            else:
                await self.pay_later()
        except SpoolError as error:
            self._trouble(str(error))

    async def _drop(self, peer: str, seq: int) -> None:
        try:
            if self._custody.spares is not None:
                await self._storage(self._custody.spares.released, peer, seq)
        except SpoolError as error:
            self._trouble(str(error))


async def _nobody(peer: str, seq: int) -> bool:
    """Release nothing: there are no links yet."""
    del peer, seq
    return False
