"""Health and metrics over HTTP, for the node's own operator; on loopback unless told otherwise.

Only what says nothing about who trained is counted here: metrics are scraped with the time, and often collected in
one place. What a node has done itself is in its own folder (``veilwalk node status``).

Where a node has several runs, each number is given for every run, by the name that the operator gave it; without a
name stands what is of the node as a whole, as of connections before they have named a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from veilwalk.core.errors import SpoolError, TransportError
from veilwalk.node.peer._health import BEAT_S, DAILY, HealthWatch

if TYPE_CHECKING:
    from veilwalk.node.peer._log import Log
    from veilwalk.node.peer._node import NodeStatistics

_REQUEST_BYTES = 2048
_REQUEST_S = 5.0
# Asked at once; for one more the first has to go. Whoever reaches the port must not take the files that the run needs.
_MOST_REQUESTS = 16

#: Tallies that every node has alike, destination or not, with what they count.
PUBLIC_TALLIES = {
    "taken": "messages taken from neighbours",
    "hops": "messages handed on",
    "rerouted": "messages sent another way because a neighbour was silent",
    "expired": "messages thrown away because their epoch was over",
    "crowded_out": "messages thrown away because a neighbour brought more than it may",
    "damaged": "stored files found damaged",
    "rested": "messages that came too often, and waited",
    "outlived": "messages thrown away because they were too old to be waited for",
}
_EVENTS = {
    "turned_away": "connections not accepted",
    "storage_troubles": "times the disk failed",
    "link_losses": "links that went down",
    "link_faults": "connections ended by a fault of this node's own",
}
# Events of the log that are counted.
_LOGGED = {
    "roster_refused": "rosters or manifests put in place and not followed",
    "storage_damaged": "times the database was found damaged, and set aside",
}
_GAUGES = {
    "roster_days_left": "whole days until the roster ends",
    "manifest_days_left": "whole days until the manifest ends, where it does",
    "quiet_s": "nothing has come from a neighbour for at least so many seconds, in coarse steps",
    "stuck": "messages that have waited for one neighbour for more than a minute",
    "disk_free_bytes": "free on the disk of the state, in coarse steps",
    "finished": "1 if the node had the finished model when the last hour began",
    **DAILY,
}
_STATISTICS = {
    "in_custody": "messages held or being handed on",
    "links_up": "neighbours connected",
    "roster_version": "version of the roster held",
}


class WatchedRun(Protocol):
    """One run of a node, as its operator is told of it."""

    @property
    def name(self) -> str:
        """What the operator calls it; empty where it is the only one."""
        ...

    @property
    def log(self) -> Log:
        """Where its events go."""
        ...

    @property
    def watch(self) -> HealthWatch | None:
        """How its node is; None while there is none."""
        ...

    @property
    def drained(self) -> bool:
        """Whether the operator has stopped it."""
        ...


class MetricsServer:
    """Answers ``/healthz`` and ``/metrics``.

    On loopback requests under another name are refused: a page of somebody else, whose name points at this machine,
    reads nothing.
    """

    def __init__(
        self,
        runs: Sequence[WatchedRun],
        log: Log,
        events: Mapping[str, int],
        refuses: Callable[[Log], bool] = lambda _: False,
    ) -> None:
        self._runs = runs
        #: Whether what lies in the place of a roster or manifest is refused just now, by the log that says why.
        self._refuses = refuses
        self._log = log
        #: Of connections that have named no run.
        self._events = events
        self._beats: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None
        self._asking: dict[asyncio.StreamWriter, None] = {}
        self._is_local = True

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            TransportError: The address cannot be used.
        """
        self._is_local = host in {"127.0.0.1", "::1", "localhost"}
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=_REQUEST_BYTES)
        except OSError as error:
            raise TransportError(f"cannot serve metrics on {host}:{port}: {error.strerror or error}") from None
        self._beats = asyncio.get_running_loop().create_task(self._beat())

    def close(self) -> None:
        """Stop."""
        if self._beats is not None:
            self._beats.cancel()
        if self._server is not None:
            self._server.close()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            for run in self._runs:
                # A node may stop while it is looked at; the next look is at the next one.
                with contextlib.suppress(RuntimeError):
                    if run.watch is not None:
                        await run.watch.beat()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._asking) >= _MOST_REQUESTS:
            first = next(iter(self._asking))
            del self._asking[first]
            first.transport.abort()
        self._asking[writer] = None
        try:
            async with asyncio.timeout(_REQUEST_S):
                request = await reader.readuntil(b"\r\n\r\n")
            if self._is_local and not _names_loopback(request):
                status, body = "403 Forbidden", "this is not served under that name\n"
            else:
                status, body = await self._answer(request.split(b" ", 2)[:2])
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode("ascii"))
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._asking.pop(writer, None)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, request: list[bytes]) -> tuple[str, str]:
        match request:
            case [b"GET", b"/healthz"]:
                return self._health()
            case [b"GET", b"/metrics"]:
                try:
                    return "200 OK", await self._metrics()
                except SpoolError:
                    return "503 Service Unavailable", "storage failed\n"
            case _:
                return "404 Not Found", "try /healthz or /metrics\n"

    def _health(self) -> tuple[str, str]:
        """Return 503 and what is wrong, or 200; what will be wrong comes after either."""
        troubles = [_of(run, why) for run in self._runs for why in _troubles(run)]
        notes = [_of(run, why) for run in self._runs if run.watch is not None for why in run.watch.look().notes]
        if any(self._refuses(log) for log in (self._log, *(run.log for run in self._runs))):
            notes.append("a roster or manifest that was put in place is refused: the log says why")
        status = "503 Service Unavailable" if troubles else "200 OK"
        return status, "\n".join([*(troubles or ["ok"]), *(f"note: {why}" for why in notes)]) + "\n"

    async def _metrics(self) -> str:
        counts = [(run.name, found) for run in self._runs if (found := await _statistics(run)) is not None]
        several = all(run.name for run in self._runs)
        lines: list[str] = []
        for name, about in PUBLIC_TALLIES.items():
            lines += _metric(
                f"{name}_total", "counter", about, {of: found.tallies.get(name, 0) for of, found in counts}
            )
        for name, about in _EVENTS.items():
            samples = {of: found.events[name] for of, found in counts}
            lines += _metric(f"{name}_total", "counter", about, samples | ({"": self._events[name]} if several else {}))
        for name, about in _LOGGED.items():
            samples = {run.name: run.log.counts[name] for run in self._runs}
            lines += _metric(f"{name}_total", "counter", about, samples | {"": self._log.counts[name]})
        health = {run.name: run.watch.look() for run in self._runs if run.watch is not None}
        for name, about in _GAUGES.items():
            values = {of: getattr(look, name) for of, look in health.items()}
            lines += _metric(name, "gauge", about, {of: int(one) for of, one in values.items() if one is not None})
        healthy = {run.name: int(not _troubles(run)) for run in self._runs if not run.drained}
        lines += _metric("healthy", "gauge", "1 if /healthz is ok", healthy)
        for name, about in _STATISTICS.items():
            lines += _metric(name, "gauge", about, {of: getattr(found, name) for of, found in counts})
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        lines += _metric("memory_peak_bytes", "gauge", "most memory used so far", {"": peak})
        return "\n".join(lines) + "\n"


