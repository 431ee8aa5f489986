"""The stages of the reliability campaign: each does a slice of its work and adds to its counts."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import campaign_anonymity, power_loss
from benchmarks.chaos import ROOT, ChaosCluster
from benchmarks.chaos_checker import Findings

from veilwalk.core.support import DistanceSupport
from veilwalk.design import DistanceLaw
from veilwalk.graphs import parse_graph_spec
from veilwalk.node import Limits

Counts = dict[str, Any]
SPEC = "rrg:10:4:seed=1"
QUICK = Limits(retry_s=0.2, connect_s=1.0, answer_s=1.5, ping_s=1.0)
IMPATIENT = Limits(pin_s=0.5, retry_s=0.1, connect_s=0.5, answer_s=0.5, ping_s=0.5)
FUZZ_TARGETS = ("wire", "header", "roster", "manifest", "model")


def add(counts: Counts, **amounts: float) -> None:
    """Add to counts."""
    for name, amount in amounts.items():
        counts[name] = counts.get(name, 0) + amount


def note(counts: Counts, found: Findings, what: str) -> None:
    """Add a check's findings."""
    add(counts, checks=1, lost=found.lost, doubled=found.doubled)
    counts.setdefault("faults", []).extend(f"{what}: {fault}" for fault in found.faults)


def kills(counts: Counts, folder: Path, seed: int) -> None:
    """T1: kills from outside and at failpoints, a minute at a time; then all are killed and their disks checked."""
    with ChaosCluster(folder / "kills", SPEC, updates=10**9, failpoints="*=0.05", limits=QUICK) as cluster:
        before, at_points = cluster.findings(), sum(cluster.failpoint_kills().values())
        cluster.start_all()
        cluster.suffer(55, lambda dice: cluster.kill(dice.choice(cluster.names)), every_s=0.12, seed=seed)
        cluster.kill_all()
        found = cluster.findings()
        by_point = cluster.failpoint_kills()
    note(counts, found, f"kills, seed {seed}")
    add(
        counts,
        kills=cluster.counts["ended -9"],
        at_failpoints=sum(by_point.values()) - at_points,
        hops=found.hops - before.hops,
        updates=found.updates - before.updates,
    )
    counts["by_failpoint"] = dict(by_point)


def whole_kills(counts: Counts, folder: Path, seed: int) -> None:
    """T2: the whole cluster at once, again and again."""
    dice = random.Random(seed)  # noqa: S311  when to strike is no secret
    with ChaosCluster(folder / "whole", SPEC, updates=10**9, limits=QUICK) as cluster:
        before = cluster.findings()
        for _ in range(20):
            cluster.start_all()
            time.sleep(dice.uniform(0.4, 1.6))
            cluster.kill_all()
            note(counts, cluster.findings(), f"whole kills, seed {seed}")
        found = cluster.findings()
    add(counts, whole_kills=cluster.counts["whole kills"], hops=found.hops - before.hops)


def pauses(counts: Counts, folder: Path, seed: int) -> None:
    """T3: pauses of 0.05 to 3 s with a patience of half a second, then peace until the model is finished."""
    where = folder / f"pauses-{seed}"
    with ChaosCluster(where, SPEC, updates=150, limits=IMPATIENT) as cluster:
        cluster.start_all()
        cluster.suffer(
            40,
            lambda dice: cluster.pause(dice.choice(cluster.names), dice.choice((0.05, 0.3, 1.0, 3.0)) * dice.random()),
            every_s=0.12,
            seed=seed,
        )
        done = _finish(cluster)
        cluster.stop_all()
        found = cluster.findings(may_fork=True)
    note(counts, found, f"pauses, seed {seed}")
    if not done:
        counts["faults"].append(f"pauses, seed {seed}: not finished ({found.updates} updates)")
    tallies = found.tallies
    add(
        counts,
        pauses=cluster.counts["pauses"],
        rerouted=tallies.get("rerouted", 0),
        copies_dropped=max(0, tallies.get("duplicates", 0) - tallies.get("farewells", 0)),
        hops=found.hops,
    )
    shutil.rmtree(where)


def power(counts: Counts, folder: Path, seed: int) -> None:
    """T4: power cuts on a disk that forgets what was not synced."""
    del folder
    cuts, faults = power_loss.campaign(cuts=10_000, seed=seed * 1000)
    add(counts, cuts=cuts)
    counts.setdefault("faults", []).extend(faults)


def network(counts: Counts, folder: Path, seed: int) -> None:
    """T5: delays, cuts, flipped bits, half-open connections and partitions, two clusters side by side."""
    clusters = [
        ChaosCluster(folder / f"network-{index}", "rrg:8:3:seed=1", updates=10**9, faults={}, limits=QUICK)
        for index in range(2)
    ]
    dice = random.Random(seed)  # noqa: S311
    before = [cluster.findings().hops for cluster in clusters]
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
            add(counts, hops=found.hops - before[index])
    for cluster in clusters:
        add(counts, **{key: value for key, value in cluster.counts.items() if key.startswith("network")})


