"""Handing messages over to one neighbour: connect, offer, give, wait until it is done, again and again."""

from __future__ import annotations

import asyncio
import math
import secrets
import ssl
import time
from collections.abc import Awaitable

from veilwalk.core.errors import ProtocolError, SpoolError, TransportError
from veilwalk.node.link._connection import Connection, dial
from veilwalk.node.link._host import Counter, Host
from veilwalk.node.link._limits import Limits, TokenBucket
from veilwalk.node.link._wire import Cancel, Frame, Go, Hello, Nak, Offer, Ping, Refusal
from veilwalk.node.members import Member
from veilwalk.node.sealing import Bytes
from veilwalk.node.spool import Outgoing, Row, hit

_FIRST_PAUSE_S = 0.05
# A link that is down so long is passed by. Shorter breaks, as when both ends follow a new roster, change no walk.
_DOWN_S = 1.0
_LOOK_S = 0.25
# One that was there and kept a message waiting until it went another way is passed by for twice as long, and for up to
# so many times where it does so again: else a member that takes nothing, and so is never missed, would hold every walk
# up that comes near it. But one that was busy for a moment, and for whom a model may be sealed, is soon tried again. Of
# what was some minutes ago nothing is left.
_SHUNNED, _MOST_SHUNNED_S = 20, 300.0
# In a second: each follows a hand-over, which both ends wrote to their disks.
_MOST_RELEASES = 1000
_dice = secrets.SystemRandom()


