"""Closed forms of the non-backtracking walk against sums and high precision written here."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from veilwalk import theory
from veilwalk.core.errors import InvalidParameterError

SIZES = [100, 300, 10**6, 10**12]


def walk(n_nodes: int, degree: int = 3) -> theory.WalkModel:
    return theory.WalkModel(n_nodes=n_nodes, degree=degree)


@pytest.mark.parametrize("degree", [3, 4, 8])
def test_the_straight_probability_is_that_of_a_tree_near_by_and_of_chance_far_off(degree: int) -> None:
    """1/n_l up to terms of n_l/N, 1/N beyond the diameter, 1/c exactly at a neighbour."""
    model = walk(10**9, degree)
    for distance in (2, 3, 5):
        paths = degree * (degree - 1) ** (distance - 1)
        got = theory.nonbacktracking_straight_probability(distance, model=model)
        assert got == pytest.approx(1 / paths + 1 / (2 * model.n_nodes), rel=1e-9)
    far = theory.nonbacktracking_straight_probability([60, 3000], model=model)
    np.testing.assert_allclose(far, 1 / model.n_nodes, rtol=1e-12)
    assert theory.nonbacktracking_straight_probability(1, model=model) == 1 / degree


@pytest.mark.parametrize("n_nodes", SIZES)
def test_probabilities_keep_their_digits_at_every_scale(n_nodes: int) -> None:
    """Straight probability, geometric part and returns at 50 digits."""
    mpmath.mp.dps = 50
    model, ell = walk(n_nodes), 6
    delay = 2 + mpmath.mpf(4) / 3
    straight = 1 / (n_nodes * (1 - mpmath.exp(-mpmath.mpf(96) / n_nodes)))
    rate = 1 / (n_nodes - delay + mpmath.mpf(4) / 3 / 32)
    for gap in (1, 2, 1000, n_nodes):
        want = (1 - straight) * rate * (1 - rate) ** (gap - 1)
        got = theory.nonbacktracking_hitting_pmf(ell + gap, distance=ell, model=model)
        assert got == pytest.approx(float(want), rel=1e-13, abs=0)
    back = 1 / (n_nodes - delay)
    survival = mpmath.mpf(1)
    for time in range(3, 40):
        share = 1 - mpmath.mpf(2) ** -((time - 3) // 2) / 3
        want = survival * (1 - (1 - back) ** share)
        got = theory.nonbacktracking_return_pmf(time, model=model)
        assert got == pytest.approx(float(want), rel=1e-13, abs=0)
        survival -= want
        left = theory.nonbacktracking_return_survival(time, model=model)
        assert left == pytest.approx(float(survival), rel=1e-13)


@pytest.mark.parametrize(("n_nodes", "degree"), [(100, 3), (300, 4), (1000, 8)])
def test_each_law_sums_to_one_with_the_stated_mean(n_nodes: int, degree: int) -> None:
    """Hitting times have their mean exactly, returns theirs to a tenth of a hop."""
    model, times = walk(n_nodes, degree), np.arange(60 * n_nodes)
    for distance in (1, 2, 5):
        pmf = theory.nonbacktracking_hitting_pmf(times, distance=distance, model=model)
        assert pmf.sum() == pytest.approx(1, abs=1e-12)
        mean = theory.nonbacktracking_mean_hitting_time(distance, model=model)
        assert times @ pmf == pytest.approx(float(mean), rel=1e-12)
    returns = theory.nonbacktracking_return_pmf(times, model=model)
    assert returns.sum() == pytest.approx(1, abs=1e-12)
    assert times @ returns == pytest.approx(theory.nonbacktracking_mean_return_time(model=model), abs=0.1)
    assert returns[:3].tolist() == [0, 0, 0]


@pytest.mark.parametrize("degree", [3, 4, 9])
def test_from_a_neighbour_the_mean_is_exact(degree: int) -> None:
    """1/c + (1 - 1/c) (N - 1) in rational arithmetic: an identity of every regular graph."""
    for n_nodes in (20, 300, 10**6):
        want = Fraction(1, degree) + (1 - Fraction(1, degree)) * (n_nodes - 1)
        got = theory.nonbacktracking_mean_hitting_time(1, model=walk(n_nodes, degree))
        assert got == pytest.approx(float(want), rel=1e-14)


def test_the_delay_is_the_sum_of_what_returns_are_missing() -> None:
    """Two whole hops, then a share that halves (c = 3) every other hop; summed here term by term."""
    for degree in (3, 4, 8):
        missing = sum(Fraction(1, degree) * Fraction(1, degree - 1) ** ((t - 3) // 2) for t in range(3, 400))
        got = theory.nonbacktracking_return_delay(model=walk(300, degree))
        assert got == pytest.approx(2 + float(missing), rel=1e-14)


def test_truncated_means_and_cdfs_are_sums_of_the_law() -> None:
    """By brute force up to the bound, over tables of bounds and distances; without a bound it is the mean."""
    model, ell = walk(300), np.arange(1, 8)
    bounds = np.array([[12.0], [60.0], [634.0]])
    table = theory.nonbacktracking_truncated_mean(bounds, distance=ell, model=model)
    cdf = theory.nonbacktracking_hitting_cdf(bounds, distance=ell, model=model)
    for i, bound in enumerate(bounds[:, 0]):
        t = np.arange(int(bound) + 1)
        for j, distance in enumerate(ell):
            pmf = theory.nonbacktracking_hitting_pmf(t, distance=int(distance), model=model)
            assert table[i, j] == pytest.approx((t * pmf).sum() / pmf.sum(), rel=1e-12)
            assert cdf[i, j] == pytest.approx(pmf.sum(), rel=1e-12)
    mean = theory.nonbacktracking_mean_hitting_time(ell, model=model)
    np.testing.assert_allclose(
        theory.nonbacktracking_truncated_mean(math.inf, distance=ell, model=model), mean, rtol=1e-12
    )
    assert theory.nonbacktracking_hitting_cdf(3, distance=4, model=model) == 0


def test_it_saves_what_the_simple_walk_loses_by_coming_back() -> None:
    """Far off the ratio to the simple walk tends to (c-2)/(c-1), the simple walk's escape probability."""
    for degree in (3, 4, 8):
        model = walk(10**9, degree)
        ratio = theory.nonbacktracking_mean_hitting_time(20, model=model) / theory.mean_hitting_time(20, model=model)
        assert ratio == pytest.approx((degree - 2) / (degree - 1), rel=1e-5)


def test_tiny_graphs_still_have_laws() -> None:
    """Four nodes, each joined to each: sums stay one though the forms are meant for large graphs."""
    model, times = walk(4), np.arange(2000)
    for distance in (1, 2, 4):
        assert theory.nonbacktracking_hitting_pmf(times, distance=distance, model=model).sum() == pytest.approx(1)
    assert theory.nonbacktracking_return_pmf(times, model=model).sum() == pytest.approx(1)


@pytest.mark.parametrize("distance", [0, -1, 1.5])
def test_impossible_distances_and_bounds_are_refused(distance: float) -> None:
    """Distances are whole numbers from 1; a bound must exceed the distance."""
    with pytest.raises(InvalidParameterError, match="distance"):
        theory.nonbacktracking_hitting_pmf(3, distance=distance, model=walk(300))
    with pytest.raises(InvalidParameterError, match="return time"):
        theory.nonbacktracking_truncated_mean(2, distance=2, model=walk(300))
