"""Real nodes on a secret overlay through periods, kills and one change of members: is every update made once?

python -m tests.campaigns.overlay_members FOLDER --members 20 --updates 500 --period 72 --kill 5
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.campaigns.chaos_plan import tally_plan
from tests.campaigns.chaos_tally import Tally
from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import SpoolError
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import Partition
from veilwalk.node import load_config, node_status, prepare_cluster
from veilwalk.node.cluster import free_ports, manifest_in, node_ids
from veilwalk.node.members import Deal, Roster, deal_again, deal_path, decode_params, load_root_key, new_node_keys
from veilwalk.node.peer import NodeStatus, drain_node

_PERIODS = 40
_LOOK_S = 0.5
#: The member that leaves; another comes at the same moment.
_LEAVER = 3


class Crowd:
    """The processes of some members."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start a member's node."""
        own_code = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
        with (self._folder / name / "log.jsonl").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "veilwalk.node", str(self._folder / name / "node.toml")],
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": own_code, "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """Kill a member's node and start it again."""
        self.running[name].kill()
        self.running[name].wait()
        self.start(name)

    def stop(self) -> None:
        """Stop everybody."""
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(60)

    def status(self, name: str) -> NodeStatus | None:
        """Return what a member has done; None where it has not begun."""
        try:
            return node_status(load_config(self._folder / name / "node.toml").state, with_models=True)
        except SpoolError:
            return None


def play(
    folder: Path, *, members: int, updates: int, period_s: int, kill_s: float, seed: int, timeout_s: float
) -> Mapping[str, object]:
    """Run the members to the end of a run, and return what was lost, doubled and done."""
    shutil.rmtree(folder, ignore_errors=True)
    plan = tally_plan(
        parse_graph_spec(f"overlay:{members}:3:seed={seed}"),
        updates=updates,
        recipients=4,
        walk="non-backtracking",
        dwell=0.05,
    )
    rows = np.eye(members + 1, dtype=np.int64)
    everybody = [Partition(row[None, :], np.zeros(1, dtype=np.int64)) for row in rows]
    learner = Tally(n_features=members + 1, n_classes=1)
    plan = replace(plan, learner=learner, partitions=everybody, period_s=period_s, periods=_PERIODS)
    prepare_cluster(folder, plan)
    names = node_ids(members)
    crowd, dice, kills, begun = Crowd(folder), np.random.default_rng(seed), 0, time.monotonic()
    newcomer, periods, last = "newcomer", set[int](), begun
    try:
        for name in names:
            crowd.start(name)
        while time.monotonic() < begun + timeout_s:
            time.sleep(_LOOK_S)
            roster = Roster.read_draft(folder / "roster.json")
            periods.add(roster.epoch_at(time.time()))
            found = {name: crowd.status(name) for name in crowd.running}
            iteration = max((status.iteration for status in found.values() if status), default=0)
            if newcomer not in crowd.running and iteration > updates // 4:
                _change_members(folder, crowd, names[_LEAVER], newcomer, everybody[-1])
            elif all(status and status.finished and not status.in_custody for status in found.values()):
                break
            elif time.monotonic() > last + kill_s and iteration < updates:
                last, kills = time.monotonic(), kills + 1
                crowd.kill(str(dice.choice(sorted(crowd.running))))
        found = {name: crowd.status(name) for name in (*names, newcomer)}
    finally:
        crowd.stop()
    done = {name: status for name, status in found.items() if status is not None}
    counts = _read_counts(folder, done)
    made = np.array([done[name].tallies.get("updates", 0) if name in done else 0 for name in (*names, newcomer)])
    return {
        "seconds": round(time.monotonic() - begun),
        "periods": len(periods),
        "kills": kills,
        "finished": sum(done[name].finished for name in crowd.running if name in done),
        "updates in the model": int(counts.sum()),
        "lost": int(np.maximum(made - counts, 0).sum()),
        "doubled": int(np.maximum(counts - made, 0).sum()),
        "made by the newcomer": int(made[-1]),
        "hops": sum(status.tallies.get("hops", 0) for status in done.values()),
    }


def _change_members(folder: Path, crowd: Crowd, leaver: str, newcomer: str, data: Partition) -> None:
    """Let one leave and another come with the next version of the roster; whoever leaves hands on what it holds."""
    drain_node(load_config(folder / leaver / "node.toml").state, timeout_s=120, tell=lambda _: None)
    crowd.running.pop(leaver).wait(60)
    shutil.copytree(folder / leaver, folder / newcomer, ignore=shutil.ignore_patterns("keys", "state", "log.jsonl"))
    np.savez(folder / newcomer / "data.npz", features=data.features, labels=data.labels)
    path = folder / "roster.json"
    roster, address = Roster.read_draft(path), f"127.0.0.1:{free_ports(1)[0]}"
    keys = new_node_keys(
        folder / newcomer / "keys", node_id=newcomer, address=address, suite=roster.suite, periods=_PERIODS
    )
    following, deal = deal_again(
        roster,
        Deal.read(deal_path(path), roster),
        cards={newcomer: keys.member},
        removed=[leaver],
        now=int(time.time()),
        days=30,
    )
    deal.write(deal_path(path))
    following.sign(path, load_root_key(folder / "root"))
    crowd.start(newcomer)


def _read_counts(folder: Path, found: Mapping[str, NodeStatus]) -> IntArray:
    """Return how many updates of each member the newest model has."""
    newest = max((status for status in found.values() if status.models), key=lambda status: status.iteration)
    counts: IntArray = decode_params(manifest_in(folder), newest.models[0])["counts"]
    return counts


def main() -> None:
    """Play it once, and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--members", type=int, default=20)
    parser.add_argument("--updates", type=int, default=500)
    parser.add_argument("--period", type=int, default=72, help="seconds")
    parser.add_argument("--kill", type=float, default=5.0, help="seconds between kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=1800.0)
    given = parser.parse_args()
    played = play(
        given.folder,
        members=given.members,
        updates=given.updates,
        period_s=given.period,
        kill_s=given.kill,
        seed=given.seed,
        timeout_s=given.timeout,
    )
    print(json.dumps(dict(played), indent=1))


if __name__ == "__main__":
    main()
