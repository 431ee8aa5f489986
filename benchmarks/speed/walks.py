"""The protocol sealed for several against what a user would write with numba or NumPy.

Run ``python -m benchmarks.speed.walks``; ``--write`` makes ``docs/reference/walk-speed.md``. Contenders take turns in
one process, one thread each; lines give the median [min-max] of the per-round ratio. Goal: ten times what a user writes
with numba. A user draws recipients by ``choice`` or until they are distinct: the quicker of the two counts.
``--precedence`` lets the benchmark go before all other programs.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np

from benchmarks.speed._harness import Line, goal_line, in_turns, take_precedence
from veilwalk import walks
from veilwalk.graphs import Graph, random_regular

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "walk-speed.md"
SEED = 1
NEED = 10.0
RECIPIENTS = 8
MAX_STEAL = 0.02

Contender = Callable[[], int]


@numba.njit(parallel=True)
def _user_protocol(indptr: Any, indices: Any, recipients: int, updates: int, out: Any) -> None:
    n_nodes = indptr.shape[0] - 1
    for lane in numba.prange(out.shape[0]):
        chosen = np.zeros(n_nodes, np.bool_)
        node = np.random.randint(0, n_nodes)  # noqa: NPY002
        for _ in range(updates):
            chosen[:] = False
            for other in np.random.choice(n_nodes, recipients, replace=False):  # noqa: NPY002
                chosen[other] = True
            chosen[node] = False
            while True:
                first = indptr[node]
                node = indices[first + np.random.randint(0, indptr[node + 1] - first)]  # noqa: NPY002
                out[lane] += 1
                if chosen[node]:
                    break


@numba.njit(parallel=True)
def _user_protocol_until_distinct(indptr: Any, indices: Any, recipients: int, updates: int, out: Any) -> None:
    n_nodes = indptr.shape[0] - 1
    for lane in numba.prange(out.shape[0]):
        chosen = np.full(n_nodes, -1, np.int64)
        node = np.random.randint(0, n_nodes)  # noqa: NPY002
        for update in range(updates):
            count = 0
            while count < recipients:
                other = np.random.randint(0, n_nodes)  # noqa: NPY002
                if other != node and chosen[other] != update:
                    chosen[other] = update
                    count += 1
            while True:
                first = indptr[node]
                node = indices[first + np.random.randint(0, indptr[node + 1] - first)]  # noqa: NPY002
                out[lane] += 1
                if chosen[node] == update:
                    break


def _numpy_protocol(graph: Graph, lanes: int, hops: int) -> Contender:
    rng = np.random.default_rng(SEED)
    table, rows = graph.neighbour_table.astype(np.int64), np.arange(lanes)

    def run() -> int:
        nodes = rng.integers(0, graph.n_nodes, lanes)
        chosen = rng.random((lanes, graph.n_nodes)) < RECIPIENTS / graph.n_nodes
        for _ in range(hops):
            nodes = table[nodes, rng.integers(0, table.shape[1], lanes)]
            opened = np.flatnonzero(chosen[rows, nodes])
            fresh = np.argpartition(rng.random((len(opened), graph.n_nodes)), RECIPIENTS, axis=1)[:, :RECIPIENTS]
            chosen[opened] = False
            chosen[opened[:, np.newaxis], fresh] = True
        return lanes * hops

    return run


def _protocol_contenders(scale: float) -> dict[str, Contender]:
    graph = random_regular(300, 4, seed=SEED)
    law = walks.ExcludedRows.nearer_than(graph, 1)
    hops = np.zeros(64, dtype=np.int64)
    updates = max(1, int(2000 * scale))

    def ours() -> int:
        found = 0
        options: dict[str, Any] = {"recipients": RECIPIENTS, "burn_in": 0}
        for chunk in walks.iter_protocol(graph, law, updates=64 * updates, seed=SEED, **options):
            found += int(chunk["leg_hops"].sum())
        return found

    def user(kernel: Any) -> int:
        hops[:] = 0
        kernel(graph.indptr, graph.indices, RECIPIENTS, updates, hops)
        return int(hops.sum())

    return {
        "veilwalk": ours,
        "choice": partial(user, _user_protocol),
        "until distinct": partial(user, _user_protocol_until_distinct),
        "numpy": _numpy_protocol(graph, 4096, max(1, int(100 * scale))),
    }


def measure(rounds: int, scale: float) -> list[Line]:
    """Return every ratio."""
    return _compared(f"protocol, N=300, degree 4, K={RECIPIENTS}", _protocol_contenders(scale), rounds)


def _compared(name: str, contenders: dict[str, Contender], rounds: int) -> list[Line]:
    units = {who: run() for who, run in contenders.items()}
    seconds = in_turns(contenders, rounds, most_stolen=MAX_STEAL)
    rates = {who: units[who] / seconds[who] for who in contenders}
    ratios = {who: rates["veilwalk"] / rate for who, rate in rates.items() if who != "veilwalk"}
    users = sorted(ratios.keys() - {"numpy"}, key=lambda who: float(np.median(ratios[who])))
    lines = []
    for who in (*users, "numpy"):
        need = NEED if who == users[0] else 0.0
        line = goal_line(name, who, ratios[who], ">=", need)
        lines.append(line)
        goal = f"goal {line.need}" if need else ""
        print(f"{line.goal:45} {who:20} {line.found:.3g} [{line.low:.3g}-{line.high:.3g}] {goal}", flush=True)
    return lines


def page(lines: list[Line], *, first: bool) -> str:
    """Return the page; ``first``: it was measured before all other programs."""
    precedence = ", the benchmark going first" if first else ""
    rows = []
    for user, slower, numpy in zip(*(lines[start::3] for start in range(3)), strict=True):
        found = [f"{line.found:.3g} [{line.low:.3g}-{line.high:.3g}]" for line in (user, slower, numpy)]
        verdict = "met" if user.met else "**missed**"
        rows.append(f"| {user.goal} | {user.what} | {found[0]} | {verdict} | {slower.what} | {found[1]} | {found[2]} |")
    return "\n".join(
        [
            "<!-- Made by `python -m benchmarks.speed.walks --write`. -->",
            "# Speed of the protocol",
            "",
            "How many times as fast the protocol is, one thread, contenders in turn in one process; medians",
            f"[least-largest] of {lines[0].rounds} rounds, load average {os.getloadavg()[0]:.1f}{precedence}.",
            "Goal: ten times what a user writes with numba, in the quicker of two ways. Ours also keeps last visits",
            "and writes a record of every update; theirs counts hops.",
            "",
            "| | numba, quicker | | | numba, slower | | NumPy |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> None:
    """Measure and print, or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two short rounds: a smoke test")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="write docs/reference/walk-speed.md")
    parser.add_argument(
        "--precedence", action="store_true", help="go before all other programs, which then stand still"
    )
    options = parser.parse_args()
    first = options.precedence and take_precedence()
    numba.set_num_threads(1)
    lines = measure(2, 0.05) if options.quick else measure(options.rounds, 1.0)
    if options.write:
        PAGE.write_text(page(lines, first=first), encoding="utf-8")


if __name__ == "__main__":
    main()
