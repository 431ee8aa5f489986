"""Stages of the campaign in which somebody attacks, or a node is wrong: fuzzing, colluders, hostile members, mutants.

Each does a slice of its work and adds to its counts.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from tests.campaigns import active_probes, campaign_anonymity, campaign_slots, power_loss
from tests.campaigns.campaign_counts import IMPATIENT, QUICK, SPEC, Counts, add, network_of, note
from tests.campaigns.chaos import OWN_CODE, ChaosCluster
from tests.campaigns.chaos_checker import ends
from tests.campaigns.forgetful_disk import BootlessDisk, LazyDisk, UnsyncedDisk
from veilwalk.core.arrays import FloatArray
from veilwalk.core.support import DistanceSupport
from veilwalk.design import DistanceLaw
from veilwalk.graphs import Graph, parse_graph_spec
from veilwalk.node.cluster import node_ids

# Coalitions of each size that attack a run.
_COALITIONS = 40
FUZZ_TARGETS = ("header", "roster", "manifest", "model")
_FUZZ_ENVIRONMENT = {"PYTHONPATH": OWN_CODE, "PATH": ""}


def fuzz(counts: Counts, folder: Path, seed: int) -> None:
    """T6: parsers, coverage-guided; the wire, which is quick, for as long as all the others take together."""
    where = folder / "fuzz"
    where.mkdir(parents=True, exist_ok=True)
    begin = ["-m", "tests.campaigns.fuzz_node", "wire", f"-seed={seed}", "-max_total_time=120"]
    wire = subprocess.Popen(
        [sys.executable, *begin], cwd=where, env=_FUZZ_ENVIRONMENT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    for target in FUZZ_TARGETS:
        limits = ["-runs=100000", f"-seed={seed}", "-max_total_time=30"]
        ended = subprocess.run(
            [sys.executable, "-m", "tests.campaigns.fuzz_node", target, *limits],
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
    """T8: colluders' guesses on a real network beside the exact prediction, and training told by time.

    The prediction is the one for a single recipient; with several the guesses are left to the auditor, and the slots
    of every message are opened with everybody's keys instead: their places must say nothing.
    """
    several = counts.get("recipients", 1) > 1
    network = network_of(counts) if several else {"spec": "rrg:16:3:seed=1"}
    graph = parse_graph_spec(network["spec"])
    where = folder / "anonymity"
    shutil.rmtree(where, ignore_errors=True)
    with ChaosCluster(where, **network, updates=400 if several else 1500, mutant="watched", limits=QUICK) as cluster:
        cluster.start_all()
        cluster.run_until(ends(), timeout_s=360)
        cluster.stop_all()
    if several:
        places, hints = campaign_slots.slot_chances(where, cluster.names)
        counts |= {"slot_places_p": round(places, 3), "hints_p": round(hints, 3)}
        if min(places, hints) < 0.001:
            counts.setdefault("faults", []).append(f"slots: places by chance with p {places:.2g}, hints {hints:.2g}")
    else:
        law = DistanceLaw(DistanceSupport(2, 2), np.ones(1)).place_on(graph).matrix.toarray()
        _attacks(counts, where, cluster.names, graph, law)
    lengths, uniform = campaign_anonymity.frames(where, cluster.names, recipients=counts.get("recipients", 1))
    counts |= {"frame_lengths": len(lengths), "uniform_bytes_p": round(uniform, 3)}
    if len(lengths) != 1 or uniform < 0.001:
        counts.setdefault("faults", []).append(f"frames: lengths {sorted(lengths)}, bytes uniform with p {uniform:.2g}")
    for name, dwell, seconds in (("no_dwell", 0.0, 10), ("dwell", 0.15, 240)):
        auc, error, trained = _timing(counts, folder, name, dwell, seconds)
        counts[f"auc_{name}"] = {
            "auc": round(auc, 3),
            "half_of_95%_interval": round(1.96 * error, 3),
            "trained": trained,
        }
        # Who finds that training shows the other way round turns the guess round.
        if dwell and not max(auc, 1 - auc) - 1.96 * error <= 0.52:
            counts.setdefault("faults", []).append(f"time tells training from relaying: AUC {auc:.3f}, seed {seed}")
    if not several:
        active_probes.add_row(counts, folder, seed)
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


def _timing(counts: Counts, folder: Path, name: str, dwell: float, seconds: float) -> tuple[float, float, int]:
    """Let small networks train side by side for so long; return how well time tells that from relaying."""
    folders = [folder / f"timing-{name}-{index}" for index in range(6 if dwell else 1)]
    with contextlib.ExitStack() as stack:
        clusters = []
        for where in folders:
            shutil.rmtree(where, ignore_errors=True)
            network = network_of(counts, "ring:4")
            made = ChaosCluster(where, **network, updates=10**9, mutant="watched", dwell=dwell, limits=QUICK)
            clusters.append(stack.enter_context(made))
            made.start_all()
        time.sleep(seconds)
        for cluster in clusters:
            cluster.stop_all()
    return campaign_anonymity.rank_auc(folders, clusters[0].names)


def hostile(counts: Counts, folder: Path, seed: int) -> None:
    """T9: members that replay or send garbage, beside a clean run of the same length; nothing dwells."""
    rates = {}
    network, several = network_of(counts), counts.get("recipients", 1) > 1
    member = node_ids(parse_graph_spec(network["spec"]).n_nodes)[3]
    for kind in ("clean", "garbler", "replayer"):
        where = folder / f"hostile-{kind}"
        shutil.rmtree(where, ignore_errors=True)
        bad = {} if kind == "clean" else {member: kind}
        with ChaosCluster(where, **network, updates=10**9, hostile=bad, limits=QUICK) as cluster:
            cluster.start_all()
            cluster.run_until(lambda found: found.updates >= 1, timeout_s=30)
            started, begin = cluster.findings().tallies.get("updates", 0), time.monotonic()
            live = _watch(cluster, 30)
            cluster.kill_all()
            found = cluster.findings(may_fork=True)
            rates[kind] = (found.tallies.get("updates", 0) - started) / (time.monotonic() - begin)
            if kind == "replayer" and several:
                _count_forks(counts, cluster, live, seed)
        add(counts, **{f"updates of {kind}": found.tallies.get("updates", 0)})
        if kind == "clean" or (kind == "replayer" and not several):
            note(counts, found, f"{kind}, seed {seed}")
        elif kind == "garbler" and (found.lost or found.doubled):
            counts.setdefault("faults", []).append(f"garbler, seed {seed}: {found.lost} lost, {found.doubled} doubled")
        if kind == "replayer":
            add(counts, replays=found.tallies.get("replayed", 0))
            if not several:
                add(counts, applied_twice=found.doubled)
    for kind in ("garbler", "replayer"):
        counts.setdefault(f"update_rate_under_{kind}", []).append(round(rates[kind] / rates["clean"], 2))
    add(counts, runs=1)


def _watch(cluster: ChaosCluster, seconds: float) -> list[int]:
    """Return how many messages walked at each look."""
    end, live = time.monotonic() + seconds, []
    while time.monotonic() < end:
        time.sleep(0.1)
        cluster.tend()
        live.append(cluster.findings(may_fork=True).live)
    return live


def _count_forks(counts: Counts, cluster: ChaosCluster, live: list[int], seed: int) -> None:
    """How many branches lived while a member copied everything, and how long they do when it stops."""
    copied = cluster.findings(may_fork=True)
    cluster.hostile = {}
    cluster.start_all()
    # By hops, not by time: the machine may be busy.
    alone = cluster.run_until(lambda found: found.live <= 1 or found.hops > copied.hops + 2000, timeout_s=600)
    cluster.kill_all()
    after = cluster.findings(may_fork=True)
    add(counts, branches_given_up=copied.tallies.get("forks", 0))
    counts["branches_at_once"] = {"most": max(live), "mean": round(float(np.mean(live)), 1)}
    counts["when_the_copying_ends"] = {
        "branches": copied.live,
        "hops_until_one_is_left": after.hops - copied.hops,
    }
    if not alone or after.live != 1:
        counts.setdefault("faults", []).append(f"replayer, seed {seed}: {after.live} branches left")


def mutants(counts: Counts, folder: Path, seed: int) -> None:
    """T13: nodes that are wrong must be caught by the same checks."""
    caught = counts.setdefault("caught", {})
    network = network_of(counts)
    for name in ("ack-before-commit", "unpinned-hop"):
        caught[name] = caught.get(name) or _caught_by_kills(folder / f"mutant-{name}", name, network, seed)
    name = "use-before-given"
    caught[name] = caught.get(name) or _caught_by_pauses(folder / f"mutant-{name}", name, network, seed)
    caught["no-dedup"] = caught.get("no-dedup") or _caught_by_copies(folder / "mutant-no-dedup", seed)
    disks = {"no-fsync-of-files": UnsyncedDisk, "no-fsync-of-commits": LazyDisk, "power-cut-unknown": BootlessDisk}
    for name, disk in disks.items():
        caught[name] = bool(power_loss.campaign(cuts=1000, seed=2, cuts_per_world=100, disk=disk, until_fault=True)[1])
    for name in ("hop-counter", "unpadded"):
        caught[name] = _caught_by_watching(folder / f"mutant-{name}", f"{name}+watched")
    for name in ("set-in-clear", "fixed-order"):
        caught[name] = _caught_by_slots(folder / f"mutant-{name}", f"{name}+watched")
    add(counts, runs=1)
    missed = [name for name, found in caught.items() if not found]
    if _caught_by_watching(folder / "mutant-none", "watched") or _caught_by_slots(folder / "mutant-no", "watched"):
        counts.setdefault("faults", []).append("a cluster without a mutant was taken for one")
    if missed:
        counts.setdefault("faults", []).append(f"not caught: {', '.join(missed)}")


def _caught_by_pauses(where: Path, mutant: str, network: Counts, seed: int) -> bool:
    shutil.rmtree(where, ignore_errors=True)
    # With one recipient a copy ends at the same member as the message, and no harm is done.
    network = network | {"recipients": max(5, network["recipients"])}
    with ChaosCluster(where, **network, updates=10**9, mutant=mutant, limits=IMPATIENT) as cluster:
        for number in range(10):
            cluster.begin()
            cluster.suffer(
                40, lambda dice: cluster.pause(dice.choice(cluster.names), 1.5), every_s=0.1, seed=seed + number
            )
            cluster.kill_all()
            if cluster.findings().faults:
                return True
    return False


def _caught_by_slots(where: Path, mutant: str) -> bool:
    """Whether places or hints of slots tell whose they are, where all are recipients that are far enough."""
    shutil.rmtree(where, ignore_errors=True)
    with ChaosCluster(where, SPEC, recipients=5, updates=10**9, mutant=mutant, limits=QUICK) as cluster:
        cluster.start_all()
        cluster.run_until(lambda found: found.tallies.get("updates", 0) >= 100, timeout_s=20)
        cluster.stop_all()
    return min(campaign_slots.slot_chances(where, cluster.names)) < 1e-6


def _caught_by_kills(where: Path, mutant: str, network: Counts, seed: int) -> bool:
    shutil.rmtree(where, ignore_errors=True)
    with ChaosCluster(where, **network, updates=10**9, failpoints="*=0.05", mutant=mutant, limits=QUICK) as cluster:
        for number in range(10):
            cluster.begin()
            cluster.suffer(27, lambda dice: cluster.kill(dice.choice(cluster.names)), every_s=0.15, seed=seed + number)
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
