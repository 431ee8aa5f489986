"""Every answer against rational arithmetic written here, sharing no code with what it checks."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest

from veilwalk.chains import CHAINS, NodeChain, _means
from veilwalk.core.arrays import FloatArray
from veilwalk.graphs import Graph

Edges = list[tuple[int, int]]
Matrix = list[list[Fraction]]


def transition(n_nodes: int, edges: Sequence[tuple[int, int]], kind: str) -> Matrix:
    """Transition probabilities of a walk, as a dense matrix."""
    neighbours: list[set[int]] = [set() for _ in range(n_nodes)]
    for one, other in edges:
        neighbours[one].add(other)
        neighbours[other].add(one)
    matrix = [[Fraction(0)] * n_nodes for _ in range(n_nodes)]
    for here in range(n_nodes):
        for there in neighbours[here]:
            mine, theirs = Fraction(1, len(neighbours[here])), Fraction(1, len(neighbours[there]))
            matrix[here][there] = {"simple": mine, "lazy": mine / 2, "metropolis": min(mine, theirs)}[kind]
        matrix[here][here] = 1 - sum(matrix[here], Fraction(0))
    return matrix


def mean_times(matrix: Matrix, target: int) -> list[Fraction]:
    """E[T] to ``target`` from every node, by Gaussian elimination."""
    others = [node for node in range(len(matrix)) if node != target]
    rows = [[Fraction(int(row == col)) - matrix[row][col] for col in others] + [Fraction(1)] for row in others]
    for pivot in range(len(rows)):
        lead = rows[pivot][pivot]
        rows[pivot] = [value / lead for value in rows[pivot]]
        for row in range(len(rows)):
            if row != pivot and rows[row][pivot]:
                factor = rows[row][pivot]
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[pivot], strict=True)]
    means = [Fraction(0)] * len(matrix)
    for node, row_values in zip(others, rows, strict=True):
        means[node] = row_values[-1]
    return means


def law(matrix: Matrix, target: int, horizon: int) -> list[list[Fraction]]:
    """P(T = t) for t = 0 to horizon, from every node: P(not there by t) differenced."""
    here = [node for node in range(len(matrix)) if node != target]
    alive = {node: Fraction(1) for node in here}
    table = [[Fraction(int(node == target)) for node in range(len(matrix))]]
    for _ in range(horizon):
        later = {node: sum((matrix[node][k] * alive[k] for k in here if matrix[node][k]), Fraction(0)) for node in here}
        table.append([alive[n] - later[n] if n != target else Fraction(0) for n in range(len(matrix))])
        alive = later
    return table


def return_law(matrix: Matrix, node: int, horizon: int) -> list[Fraction]:
    """P(R = t) for t = 0 to horizon: one step away, then a hitting time."""
    hits = law(matrix, node, max(horizon - 1, 0))
    first = [sum((matrix[node][k] * hits[t][k] for k in range(len(matrix))), Fraction(0)) for t in range(horizon)]
    return [Fraction(0), *first]


def clique(nodes: Sequence[int]) -> Edges:
    """All pairs of ``nodes``."""
    return list(combinations(nodes, 2))


def path(nodes: Sequence[int]) -> Edges:
    """Each node to the next."""
    return list(pairwise(nodes))


OUTER = path([*range(5), 0])
GRAPHS: dict[str, tuple[int, Edges]] = {
    "pair": (2, [(0, 1)]),
    "complete": (5, clique(range(5))),
    "odd ring": (7, path([*range(7), 0])),
    "even ring": (8, path([*range(8), 0])),
    "path": (6, path(range(6))),
    "star": (6, [(0, leaf) for leaf in range(1, 6)]),
    "cube": (8, [(a, a ^ bit) for a in range(8) for bit in (1, 2, 4) if a < a ^ bit]),
    "petersen": (10, OUTER + [(k, k + 5) for k in range(5)] + [(5 + k, 5 + (k + 2) % 5) for k in range(5)]),
    "lollipop": (9, clique(range(5)) + path([4, 5, 6, 7, 8])),
    "barbell": (9, clique(range(4)) + path([3, 4, 5]) + clique(range(5, 9))),
    "torus": (
        16,
        [
            (4 * r + c, 4 * ((r + dr) % 4) + (c + dc) % 4)
            for r in range(4)
            for c in range(4)
            for dr, dc in ((0, 1), (1, 0))
        ],
    ),
}
KINDS = ("simple", "lazy", "metropolis")
# Inside the transient of slow graphs, in the geometric tail of quick ones.
HORIZON = 72


def chain_on(name: str, kind: str) -> tuple[NodeChain, Matrix]:
    n_nodes, edges = GRAPHS[name]
    chain = CHAINS[kind](Graph.from_edges(n_nodes, np.array(edges))).on_nodes
    assert chain is not None
    return chain, transition(n_nodes, edges, kind)


def exact_law(matrix: Matrix, horizon: int) -> FloatArray:
    """P(T_ij = t) as (horizon + 1, source, target)."""
    laws = [law(matrix, target, horizon) for target in range(len(matrix))]
    return np.array([[[float(p) for p in row] for row in one] for one in laws]).transpose(1, 2, 0)


@pytest.fixture(scope="module", params=[(name, kind) for name in GRAPHS for kind in KINDS], ids=" ".join)
def case(request: pytest.FixtureRequest) -> tuple[NodeChain, Matrix, FloatArray]:
    chain, matrix = chain_on(*request.param)
    return chain, matrix, exact_law(matrix, HORIZON)


Case = tuple[NodeChain, Matrix, FloatArray]


def test_transition_probabilities(case: Case) -> None:
    chain, matrix, _ = case
    np.testing.assert_allclose(chain.transition_matrix.toarray(), np.array(matrix, dtype=float), rtol=1e-15)
    np.testing.assert_allclose(chain.stationary @ np.array(matrix, dtype=float), chain.stationary, rtol=1e-14)


def test_mean_hitting_times(case: Case) -> None:
    chain, matrix, _ = case
    expected = np.array([[float(m) for m in mean_times(matrix, j)] for j in range(chain.n_nodes)]).T
    np.testing.assert_allclose(chain.mean_hitting_times(), expected, rtol=1e-12, atol=1e-14)


def test_both_methods_for_means(case: Case) -> None:
    chain, matrix, _ = case
    expected = np.array([[float(m) for m in mean_times(matrix, j)] for j in range(chain.n_nodes)]).T
    columns = np.arange(chain.n_nodes)
    by_chebyshev, _ = _means._by_chebyshev(chain, columns, _means._sweep_plan(chain)[0])
    by_cholesky, _ = _means._by_cholesky(chain, columns)
    np.testing.assert_allclose(by_chebyshev, expected, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(by_cholesky, expected, rtol=1e-12, atol=1e-14)


def test_hitting_law(case: Case) -> None:
    chain, _, expected = case
    ((targets, pmf),) = chain.hitting_laws(HORIZON)
    assert targets.tolist() == list(range(chain.n_nodes))
    np.testing.assert_allclose(pmf, expected, rtol=1e-12, atol=1e-300)
    ((_, alone),) = chain.hitting_laws(HORIZON, [1])
    np.testing.assert_allclose(alone, expected[:, :, [1]], rtol=1e-12, atol=1e-300)


def test_truncated_means(case: Case) -> None:
    chain, _, expected = case
    mass = np.cumsum(expected, axis=0)
    moment = np.cumsum(expected * np.arange(HORIZON + 1)[:, None, None], axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(mass > 0, moment / mass, np.inf)
    for time in (HORIZON, 0, 1, 3, 20, 61):
        np.testing.assert_allclose(chain.truncated_means(time), means[time], rtol=1e-11)
    np.testing.assert_allclose(chain.truncated_means(61.9, [1]), means[61][:, [1]], rtol=1e-11)


def test_window_masses(case: Case) -> None:
    chain, _, expected = case
    n_nodes = chain.n_nodes
    lo = (np.arange(n_nodes**2) * 7 % 68).reshape(n_nodes, n_nodes)
    hi = lo + np.arange(n_nodes**2).reshape(n_nodes, n_nodes) % 6 - 1
    mass = np.zeros((n_nodes, n_nodes))
    for time in range(HORIZON + 1):
        mass += np.where((lo <= time) & (time <= hi), expected[time], 0.0)
    np.testing.assert_allclose(chain.window_masses(lo, hi), mass, rtol=1e-9, atol=1e-15)


def test_return_survival(case: Case) -> None:
    chain, matrix, _ = case
    expected = np.array([[float(p) for p in return_law(matrix, j, HORIZON)] for j in range(chain.n_nodes)]).T
    times = [60, 0, 1, 2, HORIZON, 71]
    survival = 1.0 - np.cumsum(expected, axis=0)
    np.testing.assert_allclose(chain.return_survival(times), survival[times], atol=1e-12)
