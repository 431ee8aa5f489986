"""Stages of the campaign in which members are away, flood, or swallow, all under the rules that ``cluster up`` writes.

Each does a slice of its work and adds to its counts.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.campaigns.campaign_counts import IMPATIENT, QUICK, SPEC, Counts, add, network_of, note, tally
from tests.campaigns.chaos import ChaosCluster
from tests.campaigns.chaos_attackers import CALM
from tests.campaigns.chaos_checker import Findings
from veilwalk.node import Limits
from veilwalk.node.cluster import node_ids

# The network in which one member of thirty swallows.
_THIRTY = "rrg:30:3:seed=1"
#: 10 MiB of numbers beside the counts.
TEN_MIB = 10 * 1024 * 1024 // 8
_AWAY_S = 20.0
_DWELL_S = 0.05
_SLICE_S = 20.0
_HURTS: dict[str, dict[str, Any]] = {
    "kills": {"failpoints": "*=0.02", "limits": QUICK},
    "pauses": {"limits": IMPATIENT},
    "network": {"faults": {}, "limits": QUICK},
}


def flood(counts: Counts, folder: Path, seed: int) -> None:
    """T14: one member hands garbage on as fast as it is taken, then stops; nobody else is started again."""
    for name, dwell in (("no_dwell", 0.0), ("dwell", _DWELL_S)):
        where = folder / f"flood-{name}"
        shutil.rmtree(where, ignore_errors=True)
        with _running(where, counts, dwell=dwell, hostile={3: "flooder"}, calm=True) as cluster:
            clean = _rate(cluster, _SLICE_S)
            (where / CALM).unlink()
            # The flooder is started anew: it looks for the word only when it begins.
            cluster.kill(_third(cluster))
            during = _rate(cluster, _SLICE_S)
            held = cluster.findings(may_fork=True).live
            (where / CALM).touch()
            after, seconds = _recovery(cluster, 0.8 * clean)
            cluster.kill_all()
            found = cluster.findings(may_fork=True)
        counts.setdefault(f"flood_{name}", []).append(
            {
                "updates_a_second_before": round(clean, 1),
                "during": round(during, 1),
                "after": round(after, 1),
                "seconds_until_four_fifths": round(seconds),
                "messages_held": held,
            }
        )
        add(counts, garbage=found.tallies.get("garbage", 0))
        tally(counts, found)
        if after < 0.8 * clean:
            counts.setdefault("faults", []).append(f"flood {name}, seed {seed}: {after:.1f} updates/s of {clean:.1f}")
    add(counts, runs=1)


def outages(counts: Counts, folder: Path, seed: int) -> None:
    """T15: a member is away for 20 s three times, with its disk and, the first time, the walk: killed, then stopped.

    Messages dwell. Updates made while it is away are counted: that nothing is lost says little of a run that stands.
    """
    for how in ("kill", "stop"):
        where = folder / f"outage-{how}-{seed}"
        shutil.rmtree(where, ignore_errors=True)
        with _running(where, counts, dwell=_DWELL_S) as cluster:
            for number in range(3):
                name = _strike(cluster, how, with_walk=number == 0)
                before = _made(cluster)
                time.sleep(_AWAY_S)
                with_walk = "with_the_walk" if number == 0 else "without_it"
                add(counts, **{f"updates_while_away_{with_walk}": _made(cluster) - before})
                cluster.bring_back(name)
                cluster.run_until(_goes_on(cluster.findings(may_fork=True)), timeout_s=60)
            cluster.kill_all()
            found = cluster.findings()
        note(counts, found, f"outage by {how}, seed {seed}")
        tally(counts, found)
        add(counts, outages=3, updates=found.tallies.get("updates", 0), discarded=found.tallies.get("discarded", 0))
        shutil.rmtree(where)


def one_down(counts: Counts, folder: Path, seed: int) -> None:
    """T16: updates a second before and while one member is down that took no walk with it (T15 has those that did)."""
    where = folder / f"down-{seed}"
    shutil.rmtree(where, ignore_errors=True)
    with _running(where, counts, limits=Limits()) as cluster:
        before = _rate(cluster, _SLICE_S)
        name = _third(cluster)
        cluster.take_down(name, kill=False)
        while cluster.has_walk(name):
            cluster.bring_back(name)
            time.sleep(0.05)
            cluster.take_down(name, kill=False)
        cluster.take_down(name)
        down = _rate(cluster, 2 * _SLICE_S)
        cluster.bring_back(name)
        cluster.run_until(_goes_on(cluster.findings(may_fork=True)), timeout_s=60)
        cluster.kill_all()
        found = cluster.findings()
    note(counts, found, f"one down, seed {seed}")
    tally(counts, found)
    add(counts, runs=1)
    pair = {"before": round(before, 1), "while_one_is_down": round(down, 1), "share": round(down / before, 2)}
    counts.setdefault("updates_a_second", []).append(pair)
    shutil.rmtree(where)


def pac_man(counts: Counts, folder: Path, seed: int) -> None:
    """T17: one member of thirty swallows all it is given, with and without garbage in its place; hops of 0.05 s.

    Once with the rules of ``cluster up``, once with lateness by chance alone and a false alarm in 1,000 hops, and so
    with four and twelve walks; shares are of what one walk does in the clean network.
    """
    clean = 0.0
    shorter: dict[str, Any] = {"away": 0.0, "alarm_hops": 1e3}
    ways: dict[str, dict[str, Any]] = {
        "": {},
        " by shorter lateness": shorter,
        " with four walks": shorter | {"walks": 4},
        " with twelve walks": shorter | {"walks": 12},
    }
    runs = [
        (kind, how, rules)
        for how, rules in ways.items()
        for kind in ("clean", "swallower", "decoy")
        if (kind, rules) != ("clean", shorter)
    ]
    for kind, how, rules in runs:
        name = (kind + how).replace(" ", "_")
        where = folder / f"pac-man-{name}"
        shutil.rmtree(where, ignore_errors=True)
        bad = {} if kind == "clean" else {3: kind}
        with _running(where, counts, spec=_THIRTY, dwell=_DWELL_S, hostile=bad, **rules) as cluster:
            rate, silence = _rate_and_silence(cluster, _SLICE_S * (1 if kind == "clean" else 5 if rules else 9))
            cluster.kill_all()
            found = cluster.findings(may_fork=True)
        clean = clean or rate
        counts.setdefault(name, []).append(
            {
                "updates_a_second": round(rate, 2),
                "share": round(rate / clean, 3),
                "longest_silence_s": round(silence),
                "walks_made": found.tallies.get("created", 0),
                "swallowed": found.tallies.get("swallowed", 0),
            }
        )
        shutil.rmtree(where)
    add(counts, runs=1)
    del seed


def large(counts: Counts, folder: Path, seed: int) -> None:
    """T18: messages of 10 MiB, in files: kills, then pauses, then a bad network."""
    for how, plan in _HURTS.items():
        network = network_of(counts, "rrg:6:3:seed=1")
        _hurt(counts, folder / f"large-{how}", how, seed, **network, padding=TEN_MIB, **plan)
    add(counts, runs=1)


def dwelling(counts: Counts, folder: Path, seed: int) -> None:
    """T19: kills and pauses where messages dwell at every node, as in a real run, in files and in rows."""
    for how, padding in (("kills", 0), ("kills", 60_000), ("pauses", 0)):
        plan = network_of(counts) | {"padding": padding, "dwell": _DWELL_S} | _HURTS[how]
        _hurt(counts, folder / f"dwelling-{how}-{padding}", how, seed, **plan)
    add(counts, runs=1)


def _hurt(counts: Counts, where: Path, how: str, seed: int, **plan: Any) -> None:
    """Let one cluster suffer for half a minute; then all are killed and their disks checked, and kept after a fault."""
    dice = random.Random(seed)  # noqa: S311  which node to hurt is no secret
    shutil.rmtree(where, ignore_errors=True)
    with ChaosCluster(where, updates=10**9, **plan) as cluster:
        cluster.begin()
        end = time.monotonic() + 1.5 * _SLICE_S
        while time.monotonic() < end:
            time.sleep(0.5 * dice.uniform(0.5, 1.5))
            name = dice.choice(cluster.names)
            if how == "kills":
                cluster.kill(name)
            elif how == "pauses":
                cluster.pause(name, dice.choice((0.3, 1.0, 3.0)) * dice.random())
            else:
                cluster.partition(dice.sample(cluster.names, dice.choice((0, 0, 0, 1))))
            cluster.tend()
        hurt = cluster.counts["ended -9"] if how == "kills" else cluster.counts[how]
        cluster.kill_all()
        found = cluster.findings()
    note(counts, found, f"{where.name}, seed {seed}")
    tally(counts, found)
    cuts = {key: value for key, value in cluster.counts.items() if key.startswith("network") and how == "network"}
    add(counts, updates=found.updates, **({how: hurt} if hurt else {}), **cuts)
    if not found.faults:
        shutil.rmtree(where)


@contextlib.contextmanager
def _running(
    where: Path,
    counts: Counts,
    *,
    spec: str = SPEC,
    hostile: dict[int, str] | None = None,
    calm: bool = False,
    **plan: Any,
) -> Iterator[ChaosCluster]:
    """A cluster that has made its first update; hostile members are given by their number."""
    network = network_of(counts, spec)
    names = node_ids(int(network["spec"].split(":")[1]))
    bad = {names[number]: kind for number, kind in (hostile or {}).items()}
    with ChaosCluster(where, **network, updates=10**9, hostile=bad, **({"limits": QUICK} | plan)) as cluster:
        if calm:
            (where / CALM).touch()
        cluster.start_all()
        cluster.run_until(lambda found: found.updates >= 1, timeout_s=60)
        yield cluster


def _third(cluster: ChaosCluster) -> str:
    return cluster.names[3]


def _made(cluster: ChaosCluster) -> int:
    return cluster.findings(may_fork=True).tallies.get("updates", 0)


def _rate(cluster: ChaosCluster, seconds: float) -> float:
    """Updates that all nodes made a second, for so long."""
    return _rate_and_silence(cluster, seconds)[0]


def _rate_and_silence(cluster: ChaosCluster, seconds: float) -> tuple[float, float]:
    """Updates that all nodes made a second, and the longest time without one."""
    before, begin = _made(cluster), time.monotonic()
    count, last, longest = before, begin, 0.0
    while time.monotonic() < begin + seconds:
        time.sleep(0.25)
        cluster.tend()
        now, made = time.monotonic(), _made(cluster)
        longest = max(longest, now - last)
        if made != count:
            count, last = made, now
    return (count - before) / (time.monotonic() - begin), longest


def _recovery(cluster: ChaosCluster, wanted: float) -> tuple[float, float]:
    """Return the rate when it is what is wanted, or after five minutes, and how long that took."""
    begin, rate = time.monotonic(), 0.0
    while rate < wanted and time.monotonic() < begin + 300:
        rate = _rate(cluster, 5)
    return rate, time.monotonic() - begin


def _goes_on(before: Findings) -> Callable[[Findings], bool]:
    wanted = before.tallies.get("updates", 0) + 20
    return lambda found: found.tallies.get("updates", 0) >= wanted


def _strike(cluster: ChaosCluster, how: str, *, with_walk: bool) -> str:
    """Take a member away, one that has the walk where that is asked for; return which."""
    name = _third(cluster)
    for number in range(2000 if with_walk else 1):
        name = cluster.names[(3 + number) % len(cluster.names)]
        os.kill(cluster.pid(name), signal.SIGSTOP)
        if not with_walk or cluster.has_walk(name):
            break
        os.kill(cluster.pid(name), signal.SIGCONT)
        time.sleep(0.01)
    cluster.take_down(name, kill=how == "kill")
    return name
