"""Taking messages from neighbours: one server, one conversation for each of them."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Awaitable

from veilwalk.core.errors import ProtocolError, SpoolError, TransportError
from veilwalk.node.link._connection import Connection, accept
from veilwalk.node.link._door import Door
from veilwalk.node.link._host import Counter, Host
from veilwalk.node.link._limits import Limits, TokenBucket
from veilwalk.node.link._pace import PING_SPREAD_S, due_within, wait_until
from veilwalk.node.link._wire import Ack, Cancel, Frame, Go, Hello, Nak, Offer, Ping, Refusal, Release
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
        self._door = Door(self._serve, neighbours=lambda: host.degree, turned_away=host.turned_away)
        self._context: ssl.SSLContext | None = None
        # Every connection that is up, greeted or not, and of those that have greeted the one of each neighbour.
        self._open: set[Connection] = set()
        self._connections: dict[str, Connection] = {}
        self._buckets: dict[str, TokenBucket] = {}

    async def start(self, host: str, port: int, context: ssl.SSLContext) -> None:
        """Listen.

        Raises:
            TransportError: The address cannot be used.
        """
        self.trust(context)
        await self._door.open(host, port)

    def trust(self, context: ssl.SSLContext) -> None:
        """Let in whom ``context`` knows, and nobody else from now on.

        A context that got the new certificates besides would not do: of two of one name, a lost key's and the one in
        its place, only the first is looked at.
        """
        self._context = context

    async def stop(self) -> None:
        """Take nothing more."""
        await self._door.close()

    def hang_up(self) -> None:
        """Cut every connection, also of those that have not greeted: whoever is still a neighbour dials again."""
        for connection in self._open:
            connection.close()

    async def release(self, peer: str, seq: int) -> bool:
        """Tell a neighbour that its spare copy may go; return whether it could be told."""
        connection = self._connections.get(peer)
        if connection is None or connection.closed.is_set():
            return False
        with contextlib.suppress(TransportError, ProtocolError):
            await connection.send(Release(seq))
            return True
        return False

    async def _serve(self, connected: socket.socket) -> None:
        """Do everything for one connection, from its handshake to its end."""
        assert self._context is not None  # noqa: S101  the door opens after it is set
        size, limits = self._host.message_bytes, self._limits
        try:
            connection = await accept(connected, self._context, message_bytes=size, timeout_s=limits.connect_s)
        except TransportError as error:
            self._host.turned_away(str(error))
            return
        connection.stall_s = limits.answer_s
        self._open.add(connection)
        try:
            await self._converse(connection)
        except ProtocolError as error:
            self._host.turned_away(str(error))
        except SpoolError as error:
            self._desk.trouble(str(error))
        except TransportError:
            # The neighbour went away; it dials again when it is back.
            pass
        except Exception as error:  # noqa: BLE001  whatever one neighbour brings about ends its connection only
            self._host.failed(error)
        finally:
            self._open.discard(connection)
            connection.close()

    async def _converse(self, connection: Connection) -> None:
        idle_s = 3 * self._limits.ping_s + self._limits.transfer_s(self._host.message_bytes)
        self._neighbour(connection)
        hello = await connection.receive(self._limits.connect_s)
        assert isinstance(hello, Hello)  # noqa: S101  the wire lets nothing else through
        due = due_within(self._host.answer_spread_s)
        # Again: it may have been left out of the roster while it kept us waiting.
        peer = self._neighbour(connection)
        try:
            self._host.check_hello(hello)
        except ProtocolError:
            # So that the other end, too, can tell its operator what does not fit.
            await connection.send(self._host.hello(0))
            raise
        # Whoever greets anew has lost the connection before: that one is dead, though TCP may not know yet.
        before = self._connections.get(peer)
        if before is not None:
            before.close()
        self._connections[peer] = connection
        self._door.greeted()
        settled = await self._desk.greeted(peer, hello)
        await wait_until(due)
        await connection.send(self._host.hello(settled))
        while True:
            await self._answer(peer, connection, idle_s)

    def _neighbour(self, connection: Connection) -> str:
        peer = self._host.neighbour_of(connection.peer_spki)
        if peer is None:
            raise ProtocolError("a TLS key that is no neighbour's")
        return peer

    async def _answer(self, peer: str, connection: Connection, idle_s: float) -> None:
        frame = await connection.receive(idle_s)
        due = due_within(PING_SPREAD_S if isinstance(frame, Ping) else self._host.answer_spread_s)
        answer = await self._answer_to(peer, frame, connection)
        await wait_until(due)
        await connection.send(answer)

    async def _answer_to(self, peer: str, frame: Frame, connection: Connection) -> Frame:
        match frame:
            case Offer():
                await self._bucket(peer).take()
                return await self._answer_of(frame.seq, self._desk.hold(peer, frame, connection.wire.body))
            case Go():
                return await self._answer_of(frame.seq, self._desk.take(peer, frame.seq))
            case Cancel():
                await self._desk.cancelled(peer, frame.seq)
                return Ack(frame.seq)
            case _:
                return Ping()

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
