"""Prices from sampled legs, against exact ones on graphs small enough for both."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import special

from veilwalk.chains import NodeChain
from veilwalk.cli._design import print_design
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.design import Scheme, choose_scheme, design
from veilwalk.design._design import sample_legs
from veilwalk.graphs import Graph, barabasi_albert, distances, random_regular

SUPPORT = DistanceSupport(2, 3)
GRAPHS = [random_regular(60, 3, seed=1), barabasi_albert(60, 2, seed=1)]


@pytest.fixture(autouse=True)
def large_from_fifty_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take these graphs for too large for tables of all pairs."""
    monkeypatch.setattr("veilwalk.design._registry.LARGE_NODES", 50)


@pytest.mark.parametrize("graph", GRAPHS)
def test_means_are_right_within_their_intervals(graph: Graph) -> None:
    """Overall, by distance and by degree; the mean over all pairs, law or no law, is the mutant."""
    law = choose_scheme(graph, "uniform-node", support=SUPPORT).law
    found = sample_legs(Scheme(graph, law), legs=40_000)
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
    assert sum(one.count for one in found.by_degree.values()) == found.hops.count == 40_000


def test_the_blind_entropy_is_that_of_the_posterior_columns() -> None:
    """Against a plain sum over destinations."""
    found = design(GRAPHS[1], "uniform-node", support=SUPPORT)
    law = found.scheme.law
    legs = law.source_prior[:, None] * law.matrix.toarray()
    columns = legs / legs.sum(axis=0)
    expected = float(legs.sum(axis=0) @ special.entr(columns).sum(axis=0))
    assert found.exposure.node_entropy.mean == pytest.approx(expected, rel=1e-12)


def test_laws_that_need_tables_of_all_pairs_are_refused() -> None:
    """By name."""
    with pytest.raises(InvalidParameterError, match=r"^law = 'optimal'"):
        design(GRAPHS[0], "optimal", support=SUPPORT)


def test_one_design_serves_large_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    """Estimated, and said to be; what cannot be had is refused, and so is what would do nothing."""
    found = design(GRAPHS[0], "uniform-node", support=SUPPORT)
    print_design(found)
    shown = capsys.readouterr().out
    assert "hops per update, estimated" in shown
    assert "3 hops away" in shown
    record = found.to_dict()
    low, high = record["mean_iteration_hops_interval"]
    assert low < record["mean_iteration_hops"] < high
    assert np.isfinite(record["blind_node_entropy_nats"])
    assert json.dumps(found.record().to_dict())
    even = design(GRAPHS[1], "uniform-node", support=SUPPORT, balanced=True)
    assert even.scheme.prior_range == pytest.approx([1, 1])
    assert design(GRAPHS[1], "uniform-node", support=SUPPORT).scheme.prior_range[1] > 1.1
    for option in ({"budget_hops": 50.0}, {"observer": "last-hop"}, {"objective": "hit-ratio"}, {"window_radius": 3}):
        with pytest.raises(InvalidParameterError, match=f"^{next(iter(option))} = "):
            design(GRAPHS[0], "uniform-node", support=SUPPORT, **option)
