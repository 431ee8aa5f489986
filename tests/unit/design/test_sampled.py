"""Prices from sampled legs, against exact ones on graphs small enough for both."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.helpers.present import present

from veilwalk.chains import NodeChain
from veilwalk.cli._design import print_design
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.design import design
from veilwalk.graphs import Graph, barabasi_albert, random_regular

SUPPORT = DistanceSupport(2, 3)
GRAPHS = [random_regular(60, 3, seed=1), barabasi_albert(60, 2, seed=1)]


@pytest.fixture(autouse=True)
def large_from_fifty_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take these graphs for too large for tables of all pairs."""
    for name in ("_registry.LARGE_NODES", "_scheme.LARGE_NODES"):
        monkeypatch.setattr(f"veilwalk.design.{name}", 50)
    for name in ("_scheme.SMALL_NODES", "_openings.SMALL_NODES", "_openings.TABLE_ENTRIES"):
        monkeypatch.setattr(f"veilwalk.design.{name}", 0)


@pytest.mark.parametrize("graph", GRAPHS)
def test_prices_are_right_within_their_intervals(graph: Graph) -> None:
    """The mean over all pairs, law or no law, is the mutant."""
    found = design(graph, "uniform-node", support=SUPPORT)
    law = found.scheme.law
    hitting = NodeChain.simple(graph).mean_hitting_times()
    low, high = present(found.price.interval)
    exact = float((law.source_prior[:, None] * law.matrix.toarray() * hitting).sum())
    assert found.price.hops == pytest.approx(exact, abs=high - low)
    assert found.price.hops != pytest.approx(hitting.sum() / (60 * 59), abs=high - low)


def test_laws_that_need_tables_of_all_pairs_are_refused() -> None:
    """By name."""
    with pytest.raises(InvalidParameterError, match=r"^law = 'optimal'"):
        design(GRAPHS[0], "optimal", support=SUPPORT)


def test_one_design_serves_large_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    """Estimated, and said to be; what cannot be had is refused, and so is what would do nothing."""
    found = design(GRAPHS[0], "uniform-node", support=SUPPORT)
    print_design(found)
    shown = capsys.readouterr().out
    assert "simulated" in shown
    assert "read" in shown
    record = found.to_dict()
    low, high = record["mean_iteration_hops_interval"]
    assert low < record["mean_iteration_hops"] < high
    assert np.isfinite(record["node_entropy_nats"])
    assert json.dumps(found.record().to_dict())
    even = design(GRAPHS[1], "uniform-node", support=SUPPORT, balanced=True)
    assert even.scheme.prior_range == pytest.approx([1, 1])
    assert design(GRAPHS[1], "uniform-node", support=SUPPORT).scheme.prior_range[1] > 1.1
    for option in ({"budget_hops": 50.0}, {"observer": "last-hop"}, {"window_radius": 3}):
        with pytest.raises(InvalidParameterError, match=f"^{next(iter(option))} = "):
            design(GRAPHS[0], "uniform-node", support=SUPPORT, **option)
