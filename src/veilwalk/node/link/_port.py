"""The port of a node: it takes connections in, and lets each show who it is before it costs much.

A connection in its TLS handshake takes some 300 KB, and anybody who reaches the port can open one. So only a few wait
at once, of one address fewer; when one more comes, the one that has waited longest has to go. A neighbour greets
within milliseconds and is through; a stranger who only occupies places loses them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from veilwalk.core.errors import ProtocolError, TransportError
from veilwalk.node.link._connection import Connection, accept
from veilwalk.node.link._limits import Limits, due_within, wait_until

#: A handshake begins at a random moment within this.
HANDSHAKE_SPREAD_S = 0.1
_BACKLOG = 100
_PAUSE_S = 0.5
# For each neighbour, and at least for this many of them.
_PLACES, _PLACES_OF_ONE_ADDRESS = 4, 2
_FEW = 4


class PortOwner(Protocol):
    """The node that a port is of."""

    @property
    def message_bytes(self) -> int:
        """Length of every message of the run."""
        ...

    @property
    def degree(self) -> int:
        """How many neighbours it has."""
        ...

    def neighbour_of(self, spki: bytes) -> str | None:
        """Return which neighbour shows that TLS key, if any."""
        ...

    def turned_away(self, why: str, /, *, peer: str = "") -> None:
        """Note that a connection was refused, and of which neighbour it was, where it was one's."""
        ...


class Port:
    """Listens, and serves each connection in a task of its own."""

    def __init__(
        self, owner: PortOwner, serve: Callable[[Connection], Coroutine[Any, Any, None]], *, limits: Limits
    ) -> None:
        self._owner = owner
        self._serve_neighbour = serve
        self._limits = limits
        self._context: ssl.SSLContext | None = None
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        # Those that have not greeted, the one that came first at the front, with their address.
        self._waiting: dict[asyncio.Task[None], str] = {}
        # Of these, those that are through their handshake.
        self._new: set[Connection] = set()

    async def open(self, host: str, port: int, context: ssl.SSLContext) -> None:
        """Listen, and let in the members that ``context`` knows.

        Raises:
            TransportError: The address cannot be used.
        """
        self._context = context
        loop = asyncio.get_running_loop()
        try:
            entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, address in dict.fromkeys((family, address) for family, *_, address in entries):
                listener = socket.create_server(address, family=family, backlog=_BACKLOG)
                listener.settimeout(0)
                self._listeners.append(listener)
        except OSError as error:
            self._close_listeners()
            raise TransportError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
        for listener in self._listeners:
            self._start(self._accept(listener))

    async def close(self) -> None:
        """Let nobody in any more, and send away all that are in."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._close_listeners()

    def trust(self, context: ssl.SSLContext) -> None:
        """Let in the members that ``context`` knows, and nobody else from now on.

        A context that got the new certificates besides would not do: of two of one name, a lost key's and the one in
        its place, only the first is looked at.
        """
        for connection in self._new:
            connection.close()
        self._context = context

    def on_greeting(self, connection: Connection) -> None:
        """Note that the connection of this task is a neighbour's: it takes no place any more."""
        self._new.discard(connection)
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
                    # Files have run out, or the caller has gone again.
                    self._owner.turned_away(f"cannot accept connections: {error.strerror or error}")
                    await asyncio.sleep(_PAUSE_S)
                else:
                    self._take_in(connected, address[0])
                    # However many come, those that are in have their turn.
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
        neighbours = max(_FEW, self._owner.degree)
        of_address = [task for task, other in self._waiting.items() if other == address]
        if len(of_address) >= _PLACES_OF_ONE_ADDRESS * neighbours:
            first = of_address[0]
        elif len(self._waiting) >= _PLACES * neighbours:
            first = next(iter(self._waiting))
        else:
            return
        del self._waiting[first]
        first.cancel()
        self._owner.turned_away("too many that have not greeted")

    async def _serve(self, connected: socket.socket) -> None:
        """Do everything for one connection, from its handshake to its end."""
        assert self._context is not None  # noqa: S101  it is set before the port opens
        connection: Connection | None = None
        try:
            # As of all answers: how long a handshake takes must not say how busy this node is.
            await wait_until(due_within(HANDSHAKE_SPREAD_S))
            connection = await accept(
                connected, self._context, message_bytes=self._owner.message_bytes, timeout_s=self._limits.connect_s
            )
            connection.stall_s = self._limits.answer_s
            self._new.add(connection)
            self._check_neighbour(connection)
            await self._serve_neighbour(connection)
        except ProtocolError as error:
            peer = None if connection is None else self._owner.neighbour_of(connection.peer_spki)
            self._owner.turned_away(str(error), peer=peer or "")
        except TransportError as error:
            # A neighbour may go away; it dials again when it is back.
            if connection is None:
                self._owner.turned_away(str(error))
        finally:
            if connection is not None:
                self._new.discard(connection)
                connection.close()

    def _check_neighbour(self, connection: Connection) -> None:
        if self._owner.neighbour_of(connection.peer_spki) is None:
            raise ProtocolError("a TLS key that is no neighbour's")

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._waiting.pop(task, None)

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.close()
        self._listeners.clear()


def _close(connected: socket.socket, _: asyncio.Task[None]) -> None:
    connected.close()
