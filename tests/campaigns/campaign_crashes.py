"""Stages of the campaign in which machines fail: kills, pauses, power cuts, bad networks, bad disks.

Each does a slice of its work and adds to its counts.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tests.campaigns import power_loss
from tests.campaigns.campaign_counts import IMPATIENT, QUICK, SPEC, Counts, add, network_of, note, tally
from tests.campaigns.chaos import ChaosCluster
from tests.campaigns.chaos_checker import Findings, ends
from tests.campaigns.chaos_damage import Hurt, broken, hurt_messages, still_there
from veilwalk.node import Limits

RESTLESS = Limits(pin_s=0.15, retry_s=0.1, connect_s=0.3, answer_s=0.3, ping_s=0.3)
#: Failpoints that a message seldom meets, and what is done to meet them more often.
AIMS = {
    # The later in an update, the more likely: the earlier ones leave few to come that far.
    "training": {
        "route.before_commit": 0.1,
        "route.committed": 0.12,
        "train.opened": 0.12,
        "train.updated": 0.15,
        "train.sealed": 0.2,
        "train.before_commit": 0.25,
        "train.committed": 0.6,
    },
    "cancelling": {"give.before_commit": 0.5},
    "finishing": {"finish.before_commit": 0.4, "finish.committed": 1.0},
}


def kills(counts: Counts, folder: Path, seed: int) -> None:
    """T1: kills from outside and at failpoints, a minute at a time; then all are killed and their disks checked.

    While some failpoints have had less than their share, every slice aims at those.
    """
    by_point = counts.setdefault("by_failpoint", {})
    for aim, points in AIMS.items():
        if min(by_point.get(point, 0) for point in points) < counts.get("at_each_failpoint", 200):
            _kills_at(counts, folder, aim, seed)
            return
    _kills_at(counts, folder, "anywhere", seed)


def _kills_at(counts: Counts, folder: Path, aim: str, seed: int) -> None:
    """One slice of T1: several clusters side by side, killed where ``aim`` says."""
    plans: dict[str, dict[str, Any]] = {
        "anywhere": {"failpoints": "*=0.05"},
        "training": {"dwell": 0.02, "failpoints": _armed("training")},
        "cancelling": {"failpoints": _armed("cancelling"), "limits": RESTLESS},
        # Nearly all of ten nodes have trained by then: who knows nothing of the model believes no end that one brings.
        "finishing": {"updates": 40, "failpoints": _armed("finishing")},
    }
    where = network_of(counts, SPEC if aim in {"anywhere", "finishing"} else "ring:4")
    plan: dict[str, Any] = {"updates": 10**9, "limits": QUICK} | where | plans[aim]
    end = time.monotonic() + 55
    while time.monotonic() < end:
        clusters = [
            ChaosCluster(folder / (f"kills-{aim}-{index}" if aim != "anywhere" else "kills"), **plan)
            for index in range(1 if aim == "anywhere" else 4)
        ]
        before = [(cluster.findings(may_fork=True), cluster.failpoint_kills()) for cluster in clusters]
        _suffer_together(clusters, aim, end, seed)
        for cluster, (found_before, points_before) in zip(clusters, before, strict=True):
            found = cluster.findings()
            note(counts, found, f"kills {aim}, seed {seed}")
            points = cluster.failpoint_kills() - points_before
            for point, times in points.items():
                counts["by_failpoint"][point] = counts["by_failpoint"].get(point, 0) + times
            add(
                counts,
                kills=cluster.counts["ended -9"],
                at_failpoints=points.total(),
                updates=found.updates - found_before.updates,
            )
            tally(counts, found, found_before)
            if found.finished:
                shutil.rmtree(cluster.folder)


def _suffer_together(clusters: list[ChaosCluster], aim: str, end: float, seed: int) -> None:
    """Hurt clusters at once until ``end``, or, where that is hurt, until all are done; then kill all nodes."""
    dice = random.Random(seed)  # noqa: S311  which node to hurt is no secret
    # The finished model is on its way to all as several messages, which no count of walks allows for.
    end = time.monotonic() + 180 if aim == "finishing" else end
    with contextlib.ExitStack() as stack:
        for cluster in clusters:
            stack.enter_context(cluster)
            cluster.start_all()
        while time.monotonic() < end:
            time.sleep((0.12 if aim == "anywhere" else 0.3) * dice.uniform(0.5, 1.5))
            for cluster in clusters:
                victim = dice.choice(cluster.names)
                if aim == "cancelling":
                    cluster.pause(victim, 0.6)
                elif aim == "anywhere":
                    cluster.kill(victim)
                cluster.tend()
            if aim == "finishing" and not any(cluster.findings().unfinished for cluster in clusters):
                break
        for cluster in clusters:
            cluster.kill_all()


def _armed(aim: str) -> str:
    return ",".join(f"{point}={chance}" for point, chance in AIMS[aim].items())


def whole_kills(counts: Counts, folder: Path, seed: int) -> None:
    """T2: the whole cluster at once, again and again."""
    dice = random.Random(seed)  # noqa: S311  when to strike is no secret
    with ChaosCluster(folder / "whole", **network_of(counts), updates=10**9, limits=QUICK) as cluster:
        before = cluster.findings()
        cluster.begin()
        cluster.kill_all()
        for _ in range(20):
            cluster.start_all()
            time.sleep(dice.uniform(0.4, 1.6))
            cluster.kill_all()
            note(counts, cluster.findings(), f"whole kills, seed {seed}")
        found = cluster.findings()
    add(counts, whole_kills=cluster.counts["whole kills"])
    tally(counts, found, before)


def pauses(counts: Counts, folder: Path, seed: int) -> None:
    """T3: pauses of 0.05 to 3 s with a patience of half a second, then peace until the model is finished."""
    clusters = [
        ChaosCluster(folder / f"pauses-{seed}-{index}", **network_of(counts), updates=150, limits=IMPATIENT)
        for index in range(3 if counts.get("recipients", 1) == 1 else 1)
    ]
    dice = random.Random(seed)  # noqa: S311  which node to hurt is no secret
    counts.setdefault("faults", [])
    with contextlib.ExitStack() as stack:
        for cluster in clusters:
            stack.enter_context(cluster)
            cluster.start_all()
        end = time.monotonic() + 55
        while time.monotonic() < end:
            time.sleep(0.12)
            for cluster in clusters:
                cluster.pause(dice.choice(cluster.names), dice.choice((0.05, 0.3, 1.0, 3.0)) * dice.random())
                cluster.tend()
        for cluster in clusters:
            if not _finish(cluster):
                counts["faults"].append(f"pauses, seed {seed}: not finished")
            cluster.stop_all()
    for cluster in clusters:
        found = cluster.findings()
        note(counts, found, f"pauses, seed {seed}")
        add(counts, pauses=cluster.counts["pauses"], rerouted=found.tallies.get("rerouted", 0))
        tally(counts, found)
        shutil.rmtree(cluster.folder)


def power(counts: Counts, folder: Path, seed: int) -> None:
    """T4: power cuts on a disk that forgets what was not synced."""
    del folder
    with ProcessPoolExecutor(2) as pool:
        halves = [pool.submit(power_loss.campaign, cuts=10_000, seed=seed * 1000 + half) for half in (0, 500)]
        for half in halves:
            cuts, faults = half.result()
            add(counts, cuts=cuts)
            counts.setdefault("faults", []).extend(faults)


def network(counts: Counts, folder: Path, seed: int) -> None:
    """T5: delays, cuts, flipped bits, half-open connections and partitions, two clusters side by side."""
    clusters = [
        ChaosCluster(
            folder / f"network-{index}",
            **network_of(counts, "rrg:8:3:seed=1" if index else SPEC),
            updates=10**9,
            faults={},
            limits=QUICK,
        )
        for index in range(2)
    ]
    dice = random.Random(seed)  # noqa: S311
    before = [cluster.findings() for cluster in clusters]
    with clusters[0], clusters[1]:
        for cluster in clusters:
            cluster.start_all()
        end = time.monotonic() + 55
        while time.monotonic() < end:
            for cluster in clusters:
                cluster.partition(dice.sample(cluster.names, dice.choice((0, 0, 0, 2))))
                cluster.tend()
            time.sleep(2)
        for index, cluster in enumerate(clusters):
            cluster.kill_all()
            found = cluster.findings()
            note(counts, found, f"network, seed {seed}")
            tally(counts, found, before[index])
    for cluster in clusters:
        add(counts, **{key: value for key, value in cluster.counts.items() if key.startswith("network")})


def damage(counts: Counts, folder: Path, seed: int) -> None:
    """T12: what lies on a stopped node's disk is damaged; each must be noticed and counted, and none passed on.

    A message that the next node had already when the disk went bad is noticed too, but nothing is lost with it.
    """
    where = folder / f"damage-{seed}"
    dice = random.Random(seed)  # noqa: S311  what to damage is no secret
    counts.setdefault("faults", [])
    with ChaosCluster(where, **network_of(counts), updates=10**9, late=60.0, hop=0.02, limits=QUICK) as cluster:
        for _ in range(5):
            cluster.start_all()
            cluster.run_until(lambda found: found.live > 0, timeout_s=30)
            time.sleep(1)
            cluster.kill_all()
            before = cluster.findings(may_fork=True)
            hurt = hurt_messages(where, cluster.names, dice)
            cluster.start_all()
            # Only when no damaged row is left has every node looked at what it holds.
            noticed = cluster.run_until(_none_left(where, hurt), timeout_s=30)
            alive = cluster.run_until(_more_updates(before), timeout_s=60)
            cluster.kill_all()
            found = cluster.findings(may_fork=True)
            counted = found.tallies.get("damaged", 0) - before.tallies.get("damaged", 0)
            left = broken(where, cluster.names)
            add(
                counts,
                damaged=len(hurt),
                noticed=counted,
                of_which_the_next_node_had_a_copy=sum(one.passed_on for one in hurt),
            )
            for one in hurt:
                counts.setdefault("by_kind", {})[one.kind] = counts.get("by_kind", {}).get(one.kind, 0) + 1
            if not noticed or not alive or counted != len(hurt) or left:
                counts["faults"].append(f"damage, seed {seed}: {counted} of {len(hurt)} noticed, {left}, alive {alive}")
        ended = {key: value for key, value in cluster.counts.items() if key.startswith("ended") and key != "ended -9"}
        if ended:
            counts["faults"].append(f"damage, seed {seed}: nodes ended by themselves: {ended}")
    shutil.rmtree(where)


def _none_left(folder: Path, hurt: list[Hurt]) -> Callable[[Findings], bool]:
    return lambda _: not still_there(folder, hurt)


def _more_updates(before: Findings) -> Callable[[Findings], bool]:
    return lambda found: found.tallies.get("updates", 0) > before.tallies.get("updates", 0)


def _finish(cluster: ChaosCluster) -> bool:
    return cluster.run_until(ends(), timeout_s=120)
