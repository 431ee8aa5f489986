"""The two ends of the links of a node: taking messages from neighbours, and handing messages over to them."""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import socket
import ssl
import time
from collections import defaultdict
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from veilwalk.core.errors import ProtocolError, SpoolError, TransportError
from veilwalk.node.link import (
    PING_SPREAD_S,
    Ack,
    Connection,
    Frame,
    Go,
    Hello,
    Limits,
    Nak,
    Offer,
    Ping,
    Refusal,
    TokenBucket,
    accept,
    dial,
    due_within,
    wait_until,
)
from veilwalk.node.members import Member
from veilwalk.node.spool import Row, Verdict, hit

if TYPE_CHECKING:
    from veilwalk.node.peer._node import Node
    from veilwalk.node.peer._scheduler import Scheduler

_NAKS = {
    Verdict.BUSY: Nak.BUSY,
    Verdict.DAMAGED: Nak.DAMAGED,
    Verdict.REFUSED: Nak.REFUSED,
    Verdict.UNKNOWN: Nak.UNKNOWN,
}
#: A handshake begins at a random moment within this.
HANDSHAKE_SPREAD_S = 0.1
_BACKLOG = 100
# Connections that have not greeted: for each neighbour, and at least for this many of them.
_PLACES, _PLACES_OF_ONE_ADDRESS = 4, 2
_FEW = 4
_FIRST_PAUSE_S = 0.05
# A link that is down so long is passed by. Shorter breaks, as when both ends follow a new roster, change no walk.
_DOWN_S = 1.0
_LOOK_S = 0.25
# A neighbour that brings too much is told so at leisure; and whoever comes while nobody can be let in waits.
_BUSY_S = 0.5
# One that was there and kept a message waiting until it went another way is passed by for twice as long, and for up to
# so many times where it does so again: else a member that takes nothing, and so is never missed, would hold every walk
# up that comes near it. But one that was busy for a moment, and for whom a model may be sealed, is soon tried again. Of
# what was some minutes ago nothing is left.
_SHUNNED, _MOST_SHUNNED_S = 20, 300.0
_dice = secrets.SystemRandom()


