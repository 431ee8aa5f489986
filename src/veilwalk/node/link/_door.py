"""The door of a node: who comes in, and how many may stand there before they have said who they are.

A connection in its TLS handshake takes some 300 KB, and anybody who reaches the port can open one. So only a few wait
at once, of one address fewer; when one more comes, the one that has stood there longest has to go. A neighbour greets
within milliseconds and is through; somebody who only occupies places loses them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from veilwalk.core.errors import TransportError

_BACKLOG = 100
_PAUSE_S = 0.5
# For each neighbour, and at least for this many of them.
_PLACES, _PLACES_OF_ONE_ADDRESS = 4, 2
_FEW = 4


class Door:
    """Takes connections in, each as a task of its own."""

    def __init__(
        self,
        serve: Callable[[socket.socket], Coroutine[Any, Any, None]],
        *,
        neighbours: Callable[[], int],
        turned_away: Callable[[str], None],
    ) -> None:
        self._serve = serve
        self._neighbours = neighbours
        self._turned_away = turned_away
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        # Those that have not greeted, the one that came first at the front, with their address.
        self._waiting: dict[asyncio.Task[None], str] = {}

    @property
    def waiting(self) -> int:
        """How many have come in and not greeted."""
        return len(self._waiting)

    async def open(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            TransportError: The address cannot be used.
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, address in dict.fromkeys((family, address) for family, *_, address in found):
                listener = socket.create_server(address, family=family, backlog=_BACKLOG)
                listener.settimeout(0)
                self._listeners.append(listener)
        except OSError as error:
            self._close_listeners()
            raise TransportError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
        for listener in self._listeners:
            self._start(self._accept(listener))

    async def close(self) -> None:
        """Let nobody in any more, and send away whoever is."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._close_listeners()

    def greeted(self) -> None:
        """Note that the connection of this task is a neighbour's: it takes no place at the door any more."""
        task = asyncio.current_task()
        if task is not None:
            self._waiting.pop(task, None)

    async def _accept(self, listener: socket.socket) -> None:
        # Not by sock_accept: told to stop in the moment somebody came, that would drop the connection unclosed.
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(listener, ready.set)
        try:
            while True:
                await ready.wait()
                try:
                    connected, address = listener.accept()
                except (BlockingIOError, InterruptedError):
                    ready.clear()
                except OSError as error:
                    # Files have run out, or whoever came has gone again.
                    self._turned_away(f"cannot accept connections: {error.strerror or error}")
                    await asyncio.sleep(_PAUSE_S)
                else:
                    self._take_in(connected, address[0])
                    # However many come, whoever is in has its turn.
                    await asyncio.sleep(0)
        finally:
            loop.remove_reader(listener)

    def _take_in(self, connected: socket.socket, address: str) -> None:
        connected.settimeout(0)
        self._make_room(address)
        task = self._start(self._serve(connected))
        # Also where it is sent away before it began.
        task.add_done_callback(partial(_close, connected))
        self._waiting[task] = address

    def _make_room(self, address: str) -> None:
        neighbours = max(_FEW, self._neighbours())
        of_one = [task for task, other in self._waiting.items() if other == address]
        if len(of_one) >= _PLACES_OF_ONE_ADDRESS * neighbours:
            first = of_one[0]
        elif len(self._waiting) >= _PLACES * neighbours:
            first = next(iter(self._waiting))
        else:
            return
        del self._waiting[first]
        first.cancel()
        self._turned_away("too many that have not greeted")

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._gone)
        return task

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._waiting.pop(task, None)

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.close()
        self._listeners.clear()


def _close(connected: socket.socket, _: asyncio.Task[None]) -> None:
    connected.close()
