"""Garbage that fills every place of every node: the network goes on, and nobody is started again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.node.conftest import Network

from veilwalk.core.walk import Walk
from veilwalk.node.link import Limits
from veilwalk.node.members import RunRules

Make = Callable[..., Network]
QUOTA = 2


def fill(custody: Any, size: int) -> set[str]:
    """Put as many messages as each neighbour may bring into a node's keeping, each pinned; return to whom."""
    clear = next(iter(custody.opener._clear))
    neighbours = custody.next_hop.neighbours
    with custody.spool.transaction() as register:
        for number, peer in enumerate(neighbours):
            for _ in range(QUOTA):
                garbage = custody.spool.store(clear + os.urandom(size - len(clear)))
                onward = neighbours[(number + 1) % len(neighbours)]
                register.add_message(garbage, came_from=peer, peer=onward)
    return set(neighbours)


@pytest.mark.parametrize("dwell_s", [0.0, 0.05])
def test_finding_02_a_network_full_of_garbage_goes_on(network: Make, dwell_s: float) -> None:
    """All quotas of all nodes at once: messages move again, and updates are made, by the first walk or by another."""
    rules = RunRules(
        walk=Walk("non-backtracking"), updates=10**6, late_hops=60, starve_hops=80, hop_s=0.05, dwell_s=dwell_s
    )

    async def main() -> None:
        limits = Limits(retry_s=0.1, connect_s=2.0, answer_s=3.0, quota=QUOTA)
        net = network(6, chords=((0, 3), (1, 4), (2, 5)), rules=rules, limits=limits, recipients=3)
        await net.start()
        await net.until(lambda: net.tally("updates") >= 3)
        size = net.nodes["n0"].manifest.message_bytes
        for node in net.nodes.values():
            node.wake(await node.scheduler.store(fill, node.scheduler.custody, size))
        before, hops = net.tally("updates"), net.tally("hops")
        await net.until(lambda: net.tally("updates") >= before + 10, timeout_s=60)
        assert net.tally("hops") > hops + 6 * 3 * QUOTA
        assert net.tally("crowded_out") > 0
        await net.stop()

    asyncio.run(main())
