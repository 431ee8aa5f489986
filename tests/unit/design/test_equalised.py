"""The paper's principle on any graph: exact where it can be, nearest where not."""

from __future__ import annotations

from typing import Any

import cvxpy
import numpy as np
import numpy.typing as npt
import pytest

from veilwalk.chains import chain_of
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import Walk
from veilwalk.design import (
    balanced,
    covered_return_times,
    equalised_law,
    exact_window_likelihood,
    law_by_distance,
    weight_ratio,
    window_entropies,
)
from veilwalk.graphs import Graph, barabasi_albert, distances, erdos_renyi, random_regular, torus, watts_strogatz

Floats = npt.NDArray[np.float64]
# Its own annotations leave most of it out.
cp: Any = cvxpy
IRREGULAR = {
    "rrg": (random_regular(40, 3, seed=1), DistanceSupport(2, 4)),
    "er": (erdos_renyi(40, 5.0, seed=3), DistanceSupport(2, 3)),
    "ba": (barabasi_albert(40, 2, seed=1), DistanceSupport(2, 4)),
    "ws": (watts_strogatz(40, 4, 0.2, seed=1), DistanceSupport(2, 4)),
}


def likelihood(graph: Graph, support: DistanceSupport, walk: str = "simple") -> Floats:
    chain = chain_of(graph, Walk(walk))
    kappa = covered_return_times(chain, support, (0.35,))[0]
    return exact_window_likelihood(chain, max(kappa, support.hi + 1), 5)


@pytest.mark.parametrize("walk", ["simple", "non-backtracking"])
def test_on_a_symmetric_graph_all_sources_look_alike(walk: str) -> None:
    """On a torus the solution is exact: the window posterior is uniform over the possible sources, for every node."""
    graph, support = torus(5, 6), DistanceSupport(2, 4)
    base = law_by_distance(graph, support, np.ones(5))
    chances = likelihood(graph, support, walk)
    found = equalised_law(base, chances)
    assert found.is_exact
    assert found.residual < 1e-9
    assert weight_ratio(found.law, chances) == pytest.approx(1, abs=1e-9)
    by_node = window_entropies(found.law, chances, distances(graph)).by_node
    np.testing.assert_allclose(by_node, np.log((base.matrix.toarray() > 0).sum(axis=0)), atol=1e-9)
    # Named mutant: a law that leaves the likelihood out does not equalise.
    assert weight_ratio(base, chances) > 1.05


def test_an_uneven_exact_solution_is_found_too() -> None:
    """Shares made up in advance, and a likelihood to which they are the answer."""
    rng = np.random.default_rng(2)
    shares = rng.uniform(0.7, 1.3, 12)
    base = law_by_distance(torus(3, 4), DistanceSupport(1, 4, allow_neighbours=True), np.ones(5))
    possible = base.matrix.toarray() > 0
    table = np.where(possible, rng.uniform(0.5, 2.0, (12, 12)), 0.0)
    table /= (table @ shares)[:, np.newaxis]
    chances = np.zeros_like(table)
    chances[possible] = 1 / table[possible]
    found = equalised_law(base, chances)
    assert found.is_exact
    np.testing.assert_allclose(found.shares, shares * table.sum(axis=0), rtol=1e-8)
    np.testing.assert_allclose(found.law.matrix.toarray(), table * shares, atol=1e-9)


@pytest.mark.parametrize("name", IRREGULAR)
def test_without_an_exact_solution_the_nearest_is_the_solvers(name: str) -> None:
    """No exact one exists (its unique solution has negative shares); the misfit is cvxpy's to three hundredths."""
    graph, support = IRREGULAR[name]
    base = law_by_distance(graph, support, np.ones(support.hi + 1))
    chances = likelihood(graph, support)
    found = equalised_law(base, chances)
    possible = base.matrix.toarray() > 0
    table = np.zeros_like(chances)
    table[possible] = 1 / chances[possible]
    table /= table.sum(axis=0)
    assert np.linalg.solve(table, np.ones(len(table))).min() < 0
    assert not found.is_exact
    shares = cp.Variable(len(table))
    sums = table @ shares
    best = cp.Problem(cp.Minimize(cp.sum(sums - 1 - cp.log(sums))), [shares >= 0.5]).solve(solver=cp.CLARABEL)
    misfit = float((found.row_sums - 1 - np.log(found.row_sums)).sum())
    np.testing.assert_allclose(found.row_sums, table @ found.shares, rtol=1e-12)
    assert best * (1 - 1e-6) <= misfit <= 1.03 * best


@pytest.mark.parametrize("name", IRREGULAR)
def test_weights_stand_as_the_inverses_of_row_sums(name: str) -> None:
    """P_ij L_ij over the sources of j is 1 / row sum of i, up to a factor; no node is left undrawn."""
    graph, support = IRREGULAR[name]
    base = law_by_distance(graph, support, np.ones(support.hi + 1))
    chances = likelihood(graph, support)
    found = equalised_law(base, chances)
    weights = found.law.matrix.toarray() * chances
    for node in range(0, 40, 7):
        own = np.flatnonzero(weights[:, node])
        product = weights[own, node] * found.row_sums[own]
        np.testing.assert_allclose(product, product[0], rtol=1e-9)
    assert found.residual == pytest.approx(np.abs(found.row_sums - 1).max())
    assert found.shares.min() >= 0.5
    assert weight_ratio(found.law, chances) < weight_ratio(base, chances)
    even = balanced(found.law)
    np.testing.assert_allclose(even.source_prior, 1 / 40, atol=1e-10)


def test_a_window_that_no_hit_falls_into_is_refused() -> None:
    """On a bipartite graph with a window of one hop half of the pairs cannot be hit."""
    graph, support = torus(4, 6), DistanceSupport(2, 3)
    chances = exact_window_likelihood(chain_of(graph, Walk("simple")), 30.0, 0)
    with pytest.raises(InvalidParameterError, match="window"):
        equalised_law(law_by_distance(graph, support, np.ones(4)), chances)
