"""``veilwalk cluster up`` and ``veilwalk node``: real commands, real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from veilwalk.core.arrays import FloatArray
from veilwalk.core.records import read_lines
from veilwalk.graphs import distances, parse_graph_spec
from veilwalk.node import load_config, node_status
from veilwalk.node.cluster import TRAIL
from veilwalk.node.members import Manifest, load_root_key
from veilwalk.node.members._roster import Roster
from veilwalk.watch import open_source

COMMAND = [sys.executable, "-c", "from veilwalk.cli import main; main()"]
UPDATES = 240
UP = ["cluster", "up", "--graph", "rrg:6:3:seed=2", "--updates", str(UPDATES), "--seed", "2", "--dwell", "0"]
# A right cluster fails once in fifty thousand runs.
TAIL = 1e-5


def veilwalk(*arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=timeout, check=False, env=quick()
    )


def quick() -> dict[str, str]:
    return os.environ | {"OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """A cluster that was interrupted once, came up again, and finished."""
    out = tmp_path_factory.mktemp("cluster") / "c"
    first = subprocess.Popen(
        [*COMMAND, *UP, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=quick()
    )
    end = time.monotonic() + 90
    while time.monotonic() < end and not _trained(out):
        time.sleep(0.1)
    first.send_signal(signal.SIGINT)
    _, complaint = first.communicate(timeout=60)
    assert first.returncode == 130, complaint
    assert "Traceback" not in complaint
    assert f"veilwalk cluster up --out {out} goes on" in complaint
    assert not _running(out)
    assert 0 < _trained(out) < UPDATES
    # The folder knows its settings.
    second = veilwalk("cluster", "up", "--out", str(out), "--json")
    assert second.returncode == 0, second.stderr
    return out, json.loads(second.stdout)


def _trained(out: Path) -> int:
    found = 0
    for config in out.glob("*/node.toml"):
        try:
            found += node_status(load_config(config).state).tallies.get("updates", 0)
        except OSError:
            continue
    return found


def _running(out: Path) -> set[bytes]:
    """Settings of the cluster's nodes that a process runs with: a node, or the one that trains for it."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"veilwalk.node" in words:
            found |= {word for word in words if str(out).encode() in word}
    return found


def hops_of_the_cluster(*, returns: bool) -> tuple[FloatArray, FloatArray]:
    """One hop of the cluster's token, exactly, as matrices: without an update, and with one.

    States are where it came from, where it is and whom it is for; ``returns``: a walk may turn back. Destinations
    are the two nodes at distance 2, drawn alike.
    """
    graph = parse_graph_spec("rrg:6:3:seed=2")
    goals = {node: np.flatnonzero(row == 2).tolist() for node, row in enumerate(distances(graph))}
    states = [
        (int(before), node, goal)
        for node in range(graph.n_nodes)
        for before in graph.neighbours(node)
        for goal in range(graph.n_nodes)
        if goal != node
    ]
    number = {state: place for place, state in enumerate(states)}
    on, update = np.zeros((len(states), len(states))), np.zeros((len(states), len(states)))
    for (before, node, goal), place in number.items():
        options = [int(other) for other in graph.neighbours(node) if returns or other != before]
        for other in options:
            if other != goal:
                on[place, number[node, other, goal]] += 1 / len(options)
            for chosen in goals[other] if other == goal else []:
                update[place, number[node, other, chosen]] += 1 / len(options) / len(goals[other])
    return on, update


def hops_per_update(on: FloatArray, update: FloatArray) -> float:
    """Mean hops between two updates in the long run."""
    share = np.full(len(on), 1 / len(on))
    for _ in range(4000):
        share = share @ (on + update)
    return float(1 / (share @ update).sum())


def hops_of_all(on: FloatArray, update: FloatArray) -> tuple[int, int]:
    """Between which numbers the hops of all updates are, but for ``TAIL`` on either side, wherever the token begins."""
    waiting = np.zeros((UPDATES, len(on)))
    waiting[0] = 1 / len(on)
    done: list[float] = []
    while sum(done) < 1 - TAIL / 10:
        arrived = waiting @ update
        waiting = waiting @ on
        waiting[1:] += arrived[:-1]
        done.append(float(arrived[-1].sum()))
    total = np.cumsum([0.0, *done])
    return int(np.searchsorted(total, TAIL)), int(np.searchsorted(total, 1 - TAIL))


