"""A dry start says of everything whether it would do, and starts nothing; a drained node holds nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.cli import Cli

from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError, VeilwalkError
from veilwalk.core.findings import Finding
from veilwalk.design import choose_scheme
from veilwalk.graphs import parse_graph_spec
from veilwalk.node import load_config, node_status
from veilwalk.node.cluster import _check, check_node, prepare_or_resume, set_up_cluster
from veilwalk.node.members import Manifest, load_root_key
from veilwalk.node.peer import drain_node, is_running
from veilwalk.node.peer._assemble import assemble, read_partition
from veilwalk.training import CLUSTER


@pytest.fixture
def configs(tmp_path: Path) -> list[Path]:
    """A cluster that is prepared and does not run."""
    setup = set_up_cluster(CLUSTER.defaults.change(graph="rrg:6:3:seed=1", suite="x25519", updates=100_000))
    return prepare_or_resume(setup, tmp_path / "c")


def looked(config: Path, *, peers: bool = False) -> dict[str, tuple[bool, str]]:
    """What was found of each part, without what takes a trial: whether it is well, and how it is."""
    return {found.name: (found.state == "ok", found.what) for found in check_node(config, peers=peers, whole=False)}


def start(config: Path) -> subprocess.Popen[bytes]:
    with (config.parent / "log.jsonl").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "veilwalk.node", str(config)],
            stderr=log,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )


@contextmanager
def running(*configs: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Nodes as processes; up when this is entered, stopped when it is left."""
    processes = [start(config) for config in configs]
    try:
        end = time.monotonic() + 60
        while not all(b'"started"' in (config.parent / "log.jsonl").read_bytes() for config in configs):
            assert time.monotonic() < end
            time.sleep(0.05)
        yield processes
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def test_all_is_well_and_nothing_was_started(configs: list[Path], run: Cli) -> None:
    code, out, err = run(["node", "check", str(configs[0]), "--no-peers"])
    assert (code, err) == (0, "")
    states = {line[7:].partition(":")[0]: line[:7].strip() for line in out.splitlines()}
    names = {"keys", "roster and manifest", "data", "law", "disk", "clock", "port", "files", "state", "dwell"}
    assert {name for name, state in states.items() if state == "ok"} >= names - {"dwell"}
    assert names <= states.keys()
    # Six nodes hide nobody: that is told, and nothing fails.
    assert (states["network"], "fails" in states.values()) == ("note", False)
    assert not is_running(load_config(configs[0]).state)
    assert not (load_config(configs[0]).state / "spool.db").exists()


