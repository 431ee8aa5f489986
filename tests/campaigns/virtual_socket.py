"""Sockets of the network in virtual time: those that listen, and those that were accepted."""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.campaigns.virtual_time import Life, VirtualTransport


def nothing() -> None:
    """Nobody waits for connections."""


class VirtualSocket:
    """A socket that listens, or one that was accepted."""

    def __init__(self, life: Life, context: contextvars.Context, transport: VirtualTransport | None = None) -> None:
        self.life, self.context, self.transport = life, context, transport
        self.waiting: deque[VirtualSocket] = deque()
        #: Called when somebody connects.
        self.ready: Callable[[], Any] = nothing
        self.closed = False

    def accept(self) -> tuple[VirtualSocket, tuple[str, int]]:
        """Return the next connection."""
        if not self.waiting:
            raise BlockingIOError
        return self.waiting.popleft(), ("127.0.0.1", 0)

    def settimeout(self, seconds: float) -> None:
        """Nothing here ever blocks."""

    def close(self) -> None:
        """Take no more, or hang up."""
        self.closed = True
        if self.transport is not None:
            self.transport.abort()
