"""Health and metrics over HTTP, for the node's own operator; on loopback unless told otherwise.

Only what says nothing about who trained is counted here: metrics are scraped with the time, and often collected in
one place. What a node has done itself is in its own folder (``veilwalk node status``).
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from pathlib import Path
from typing import TYPE_CHECKING

from veilwalk.core.errors import SpoolError, TransportError
from veilwalk.node.peer._health import BEAT_S, Health, HealthWatch

if TYPE_CHECKING:
    from veilwalk.node.peer._log import Log
    from veilwalk.node.peer._node import Node

_REQUEST_BYTES = 2048
_REQUEST_S = 5.0

#: Tallies that every node has alike, destination or not, with what they count.
PUBLIC_TALLIES = {
    "taken": "messages taken from neighbours",
    "hops": "messages handed on",
    "rerouted": "messages sent another way because a neighbour was silent",
    "expired": "messages thrown away because their epoch was over",
    "crowded_out": "messages thrown away because a neighbour brought more than it may",
    "damaged": "stored files found damaged",
    "rested": "messages that came too often, and waited",
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
    "quiet_s": "nothing has come from a neighbour for at least so many seconds, in coarse steps",
    "stuck": "messages that have waited for one neighbour for more than a minute",
    "disk_free_bytes": "free on the disk of the state, in coarse steps",
    "finished": "1 if the node had the finished model when the last hour began",
}


class MetricsServer:
    """Answers ``/healthz`` and ``/metrics``."""

    def __init__(self, node: Node, state: Path, log: Log) -> None:
        self._node = node
        self._log = log
        self._watch = HealthWatch(node, state)
        self._beats: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            TransportError: The address cannot be used.
        """
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=_REQUEST_BYTES)
        except OSError as error:
            raise TransportError(f"cannot serve metrics on {host}:{port}: {error.strerror or error}") from None
        await self._watch.beat()
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
            await self._watch.beat()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S):
                request = await reader.readuntil(b"\r\n\r\n")
            status, body = await self._answer(request.split(b" ", 2)[:2])
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode("ascii"))
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, request: list[bytes]) -> tuple[str, str]:
        match request:
            case [b"GET", b"/healthz"]:
                troubles = self._watch.look().troubles
                return ("503 Service Unavailable", "\n".join(troubles) + "\n") if troubles else ("200 OK", "ok\n")
            case [b"GET", b"/metrics"]:
                try:
                    return "200 OK", await self._metrics()
                except SpoolError:
                    return "503 Service Unavailable", "storage failed\n"
            case _:
                return "404 Not Found", "try /healthz or /metrics\n"

    async def _metrics(self) -> str:
        found = await self._node.statistics()
        lines: list[str] = []
        for name, about in PUBLIC_TALLIES.items():
            lines += _metric(f"{name}_total", "counter", about, found.tallies.get(name, 0))
        for name, about in _EVENTS.items():
            lines += _metric(f"{name}_total", "counter", about, found.events[name])
        for name, about in _LOGGED.items():
            lines += _metric(f"{name}_total", "counter", about, self._log.counts[name])
        health: Health = self._watch.look()
        for name, about in _GAUGES.items():
            lines += _metric(name, "gauge", about, int(getattr(health, name)))
        lines += _metric("healthy", "gauge", "1 if /healthz is ok", int(not health.troubles))
        lines += _metric("in_custody", "gauge", "messages held or being handed on", found.in_custody)
        lines += _metric("links_up", "gauge", "neighbours connected", found.links_up)
        lines += _metric("roster_version", "gauge", "version of the roster held", found.roster_version)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        lines += _metric("memory_peak_bytes", "gauge", "most memory used so far", peak)
        return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, about: str, value: int) -> list[str]:
    full = f"veilwalk_{name}"
    return [f"# HELP {full} {about}", f"# TYPE {full} {kind}", f"{full} {value}"]
