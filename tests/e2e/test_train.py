"""Training as a newcomer runs it, and as an operator kills it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.cli import without_compiling

VEILWALK = Path(sys.executable).parent / "veilwalk"
# Slow enough to be killed while it trains; momentum, so that nodes keep something that must not be lost.
LEARNER = """
import time
from veilwalk.learning import SoftmaxLearner

class Slow:
    def __init__(self, *, n_features, n_classes):
        self.inner = SoftmaxLearner(n_features=n_features, n_classes=n_classes, momentum=0.5, batch_size=8)
    def init_params(self, rng):
        return self.inner.init_params(rng)
    def update(self, params, data, ctx):
        time.sleep(0.002)
        return self.inner.update(params, data, ctx)
    def evaluate(self, params, data):
        return self.inner.evaluate(params, data)
"""
ASKED = [
    "--graph", "rrg:30:3:seed=1", "--support", "2:3", "--updates", "240", "--attack", "4", "--walks", "2",
    "--compare", "gossip",
]  # fmt: skip


def command(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [VEILWALK, "train", "--learner", "slow:Slow", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(folder: Path, name: str, *arguments: str) -> None:
    process = command(folder, "--out", name, *arguments)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "private-walk" in out


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "slow.py").write_text(LEARNER)
    finished(folder, "run", *ASKED)
    return folder / "run"


@pytest.mark.parametrize("try_", range(2))
def test_a_run_killed_again_and_again_ends_with_the_same_bits(whole: Path, tmp_path: Path, try_: int) -> None:
    """kill -9 at random moments, resume each time: parameters, record and table are those of the whole run."""
    (tmp_path / "slow.py").write_text(LEARNER)
    moments = random.Random(try_)  # noqa: S311
    killed_at = []
    arguments = list(ASKED)
    for _ in range(3):
        process = command(tmp_path, "--out", "run", *arguments)
        # Counted from the first thing written, so that a slow machine is killed in the same places.
        deadline = time.monotonic() + 60
        while not (tmp_path / "run" / "run.json").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(moments.uniform(0.0, 1.6))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        if process.returncode == -signal.SIGKILL:
            killed_at.append(sorted(path.name for path in (tmp_path / "run").rglob("*.npz")))
        arguments = ["--resume", *ASKED]
    assert killed_at
    finished(tmp_path, "run", *arguments)
    for name in ("record.json", "metrics.csv", "report.html"):
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes(), name
    for path in (whole / "checkpoints").iterdir():
        with np.load(path) as expected, np.load(tmp_path / "run" / "checkpoints" / path.name) as found:
            assert set(found.files) == set(expected.files)
            for name in expected.files:
                assert found[name].tobytes() == expected[name].tobytes(), f"{path.name}: {name}"
    assert not list((tmp_path / "run").rglob(".*")), "a killed writer's draft was left behind"


def test_interrupting_says_how_to_go_on(tmp_path: Path) -> None:
    """Ctrl-C: exit code 130, one hint, and the hint works."""
    (tmp_path / "slow.py").write_text(LEARNER)
    process = command(tmp_path, "--out", "run", *ASKED)
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "checkpoints").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "veilwalk train --resume --out run goes on from the last checkpoint" in err
    finished(tmp_path, "run", "--resume")


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path) -> None:
    """The second: one line, exit code 4, nothing touched. The first killed, the folder is free at once."""
    (tmp_path / "slow.py").write_text(LEARNER)
    first = command(tmp_path, "--out", "run", *ASKED)
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "checkpoints").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    # Stopped, it holds the folder for as long as the second takes to find out.
    first.send_signal(signal.SIGSTOP)
    second = command(tmp_path, "--out", "run", "--resume")
    out, err = second.communicate(timeout=60)
    assert (second.returncode, out) == (4, "")
    busy = "veilwalk: run: another process trains in this folder: wait for it, or choose another\n"
    assert without_compiling(err) == busy
    first.kill()
    first.communicate()
    finished(tmp_path, "run", "--resume")


def test_a_full_disk_loses_nothing(whole: Path, tmp_path: Path) -> None:
    """Files limited to a size that checkpoints do not fit: one line, exit code 4; with room again, the same bits."""
    (tmp_path / "slow.py").write_text(LEARNER)
    # The limit of the system itself, in blocks of 1024 bytes: writing more fails as on a full disk.
    limited = f"ulimit -f 24; trap '' XFSZ; exec {VEILWALK} train --learner slow:Slow --out run {' '.join(ASKED)}"
    shown = subprocess.run(
        ["bash", "-c", limited], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert shown.returncode == 4, shown.stderr
    said = without_compiling(shown.stderr)
    assert said.startswith("veilwalk: cannot write run/")
    assert said.count("\n") == 1
    finished(tmp_path, "run", "--resume")
    assert (tmp_path / "run" / "record.json").read_bytes() == (whole / "record.json").read_bytes()


def test_a_hundred_peers_learn_privately(tmp_path: Path) -> None:
    """The default run with fewer peers: nearly what central training reaches, and no receiver can tell whose it was."""
    asked = ["--graph", "rrg:100:3:seed=1", "--support", "2:5", "--updates", "1500", "--attack", "0", "--json"]
    shown = subprocess.run(
        [VEILWALK, "train", *asked], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
    )
    found = json.loads(shown.stdout)["algorithms"]
    assert found["private-walk"]["accuracy"] > 0.9
    assert found["central"]["accuracy"] - found["private-walk"]["accuracy"] < 0.05
    leak = found["private-walk"]["anonymity"]
    assert leak["kind"].startswith("exact")
    assert leak["prior_node_entropy_nats"] - leak["node_entropy_nats"] < 0.06
    assert leak["hit_ratio"] < 2 * leak["blind_hit_ratio"]
    assert found["plain-walk"]["anonymity"]["hit_ratio"] == 1.0
