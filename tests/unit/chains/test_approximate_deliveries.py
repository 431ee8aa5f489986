"""Delivery laws with an independent past: what they share with the exact ones, and where they part."""

from __future__ import annotations

import numpy as np
import pytest

from veilwalk.chains import WalkChain, hitting_pmf, iter_approximate_deliveries, iter_deliveries, stationary_law
from veilwalk.core.arrays import normalised
from veilwalk.graphs import distances, random_regular

GRAPH = random_regular(24, 3, seed=2)
CHAIN = WalkChain.simple(GRAPH)
APART = distances(GRAPH)
LAW = normalised((APART >= 2).astype(np.float64))
HORIZON = 2000


def test_the_return_time_is_the_sum_of_two_hitting_times() -> None:
    """By a plain double loop over both, for every source of one destination."""
    (found,) = iter_approximate_deliveries(CHAIN, LAW, 60, [5])
    prior = normalised(stationary_law(LAW) * LAW[:, 5])
    hits = hitting_pmf(CHAIN, 5, 60)
    for column, source in enumerate(found.sources):
        for time in (4, 5, 11, 40):
            want = sum(hits[s, source] * hits[time - s, source] for s in range(1, time))
            got = found.joint[time, :, column].sum()
            assert got == pytest.approx(prior[source] * want, rel=1e-9, abs=1e-16)


def test_it_has_the_right_margins_and_zeros() -> None:
    """All of it sums to one, sources follow the prior, and no source farther than half the return time has weight."""
    for found in iter_approximate_deliveries(CHAIN, LAW, HORIZON, [0, 7]):
        node = found.destination
        prior = normalised(stationary_law(LAW) * LAW[:, node])
        assert found.joint.sum() + found.beyond.sum() == pytest.approx(1, abs=1e-9)
        together = found.joint.sum(axis=(0, 1)) + found.beyond.sum(axis=0)
        np.testing.assert_allclose(together, prior[found.sources], atol=1e-9)
        away = APART[node, found.sources]
        for time in range(2 * int(away.max())):
            assert np.all(found.joint[time][:, time < 2 * away] == 0)


def test_it_is_close_to_the_exact_law_but_not_the_same() -> None:
    """A few percent in total variation: too much to pass for exact, little enough to rank by."""
    approximate = next(iter_approximate_deliveries(CHAIN, LAW, HORIZON, [3]))
    exact = next(iter_deliveries(CHAIN, LAW, HORIZON, [3]))
    np.testing.assert_array_equal(approximate.sources, exact.sources)
    apart = np.abs(approximate.joint - exact.joint).sum() / 2
    assert 0.002 < apart < 0.1
