"""One connection to a neighbour: frames over TLS 1.3, one at a time, in memory that the peer cannot make grow."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from veilwalk.core.errors import CryptoError, ProtocolError, TransportError
from veilwalk.node.link._wire import Frame, Release, Role, Wire
from veilwalk.node.members import Member, NodeKeys, spki_sha256
from veilwalk.node.sealing import Bytes
from veilwalk.node.spool import hit

_PIECE = 256 * 1024
_STALL_S = 30.0


class Connection(asyncio.BufferedProtocol):
    """A connection that is read only while somebody waits for a frame."""

    def __init__(self, role: Role, *, message_bytes: int) -> None:
        self.wire = Wire(role, message_bytes=message_bytes)
        #: Called with the number of a message the peer has long handed on.
        self.on_release: Callable[[int], None] = lambda _: None
        #: The most a send waits for a peer that reads nothing.
        self.stall_s = _STALL_S
        self.peer_spki = b""
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Frame] | None = None
        # What is waited for while there is nothing to do; set also when the connection ends.
        self._idle: asyncio.Event | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self.closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note who is at the other end; nothing is read until it is asked for."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  asyncio's own promise
        self._transport = transport
        transport.pause_reading()
        tls = transport.get_extra_info("ssl_object")
        try:
            certificate = tls.getpeercert(binary_form=True) if tls is not None else None
            self.peer_spki = spki_sha256(certificate) if certificate else b""
        except CryptoError:
            self.peer_spki = b""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  why is all the same
        """Wake whoever waits."""
        self._ended()
        self._writable.set()
        self._fail(TransportError("a peer closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  the wire knows what it needs
        """Return where the next bytes go: exactly what is missing of the frame, so nothing is read ahead."""
        return self.wire.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Hand over a frame when it is complete."""
        try:
            frame = self.wire.filled(nbytes)
        except ProtocolError as error:
            self._fail(error)
            self.close()
            return
        if isinstance(frame, Release):
            self.on_release(frame.seq)
        elif frame is not None and self._waiting is not None and not self._waiting.done():
            self._pause()
            self._waiting.set_result(frame)

    def pause_writing(self) -> None:
        """The peer reads slowly: wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Go on."""
        self._writable.set()

    async def receive(self, timeout_s: float) -> Frame:
        """Return the next frame.

        Raises:
            TransportError: The connection is gone, or nothing came in time.
            ProtocolError: The peer broke the protocol.
        """
        if self._transport is None or self.closed.is_set():
            raise TransportError("a peer closed the connection")
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.resume_reading()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._waiting
        except TimeoutError:
            raise TransportError("a peer did not answer in time") from None
        finally:
            self._waiting = None
            self._pause()

    async def idle(self, wake: asyncio.Event, timeout_s: float) -> bool:
        """Wait until there is something to do, or for so long; return which. Notices when the peer goes away.

        Raises:
            TransportError: The connection is gone.
        """
        if self._transport is None or self.closed.is_set():
            raise TransportError("a peer closed the connection")
        self._transport.resume_reading()
        self._idle = wake
        try:
            async with asyncio.timeout(timeout_s):
                await wake.wait()
        except TimeoutError:
            return False
        finally:
            self._idle = None
            self._pause()
        if self.closed.is_set():
            raise TransportError("a peer closed the connection")
        return True

    async def send(self, frame: Frame, body: Bytes = b"") -> None:
        """Send a frame, and after it the message it announces, no faster than the peer reads.

        Raises:
            TransportError: The connection is gone, or the peer has stopped reading.
        """
        transport = self._transport
        if transport is None or self.closed.is_set():
            raise TransportError("a peer closed the connection")
        transport.write(self.wire.send(frame))
        view = memoryview(body)
        for start in range(0, len(view), _PIECE):
            await self._room()
            transport.write(view[start : start + _PIECE])
            hit("send.piece")
        await self._room()

    def close(self) -> None:
        """Cut the connection; nothing that matters is lost with it."""
        if self._transport is not None:
            self._transport.abort()
        self._ended()

    async def _room(self) -> None:
        """Wait until the peer has read enough of what was sent before."""
        if not self._writable.is_set():
            try:
                async with asyncio.timeout(self.stall_s):
                    await self._writable.wait()
            except TimeoutError:
                raise TransportError("a peer has stopped reading") from None
        if self.closed.is_set():
            raise TransportError("a peer closed the connection")

    def _ended(self) -> None:
        self.closed.set()
        if self._idle is not None:
            self._idle.set()

    def _pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)


def listening_context(keys: NodeKeys, anchors: str) -> ssl.SSLContext:
    """Return TLS for taking connections from members with the given certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A resumed session would skip the certificate that is compared with the roster.
    context.num_tickets = 0
    return _strict(context, keys, anchors)


def dialing_context(keys: NodeKeys, anchors: str) -> ssl.SSLContext:
    """Return TLS for a connection to a member; names are not checked, its key is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    return _strict(context, keys, anchors)


def _strict(context: ssl.SSLContext, keys: NodeKeys, anchors: str) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=anchors)
    keys.load_into(context)
    return context


async def accept(connected: socket.socket, context: ssl.SSLContext, *, timeout_s: float) -> Connection:
    """Return a connection that somebody has dialed, after its handshake; it is of no run yet.

    Raises:
        TransportError: It shows no certificate of a member's, or does nothing.
    """
    try:
        _, connection = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: Connection("listener", message_bytes=0),
            connected,
            ssl=context,
            ssl_handshake_timeout=timeout_s,
        )
    except OSError:
        raise TransportError("no handshake with a member's certificate") from None
    return connection


async def dial(member: Member, context: ssl.SSLContext, *, message_bytes: int, timeout_s: float) -> Connection:
    """Return a connection to ``member``, who has shown the key that the roster pins.

    Raises:
        TransportError: It cannot be reached, or is somebody else.
    """
    loop = asyncio.get_running_loop()
    connection: Connection | None = None
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(
                lambda: Connection("dialer", message_bytes=message_bytes), member.host, member.port, ssl=context
            )
    except TimeoutError:
        raise TransportError(f"{member.id} at {member.address}: no answer in {timeout_s:g} s") from None
    except (OSError, ssl.SSLError) as error:
        raise TransportError(f"{member.id} at {member.address}: {error.strerror or error}") from None
    if connection.peer_spki != member.tls_spki_sha256:
        connection.close()
        raise TransportError(f"{member.id} at {member.address}: its TLS key is not the roster's")
    return connection
