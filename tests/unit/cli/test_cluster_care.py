"""``veilwalk cluster status`` and ``node status``: nodes from another terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.campaigns.chaos_plan import tally_plan
from tests.helpers.cli import Cli

from veilwalk.core.records import write_atomically
from veilwalk.graphs import parse_graph_spec
from veilwalk.node import load_config
from veilwalk.node.cluster import prepare_cluster
from veilwalk.node.members import canonical_json
from veilwalk.node.spool import FolderDisk, Spool


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cluster of which one node has run."""
    first, *_ = prepare_cluster(tmp_path / "c", tally_plan(parse_graph_spec("ring:5"), updates=9, late=1e9))
    (tmp_path / "c" / "cluster.json").write_text("{}")
    Spool(FolderDisk(load_config(first).state)).close()
    return tmp_path / "c"


def test_status_says_nothing_of_what_it_does_not_read(run: Cli, folder: Path) -> None:
    """A version of 0 would be a wrong one."""
    found = run.json(["cluster", "status", "--out", str(folder), "--json"])
    assert found["nodes"]["n1"] == {"running": False}
    keys = {"running", "finished", "iteration", "in_custody", "tallies", "walks", "ends", "undone", "neighbours"}
    assert set(found["nodes"]["n0"]) == keys


def test_status_of_a_node_shows_its_counts_in_words_and_who_is_slow(run: Cli, folder: Path) -> None:
    """Findings 5 and 6: what its operator had to ask the others by telephone."""
    config = folder / "n0" / "node.toml"
    state = load_config(config).state
    spool = Spool(FolderDisk(state))
    with spool.transaction() as register:
        register.count("created", 2)
        register.undo_end(bytes(range(32)))
    spool.close()
    slow = {"up": True, "seconds": 4.62, "handed": 9, "brought": 8, "remark": "slow"}
    neighbours = {
        "n1": slow,
        "n4": slow | {"seconds": None, "handed": 40, "brought": 1, "remark": "a walk ended with it"},
    }
    write_atomically(state / "neighbours.json", canonical_json(neighbours))
    code, out, err = run(["node", "status", str(config)])
    assert (code, err) == (0, "")
    rows = {line.split("  ")[0]: line.split() for line in out.splitlines()}
    assert rows["created: walks made in the place of lost ones"][-1] == "2"
    assert rows["ends undone here, by SHA-256"][-1] == "0001020304050607"
    assert rows["n1"] == ["n1", "yes", "4.62", "9", "8", "slow"]
    assert rows["n4"] == ["n4", "yes", "-", "40", "1", *["a", "walk", "ended", "with", "it"]]
    assert run.json(["node", "status", str(config)])["neighbours"] == neighbours
