"""One port for all runs of a process: a connection goes to the run that its HELLO names.

Until then it is nobody's: it takes a place at the door, of which there are so many for the whole process. A run that is
not here is answered the same way whichever it is, and whatever others are: by a HELLO that names none.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import replace
from typing import Protocol

from veilwalk.core.errors import ConfigError, ProtocolError, TransportError
from veilwalk.node.link._connection import Connection, accept
from veilwalk.node.link._door import Door
from veilwalk.node.link._limits import Limits
from veilwalk.node.link._pace import due_within, wait_until
from veilwalk.node.link._wire import NO_RUN, Hello, agreed_protocol

#: A handshake begins at a random moment within this.
HANDSHAKE_SPREAD_S = 0.1


class TurnedAway(Protocol):
    """Notes that somebody was turned away, and which neighbour it was, where it was one."""

    def __call__(self, why: str, /, *, peer: str = "") -> None:
        """Note it."""
        ...


class RunNode(Protocol):
    """The node of one run, as the port sees it."""

    @property
    def message_bytes(self) -> int:
        """Length of every message of the run."""
        ...

    @property
    def degree(self) -> int:
        """How many neighbours it has."""
        ...

    def hello(self) -> Hello:
        """Return what this node says first."""
        ...

    def neighbour_of(self, spki: bytes) -> str | None:
        """Return which neighbour shows that TLS key, if any."""
        ...


class RunLinks(Protocol):
    """The links of one run, as the port sees them."""

    @property
    def host(self) -> RunNode:
        """The node they are of."""
        ...

    async def serve(self, connection: Connection, hello: Hello) -> None:
        """Converse with whoever greeted, until that ends."""
        ...


class Port:
    """Listens, and hands out connections."""

    def __init__(self, *, limits: Limits, turned_away: TurnedAway) -> None:
        self._limits = limits
        self._turned_away = turned_away
        self._door = Door(self._serve, neighbours=self._neighbours, turned_away=turned_away)
        self._opening = asyncio.Lock()
        self._is_open = False
        self._context: ssl.SSLContext | None = None
        self._version = 0
        self._runs: dict[bytes, RunLinks] = {}
        # Those that have not greeted.
        self._new: set[Connection] = set()

    @property
    def waiting(self) -> int:
        """How many have come in and not greeted."""
        return self._door.waiting

    async def open(self, host: str, port: int, run: bytes, links: RunLinks) -> None:
        """Take connections for ``run`` from now on; whichever run is the first has the port opened.

        Raises:
            ConfigError: Another run here has the same id.
            TransportError: The address cannot be used.
        """
        if self._runs.setdefault(run, links) is not links:
            raise ConfigError("another run of this node has the same manifest")
        async with self._opening:
            if not self._is_open:
                await self._door.open(host, port)
                self._is_open = True

    def leave(self, run: bytes, links: RunLinks) -> None:
        """Take no more connections for ``run``, if it is the one of ``links``."""
        if self._runs.get(run) is links:
            del self._runs[run]

    async def close(self) -> None:
        """Let nobody in any more, and send away whoever is."""
        await self._door.close()

    def trust(self, context: ssl.SSLContext, version: int) -> None:
        """Let in whom ``context`` knows, and nobody else from now on; it is of that version of the roster.

        A context that got the new certificates besides would not do: of two of one name, a lost key's and the one in
        its place, only the first is looked at. Runs follow one after the other: the newest version counts.
        """
        if version > self._version:
            for connection in self._new:
                connection.close()
        if version >= self._version:
            self._context, self._version = context, version

    def greeted(self, connection: Connection) -> None:
        """Note that a connection is a neighbour's, and the run's from now on: it takes no place at the door."""
        self._new.discard(connection)
        self._door.greeted()

    async def _serve(self, connected: socket.socket) -> None:
        """Do everything for one connection, from its handshake to its end."""
        assert self._context is not None  # noqa: S101  the door opens after it is set
        connection: Connection | None = None
        try:
            # As of all answers: how long a handshake takes must not say how busy this node is.
            await wait_until(due_within(HANDSHAKE_SPREAD_S))
            connection = await accept(connected, self._context, timeout_s=self._limits.connect_s)
            connection.stall_s = self._limits.answer_s
            self._new.add(connection)
            self._check_known(connection)
            links, hello = await self._greeting(connection)
            connection.wire.message_bytes = links.host.message_bytes
            await links.serve(connection, hello)
        except ProtocolError as error:
            self._turned_away(str(error), peer=self._name(connection))
        except TransportError as error:
            # A neighbour may go away; it dials again when it is back.
            if connection is None:
                self._turned_away(str(error))
        finally:
            if connection is not None:
                self._new.discard(connection)
                connection.close()

    async def _greeting(self, connection: Connection) -> tuple[RunLinks, Hello]:
        hello = await connection.receive(self._limits.connect_s)
        assert isinstance(hello, Hello)  # noqa: S101  the wire lets nothing else through
        links = self._runs.get(hello.run)
        if links is not None:
            return links, hello
        # Again: it may have been left out of the roster while it kept us waiting.
        self._check_known(connection)
        await connection.send(self._without_run())
        agreed_protocol(hello)
        raise ProtocolError("a peer is of another run")

    def _without_run(self) -> Hello:
        """Return a HELLO that tells a neighbour of no run that is here."""
        hello = next(iter(self._runs.values())).host.hello()
        return replace(hello, run=NO_RUN, manifest_version=0, manifest_digest=bytes(32), incarnation=bytes(8))

    def _check_known(self, connection: Connection) -> None:
        if not self._name(connection):
            raise ProtocolError("a TLS key that is no neighbour's")

    def _name(self, connection: Connection | None) -> str:
        """Return which neighbour of any run is at the other end; empty where it is none."""
        found = (links.host.neighbour_of(connection.peer_spki) for links in self._runs.values() if connection)
        return next((peer for peer in found if peer is not None), "")

    def _neighbours(self) -> int:
        return max((links.host.degree for links in self._runs.values()), default=0)