class OutLink:
    """The dialer's end of a link, for as long as the node runs."""

    def __init__(
        self,
        member: Member,
        context: ssl.SSLContext,
        *,
        host: Host,
        desk: Counter,
        limits: Limits,
    ) -> None:
        self.peer = member.id
        self.up = False
        self._member = member
        self._context = context
        self._host = host
        self._desk = desk
        self._limits = limits
        self._wake = asyncio.Event()
        self._connection: Connection | None = None
        # The last number that both ends are done with, and one that was offered before it was written.
        self._settled = 0
        self._early: int | None = None
        self._is_free = False
        self._stuck_since: float | None = None
        self._releases = TokenBucket(limits.rate, limits.burst)
        self._heard = TokenBucket(_MOST_RELEASES, _MOST_RELEASES)
        self._shunned_until, self._shunned_times = 0.0, 1
        self._last_up = -math.inf
        # Nothing is known of a link that never was up: others may be starting too.
        self._gone_at = time.monotonic() + limits.connect_s

    @property
    def gone(self) -> bool:
        """Whether the neighbour is known not to be there."""
        return not self.up and time.monotonic() >= self._gone_at

    @property
    def avoided(self) -> bool:
        """Whether nothing is sent its way if there is another: it is not there, or took nothing lately."""
        return self.gone or time.monotonic() < self._shunned_until

    def hang_up(self) -> None:
        """Cut the connection; a new one is tried at once."""
        if self._connection is not None:
            self._connection.close()

    def wake(self) -> None:
        """Say that there is something to send."""
        self._wake.set()

    def offer(self, seq: int, digest: bytes, body: Bytes) -> bool:
        """Offer a short message whose number is being written, if nothing else is to be said; return whether it is.

        It is not given before it comes as what is outgoing, which is when it is written.
        """
        connection = self._connection
        if not self._is_free or self._wake.is_set() or connection is None or connection.closed.is_set():
            return False
        if seq != self._settled + 1 or len(body) != self._host.message_bytes or not _in_event_loop():
            return False
        connection.begin(Offer(seq, len(body), digest), body)
        self._early, self._is_free = seq, False
        return True

    async def run(self) -> None:
        """Keep the link up and hand over whatever is pinned to it, until cancelled."""
        rescuing = asyncio.get_running_loop().create_task(self._rescue())
        pause = _FIRST_PAUSE_S
        try:
            while True:
                pause = _FIRST_PAUSE_S if await self._once() else min(2 * pause, self._limits.retry_s)
                await self._quietly(self._rest(pause))
        finally:
            rescuing.cancel()

    async def _once(self) -> bool:
        """Connect and converse for as long as that goes well; return whether there was a connection."""
        was_up = False
        try:
            self._connection = await self._connect()
            was_up = True
            await self._converse(self._connection)
        except (TransportError, ProtocolError) as error:
            self._down(str(error))
        except SpoolError as error:
            # Whatever was not written is still as it was: the same again.
            self._desk.trouble(str(error))
            self._down("storage")
        except Exception as error:  # noqa: BLE001  whatever one neighbour brings about ends its connection only
            self._host.failed(error)
            self._down("a fault here")
        finally:
            self.hang_up()
        return was_up

    async def _rescue(self) -> None:
        """Send what is pinned to a neighbour that is gone, and was not given, another way.

        That is safe at any moment: until it is given, a message is this node's alone, and the neighbour uses nothing
        that it merely holds. The draw that chose the neighbour is lost, as it is for one that is silent.
        """
        while True:
            await asyncio.sleep(_LOOK_S)
            if self.gone:
                await self._quietly(self._reroute())

    async def _reroute(self) -> bool:
        """Send what waits for this neighbour, and was not given, another way; return whether anything was."""
        if not await self._desk.waits_for(self.peer):
            return False
        self._stuck_since = None
        return await self._desk.reroute(self.peer, silent=self._host.silent())

    async def _quietly(self, work: Awaitable[object]) -> None:
        try:
            await work
        except SpoolError as error:
            self._desk.trouble(str(error))
        except Exception as error:  # noqa: BLE001  a link never ends by itself
            self._host.failed(error)

    async def _connect(self) -> Connection:
        limits = self._limits
        connection = await dial(
            self._member, self._context, message_bytes=self._host.message_bytes, timeout_s=limits.connect_s
        )
        try:
            connection.on_release = self._released
            connection.stall_s = limits.answer_s
            await connection.send(self._host.hello(await self._desk.settled(self.peer)))
            answer = await connection.receive(limits.connect_s)
            assert isinstance(answer, Hello)  # noqa: S101  the wire lets nothing else through
            protocol = self._host.check_hello(answer)
            if await self._desk.answered(self.peer, answer):
                self._host.put_back(self.peer)
            self._early, self._settled = None, await self._desk.settled(self.peer)
        except BaseException:
            connection.close()
            raise
        self.up, self._last_up = True, asyncio.get_running_loop().time()
        self._host.link_up(self.peer, protocol)
        return connection

    async def _converse(self, connection: Connection) -> None:
        while True:
            self._wake.clear()
            outgoing = await self._desk.outgoing(self.peer)
            if self._early is not None and (outgoing is None or outgoing.row is None or outgoing.seq != self._early):
                # It went another way at once.
                raise TransportError("what was offered is not to be given")
            if outgoing is None:
                self._stuck_since = None
                await self._wait(connection)
            elif outgoing.row is None:
                await self._cancel(connection, outgoing)
                # There may be many of these, and a neighbour that takes its time with each.
                await self._pass_by()
            elif len(outgoing.body) != self._host.message_bytes:
                # No peer would take it: it can only be damaged here.
                await self._desk.damaged(outgoing)
            else:
                self._note_waiting()
                await self._hand_over(connection, outgoing, outgoing.row)

    async def _wait(self, connection: Connection) -> None:
        """Wait until there is something to do; meanwhile the link is free for what is being written."""
        self._is_free = True
        try:
            is_woken = await connection.idle(self._wake, self._limits.ping_s)
        finally:
            self._is_free = False
        if not is_woken and self._early is None:
            await connection.send(Ping())
            await connection.receive(self._limits.answer_s)

    async def _hand_over(self, connection: Connection, outgoing: Outgoing, row: Row) -> None:
        # What was given before is asked about first: it may be used there already.
        if outgoing.given and await self._give(connection, outgoing):
            return
        hit("send.before_offer")
        answer = await self._offer(connection, outgoing, row)
        if isinstance(answer, Refusal):
            if answer.code == Nak.DAMAGED:
                await self._desk.damaged(outgoing)
            await self._rest(self._limits.retry_s / 8)
            return
        hit("send.held")
        if not await self._desk.give(self.peer, outgoing):
            # It went another way while it was being offered.
            await self._cancel(connection, outgoing)
        elif not await self._give(connection, outgoing):
            await self._rest(self._limits.retry_s / 8)

    async def _offer(self, connection: Connection, outgoing: Outgoing, row: Row) -> Frame:
        """Send a message, and return what the neighbour says to it; the two together take a bounded time."""
        clock = asyncio.get_running_loop().time
        due = clock() + self._limits.transfer_s(self._host.message_bytes)
        if self._early is None:
            try:
                async with asyncio.timeout_at(due):
                    await connection.send(Offer(outgoing.seq, len(outgoing.body), row.digest), outgoing.body)
            except TimeoutError:
                raise TransportError("a peer takes too long") from None
        self._early = None
        hit("send.offered")
        return await connection.receive(due - clock())

    async def _cancel(self, connection: Connection, outgoing: Outgoing) -> None:
        await connection.send(Cancel(outgoing.seq))
        await connection.receive(self._limits.answer_s)
        self._settled = outgoing.seq
        await self._desk.delivered(self.peer, outgoing)

    async def _give(self, connection: Connection, outgoing: Outgoing) -> bool:
        """Give a message, or ask whether one that was given is used; return whether it is the neighbour's now."""
        await connection.send(Go(outgoing.seq))
        hit("send.given")
        answer = await connection.receive(self._limits.transfer_s(self._host.message_bytes))
        if isinstance(answer, Refusal):
            # Whoever could not store it does not know it either when asked again: only that is certain.
            if answer.code == Nak.UNKNOWN:
                await self._desk.not_given(self.peer, outgoing)
            return False
        hit("send.acked")
        self._stuck_since, self._settled = None, outgoing.seq
        await self._desk.delivered(self.peer, outgoing)
        return True

    async def _rest(self, pause: float) -> None:
        """Pause for about so long, and then pass the neighbour by if it has kept a message waiting for too long."""
        await asyncio.sleep(pause * (0.5 + _dice.random()))
        await self._pass_by()

    async def _pass_by(self) -> None:
        """Send what has waited too long for this neighbour, and was not given, another way."""
        if self._stuck_since is None and await self._desk.waits_for(self.peer):
            self._note_waiting()
        if self._stuck_since is None:
            return
        kept_s = asyncio.get_running_loop().time() - self._stuck_since
        # Whoever was not there, as one that starts later, kept nothing waiting.
        was_there = self.up or self._last_up >= self._stuck_since
        if kept_s > self._limits.pin_s and await self._reroute() and was_there:
            self._shun(kept_s)

    def _shun(self, kept_s: float) -> None:
        now = time.monotonic()
        is_old = now > self._shunned_until + _MOST_SHUNNED_S
        self._shunned_times = 2 if is_old else min(2 * self._shunned_times, _SHUNNED)
        self._shunned_until = now + min(self._shunned_times * kept_s, _MOST_SHUNNED_S)

    def _released(self, seq: int) -> None:
        # Honest neighbours release each message once: more than there can be messages is not worth looking at, nor,
        # where it is far more, listening to.
        if not self._heard.take_if_any():
            raise ProtocolError("a peer releases more than it can have been given")
        if self._releases.take_if_any():
            self._desk.released(self.peer, seq)

    def _note_waiting(self) -> None:
        if self._stuck_since is None:
            self._stuck_since = asyncio.get_running_loop().time()

    def _down(self, why: str) -> None:
        self._host.link_down(self.peer, was_up=self.up, why=why)
        if self.up:
            self._last_up = asyncio.get_running_loop().time()
            self._gone_at = time.monotonic() + min(_DOWN_S, self._limits.pin_s)
        self.up = False


def _in_event_loop() -> bool:
    """Return whether this is the thread of the event loop, and not that of the storage."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
