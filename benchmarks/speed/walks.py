"""The walk engine against what a user would pick instead: goals G1 to G6 and G11.

Run ``python -m benchmarks.speed.walks`` with the ``bench`` extra installed (torch and torch_cluster besides, where
they are to be had). Contenders take turns in one process; rounds in which the machine gave more than 2 % of
its time to others are dropped; each line gives the median [min-max] of the per-round ratio and whether the
goal is met. A peer that cannot be imported is reported as missing.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np

from benchmarks.speed._harness import Line, goal_line, in_turns, peer
from benchmarks.speed._walk_peers import (
    DEGREE,
    SEED,
    Contender,
    gather,
    igraph_walk,
    list_hits,
    networkx_hits,
    numba_walk,
    numpy_hits,
    numpy_walk,
    torch_cluster_walk,
    torch_walk,
    user_hits,
)
from veilwalk import walks
from veilwalk.graphs import Graph, random_regular

OURS = "veilwalk"
MAX_STEAL = 0.02


@dataclass(frozen=True, slots=True)
class Bench:
    """How long to measure, and what came out."""

    rounds: int
    scale: float
    threads: int
    lines: list[Line]
    missing: dict[str, str]

    def peer(self, name: str) -> Any:
        """Import a peer, or note that it is missing."""
        found = peer(name)
        if found is None:
            self.missing[name] = "cannot be imported"
        return found

    def size(self, full: int) -> int:
        """Return a work size: smaller for a smoke run."""
        return max(1, int(full * self.scale))

    def compare(
        self, goal: str, contenders: Mapping[str, Contender], needs: Mapping[str, float], *, at_most: bool = False
    ) -> None:
        """Let the contenders take turns and note ours against each peer that has a goal: units per second."""
        units = {name: contender() for name, contender in contenders.items()}
        seconds = in_turns(contenders, self.rounds, most_stolen=MAX_STEAL)
        rates = {name: units[name] / seconds[name] for name in contenders}
        for name, need in needs.items():
            if name in contenders:
                self.note(goal_line(goal, name, rates[OURS] / rates[name], "<=" if at_most else ">=", need))

    def note(self, line: Line) -> None:
        """Add one goal's figure and print it."""
        self.lines.append(line)
        verdict = "PASS" if line.met else "MISS"
        shown = f"{line.found:.3g} [{line.low:.3g}-{line.high:.3g}]"
        print(f"{verdict}  {line.goal:28} {line.what:34} {shown:28} goal {line.need}", flush=True)


def _large_graph(n_nodes: int) -> Graph:
    """Return two random permutations and their inverses: a 4-regular multigraph, unchecked, made quickly."""
    rng = np.random.default_rng(SEED)
    table = np.empty((n_nodes, DEGREE), dtype=np.int32)
    for column in (0, 2):
        order = rng.permutation(n_nodes).astype(np.int32)
        table[:, column] = order
        table[order, column + 1] = np.arange(n_nodes, dtype=np.int32)
    indptr = np.arange(0, DEGREE * n_nodes + 1, DEGREE, dtype=np.int32)
    return Graph(indptr=indptr, indices=table.reshape(-1))


def _our_walk(graph: Graph, n_walkers: int, steps: int) -> Contender:
    starts = np.random.default_rng(SEED).integers(0, graph.n_nodes, n_walkers)

    def run() -> int:
        walks.walk_positions(graph, starts, steps, seed=SEED)
        return n_walkers * steps

    return run


