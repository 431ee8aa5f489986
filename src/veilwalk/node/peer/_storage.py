"""Who does the storage of a node: one after the other, without locks in the tables.

A short step is done where it is asked for, between two events: to hand it to a thread and to be woken by it takes as
long as the step itself. Whatever takes longer, be it for a slow disk or for a large message, is done by a thread, so
that the other links do not wait for it. How long each kind of step takes is watched.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from veilwalk.core.errors import SpoolError

T = TypeVar("T")

# Links may wait so long for each other.
_SHORT_S = 0.003
# Of the last step in what is known of its kind.
_WEIGHT = 0.1


class Storage:
    """Does one step at a time."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="storage")
        # Held by whoever is at work, here or there.
        self._busy = threading.Lock()
        self._usual_s: dict[str, float] = {}

    async def do(self, work: Callable[..., T], *values: object) -> T:
        """Do ``work`` in the storage thread.

        Raises:
            SpoolError: The disk failed.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._alone, work, values)

    async def do_briefly(self, work: Callable[..., T], *values: object) -> T:
        """Do ``work`` at once if it is usually short and nobody else is at work, else in the storage thread."""
        if self._usual_s.get(_kind(work), 0.0) > _SHORT_S or self._busy.locked():
            return await self.do(work, *values)
        return self._alone(work, values)

    def close(self) -> None:
        """Finish what was begun, and no more."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _alone(self, work: Callable[..., T], values: tuple[object, ...]) -> T:
        with self._busy:
            begun = time.monotonic()
            try:
                return work(*values)
            except sqlite3.Error as error:
                # Of looking at the tables, outside of a transaction.
                raise SpoolError(f"storage: {error}") from error
            finally:
                took_s, kind = time.monotonic() - begun, _kind(work)
                usual_s = self._usual_s.get(kind, 0.0)
                self._usual_s[kind] = usual_s + _WEIGHT * (took_s - usual_s)


def _kind(work: Callable[..., object]) -> str:
    return getattr(work, "__name__", "")