def _names_loopback(request: bytes) -> bool:
    """Return whether the Host of a request is this machine's own; browsers always send one."""
    hosts = re.findall(rb"(?im)^host:[ \t]*(.*?)[ \t]*\r$", request)
    return all(re.fullmatch(rb"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", host.lower()) for host in hosts)


def _of(run: WatchedRun, why: str) -> str:
    return f"{run.name}: {why}" if run.name else why


def _troubles(run: WatchedRun) -> tuple[str, ...]:
    """Return what is wrong with a run; one that the operator has stopped is as it should be."""
    if run.watch is not None:
        return run.watch.look().troubles
    return () if run.drained else ("does not run",)


async def _statistics(run: WatchedRun) -> NodeStatistics | None:
    """Return what a run has counted; None where it cannot be read, and others are there to be told of."""
    if run.watch is None:
        return None
    try:
        return await run.watch.node.statistics()
    except (SpoolError, RuntimeError):
        # Its disk fails, or it is about to stop.
        if not run.name:
            raise
        return None


def _metric(name: str, kind: str, about: str, samples: Mapping[str, int]) -> list[str]:
    full = f"veilwalk_{name}"
    values = [f'{full}{{run="{run}"}} {value}' if run else f"{full} {value}" for run, value in samples.items()]
    return [f"# HELP {full} {about}", f"# TYPE {full} {kind}", *values]
