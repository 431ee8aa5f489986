"""Compares the speed of the protocol with straightforward numba code that plays the same protocol.

Run ``python -m benchmarks.speed.walks``; ``--write`` writes a section of ``docs/measured/speed.md``. Contenders take
turns in one process; lines give the median [min-max] of the per-round ratio of hops a second. Goal H1: four times at
300 nodes, six times at a million, for K = 1 and 16, simple and non-backtracking walks, one thread and two. The user's
code keeps last visits and writes the records that ours writes without colluders; a second version only counts hops.
``--precedence`` lets the benchmark go before all other programs.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
from tools.pages.markdown import write_section

from benchmarks.speed._harness import Line, goal_line, in_turns, take_precedence
from veilwalk import walks
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph, random_regular

PAGE = Path(__file__).parents[2] / "docs" / "measured" / "speed.md"
SEED = 1
DEGREE = 4
#: Nodes, lanes, hops a lane, and the goal.
SIZES = ((300, 64, 400_000, 4.0), (1_000_000, 16, 1_500_000, 6.0))
RECIPIENTS = (1, 16)
WALKS = ("simple", "non-backtracking")
THREADS = (1, 2)
MAX_STEAL = 0.02
CONTENDERS = ("numba, same records", "numba, hops only")
#: What the user's code writes of an update.
USER_RECORD = np.dtype([(name, np.int64) for name in ("source", "destination", "last_hop", "clock", "leg", "back")])

Contender = Callable[[], int]


@numba.njit(parallel=True)
def _run_user_protocol(  # noqa: PLR0917
    indptr: Any, indices: Any, backtracks: Any, recipients: int, updates: int, records: Any, hops: Any
) -> None:
    """Play every lane by itself; with empty ``records`` only count hops."""
    n_nodes, recording = indptr.shape[0] - 1, records.shape[1] > 0
    for lane in numba.prange(hops.shape[0]):
        chosen = np.full(n_nodes, -1, np.int64)
        visits = np.full(n_nodes if recording else 0, -1, np.int64)
        node = np.random.randint(0, n_nodes)  # noqa: NPY002
        previous, clock = -1, 0
        for update in range(updates):
            source, sealed, count = node, clock, 0
            while count < recipients:
                recipient = np.random.randint(0, n_nodes)  # noqa: NPY002
                if recipient != node and chosen[recipient] != update:
                    chosen[recipient] = update
                    count += 1
            while True:
                first, degree = indptr[node], indptr[node + 1] - indptr[node]
                neighbour = indices[first + np.random.randint(0, degree)]  # noqa: NPY002
                while not backtracks and neighbour == previous and degree > 1:
                    neighbour = indices[first + np.random.randint(0, degree)]  # noqa: NPY002
                previous, node = node, neighbour
                clock += 1
                arrived = chosen[node] == update
                if recording:
                    if arrived:
                        record = records[lane, update]
                        record.source, record.destination, record.last_hop = source, node, previous
                        record.clock, record.leg = clock, clock - sealed
                        record.back = clock - visits[node] if visits[node] >= 0 else -1
                    visits[node] = clock
                if arrived:
                    break
        hops[lane] = clock


def _contenders(graph: Graph, lanes: int, hops: int, walk: str, recipients: int) -> dict[str, Contender]:
    law = walks.ExcludedRows.nearer_than(graph, 1)
    updates = max(1, hops * (recipients + 1) // (2 * graph.n_nodes))
    counted = np.zeros(lanes, dtype=np.int64)

    def play_ours() -> int:
        options: dict[str, Any] = {"recipients": recipients, "walk": Walk(walk), "replicas": lanes, "burn_in": 0}
        chunks = walks.iter_protocol(graph, law, updates=lanes * updates, seed=SEED, **options)
        return sum(int(chunk["leg_hops"].sum()) for chunk in chunks)

    def play_users(recorded: int) -> int:
        records = np.empty((lanes, recorded), dtype=USER_RECORD)
        _run_user_protocol(graph.indptr, graph.indices, walk == "simple", recipients, updates, records, counted)
        return int(counted.sum())

    return {
        "veilwalk": play_ours,
        CONTENDERS[0]: partial(play_users, updates),
        CONTENDERS[1]: partial(play_users, 0),
    }


def measure(rounds: int, scale: float, sizes: int = len(SIZES)) -> list[Line]:
    """Return every ratio, one contender after the other within a case."""
    lines = []
    for n_nodes, lanes, hops, goal in SIZES[:sizes]:
        graph = random_regular(n_nodes, DEGREE, seed=SEED)
        for walk, recipients, threads in itertools.product(WALKS, RECIPIENTS, THREADS):
            numba.set_num_threads(min(threads, os.cpu_count() or 1))
            name = f"N={n_nodes:,}, {walk}, K={recipients}, threads={threads}"
            lines += _compare(name, goal, _contenders(graph, lanes, int(hops * scale), walk, recipients), rounds)
    return lines


def _compare(name: str, goal: float, contenders: dict[str, Contender], rounds: int) -> list[Line]:
    for run in contenders.values():
        run()
    hops: dict[str, list[int]] = {contender: [] for contender in contenders}

    def count(contender: str) -> None:
        hops[contender].append(contenders[contender]())

    turns = {contender: partial(count, contender) for contender in contenders}
    seconds = in_turns(turns, rounds, most_stolen=MAX_STEAL)
    # Rounds differ in their hops by little; the mean serves those that in_turns dropped as well.
    rates = {contender: np.mean(hops[contender]) / seconds[contender] for contender in contenders}
    own = f"{np.median(rates['veilwalk']) / 1e6:.0f} Mhop/s"
    lines = []
    for contender in CONTENDERS:
        line = goal_line(name, own, rates["veilwalk"] / rates[contender], ">=", goal)
        lines.append(line)
        print(f"{name:48} {own:12} / {contender:20} {line.found:.3g} [{line.low:.3g}-{line.high:.3g}]", flush=True)
    return lines


def page(lines: list[Line], *, first: bool) -> str:
    """Return the section; ``first`` says that the benchmark went before all other programs."""
    precedence = ", the benchmark going first" if first else ""
    rows = []
    for same, counting in zip(lines[::2], lines[1::2], strict=True):
        ratios = [f"{line.found:.3g} [{line.low:.3g}-{line.high:.3g}]" for line in (same, counting)]
        verdict = "met" if same.met else "**missed**"
        rows.append(f"| {same.goal} | {same.what} | {ratios[0]} | {same.need} {verdict} | {ratios[1]} |")
    return "\n".join(
        [
            "How many times as fast the protocol is as straightforward numba code that plays the same protocol.",
            f"Contenders take turns in one process; medians [least-largest] of {lines[0].rounds} rounds,",
            f"load average {os.getloadavg()[0]:.1f}{precedence}. Graphs are regular of degree {DEGREE}; a source may",
            "choose any other node. The goal holds against the code that writes the same records.",
            "",
            "With 300 nodes and K = 16 a leg has about 30 hops, and drawing its recipients takes two thirds of the",
            "time: their words come from a counter, so that any set can be drawn again from lane, source and clock;",
            "a user takes the next words of a generator. Next idea: a stream that uses all words of a block.",
            "",
            "| case | ours | numba, same records | goal | numba, hops only |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> None:
    """Measure and print, or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two short rounds at 300 nodes: a smoke test")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0, help="work of each round, relative")
    parser.add_argument("--write", action="store_true", help="write the section of docs/measured/speed.md")
    parser.add_argument(
        "--precedence", action="store_true", help="go before all other programs, which then stand still"
    )
    options = parser.parse_args()
    first = options.precedence and take_precedence()
    lines = measure(2, 0.05, 1) if options.quick else measure(options.rounds, options.scale)
    if options.write:
        write_section(PAGE, "benchmarks.speed.walks --write", page(lines, first=first))


if __name__ == "__main__":
    main()
