"""When something is to be done with a message: one moment for each, and none for what is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timers:
    """The moments that messages wait for, by message: as many as there are messages, however many have come."""

    def __init__(self) -> None:
        self._handles: dict[int, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._handles)

    def at(self, when: float, number: int, call: Callable[[], None]) -> None:
        """Call at ``when``, by the event loop's clock, for the message of that number."""

        def due() -> None:
            self._handles.pop(number, None)
            call()

        self.forget(number)
        self._handles[number] = asyncio.get_running_loop().call_at(when, due)

    def forget(self, number: int) -> None:
        """Wait no more for the moment of a message that is gone: what rests may have long to wait."""
        handle = self._handles.pop(number, None)
        if handle is not None:
            handle.cancel()

    def close(self) -> None:
        """Wait for nothing more."""
        for handle in self._handles.values():
            handle.cancel()