BAD_DATA = {
    "columns": (np.zeros((5, 10), np.float32), np.zeros(5, np.int64), "10"),
    "a label out of range": (np.zeros((5, 64), np.float32), np.full(5, 12), "12"),
    "not a number": (np.full((5, 64), np.nan, np.float32), np.zeros(5, np.int64), "finite"),
    "labels missing": (np.zeros((5, 64), np.float32), np.zeros(4, np.int64), "4"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_finding_b4_bad_data_are_refused_at_start(case: str, configs: list[Path], run: Cli) -> None:
    """By the check and by the start itself, in one line that names the file; not when the model is in its hands."""
    features, labels, word = BAD_DATA[case]
    data = load_config(configs[1]).data
    np.savez(data, features=features, labels=labels)
    ok, what = looked(configs[1])["data"]
    assert not ok
    assert str(data) in what
    assert word in what
    with pytest.raises(VeilwalkError) as refused:
        assemble(load_config(configs[1]))
    assert str(refused.value) == what
    code, out, _ = run(["node", "check", str(configs[1]), "--no-peers", "--json"])
    assert (code, json.loads(out)["ok"]) == (1, False)


def test_each_fault_is_said_of_its_part(configs: list[Path]) -> None:
    """Loose modes, a port in use, a forged roster, a missing file: the others are looked at all the same."""
    config = load_config(configs[2])
    config.data.chmod(0o644)
    assert "chmod 600" in looked(configs[2])["files"][1]
    config.data.chmod(0o600)
    config.keys.chmod(0o755)
    found = looked(configs[2])
    assert not found["keys"][0]
    assert found["data"][0]
    config.keys.chmod(0o700)
    what = looked(configs[2])["port"][1]
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", int(what.partition(":")[2].split()[0])))
        taken.listen()
        ok, what = looked(configs[2])["port"]
    assert (ok, "in use" in what) == (False, True)
    signature = config.roster.with_name("roster.json.sig")
    kept = signature.read_bytes()
    signature.write_bytes(bytes(len(kept)))
    assert not looked(configs[2])["roster and manifest"][0]
    signature.write_bytes(kept)
    assert [name for name, (ok, _) in looked(configs[2]).items() if not ok] == []
    configs[2].write_text(configs[2].read_text().replace("data.npz", "none.npz"))
    assert {name for name, (ok, _) in looked(configs[2]).items() if not ok} == {"data", "files"}


def test_what_lies_in_the_wrong_place_is_named(configs: list[Path]) -> None:
    """A roster where the manifest should be, a state that cannot be made, one port for two things: no traceback."""
    text, config = configs[3].read_text(), load_config(configs[3])
    for named in ("manifest", "roster"):
        other = {"manifest": config.roster, "roster": config.manifest}[named]
        changed = "\n".join(
            f'{named} = "{other}"' if line.startswith(f"{named} =") else line for line in text.splitlines()
        )
        configs[3].write_text(changed)
        assert f"{other.name}: a {other.stem}, not a {named}" in looked(configs[3])["roster and manifest"][1]
    configs[3].write_text(text.replace('state = "', 'state = "/proc/'))
    found = looked(configs[3])
    assert (found["state"][0], found["disk"][0]) == (False, False)
    assert found["disk"][1].endswith(": No such file or directory")
    configs[3].write_text(text)
    own = looked(configs[3])["port"][1].split()[0]
    configs[3].write_text(f'metrics = "{own}"\n' + text)
    said = [finding for finding in check_node(configs[3], peers=False, whole=False) if finding.state == "fails"]
    assert [(finding.name, finding.what) for finding in said] == [
        ("metrics", f"{own} is the address that neighbours call")
    ]


def test_the_state_of_another_member_is_refused(configs: list[Path]) -> None:
    """As by a copy of its settings in which only the keys were changed; the one whose it is goes on with it."""
    assemble(load_config(configs[0])).disk.close()
    configs[1].write_text(configs[1].read_text().replace('state = "state"', 'state = "../n0/state"'))
    with pytest.raises(ConfigError, match=r"is n0's, the keys are n1's: each needs a folder of its own") as refused:
        assemble(load_config(configs[1]))
    assert looked(configs[1])["own entry"] == (False, str(refused.value))
    assemble(load_config(configs[0])).disk.close()


def test_neighbours_are_reached_or_named(configs: list[Path]) -> None:
    """By a handshake: one that runs answers, the others do not; the one that runs is not disturbed by a check."""
    with running(configs[0]) as (process,):
        near = [name for name in looked(configs[0], peers=True) if name.startswith("neighbour")]
        assert len(near) == 3
        other = configs[int(near[0][-1])]
        found = looked(other, peers=True)
        assert found["neighbour n0"] == (True, found["neighbour n0"][1])
        assert "answers" in found["neighbour n0"][1]
        assert [ok for name, (ok, _) in found.items() if name.startswith("neighbour")].count(False) == 2
        own = looked(configs[0])
        assert own["state"] == (True, "a node runs with it")
        assert own["port"][0]
        assert process.poll() is None


def test_a_node_that_drains_hands_on_what_it_holds_and_stops(configs: list[Path], run: Cli) -> None:
    """Nothing waits on it then; the others go on, and it goes on with them when it is started again."""
    assert run(["node", "drain", str(configs[0])])[1] == "no node runs with this configuration\n"
    with running(*configs) as processes:
        state = load_config(configs[0]).state
        end = time.monotonic() + 60
        while node_status(state).tallies.get("hops", 0) < 20:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert drain_node(state, timeout_s=60, tell=lambda _: None)
        assert processes[0].wait(20) == 0
        assert node_status(state).in_custody == 0
        before = sum(node_status(load_config(config).state).tallies.get("hops", 0) for config in configs[1:])
        with running(configs[0]):
            taken = node_status(state).tallies["taken"]
            while node_status(state).tallies["taken"] == taken:
                assert time.monotonic() < end
                time.sleep(0.05)
        assert sum(node_status(load_config(config).state).tallies["hops"] for config in configs[1:]) > before


@pytest.mark.parametrize("what", ["text", "array", "number"])
def test_data_that_are_no_table_are_named_and_not_the_learner(tmp_path: Path, what: str) -> None:
    """And nobody is told to read pickles, as NumPy would."""
    path = tmp_path / "data.npz"
    with path.open("wb") as stream:
        if what == "text":
            stream.write(b"age,weight\n")
        elif what == "array":
            np.save(stream, np.zeros((3, 64)))
        else:
            np.savez(stream, features=np.float32(1), labels=np.int64(1))
    none, other = "no rows of features, no labels", "not an .npz of features and labels (File is not a zip file)"
    with pytest.raises(InputFileError) as refused:
        read_partition(path)
    assert str(refused.value) == f"data {path}: {none if what == 'number' else other}"


def find_all(config: Path) -> dict[str, Finding]:
    """Every finding, also of the run as a whole."""
    return {finding.name: finding for finding in check_node(config, peers=False)}


def test_finding_9_members_that_never_train_are_named(tmp_path: Path, run: Cli) -> None:
    """K as large as the law allows: the others seal only for each other, and n2, n5, n6, n7 made 0 of 60 updates."""
    scheme = choose_scheme(parse_graph_spec("rrg:8:3:seed=1"), "far:2", walk="non-backtracking", recipients=4)
    # Two sets of four that nobody leaves: whichever the walk comes to, the other four never train.
    idle = tuple(str(node) for node in scheme.idle_nodes)
    assert idle in {("2", "5", "6", "7"), ("0", "1", "3", "4")}
    assert not replace(scheme, recipients=2).idle_nodes.size
    spec = CLUSTER.defaults.change(graph="rrg:8:3:seed=1", law="far:2", recipients=4)
    with pytest.raises(InvalidParameterError, match=rf"^recipients = 4: .*{', '.join(idle)} may never train"):
        set_up_cluster(spec)
    # Members that come and go make it so under a manifest that was good: every one of them can see it.
    config, *_ = prepare_or_resume(set_up_cluster(spec.change(recipients=2, suite="x25519")), tmp_path / "c")
    assert find_all(config)["network"].state == "note"
    root = load_root_key(tmp_path / "c" / "root")
    manifest = Manifest.read_signed(tmp_path / "c" / "manifest.json", root.public_key())
    replace(manifest, spec=manifest.spec.change(recipients=4)).sign(tmp_path / "c" / "manifest.json", root)
    network = find_all(config)["network"]
    names = ", ".join(f"n{name}" for name in idle)
    assert (network.state, f"{names} never train" in network.what) == ("fails", True)
    # And the keeper, who does not sign such a roster.
    words = ["roster", "sign", str(tmp_path / "c" / "roster.json"), "--root", str(tmp_path / "c" / "root")]
    code, _, err = run([*words, "--manifest", str(tmp_path / "c" / "manifest.json")])
    assert (code, f"{names} never train" in err) == (2, True)


def test_a_node_says_when_its_network_hides_nobody_and_when_its_machine_is_too_slow(
    configs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything starts; the keeper learns from each member which dwell it needs."""
    found = find_all(configs[0])
    assert found["network"].state == "note"
    assert "too few to hide anybody" in found["network"].what
    assert "this machine needs" in found["dwell"].what
    monkeypatch.setattr(_check, "measured_dwell", lambda *_, **__: 3.5)
    dwell = find_all(configs[0])["dwell"]
    assert (dwell.state, dwell.cure) == ("note", "tell the keeper (--dwell 3.5)")
    (configs[1].parent.parent / "roster.json").unlink()
    assert not {"network", "dwell"} & find_all(configs[1]).keys()
