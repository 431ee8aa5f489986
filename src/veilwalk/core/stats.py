"""Means with 95% confidence intervals, the jackknife, and bins of whole numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

from veilwalk.core.arrays import FloatArray, IntArray

# A two-sided interval of 95% ends at this quantile.
_UPPER = 0.975
#: That quantile of the normal law: 1.959964.
NORMAL_QUANTILE = float(ndtri(_UPPER))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95% confidence interval, and how it was obtained; an exact number has an interval of no width.

    ``count`` is the number of samples behind it, 0 where it is not known.
    """

    mean: float
    low: float
    high: float
    count: int = 0
    how: str = "estimated"

    @classmethod
    def exact(cls, value: float, how: str = "exact") -> Estimate:
        """Return a number that was computed and not sampled."""
        return cls(value, value, value, 0, how)

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends of the interval."""
        return self.low, self.high


def student_quantile(freedom: int) -> float:
    """Return the same quantile of Student's law with so many degrees of freedom."""
    return float(stdtrit(freedom, _UPPER))


def half_width(values: FloatArray, *, student: bool = False) -> float:
    """Return half the interval of a mean, by the normal law or Student's; infinite for fewer than two values."""
    if len(values) < 2:
        return math.inf
    quantile = student_quantile(len(values) - 1) if student else NORMAL_QUANTILE
    return quantile * float(values.std(ddof=1)) / math.sqrt(len(values))


def estimate_mean(values: FloatArray, *, student: bool = False, count: int | None = None) -> Estimate:
    """Return the mean of independent values with its interval; ``count`` where each value stands for many samples."""
    mean, half = float(values.mean()), half_width(values, student=student)
    return Estimate(mean, mean - half, mean + half, len(values) if count is None else count)


def wilson_interval(share: float, size: float, quantile: float) -> Estimate:
    """Return a share with Wilson's score interval among so many independent samples."""
    weight = quantile**2 / size
    centre = (share + weight / 2) / (1 + weight)
    half = quantile * (share * (1 - share) / size + weight / (4 * size)) ** 0.5 / (1 + weight)
    return Estimate(share, max(centre - half, 0.0), min(centre + half, 1.0))


def jackknife(whole: float, left_out: FloatArray, *, most: float = math.inf, count: int = 0) -> Estimate:
    """Return a statistic less its bias of first order, with an interval by Student's law.

    ``whole`` is the statistic of all groups together, which have ``count`` samples; ``left_out`` is the statistic
    without each group in turn. It never exceeds ``most``; with few samples the correction may.
    """
    size = len(left_out)
    pseudo = size * whole - (size - 1) * left_out
    mean, half = min(float(pseudo.mean()), most), half_width(pseudo, student=True)
    return Estimate(mean, mean - half, min(mean + half, most), count)


def quantile_edges(values: IntArray, shares: Sequence[float] | FloatArray) -> IntArray:
    """Return the largest value of each bin but the last, which ends nowhere; ``shares`` of the values lie up to them.

    Edges are values that occur, and none occurs twice: where many values are equal there are fewer bins.
    """
    return np.unique(np.quantile(values, shares, method="inverted_cdf"))


def geometric_starts(first: float, last: float, count: int) -> IntArray:
    """Return the first whole number of each of at most ``count`` bins, those that rounding leaves apart."""
    return np.unique(np.round(np.geomspace(first, last, count)).astype(np.int64))
