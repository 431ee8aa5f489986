"""Bins by quantiles and geometric ones, against counting by hand."""

from __future__ import annotations

import numpy as np

from veilwalk.core.stats import geometric_starts, quantile_edges


def test_quantile_bins_hold_their_shares() -> None:
    """Edges are values that occur; the bin of an edge is the one it ends; many equal values make fewer bins."""
    values = np.array([5, 1, 3, 2, 4, 10, 9, 8, 7, 6])
    edges = quantile_edges(values, (0.2, 0.5))
    assert edges.tolist() == [2, 5]
    assert np.searchsorted(edges, np.array([1, 2, 3, 5, 6, 99])).tolist() == [0, 0, 1, 1, 2, 2]
    assert quantile_edges(np.array([4, 4, 4, 9]), (0.25, 0.5, 0.75)).tolist() == [4]


def test_geometric_bins_are_fine_where_numbers_are_small() -> None:
    """Each whole number its own until they grow apart; the last start is the end."""
    starts = geometric_starts(1, 1000, 10)
    assert starts.tolist() == [1, 2, 5, 10, 22, 46, 100, 215, 464, 1000]
    assert geometric_starts(4, 4, 5).tolist() == [4]
