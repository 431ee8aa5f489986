"""Updates a second of one cluster of local nodes with several walks, where every message dwells.

Each number of walks has a cluster of its own, all of them prepared alike and run one after the other. Beside the rate
stands how many times it is that of the first; it could be as many as there are walks.

    python -m benchmarks.speed.lanes --walks 1 2 4
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.campaigns.chaos import ChaosCluster


def rates(folder: Path, walks: int, *, spec: str, dwell: float, seconds: float) -> dict[str, float]:
    """Return what a cluster with so many walks did in a second, and how long its hops took."""
    with ChaosCluster(folder, spec, updates=10**6, walks=walks, dwell=dwell, walk="non-backtracking") as cluster:
        cluster.start_all()
        if not cluster.run_until(lambda found: found.tallies.get("updates", 0) >= 3 * walks, timeout_s=120):
            raise RuntimeError(f"{walks} walks do not get going")
        before, begun = cluster.findings(may_fork=True), time.monotonic()
        time.sleep(seconds)
        after, passed = cluster.findings(may_fork=True), time.monotonic() - begun
        cluster.kill_all()
        faults = cluster.findings().faults
    if faults:
        raise RuntimeError("; ".join(faults))
    hops = after.hops - before.hops
    return {
        "updates/s": (after.tallies["updates"] - before.tallies["updates"]) / passed,
        "hops/s": hops / passed,
        "hop ms": 1e3 * walks * passed / hops,
        "overruns": after.tallies.get("dwell_overruns", 0) - before.tallies.get("dwell_overruns", 0),
        "made": after.tallies.get("created", 0),
    }


def main() -> None:
    """Measure each number of walks and print a table."""
    parser = argparse.ArgumentParser(description="Updates a second with several walks.")
    parser.add_argument("--walks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--graph", default="rrg:10:3:seed=1")
    parser.add_argument("--dwell", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    print(f"{options.graph}, dwell {options.dwell:g} s, {options.seconds:g} s each")
    print("walks  updates/s  hops/s  times the first  a walk's hop ms  over-runs  walks made")
    first = 0.0
    for walks in options.walks:
        with tempfile.TemporaryDirectory() as folder:
            found = rates(Path(folder), walks, spec=options.graph, dwell=options.dwell, seconds=options.seconds)
        # By hops: updates are too few in so short a time to compare.
        first = first or found["hops/s"]
        print(
            f"{walks:5d} {found['updates/s']:10.2f} {found['hops/s']:7.1f} {found['hops/s'] / first:16.2f} "
            f"{found['hop ms']:16.1f} {found['overruns']:10.0f} {found['made']:11.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
