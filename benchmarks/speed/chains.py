"""Exact chains against what one would use instead: goals G8, G9 and G10.

Run ``python -m benchmarks.speed.chains``; ``--quick`` shrinks every size to a smoke test, ``--out`` keeps the
figures as JSON. Contenders take turns in one process; each line gives the median [min-max] of the per-round
ratio of the contender's time to ours. A peer that cannot be imported is reported as missing. Run it with
``OPENBLAS_NUM_THREADS=1`` as well: on a busy machine two BLAS threads are slower than one, for the contenders
of G9 most of all.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from scipy.linalg import lapack

from benchmarks.speed._harness import Contender, Line, goal_line, in_turns, peer
from veilwalk.chains import NodeChain
from veilwalk.core.arrays import FloatArray
from veilwalk.graphs import Graph, random_regular

DEGREE = 4


def ratio_line(
    goal: str, what: str, need: float, ours: Contender, theirs: Contender, *, rounds: int, factor: float = 1.0
) -> Line:
    """Compare ``theirs`` (times ``factor``, where it does only a part) with ``ours``."""
    ours()
    seconds = in_turns({"ours": ours, "theirs": theirs}, rounds)
    ratios = factor * seconds["theirs"] / seconds["ours"]
    return goal_line(goal, what, ratios, ">=", need, seconds=float(np.median(seconds["ours"])))


def error_line(goal: str, what: str, found: FloatArray, expected: FloatArray, need: float) -> Line:
    """Return the largest relative error off the diagonal."""
    off = expected > 0.0
    error = float((np.abs(found - expected)[off] / expected[off]).max())
    return goal_line(goal, what, [error], "<=", need)


def missing_line(goal: str, what: str, need: float) -> Line:
    """Return the line of a peer that is not installed."""
    return Line(
        goal=goal, what=f"{what} MISSING", found=0.0, low=0.0, high=0.0, need=f">= {need:g}", met=None,
        rounds=0,
    )  # fmt: skip


def means_by_inverse(graph: Graph) -> FloatArray:
    """Mean hitting times from the inverse of the fundamental matrix."""
    n_nodes = graph.n_nodes
    matrix = graph.adjacency.toarray() / -DEGREE
    matrix += 1.0 / n_nodes
    matrix[np.diag_indices(n_nodes)] += 1.0
    inverse = np.linalg.inv(matrix)
    return np.asarray((np.diag(inverse) - inverse) * n_nodes)


def means_by_cholesky(graph: Graph) -> FloatArray:
    """Mean hitting times from the Cholesky inverse of the fundamental matrix."""
    n_nodes = graph.n_nodes
    matrix = graph.adjacency.toarray() / -DEGREE
    matrix += 1.0 / n_nodes
    matrix[np.diag_indices(n_nodes)] += 1.0
    factor, _ = lapack.dpotrf(matrix.T, lower=1, overwrite_a=1, clean=0)
    half, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    inverse = np.tril(half)
    inverse += np.tril(half, -1).T
    return np.asarray((np.diag(inverse) - inverse) * n_nodes)


def mean_lines(n_large: int, n_small: int, rounds: int) -> Iterator[Line]:
    """Goal G8."""
    graph = random_regular(n_large, DEGREE, seed=1)

    def ours() -> FloatArray:
        # A new chain each time: its spectrum is part of the work.
        return NodeChain.simple(graph).mean_hitting_times()

    title = f"all-pairs E[T], N={n_large}"
    yield ratio_line("G8", f"{title}, np.linalg.inv", 5, ours, lambda: means_by_inverse(graph), rounds=rounds)
    yield ratio_line("G8", f"{title}, potrf+potri", 2, ours, lambda: means_by_cholesky(graph), rounds=rounds)
    yield error_line("G8", f"{title}, relative error", ours(), means_by_inverse(graph), 1e-12)
    chain = NodeChain.simple(random_regular(n_small, DEGREE, seed=2))
    what = f"all-pairs E[T], N={n_small}, PyDTMC"
    if (pydtmc := peer("pydtmc")) is None:
        yield missing_line("G8", what, 50)
        return
    # PyDTMC keeps what it has computed: a round on a used object would time a look-up.
    fresh = iter([pydtmc.MarkovChain(chain.transition_matrix.toarray()) for _ in range(2)])
    yield ratio_line(
        "G8",
        what,
        50,
        chain.mean_hitting_times,
        lambda: next(fresh).mean_first_passage_times_to(),
        rounds=2,
    )


def sums_by_scipy(chain: NodeChain, values: FloatArray, n_targets: int) -> FloatArray:
    """Linear summaries of the laws of the first targets by the batched sparse recursion."""
    matrix, law = chain.transition_matrix, np.eye(chain.n_nodes, n_targets)
    sums = values[:, 0, None, None] * law
    for at_time in values.T[1:]:
        law = matrix @ law
        law[np.arange(n_targets), np.arange(n_targets)] = 0.0
        for kind, value in enumerate(at_time):
            sums[kind] += value * law
    return np.asarray(sums)


def sums_by_target(chain: NodeChain, values: FloatArray, n_targets: int) -> FloatArray:
    """The same for the first targets, one dense matrix-vector recursion each."""
    sums = np.zeros((len(values), chain.n_nodes, n_targets))
    for target in range(n_targets):
        matrix = chain.transition_matrix.toarray()
        matrix[target] = 0.0
        law = np.zeros(chain.n_nodes)
        law[target] = 1.0
        for at_time in values.T:
            sums[:, :, target] += np.outer(at_time, law)
            law = matrix @ law
    return sums


def law_lines(n_nodes: int, rounds: int) -> Iterator[Line]:
    """Goal G9: every probability written out, against peers that only sum; slow ones do a part and are scaled up."""
    horizon = 5 * n_nodes
    chain = NodeChain.simple(random_regular(n_nodes, DEGREE, seed=3))
    values = np.stack([np.ones(horizon + 1), np.arange(horizon + 1.0)])

    def ours() -> float:
        return sum(float(pmf[-1, 0, 0]) for _, pmf in chain.hitting_laws(horizon))

    def by_scipy() -> FloatArray:
        return sums_by_scipy(chain, values, n_nodes)

    title = f"all-pairs law, N={n_nodes}, t<={horizon}"
    part = max(n_nodes // 10, 1)
    summed = np.concatenate([np.tensordot(values, pmf, axes=1) for _, pmf in chain.hitting_laws(horizon)], axis=2)
    yield ratio_line("G9", f"{title}, scipy.sparse", 1, ours, by_scipy, rounds=rounds)
    yield error_line("G9", f"{title}, relative error", summed, by_scipy(), 1e-12)
    yield ratio_line(
        "G9",
        f"{title}, dense, 1/10 of the targets",
        16,
        ours,
        lambda: sums_by_target(chain, values, part),
        rounds=rounds,
        factor=n_nodes / part,
    )
    what = f"{title}, PyDTMC, one source"
    if (pydtmc := peer("pydtmc")) is None:
        yield missing_line("G9", what, 800)
        return
    fresh = iter([pydtmc.MarkovChain(chain.transition_matrix.toarray()) for _ in range(3)])
    yield ratio_line(
        "G9",
        what,
        800,
        ours,
        lambda: next(fresh).first_passage_probabilities(horizon, 0),
        rounds=3,
        factor=n_nodes,
    )


def truncated_lines(n_nodes: int, rounds: int) -> Iterator[Line]:
    """Goal G10; the full recursion by scipy.sparse does a tenth of the targets and is scaled up."""
    graph = random_regular(n_nodes, DEGREE, seed=4)
    horizon, part = 5 * n_nodes, max(n_nodes // 10, 1)
    values = np.stack([np.ones(horizon + 1), np.arange(horizon + 1.0)])

    def ours(kappa: int = horizon) -> FloatArray:
        return NodeChain.simple(graph).truncated_means(kappa)

    def full() -> FloatArray:
        mass, moment = sums_by_scipy(NodeChain.simple(graph), values, part)
        return np.asarray(moment / mass)

    title = f"truncated means, N={n_nodes}, kappa=5N"
    ours()
    seconds = in_turns({"late": ours, "early": lambda: ours(n_nodes)}, rounds)
    ratios, median = seconds["late"] / seconds["early"], float(np.median(seconds["late"]))
    yield goal_line("G10", f"{title} / kappa=N", ratios, "<=", 1.05, seconds=median)
    yield error_line("G10", f"{title}, relative error", ours()[:, :part], full(), 1e-10)
    what, factor = f"{title}, full recursion", n_nodes / part
    yield ratio_line("G10", what, 25, ours, full, rounds=min(rounds, 2), factor=factor)


def show(line: Line) -> None:
    """Print one line of the table."""
    verdict = {True: "PASS", False: "MISS", None: "-"}[line.met]
    figures = f"{line.found:10.3g} [{line.low:.3g}-{line.high:.3g}]"
    print(
        f"{line.goal:4s} {line.what:66s} {figures:32s} {line.need:9s} {verdict:8s}"
        f" ours {line.seconds:.4f} s, {line.rounds} rounds",
        flush=True,
    )


def main() -> None:
    """Run the comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: a smoke test, no verdicts")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each comparison")
    parser.add_argument("--only", choices=("G8", "G9", "G10"), help="run one goal only")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    arguments = parser.parse_args()
    large, small, law, truncated = (400, 200, 60, 150) if arguments.quick else (5000, 2000, 300, 2000)
    lines: list[Line] = []
    goals = {
        "G8": mean_lines(large, small, arguments.rounds),
        "G9": law_lines(law, arguments.rounds),
        "G10": truncated_lines(truncated, arguments.rounds),
    }
    for goal, measured in goals.items():
        if arguments.only not in (None, goal):
            continue
        for line in measured:
            # Goals are set for the full sizes; a smoke test says nothing about them.
            lines.append(replace(line, met=None) if arguments.quick else line)
            show(lines[-1])
    if arguments.out is not None:
        arguments.out.write_text(json.dumps([asdict(line) for line in lines], indent=2) + "\n")


if __name__ == "__main__":
    main()
