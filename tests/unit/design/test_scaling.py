"""Scaling to margins and a budget, against a general convex solver and against the definition of a matching."""

from __future__ import annotations

import math
import warnings
from itertools import permutations
from typing import Any

import cvxpy
import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse

from veilwalk.chains import NodeChain
from veilwalk.core.errors import InfeasibleDesignError
from veilwalk.core.support import DistanceSupport
from veilwalk.design._law import law_by_distance, total_support
from veilwalk.design._optimal import scale_to_margins
from veilwalk.graphs import Graph, barabasi_albert, erdos_renyi, torus

Floats = npt.NDArray[np.float64]
# Its own annotations leave most of it out.
cp: Any = cvxpy


def nearest(table: Floats, prior: Floats, hops: Floats, budget: float) -> Floats:
    """The same projection by cvxpy: least relative entropy from ``table``, margins and budget kept."""
    rows, columns = np.nonzero(table)
    entries = cp.Variable(len(rows), nonneg=True)
    constraints = [] if math.isinf(budget) else [cp.sum(cp.multiply(entries, hops[rows, columns])) <= budget]
    for node in range(len(prior)):
        constraints += [cp.sum(entries[rows == node]) == prior[node], cp.sum(entries[columns == node]) == prior[node]]
    problem = cp.Problem(cp.Minimize(cp.sum(cp.rel_entr(entries, table[rows, columns]))), constraints)
    with warnings.catch_warnings():
        # It warns where a processor's rounding stops it before 1e-12; the comparison says whether it came far enough.
        warnings.simplefilter("ignore", UserWarning)
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    joint = np.zeros_like(table)
    joint[rows, columns] = entries.value
    return joint


@pytest.mark.parametrize("share", [math.inf, 1.0, 0.98, 0.95])
def test_scaling_is_the_projection_a_general_solver_finds(share: float) -> None:
    """Margins, budget and every entry, with an uneven prior."""
    graph = barabasi_albert(9, 2, seed=4)
    law = law_by_distance(graph, DistanceSupport(2, 4), np.ones(5))
    hops = NodeChain.simple(graph).mean_hitting_times()
    table = law.matrix.toarray() * np.random.default_rng(1).uniform(0.5, 2.0, (9, 9))
    prior = law.source_prior
    budget = share * law.mean_hops(hops)
    with np.errstate(divide="ignore"):
        found = scale_to_margins(np.log(table), prior, hops=hops, budget=budget)
    np.testing.assert_allclose(found.joint.sum(axis=0), prior, rtol=1e-9)
    np.testing.assert_allclose(found.joint.sum(axis=1), prior, rtol=1e-9)
    assert (found.joint * hops).sum() <= budget * (1 + 1e-12)
    np.testing.assert_allclose(found.joint, nearest(table, prior, hops, budget), atol=2e-6)


def test_a_start_changes_nothing_but_the_time() -> None:
    """From the scales of another budget, and where the price falls back to nothing."""
    graph = erdos_renyi(30, 5.0, seed=3)
    law = law_by_distance(graph, DistanceSupport(2, 3), np.ones(4)).balance()
    hops = NodeChain.simple(graph).mean_hitting_times()
    free = law.mean_hops(hops)
    with np.errstate(divide="ignore"):
        table = np.log(law.matrix.toarray())
    prior = np.full(30, 1 / 30)
    tight = scale_to_margins(table, prior, hops=hops, budget=0.97 * free)
    assert tight.price > 0
    for budget in (0.98 * free, 0.9701 * free, 1.1 * free):
        cold, warm = (scale_to_margins(table, prior, hops=hops, budget=budget, start=at) for at in (None, tight))
        np.testing.assert_allclose(warm.joint, cold.joint, atol=1e-9)
    assert scale_to_margins(table, prior, hops=hops, budget=1.1 * free, start=tight).price == 0


