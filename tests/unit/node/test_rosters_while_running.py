"""New rosters while messages walk: harmless versions, epochs, members that leave, keys that do not fit."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.helpers.followers import FOREVER, NOW

from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.core.walk import SIMPLE
from veilwalk.node import RunRules
from veilwalk.node.members import (
    changed_roster,
    edges_after,
    new_node_keys,
    rotate_node_keys,
)
from veilwalk.node.sealing import seal

Make = Callable[..., Any]


def test_finding_08_a_message_outlives_harmless_versions_of_the_roster(network: Make) -> None:
    """Sealed under version 1, it walks while everybody takes up 2 and 3, and opens."""

    async def main() -> Any:
        net = network(4, starts=False)
        membership = net.parts["n0"].membership
        message = seal(
            membership.roster.seal_context(membership.manifest),
            [membership.roster.kem_key("n2", 0)],
            walk_tag=b"walktag1",
            iteration=0,
            body=np.zeros(4).tobytes(),
        )
        await net.start()
        for days in (2, 3):
            roster = net.nodes["n0"].roster
            following = changed_roster(roster, roster.edges, cards={}, removed=[], now=NOW, days=days)
            for name in net.names:
                await net.nodes[name].follow(following, net.keys[name])
        desk = net.nodes["n0"].scheduler
        desk._settle(await desk.store(desk.custody.create, message, "started"), for_us=False)
        await net.until(lambda: net.tally("updates", "n2") >= 1)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert {node.roster.version for node in net.nodes.values()} <= {3}
    assert [net.tally(name) for name in ("expired", "refused", "damaged", "created")] == [0, 0, 0, 0]


def test_finding_20_all_change_over_at_one_time(network: Make) -> None:
    """A period begins by the clock, whoever has the next roster already; clocks that differ stall nobody."""

    async def main() -> None:
        net = network(6, chords=((0, 2), (1, 4)), rules=FOREVER)
        await net.start()
        await net.until(lambda: net.tally("updates") > 3)
        manifest = net.nodes["n0"].manifest
        later = further_periods(net, net.roster)
        for seconds in range(0, 3 * net.roster.period_s, net.roster.period_s // 4):
            both = [roster.epoch_at(later.created + seconds) for roster in (net.roster, later)]
            assert both[0] == min(both[1], 1)
        assert later.seal_context(manifest).epoch == net.roster.seal_context(manifest).epoch == 0
        for name in ("n0", "n1", "n2"):
            await net.nodes[name].follow(later, net.keys[name])
        before = net.tally("updates")
        await net.until(lambda: net.tally("updates") > before + 10)
        # For those whose clocks are ahead the next period has begun: they seal in it, and all open both.
        ahead = replace(later, version=3, prev_digest=later.digest, seals_from=later.created - later.period_s)
        for name in ("n0", "n1", "n2"):
            await net.nodes[name].follow(ahead, net.keys[name])
        for name in ("n3", "n4", "n5"):
            await net.nodes[name].follow(later, net.keys[name])
        assert [net.nodes[name].roster.seal_context(manifest).epoch for name in ("n0", "n3")] == [1, 0]
        before = net.tally("updates")
        await net.until(lambda: net.tally("updates") > before + 20)
        await net.stop()

    asyncio.run(main())


def further_periods(net: Any, roster: Any, **about: Any) -> Any:
    """The next roster, with a period more; members hold the keys."""
    net.keys = {name: rotate_node_keys(net.folder / name) for name in net.names}
    cards = {name: found.member for name, found in net.keys.items()}
    following = changed_roster(roster, roster.edges, cards=cards, now=int(time.time()), days=1)
    return replace(following, **about)


def test_edges_after_a_change_are_those_of_before_but_for_it(network: Make) -> None:
    roster = network(4).roster
    assert edges_after(roster) == roster.edges
    assert edges_after(roster, removed=["n3"]) == (("n0", "n1"), ("n1", "n2"))
    assert edges_after(roster, added=[("n2", "n0")])[:3] == (("n0", "n1"), ("n0", "n2"), ("n0", "n3"))
    with pytest.raises(InvalidParameterError, match="edge = "):
        edges_after(roster, added=[("n1", "n0")])


def test_a_new_period_is_followed_while_running(network: Make) -> None:
    """It begins at one node after the other, under way: nothing is lost, and the old period's messages still open."""

    async def main() -> Any:
        net = network(5, chords=((0, 2),), rules=RunRules(walk=SIMPLE, updates=120, late_hops=1e9))
        await net.start()
        for _ in range(2):
            before = net.tally("updates")
            await net.until(lambda before=before: net.tally("updates") > before + 5)
            begun = net.roster.seals_from - net.roster.period_s
            net.roster = further_periods(net, net.roster, seals_from=begun)
            for name in net.names:
                await net.nodes[name].follow(net.roster, net.keys[name])
                await asyncio.sleep(0.05)
        epoch = net.roster.epoch_at(time.time())
        await net.until(net.finished, 60)
        await net.stop()
        assert epoch == 2
        return net

    net = asyncio.run(main())
    assert net.look("n0")["final"].tolist() == [net.tally("updates", name) for name in net.names]
    assert net.tally("updates") == 120
    assert all('"version": 3' in log.getvalue() for log in net.logs.values())


