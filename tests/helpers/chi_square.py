"""Sampled times against their exact law."""

from __future__ import annotations

import numpy as np
from scipy import stats

from veilwalk.core.arrays import FloatArray, IntArray


def p_value(times: IntArray, pmf: FloatArray) -> float:
    """Return the chi-square p-value of ``times``, bins merged until each expects 20 or more."""
    expected = np.append(pmf, max(0.0, 1.0 - pmf.sum())) * len(times)
    observed = np.bincount(np.minimum(times, len(pmf)), minlength=len(pmf) + 1)
    if np.any(observed[expected < 1e-9] > 0):
        return 0.0
    bins, labels, filled = 0, [], 0.0
    for weight in expected:
        labels.append(bins)
        filled += weight
        if filled >= 20.0:
            bins, filled = bins + 1, 0.0
    # What is left over at the end joins the last full bin.
    merged = np.minimum(labels, bins - 1)
    in_bins = np.bincount(merged, weights=expected)
    return float(stats.chisquare(np.bincount(merged, weights=observed), in_bins / in_bins.sum() * len(times)).pvalue)
