"""A slice of the campaign: real processes, killed while they work, and nothing lost or doubled.

``make campaign`` does the same with thousands of kills. The checker shares no code with the node.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.campaigns.chaos import ChaosCluster
from tests.campaigns.chaos_checker import Findings, ends

from veilwalk.node import Limits

SPEC = "rrg:6:3:seed=1"
SEVERAL = "rrg:10:3:seed=1"


def killing(cluster: ChaosCluster) -> Any:
    return lambda dice: cluster.kill(dice.choice(cluster.names))


def at_the_end(cluster: ChaosCluster) -> Findings:
    """What is found when all nodes were let finish in peace."""
    cluster.failpoints = ""
    assert cluster.run_until(ends(), timeout_s=60)
    cluster.stop_all()
    return cluster.findings()


def test_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    """Kills from outside and at failpoints, then of the whole cluster; afterwards training goes on and ends."""
    with ChaosCluster(tmp_path, SPEC, updates=60, failpoints="*=0.03") as cluster:
        for number in range(2):
            cluster.begin()
            cluster.suffer(35, killing(cluster), every_s=0.2, seed=number)
            cluster.kill_all()
            assert cluster.findings().faults == []
        # A busy machine makes few hops between two kills from outside.
        cluster.begin()
        assert cluster.run_until(lambda _: len(cluster.failpoint_kills()) >= 5, timeout_s=120)
        cluster.kill_all()
        assert cluster.findings().faults == []
        found = at_the_end(cluster)
        died = cluster.counts["ended -9"]
    assert found.faults == []
    assert (found.updates, found.lost, found.doubled) == (60, 0, 0)
    assert died >= 60


def test_three_walks_end_with_their_shares_whoever_is_killed(tmp_path: Path) -> None:
    """Each model has its updates and no other's; all of them together have every update once."""
    with ChaosCluster(tmp_path, SPEC, updates=100, walks=3, failpoints="*=0.02") as cluster:
        cluster.begin()
        cluster.suffer(13, killing(cluster), every_s=0.3, seed=5)
        cluster.kill_all()
        assert cluster.findings().faults == []
        found = at_the_end(cluster)
        died = cluster.counts["ended -9"]
    assert found.faults == []
    assert (found.ended, found.updates, found.lost, found.doubled) == ([34, 33, 33], 100, 0, 0)
    assert found.tallies.get("created", 0) == 0
    assert died >= 10


PATIENCE = Limits(pin_s=0.4, retry_s=0.1, connect_s=0.5, answer_s=0.5, ping_s=0.5)


def pausing(cluster: ChaosCluster) -> Any:
    return lambda dice: cluster.pause(dice.choice(cluster.names), dice.uniform(0.2, 2.0))


@pytest.mark.parametrize("recipients", [1, 4])
def test_pauses_past_the_patience_copy_nothing(tmp_path: Path, recipients: int) -> None:
    """Messages go another way only if nobody can be using them: with several recipients a copy is a second walk."""
    spec, updates = (SPEC, 60) if recipients == 1 else (SEVERAL, 200)
    with ChaosCluster(tmp_path, spec, updates=updates, recipients=recipients, limits=PATIENCE) as cluster:
        cluster.begin()
        times, every_s = (27, 0.3) if recipients == 1 else (53, 0.15)
        cluster.suffer(times, pausing(cluster), every_s=every_s, seed=3)
        assert cluster.run_until(ends(), timeout_s=60)
        cluster.stop_all()
        found = cluster.findings()
    assert found.faults == []
    assert (found.updates, found.lost, found.doubled) == (updates, 0, 0)
    assert found.tallies["rerouted"] >= 1
    assert found.tallies.get("forks", 0) == 0


# A busy machine makes few hops in the time of one round, and what is wrong shows at hops.
ENOUGH_HOPS = 150


def found_wrong(cluster: ChaosCluster, harm: Callable[[random.Random], Any], every_s: float) -> list[str]:
    """Harm a cluster again and again until the checker finds something, eight times at least; return what it found."""
    for number in range(40):
        # A wrong node may lose the walk before its first hop, at a failpoint: what is wrong is then for the checker.
        with contextlib.suppress(RuntimeError):
            cluster.begin()
            cluster.suffer(round(3 / every_s), harm, every_s=every_s, seed=number)
        cluster.kill_all()
        found = cluster.findings()
        if found.faults or (number >= 7 and found.hops >= ENOUGH_HOPS):
            return found.faults
    return []


def test_pauses_catch_a_node_that_uses_what_it_was_not_given(tmp_path: Path) -> None:
    """The same pauses, the same checks: the walk forks."""
    mutant = "use-before-given"
    with ChaosCluster(tmp_path, SEVERAL, updates=10**6, recipients=4, mutant=mutant, limits=PATIENCE) as cluster:
        assert found_wrong(cluster, pausing(cluster), 0.1)


@pytest.mark.parametrize("mutant", ["ack-before-commit", "unpinned-hop"])
def test_the_checker_catches_a_wrong_node(tmp_path: Path, mutant: str) -> None:
    """The same kills, the same checks: a node that is wrong in one step does not pass."""
    with ChaosCluster(tmp_path, SPEC, updates=10**6, failpoints="*=0.05", mutant=mutant) as cluster:
        assert found_wrong(cluster, killing(cluster), 0.2)