def test_a_new_roster_reaches_custody_in_the_storage_thread(network: Make) -> None:
    """Custody belongs to one thread: the loop asks that one, and never writes itself."""
    writers: dict[str, str] = {}

    def watch(thing: Any) -> None:
        def note(self: Any, name: str, value: object) -> None:
            writers[name] = threading.current_thread().name
            object.__setattr__(self, name, value)

        thing.__class__ = type("Watched", (type(thing),), {"__setattr__": note})

    async def main() -> None:
        net = network(4, starts=False)
        await net.start()
        custody = net.nodes["n1"].scheduler.custody
        watch(custody)
        watch(custody.visits)
        following = replace(net.roster, version=2, prev_digest=net.roster.digest)
        await net.nodes["n1"].follow(following, net.keys["n1"])
        await net.until(lambda: net.nodes["n1"].links_up == 2)
        await net.stop()

    asyncio.run(main())
    assert {"opener", "next_hop", "allowed"} <= writers.keys()
    assert all(writer.startswith("storage") for writer in writers.values())


def test_a_roster_with_a_wrong_key_for_this_very_node_is_refused(network: Make, tmp_path: Any) -> None:
    """What others seal to a key it does not hold would be lost: it says so, and works under the one before."""

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=60, late_hops=1e9))
        await net.start()
        await net.until(lambda: net.tally("updates") > 5)
        stranger = new_node_keys(tmp_path / "s", node_id="n1", address="127.0.0.1:9", suite=net.roster.suite).member
        own = net.keys["n1"].member
        for wrong, word in (
            (replace(own, kem=stranger.kem), "the sealing key of n1"),
            (replace(own, certificate=stranger.certificate), "the TLS key of n1"),
        ):
            members = tuple(wrong if member.id == "n1" else member for member in net.roster.members)
            bad = replace(net.roster, version=2, prev_digest=net.roster.digest, members=members)
            with pytest.raises(ConfigError, match=word):
                await net.nodes["n1"].follow(bad, net.keys["n1"])
        assert net.nodes["n1"].roster.version == 1
        await net.until(net.finished, 60)
        await net.stop()
        return net

    assert asyncio.run(main()).tally("updates") == 60


def test_who_leaves_the_roster_is_not_spoken_to_any_more(network: Make) -> None:
    """Its neighbours hang up and send what waits for it another way; training ends without it.

    Also where the model was sealed for it: then a message that nobody can open walks on for ever, and looks like life.
    """

    async def main() -> Any:
        net = network(
            5,
            chords=((0, 2), (1, 3)),
            rules=RunRules(walk=SIMPLE, updates=80, late_hops=40, starve_hops=100, hop_s=0.02),
        )
        await net.start()
        await net.until(lambda: net.tally("updates") > 5)
        edges = [edge for edge in net.roster.edges if "n4" not in edge]
        net.roster = changed_roster(net.roster, edges, cards={}, removed=["n4"], now=int(time.time()), days=1)
        with pytest.raises(ConfigError, match="leaves n4 out"):
            await net.nodes["n4"].follow(net.roster, net.keys["n4"])
        for name in ("n0", "n1", "n2", "n3"):
            await net.nodes[name].follow(net.roster, net.keys[name])
        await net.until(lambda: all(net.look(name)["final"] is not None for name in ("n0", "n1", "n2", "n3")), 60)
        assert net.nodes["n4"].links_up == 0
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.look("n0")["final"].sum() >= 80


def test_a_node_waits_while_its_roster_does_not_hold(network: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock jumps past the roster's end: links go down, nothing is lost; it jumps back, and training ends."""

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=60, late_hops=1e9))
        await net.start()
        await net.until(lambda: net.tally("updates") >= 3)
        now = time.time
        with monkeypatch.context() as patch:
            patch.setattr("veilwalk.node.peer._membership.time.time", lambda: now() + 7200)
            await net.until(lambda: not any(node.links_up for node in net.nodes.values()))
            before = net.tally("hops")
            await asyncio.sleep(0.5)
            assert net.tally("hops") == before
        await net.until(net.finished, 40)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.look("n0")["final"].tolist() == [net.tally("updates", name) for name in net.names]


def test_other_edges_than_the_manifests_are_told_and_are_no_fault(network: Make) -> None:
    """After every change of members it is so: no warning, and no word of another network."""

    async def main() -> str:
        net = network(4, starts=False)
        await net.start("n0")
        edges = edges_after(net.roster, added=[("n0", "n2")])
        following = changed_roster(net.roster, edges, cards={}, removed=[], now=NOW, days=2)
        await net.nodes["n0"].follow(following, net.keys["n0"])
        await net.stop()
        return str(net.logs["n0"].getvalue())

    said = [json.loads(line) for line in asyncio.run(main()).splitlines()]
    found = [(event["level"], event["roster"]) for event in said if event["event"] == "manifest_of_earlier_edges"]
    assert found == [("info", 2)]
