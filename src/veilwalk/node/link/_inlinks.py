"""Taking messages from neighbours: one server, one conversation for each of them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable

from veilwalk.core.errors import ProtocolError, SpoolError, TransportError
from veilwalk.node.link._connection import Connection
from veilwalk.node.link._host import Counter, Host
from veilwalk.node.link._limits import Limits, TokenBucket
from veilwalk.node.link._wire import Ack, Cancel, Go, Hello, Nak, Offer, Ping, Refusal, Release
from veilwalk.node.spool import Verdict

_NAKS = {
    Verdict.BUSY: Nak.BUSY,
    Verdict.DAMAGED: Nak.DAMAGED,
    Verdict.REFUSED: Nak.REFUSED,
    Verdict.UNKNOWN: Nak.UNKNOWN,
}


class InLinks:
    """The listener's end of every link."""

    def __init__(self, *, host: Host, desk: Counter, limits: Limits) -> None:
        self._host = host
        self._desk = desk
        self._limits = limits
        self._server: asyncio.Server | None = None
        self._connections: dict[str, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._buckets: dict[str, TokenBucket] = {}

    async def start(self, host: str, port: int, context: ssl.SSLContext) -> None:
        """Listen.

        Raises:
            TransportError: The address cannot be used.
        """
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: Connection("listener", message_bytes=self._host.message_bytes, on_open=self._opened),
                host,
                port,
                ssl=context,
                ssl_handshake_timeout=self._limits.connect_s,
            )
        except OSError as error:
            raise TransportError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None

    async def stop(self) -> None:
        """Take nothing more."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self._connections.values():
            connection.close()

    def hang_up(self, peers: set[str]) -> None:
        """Cut the connections from these."""
        for peer in peers & self._connections.keys():
            self._connections[peer].close()

    async def release(self, peer: str, seq: int) -> bool:
        """Tell a neighbour that its spare copy may go; return whether it could be told."""
        connection = self._connections.get(peer)
        if connection is None or connection.closed.is_set():
            return False
        with contextlib.suppress(TransportError, ProtocolError):
            await connection.send(Release(seq))
            return True
        return False

    def _opened(self, connection: Connection) -> None:
        peer = self._host.neighbour_of(connection.peer_spki)
        if peer is None:
            self._host.turned_away("a TLS key that is no neighbour's")
            connection.close()
            return
        task = asyncio.get_running_loop().create_task(self._converse(peer, connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, peer: str, connection: Connection) -> None:
        idle_s = 3 * self._limits.ping_s + self._limits.transfer_s(self._host.message_bytes)
        try:
            hello = await connection.receive(self._limits.connect_s)
            assert isinstance(hello, Hello)  # noqa: S101  the wire lets nothing else through
            self._host.check_hello(hello)
            # Whoever greets anew has lost the connection before: that one is dead, though TCP may not know yet.
            before = self._connections.get(peer)
            if before is not None:
                before.close()
            self._connections[peer] = connection
            await self._desk.greeted(peer, hello)
            await connection.send(self._host.hello())
            while True:
                await self._answer(peer, connection, idle_s)
        except ProtocolError as error:
            self._host.turned_away(str(error))
        except SpoolError as error:
            self._desk.trouble(str(error))
        except TransportError:
            # The neighbour went away; it dials again when it is back.
            pass
        finally:
            connection.close()

    async def _answer(self, peer: str, connection: Connection, idle_s: float) -> None:
        frame = await connection.receive(idle_s)
        match frame:
            case Offer():
                delay_s = self._bucket(peer).delay_s()
                if delay_s:
                    await asyncio.sleep(delay_s)
                holding = self._desk.hold(peer, frame, connection.wire.body)
                await connection.send(await self._answer_of(frame.seq, holding))
            case Go():
                await connection.send(await self._answer_of(frame.seq, self._desk.take(peer, frame.seq)))
            case Cancel():
                await self._desk.cancelled(peer, frame.seq)
                await connection.send(Ack(frame.seq))
            case _:
                await connection.send(Ping())

    async def _answer_of(self, seq: int, work: Awaitable[Verdict]) -> Ack | Refusal:
        try:
            verdict = await work
        except SpoolError:
            return Refusal(seq, Nak.STORAGE)
        return Refusal(seq, _NAKS[verdict]) if verdict in _NAKS else Ack(seq)

    def _bucket(self, peer: str) -> TokenBucket:
        if peer not in self._buckets:
            self._buckets[peer] = TokenBucket(self._limits.rate, self._limits.burst)
        return self._buckets[peer]
