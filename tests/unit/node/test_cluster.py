"""A cluster on one machine, without running it."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.campaigns.chaos_plan import tally_plan
from tests.helpers.rosters import sign_file

from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError, ProtocolError, SpoolError
from veilwalk.core.files import lock_file
from veilwalk.graphs import parse_graph_spec
from veilwalk.node import load_config
from veilwalk.node.cluster import (
    SETTINGS,
    Cluster,
    ClusterStatus,
    cluster_record,
    manifest_in,
    node_ids,
    prepare_cluster,
    prepare_or_resume,
    read_cluster_spec,
    run_cluster,
    set_up_cluster,
    stop_cluster,
)
from veilwalk.node.members import Manifest, Roster, load_root_key, load_root_public_key
from veilwalk.node.peer import is_running
from veilwalk.node.peer._assemble import assemble
from veilwalk.node.spool import FolderDisk, Spool
from veilwalk.training import CLUSTER


def test_a_record_needs_a_finished_model(tmp_path: Path) -> None:
    """What is missing is on a disk: neither the graph nor a peer is to blame."""
    setup = set_up_cluster(CLUSTER.defaults.change(graph="rrg:6:3:seed=2", updates=5))
    first, *_ = prepare_or_resume(setup, tmp_path / "c")
    Spool(FolderDisk(load_config(first).state)).close()
    with pytest.raises(SpoolError, match="no node has a finished model"):
        cluster_record(setup, tmp_path / "c", ClusterStatus(nodes=(), alive=0), seconds=1.0)


def test_the_simple_walk_is_refused_for_new_clusters(tmp_path: Path) -> None:
    """Unless it is allowed by name; without a word the walk does not turn back."""
    assert (
        set_up_cluster(CLUSTER.defaults.change(graph="rrg:6:3:seed=2")).scenario.scheme.walk.kind == "non-backtracking"
    )
    with pytest.raises(InvalidParameterError, match="walk = 'simple': must be non-backtracking"):
        set_up_cluster(CLUSTER.defaults.change(graph="rrg:6:3:seed=2", walk="simple"))
    allowed = set_up_cluster(CLUSTER.defaults.change(graph="rrg:6:3:seed=2", walk="simple", allow_sandwich=True))
    configs = prepare_or_resume(allowed, tmp_path / "c")
    assert prepare_or_resume(allowed, tmp_path / "c") == configs
    with pytest.raises(ConfigError, match="holds a cluster with walk = simple, not None"):
        prepare_or_resume(set_up_cluster(CLUSTER.defaults.change(graph="rrg:6:3:seed=2")), tmp_path / "c")


def test_a_cluster_that_is_there_keeps_its_settings(tmp_path: Path) -> None:
    """What is given again must be the same, by any spelling; what is not given is as it was."""
    spec = CLUSTER.defaults.change(graph="rrg:6:3:seed=2", hop=0.5, target_accuracy=0.9)
    assert read_cluster_spec(tmp_path / "c", {}) is None
    prepare_or_resume(set_up_cluster(spec), tmp_path / "c")
    assert read_cluster_spec(tmp_path / "c", {}) == spec
    for same in ({"hop": 0.5}, {"hop_s": 0.5}, {"target-accuracy": 0.9}, {"graph": "rrg:6:3:seed=2"}):
        assert read_cluster_spec(tmp_path / "c", same) == spec
    for other in ({"hop": 0.4}, {"hop_s": 0.4}, {"target-accuracy": 0.8}, {"target_accuracy": 0.8}, {"dwell": 1.0}):
        with pytest.raises(ConfigError, match="holds a cluster with"):
            read_cluster_spec(tmp_path / "c", other)
    with pytest.raises(InvalidParameterError, match="poison"):
        read_cluster_spec(tmp_path / "c", {"poison": "nan"})


def test_a_cluster_seals_for_as_many_as_it_is_told(tmp_path: Path) -> None:
    """The manifest says for how many; more than anybody may choose from, or than a frame has room for, is refused."""
    graph = "rrg:10:3:seed=2"
    # Hops that take long: else the least time that a member may be away hides the difference.
    setup = set_up_cluster(CLUSTER.defaults.change(graph=graph, law="far:2", recipients=4, hop=1.0))
    prepare_or_resume(setup, tmp_path / "c")
    manifest = Manifest.load(
        tmp_path / "c" / "manifest.json", load_root_public_key(tmp_path / "c" / "root" / "root.pub")
    )
    assert manifest.recipients == 4
    one = set_up_cluster(CLUSTER.defaults.change(graph=graph, law="far:2", recipients=1, hop=1.0)).plan().figures
    assert setup.plan().figures.starve_hops < one.starve_hops
    with pytest.raises(InvalidParameterError, match="recipients = 7: must be at most 6: node 0 has no more"):
        set_up_cluster(CLUSTER.defaults.change(graph=graph, law="far:2", recipients=7))
    for bad in (0, 70_000):
        with pytest.raises(InvalidParameterError, match=f"recipients = {bad}: must be"):
            set_up_cluster(CLUSTER.defaults.change(graph=graph, recipients=bad))


def test_a_cluster_of_the_format_before_is_refused_in_one_line(tmp_path: Path) -> None:
    setup = set_up_cluster(CLUSTER.defaults.change(graph="rrg:6:3:seed=2"))
    prepare_or_resume(setup, tmp_path / "c")
    path = tmp_path / "c" / "manifest.json"
    before = path.read_bytes().replace(b"manifest-3", b"manifest-2")
    sign_file(path, "manifest", before, load_root_key(tmp_path / "c" / "root"))
    with pytest.raises(InputFileError, match="veilwalk-manifest-2 is of an older version"):
        prepare_or_resume(setup, tmp_path / "c")


def test_a_cluster_is_stopped_whatever_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun by a short path and ended by a long one; what cannot be stopped is not said to be."""
    folder = tmp_path / "c"
    prepare_cluster(folder, tally_plan(parse_graph_spec("ring:4"), updates=20))
    (folder / SETTINGS).write_text("{}")
    # The learner of the plan is no part of the package.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path.cwd()), *sys.path]))
    monkeypatch.chdir(tmp_path)
    state = folder / "n0" / "state"
    with Cluster([Path("c/n0/node.toml")]):
        end = time.monotonic() + 30
        while not is_running(state):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert stop_cluster(folder) == 1
        assert not is_running(state)
    handle = lock_file(state / "lock")
    with pytest.raises(ProtocolError, match="n0 still run: somebody else started them"):
        stop_cluster(folder)
    os.close(handle)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_stops_the_nodes_as_a_stop_does(tmp_path: Path, number: signal.Signals) -> None:
    """They have sessions of their own: left alone they would run on, with nobody to start them again."""
    configs = prepare_cluster(tmp_path / "c", tally_plan(parse_graph_spec("ring:5"), updates=10**6, late=1e9))
    # These tests may run under nohup themselves.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_cluster(configs, lambda _: os.kill(os.getpid(), number), timeout_s=20)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert not any(is_running(load_config(path).state) for path in configs)


