"""Two runs on each of three nodes, as processes: one port, one key set and one roster, and two finished models."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from tests.helpers.cli import Cli
from tests.helpers.runs import LEARNERS, nodes, start, two_runs, wait_for

from veilwalk.core.errors import SpoolError
from veilwalk.node import NodeStatus, load_config, node_status
from veilwalk.node.peer import is_running

UPDATES = 60


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def looks(configs: list[Path], name: str) -> list[NodeStatus]:
    found = []
    for config in configs:
        try:
            found.append(node_status(load_config(config, name).state, with_models=True))
        except SpoolError:
            continue
    return found


def updates_of(configs: list[Path], name: str) -> int:
    return sum(look.tallies.get("updates", 0) for look in looks(configs, name))


def finished(configs: list[Path], name: str) -> bool:
    found = looks(configs, name)
    return len(found) == len(configs) and all(look.finished and not look.in_custody for look in found)


def events(config: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (config.parent / "log.jsonl").read_text().splitlines()]


def test_two_runs_end_with_all_their_updates_though_a_node_is_killed(tmp_path: Path, run: Cli) -> None:
    """Each update once in each run; the models differ; logs name the run; every verb is told which run it is about."""
    configs = two_runs(tmp_path / "c", updates=UPDATES, retry_s=0.2)
    with nodes(configs) as processes:
        wait_for(lambda: all(updates_of(configs, name) > 0 for name in LEARNERS))
        processes[1].send_signal(signal.SIGKILL)
        processes[1].wait(30)
        assert not is_running(load_config(configs[1], "wide").state)
        processes[1] = start(configs[1])
        wait_for(lambda: all(finished(configs, name) for name in LEARNERS), 90)
        code, _, err = run(["node", "status", "--config", str(configs[0])])
        assert (code, err) == (2, f"veilwalk: {configs[0]} has several runs: run must be one of small, wide\n")
        assert run.json(["node", "status", "--config", str(configs[0]), "--run", "wide"])["finished"]
        # One run leaves; the other, and the node, go on.
        assert run(["node", "drain", str(configs[0]), "--run", "wide"])[1].startswith("drained and stopped")
        assert not is_running(load_config(configs[0], "wide").state)
        assert is_running(load_config(configs[0], "small").state)
        assert run(["node", "unfinish", "--config", str(configs[0]), "--run", "wide"])[0] == 0
        processes[0].send_signal(signal.SIGHUP)
        wait_for(lambda: is_running(load_config(configs[0], "wide").state))
        assert processes[0].poll() is None
        # Without a name all of them leave, and the node with them.
        assert run(["node", "drain", str(configs[2])])[1].startswith("drained and stopped")
        assert processes[2].wait(30) == 0
    for name in LEARNERS:
        assert updates_of(configs, name) == UPDATES
        assert len({look.models for look in looks(configs[1:], name)}) == 1
    (small,), (wide,) = ({len(look.models[0]) for look in looks(configs[1:], name)} for name in LEARNERS)
    assert small != wide
    assert {line["run"] for line in events(configs[0]) if line["event"] in {"started", "link_up"}} == set(LEARNERS)
    for name in LEARNERS:
        assert run(["export", str(configs[1]), "--run", name, "--to", str(tmp_path / f"{name}.npz")])[0] == 0
    assert run(["export", str(configs[1]), "--to", str(tmp_path / "x.npz")])[0] == 2


def test_a_run_whose_state_is_broken_is_refused_alone(tmp_path: Path) -> None:
    """One line says so and /healthz too; the other run ends as ever, and the broken one starts once it is mended."""
    configs = two_runs(tmp_path / "c", updates=20, retry_s=0.2)
    broken = load_config(configs[2], "wide").state
    broken.write_text("not a folder")
    with nodes(configs) as processes:
        wait_for(lambda: finished(configs, "small"), 90)
        assert processes[2].poll() is None
        (refused,) = [line for line in events(configs[2]) if line["event"] == "run_down"]
        assert refused["run"] == "wide"
        assert str(broken) in refused["why"]
        broken.unlink()
        processes[2].send_signal(signal.SIGHUP)
        wait_for(lambda: finished(configs, "wide"), 90)
    assert updates_of(configs, "wide") == 20


def test_a_node_none_of_whose_runs_can_start_ends_with_one_line(tmp_path: Path) -> None:
    configs = two_runs(tmp_path / "c", updates=20)
    for name in LEARNERS:
        load_config(configs[0], name).state.write_text("not a folder")
    process = start(configs[0])
    assert process.wait(60) == SpoolError.exit_code
    (line,) = [line for line in (configs[0].parent / "log.jsonl").read_text().splitlines() if "veilwalk:" in line]
    assert "state-small" in line
