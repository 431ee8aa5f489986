"""One connection to a neighbour: frames over TLS 1.3, one at a time, in memory that the peer cannot make grow."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import threading
from concurrent.futures import Future

from veilwalk.core.errors import CryptoError, ProtocolError, TransportError
from veilwalk.node.link._wire import Frame, Role, Wire
from veilwalk.node.members import Member, NodeKeys, spki_sha256
from veilwalk.node.sealing import Bytes
from veilwalk.node.spool import hit

_PIECE = 256 * 1024
_STALL_S = 30.0


class Connection(asyncio.BufferedProtocol):
    """A connection. One frame at most waits to be asked for: the peer may say no more until that is answered."""

    def __init__(self, role: Role, *, message_bytes: int) -> None:
        self.wire = Wire(role, message_bytes=message_bytes)
        #: The most a send waits for a peer that reads nothing.
        self.stall_s = _STALL_S
        self.peer_spki = b""
        self._transport: asyncio.Transport | None = None
        # The frame that came, until somebody asks for it.
        self._frame: Frame | None = None
        # Set when it came, and when the connection ends.
        self._news = asyncio.Event()
        # How the peer broke the protocol. In words: an error holds frames, and they this object with its buffers.
        self._broken: str | None = None
        # What is waited for while there is nothing to do; set also when the connection ends.
        self._idle: asyncio.Event | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self.closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note who is at the other end."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  asyncio's own promise
        self._transport = transport
        tls = transport.get_extra_info("ssl_object")
        try:
            certificate = tls.getpeercert(binary_form=True) if tls is not None else None
            self.peer_spki = spki_sha256(certificate) if certificate else b""
        except CryptoError:
            self.peer_spki = b""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  why is all the same
        """Wake whoever waits."""
        # It holds on to this object, and with it a quarter of a MiB, until somebody looks for such circles: rarely.
        self._transport = None
        self._ended()
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  the wire knows what it needs
        """Return where the next bytes go: exactly what is missing of the frame, so nothing is read ahead."""
        return self.wire.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Hand over a frame when it is complete."""
        try:
            frame = self.wire.filled(nbytes)
            while frame is not None:
                self._frame = frame
                self._news.set()
                frame = self.wire.following()
        except ProtocolError as error:
            self._broken = str(error)
            self.close()

    def pause_writing(self) -> None:
        """The peer reads slowly: wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Go on."""
        self._writable.set()

    async def receive(self, timeout_s: float | None) -> Frame:
        """Return the next frame, which must come within that time, if one is given.

        Raises:
            TransportError: The connection is gone, or nothing came in time.
            ProtocolError: The peer broke the protocol.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self._frame is None and not self.closed.is_set():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise TransportError("a peer did not answer in time") from None
        frame, self._frame = self._frame, None
        if frame is None or self._broken is not None:
            raise self._why_closed()
        return frame

    async def idle(self, wake: asyncio.Event, timeout_s: float) -> bool:
        """Wait until there is something to do, or for so long; return which. Notices when the peer goes away.

        Raises:
            TransportError: The connection is gone.
            ProtocolError: The peer broke the protocol.
        """
        self._check_open()
        self._idle = wake
        try:
            async with asyncio.timeout(timeout_s):
                await wake.wait()
        except TimeoutError:
            return False
        finally:
            self._idle = None
        self._check_open()
        return True

    async def send(self, frame: Frame, body: Bytes = b"") -> None:
        """Send a frame, and after it the message it announces, no faster than the peer reads.

        Raises:
            TransportError: The connection is gone, or the peer has stopped reading.
        """
        view = memoryview(body)
        # Together, or the peer would wake up for the frame alone.
        self._write(self.wire.send(frame), view[:_PIECE])
        if body:
            hit("send.piece")
        for start in range(_PIECE, len(view), _PIECE):
            await self._room()
            self._write(view[start : start + _PIECE])
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
        self._check_open()

    def _write(self, *parts: Bytes) -> None:
        self._check_open().writelines([part for part in parts if part])

    def _check_open(self) -> asyncio.Transport:
        if self._transport is None or self.closed.is_set():
            raise self._why_closed()
        return self._transport

    def _why_closed(self) -> ProtocolError | TransportError:
        broken = self._broken
        return TransportError("a peer closed the connection") if broken is None else ProtocolError(broken)

    def _ended(self) -> None:
        self.closed.set()
        self._news.set()
        if self._idle is not None:
            self._idle.set()


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


async def accept(
    connected: socket.socket, context: ssl.SSLContext, *, message_bytes: int, timeout_s: float
) -> Connection:
    """Return a connection that somebody has dialed, after its handshake.

    Raises:
        TransportError: It shows no certificate of a member's, or does nothing.
    """
    connection = Connection("listener", message_bytes=message_bytes)
    try:
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: connection, connected, ssl=context, ssl_handshake_timeout=timeout_s
        )
    except OSError as error:
        _forget_frames(error)
        raise TransportError("no handshake with a member's certificate") from None
    except asyncio.CancelledError:
        # Just after its handshake it would say goodbye, and wait for the peer to do so.
        connection.close()
        raise
    return connection


async def dial(member: Member, context: ssl.SSLContext, *, message_bytes: int, timeout_s: float) -> Connection:
    """Return a connection to ``member``, who has shown the key that the roster pins.

    Of several addresses each gets its share of the time that is left: the first may be dead.

    Raises:
        TransportError: It cannot be reached, or is somebody else.
    """
    loop = asyncio.get_running_loop()
    end, where = loop.time() + timeout_s, f"{member.id} at {member.address}"
    try:
        async with asyncio.timeout(timeout_s):
            addresses = await addresses_of(member.host, member.port)
    except TimeoutError:
        raise TransportError(f"{where}: no name server answers in {timeout_s:g} s") from None
    except OSError as error:
        raise TransportError(f"{where}: {error.strerror or error}") from None
    why = f"{where}: a name without addresses"
    for place, address in enumerate(addresses):
        share_s = (end - loop.time()) / (len(addresses) - place)
        try:
            return await _dial_at(address, member, context, message_bytes=message_bytes, timeout_s=share_s)
        except TransportError as error:
            # Not the error itself: it would hold this frame, and the frame it.
            why = str(error)
    raise TransportError(why)


async def _dial_at(
    address: str, member: Member, context: ssl.SSLContext, *, message_bytes: int, timeout_s: float
) -> Connection:
    loop = asyncio.get_running_loop()
    connection = Connection("dialer", message_bytes=message_bytes)
    try:
        async with asyncio.timeout(timeout_s):
            await loop.create_connection(
                lambda: connection, address, member.port, ssl=context, server_hostname=member.host
            )
    except asyncio.CancelledError:
        connection.close()
        raise
    except TimeoutError:
        connection.close()
        raise TransportError(f"{member.id} at {member.address}: no answer in {timeout_s:g} s") from None
    except (OSError, ssl.SSLError) as error:
        _forget_frames(error)
        # Asyncio has words of its own for this one, with the address once more.
        reason = "connection refused" if isinstance(error, ConnectionRefusedError) else error.strerror or error
        raise TransportError(f"{member.id} at {member.address}: {reason}") from None
    if connection.peer_spki != member.tls_spki_sha256:
        connection.close()
        raise TransportError(f"{member.id} at {member.address}: its TLS key is not the roster's")
    return connection


def _forget_frames(error: BaseException | None) -> None:
    """Let go of where an error was met: its frames hold it, and it holds them, with the buffers of a connection.

    Strangers could add those up, a quarter of a MiB for each handshake that they break off.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__context__


# Names that are being looked up, once each: however often somebody asks meanwhile.
_lookups: dict[tuple[str, int], Future[list[str]]] = {}


async def addresses_of(host: str, port: int) -> list[str]:
    """Return the addresses that ``host`` has, best first.

    Raises:
        OSError: It has none, or no name server says so.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        lookup = _lookups.get((host, port))
        if lookup is None or lookup.done():
            lookup = _lookups[host, port] = Future[list[str]]()
            # Nobody who gives up takes it from the others.
            lookup.set_running_or_notify_cancel()
            threading.Thread(target=_look_up, args=(host, port, lookup), name="names", daemon=True).start()
        return await asyncio.wrap_future(lookup)
    return [host]


def _look_up(host: str, port: int, lookup: Future[list[str]]) -> None:
    try:
        addresses = [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except Exception as error:  # noqa: BLE001  a name that cannot be written raises others; whoever asked must know
        lookup.set_exception(error if isinstance(error, OSError) else OSError(f"not a name ({type(error).__name__})"))
    else:
        lookup.set_result(list(dict.fromkeys(addresses)))
