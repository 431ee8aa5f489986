"""Health and metrics over HTTP on loopback, for the node's own operator.

Only what says nothing about who trained is counted here: metrics are scraped with the time, and often collected in
one place. What a node has done itself is in its own folder (``veilwalk node status``).
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from typing import TYPE_CHECKING

from veilwalk.core.errors import SpoolError, TransportError

if TYPE_CHECKING:
    from veilwalk.node.peer._node import Node

_REQUEST_BYTES = 2048
_REQUEST_S = 5.0

#: Tallies that every node has alike, destination or not, with what they count.
PUBLIC_TALLIES = {
    "taken": "messages taken from neighbours",
    "hops": "messages handed on",
    "rerouted": "messages sent another way because a neighbour was silent",
    "expired": "messages thrown away because their epoch was over",
    "damaged": "stored files found damaged",
}
_EVENTS = {
    "turned_away": "connections not accepted",
    "storage_troubles": "times the disk failed",
    "link_losses": "links that went down",
}


class MetricsServer:
    """Answers ``/healthz`` and ``/metrics``."""

    def __init__(self, node: Node) -> None:
        self._node = node
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

    def close(self) -> None:
        """Stop."""
        if self._server is not None:
            self._server.close()

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
                healthy = self._node.links_up > 0
                return ("200 OK", "ok\n") if healthy else ("503 Service Unavailable", "no neighbour can be reached\n")
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
        lines += _metric("in_custody", "gauge", "messages held or being handed on", found.in_custody)
        lines += _metric("links_up", "gauge", "neighbours connected", found.links_up)
        lines += _metric("roster_version", "gauge", "version of the roster held", found.roster_version)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        lines += _metric("memory_peak_bytes", "gauge", "most memory used so far", peak)
        return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, about: str, value: int) -> list[str]:
    full = f"veilwalk_{name}"
    return [f"# HELP {full} {about}", f"# TYPE {full} {kind}", f"{full} {value}"]
