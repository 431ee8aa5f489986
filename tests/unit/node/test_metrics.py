"""Health and metrics on loopback."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any, cast

import pytest

from veilwalk.core.errors import TransportError
from veilwalk.core.walk import SIMPLE
from veilwalk.node import Node, RunRules
from veilwalk.node.cluster._files import free_ports
from veilwalk.node.peer._metrics import PUBLIC_TALLIES, MetricsServer
from veilwalk.node.peer._node import NodeStatistics


async def ask(port: int, request: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer.decode()


def test_health_and_metrics_are_served(network: Callable[..., Any]) -> None:
    """Prometheus text with every public tally; unwell while no neighbour answers; nonsense is turned away."""

    async def main() -> tuple[str, ...]:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=5, late_hops=1e9))
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


def test_metrics_ask_the_node_and_nothing_behind_it() -> None:
    """One snapshot is all that is shown."""

    class Counting:
        links_up = 2

        async def statistics(self) -> NodeStatistics:
            return NodeStatistics(
                tallies={"hops": 7},
                events={"turned_away": 1, "storage_troubles": 0, "link_losses": 3},
                in_custody=5,
                links_up=2,
                roster_version=4,
            )

    async def main() -> str:
        (port,) = free_ports(1)
        server = MetricsServer(cast("Node", Counting()))
        await server.start("127.0.0.1", port)
        answer = await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")
        server.close()
        return answer

    shown = asyncio.run(main())
    for line in ("hops_total 7", "taken_total 0", "link_losses_total 3", "in_custody 5", "roster_version 4"):
        assert f"\nveilwalk_{line}\n" in shown


def test_statistics_are_of_one_moment(network: Callable[..., Any]) -> None:
    """What happens later does not change them."""

    async def main() -> tuple[NodeStatistics, NodeStatistics]:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=5, late_hops=1e9))
        await net.start()
        await net.until(net.finished)
        before = await net.nodes["n0"].statistics()
        net.nodes["n0"].turned_away("a test")
        after = await net.nodes["n0"].statistics()
        await net.stop()
        return before, after

    before, after = asyncio.run(main())
    assert after.events["turned_away"] == before.events["turned_away"] + 1
    assert before.tallies["taken"] > 0
    assert before.roster_version == 1
    with pytest.raises(FrozenInstanceError):
        before.in_custody = 3  # type: ignore[misc]


def test_what_a_node_did_itself_is_not_a_metric() -> None:
    """Tallies that differ between destination and relay are for the operator's own eyes."""
    own = {"updates", "turns", "duplicates", "refused", "created", "merged", "retired", "started", "farewells"}
    assert not own & PUBLIC_TALLIES.keys()