def test_a_cluster_trains_and_says_how_it_compares(cluster: tuple[Path, dict[str, object]]) -> None:
    """Interrupted and resumed: all updates once, as many hops as the walk's law allows, and it has learnt something.

    The mutant is a cluster that plays the simple walk, of half as much again: what it would give lies elsewhere.
    """
    out, result = cluster
    assert result["updates"] == UPDATES
    assert float(str(result["accuracy"])) > 0.6
    hop = hops_of_the_cluster(returns=False)
    assert result["hops_per_update_predicted"] == pytest.approx(hops_per_update(*hop))
    low, high = hops_of_all(*hop)
    assert low <= int(str(result["hops"])) <= high
    least_of_the_mutant, _ = hops_of_all(*hops_of_the_cluster(returns=True))
    assert least_of_the_mutant > high
    assert json.loads((out / "result.json").read_text())["updates"] == UPDATES
    assert not _running(out)
    # What was made while nobody looked, around the interruption, is not in the trail.
    lines, _ = read_lines(out / TRAIL)
    assert 0 < sum(len(line.get("made", [])) for line in lines) <= UPDATES
    assert [line["t"] for line in lines] == sorted(line["t"] for line in lines)
    watched = open_source(out)
    kinds = {one["kind"] for one in watched.read_news()}
    assert kinds == {"about", "network", "deliveries", "points", "price", "event", "state"}
    assert watched.finished


def test_another_cluster_in_the_same_folder_is_refused(cluster: tuple[Path, dict[str, object]], tmp_path: Path) -> None:
    out, _ = cluster
    refused = veilwalk(*UP[:-1], "3", "--out", str(out))
    assert refused.returncode == 2
    assert "holds a cluster with" in refused.stderr
    (tmp_path / "file").write_text("something else")
    refused = veilwalk(*UP, "--out", str(tmp_path))
    assert refused.returncode == 2
    assert "not empty" in refused.stderr


