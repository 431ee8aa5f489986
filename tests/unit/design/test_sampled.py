"""Prices from sampled legs, against exact ones on graphs small enough for both."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import special

from veilwalk.chains import NodeChain
from veilwalk.cli._design_tables import print_design
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design import DestinationLaw, balanced, design, make_law, sample_legs
from veilwalk.design._bench import LawBench
from veilwalk.design._equalised import equalised_law
from veilwalk.design._on_graph import mean_by_distance
from veilwalk.design._sampled import sampled_equalised
from veilwalk.design._sampled_classes import sample_likelihood
from veilwalk.graphs import Graph, barabasi_albert, distances, random_regular

SUPPORT = DistanceSupport(2, 3)
GRAPHS = [random_regular(60, 3, seed=1), barabasi_albert(60, 2, seed=1)]
EQUALISED = [
    (random_regular(200, 3, seed=1), DistanceSupport(2, 5)),
    (barabasi_albert(200, 2, seed=1), DistanceSupport(2, 4)),
]


@pytest.mark.parametrize("graph", GRAPHS)
def test_means_are_right_within_their_intervals(graph: Graph) -> None:
    """Overall, by distance and by degree; the mean over all pairs, law or no law, is the mutant."""
    law = make_law("uniform-node", graph, SUPPORT)
    found = sample_legs(graph, law, SIMPLE, legs=40_000)
    hitting = NodeChain.simple(graph).mean_hitting_times()
    legs = law.source_prior[:, None] * law.matrix.toarray()
    wide = found.hops.high - found.hops.low
    assert found.hops.mean == pytest.approx((legs * hitting).sum(), abs=wide)
    assert found.hops.mean != pytest.approx(hitting.sum() / (60 * 59), abs=wide)
    apart = distances(graph)
    for distance, one in found.by_distance.items():
        share = legs * (apart == distance)
        assert one.mean == pytest.approx((share * hitting).sum() / share.sum(), abs=one.high - one.low)
    for (low, high), one in found.by_degree.items():
        share = legs * ((graph.degrees >= low) & (graph.degrees <= high))
        assert one.mean == pytest.approx((share * hitting).sum() / share.sum(), abs=one.high - one.low)
    assert sum(one.legs for one in found.by_degree.values()) == found.hops.legs == 40_000


def test_the_blind_entropy_is_that_of_the_posterior_columns() -> None:
    """Against a plain sum over destinations."""
    found = design(GRAPHS[1], "uniform-node", support=SUPPORT, large_nodes=50)
    law = found.scheme.law
    legs = law.source_prior[:, None] * law.matrix.toarray()
    columns = legs / legs.sum(axis=0)
    expected = float(legs.sum(axis=0) @ special.entr(columns).sum(axis=0))
    assert found.blind_node_entropy_nats == pytest.approx(expected, rel=1e-12)


def test_laws_that_need_tables_of_all_pairs_are_refused() -> None:
    """By name."""
    with pytest.raises(
        InvalidParameterError, match=r"law = 'optimal': must be one of uniform.*equalised.* from 50 nodes on"
    ):
        design(GRAPHS[0], "optimal", support=SUPPORT, large_nodes=50)


def test_one_design_serves_large_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    """Estimated, and said to be; what cannot be had is refused, and so is what would do nothing."""
    found = design(GRAPHS[0], "uniform-node", support=SUPPORT, large_nodes=50)
    print_design(found)
    shown = capsys.readouterr().out
    assert "hops per update, estimated" in shown
    assert "3 hops away" in shown
    record = found.to_dict()
    low, high = record["mean_iteration_hops_interval"]
    assert low < record["mean_iteration_hops"] < high
    assert np.isfinite(record["blind_node_entropy_nats"])
    assert json.dumps(found.record().to_dict())
    even = design(GRAPHS[1], "uniform-node", support=SUPPORT, large_nodes=50, balanced=True)
    assert even.scheme.prior_range == pytest.approx([1, 1])
    assert design(GRAPHS[1], "uniform-node", support=SUPPORT, large_nodes=50).scheme.prior_range[1] > 1.1
    for option in ({"budget_hops": 50.0}, {"observer": "last-hop"}, {"objective": "hit-ratio"}, {"window_radius": 3}):
        with pytest.raises(InvalidParameterError, match="left out: the law uniform-node does not use it on 60 nodes"):
            design(GRAPHS[0], "uniform-node", support=SUPPORT, large_nodes=50, **option)


@pytest.mark.parametrize(("graph", "support"), EQUALISED)
@pytest.mark.parametrize("walk", ["simple", "non-backtracking"])
def test_sampled_equalised_laws_are_near_the_exact_ones(graph: Graph, support: DistanceSupport, walk: str) -> None:
    """In total variation, and in how unlike the sources look at the exact window likelihoods; uniform is the mutant."""
    law, _, _ = sampled_equalised(graph, support, walk=Walk(walk), tail_probability=0.3, seed=1)
    bench = LawBench(graph, support=support, walk=Walk(walk))
    likelihood = bench.window_likelihood(bench.return_time(0.3)[0], 5)
    exact = equalised_law(bench.uniform, likelihood).law

    def unlike(law: DestinationLaw) -> float:
        """Standard deviation, over the sources of a destination, of the logarithm of their weights; mean square."""
        weights = law.matrix.toarray() * likelihood
        logs = np.log(weights, where=weights > 0, out=np.full_like(weights, np.nan))
        return float(np.sqrt(np.nanvar(logs, axis=0).mean()))

    def apart(law: DestinationLaw) -> float:
        return float(np.abs((law.matrix - exact.matrix).toarray()).sum() / 2 / graph.n_nodes)

    assert apart(law) < 0.05
    assert apart(bench.uniform) > 0.2
    assert unlike(law) < unlike(exact) + 0.25 * (unlike(bench.uniform) - unlike(exact))
    assert balanced(law).source_prior == pytest.approx(1 / graph.n_nodes)


def test_classes_are_estimated_within_their_errors() -> None:
    """Ratios between distances against exact chains on a regular graph; no difference at all is the mutant."""
    graph, support = EQUALISED[0]
    found = sample_likelihood(graph, support, walk=SIMPLE, tail_probability=0.3, seed=3, hops=4_000_000)
    bench = LawBench(graph, support=support)
    exact = mean_by_distance(bench.window_likelihood(found.return_time, 5), distances(graph), support)
    ratio = found.values[1] / found.values[1, -1]
    error = np.hypot(found.relative_error[1], found.relative_error[1, -1])
    assert np.all(np.abs(ratio / (exact / exact[-1]) - 1) < 3 * error)
    assert not np.all(np.abs(1 / (exact / exact[-1]) - 1) < 3 * error)


def test_equalised_laws_are_shown_with_their_classes(capsys: pytest.CaptureFixture[str]) -> None:
    """Degrees, distances, errors; too short a walk is refused."""
    found = design(GRAPHS[1], "equalised", support=SUPPORT, large_nodes=50)
    print_design(found)
    shown = capsys.readouterr().out
    assert "relative to the largest" in shown
    assert "degree 2 to 3" in shown
    record = found.to_dict()
    assert np.shape(record["equalised"]["values"]) == np.shape(record["equalised"]["relative_error"])
    with pytest.raises(InvalidParameterError, match="hops = 'too few'"):
        sample_likelihood(GRAPHS[1], SUPPORT, walk=SIMPLE, tail_probability=0.3, seed=1, hops=20)
