"""Designs on concrete graphs, against the definition spelt out with dense matrices."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from veilwalk import theory
from veilwalk.chains import chain_of
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InfeasibleDesignError, InvalidParameterError, ResourceLimitError
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import SIMPLE
from veilwalk.design import DestinationLaw, choose_scheme, covered_return_times, design_regular, exact_window_likelihood
from veilwalk.design._law import law_by_distance
from veilwalk.design._paper import design_on_graph, window_entropies
from veilwalk.graphs import Graph, complete, distances, random_regular, ring, torus

Floats = npt.NDArray[np.float64]


def hitting_pmf(graph: Graph, target: int, horizon: int) -> Floats:
    """P(T = t) from every source by stepping a dense absorbing chain: the oracle."""
    step = graph.adjacency.toarray() / graph.degrees[:, None]
    kept = step.copy()
    kept[:, target] = 0
    rows, arriving = [np.zeros(graph.n_nodes)], step[:, target].copy()
    for _ in range(horizon):
        arriving[target] = 0.0
        rows.append(arriving)
        arriving = kept @ arriving
    return np.array(rows)


@pytest.mark.parametrize("kappa", [25.0, 60.0, math.inf])
@pytest.mark.parametrize("graph", [random_regular(20, 3, seed=3), torus(4, 5)], ids=["rrg", "torus"])
def test_window_likelihood_is_the_definition_spelt_out(graph: Graph, kappa: float) -> None:
    """Truncated mean and window mass from the dense chain, for every pair."""
    got = exact_window_likelihood(chain_of(graph, SIMPLE), kappa, 3)
    times = np.arange(3001)
    for target in (0, 7):
        pmf = hitting_pmf(graph, target, 3000)
        seen = pmf[times <= kappa]
        centre = (times[times <= kappa] @ seen) / np.where(seen.sum(axis=0) > 0, seen.sum(axis=0), 1)
        for source in range(graph.n_nodes):
            inside = np.abs(times - centre[source]) <= 3 + 1e-9
            want = 0.0 if source == target else pmf[inside, source].sum()
            assert got[source, target] == pytest.approx(want, abs=1e-9)


def weight_ratio(law: DestinationLaw, likelihood: FloatArray) -> float:
    """How many times the likeliest source of a destination outweighs the least likely, at most."""
    weights = law.matrix.toarray() * likelihood
    return float((weights.max(axis=0) / np.where(weights > 0, weights, np.inf).min(axis=0)).max())


def test_on_a_ring_the_papers_rule_makes_all_sources_look_alike() -> None:
    """Pairs at one distance are all alike there: the weights are equal, and those of the uniform law are not."""
    graph, support = ring(15), DistanceSupport(2, 4)
    likelihood = exact_window_likelihood(chain_of(graph, SIMPLE), 60.0, 5)
    found = design_on_graph(graph, support=support, return_time=60.0)
    assert weight_ratio(found.destination_law, likelihood) == pytest.approx(1, abs=1e-9)
    chances = likelihood[0, 2:5]
    uniform = law_by_distance(graph, support, np.ones(5))
    assert weight_ratio(uniform, likelihood) == pytest.approx(chances.max() / chances.min(), rel=1e-9)
    assert chances.max() > 1.05 * chances.min()


def test_entropies_are_those_of_the_definition_spelt_out() -> None:
    """Gl1 for each destination, by hand."""
    graph = random_regular(20, 3, seed=3)
    support = DistanceSupport(2, 3)
    chain, apart = chain_of(graph, SIMPLE), distances(graph)
    found = design_on_graph(graph, support=support, window_radius=2, return_time=40.0)
    assert isinstance(found.law, DestinationLaw)
    likelihood = exact_window_likelihood(chain, 40.0, 2)
    entropies, by_distance = window_entropies(found.law, likelihood, apart)
    weight = found.law.matrix.toarray() * likelihood
    by_node = []
    for j in range(20):
        w = weight[:, j] / weight[:, j].sum()
        by_node.append(-sum(x * math.log(x) for x in w if x > 0))
        assert entropies[j] == pytest.approx(by_node[-1], rel=1e-12)
        mean = np.array([w[apart[:, j] == distance].mean() for distance in (2, 3)])
        mean /= mean.sum()
        assert by_distance[j] == pytest.approx(-(mean * np.log(mean)).sum(), rel=1e-12)
    assert found.node_entropy_nats == pytest.approx(min(by_node), rel=1e-12)
    assert found.worst_destination == int(np.argmin(by_node))


def test_the_exact_design_agrees_with_the_closed_form_on_a_sampled_graph() -> None:
    """RRG(300, 3) at kappa = 634: the law within 10% by distance, the cost within 1%; c = 4 would miss both."""
    support = DistanceSupport(2, 6)
    exact = design_on_graph(random_regular(300, 3, seed=1), support=support, return_time=634.0)
    for degree, close in ((3, True), (4, False)):
        walk = theory.WalkModel(n_nodes=300, degree=degree)
        closed = design_regular(theory.AnonymityModel(walk=walk, support=support), return_time=634.0)
        assert np.allclose(closed.distance_pmf, exact.distance_pmf, rtol=0.1) == close
        assert (abs(closed.mean_iteration_hops / exact.mean_iteration_hops - 1) < 0.01) == close


def test_covered_return_times_are_quantiles_of_the_return_law() -> None:
    """Against the dense chain on a small irregular graph, conditioned on at least four hops."""
    graph = Graph.from_edges(8, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 0), (0, 4), (2, 6)])
    survival = []
    for node in range(8):
        step = graph.adjacency.toarray() / graph.degrees[:, None]
        neighbours = step[node]
        pmf = hitting_pmf(graph, node, 3000)
        returns = np.concatenate(([0.0], (pmf @ neighbours)[:-1]))
        tail = 1 - np.concatenate(([0.0], np.cumsum(returns)))[:-1]
        survival.append(tail / tail[4])
    share = np.mean(survival, axis=0)
    got = covered_return_times(chain_of(graph, SIMPLE), DistanceSupport(2, 3), (0.7, 0.35, 0.01))
    assert got == [int(np.flatnonzero(share >= level - 1e-12)[-1]) for level in (0.7, 0.35, 0.01)]


def test_the_floor_is_a_minimum_over_return_times_and_destinations() -> None:
    """It cannot exceed the entropy at the design itself, nor that at any covered return time examined."""
    graph = random_regular(40, 3, seed=2)
    found = design_on_graph(graph, support=DistanceSupport(2, 4))
    assert isinstance(found.law, DestinationLaw)
    assert 0 < found.anonymity_floor_nats <= found.distance_entropy_nats
    likelihood = exact_window_likelihood(chain_of(graph, SIMPLE), found.return_time_from, 5)
    at_start = window_entropies(found.law, likelihood, distances(graph))[1].min()
    assert found.anonymity_floor_nats <= at_start + 1e-12


def test_unfit_requests_are_refused() -> None:
    """Beyond the diameter, nobody at the distance, kappa within the support, more memory than allowed."""
    graph = random_regular(20, 3, seed=3)
    with pytest.raises(InvalidParameterError, match="diameter"):
        design_on_graph(graph, support=DistanceSupport(2, 9))
    with pytest.raises(InvalidParameterError, match="diameter"):
        design_on_graph(complete(5), support=DistanceSupport(2, 2))
    star_with_tail = Graph.from_edges(6, [(0, 1), (0, 2), (0, 3), (0, 4), (4, 5)])
    with pytest.raises(InfeasibleDesignError, match="node 0"):
        design_on_graph(star_with_tail, support=DistanceSupport(3, 3))
    with pytest.raises(InvalidParameterError, match="return time"):
        design_on_graph(graph, support=DistanceSupport(2, 3), return_time=3.0)
    with pytest.raises(InvalidParameterError, match="window"):
        design_on_graph(torus(4, 6), support=DistanceSupport(2, 3), window_radius=0)
    with pytest.raises(ResourceLimitError, match=r"GiB and may use 9\.31e-07 GiB"):
        design_on_graph(graph, support=DistanceSupport(2, 3), memory_bytes=1000)


def test_a_support_that_some_node_has_nobody_in_is_refused_first() -> None:
    """The middle of three always comes back after two hops: of longer return times there is nothing to say."""
    line = Graph.from_edges(3, np.array([(0, 1), (1, 2)]))
    with pytest.raises(InfeasibleDesignError, match="node 1 "):
        design_on_graph(line, support=DistanceSupport(2, 2))


def test_a_relay_is_certain_where_the_token_goes_straight_back() -> None:
    """One in three on a 3-regular graph, three quarters of that if it waits; else at leaves only."""
    graph = random_regular(20, 3, seed=1)
    schemes = {
        kind: choose_scheme(graph, "uniform-node", support=(2, 3), walk=kind)
        for kind in ("simple", "lazy", "metropolis", "non-backtracking")
    }
    shares = {kind: scheme.certain_to_a_relay() for kind, scheme in schemes.items()}
    wanted = {"simple": 1 / 3, "lazy": 1 / 4, "metropolis": 1 / 3, "non-backtracking": 0.0}
    assert shares == pytest.approx(wanted, rel=1e-12)
    assert choose_scheme(graph, "plain").relay_warning() is None
    warning = schemes["simple"].relay_warning()
    assert warning is not None
    assert "for certain in 33.3% of updates; --walk non-backtracking ends that" in warning
    assert schemes["non-backtracking"].relay_warning() is None
    lollipop = Graph.from_edges(7, np.array([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 2), (3, 5)]))
    leafy = choose_scheme(lollipop, "uniform-node", support=(2, 3), walk="non-backtracking")
    assert leafy.certain_to_a_relay() == pytest.approx(leafy.law.source_prior[0], rel=1e-12)
    assert "from leaves, with any walk" in str(leafy.relay_warning())
    around = str(choose_scheme(ring(12), "uniform-node", support=(2, 3)).relay_warning())
    assert ("take another network" in around, "non-backtracking" in around) == (True, False)
