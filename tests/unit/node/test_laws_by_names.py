"""Laws by rule and by names: who joins is sealed for, and a law that lacks somebody says so."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.followers import FOREVER, NOW, small_cluster

from veilwalk.core.errors import ConfigError
from veilwalk.graphs import distances, parse_graph_spec
from veilwalk.node import load_config, node_status
from veilwalk.node.cluster import free_ports, node_ids
from veilwalk.node.members import LawRule, Manifest, changed_roster, edges_after, new_node_keys
from veilwalk.node.peer._assemble import assemble
from veilwalk.node.peer._observe import Log
from veilwalk.node.peer._routing import Law, read_law
from veilwalk.node.spool import FolderDisk, Spool

Make = Callable[..., Any]


def joined(net: Any, name: str, *, edges: list[tuple[str, str]], data_of: str) -> Any:
    """The roster with one more member, whose parts are put in place as those of another."""
    port = free_ports(1)[0]
    keys = new_node_keys(net.folder / name, node_id=name, address=f"127.0.0.1:{port}", suite=net.roster.suite)
    roster = changed_roster(
        net.roster, edges_after(net.roster, added=edges), cards={name: keys.member}, removed=[], now=NOW, days=1
    )
    net.keys[name], net.logs[name] = keys, io.StringIO()
    parts = net.parts[data_of]
    net.parts[name] = replace(
        parts,
        keys=keys,
        membership=replace(parts.membership, roster=roster),
        starts=False,
        log=Log(net.logs[name]),
    )
    net.roster = roster
    return roster


def test_finding_15_a_joiner_really_trains(network: Make) -> None:
    """Under a law by rule everybody seals for it from the roster on, and it for everybody far enough."""

    async def main() -> None:
        net = network(5, rules=FOREVER)
        for name in net.names:
            net.change(name, law=Law(rule=LawRule.parse("far:2")))
        members = net.names
        await net.start()
        await net.until(lambda: net.tally("updates") > 3)
        roster = joined(net, "n9", edges=[("n0", "n9"), ("n2", "n9")], data_of="n3")
        for name in members:
            await net.nodes[name].follow(roster, net.keys[name])
        await net.start("n9")
        await net.until(lambda: net.tally("updates", "n9") >= 3)
        before = net.tally("updates", *members)
        await net.until(lambda: net.tally("updates", *members) > before + 5)
        # And gone again: nobody seals for it any more.
        await net.stop("n9")
        del net.nodes["n9"]
        net.roster = changed_roster(
            roster, edges_after(roster, removed=["n9"]), cards={}, removed=["n9"], now=NOW, days=1
        )
        for name in members:
            await net.nodes[name].follow(net.roster, net.keys[name])
            assert "n9" not in net.nodes[name]._destination.law.members
        await net.stop()

    asyncio.run(main())


def test_a_rule_is_the_law_of_that_name() -> None:
    """Row by row what design makes of it; and whoever has nobody so far seals for the farthest there are."""
    from types import SimpleNamespace

    from veilwalk.design import choose_scheme

    graph = parse_graph_spec("rrg:40:3:seed=2")
    apart, names = distances(graph), node_ids(40)
    roster: Any = SimpleNamespace(
        distances=lambda node: {names[j]: int(hops) for j, hops in enumerate(apart[names.index(node)])}
    )
    laws = {
        "far:3": choose_scheme(graph, "far:3").law,
        "uniform-node:2:4": choose_scheme(graph, "uniform-node", support=(2, 4)).law,
    }
    for text, law in laws.items():
        rows = law.matrix.toarray()
        for node, row in zip(names, rows, strict=True):
            expected = {names[j]: share for j, share in enumerate(row) if share}
            assert LawRule.parse(text).shares(roster, node) == pytest.approx(expected)
    farthest = {names[j] for j in np.flatnonzero(apart[0] == apart[0].max())}
    assert set(LawRule.parse("far:99").shares(roster, names[0])) == farthest
    star: Any = SimpleNamespace(distances=lambda _: {"a": 0, "b": 1, "c": 1})
    with pytest.raises(ConfigError, match="a is next to all other members"):
        LawRule.parse("far:2").shares(star, "a")


def test_a_law_in_a_file_goes_by_names_and_says_whom_it_lacks(network: Make, tmp_path: Path) -> None:
    """Members it does not name are left out, and said; who is not named itself is told what to do."""
    from veilwalk.design import choose_scheme, save_law

    save_law(
        tmp_path / "law.npz",
        choose_scheme(parse_graph_spec("ring:5"), "far:2").law,
        labels=["n0", "n1", "n2", "n3", "old"],
    )
    law = read_law(tmp_path / "law.npz", ["n0", "n1", "n2", "n3", "new"], "n0")
    assert law.shares == pytest.approx({"n2": 0.5, "n3": 0.5})
    with pytest.raises(ConfigError, match="does not name new: it needs a law of the new members, or one by rule"):
        read_law(tmp_path / "law.npz", ["n0", "n1", "n2", "n3", "new"], "new")

    async def main() -> str:
        net = network(5, starts=False)
        net.change("n0", law=law)
        await net.start("n0")
        await net.stop()
        return str(net.logs["n0"].getvalue())

    assert law.rule is None
    said = [json.loads(line) for line in asyncio.run(main()).splitlines()]
    assert [event["names"] for event in said if event["event"] == "law_lacks_members"] == ["n4"]


def test_status_names_the_members_that_a_law_in_a_file_lacks(tmp_path: Path) -> None:
    """And under which roster and manifest the node works."""
    configs, root, roster = small_cluster(tmp_path / "c", law="uniform-node")
    assemble(load_config(configs[1])).disk.close()
    card = new_node_keys(tmp_path / "x", node_id="x", address="h:1", suite=roster.suite).member
    edges = edges_after(roster, added=[("x", "n0"), ("x", "n3")])
    following = changed_roster(roster, edges, cards={"x": card}, removed=[], now=NOW, days=9)
    following.sign(tmp_path / "c" / "roster.json", root)
    assemble(load_config(configs[1])).disk.close()
    Spool(FolderDisk(load_config(configs[1]).state)).close()
    found = node_status(load_config(configs[1]).state, with_versions=True)
    assert (found.roster_version, found.manifest_version, found.members_left_out) == (2, 1, ("x",))


def test_a_cluster_seals_by_rule_unless_told_otherwise(tmp_path: Path) -> None:
    """The recommended law needs no file; another is written under the names of the members."""
    _, root, roster = small_cluster(tmp_path / "a")
    manifest = Manifest.read_signed(tmp_path / "a" / "manifest.json", root.public_key())
    assert (manifest.law, manifest.law_digest) == ("far:2", "")
    assert manifest.graph_digest == roster.graph_digest == roster.graph().digest
    assert not (tmp_path / "a" / "law.npz").exists()
    small_cluster(tmp_path / "b", law="uniform-node")
    with np.load(tmp_path / "b" / "law.npz") as law:
        assert tuple(law["labels"]) == roster.ids
