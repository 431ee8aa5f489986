"""Prices from sampled legs, against exact ones on graphs small enough for both."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import special
from typer.testing import CliRunner

from veilwalk.chains import WalkChain, mean_hitting_times
from veilwalk.cli._main import app
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.design import sample_design
from veilwalk.graphs import Graph, barabasi_albert, distances, random_regular

SUPPORT = DistanceSupport(2, 3)
GRAPHS = [random_regular(60, 3, seed=1), barabasi_albert(60, 2, seed=1)]


@pytest.mark.parametrize("graph", GRAPHS)
def test_means_are_right_within_their_intervals(graph: Graph) -> None:
    """Overall, by distance and by degree; the mean over all pairs, law or no law, is the mutant."""
    found = sample_design(graph, "uniform-node", support=SUPPORT, walk="simple", legs=40_000)
    hitting = mean_hitting_times(WalkChain.simple(graph))
    legs = found.law.source_prior[:, None] * found.law.matrix.toarray()
    wide = found.hops.high - found.hops.low
    assert found.hops.mean == pytest.approx((legs * hitting).sum(), abs=wide)
    assert found.hops.mean != pytest.approx(hitting.sum() / (60 * 59), abs=wide)
    apart = distances(graph)
    for distance, one in found.hops_by_distance.items():
        share = legs * (apart == distance)
        assert one.mean == pytest.approx((share * hitting).sum() / share.sum(), abs=one.high - one.low)
    for (low, high), one in found.hops_by_degree.items():
        share = legs * ((graph.degrees >= low) & (graph.degrees <= high))
        assert one.mean == pytest.approx((share * hitting).sum() / share.sum(), abs=one.high - one.low)
    assert sum(one.legs for one in found.hops_by_degree.values()) == found.hops.legs == 40_000


def test_the_blind_entropy_is_that_of_the_posterior_columns() -> None:
    """Against a plain sum over destinations."""
    found = sample_design(GRAPHS[1], "uniform-node", support=SUPPORT, walk="simple", legs=100)
    legs = found.law.source_prior[:, None] * found.law.matrix.toarray()
    columns = legs / legs.sum(axis=0)
    expected = float(legs.sum(axis=0) @ special.entr(columns).sum(axis=0))
    assert found.blind_node_entropy_nats == pytest.approx(expected, rel=1e-12)


def test_laws_that_need_tables_of_all_pairs_are_refused() -> None:
    """By name."""
    with pytest.raises(InvalidParameterError, match="law = 'optimal': must be uniform-node from 10000 nodes on"):
        sample_design(GRAPHS[0], "optimal", support=SUPPORT, walk="simple")


def test_the_same_command_serves_large_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimated, and said to be; what cannot be had is refused."""
    monkeypatch.setattr("veilwalk.design.LARGE_NODES", 50)
    asked = ["design", "--graph", "rrg:60:3:seed=1", "--law", "uniform-node", "--support", "2:3"]
    shown = CliRunner().invoke(app, asked).output
    assert "hops per update, estimated" in shown
    assert "3 hops away" in shown
    record = json.loads(CliRunner().invoke(app, [*asked, "--json"]).output)
    low, high = record["mean_iteration_hops_interval"]
    assert low < record["mean_iteration_hops"] < high
    assert np.isfinite(record["blind_node_entropy_nats"])
    refused = CliRunner().invoke(app, [*asked, "--balanced"])
    assert isinstance(refused.exception, InvalidParameterError)
