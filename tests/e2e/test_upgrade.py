"""One machine after the other goes over to this version while the run goes on, beside nodes of the one before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.campaigns.chaos_checker import check, ends

from veilwalk.node import load_config, node_status
from veilwalk.node.cluster._files import node_ids
from veilwalk.node.spool import open_read_only
from veilwalk.node.spool._tables import FORMAT

#: The previous release: the first commit whose greeting and storage are those of version 0.2. A tag, once there is one.
PREVIOUS_RELEASE = "baa06d4"
ROOT = Path(__file__).parents[2]
NAMES = node_ids(5)
UPDATES = 80
#: The learner by a name that both versions find: its file needs nothing but the package.
LEARNERS = ROOT / "tests" / "campaigns"
MAKE = """
import sys
from dataclasses import replace
from pathlib import Path
from benchmarks.reliability.chaos_plan import tally_plan
from veilwalk.graphs import parse_graph_spec
from veilwalk.node.cluster import prepare_cluster
plan = tally_plan(parse_graph_spec("ring:5"), updates=int(sys.argv[2]), late=1e9)
prepare_cluster(Path(sys.argv[1]), replace(plan, learner_spec="chaos_tally:Tally:padding=0"))
"""


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the previous release, from the history."""
    folder = tmp_path_factory.mktemp("previous")
    archive = folder / "code.tar"
    made = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--output", str(archive), PREVIOUS_RELEASE, "src", "benchmarks", "paper"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip(f"the history here does not reach back to the previous release: {made.stderr.strip()}")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="tar")
    return folder


def environment(code: Path) -> dict[str, str]:
    folders = os.pathsep.join(map(str, (code / "src", code, LEARNERS)))
    return os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": folders}


class Machines:
    """The nodes of a run, each by the code that is installed on its machine."""

    def __init__(self, folder: Path, code: Path) -> None:
        self.folder = folder
        self.code = dict.fromkeys(NAMES, code)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # So small a network is made sooner than the kernels of that version are compiled.
        quick = environment(code) | {"NUMBA_DISABLE_JIT": "1"}
        subprocess.run([sys.executable, "-c", MAKE, str(folder), str(UPDATES)], cwd=code, env=quick, check=True)

    def start(self, *names: str) -> None:
        """Start nodes, and wait until they are up."""
        for name in names:
            with self._log(name).open("wb") as log:
                self._processes[name] = subprocess.Popen(
                    [sys.executable, "-m", "veilwalk.node", str(self.folder / name / "node.toml")],
                    cwd=self.code[name], env=environment(self.code[name]), stderr=log,
                )  # fmt: skip
        for name in names:
            self.until(partial(self.events, name, "started"))

    def stop(self, *names: str) -> None:
        """Stop nodes, or all."""
        for name in names or tuple(self._processes):
            self._processes[name].terminate()
        for name in names or tuple(self._processes):
            assert self._processes.pop(name).wait(30) == 0, self._log(name).read_text()

    def kill_all(self) -> None:
        """Leave nothing behind, whatever happened."""
        for process in self._processes.values():
            process.kill()
            process.wait(30)

    def upgrade(self, *names: str) -> None:
        """Put this version in the place of the other, on the same folders."""
        self.stop(*names)
        self.code.update(dict.fromkeys(names, ROOT))
        self.start(*names)

    def events(self, name: str, kind: str) -> list[dict[str, Any]]:
        """What a node has logged since its start."""
        found = [json.loads(line) for line in self._log(name).read_text().splitlines() if line.startswith("{")]
        return [event for event in found if event["event"] == kind]

    def tally(self, what: str, *names: str) -> list[int]:
        """A count of each node's."""
        states = [load_config(self.folder / name / "node.toml").state for name in names or NAMES]
        return [node_status(state).tallies.get(what, 0) for state in states]

    def storage_format(self, name: str) -> int:
        """The format of a node's folder."""
        with closing(open_read_only(load_config(self.folder / name / "node.toml").state)) as database:
            return int(database.execute("PRAGMA user_version").fetchone()[0])

    def until(self, done: Callable[[], Any], timeout_s: float = 60) -> None:
        """Wait for something."""
        end = time.monotonic() + timeout_s
        while not done():
            for name, process in self._processes.items():
                assert process.poll() is None, self._log(name).read_text()
            assert time.monotonic() < end, {name: self._log(name).read_text() for name in NAMES}
            time.sleep(0.05)

    def goes_on(self) -> None:
        """Wait until every node has handed messages on, and there were further updates."""
        hops, updates = self.tally("hops"), sum(self.tally("updates"))
        self.until(
            lambda: (
                all(now > before + 2 for now, before in zip(self.tally("hops"), hops, strict=True))
                and sum(self.tally("updates")) >= updates + 10
            )
        )

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"


@pytest.fixture
def machines(tmp_path: Path, previous: Path) -> Iterator[Machines]:
    made = Machines(tmp_path, previous)
    try:
        yield made
    finally:
        made.kill_all()


def test_one_machine_after_the_other(machines: Machines) -> None:
    """A run that the previous release began goes on while two of five are upgraded, and ends with nothing lost."""
    machines.start(*NAMES)
    machines.goes_on()
    machines.upgrade("n1", "n2")
    machines.goes_on()
    assert 0 < sum(machines.tally("updates")) < UPDATES
    links = {(name, up["peer"]): up.get("protocol") for name in NAMES for up in machines.events(name, "link_up")}
    # Those of the previous release do not say what they speak.
    assert {links[pair] for pair in links if pair[0] in ("n1", "n2")} == {2}
    assert {links[pair] for pair in links if pair[0] not in ("n1", "n2")} == {None}
    formats = {name: machines.storage_format(name) for name in NAMES}
    assert {formats[name] for name in ("n1", "n2")} == {FORMAT}
    is_over = ends()
    machines.until(lambda: is_over(check(machines.folder, NAMES, may_fork=True)))
    machines.stop()
    found = check(machines.folder, NAMES)
    assert (found.updates, found.lost, found.doubled, found.faults) == (UPDATES, 0, 0, [])
    assert sum(machines.tally("put_back")) + sum(machines.tally("damaged")) == 0
    assert not any(machines.events(name, "turned_away") for name in NAMES)
