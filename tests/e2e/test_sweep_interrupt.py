"""Ctrl-C on a live sweep: one line, the documented code, finished cases kept, the same bytes after going on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FILE = """
kind = "audit"
[settings]
graph = "rrg:20:3:seed=1"
support = "2:3"
observers = "prior,last-hop"
updates = 2000
[grid]
seed = [{seeds}]
"""
CASES = 40


def begun(path: Path, out: Path, engine: str) -> subprocess.Popen[str]:
    """Begin a sweep as a shell would, in a group of processes of its own."""
    command = [sys.executable, "-c", "from veilwalk.cli import main; main()", "sweep", str(path)]
    return subprocess.Popen(
        [*command, "--out", str(out), "--engine", engine],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # Not the cluster of another test that runs here, and ends while this one uses it.
        env=os.environ | {"RAY_ADDRESS": "local"},
    )  # fmt: skip


def kept(out: Path) -> dict[str, tuple[int, bytes]]:
    """When each finished case was written, and what it holds; drafts do not count."""
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in (out / "jobs").glob("[!.]*.npz")}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process makes of the same file, by itself."""
    place = tmp_path_factory.mktemp("undisturbed")
    again = begun(written(place), place / "out", "serial")
    _, complaint = again.communicate(timeout=240)
    assert again.returncode == 0, complaint
    return place / "out"


def written(place: Path) -> Path:
    """The sweep's file."""
    path = place / "seeds.toml"
    path.write_text(FILE.format(seeds=", ".join(map(str, range(CASES)))))
    return path


@pytest.mark.parametrize("engine", ["process:2", "ray"])
def test_an_interrupt_loses_no_finished_case(tmp_path: Path, engine: str, undisturbed: Path) -> None:
    """To the whole group, as a terminal sends it; a second run does the rest."""
    if engine == "ray":
        pytest.importorskip("ray")
    path, out = written(tmp_path), tmp_path / "out"
    process = begun(path, out, engine)
    until = time.monotonic() + 120
    while not kept(out):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until, "no case is done"
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130, complaint
    assert complaint == f"veilwalk: interrupted: finished cases are in {out}: run the same command again to resume\n"
    done = kept(out)
    assert 0 < len(done) < CASES
    assert not (out / "sweep.csv").exists()
    again = begun(path, out, "process:2")
    _, complaint = again.communicate(timeout=240)
    assert again.returncode == 0, complaint
    assert {name: one for name, one in kept(out).items() if name in done} == done
    assert {name: data for name, (_, data) in kept(out).items()} == {
        name: data for name, (_, data) in kept(undisturbed).items()
    }
    for name in ("sweep.csv", "summary.csv", "record.json"):
        assert (out / name).read_bytes() == (undisturbed / name).read_bytes()