def test_an_interrupt_between_two_starts_leaves_no_node_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is interrupted while it starts them stops those that it has started."""
    configs = prepare_cluster(tmp_path / "c", tally_plan(parse_graph_spec("ring:5"), updates=10**6, late=1e9))
    launch = Cluster._launch
    started: list[subprocess.Popen[bytes]] = []

    def first_only(self: Cluster, config: Path) -> subprocess.Popen[bytes]:
        if started:
            raise KeyboardInterrupt
        started.append(launch(self, config))
        return started[0]

    monkeypatch.setattr(Cluster, "_launch", first_only)
    with pytest.raises(KeyboardInterrupt), Cluster(configs):
        pass
    assert started[0].poll() is not None


def test_a_cluster_on_a_secret_overlay_is_dealt(tmp_path: Path) -> None:
    """Its links are sealed, its keys last twice as long as the run, and its nodes seal for all but their neighbours."""
    spec = CLUSTER.defaults.change(graph="overlay:8:3:seed=1", updates=600, suite="x25519", dwell_s=0.1)
    setup = set_up_cluster(spec)
    configs = prepare_or_resume(setup, tmp_path)
    roster, manifest = Roster.read_draft(tmp_path / "roster.json"), manifest_in(tmp_path)
    scheme = setup.scenario.scheme
    assert manifest.law == "far:2"
    assert roster.period_s == math.ceil(scheme.key_period * manifest.figures.hops_per_update * 0.1)
    assert len(roster.key_epochs) == 2 + 2 * 600 // scheme.key_period
    for index, path in enumerate(configs):
        membership = assemble(load_config(path)).membership
        near = [node_ids(8)[other] for other in scheme.graph.neighbours(index)]
        assert list(membership.roster.neighbours(node_ids(8)[index])) == sorted(near)
        assert len(membership.roster.foreign_keys(0)) == 4