def _walk_goals(bench: Bench, goal: str, graph: Graph, ours: Contender, needs: Mapping[str, float]) -> None:
    """Compare walks on one graph, on one thread."""
    wide = graph.n_nodes > 10_000
    contenders = {
        OURS: ours,
        "numpy take": numpy_walk(graph, 100_000, bench.size(40 if wide else 200)),
        "numba, user style": numba_walk(graph, 2000, bench.size(1000 if wide else 10_000)),
    }
    torch = bench.peer("torch")
    if torch is not None:
        contenders["torch index"] = torch_walk(torch, graph, 100_000, bench.size(20 if wide else 100))
    cluster = bench.peer("torch_cluster")
    if torch is not None and cluster is not None:
        contenders["torch_cluster"] = torch_cluster_walk(torch, cluster, graph, 2000, bench.size(1000))
    if "igraph" in needs and (igraph := bench.peer("igraph")) is not None:
        contenders["igraph"] = igraph_walk(igraph, graph, bench.size(500_000))
    bench.compare(goal, contenders, needs)


def _hit_goals(bench: Bench, graph: Graph) -> None:
    """Compare first-hitting times on 300 nodes, on one thread."""
    rng = np.random.default_rng(SEED)
    sources, targets = rng.integers(0, graph.n_nodes, (2, bench.size(400_000)))
    few = bench.size(50_000)
    out = np.empty(few, dtype=np.int64)
    pairs = list(zip(sources[: bench.size(500)].tolist(), targets[: bench.size(500)].tolist(), strict=True))

    def ours() -> int:
        walks.hitting_times(graph, sources, targets, seed=SEED)
        return len(sources)

    def user() -> int:
        user_hits(graph.neighbour_table, sources[:few], targets[:few], out)
        return few

    contenders: dict[str, Contender] = {
        OURS: ours,
        "numba, user style": user,
        "numpy compaction": numpy_hits(graph, sources[:few], targets[:few]),
        "Python lists": list_hits([graph.neighbours(node).tolist() for node in range(graph.n_nodes)], pairs),
    }
    if (networkx := bench.peer("networkx")) is not None:
        contenders["networkx"] = networkx_hits(networkx.Graph(graph.edges().tolist()), pairs[: len(pairs) // 2 + 1])
    needs = {"numba, user style": 5.0, "numpy compaction": 12.0, "Python lists": 350.0, "networkx": 800.0}
    bench.compare("G2 hits, N=300", contenders, needs)


def _memory_goals(bench: Bench, graph: Graph, label: str) -> None:
    """Compare with the machine itself: a bare gather, a second thread."""
    walkers, steps = 8192, bench.size(2000)
    table = np.ascontiguousarray(graph.indices)

    def read() -> int:
        gather(table, walkers * steps)
        return walkers * steps

    ours = _our_walk(graph, walkers, steps)
    numba.set_num_threads(1)
    # The goal is a time ratio, step over gather; rates divide the other way round.
    bench.compare(
        f"G5 step / gather, {label}",
        {OURS: read, "bare gather, time per access": ours},
        {"bare gather, time per access": 1.1},
        at_most=True,
    )
    if bench.threads < 2:
        bench.missing["second thread"] = "this machine has one core"
        return

    def on_threads(n_threads: int) -> Contender:
        def run() -> int:
            numba.set_num_threads(n_threads)
            return ours()

        return run

    bench.compare(f"G6 threads, {label}", {OURS: on_threads(2), "one thread": on_threads(1)}, {"one thread": 1.6})
    numba.set_num_threads(1)


def _identical_on_two_threads(graph: Graph, max_threads: int) -> bool:
    starts = np.random.default_rng(SEED).integers(0, graph.n_nodes, 1000)
    found = []
    for n_threads in (1, min(2, max_threads)):
        numba.set_num_threads(n_threads)
        found.append(walks.walk_positions(graph, starts, 500, seed=SEED))
    numba.set_num_threads(1)
    return bool(np.array_equal(found[0], found[1]))


def _skip_goals(bench: Bench, graph: Graph, small: Graph) -> None:
    """Compare skip-ahead with stepping on a million nodes, and its law with the exact one on 300."""
    target, n_jobs, n_walked = 5, bench.size(200_000), bench.size(1024)
    sources = np.random.default_rng(SEED).integers(0, graph.n_nodes, n_jobs)
    began = time.perf_counter()
    tail = walks.hitting_tail(graph, target)
    print(f"      tail of one target: {time.perf_counter() - began:.2f} s, {tail}", flush=True)

    def skip() -> int:
        walks.skip_ahead_hitting_times(
            graph,
            sources,
            target,
            seed=SEED,
            perron_values=tail.perron_value,
            transient_steps=tail.transient_steps,
        )
        return n_jobs

    def step() -> int:
        walks.hitting_times(graph, sources[:n_walked], target, seed=SEED)
        return n_walked

    bench.compare(
        f"G11 skip-ahead, N={graph.n_nodes:.0e}", {OURS: skip, "our own steps": step}, {"our own steps": 1000.0}
    )
    bench.note(goal_line("G11 CDF error, N=300", "exact recursion", [_tail_error(small, target)], "<=", 1e-6))


def _tail_error(graph: Graph, target: int) -> float:
    """Return the largest error of any source's distribution function, against the plain recursion."""
    tail = walks.hitting_tail(graph, target)
    killed = graph.adjacency.toarray() / graph.degrees[:, None]
    killed[target], killed[:, target] = 0.0, 0.0
    survival = np.ones(graph.n_nodes)
    survival[target] = 0.0
    worst, held = 0.0, survival
    for step in range(5 * graph.n_nodes):
        if step == tail.transient_steps:
            held = survival
        if step >= tail.transient_steps:
            guess = held * tail.perron_value ** (step - tail.transient_steps)
            worst = max(worst, float(np.abs(survival - guess).max()))
        survival = killed @ survival
    return worst


def main() -> None:
    """Measure every goal and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two short rounds on smaller graphs: a smoke test")
    parser.add_argument("--rounds", type=int, default=7, help="rounds to keep of each comparison")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    options = parser.parse_args()
    rounds, scale = (2, 0.05) if options.quick else (options.rounds, 1.0)
    bench = Bench(rounds, scale, numba.get_num_threads(), [], {})
    bench.missing["ThunderRW"] = "not on any package index: build it by hand to compare (goals G3 >= 4, G4 >= 3)"
    numba.set_num_threads(1)
    small = random_regular(300, DEGREE, seed=SEED)
    ours = _our_walk(small, 8192, bench.size(50_000))
    needs = {"numpy take": 15.0, "numba, user style": 12.0, "torch_cluster": 60.0, "igraph": 200.0}
    _walk_goals(bench, "G1 walk, N=300", small, ours, needs)
    _hit_goals(bench, small)
    million = random_regular(100_000 if options.quick else 1_000_000, DEGREE, seed=SEED)
    needs = {"numpy take": 3.3, "numba, user style": 15.0, "torch_cluster": 35.0}
    _walk_goals(bench, f"G3 walk, N={million.n_nodes:.0e}", million, _our_walk(million, 8192, bench.size(5000)), needs)
    _skip_goals(bench, million, small)
    large = _large_graph(200_000 if options.quick else 10_000_000)
    needs = {"numpy take": 2.2, "numba, user style": 10.0, "torch_cluster": 25.0}
    label = f"N={large.n_nodes:.0e}"
    # Long enough that the table of double steps pays; making it, in every call, is counted.
    _walk_goals(bench, f"G4 walk, {label}", large, _our_walk(large, 8192, bench.size(200_000)), needs)
    _memory_goals(bench, large, label)
    identical = all(_identical_on_two_threads(graph, bench.threads) for graph in (small, million, large))
    print(f"{'PASS' if identical else 'MISS'}  G6 bits identical on one and two threads")
    load = os.getloadavg()[0]
    print(f"      load average of the last minute: {load:.1f} on {bench.threads} threads")
    for name, reason in bench.missing.items():
        print(f"MISSING  {name}: {reason}")
    if options.out is not None:
        figures = {
            "lines": [asdict(line) for line in bench.lines],
            "identical_on_two_threads": identical,
            "load_average": load,
            "missing": bench.missing,
        }
        options.out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
