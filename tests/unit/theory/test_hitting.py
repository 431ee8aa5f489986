"""First-hitting laws against high-precision sums written here, which share no code with the subject."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from veilwalk import theory
from veilwalk.core.errors import InvalidParameterError
from veilwalk.theory import _hitting, printed

SIZES = [10, 300, 10**6, 10**12]


def walk(n_nodes: int, degree: int = 4) -> theory.WalkModel:
    return theory.WalkModel(n_nodes=n_nodes, degree=degree)


def hitting_pmf(time: Any, *, distance: float, model: theory.WalkModel) -> np.ndarray:
    """P(T_FH = time | distance), both scenarios mixed; in the paper before Gl4."""
    sp = theory.shortest_path_probability(distance, model=model)
    direct, lost = (
        law(time, distance=distance, model=model) for law in (theory.hitting_pmf_sp, theory.hitting_pmf_nsp)
    )
    return np.asarray(sp * direct + (1 - sp) * lost)


def exact_sp_pmf(t: int, ell: int, c: int) -> Fraction:
    """The shortest-path law in rational arithmetic, from the formula with integer binomials."""
    if t < ell or (t - ell) % 2:
        return Fraction(0)
    forward, back = (t + ell) // 2, (t - ell) // 2
    return Fraction(ell, t) * math.comb(t, forward) * Fraction(c - 1, c) ** forward * Fraction(1, c) ** back


@pytest.mark.parametrize("degree", [3, 4, 9])
@pytest.mark.parametrize("distance", [1, 2, 7])
def test_shortest_path_law_agrees_with_rational_arithmetic(degree: int, distance: int) -> None:
    """Log-gamma loses nothing that matters, and impossible times are exactly zero."""
    times = np.arange(60)
    got = theory.hitting_pmf_sp(times, distance=distance, model=walk(1000, degree))
    want = [float(exact_sp_pmf(int(t), distance, degree)) for t in times]
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=0)


@pytest.mark.parametrize("degree", [3, 4, 9])
def test_shortest_path_law_sums_to_one_with_the_stated_mean(degree: int) -> None:
    """It is a law, and its mean is c l/(c-2): this is what lets the two scenarios be mixed."""
    times = np.arange(5000)
    for distance in (1, 3, 8):
        pmf = theory.hitting_pmf_sp(times, distance=distance, model=walk(1000, degree))
        assert pmf.sum() == pytest.approx(1, abs=1e-13)
        assert times @ pmf == pytest.approx(
            _hitting.mean_hitting_time_sp(distance, model=walk(1000, degree)), rel=1e-12
        )


def test_shortest_path_cdf_agrees_with_the_reflection_principle() -> None:
    """P(T <= t) = P(S_t >= l) + (p/q)^l P(S_t < -l) for a walk with drift: another road to the same number."""
    c, distance, t = 3, 4, 61
    p = Fraction(c - 1, c)
    ends = {2 * up - t: math.comb(t, up) * p**up * (1 - p) ** (t - up) for up in range(t + 1)}
    want = sum((v for s, v in ends.items() if s >= distance), Fraction(0))
    want += Fraction(c - 1) ** distance * sum((v for s, v in ends.items() if s < -distance), Fraction(0))
    got = _hitting.hitting_cdf_sp(t, distance=distance, model=walk(1000, c))
    assert got == pytest.approx(float(want), rel=1e-13)


@pytest.mark.parametrize("n_nodes", SIZES)
def test_lost_law_is_the_geometric_law_to_the_last_digits(n_nodes: int) -> None:
    """(e^a - 1) e^(-a(t-l)) at 50 digits; at N = 10^12 a plain exp(a) - 1 keeps only four of them."""
    mpmath.mp.dps = 50
    a = mpmath.mpf(2) / 3 / n_nodes
    for gap in (1, 2, 1000, n_nodes):
        want = mpmath.expm1(a) * mpmath.exp(-a * gap)
        got = theory.hitting_pmf_nsp(5 + gap, distance=5, model=walk(n_nodes))
        assert got == pytest.approx(float(want), rel=1e-14, abs=0)
    assert theory.hitting_pmf_nsp(5, distance=5, model=walk(n_nodes)) == 0
    naive = (math.exp(float(a)) - 1) * math.exp(-float(a))
    if n_nodes == 10**12:
        assert naive != pytest.approx(float(mpmath.expm1(a)), rel=1e-6, abs=0)


def truncated_geometric_mean(a: mpmath.mpf, m: int) -> mpmath.mpf:
    """Mean of a geometric law on 1..m as a ratio of closed sums, at whatever precision is set."""
    r = mpmath.exp(-a)
    return 1 / (1 - r) - m * r**m / (1 - r**m)


@pytest.mark.parametrize("n_nodes", SIZES)
def test_truncated_mean_of_lost_walks_is_exact_at_every_scale(n_nodes: int) -> None:
    """From bounds just above the distance to many times N: no cancellation anywhere, series join included."""
    mpmath.mp.dps = 60
    a = mpmath.mpf(2) / 3 / n_nodes
    joins = [int(0.1 * n_nodes * 1.5) + k for k in (-1, 0, 1)]
    for m in {1, 2, 7, 1000, n_nodes, 5 * n_nodes, 60 * n_nodes, *(j for j in joins if j > 0)}:
        got = theory.truncated_mean_nsp(3 + m, distance=3, model=walk(n_nodes))
        assert got == pytest.approx(float(3 + truncated_geometric_mean(a, m)), rel=1e-13), m


def test_truncated_mean_agrees_with_a_brute_force_sum() -> None:
    """The mixture, by summing t P(T = t) over all t up to the bound."""
    model = walk(300, 3)
    for distance in (2, 5, 9):
        for bound in (distance + 1, 40, 634):
            t = np.arange(1, bound + 1)
            pmf = hitting_pmf(t, distance=distance, model=model)
            want = (t * pmf).sum() / pmf.sum()
            assert theory.truncated_mean(bound, distance=distance, model=model) == pytest.approx(want, rel=1e-12)


def test_truncated_mean_stays_below_its_bound_and_the_printed_one_does_not() -> None:
    """Erratum 2: no mean of T given T <= kappa exceeds kappa; the printed proposition does."""
    model, ell = walk(300, 3), np.arange(2, 7)
    for bound in (10.0, 218.0, 500.0):
        assert np.all(theory.truncated_mean(bound, distance=ell, model=model) < bound)
        assert np.all(printed.truncated_mean_nsp(bound, distance=ell, model=model) > bound)
    ratio = printed.truncated_mean(634, distance=ell, model=model) / theory.truncated_mean(
        634, distance=ell, model=model
    )
    assert np.all(ratio > 2)


def test_without_a_bound_the_truncated_mean_is_the_mean() -> None:
    """Infinity is a bound like any other; the printed form is right only there."""
    model, ell = walk(300, 3), np.arange(2, 10)
    mean = theory.mean_hitting_time(ell, model=model)
    np.testing.assert_allclose(theory.truncated_mean(math.inf, distance=ell, model=model), mean, rtol=1e-13)
    np.testing.assert_allclose(
        printed.truncated_mean_nsp(math.inf, distance=ell, model=model),
        theory.mean_hitting_time_nsp(ell, model=model),
        rtol=1e-13,
    )


def test_lost_probability_is_bayes() -> None:
    """P(not SP | T <= kappa) from the four masses, by hand; it tends to the prior as kappa grows."""
    model = walk(300, 3)
    t = np.arange(1, 51)
    sp = 2.0**-3 + 1 / 300
    direct = sp * theory.hitting_pmf_sp(t, distance=3, model=model).sum()
    lost = (1 - sp) * theory.hitting_pmf_nsp(t, distance=3, model=model).sum()
    assert _hitting.lost_probability(50, distance=3, model=model) == pytest.approx(lost / (lost + direct), rel=1e-13)
    assert _hitting.lost_probability(math.inf, distance=3, model=model) == pytest.approx(1 - sp, rel=1e-13)


def test_functions_broadcast_over_times_and_distances() -> None:
    """A column of bounds against a row of distances gives a table equal to the single values."""
    model = walk(300, 3)
    bounds, ell = np.array([[50.0], [634.0]]), np.arange(2, 5)
    table = theory.truncated_mean(bounds, distance=ell, model=model)
    assert table.shape == (2, 3)
    for i, bound in enumerate(bounds[:, 0]):
        for j, distance in enumerate(ell):
            assert table[i, j] == theory.truncated_mean(bound, distance=int(distance), model=model)


@pytest.mark.parametrize("bound", [2.0, 1.0, math.nan])
def test_bounds_at_or_below_the_distance_are_refused(bound: float) -> None:
    """A hitting time never undercuts the distance, so the condition would be empty."""
    with pytest.raises(InvalidParameterError, match="return time"):
        theory.truncated_mean(bound, distance=2, model=walk(300, 3))


@pytest.mark.parametrize(
    ("nodes", "degree", "name"),
    [(300, 2, "degree"), (4, 4, "nodes"), (301, 3, "nodes \\* degree"), (300, 3.5, "degree"), (True, 3, "nodes")],
)
def test_impossible_networks_are_refused_by_name(nodes: int, degree: int, name: str) -> None:
    """Degree below 3, too few nodes, an odd number of edge ends, fractions."""
    with pytest.raises(InvalidParameterError, match=name):
        theory.WalkModel(n_nodes=nodes, degree=degree)


@pytest.mark.parametrize("distance", [0, -1, 1.5, [2, 0]])
def test_impossible_distances_are_refused(distance: float) -> None:
    """Distances are whole numbers from 1."""
    with pytest.raises(InvalidParameterError, match="distance"):
        hitting_pmf(3, distance=distance, model=walk(300, 3))
