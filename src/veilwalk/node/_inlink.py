"""Taking messages from neighbours: one server, one conversation for each of them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

from veilwalk.core.errors import ProtocolError, SpoolError, TransportError
from veilwalk.node._channel import Channel
from veilwalk.node._desk import Desk
from veilwalk.node._disk import Bytes
from veilwalk.node._handover import Verdict
from veilwalk.node._host import Host
from veilwalk.node._limits import Limits, TokenBucket
from veilwalk.node._wire import Ack, Cancel, Hello, Nak, Offer, Ping, Refusal, Release

_NAKS = {Verdict.BUSY: Nak.BUSY, Verdict.DAMAGED: Nak.DAMAGED, Verdict.REFUSED: Nak.REFUSED}


class InLinks:
    """The listener's end of every link."""

    def __init__(self, *, host: Host, desk: Desk, limits: Limits) -> None:
        self._host = host
        self._desk = desk
        self._limits = limits
        self._server: asyncio.Server | None = None
        self._channels: dict[str, Channel] = {}
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
                lambda: Channel("listener", message_bytes=self._host.message_bytes, on_open=self._opened),
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
        for channel in self._channels.values():
            channel.close()

    def hang_up(self, peers: set[str]) -> None:
        """Cut the connections from these."""
        for peer in peers & self._channels.keys():
            self._channels[peer].close()

    async def release(self, peer: str, seq: int) -> bool:
        """Tell a neighbour that its spare copy may go; return whether it could be told."""
        channel = self._channels.get(peer)
        if channel is None or channel.closed.is_set():
            return False
        with contextlib.suppress(TransportError, ProtocolError):
            await channel.send(Release(seq))
            return True
        return False

    def _opened(self, channel: Channel) -> None:
        peer = self._host.neighbour_of(channel.peer_spki)
        if peer is None:
            self._host.turned_away("a TLS key that is no neighbour's")
            channel.close()
            return
        task = asyncio.get_running_loop().create_task(self._converse(peer, channel))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, peer: str, channel: Channel) -> None:
        idle_s = 3 * self._limits.ping_s + self._limits.transfer_s(self._host.message_bytes)
        try:
            hello = await channel.receive(self._limits.connect_s)
            assert isinstance(hello, Hello)  # noqa: S101  the wire lets nothing else through
            self._host.check_hello(hello)
            # Whoever greets anew has lost the connection before: that one is dead, though TCP may not know yet.
            before = self._channels.get(peer)
            if before is not None:
                before.close()
            self._channels[peer] = channel
            await self._desk.greeted(peer, hello)
            await channel.send(self._host.hello())
            while True:
                await self._answer(peer, channel, idle_s)
        except ProtocolError as error:
            self._host.turned_away(str(error))
        except SpoolError as error:
            self._desk.trouble(str(error))
        except TransportError:
            # The neighbour went away; it dials again when it is back.
            pass
        finally:
            channel.close()

    async def _answer(self, peer: str, channel: Channel, idle_s: float) -> None:
        frame = await channel.receive(idle_s)
        match frame:
            case Offer():
                delay_s = self._bucket(peer).delay_s()
                if delay_s:
                    await asyncio.sleep(delay_s)
                await channel.send(await self._take(peer, frame, channel.wire.body))
            case Cancel():
                await self._desk.cancelled(peer, frame.seq)
                await channel.send(Ack(frame.seq))
            case _:
                await channel.send(Ping())

    async def _take(self, peer: str, offer: Offer, body: Bytes) -> Ack | Refusal:
        try:
            verdict = await self._desk.take(peer, offer, body)
        except SpoolError:
            return Refusal(offer.seq, Nak.STORAGE)
        if verdict in _NAKS:
            return Refusal(offer.seq, _NAKS[verdict])
        return Ack(offer.seq)

    def _bucket(self, peer: str) -> TokenBucket:
        if peer not in self._buckets:
            self._buckets[peer] = TokenBucket(self._limits.rate, self._limits.burst)
        return self._buckets[peer]
