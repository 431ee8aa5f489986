"""Health and metrics on loopback."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from veilwalk.core.errors import TransportError
from veilwalk.node import RunRules
from veilwalk.node._metrics import PUBLIC_TALLIES, MetricsServer
from veilwalk.node._prepare import free_ports


async def ask(port: int, request: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer.decode()


def test_health_and_metrics_are_served(network: Callable[..., Any]) -> None:
    """Prometheus text with every public tally; unwell while no neighbour answers; nonsense is turned away."""

    async def main() -> tuple[str, ...]:
        net = network(4, rules=RunRules(walk="simple", updates=5, late=1e9))
        await net.start("n0")
        (port,) = free_ports(1)
        server = MetricsServer(net.nodes["n0"])
        await server.start("127.0.0.1", port)
        alone = await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n")
        await net.start("n1", "n2", "n3")
        await net.until(net.finished)
        answers = [
            await ask(port, f"{request} HTTP/1.1\r\n\r\n".encode())
            for request in ("GET /healthz", "GET /metrics", "GET /else", "POST /metrics")
        ]
        long = await ask(port, b"GET /" + b"x" * 5000)
        with pytest.raises(TransportError, match=str(port)):
            await MetricsServer(net.nodes["n0"]).start("127.0.0.1", port)
        server.close()
        await net.stop()
        return (alone, *answers, long)

    alone, health, metrics, elsewhere, posted, long = asyncio.run(main())
    assert alone.startswith("HTTP/1.1 503")
    assert health.startswith("HTTP/1.1 200")
    assert elsewhere.startswith("HTTP/1.1 404")
    assert posted.startswith("HTTP/1.1 404")
    assert long == ""
    names = set(re.findall(r"^veilwalk_(\w+) \d+$", metrics, re.MULTILINE))
    assert {f"{name}_total" for name in PUBLIC_TALLIES} <= names
    assert re.search(r"^veilwalk_links_up 2$", metrics, re.MULTILINE)


def test_what_a_node_did_itself_is_not_a_metric() -> None:
    """Tallies that differ between destination and relay are for the operator's own eyes."""
    own = {"updates", "turns", "duplicates", "refused", "created", "merged", "retired", "started", "farewells"}
    assert not own & PUBLIC_TALLIES.keys()
