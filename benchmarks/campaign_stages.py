"""The stages of the reliability campaign: each does a slice of its work and adds to its counts."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import campaign_anonymity, power_loss
from benchmarks.chaos import ROOT, ChaosCluster
from benchmarks.chaos_checker import Findings
from benchmarks.chaos_damage import Hurt, broken, hurt_messages, still_there

from veilwalk.core.arrays import FloatArray
from veilwalk.core.support import DistanceSupport
from veilwalk.design import DistanceLaw
from veilwalk.graphs import Graph, parse_graph_spec
from veilwalk.node import Limits

Counts = dict[str, Any]
SPEC = "rrg:10:4:seed=1"
QUICK = Limits(retry_s=0.2, connect_s=1.0, answer_s=1.5, ping_s=1.0)
IMPATIENT = Limits(pin_s=0.5, retry_s=0.1, connect_s=0.5, answer_s=0.5, ping_s=0.5)
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
    "cancelling": {"cancel.before_commit": 0.5},
    "finishing": {"finish.before_commit": 0.4, "finish.committed": 1.0},
}
# Coalitions of each size that attack a run.
_COALITIONS = 40
FUZZ_TARGETS = ("header", "roster", "manifest", "model")
_FUZZ_ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PATH": ""}


def add(counts: Counts, **amounts: float) -> None:
    """Add to counts."""
    for name, amount in amounts.items():
        counts[name] = counts.get(name, 0) + amount


def note(counts: Counts, found: Findings, what: str) -> None:
    """Add a check's findings."""
    add(counts, checks=1, lost=found.lost, doubled=found.doubled)
    counts.setdefault("faults", []).extend(f"{what}: {fault}" for fault in found.faults)


def kills(counts: Counts, folder: Path, seed: int) -> None:
    """T1: kills from outside and at failpoints, a minute at a time; then all are killed and their disks checked.

    While some failpoints have had less than their share, every slice aims at those.
    """
    by_point = counts.setdefault("by_failpoint", {})
    for aim, points in AIMS.items():
        if min(by_point.get(point, 0) for point in points) < 200:
            _kills_at(counts, folder, aim, seed)
            return
    _kills_at(counts, folder, "anywhere", seed)


def _kills_at(counts: Counts, folder: Path, aim: str, seed: int) -> None:
    """One slice of T1: several clusters side by side, killed where ``aim`` says."""
    plans: dict[str, dict[str, Any]] = {
        "anywhere": {"spec": SPEC, "failpoints": "*=0.05"},
        "training": {"spec": "ring:4", "dwell": 0.02, "failpoints": _armed("training")},
        "cancelling": {"spec": "ring:4", "failpoints": _armed("cancelling"), "limits": RESTLESS},
        "finishing": {"spec": SPEC, "updates": 1, "failpoints": _armed("finishing")},
    }
    plan: dict[str, Any] = {"updates": 10**9, "limits": QUICK} | plans[aim]
    end = time.monotonic() + 55
    while time.monotonic() < end:
        clusters = [
            ChaosCluster(folder / (f"kills-{aim}-{index}" if aim != "anywhere" else "kills"), **plan)
            for index in range(1 if aim == "anywhere" else 4)
        ]
        before = [(cluster.findings(may_fork=True), cluster.failpoint_kills()) for cluster in clusters]
        _suffer_together(clusters, aim, end, seed)
        for cluster, (found_before, points_before) in zip(clusters, before, strict=True):
            found = cluster.findings(may_fork=aim == "cancelling")
            note(counts, found, f"kills {aim}, seed {seed}")
            points = cluster.failpoint_kills() - points_before
            for point, times in points.items():
                counts["by_failpoint"][point] = counts["by_failpoint"].get(point, 0) + times
            add(
                counts,
                kills=cluster.counts["ended -9"],
                at_failpoints=points.total(),
                hops=found.hops - found_before.hops,
                updates=found.updates - found_before.updates,
            )
            if found.finished:
                shutil.rmtree(cluster.folder)


def _suffer_together(clusters: list[ChaosCluster], aim: str, end: float, seed: int) -> None:
    """Hurt clusters at once until ``end``, or, where that is hurt, until all are done; then kill all nodes."""
    dice = random.Random(seed)  # noqa: S311  which node to hurt is no secret
    # The finished model is on its way to all as several messages, which no count of walks allows for.
    end = time.monotonic() + 60 if aim == "finishing" else end
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
            if aim == "finishing" and all(_is_finished(cluster, cluster.findings()) for cluster in clusters):
                break
        for cluster in clusters:
            cluster.kill_all()


