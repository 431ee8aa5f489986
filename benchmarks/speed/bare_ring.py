"""A ring of bare processes that hand a message round: what the parts of a hop cost where hops happen.

Parts that are timed in a loop find their memory in the caches and their process awake. A node of a ring sleeps until
the message comes round again, as most nodes of a network do. So here are as many processes as the ring of nodes has,
with nothing but asyncio, TLS and a file: each takes the message, tries to open it, works out its digest, writes and
syncs it, answers with a few bytes and passes it on. Nothing is numbered, given or noted; a crash loses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import multiprocessing
import os
import ssl
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

from veilwalk.node.cluster import free_ports
from veilwalk.node.members import NodeKeys
from veilwalk.node.peer._membership import Membership

_SETTLING_S = 1.0


def bare_hop(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
    membership: Membership,
    keys: NodeKeys,
    *,
    folder: Path,
    size: int,
    processes: int,
    seconds: float,
) -> float:
    """Return the seconds of one hop round a ring of bare processes, over some seconds.

    Args:
        contexts: TLS of who listens and of who dials.
        membership: Of which run the message might be.
        keys: With which it is tried to be opened, in vain.
        folder: Where each writes its file.
        size: Bytes of the message.
        processes: In the ring.
        seconds: How long it is watched.
    """
    fork = multiprocessing.get_context("fork")
    ports = free_ports(processes)
    hops: Synchronized[int] = fork.Value("q", 0)
    message = membership.roster.seal_context(membership.manifest).clear + os.urandom(size - 4)

    def live(place: int) -> None:
        member = _Member(membership.opener(keys), hops, folder / f"bare-{place}", message if place == 0 else None)
        asyncio.run(member.live(contexts, ports[place], ports[(place + 1) % processes], size))

    ring = [fork.Process(target=live, args=(place,)) for place in range(processes)]
    for process in ring:
        process.start()
    try:
        while hops.value < 8 * processes:
            time.sleep(0.05)
        first, begin = hops.value, time.perf_counter()
        time.sleep(seconds)
        return (time.perf_counter() - begin) / max(hops.value - first, 1)
    finally:
        for process in ring:
            process.kill()
            process.join()


class _Member:
    """One process of the ring."""

    def __init__(self, opener: Any, hops: Synchronized[int], path: Path, message: bytes | None) -> None:
        self._opener = opener
        self._hops = hops
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        self._first = message
        self._onward: asyncio.StreamWriter | None = None

    async def live(self, contexts: tuple[ssl.SSLContext, ssl.SSLContext], mine: int, next_port: int, size: int) -> None:
        """Pass on whatever comes, for ever; with a first message, begin."""
        listening, dialing = contexts
        loop = asyncio.get_running_loop()
        # At the end neighbours are killed one after the other.
        loop.set_exception_handler(lambda *_: None)
        server = await loop.create_server(lambda: _Arrivals(size, self._take), "127.0.0.1", mine, ssl=listening)
        while self._onward is None:
            try:
                answers, self._onward = await asyncio.open_connection("127.0.0.1", next_port, ssl=dialing)
            except OSError:
                await asyncio.sleep(0.02)
        if self._first is not None:
            # Until all have connected: who has nobody to pass it on to would lose it.
            await asyncio.sleep(_SETTLING_S)
            self._onward.write(self._first)
        async with server:
            with contextlib.suppress(ConnectionError):
                while await answers.read(4096):
                    pass

    def _take(self, message: bytes) -> None:
        self._opener.open(message)
        hashlib.sha256(message).digest()
        os.pwrite(self._file, message, 0)
        os.fdatasync(self._file)
        if self._onward is not None:
            self._onward.write(message)
        with self._hops.get_lock():
            self._hops.value += 1


class _Arrivals(asyncio.BufferedProtocol):
    """Gathers ``size`` bytes, hands them to ``take``, and answers with eight."""

    def __init__(self, size: int, take: Any) -> None:
        self._take = take
        self._buffer, self._have = bytearray(size), 0

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        del sizehint
        return memoryview(self._buffer)[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take a message that is complete."""
        self._have += nbytes
        if self._have == len(self._buffer):
            self._have = 0
            self._take(bytes(self._buffer))
            self._transport.write(bytes(8))