class InLinks:
    """The listener's end of every link: it takes connections in, and lets each show who it is before it costs much.

    A connection in its TLS handshake takes some 300 KB, and anybody who reaches the port can open one. So only a few
    wait at once, of one address fewer; when one more comes, the one that has waited longest has to go. A neighbour
    greets within milliseconds and is through; a stranger who only occupies places loses them.
    """

    def __init__(self, *, host: Node, scheduler: Scheduler, limits: Limits) -> None:
        self._host = host
        self._scheduler = scheduler
        self._limits = limits
        self._message_bytes = host.manifest.message_bytes
        self._context: ssl.SSLContext | None = None
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        # Those that have not greeted, the one that came first at the front, with their address.
        self._waiting: dict[asyncio.Task[None], str] = {}
        # Every connection that is through its handshake, and of those that have greeted the last of each neighbour.
        self._open: set[Connection] = set()
        self._connections: dict[str, Connection] = {}
        self._buckets: defaultdict[str, TokenBucket] = defaultdict(lambda: TokenBucket(limits.rate, limits.burst))
        self._greeting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def start(self, host: str, port: int, context: ssl.SSLContext) -> None:
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

    async def stop(self) -> None:
        """Let nobody in any more, and send away all that are in."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._close_listeners()

    def trust(self, context: ssl.SSLContext) -> None:
        """Let in the members that ``context`` knows, and nobody else; all that are connected must dial again.

        A context that got the new certificates besides would not do: of two of one name, a lost key's and the one in
        its place, only the first is looked at.
        """
        self._context = context
        self.hang_up()

    def hang_up(self) -> None:
        """Cut every connection; each neighbour dials again."""
        for connection in self._open:
            connection.close()

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
                    self._host.turned_away(f"cannot accept connections: {error.strerror or error}")
                    await asyncio.sleep(_BUSY_S)
                else:
                    connected.settimeout(0)
                    self._make_room(address[0])
                    task = self._start(self._serve(connected))
                    # Also where it is sent away before it began.
                    task.add_done_callback(partial(_close, connected))
                    self._waiting[task] = address[0]
                    # However many come, those that are in have their turn.
                    await asyncio.sleep(0)
        finally:
            loop.remove_reader(listener)

    def _make_room(self, address: str) -> None:
        neighbours = max(_FEW, len(self._host.roster.neighbours(self._host.id)))
        of_address = [task for task, other in self._waiting.items() if other == address]
        if len(of_address) >= _PLACES_OF_ONE_ADDRESS * neighbours:
            first = of_address[0]
        elif len(self._waiting) >= _PLACES * neighbours:
            first = next(iter(self._waiting))
        else:
            return
        del self._waiting[first]
        first.cancel()
        self._host.turned_away("too many that have not greeted")

    async def _serve(self, connected: socket.socket) -> None:
        """Do everything for one connection, from its handshake to its end."""
        assert self._context is not None  # noqa: S101  it is set before the port opens
        connection: Connection | None = None
        try:
            # As of all answers: how long a handshake takes must not say how busy this node is.
            await wait_until(due_within(HANDSHAKE_SPREAD_S))
            connection = await accept(
                connected, self._context, message_bytes=self._message_bytes, timeout_s=self._limits.connect_s
            )
            connection.stall_s = self._limits.answer_s
            self._open.add(connection)
            await self._converse(connection)
        except ProtocolError as error:
            peer = None if connection is None else self._host.neighbour_of(connection.peer_spki)
            self._host.turned_away(str(error), peer=peer or "")
        except TransportError as error:
            # A neighbour may go away; it dials again when it is back.
            if connection is None:
                self._host.turned_away(str(error))
        except Exception as error:  # noqa: BLE001  whatever one neighbour brings about ends its connection only
            self._host.failed(error)
        finally:
            if connection is not None:
                self._open.discard(connection)
                connection.close()

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

    def _neighbour(self, connection: Connection) -> str:
        peer = self._host.neighbour_of(connection.peer_spki)
        if peer is None:
            raise ProtocolError("a TLS key that is no neighbour's")
        return peer

    async def _converse(self, connection: Connection) -> None:
        """Converse with a neighbour until that ends."""
        idle_s = 3 * self._limits.ping_s + self._limits.transfer_s(self._message_bytes)
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
            await connection.send(self._host.hello())
            raise
        # A neighbour that greets anew has lost the connection before: that one is dead, though TCP may not know yet.
        before = self._connections.get(peer)
        if before is not None:
            before.close()
        self._connections[peer] = connection
        # One greeting of a neighbour's is written at a time: of those that come meanwhile, each still in its place at
        # the port, only the last is.
        async with self._greeting[peer]:
            if connection.closed.is_set():
                raise TransportError("a peer closed the connection")
            # From now on it takes no place any more.
            self._waiting.pop(cast("asyncio.Task[None]", asyncio.current_task()), None)
            await self._scheduler.greet(peer, hello.incarnation)
        await wait_until(due)
        await connection.send(self._host.hello())
        while True:
            await self._answer(peer, connection, idle_s)

    async def _answer(self, peer: str, connection: Connection, idle_s: float) -> None:
        frame = await connection.receive(idle_s)
        due = due_within(PING_SPREAD_S if isinstance(frame, Ping) else self._host.answer_spread_s)
        answer = await self._answer_to(peer, frame, connection)
        await wait_until(due)
        await connection.send(answer)

    async def _answer_to(self, peer: str, frame: Frame, connection: Connection) -> Frame:
        match frame:
            case Offer():
                await self._buckets[peer].take()
                if connection.closed.is_set():
                    raise TransportError("a peer closed the connection")
                if not self._scheduler.neighbours.may_bring(peer):
                    await asyncio.sleep(_BUSY_S)
                    return Refusal(frame.key, Nak.BUSY)
                return await self._as_answer(frame.key, self._scheduler.hold(peer, frame, connection.wire.body))
            case Go():
                return await self._as_answer(frame.key, self._scheduler.take(peer, frame.key))
            case _:
                return Ping()

    async def _as_answer(self, key: bytes, work: Awaitable[Verdict]) -> Ack | Refusal:
        try:
            verdict = await work
        except SpoolError as error:
            self._host.trouble(str(error))
            return Refusal(key, Nak.STORAGE)
        return Refusal(key, _NAKS[verdict]) if verdict in _NAKS else Ack(key)


def _close(connected: socket.socket, _: asyncio.Task[None]) -> None:
    connected.close()


class OutLink:
    """The dialer's end of a link, for as long as the node runs: connect, offer, give, wait, again and again."""

    def __init__(
        self, member: Member, context: ssl.SSLContext, *, host: Node, scheduler: Scheduler, limits: Limits
    ) -> None:
        self.peer = member.id
        self.up = False
        self._member = member
        self._context = context
        self._host = host
        self._scheduler, self._custody, self._store = scheduler, scheduler.custody, scheduler.store
        self._limits = limits
        self._message_bytes = host.manifest.message_bytes
        self._wake = asyncio.Event()
        self._connection: Connection | None = None
        self._stuck_since: float | None = None
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
        except Exception as error:  # noqa: BLE001  whatever one neighbour brings about ends its connection only
            # What was not written is still as it was: the same again.
            self._host.failed(error)
            self._down("storage" if isinstance(error, SpoolError) else "a fault here")
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
        if not await self._store(self._custody.waits_for, self.peer):
            return False
        self._stuck_since = None
        return await self._scheduler.reroute(self.peer)

    async def _quietly(self, work: Awaitable[object]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001  a link never ends by itself
            self._host.failed(error)

    async def _connect(self) -> Connection:
        limits = self._limits
        connection = await dial(
            self._member, self._context, message_bytes=self._message_bytes, timeout_s=limits.connect_s
        )
        try:
            connection.stall_s = limits.answer_s
            await connection.send(self._host.hello())
            answer = await connection.receive(limits.connect_s)
            assert isinstance(answer, Hello)  # noqa: S101  the wire lets nothing else through
            protocol = self._host.check_hello(answer)
        except BaseException:
            connection.close()
            raise
        self.up, self._last_up = True, asyncio.get_running_loop().time()
        self._host.link_up(self.peer, protocol)
        return connection

    async def _converse(self, connection: Connection) -> None:
        while True:
            self._wake.clear()
            outgoing = await self._store(self._custody.outgoing, self.peer)
            if outgoing is None:
                self._stuck_since = None
                if not await connection.idle(self._wake, self._limits.ping_s):
                    await connection.send(Ping())
                    await connection.receive(self._limits.answer_s)
            elif len(outgoing[1]) != self._message_bytes:
                # No peer would take it: it can only be damaged here.
                await self._store(self._custody.drop_if_damaged, outgoing[0])
            else:
                self._note_waiting()
                if not await self._hand_over(connection, *outgoing):
                    await self._rest(self._limits.retry_s / 8)

    async def _hand_over(self, connection: Connection, row: Row, body: bytes) -> bool:
        """Offer a message and give it; return whether there is no need to rest before the next."""
        # What was given before is asked about first: it may be used there already.
        if row.given:
            return await self._give(connection, row)
        hit("send.before_offer")
        begun = time.monotonic()
        answer = await self._offer(connection, row, body)
        if isinstance(answer, Refusal):
            if answer.code == Nak.DAMAGED:
                await self._store(self._custody.drop_if_damaged, row)
            return False
        hit("send.held")
        if not await self._store(self._custody.give, self.peer, row.key or b""):
            # It went another way while it was being offered.
            return True
        return await self._give(connection, row, begun=begun)

    async def _offer(self, connection: Connection, row: Row, body: bytes) -> Frame:
        """Send a message, and return what the neighbour says to it; the two together take a bounded time."""
        try:
            async with asyncio.timeout(self._limits.transfer_s(self._message_bytes)):
                await connection.send(Offer(row.key or b"", len(body), row.digest), body)
                hit("send.offered")
                return await connection.receive(None)
        except TimeoutError:
            raise TransportError("a peer takes too long") from None

    async def _give(self, connection: Connection, row: Row, *, begun: float | None = None) -> bool:
        """Give a message, or ask whether one that was given is used; return whether it is settled which."""
        await connection.send(Go(row.key or b""))
        hit("send.given")
        answer = await connection.receive(self._limits.transfer_s(self._message_bytes))
        if isinstance(answer, Refusal):
            # A neighbour that could not store it does not know it when it is asked again: only that is certain.
            if answer.code == Nak.UNKNOWN:
                await self._store(self._custody.deny, self.peer, row.key or b"")
            # What was only asked about is offered next.
            return begun is None and answer.code == Nak.UNKNOWN
        hit("send.acked")
        self._stuck_since = None
        taken_s = None if begun is None else time.monotonic() - begun
        await self._scheduler.deliver(self.peer, row, taken_s=taken_s)
        return True

    async def _rest(self, pause: float) -> None:
        """Pause for about so long, and then pass the neighbour by if it has kept a message waiting for too long."""
        await asyncio.sleep(pause * (0.5 + _dice.random()))
        if self._stuck_since is None and await self._store(self._custody.waits_for, self.peer):
            self._note_waiting()
        if self._stuck_since is None:
            return
        kept_s = asyncio.get_running_loop().time() - self._stuck_since
        # A neighbour that was not there, as one that starts later, kept nothing waiting.
        was_there = self.up or self._last_up >= self._stuck_since
        if kept_s > self._limits.pin_s:
            since = self._stuck_since
            is_rerouted = await self._reroute()
            # What was given stays, and waits for the answer.
            self._stuck_since = None if is_rerouted else since
            if was_there:
                self._shun(kept_s)

    def _shun(self, kept_s: float) -> None:
        now = time.monotonic()
        is_old = now > self._shunned_until + _MOST_SHUNNED_S
        self._shunned_times = 2 if is_old else min(2 * self._shunned_times, _SHUNNED)
        self._shunned_until = now + min(self._shunned_times * kept_s, _MOST_SHUNNED_S)

    def _note_waiting(self) -> None:
        if self._stuck_since is None:
            self._stuck_since = asyncio.get_running_loop().time()

    def _down(self, why: str) -> None:
        self._host.link_down(self.peer, was_up=self.up, why=why)
        if self.up:
            self._last_up = asyncio.get_running_loop().time()
            self._gone_at = time.monotonic() + min(_DOWN_S, self._limits.pin_s)
        self.up = False
