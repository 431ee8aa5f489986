"""Whole numbers cut into bins, in the two ways this house cuts them: by their quantiles, and geometrically."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilwalk.core.arrays import FloatArray, IntArray


def quantile_edges(values: IntArray, shares: Sequence[float] | FloatArray) -> IntArray:
    """Return the largest value of each bin but the last, which ends nowhere; ``shares`` of the values lie up to them.

    Edges are values that occur, and none occurs twice: where many values are equal there are fewer bins.
    """
    return np.unique(np.quantile(values, shares, method="inverted_cdf"))


def quantile_bins(edges: IntArray, values: IntArray) -> IntArray:
    """Return the bin of each value, given the edges of :func:`quantile_edges`."""
    return np.searchsorted(edges, values, side="left")


def geometric_edges(first: float, last: float, count: int) -> FloatArray:
    """Return ``count`` numbers from ``first`` to ``last``, each the same multiple of the one before."""
    return np.geomspace(first, last, count)


def geometric_starts(first: float, last: float, count: int) -> IntArray:
    """Return the first whole number of each of at most ``count`` bins, those that rounding leaves apart."""
    return np.unique(np.round(geometric_edges(first, last, count)).astype(np.int64))
