"""Return-time law, the covered return times, and what ass:frt leaves out."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from veilwalk import theory
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.theory import _returns, printed

WALK = theory.WalkModel(n_nodes=300, degree=3)
MODEL = theory.AnonymityModel(walk=WALK, support=DistanceSupport(2, 6))


def mean_return_time() -> float:
    """E[T_FR | not RETRO] = 2 + 1/(1 - e^(-c'/(N-2))), in the paper after ass:frt."""
    return 2 - 1 / math.expm1(-WALK.escape_probability / (WALK.n_nodes - 2))


def survival_at_destination(time: float) -> float:
    """P(T >= t | T >= 2 l1) as a quotient of survivals: T >= t is T > t - 1."""
    return float(theory.return_survival(time - 1, model=WALK) / theory.return_survival(3, model=WALK))


def test_return_law_is_a_law_with_the_stated_mean() -> None:
    """Probabilities from the survival function, their sum, and the closed mean, all agree; none is below time 3."""
    t = np.arange(40_000)
    pmf = -np.diff(theory.return_survival(t, model=WALK))
    assert pmf.min() >= 0
    assert pmf.sum() == pytest.approx(1, abs=1e-12)
    assert t[1:] @ pmf == pytest.approx(mean_return_time(), rel=1e-10)
    assert pmf[:2].sum() == 0


def test_covered_return_time_has_exactly_the_promised_probability() -> None:
    """Erratum 8: with N in place of N-2 the printed t1 promises a little more than it keeps."""
    start = theory.guaranteed_return_time(0.3, model=MODEL)
    kept = survival_at_destination(start)
    assert kept == pytest.approx(0.7, rel=1e-13)
    late = printed.guaranteed_return_time(0.3, model=MODEL)
    broken = survival_at_destination(late)
    assert broken < 0.7 - 1e-3


def test_design_return_time_is_the_papers_634_for_degree_three_only() -> None:
    """Erratum 1: kappa = 634 comes from c = 3; c = 4 would give 476."""
    assert theory.design_return_time(0.3, model=MODEL) == pytest.approx(633.893, abs=1e-3)
    four = theory.AnonymityModel(walk=theory.WalkModel(n_nodes=300, degree=4), support=MODEL.support)
    assert theory.design_return_time(0.3, model=four) == pytest.approx(476.420, abs=1e-3)


def test_design_return_time_halves_the_survival_of_the_covered_ones() -> None:
    """e^(-a kappa) is halfway between e^(-a t1) and 0."""
    a = WALK.decay_rate
    t1 = printed.guaranteed_return_time(0.2, model=MODEL)
    assert math.exp(-a * theory.design_return_time(0.2, model=MODEL)) == pytest.approx(math.exp(-a * t1) / 2)


@pytest.mark.parametrize("degree", [3, 4, 7])
def test_retroceding_returns_agree_with_a_tree_walk(degree: int) -> None:
    """First returns on the tree by dynamic programming over the depth, in rational arithmetic."""
    depth = {1: Fraction(1)}
    got = _returns.retroceding_pmf(np.arange(41), model=theory.WalkModel(n_nodes=1000, degree=degree))
    for time in range(2, 41):
        step: dict[int, Fraction] = {}
        for level, mass in depth.items():
            step[level - 1] = step.get(level - 1, Fraction(0)) + mass / degree
            step[level + 1] = step.get(level + 1, Fraction(0)) + mass * Fraction(degree - 1, degree)
        assert got[time] == pytest.approx(float(step.pop(0, Fraction(0))), rel=1e-12)
        depth = step


def test_retroceding_returns_sum_to_one_over_c_minus_one() -> None:
    """Erratum 6: 1/(c-1) is P(RETRO), where the paper writes P(not RETRO)."""
    pmf = _returns.retroceding_pmf(np.arange(3000), model=WALK)
    assert pmf.sum() == pytest.approx(1 / 2, abs=1e-9)


def test_retroceding_share_of_long_returns() -> None:
    """For c = 3 and l1 = 2: (1/2 - 1/3) against (1/2) e^(-c'/(N-2)), a quarter, far from negligible."""
    other = 0.5 * math.exp(-0.5 / 298)
    assert theory.retroceding_share(2, model=WALK) == pytest.approx((1 / 6) / (1 / 6 + other), rel=1e-12)


@pytest.mark.parametrize("tail", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_tails_outside_the_open_interval_are_refused(tail: float) -> None:
    """A tail of 0 would ask for certainty, 1 for nothing."""
    for function in (theory.guaranteed_return_time, theory.design_return_time, printed.guaranteed_return_time):
        with pytest.raises(InvalidParameterError, match="tail"):
            function(tail, model=MODEL)
