"""This version beside an earlier one, in turn: the protocol, the coalition's filter and exact chains.

    git archive c0a8d44 src | tar x -C OLD
    python -m benchmarks.speed.versions OLD/src

Both are asked by the same lines, each in a process of its own, one thread, in processor seconds, so that other work on
the machine counts little. Prints the median [least-largest] of the rounds' ratios; ``--write`` writes a section of
``docs/measured/speed.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np

ROOT = Path(__file__).parents[2]
HEAD = """How many times as fast as version 0.2 (commit c0a8d44), in processor seconds of one thread: versions in
turn, {rounds} rounds, medians [least-largest], load average {load:.1f}. The filter of 0.2 judges the update that ends
a stretch; today's judges every honest update of it, about ten, by what was seen before and after, with shared keys.

| what | 0.2 | now | times as fast |
|---|---:|---:|---|
"""


def measure() -> dict[str, tuple[float, str]]:
    """Return what the version that is imported takes, by name: seconds of a unit of work."""
    from veilwalk import chains, walks
    from veilwalk.audit import AuditSettings, audit
    from veilwalk.core.walk import Walk
    from veilwalk.design import choose_scheme
    from veilwalk.graphs import random_regular

    # Names that changed since.
    later: Any = chains
    is_new = hasattr(later, "NodeChain")
    chain_of = later.NodeChain if is_new else later.WalkChain
    graph, rows = random_regular(300, 4, seed=1), getattr(walks, "ExcludedRows", None)
    far: Any = rows.nearer_than(graph, 1) if rows else getattr(walks, "FarRows").on(graph, 1)  # noqa: B009
    found = {}

    def play(law: Any, walk: str, recipients: int) -> int:
        updates = 64 * max(1, 30_000 * (recipients + 1) // 600)
        options: dict[str, Any] = {"recipients": recipients, "walk": Walk(walk), "replicas": 64, "burn_in": 0}
        return sum(
            int(chunk["leg_hops"].sum())
            for chunk in walks.iter_protocol(graph, law, updates=updates, seed=1, **options)
        )

    law: Any = choose_scheme(graph, "uniform-node", support=(2, 4)).law
    laws = (("far:1", far, (1, 16)), ("rows", getattr(law, "rows", law.matrix), (1,)))
    for name, each, counts in laws:
        for walk in ("simple", "non-backtracking"):
            for count in counts:
                seconds, hops = _time(partial(play, each, walk, count))
                found[f"a hop, {walk}, K = {count}, {name}"] = (seconds / hops, "ns")
    scheme = choose_scheme(random_regular(300, 3, seed=1), "far:4", walk="non-backtracking", recipients=16)

    def attack(stretches: int) -> int:
        settings = AuditSettings(observers=("coalition",), updates=20_000, colluders=30, scored_by_filter=stretches)
        return int(audit(scheme, settings).record().result["observers"]["coalition"]["scored_updates"])

    (few, least), (many, most) = _time(lambda: attack(20)), _time(lambda: attack(60))
    found["the coalition's filter, an update judged"] = ((many - few) / (most - least), "ms")
    found["the same, a stretch"] = ((many - few) / 40, "ms")
    big = chain_of.simple(random_regular(2_000, 4, seed=2))
    means = big.mean_hitting_times if is_new else lambda: later.mean_hitting_times(big)
    found["mean hitting times, N = 2,000"] = (_time(means)[0], "ms")
    small = chain_of.simple(graph)
    laws_of = small.hitting_laws if is_new else lambda horizon: later.iter_hitting_pmf(small, horizon, block=8)
    found["laws of all pairs, N = 300, t <= 1,500"] = (_time(lambda: sum(1 for _ in laws_of(1_500)))[0], "ms")
    return found


def _time(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the least processor seconds of three runs after a first one, and what it gave."""
    given, least = work(), float("inf")
    for _ in range(3):
        began = time.process_time()
        work()
        least = min(least, time.process_time() - began)
    return least, given


def main() -> None:
    """Let both versions take turns, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path, help="the folder src of the earlier version")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write the section of docs/measured/speed.md")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        numba.set_num_threads(1)
        print(json.dumps(measure()))
        return
    rounds: dict[Path, list[dict[str, tuple[float, str]]]] = {options.old: [], ROOT / "src": []}
    for _ in range(options.rounds):
        for source, said in rounds.items():
            command = [sys.executable, str(Path(__file__)), str(options.old), "--child"]
            env = os.environ | {"PYTHONPATH": str(source.resolve()), "OPENBLAS_NUM_THREADS": "1"}
            said.append(json.loads(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout))
    lines = []
    for name, (_, unit) in rounds[ROOT / "src"][0].items():
        before, now = (np.array([said[name][0] for said in each]) for each in rounds.values())
        scale, ratios = {"ns": 1e9, "ms": 1e3}[unit], before / now
        values = " | ".join(f"{np.median(each) * scale:.3g} {unit}" for each in (before, now))
        lines.append(f"| {name} | {values} | {np.median(ratios):.2f} [{ratios.min():.2f}-{ratios.max():.2f}] |")
    text = HEAD.format(rounds=options.rounds, load=os.getloadavg()[0]) + "\n".join(lines) + "\n"
    print(text)
    if options.write:
        from tools.pages.markdown import write_section

        write_section(ROOT / "docs" / "measured" / "speed.md", "benchmarks.speed.versions OLD/src --write", text)


if __name__ == "__main__":
    main()
