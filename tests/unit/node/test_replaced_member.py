"""A member that lost its machine comes back under its name with other keys, while its neighbours run on."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.helpers.members import greet

from veilwalk.core.walk import SIMPLE
from veilwalk.node import RunRules
from veilwalk.node.members import changed_roster, new_node_keys

Make = Callable[..., Any]


def test_running_neighbours_let_a_replaced_member_in(network: Make) -> None:
    """Its certificate bears the name of the lost one: who still trusted that one, too, took neither for the other."""

    async def main() -> tuple[int, int]:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=100_000, late_hops=1e9), starts=False)
        await net.start()
        await net.until(lambda: all(node.links_up == 2 for node in net.nodes.values()))
        await net.stop("n1")
        shutil.rmtree(net.folder / "state-n1")
        address = net.roster.member("n1").address
        keys = new_node_keys(net.folder / "new", node_id="n1", address=address, suite=net.roster.suite)
        new: Any = {"cards": {"n1": keys.member}, "replaced": ["n1"], "removed": []}
        roster = changed_roster(net.roster, net.roster.edges, **new, now=int(time.time()), days=1)
        for name in ("n0", "n2", "n3"):
            await net.nodes[name].follow(roster, net.keys[name])
        net.change("n1", keys=keys, membership=replace(net.parts["n1"].membership, roster=roster))
        await net.start("n1")
        await net.until(lambda: all(node.links_up == 2 for node in net.nodes.values()))
        # And who comes with the keys that were lost is turned away, at the door or behind it.
        await net.stop("n1")
        shutil.rmtree(net.folder / "state-n1")
        net.change("n1", keys=net.keys["n1"], membership=replace(net.parts["n1"].membership, roster=net.roster))
        await net.start("n1")
        await net.until(lambda: '"link_down"' in net.logs["n1"].getvalue())
        up = net.nodes["n1"].links_up
        held = net.nodes["n0"].links_up
        await net.stop()
        return up, held

    assert asyncio.run(main()) == (0, 1)


def test_two_nodes_with_one_set_of_keys_are_told_by_their_neighbours(network: Make) -> None:
    """Each is let in with a disk of its own, and sends the other away: said once. A lost disk is no such thing."""

    async def main() -> tuple[list[str], list[str]]:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=100_000, late_hops=1e9), starts=False)
        await net.start("n1")
        said = []
        for disks in ([b"the-one-", b"the-next"], [b"the-one-", b"another-"] * 4):
            for disk in disks:
                (await greet(net, "n0", "n1", incarnation=disk)).close()
            await asyncio.sleep(0.1)
            said.append([line for line in net.logs["n1"].getvalue().splitlines() if "two_nodes" in line])
        await net.stop()
        return said[0], said[1]

    lost, two = asyncio.run(main())
    assert lost == []
    assert [json.loads(line)["peer"] for line in two] == ["n0"]
    assert "two nodes have its keys" in two[0]
