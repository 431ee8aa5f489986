"""``veilwalk cluster status | logs``: a cluster from another terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.campaigns.chaos_plan import tally_plan
from tests.helpers.cli import Cli

from veilwalk.graphs import parse_graph_spec
from veilwalk.node import load_config
from veilwalk.node.cluster import prepare_cluster
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


@pytest.mark.parametrize("lines", ["0", "-3"])
def test_logs_of_no_line_are_refused(run: Cli, folder: Path, lines: str) -> None:
    """And not answered with nothing, as if nothing had happened."""
    code, _, err = run(["cluster", "logs", "--out", str(folder), "--lines", lines])
    assert (code, err.strip()) == (2, f"veilwalk: --lines = {lines}: must be at least 1")
