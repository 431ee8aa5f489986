"""``veilwalk doctor``: each thing that can be wrong, made wrong, is told with its cure."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.helpers.cli import Cli

from veilwalk.cli import _doctor as checks
from veilwalk.cli._doctor import EXTRAS
from veilwalk.core.findings import Finding

ROOT = Path(__file__).parents[3]


def test_a_machine_that_runs_the_tests_is_well(run: Cli, tmp_path: Path) -> None:
    """Every check answers, none fails, nothing is left behind; the optional packages are named."""
    found = run.json(["doctor", "--state", str(tmp_path)])
    assert found["ok"]
    assert [one["name"] for one in found["findings"]] == [
        "Python", "compiled kernels", "threads", "memory", "disk", "disk sync", "TLS", "sealing", "extras",
    ]  # fmt: skip
    assert all(name in found["findings"][-1]["what"] for name in EXTRAS)
    assert "TLSv1.3" in found["findings"][6]["what"]
    assert list(tmp_path.iterdir()) == []


def test_every_extra_is_known_to_the_page_and_to_the_doctor() -> None:
    """But for those that only this repository needs."""
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    table = (ROOT / "docs" / "reference" / "cli.md").read_text().partition("## Extras")[2].partition("\n## ")[0]
    assert extras == set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))))
    assert extras - set(EXTRAS) == {"bench", "dev", "docs"}


def test_what_fails_is_said_with_its_cure_and_ends_with_1(
    run: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line each; the rest is still looked at."""

    def refused(*_: object) -> object:
        raise ssl.SSLError(1, "no protocols available")

    monkeypatch.setattr("veilwalk.node.link.dialing_context", refused)
    code, out, err = run(["doctor", "--state", str(tmp_path)])
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert len(lines) == 9
    (failed,) = (line for line in lines if line.startswith("fails"))
    assert "TLS" in failed
    assert "no protocols available" in failed
    assert failed.endswith("; nodes need TLS 1.3 with Ed25519 certificates")


def slow_disk(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Finding:
    moments = iter(0.05 * number for number in range(1000))
    monkeypatch.setattr("time.perf_counter", lambda: next(moments))
    return checks.disk_sync(folder)


def full_disk(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Finding:
    monkeypatch.setattr(checks, "_file_system", lambda _: "ext4")
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    return checks.disk(folder)


def forgetful_disk(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Finding:
    monkeypatch.setattr(checks, "_file_system", lambda _: "tmpfs")
    return checks.disk(folder)


def read_only_disk(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Finding:
    monkeypatch.setattr("os.access", lambda *_: False)
    return checks.disk(folder)


def read_only_kernels(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Finding:
    monkeypatch.setattr("os.access", lambda *_: False)
    return checks.kernels()


def small_quota(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Finding:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr("numba.get_num_threads", lambda: 16)
    monkeypatch.setattr(checks, "_quota", lambda: 1.9)
    return checks.threads()


def idle_cores(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Finding:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr("numba.get_num_threads", lambda: 1)
    monkeypatch.setattr(checks, "_quota", lambda: None)
    return checks.threads()


@pytest.mark.parametrize(
    ("broken", "state", "said"),
    [
        (slow_disk, "note", "50 ms for 4 KiB"),
        (full_disk, "note", "make room"),
        (forgetful_disk, "note", "lost at power-off"),
        (read_only_disk, "fails", "cannot be written"),
        (read_only_kernels, "note", "NUMBA_CACHE_DIR"),
        (small_quota, "note", "NUMBA_NUM_THREADS=2"),
        (idle_cores, "note", "use 1 of 16 cores"),
    ],
)
def test_each_trouble_has_its_words(
    broken: Callable[[pytest.MonkeyPatch, Path], Finding],
    state: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """As found, and what to do."""
    found = broken(monkeypatch, tmp_path)
    assert found.state == state
    assert said in f"{found.what}; {found.cure}"


def test_no_place_for_compiled_kernels_is_one_line(tmp_path: Path) -> None:
    """Not a traceback and a plea to report it: numba's own complaint, said as a user can mend it, by both."""
    lacking = (
        "import numba, sys\n"
        "numba.config.CACHE_LOCATOR_CLASSES = 'ZipCacheLocator'\n"
        "from veilwalk.cli import main; main(sys.argv[1:])"
    )
    answers = [
        subprocess.run(
            [sys.executable, "-c", lacking, *words],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        )
        for words in (("graph", "info", "ring:5"), ("doctor",))
    ]
    assert [answer.returncode for answer in answers] == [4, 1]
    assert answers[0].stderr.count("\n") == 1
    assert "set NUMBA_CACHE_DIR" in answers[0].stderr
    assert "fails  compiled kernels: numba has no place to keep them" in answers[1].stdout