def _armed(aim: str) -> str:
    return ",".join(f"{point}={chance}" for point, chance in AIMS[aim].items())


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
    clusters = [
        ChaosCluster(folder / f"pauses-{seed}-{index}", SPEC, updates=150, limits=IMPATIENT) for index in range(3)
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
        found = cluster.findings(may_fork=True)
        note(counts, found, f"pauses, seed {seed}")
        tallies = found.tallies
        add(
            counts,
            pauses=cluster.counts["pauses"],
            rerouted=tallies.get("rerouted", 0),
            copies_dropped=max(0, tallies.get("duplicates", 0) - tallies.get("farewells", 0)),
            hops=found.hops,
        )
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
    """T6: parsers, coverage-guided; the wire, which is quick, for as long as all the others take together."""
    where = folder / "fuzz"
    where.mkdir(parents=True, exist_ok=True)
    begin = ["-m", "benchmarks.fuzz_node", "wire", f"-seed={seed}", "-max_total_time=120"]
    wire = subprocess.Popen(
        [sys.executable, *begin], cwd=where, env=_FUZZ_ENVIRONMENT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    for target in FUZZ_TARGETS:
        limits = ["-runs=100000", f"-seed={seed}", "-max_total_time=30"]
        ended = subprocess.run(
            [sys.executable, "-m", "benchmarks.fuzz_node", target, *limits],
            cwd=where,
            env=_FUZZ_ENVIRONMENT,
            capture_output=True,
            check=False,
        )
        _fuzzed(counts, target, seed, ended.returncode, ended.stderr)
    _, errors = wire.communicate()
    _fuzzed(counts, "wire", seed, wire.returncode, errors)


def _fuzzed(counts: Counts, target: str, seed: int, status: int, output: bytes) -> None:
    done = [line for line in output.splitlines() if line.startswith(b"Done ")]
    if status or not done:
        said = output[-300:].decode(errors="replace")
        counts.setdefault("faults", []).append(f"fuzz {target}, seed {seed}: {said}")
        return
    executions = int(done[0].split()[1])
    add(counts, executions=executions, **{target: executions})


def anonymity(counts: Counts, folder: Path, seed: int) -> None:
    """T8: colluders' guesses on a real network beside the exact prediction, and training told by time."""
    spec = "rrg:16:3:seed=1"
    graph = parse_graph_spec(spec)
    law = DistanceLaw(DistanceSupport(2, 2), np.ones(1)).on(graph).matrix.toarray()
    where = folder / "anonymity"
    shutil.rmtree(where, ignore_errors=True)
    with ChaosCluster(where, spec, updates=1500, mutant="watched", limits=QUICK) as cluster:
        cluster.start_all()
        cluster.run_until(lambda found: found.finished == graph.n_nodes and found.live == 0, timeout_s=360)
        cluster.stop_all()
    _attacks(counts, where, cluster.names, graph, law)
    lengths, uniform = campaign_anonymity.frames(where, cluster.names)
    counts |= {"frame_lengths": len(lengths), "uniform_bytes_p": round(uniform, 3)}
    if len(lengths) != 1 or uniform < 0.001:
        counts.setdefault("faults", []).append(f"frames: lengths {sorted(lengths)}, bytes uniform with p {uniform:.2g}")
    for name, dwell, seconds in (("no_dwell", 0.0, 10), ("dwell", 0.15, 240)):
        auc, error, trained = _timing(folder, name, dwell, seconds)
        counts[f"auc_{name}"] = {
            "auc": round(auc, 3),
            "half_of_95%_interval": round(1.96 * error, 3),
            "trained": trained,
        }
        if dwell and not auc - 1.96 * error <= 0.52:
            counts.setdefault("faults", []).append(f"time tells training from relaying: AUC {auc:.3f}, seed {seed}")
    add(counts, runs=1)


def _attacks(counts: Counts, where: Path, names: list[str], graph: Graph, law: FloatArray) -> None:
    """Let many coalitions attack one run: a single one may be lucky, the mean of all may not.

    Coalitions share the run's updates, so their deviations are not independent: were they one and the same, a mean of
    more than 2 would come once in 22 runs.
    """
    dice = random.Random(1)  # noqa: S311  who colludes is no secret
    for kind, size in itertools.product(("first_sight", "bridge"), (1, 2, 4)):
        coalitions = {tuple(sorted(dice.sample(range(graph.n_nodes), size))) for _ in range(_COALITIONS)}
        found = [
            campaign_anonymity.attack(where, names, graph, law, one, bridge=kind == "bridge")
            for one in sorted(coalitions)
        ]
        mean = float(np.mean([one.z for one in found]))
        counts[f"{kind}_{size}_colluders"] = {
            "coalitions": len(found),
            "updates": sum(one.updates for one in found),
            "named": sum(one.hits for one in found),
            "predicted": round(sum(one.predicted for one in found), 1),
            "mean_deviation": round(mean, 2),
            "spread_of_deviations": round(float(np.std([one.z for one in found])), 2),
            "blind": round(sum(one.blind for one in found), 1),
        }
        if abs(mean) > 2:
            counts.setdefault("faults", []).append(f"{kind}, {size} colluders: {mean:.1f} deviations off on average")


def _timing(folder: Path, name: str, dwell: float, seconds: float) -> tuple[float, float, int]:
    """Let small networks train side by side for so long; return how well time tells that from relaying."""
    folders = [folder / f"timing-{name}-{index}" for index in range(6 if dwell else 1)]
    with contextlib.ExitStack() as stack:
        clusters = []
        for where in folders:
            shutil.rmtree(where, ignore_errors=True)
            made = ChaosCluster(where, "ring:4", updates=10**9, mutant="watched", dwell=dwell, limits=QUICK)
            clusters.append(stack.enter_context(made))
            made.start_all()
        time.sleep(seconds)
        for cluster in clusters:
            cluster.stop_all()
    return campaign_anonymity.rank_auc(folders, clusters[0].names)


def hostile(counts: Counts, folder: Path, seed: int) -> None:
    """T9: members that swallow, replay or send garbage, beside a clean run of the same length; nothing dwells."""
    rates = {}
    for kind in ("clean", "garbler", "replayer", "pac-man"):
        where = folder / f"hostile-{kind}"
        shutil.rmtree(where, ignore_errors=True)
        bad = {} if kind == "clean" else {"n3": kind}
        late = 60.0 if kind == "pac-man" else 1e9
        with ChaosCluster(where, SPEC, updates=10**9, hostile=bad, limits=QUICK, late=late) as cluster:
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
    """T12: what lies on a stopped node's disk is damaged; each must be noticed and counted, and none passed on.

    A message that the next node had already when the disk went bad is noticed too, but nothing is lost with it.
    """
    where = folder / f"damage-{seed}"
    dice = random.Random(seed)  # noqa: S311  what to damage is no secret
    counts.setdefault("faults", [])
    with ChaosCluster(where, SPEC, updates=10**9, late=60.0, hop=0.02, limits=QUICK) as cluster:
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


def mutants(counts: Counts, folder: Path, seed: int) -> None:
    """T13: nodes that are wrong must be caught by the same checks."""
    caught = counts.setdefault("caught", {})
    for name in ("ack-before-commit", "unpinned-hop"):
        caught[name] = caught.get(name) or _caught_by_kills(folder / f"mutant-{name}", name, seed)
    caught["no-dedup"] = caught.get("no-dedup") or _caught_by_copies(folder / "mutant-no-dedup", seed)
    for name, disk in (("no-fsync-of-files", power_loss.UnsyncedDisk), ("no-fsync-of-commits", power_loss.LazyDisk)):
        caught[name] = bool(power_loss.campaign(cuts=400, seed=2, cuts_per_world=100, disk=disk)[1])
    for name in ("hop-counter", "unpadded"):
        caught[name] = _caught_by_watching(folder / f"mutant-{name}", f"{name}+watched")
    add(counts, runs=1)
    missed = [name for name, found in caught.items() if not found]
    if _caught_by_watching(folder / "mutant-none", "watched"):
        counts.setdefault("faults", []).append("a cluster without a mutant was taken for one")
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
    """Among nodes that train on whatever opens, one that sends everything three times."""
    del seed
    shutil.rmtree(where, ignore_errors=True)
    bad = {"n3": "no-dedup+replayer"}
    with ChaosCluster(where, SPEC, updates=10**9, mutant="no-dedup", hostile=bad, limits=QUICK) as cluster:
        for _ in range(5):
            cluster.start_all()
            cluster.run_until(lambda found: found.tallies.get("replayed", 0) >= 20, timeout_s=10)
            cluster.kill_all()
            if cluster.findings(may_fork=True).faults:
                return True
    return False


def _caught_by_watching(where: Path, mutant: str) -> bool:
    """Whether messages stop, are lost, differ in length or change between two hops."""
    shutil.rmtree(where, ignore_errors=True)
    with ChaosCluster(where, SPEC, updates=10**9, mutant=mutant, limits=QUICK) as cluster:
        cluster.start_all()
        walks_on = cluster.run_until(lambda found: found.tallies.get("updates", 0) >= 30, timeout_s=10)
        cluster.stop_all()
        faults = cluster.findings(may_fork=True).faults
    lengths, _ = campaign_anonymity.frames(where, cluster.names)
    return bool(faults or not walks_on or len(lengths) > 1 or campaign_anonymity.strangers(where, cluster.names))


def _none_left(folder: Path, hurt: list[Hurt]) -> Callable[[Findings], bool]:
    return lambda _: not still_there(folder, hurt)


def _more_updates(before: Findings) -> Callable[[Findings], bool]:
    return lambda found: found.tallies.get("updates", 0) > before.tallies.get("updates", 0)


def _finish(cluster: ChaosCluster) -> bool:
    return cluster.run_until(lambda found: _is_finished(cluster, found), timeout_s=120)


def _is_finished(cluster: ChaosCluster, found: Findings) -> bool:
    return found.finished == len(cluster.names) and found.live == 0


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
