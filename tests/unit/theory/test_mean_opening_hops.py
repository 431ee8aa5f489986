"""The approximate price of K recipients against exact chains, trees and limits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from veilwalk.chains import chain_of
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import Walk
from veilwalk.graphs import distances, random_regular
from veilwalk.theory import WalkModel, mean_hitting_time, mean_opening_hops

WALKS = ["simple", "non-backtracking"]


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize(("degree", "far"), [(3, 2), (3, 4), (4, 3)])
def test_it_is_within_three_percent_of_exact_chains(degree: int, far: int, walk: str) -> None:
    """One graph of 300 nodes, one recipient exactly and sixteen over drawn sets; graphs differ by a percent."""
    network, model = random_regular(300, degree, seed=1), WalkModel(n_nodes=300, degree=degree)
    eligible = distances(network) >= far
    law = sparse.csr_array(eligible / eligible.sum(axis=1, keepdims=True))
    chain = chain_of(network, Walk(walk))
    assert mean_opening_hops(1, far=far, model=model, walk=walk) == pytest.approx(chain.mean_hops(law), rel=0.03)
    openings = chain.mean_openings(law, 16, n_sets=4, seed=1)
    assert openings.mean_hops_error < 0.02 * openings.mean_hops
    assert mean_opening_hops(16, far=far, model=model, walk=walk) == pytest.approx(openings.mean_hops, rel=0.03)


@pytest.mark.parametrize("n_nodes", [10**4, 10**6, 10**9])
def test_one_recipient_costs_the_papers_mean_hitting_time(n_nodes: int) -> None:
    """Of the simple walk, far off; the non-backtracking walk saves the share that comes back."""
    model = WalkModel(n_nodes=n_nodes, degree=3)
    paper = float(mean_hitting_time(np.array([20]), model=model)[0])
    simple, straight = (mean_opening_hops(1, far=4, model=model, walk=walk) for walk in WALKS)
    assert simple == pytest.approx(paper, rel=0.01)
    assert straight / simple == pytest.approx(model.escape_probability, rel=0.01)


def test_the_price_falls_as_one_over_the_recipients() -> None:
    """At a million nodes by half with each doubling; the way out of the ball is all that stays."""
    model = WalkModel(n_nodes=10**6, degree=3)
    for walk in WALKS:
        prices = [mean_opening_hops(2**power, far=4, model=model, walk=walk) for power in range(8)]
        np.testing.assert_allclose(np.array(prices[:-1]) / prices[1:], 2, rtol=0.01)


def test_sealed_for_all_that_are_far_it_is_opened_where_the_walk_leaves_the_ball() -> None:
    """Two hops off or more: after two hops straight on; the simple walk goes home first one time in three."""
    model = WalkModel(n_nodes=10**6, degree=3)
    assert mean_opening_hops(10**6 - 4, far=2, model=model) == pytest.approx(2, rel=1e-3)
    assert mean_opening_hops(10**6 - 4, far=2, model=model, walk="simple") == pytest.approx(3, rel=1e-3)


@pytest.mark.parametrize(
    ("recipients", "far", "walk", "parameter"),
    [
        (0, 4, "simple", "recipients"),
        (1.5, 4, "simple", "recipients"),
        (279, 4, "simple", "recipients"),
        (1, 0, "simple", "far"),
        (1, 40, "simple", "recipients"),
        (1, 2, "lazy", "walk"),
    ],
)
def test_impossible_numbers_are_refused(recipients: int, far: int, walk: str, parameter: str) -> None:
    """No recipients, more than are far, nobody that far, a walk without a closed form."""
    with pytest.raises(InvalidParameterError) as refused:
        mean_opening_hops(recipients, far=far, model=WalkModel(n_nodes=300, degree=3), walk=walk)
    assert str(refused.value).startswith(parameter)
