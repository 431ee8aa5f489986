"""An event loop without a clock, a network without sockets, and processes that can be killed: all by one seed.

Time passes when nobody has anything to do. Whatever a node schedules runs in its own context, so that a killed one does
nothing more, not even what stands in a ``finally``, and a paused one does it later. Work for other threads is done
here, in turn and after a while, as a whole: which is all that the threads of a node may assume of each other.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import random
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.campaigns.virtual_socket import VirtualSocket, nothing


@dataclass(eq=False)
class Life:
    """A process from its start to its end."""

    name: str
    certificate: bytes = b""
    alive: bool = True
    paused: bool = False
    backlog: list[tuple[Callable[..., Any], tuple[Any, ...], contextvars.Context]] = field(default_factory=list)
    transports: list[VirtualTransport] = field(default_factory=list)

    def context(self) -> contextvars.Context:
        """Return the context in which this process works."""
        context = contextvars.copy_context()
        context.run(_life.set, self)
        return context


_life: contextvars.ContextVar[Life | None] = contextvars.ContextVar("life", default=None)


class _NoSelector:
    """Nothing ever comes from outside; to wait is to let time pass."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Let so much time pass."""
        if timeout is None:
            raise RuntimeError("nobody has anything left to do")
        self._loop.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop of a whole network of processes."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self.now = 0.0
        self.dice = dice
        self._selector = _NoSelector(self)
        self._clock_resolution = 1e-7
        self._trace = hashlib.sha256()
        self._listeners: dict[tuple[str, int], VirtualSocket] = {}
        #: Pairs of nodes between which nothing arrives for now.
        self.silent: set[frozenset[str]] = set()
        self._held: list[tuple[frozenset[str], Callable[[], None]]] = []
        self.set_exception_handler(lambda *_: None)

    def time(self) -> float:
        """Return the time of this world."""
        return self.now

    def note(self, *words: object) -> None:
        """Write into the trace, by whose digest two runs are compared."""
        self._trace.update(repr((round(self.now, 6), *words)).encode())

    @property
    def trace(self) -> str:
        """The digest of all that was noted."""
        return self._trace.hexdigest()

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        """Do something next, if whoever asks is still alive then."""
        if self.is_closed():
            # Coroutines of the dead, when they are thrown away.
            return asyncio.Handle(callback, args, self)
        context = context or contextvars.copy_context()
        return super().call_soon(self._run_if_alive, callback, args, context, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Do something at that time, if whoever asks is still alive then."""
        if self.is_closed():
            return asyncio.TimerHandle(when, callback, args, self)
        context = context or contextvars.copy_context()
        return super().call_at(when, self._run_if_alive, callback, args, context, context=context)

    def _run_if_alive(self, callback: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context) -> None:
        life = _life.get()
        if life is None or (life.alive and not life.paused):
            callback(*args)
        elif life.alive:
            life.backlog.append((callback, args, context))

    def resume(self, life: Life) -> None:
        """Let a paused process go on."""
        life.paused = False
        backlog, life.backlog = life.backlog, []
        for callback, args, context in backlog:
            self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Do work of another thread in its turn."""
        begins = max(self.now, getattr(executor, "free_at", 0.0)) + self.dice.expovariate(1 / 0.002)
        if executor is not None:
            executor.free_at = begins
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001  it is whoever waits who is told
                if not future.cancelled():
                    future.set_exception(error)
            else:
                if not future.cancelled():
                    future.set_result(result)

        self.call_at(begins, work)
        return future

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        """Return the address itself."""
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))]

    def listen(self, address: tuple[str, int]) -> VirtualSocket:
        """Return a socket that takes connections, in the place of one of a process that is gone."""
        life = _life.get()
        assert life is not None
        self._listeners[address] = listener = VirtualSocket(life, contextvars.copy_context())
        return listener

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        """Call back when somebody connects."""
        del args
        fd.ready = callback

    def remove_reader(self, fd: Any) -> bool:
        """Call back no more."""
        fd.ready = nothing
        return True

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **_: Any) -> Any:
        """Let a protocol have a connection that was accepted."""
        sock.transport.serve(protocol_factory(), contextvars.copy_context())
        return sock.transport, sock.transport.protocol

    async def create_connection(self, factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:  # type: ignore[override]
        """Connect to whoever listens there."""
        life = _life.get()
        assert life is not None
        await asyncio.sleep(self.delay())
        found = self._listeners.get((host, port))
        while found is not None and frozenset((life.name, found.life.name)) in self.silent:
            await asyncio.sleep(0.05)
            found = self._listeners.get((host, port))
        if found is None or found.closed or not found.life.alive:
            raise ConnectionRefusedError(111, "nobody listens there")
        near = VirtualTransport(self, life, factory(), contextvars.copy_context())
        far = VirtualTransport(self, found.life, None, found.context)
        near.there, far.there = far, near
        found.waiting.append(VirtualSocket(found.life, found.context, far))
        self.call_soon(found.ready, context=found.context)
        near.protocol.connection_made(near)
        return near, near.protocol

    def delay(self) -> float:
        """Return how long something is under way."""
        return self.dice.expovariate(1 / 0.004)

    def carry(self, pair: frozenset[str], at: float, deliver: Callable[[], None]) -> None:
        """Let something arrive at that time, or when the two can hear each other again."""

        def arrive() -> None:
            if pair in self.silent or any(held == pair for held, _ in self._held):
                self._held.append((pair, deliver))
            else:
                deliver()

        contextvars.Context().run(self.call_at, at, arrive)

    def heal(self, pair: frozenset[str]) -> None:
        """Let two nodes hear each other again."""
        self.silent.discard(pair)
        due = [deliver for held, deliver in self._held if held == pair]
        self._held = [held for held in self._held if held[0] != pair]
        for deliver in due:
            deliver()

    def _process_events(self, event_list: Any) -> None:
        del event_list

    def _write_to_self(self) -> None:
        pass


class _Tls:
    def __init__(self, certificate: bytes) -> None:
        self._certificate = certificate

    def getpeercert(self, *, binary_form: bool) -> bytes:
        """Return the certificate of the other end."""
        del binary_form
        return self._certificate


class VirtualTransport(asyncio.Transport):
    """One end of a connection: bytes arrive in order, later."""

    there: VirtualTransport

    def __init__(self, loop: VirtualLoop, here: Life, protocol: Any, context: contextvars.Context) -> None:
        super().__init__()
        self._loop, self.here, self.protocol, self._context = loop, here, protocol, context
        self._arrived: deque[bytes] = deque()
        self._reading, self._closed = True, False
        self._last_at = 0.0
        here.transports.append(self)

    def serve(self, protocol: Any, context: contextvars.Context) -> None:
        """Let a protocol have what arrives."""
        self.protocol, self._context = protocol, context
        protocol.connection_made(self)
        if self._closed:
            protocol.connection_lost(None)
        # What arrived while nobody had accepted it yet.
        self._loop.call_soon(self._feed, context=context)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the other end has shown."""
        return _Tls(self.there.here.certificate) if name == "ssl_object" else default

    def is_closing(self) -> bool:
        """Return whether this is over."""
        return self._closed

    def is_reading(self) -> bool:
        """Return whether what arrives is looked at."""
        return self._reading

    def pause_reading(self) -> None:
        """Look at nothing that arrives."""
        self._reading = False

    def resume_reading(self) -> None:
        """Look at what arrives."""
        self._reading = True
        self._loop.call_soon(self._feed, context=self._context)

    def get_write_buffer_size(self) -> int:
        """All is under way at once."""
        return 0

    def write(self, data: Any) -> None:
        """Send bytes."""
        if self._closed or not self.here.alive:
            return
        self._loop.note("sends", self.here.name, self.there.here.name, bytes(data[:1]), len(data))
        self._send(partial(self.there.arrive, bytes(data)))

    def abort(self) -> None:
        """Cut the connection."""
        if not self._closed and self.here.alive:
            self.cut()
            self._send(self.there.cut)

    close = abort

    def cut(self) -> None:
        """Let this end know that the connection is gone."""
        if not self._closed:
            self._closed = True
            if self.protocol is not None:
                self._loop.call_soon(self.protocol.connection_lost, None, context=self._context)

    def gone(self, after_s: float) -> None:
        """Let the other end know, after a while, that there is nobody here any more."""
        if not self._closed:
            self._closed = True
            self._send(self.there.cut, after_s)

    def _send(self, deliver: Callable[[], None], after_s: float = 0.0) -> None:
        self._last_at = max(self._last_at, self._loop.now + after_s + self._loop.delay())
        self._loop.carry(frozenset((self.here.name, self.there.here.name)), self._last_at, deliver)

    def arrive(self, data: bytes) -> None:
        """Let bytes of the other end be here."""
        self._arrived.append(data)
        self._loop.call_soon(self._feed, context=self._context)

    def _feed(self) -> None:
        while self._arrived and self._reading and not self._closed and self.protocol is not None:
            data = self._arrived.popleft()
            buffer = self.protocol.get_buffer(-1)
            taken = min(len(buffer), len(data))
            buffer[:taken] = data[:taken]
            if taken < len(data):
                self._arrived.appendleft(data[taken:])
            self.protocol.buffer_updated(taken)
