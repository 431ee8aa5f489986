"""The scorer: the only place where what was inferred meets the truth."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.stats import Estimate, student_quantile, wilson_interval
from veilwalk.core.support import DistanceSupport

#: Names of the scores, in the order of the columns of :func:`score`.
SCORES = (
    "node_entropy_nats",
    "distance_entropy_nats",
    "min_entropy_nats",
    "top_posterior",
    "hit_ratio",
    "inverse_rank",
    "ndcg",
)
#: Those that lie from 0 to 1, and so do their intervals.
SHARES = ("top_posterior", "hit_ratio", "inverse_rank", "ndcg")
# Fewer hits than these, or misses, are few.
_FEW = 10
# Lanes that differ by less are the same.
_ROUNDING = 1e-20


def score(posteriors: FloatArray, sources: IntArray, hops_away: IntArray, support: DistanceSupport) -> FloatArray:
    """Score each posterior (row) against its true source; columns as in ``SCORES``.

    Node entropy, min-entropy (-log of the top) and the top itself are properties of the posterior. Distance entropy
    is the paper's: of the mean weight of ONE node at each distance, ``hops_away`` holding each node's. Hit ratio,
    inverse rank and NDCG ask where the true source stands; ties share their places evenly.
    """
    rows = np.arange(len(posteriors))
    mine = posteriors[rows, sources][:, np.newaxis]
    above = (posteriors > mine).sum(axis=1)
    # Equal to the true source's weight, itself included: it may stand on any of these places.
    ties = (posteriors == mine).sum(axis=1)
    top = posteriors.max(axis=1)
    out = np.empty((len(posteriors), len(SCORES)))
    out[:, 0] = special.entr(posteriors).sum(axis=1)
    out[:, 1] = _distance_entropies(posteriors, hops_away, support)
    out[:, 2] = -np.log(top)
    out[:, 3] = top
    out[:, 4] = np.where(above == 0, 1 / ties, 0.0)
    place = np.arange(1.0, posteriors.shape[1] + 1)
    out[:, 5] = _mean_over_places(1 / place, above, ties)
    out[:, 6] = _mean_over_places(1 / np.log2(1 + place), above, ties)
    return out


def _distance_entropies(posteriors: FloatArray, hops_away: IntArray, support: DistanceSupport) -> FloatArray:
    shells = (hops_away == support.distances[:, np.newaxis]).astype(np.float64)
    mean = posteriors @ (shells / np.maximum(shells.sum(axis=1, keepdims=True), 1)).T
    total = mean.sum(axis=1, keepdims=True)
    # A posterior wholly outside the support (a plain walk's) has one certain distance.
    return np.asarray(special.entr(mean / np.where(total > 0, total, 1.0)).sum(axis=1))


def _mean_over_places(gain: FloatArray, above: IntArray, ties: IntArray) -> FloatArray:
    """Mean of ``gain`` over the places above+1 to above+ties, by prefix sums."""
    sums = np.concatenate(([0.0], np.cumsum(gain)))
    return np.asarray((sums[above + ties] - sums[above]) / ties)


def estimate(values: FloatArray, lanes: IntArray, *, share: bool = False) -> Estimate:
    """Mean of ``values`` with an interval from the spread of lane means.

    Updates of one token follow each other and are not quite independent; lanes are, so they are the sample. Of a
    ``share``, whose values lie from 0 to 1, an interval that would leave these is replaced by Wilson's for as many
    independent updates as would spread as far; and so is that of a share of nearly none or nearly all.
    """
    counts = np.bincount(lanes)
    used = counts > 0
    means = np.bincount(lanes, weights=values)[used] / counts[used]
    weight = normalised(counts[used].astype(np.float64))
    mean = float(weight @ means)
    if share:
        # Rounding alone could leave what it never leaves in exact arithmetic.
        mean = min(mean, 1.0)
    if len(means) < 2:
        return Estimate(mean, 0.0, 1.0) if share else Estimate(mean, -np.inf, np.inf)
    # Variance of a weighted mean of independent lane means.
    free = len(means) - 1
    variance = float((weight**2) @ (means - mean) ** 2) * len(means) / free
    quantile = student_quantile(free)
    few = min(mean, 1.0 - mean) * len(values) < _FEW
    if share and few:
        # Few hits may fall evenly on the lanes by chance: no less than they spread among updates.
        variance = max(variance, float(values.var(ddof=1)) / len(values))
    half = quantile * variance**0.5
    if share and (few or not 0.0 <= mean - half <= mean + half <= 1.0):
        # Where all hit, or all miss, nothing spreads: there are as many as there are.
        even = values[0] in {0.0, 1.0} and bool((values == values[0]).all())
        size = mean * (1.0 - mean) / variance if variance > _ROUNDING else math.inf
        return wilson_interval(mean, len(values) if even else size, quantile)
    return Estimate(mean, mean - half, mean + half)