def test_balanced_laws_are_doubly_stochastic_and_keep_ratios() -> None:
    """Rows and columns sum to one, every node is a source equally often; P_ij P_kl / (P_il P_kj) is unchanged."""
    graph = barabasi_albert(40, 2, seed=2)
    law = law_by_distance(graph, DistanceSupport(2, 4), np.ones(5))
    even = law.balance()
    np.testing.assert_allclose(np.asarray(even.matrix.sum(axis=0)).ravel(), 1.0, atol=1e-9)
    np.testing.assert_allclose(even.source_prior, 1 / 40, atol=1e-11)
    before, after = law.matrix.toarray(), even.matrix.toarray()
    i, k, j, m = 10, 20, 30, 35
    assert min(before[i, j], before[k, m], before[i, m], before[k, j]) > 0
    ratio = [table[i, j] * table[k, m] / (table[i, m] * table[k, j]) for table in (before, after)]
    assert ratio[0] == pytest.approx(ratio[1], rel=1e-9)


def usable_by_definition(support: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Pairs that belong to some permutation within the support: the oracle."""
    size = len(support)
    found = np.zeros_like(support)
    for order in permutations(range(size)):
        if all(support[row, column] for row, column in enumerate(order)):
            found[range(size), order] = True
    return found


@pytest.mark.parametrize("seed", range(12))
def test_usable_pairs_are_those_of_permutations(seed: int) -> None:
    """Random supports on five nodes, against all 120 permutations; none at all is refused."""
    support = np.random.default_rng(seed).random((5, 5)) < 0.45
    want = usable_by_definition(support)
    if want.any():
        np.testing.assert_array_equal(total_support(sparse.csr_array(support)).toarray(), want)
    else:
        with pytest.raises(InfeasibleDesignError, match="balanced"):
            total_support(sparse.csr_array(support))


def test_pairs_no_balanced_law_can_use_get_exactly_nothing() -> None:
    """On a broom the end of the handle and the node before the bristles must serve each other alone."""
    broom = Graph.from_edges(5, [(0, 1), (1, 2), (2, 3), (2, 4)])
    law = law_by_distance(broom, DistanceSupport(2, 3), np.ones(4))
    want = usable_by_definition(law.matrix.toarray() > 0)
    assert want.sum() < (law.matrix.toarray() > 0).sum()
    np.testing.assert_array_equal(law.balance().matrix.toarray() > 0, want)


def test_a_support_without_a_balanced_law_is_said() -> None:
    """On a path of five, two hops away, both ends can send to the middle only."""
    path = Graph.from_edges(5, [(0, 1), (1, 2), (2, 3), (3, 4)])
    law = law_by_distance(path, DistanceSupport(2, 2), np.ones(3))
    assert not usable_by_definition(law.matrix.toarray() > 0).any()
    with pytest.raises(InfeasibleDesignError, match="choose a wider support"):
        law.balance()


def test_a_budget_below_the_least_is_refused_with_what_was_reached() -> None:
    """One line with the budget and the hops that were reached."""
    graph = erdos_renyi(30, 5.0, seed=3)
    hops = NodeChain.simple(graph).mean_hitting_times()
    with np.errstate(divide="ignore"):
        table = np.log(law_by_distance(graph, DistanceSupport(2, 3), np.ones(4)).matrix.toarray())
    with pytest.raises(InfeasibleDesignError, match="budget of 5 hops"):
        scale_to_margins(table, np.full(30, 1 / 30), hops=hops, budget=5.0)


def test_where_all_pairs_cost_the_same_the_budget_is_kept_or_not() -> None:
    """On a torus of nine all nodes two hops away are alike: what they cost is enough, a little less is not."""
    graph = torus(3, 3)
    law = law_by_distance(graph, DistanceSupport(2, 2), np.ones(3))
    hops = NodeChain.simple(graph).mean_hitting_times()
    with np.errstate(divide="ignore"):
        table = np.log(law.matrix.toarray())
    needed = law.mean_hops(hops)
    assert scale_to_margins(table, law.source_prior, hops=hops, budget=needed).price == 0
    with pytest.raises(InfeasibleDesignError, match="hops were reached"):
        scale_to_margins(table, law.source_prior, hops=hops, budget=0.99 * needed)