def fuzz(counts: Counts, folder: Path, seed: int) -> None:
    """T6: parsers, coverage-guided, the wire most of all."""
    where = folder / "fuzz"
    where.mkdir(parents=True, exist_ok=True)
    for target in FUZZ_TARGETS:
        runs = 1_000_000 if target == "wire" else 100_000
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "benchmarks.fuzz_node",
                target,
                f"-runs={runs}",
                f"-seed={seed}",
                "-max_total_time=60",
            ],
            cwd=where,
            env={"PYTHONPATH": str(ROOT), "PATH": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        done = [line for line in ended.stderr.splitlines() if line.startswith("Done ")]
        if ended.returncode or not done:
            counts.setdefault("faults", []).append(f"fuzz {target}, seed {seed}: {ended.stderr[-300:]}")
            continue
        add(counts, executions=int(done[0].split()[1]), **{target: int(done[0].split()[1])})


def anonymity(counts: Counts, folder: Path, seed: int) -> None:
    """T8: colluders' guesses on a real network beside the exact prediction, and training told by time."""
    del seed
    spec = "rrg:16:3:seed=1"
    graph = parse_graph_spec(spec)
    law = DistanceLaw(DistanceSupport(2, 2), np.ones(1)).on(graph).matrix.toarray()
    where = folder / "anonymity"
    shutil.rmtree(where, ignore_errors=True)
    with ChaosCluster(where, spec, updates=1000, mutant="watched", limits=QUICK) as cluster:
        cluster.start_all()
        cluster.run_until(lambda found: found.finished == graph.n_nodes and found.live == 0, timeout_s=240)
        cluster.stop_all()
    for colluders in (1, 2, 4):
        found = campaign_anonymity.attack(where, cluster.names, graph, law, range(colluders))
        counts[f"colluders_{colluders}"] = {
            "updates": found.updates,
            "named": found.hits,
            "predicted": round(found.predicted, 2),
            "spread": round(found.spread, 2),
            "blind": round(found.blind, 2),
        }
        if abs(found.z) > 4:
            counts.setdefault("faults", []).append(f"{colluders} colluders: {found.z:.1f} deviations off")
    for name, dwell in (("no_dwell", 0.0), ("dwell", 0.15)):
        where = folder / f"timing-{name}"
        shutil.rmtree(where, ignore_errors=True)
        with ChaosCluster(where, spec, updates=60, mutant="watched", dwell=dwell, limits=QUICK) as cluster:
            cluster.start_all()
            cluster.run_until(lambda found: found.finished == graph.n_nodes and found.live == 0, timeout_s=240)
            cluster.stop_all()
        auc, trained, relayed = campaign_anonymity.rank_auc(where, cluster.names)
        error = float(np.sqrt((trained + relayed + 1) / (12 * trained * relayed)))
        counts[f"auc_{name}"] = {"auc": round(auc, 3), "standard_error": round(error, 3), "trained": trained}
        if dwell and abs(auc - 0.5) > 4 * error:
            counts.setdefault("faults", []).append(f"time tells training from relaying: AUC {auc:.3f}")
    add(counts, runs=1)


def hostile(counts: Counts, folder: Path, seed: int) -> None:
    """T9: members that swallow, replay or send garbage, beside a clean run of the same length.

    With a dwell of 50 ms, so that it is not the machine that slows down ten nodes and a dozen messages on two cores.
    """
    rates = {}
    for kind in ("clean", "garbler", "replayer", "pac-man"):
        where = folder / f"hostile-{kind}"
        shutil.rmtree(where, ignore_errors=True)
        bad = {} if kind == "clean" else {"n3": kind}
        late = 60.0 if kind == "pac-man" else 1e9
        with ChaosCluster(where, SPEC, updates=10**9, hostile=bad, limits=QUICK, late=late, dwell=0.05) as cluster:
            cluster.start_all()
            cluster.run_until(lambda found: found.updates >= 1, timeout_s=30)
            started, begin = cluster.findings().tallies.get("updates", 0), time.monotonic()
            longest = _longest_silence(cluster, 30)
            cluster.kill_all()
            found = cluster.findings(may_fork=True)
        rates[kind] = (found.tallies.get("updates", 0) - started) / (time.monotonic() - begin)
        add(counts, **{f"updates of {kind}": found.tallies.get("updates", 0)})
        if kind == "pac-man":
            add(counts, swallowed=found.tallies.get("swallowed", 0), created=found.tallies.get("created", 0))
            counts["longest_silence_s"] = max(counts.get("longest_silence_s", 0.0), round(longest, 1))
            if not rates[kind]:
                counts.setdefault("faults", []).append(f"hostile, seed {seed}: learning stopped")
            continue
        if kind != "garbler":
            note(counts, found, f"{kind}, seed {seed}")
        elif found.lost or found.doubled:
            counts.setdefault("faults", []).append(f"garbler, seed {seed}: {found.lost} lost, {found.doubled} doubled")
        if kind == "replayer":
            add(counts, replays=found.tallies.get("replayed", 0), applied_twice=found.doubled)
    for kind in ("garbler", "replayer", "pac-man"):
        counts.setdefault(f"update_rate_under_{kind}", []).append(round(rates[kind] / rates["clean"], 2))
    add(counts, runs=1)


def damage(counts: Counts, folder: Path, seed: int) -> None:
    """T12: bits flipped in what lies on a stopped node's disk; it must be noticed, counted and never passed on."""
    import sqlite3

    where = folder / f"damage-{seed}"
    with ChaosCluster(where, SPEC, updates=10**9, late=60.0, hop=0.02, limits=QUICK) as cluster:
        for number in range(5):
            cluster.start_all()
            cluster.run_until(_created(number), timeout_s=30)
            time.sleep(1)
            cluster.kill_all()
            for name in cluster.names:
                database = sqlite3.connect(where / name / "state" / "spool.db")
                cluster.counts["damaged"] += database.execute(
                    "UPDATE message SET bytes = zeroblob(length(bytes)) WHERE bytes != zeroblob(length(bytes))"
                ).rowcount
                database.commit()
                database.close()
        cluster.start_all()
        alive = cluster.run_until(_created(5), timeout_s=60)
        cluster.kill_all()
        found = cluster.findings(may_fork=True, walks=99)
    add(counts, damaged=cluster.counts["damaged"], noticed=found.tallies.get("damaged", 0))
    # One that its receiver has already is acknowledged again, and goes without being looked at.
    if not alive or not found.tallies.get("damaged", 0):
        counts.setdefault("faults", []).append(f"damage, seed {seed}: {found.tallies}")
    shutil.rmtree(where)


def mutants(counts: Counts, folder: Path, seed: int) -> None:
    """T13: nodes that are wrong must be caught by the same checks."""
    caught = counts.setdefault("caught", {})
    for name in ("ack-before-commit", "unpinned-hop"):
        caught[name] = caught.get(name) or _caught_by_kills(folder / f"mutant-{name}", name, seed)
    caught["no-dedup"] = caught.get("no-dedup") or _caught_by_copies(folder / "mutant-no-dedup", seed)
    for name, disk in (("no-fsync-of-files", power_loss.UnsyncedDisk), ("no-fsync-of-commits", power_loss.LazyDisk)):
        caught[name] = bool(power_loss.campaign(cuts=400, seed=2, cuts_per_world=100, disk=disk)[1])
    add(counts, runs=1)
    missed = [name for name, found in caught.items() if not found]
    if missed:
        counts.setdefault("faults", []).append(f"not caught: {', '.join(missed)}")


def _caught_by_kills(where: Path, mutant: str, seed: int) -> bool:
    shutil.rmtree(where, ignore_errors=True)
    with ChaosCluster(where, SPEC, updates=10**9, failpoints="*=0.05", mutant=mutant, limits=QUICK) as cluster:
        for number in range(10):
            cluster.start_all()
            cluster.suffer(4, lambda dice: cluster.kill(dice.choice(cluster.names)), every_s=0.15, seed=seed + number)
            cluster.kill_all()
            if cluster.findings().faults:
                return True
    return False


def _caught_by_copies(where: Path, seed: int) -> bool:
    shutil.rmtree(where, ignore_errors=True)
    with ChaosCluster(where, SPEC, updates=10**9, mutant="no-dedup", limits=IMPATIENT) as cluster:
        for number in range(5):
            cluster.start_all()
            cluster.suffer(
                8, lambda dice: cluster.pause(dice.choice(cluster.names), 2.0), every_s=0.2, seed=seed + number
            )
            cluster.kill_all()
            if cluster.findings(may_fork=True).faults:
                return True
    return False


def _created(count: int) -> Callable[[Findings], bool]:
    return lambda found: found.tallies.get("created", 0) >= count and found.live > 0


def _finish(cluster: ChaosCluster) -> bool:
    return cluster.run_until(lambda found: found.finished == len(cluster.names) and found.live == 0, timeout_s=120)


def _longest_silence(cluster: ChaosCluster, seconds: float) -> float:
    """Watch for so long; return the longest time without an update."""
    end, last, count, longest = time.monotonic() + seconds, time.monotonic(), -1, 0.0
    while time.monotonic() < end:
        time.sleep(0.1)
        cluster.tend()
        found = cluster.findings(may_fork=True).tallies.get("updates", 0)
        if found != count:
            longest, last, count = max(longest, time.monotonic() - last), time.monotonic(), found
    return max(longest, time.monotonic() - last)


#: Name, what it is, the stage, what it counts towards, and how much of it the whole campaign wants.
STAGES: dict[str, tuple[Callable[[Counts, Path, int], None], str, float]] = {
    "T1": (kills, "kills", 10_000),
    "T2": (whole_kills, "whole_kills", 500),
    "T3": (pauses, "pauses", 2_000),
    "T4": (power, "cuts", 100_000),
    "T5": (network, "hops", 100_000),
    "T6": (fuzz, "executions", 10_000_000),
    "T8": (anonymity, "runs", 1),
    "T9": (hostile, "runs", 3),
    "T12": (damage, "damaged", 20),
    "T13": (mutants, "runs", 1),
}
