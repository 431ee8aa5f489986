"""A cluster on one machine, without running it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from veilwalk.core.errors import ConfigError, InvalidParameterError, SpoolError
from veilwalk.node import ClusterSettings, load_config
from veilwalk.node.cluster import ClusterStatus, cluster_record, prepare_or_resume, set_up_cluster
from veilwalk.node.spool import FolderDisk, Spool


def test_a_record_needs_a_finished_model(tmp_path: Path) -> None:
    """What is missing is on a disk: neither the graph nor a peer is to blame."""
    setup = set_up_cluster(ClusterSettings(graph="rrg:6:3:seed=2", updates=5))
    first, *_ = prepare_or_resume(setup, tmp_path / "c")
    Spool(FolderDisk(load_config(first).state)).close()
    with pytest.raises(SpoolError, match="no node has a finished model"):
        cluster_record(setup, tmp_path / "c", ClusterStatus(nodes=(), alive=0), seconds=1.0)


def test_the_simple_walk_is_refused_for_new_clusters(tmp_path: Path) -> None:
    """Unless it is allowed by name; without a word the walk does not turn back. A cluster of before goes on."""
    assert set_up_cluster(ClusterSettings(graph="rrg:6:3:seed=2")).scenario.scheme.walk.kind == "non-backtracking"
    with pytest.raises(InvalidParameterError, match="walk = 'simple': must be non-backtracking or least-recent"):
        set_up_cluster(ClusterSettings(graph="rrg:6:3:seed=2", walk="simple"))
    allowed = set_up_cluster(ClusterSettings(graph="rrg:6:3:seed=2", walk="simple", allow_sandwich=True))
    configs = prepare_or_resume(allowed, tmp_path / "c")
    kept = tmp_path / "c" / "cluster.json"
    before = json.loads(kept.read_text())
    del before["allow_sandwich"]
    kept.write_text(json.dumps(before | {"walk": None}))
    assert prepare_or_resume(allowed, tmp_path / "c") == configs
    with pytest.raises(ConfigError, match="holds a cluster with walk = simple, not None"):
        prepare_or_resume(set_up_cluster(ClusterSettings(graph="rrg:6:3:seed=2")), tmp_path / "c")
