"""What one member that is down costs the others: updates a second with all members up, and without one of them.

python -m tests.campaigns.member_down FOLDER --recipients 1 2 3 4
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.campaigns.campaign_counts import QUICK, SPEC
from tests.campaigns.chaos import ChaosCluster
from veilwalk.core.arrays import FloatArray


def rate_with_one_down(
    folder: Path, *, recipients: int = 1, seconds: float = 12.0, rounds: int = 4, victim: str = "n3", **plan: Any
) -> dict[str, float]:
    """Return the rates of updates with all members up, and for as long after one was killed, and their ratio.

    Turn by turn, so that a machine that is busier for a while slows both.

    What the dead one held itself waits for it, whoever is avoided: it is killed at a moment when it holds nothing, so
    that this measures the others alone.

    Args:
        folder: For the cluster; what is there is thrown away.
        recipients: For how many each message is sealed.
        seconds: How long each of the two is watched in a round.
        rounds: How often.
        victim: Who is killed.
        plan: Further arguments of :func:`tests.campaigns.chaos.tally_plan`.
    """
    shutil.rmtree(folder, ignore_errors=True)
    plan = {"limits": QUICK} | plan
    with ChaosCluster(folder, SPEC, recipients=recipients, updates=10**9, **plan) as cluster:
        cluster.start_all()
        cluster.run_until(lambda found: found.tallies.get("updates", 0) >= 5, timeout_s=60)
        clean, down = np.zeros(3), np.zeros(3)
        for _ in range(rounds):
            clean += _work(cluster, seconds)
            _kill_idle(cluster, victim)
            down += _work(cluster, seconds)
            cluster.tend()
            time.sleep(2.0)
        found = cluster.findings(may_fork=True)
        cluster.kill_all()
    rates = [float(updates / passed) for updates, _, passed in (clean, down)]
    return {
        "clean": round(rates[0], 2),
        "one down": round(rates[1], 2),
        "ratio": round(rates[1] / rates[0], 2),
        # These do not depend on how busy the machine is.
        "hops per update, clean": round(clean[1] / clean[0], 2),
        "hops per update, one down": round(down[1] / down[0], 2) if down[0] else math.inf,
        "rerouted": found.tallies.get("rerouted", 0),
        "walks made": found.tallies.get("created", 0),
    }


def _work(cluster: ChaosCluster, seconds: float) -> FloatArray:
    """Return the updates and hops that were made in so long, and how long it was."""
    before = _counts(cluster)
    time.sleep(seconds)
    return _counts(cluster) - before


def _counts(cluster: ChaosCluster) -> FloatArray:
    found = cluster.findings(may_fork=True)
    return np.array([found.tallies.get("updates", 0), found.tallies.get("hops", 0), time.monotonic()])


def _kill_idle(cluster: ChaosCluster, victim: str) -> None:
    """Kill a member, and let it start again and kill it once more for as long as it held something."""
    while True:
        cluster.kill(victim)
        time.sleep(0.3)
        if not cluster.holds(victim):
            return
        cluster.tend()
        time.sleep(1.0)


def main() -> None:
    """Measure for each number of recipients and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recipients", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--late", type=float, default=1e9)
    asked = parser.parse_args()
    for recipients in asked.recipients:
        found = rate_with_one_down(
            asked.folder, recipients=recipients, seconds=asked.seconds, rounds=asked.rounds, late=asked.late
        )
        print(json.dumps({"recipients": recipients, **found}), flush=True)


if __name__ == "__main__":
    main()
