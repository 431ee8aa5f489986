"""Taking messages of one run from neighbours: one conversation with each of them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import defaultdict
from collections.abc import Awaitable

from veilwalk.core.errors import ProtocolError, SpoolError, TransportError
from veilwalk.node.link._connection import Connection
from veilwalk.node.link._host import Counter, Host
from veilwalk.node.link._limits import Limits, TokenBucket
from veilwalk.node.link._pace import PING_SPREAD_S, due_within, wait_until
from veilwalk.node.link._port import Port
from veilwalk.node.link._wire import Ack, Cancel, Frame, Go, Hello, Nak, Offer, Ping, Refusal, Release
from veilwalk.node.spool import Verdict

_NAKS = {
    Verdict.BUSY: Nak.BUSY,
    Verdict.DAMAGED: Nak.DAMAGED,
    Verdict.REFUSED: Nak.REFUSED,
    Verdict.UNKNOWN: Nak.UNKNOWN,
}


class InLinks:
    """The listener's end of every link of one run."""

    def __init__(self, *, host: Host, desk: Counter, limits: Limits, port: Port | None = None) -> None:
        self.host = host
        self._desk = desk
        self._limits = limits
        self._port = port or Port(limits=limits, turned_away=host.turned_away)
        self._has_own_port = port is None
        self._run = b""
        # Every connection that has named this run, with who converses, and of those that have greeted the one of each
        # neighbour.
        self._open: dict[Connection, asyncio.Task[None] | None] = {}
        self._connections: dict[str, Connection] = {}
        self._buckets: dict[str, TokenBucket] = {}
        self._greeting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def start(self, host: str, port: int, context: ssl.SSLContext, *, version: int = 0) -> None:
        """Listen.

        Raises:
            TransportError: The address cannot be used.
        """
        self.trust(context, version=version)
        self._run = self.host.hello(0).run
        await self._port.open(host, port, self._run, self)

    def trust(self, context: ssl.SSLContext, *, version: int) -> None:
        """Let in whom ``context``, of that version of the roster, knows, and nobody else from now on."""
        self._port.trust(context, version)

    async def stop(self) -> None:
        """Take nothing more."""
        self._port.leave(self._run, self)
        tasks = [task for task in self._open.values() if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._has_own_port:
            await self._port.close()

    def hang_up(self) -> None:
        """Cut every connection; whoever is still a neighbour dials again."""
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

    async def serve(self, connection: Connection, hello: Hello) -> None:
        """Converse with whoever greeted, until that ends."""
        self._open[connection] = asyncio.current_task()
        try:
            await self._converse(connection, hello)
        except ProtocolError as error:
            self.host.turned_away(str(error), peer=self.host.neighbour_of(connection.peer_spki) or "")
        except SpoolError as error:
            self._desk.trouble(str(error))
        except TransportError:
            # The neighbour went away; it dials again when it is back.
            pass
        except Exception as error:  # noqa: BLE001  whatever one neighbour brings about ends its connection only
            self.host.failed(error)
        finally:
            del self._open[connection]

    async def _converse(self, connection: Connection, hello: Hello) -> None:
        idle_s = 3 * self._limits.ping_s + self._limits.transfer_s(self.host.message_bytes)
        due = due_within(self.host.answer_spread_s)
        # Again: it may have been left out of the roster while it kept us waiting.
        peer = self._neighbour(connection)
        try:
            self.host.check_hello(hello)
        except ProtocolError:
            # So that the other end, too, can tell its operator what does not fit.
            await connection.send(self.host.hello(0))
            raise
        # Whoever greets anew has lost the connection before: that one is dead, though TCP may not know yet.
        before = self._connections.get(peer)
        if before is not None:
            before.close()
        self._connections[peer] = connection
        # One greeting of a neighbour's is written at a time: of those that come meanwhile, each still in its place at
        # the door, only the last is.
        async with self._greeting[peer]:
            if connection.closed.is_set():
                raise TransportError("a peer closed the connection")
            self._port.greeted(connection)
            settled = await self._desk.greeted(peer, hello)
        await wait_until(due)
        await connection.send(self.host.hello(settled))
        while True:
            await self._answer(peer, connection, idle_s)

    def _neighbour(self, connection: Connection) -> str:
        peer = self.host.neighbour_of(connection.peer_spki)
        if peer is None:
            raise ProtocolError("a TLS key that is no neighbour's")
        return peer

    async def _answer(self, peer: str, connection: Connection, idle_s: float) -> None:
        frame = await connection.receive(idle_s)
        due = due_within(PING_SPREAD_S if isinstance(frame, Ping) else self.host.answer_spread_s)
        answer = await self._answer_to(peer, frame, connection)
        await wait_until(due)
        await connection.send(answer)
        if isinstance(frame, Offer):
            await self._desk.held(peer)

    async def _answer_to(self, peer: str, frame: Frame, connection: Connection) -> Frame:
        match frame:
            case Offer():
                await self._bucket(peer).take()
                if connection.closed.is_set():
                    # Its number may be another message's by now.
                    raise TransportError("a peer closed the connection")
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
