"""Handing messages over to one neighbour: connect, offer, give, wait until it is done, again and again."""

from __future__ import annotations

import asyncio
import secrets
import ssl

from veilwalk.core.errors import ProtocolError, SpoolError, TransportError
from veilwalk.node.link._connection import Connection, dial
from veilwalk.node.link._host import Counter, Host
from veilwalk.node.link._limits import Limits
from veilwalk.node.link._wire import Cancel, Go, Hello, Nak, Offer, Ping, Refusal
from veilwalk.node.members import Member
from veilwalk.node.spool import Outgoing, Row, hit

_FIRST_PAUSE_S = 0.05
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
        self._stuck_since: float | None = None

    def hang_up(self) -> None:
        """Cut the connection; a new one is tried at once."""
        if self._connection is not None:
            self._connection.close()

    def wake(self) -> None:
        """Say that there is something to send."""
        self._wake.set()

    async def run(self) -> None:
        """Keep the link up and hand over whatever is pinned to it, until cancelled."""
        pause = _FIRST_PAUSE_S
        while True:
            try:
                self._connection = await self._connect()
                pause = _FIRST_PAUSE_S
                await self._converse(self._connection)
            except (TransportError, ProtocolError) as error:
                self._changed(up=False, why=str(error))
            except SpoolError as error:
                # Whatever was not written is still as it was: the same again.
                self._desk.trouble(str(error))
                self._changed(up=False, why="storage")
            finally:
                self.hang_up()
            try:
                await self._rest(pause)
            except SpoolError as error:
                self._desk.trouble(str(error))
            pause = min(2 * pause, self._limits.retry_s)

    async def _connect(self) -> Connection:
        limits = self._limits
        connection = await dial(
            self._member, self._context, message_bytes=self._host.message_bytes, timeout_s=limits.connect_s
        )
        try:
            connection.on_release = lambda seq: self._desk.released(self.peer, seq)
            await connection.send(self._host.hello())
            answer = await connection.receive(limits.connect_s)
            assert isinstance(answer, Hello)  # noqa: S101  the wire lets nothing else through
            self._host.check_hello(answer)
        except BaseException:
            connection.close()
            raise
        self._changed(up=True, why="")
        return connection

    async def _converse(self, connection: Connection) -> None:
        while True:
            self._wake.clear()
            outgoing = await self._desk.outgoing(self.peer)
            if outgoing is None:
                self._stuck_since = None
                if not await connection.idle(self._wake, self._limits.ping_s):
                    await connection.send(Ping())
                    await connection.receive(self._limits.answer_s)
            elif outgoing.row is None:
                await self._cancel(connection, outgoing)
            elif len(outgoing.body) != self._host.message_bytes:
                # No peer would take it: it can only be damaged here.
                await self._desk.damaged(outgoing)
            else:
                self._note_waiting()
                await self._hand_over(connection, outgoing, outgoing.row)

    async def _hand_over(self, connection: Connection, outgoing: Outgoing, row: Row) -> None:
        # What was given before is asked about first: it may be used there already.
        if outgoing.given and await self._give(connection, outgoing):
            return
        hit("send.before_offer")
        await connection.send(Offer(outgoing.seq, len(outgoing.body), row.digest), outgoing.body)
        hit("send.offered")
        answer = await connection.receive(self._limits.transfer_s(self._host.message_bytes))
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

    async def _cancel(self, connection: Connection, outgoing: Outgoing) -> None:
        await connection.send(Cancel(outgoing.seq))
        await connection.receive(self._limits.answer_s)
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
        self._stuck_since = None
        await self._desk.delivered(self.peer, outgoing)
        return True

    async def _rest(self, pause: float) -> None:
        """Pause for about so long; what has waited too long for this neighbour, and was not given, goes another way."""
        await asyncio.sleep(pause * (0.5 + _dice.random()))
        if self._stuck_since is None and await self._desk.waits_for(self.peer):
            self._note_waiting()
        now = asyncio.get_running_loop().time()
        if self._stuck_since is not None and now - self._stuck_since > self._limits.pin_s:
            self._stuck_since = None
            await self._desk.reroute(self.peer, silent=self._host.silent())

    def _note_waiting(self) -> None:
        if self._stuck_since is None:
            self._stuck_since = asyncio.get_running_loop().time()

    def _changed(self, *, up: bool, why: str) -> None:
        if up != self.up or not up:
            self._host.link_changed(self.peer, up=up, why=why)
        self.up = up
