"""Intervals against SciPy's distributions, the jackknife against a bias that is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from veilwalk.core.stats import (
    NORMAL_QUANTILE,
    Estimate,
    estimate_mean,
    half_width,
    jackknife,
    student_quantile,
    wilson_interval,
)


def test_quantiles_are_those_of_the_distributions() -> None:
    """Of the normal law, and of Student's law with few and many degrees of freedom."""
    assert pytest.approx(stats.norm.ppf(0.975), rel=1e-14) == NORMAL_QUANTILE
    for freedom in (1, 7, 15, 1000):
        assert student_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-14)


def test_means_have_the_intervals_of_the_textbook() -> None:
    """By the normal law or by Student's; one value alone has an infinite interval."""
    values = np.array([1.0, 2.0, 4.0, 9.0])
    for student, law in ((False, stats.norm()), (True, stats.t(3))):
        found = estimate_mean(values, student=student)
        assert (found.mean, found.count) == (4.0, 4)
        assert found.interval == pytest.approx((4.0 - law.ppf(0.975) * stats.sem(values), 2 * 4.0 - found.low))
        assert found.high == found.mean + half_width(values, student=student)
    assert estimate_mean(values, count=400).count == 400
    assert estimate_mean(values[:1]).interval == (-math.inf, math.inf)


@pytest.mark.parametrize(("hits", "size"), [(0, 20), (3, 50), (50, 50)])
def test_wilsons_interval_is_scipys(hits: int, size: int) -> None:
    """Also where nothing or everything hits."""
    found = wilson_interval(hits / size, size, NORMAL_QUANTILE)
    want = stats.binomtest(hits, size).proportion_ci(method="wilson")
    assert found.interval == pytest.approx((want.low, want.high), abs=1e-12)


def test_the_jackknife_takes_off_the_bias_of_the_plain_variance() -> None:
    """The variance over n becomes the variance over n - 1, exactly; a bound is kept by mean and interval."""
    values = np.array([0.5, 1.0, 2.5, 7.0, 7.5])
    without = np.array([np.delete(values, place).var() for place in range(5)])
    found = jackknife(float(values.var()), without, count=5)
    assert found.mean == pytest.approx(values.var(ddof=1), rel=1e-12)
    assert found.low < found.mean < found.high
    bounded = jackknife(float(values.var()), without, most=10.0, count=5)
    assert bounded == Estimate(10.0, bounded.low, 10.0, 5)
    assert bounded.low == pytest.approx(10.0 - (found.high - found.mean), rel=1e-12)