def test_a_cluster_is_looked_at_and_stopped_from_another_terminal(tmp_path: Path) -> None:
    """status, down: the same for nodes whose cluster up was killed, and for one that runs; then it goes on."""
    here = tmp_path / "c"
    command = ["cluster", "up", "--nodes", "6", "--degree", "3", "--updates", "100000", "--suite", "x25519"]
    command += ["--law", "uniform-node", "--out", str(here)]
    first = subprocess.Popen([*COMMAND, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=quick())
    _wait(lambda: _trained(here) > 0)
    again = veilwalk(*command)
    assert (again.returncode, "runs there already" in again.stderr) == (2, True)
    first.kill()
    first.wait()
    assert len(_running(here)) == 6
    again = veilwalk(*command)
    assert (again.returncode, "cluster down --out" in again.stderr) == (2, True)
    found = json.loads(veilwalk("cluster", "status", "--out", str(here), "--json").stdout)
    assert (found["running"], found["finished"], found["nodes"]["n0"]["running"]) == (6, 0, True)
    assert (here / "n1" / "log.jsonl").read_text().startswith('{"event"')
    stopped = veilwalk("cluster", "down", "--out", str(here))
    assert (stopped.returncode, stopped.stdout.split()[0]) == (0, "6"), stopped.stderr
    assert not _running(here)
    made = _trained(here)
    second = subprocess.Popen(
        [*COMMAND, "cluster", "up", "--out", str(here)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=quick()
    )
    _wait(lambda: _trained(here) > made)
    assert veilwalk("cluster", "down", "--out", str(here)).returncode == 0
    assert second.wait(30) == 130
    assert not _running(here)
    second.communicate()


def _wait(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 90
    while not done():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_status_shows_the_finished_model(cluster: tuple[Path, dict[str, object]]) -> None:
    out, _ = cluster
    shown = veilwalk("node", "status", "--config", str(out / "n0" / "node.toml"), "--json")
    assert shown.returncode == 0
    status = json.loads(shown.stdout)
    assert status["finished"]
    assert status["iteration"] == UPDATES
    assert json.loads(veilwalk("cluster", "status", "--out", str(out), "--json").stdout)["finished"] == 6
    assert veilwalk("export", str(out), "--to", str(out / "model.npz")).returncode == 0
    table = veilwalk("node", "status", "--config", str(out / "n0" / "node.toml"))
    assert "finished" in table.stdout


def test_nodes_say_what_is_wrong_in_one_line(cluster: tuple[Path, dict[str, object]], tmp_path: Path) -> None:
    """Each fault is one line with its exit code, never a traceback; the state is as it was."""
    out, _ = cluster
    here = tmp_path / "copy"
    shutil.copytree(out, here)
    config = here / "n1" / "node.toml"
    good = config.read_text()

    def refused(code: int, *words: str) -> None:
        ended = veilwalk("node", "run", "--config", str(config), timeout=30)
        assert ended.returncode == code, ended.stderr
        lines = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
        assert len(lines) == 1, ended.stderr
        for word in words:
            assert word in lines[0]

    member = Roster.read_signed(here / "roster.json", load_root_key(here / "root").public_key()).member("n1")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((member.host, member.port))
        taken.listen()
        refused(3, str(member.port), "in use")
    config.write_text(good.replace("starts", "startz"))
    refused(2, "'startz'")
    config.write_text(good)
    root, manifest = load_root_key(here / "root"), here / "manifest.json"
    first = Manifest.read_signed(manifest, root.public_key())
    first.change(spec=first.spec.change(law=None), law_digest="ab" * 32).sign(manifest, root)
    refused(2, "the manifest names a law in a file: set law to it")
    config.write_text('law = "data.npz"\n' + good)
    refused(2, "law", "the manifest's is abab")
    first.sign(manifest, root)
    config.write_text(good)
    own = here / "n1" / "data.npz"
    kept = own.read_bytes()
    with np.load(own) as archive:
        features, labels = archive["features"], archive["labels"]
    np.savez(own, features=features[:, :10], labels=labels)
    refused(2, "data.npz", "rows have 10 features: need 64")
    np.savez(own, features=features, labels=labels + 12)
    refused(2, "data.npz", "in row 0: need 0 to 9")
    own.write_bytes(kept)
    (here / "n1" / "keys" / "tls.key").chmod(0o644)
    refused(4, "chmod 600")
    (here / "n1" / "keys" / "tls.key").chmod(0o600)
    (here / "roster.json.sig").write_text((here / "manifest.json.sig").read_text())
    refused(3, "not signed by this root key")


def copy_of(cluster: Path, folder: Path) -> tuple[Path, Ed25519PrivateKey, Roster]:
    """Return a copy of a cluster that may be spoilt, its root key and its roster."""
    here = folder / "copy"
    shutil.copytree(cluster, here)
    root = load_root_key(here / "root")
    return here, root, Roster.read_signed(here / "roster.json", root.public_key())


def test_an_expired_roster_is_refused_and_an_older_one_too(
    cluster: tuple[Path, dict[str, object]], tmp_path: Path
) -> None:
    from dataclasses import replace

    here, root, roster = copy_of(cluster[0], tmp_path)
    config = str(here / "n1" / "node.toml")
    later = replace(roster, version=2, prev_digest=roster.digest, expires=int(time.time()) - 5)
    later.sign(here / "roster.json", root)
    ended = veilwalk("node", "run", "--config", config, timeout=30)
    assert ended.returncode == 3
    assert "expired" in ended.stderr
    fork = replace(roster, expires=roster.expires + 1)
    fork.sign(here / "roster.json", root)
    ended = veilwalk("node", "run", "--config", config, timeout=30)
    assert ended.returncode == 3
    assert "the root signed two" in ended.stderr


def test_a_roster_with_a_wrong_key_for_this_node_is_refused_and_mended_by_the_next(
    cluster: tuple[Path, dict[str, object]], tmp_path: Path
) -> None:
    """While running: one event, and on under the one before; at the start: one line. The next version is followed."""
    from dataclasses import replace

    from veilwalk.node.members import new_node_keys

    here, root, roster = copy_of(cluster[0], tmp_path)
    stranger = new_node_keys(tmp_path / "s", node_id="n1", address="127.0.0.1:9", suite=roster.suite).member
    members = tuple(replace(member, kem=stranger.kem) if member.id == "n1" else member for member in roster.members)
    wrong = replace(roster, version=2, prev_digest=roster.digest, members=members)
    mended = replace(roster, version=3, prev_digest=wrong.digest)
    log = tmp_path / "log"
    with log.open("wb") as stream:
        node = subprocess.Popen([*COMMAND, "node", "run", "--config", str(here / "n1" / "node.toml")], stderr=stream)
    try:
        _wait_for(log, '"started"')
        wrong.sign(here / "roster.json", root)
        node.send_signal(signal.SIGHUP)
        _wait_for(log, '"roster_refused"')
        assert "the sealing key of n1" in log.read_text()
        # It has been noted as the root's word: a start under it is refused in one line.
        mended.sign(here / "roster.json", root)
        node.send_signal(signal.SIGHUP)
        _wait_for(log, '"event": "roster", "level": "info", "version": 3')
    finally:
        node.terminate()
        assert node.wait(20) == 0
    shutil.copytree(cluster[0], tmp_path / "other")
    wrong.sign(tmp_path / "other" / "roster.json", root)
    ended = veilwalk("node", "run", "--config", str(tmp_path / "other" / "n1" / "node.toml"), timeout=30)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "the sealing key of n1" in ended.stderr


def _wait_for(log: Path, word: str) -> None:
    end = time.monotonic() + 30
    while word not in log.read_text():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)


def test_a_cluster_stops_when_the_model_is_good_enough(tmp_path: Path) -> None:
    """Well before its budget of updates, by the held-out data as a public test set; every node has that model."""
    out = tmp_path / "c"
    ended = veilwalk(
        *("cluster", "up", "--graph", "rrg:6:3:seed=2", "--updates", "400", "--seed", "2", "--out", str(out)),
        *("--dwell", "0"),
        *("--target-accuracy", "0.7", "--evaluations", "100", "--json"),
    )
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert result["ended_by"] == "target accuracy"
    assert result["updates"] < 200
    assert result["accuracy"] >= 0.7
    states = [node_status(load_config(out / f"n{i}" / "node.toml").state, with_models=True) for i in range(6)]
    assert {(state.finished, state.iteration, state.models) for state in states} == {
        (True, states[0].iteration, states[0].models)
    }
    assert states[0].iteration == result["updates"]
    # The set is the one that was signed for: another is refused.
    config = out / "n1" / "node.toml"
    config.write_text(config.read_text().replace("../test.npz", "data.npz"))
    refused = veilwalk("node", "run", "--config", str(config), timeout=30)
    assert refused.returncode == 2
    assert "test" in refused.stderr
    assert "the manifest's is" in refused.stderr
    config.write_text(config.read_text().replace('test = "data.npz"', ""))
    refused = veilwalk("node", "run", "--config", str(config), timeout=30)
    assert refused.returncode == 2
    assert "set test to its file" in refused.stderr


def test_a_manifest_may_name_a_target_and_its_test_set(cluster: tuple[Path, dict[str, object]], tmp_path: Path) -> None:
    """Only both together; the walk's waiting time says how it was found."""
    out, _ = cluster
    command = [
        *("node", "manifest", "--root", str(out / "root"), "--roster", str(out / "roster.json")),
        *("--law", "far:2", "--features", "64", "--classes", "10", "--updates", "400"),
        *("--target-accuracy", "0.9", "--walk", "non-backtracking", "--out", str(tmp_path / "m.json")),
    ]
    refused = veilwalk(*command)
    assert refused.returncode == 2
    assert "go together" in refused.stderr
    certain = [
        *command[: command.index("--target-accuracy")],
        "--walk",
        "simple",
        "--out",
        str(tmp_path / "simple.json"),
    ]
    refused = veilwalk(*certain)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    assert "a relay next to the maker would know it for certain (--allow-sandwich)" in refused.stderr
    assert veilwalk(*certain, "--allow-sandwich").returncode == 0
    again = veilwalk(*certain, "--allow-sandwich")
    assert (again.returncode, "must be another file: a signed one is there" in again.stderr) == (2, True)
    made = veilwalk(*command, "--test", str(out / "n0" / "data.npz"))
    assert made.returncode == 0, made.stderr
    assert ["target_accuracy", "0.9"] in [line.split() for line in made.stdout.splitlines()]
    assert "exact" in made.stdout
    assert len(json.loads((tmp_path / "m.json").read_text())["test_digest"]) == 64
