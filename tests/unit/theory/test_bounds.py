"""Total-variation and entropy bounds, the guarantee, and the printed forms beside them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from veilwalk import theory
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.theory import printed

WALK = theory.WalkModel(n_nodes=300, degree=3)
MODEL = theory.AnonymityModel(walk=WALK, support=DistanceSupport(2, 6))
SEEN = np.array([7.0, 20, 100, 218, 400, 634, 900, 3000, math.inf])


def true_total_variation(seen: float, design: float, model: theory.AnonymityModel) -> float:
    pmf = theory.optimal_distance_pmf(design, model=model)
    w = theory.source_posterior(pmf, seen, model=model)
    return float(np.abs(w - 1 / model.support.size).sum() / 2)


@pytest.mark.parametrize("degree", [3, 4, 5])
@pytest.mark.parametrize(("lo", "hi"), [(2, 3), (2, 6), (3, 5)])
def test_the_bound_holds_and_is_not_idle(degree: int, lo: int, hi: int) -> None:
    """thm:tvboundest, corrected: never below the truth, zero at the design, and within a small factor of it."""
    walk = theory.WalkModel(n_nodes=300, degree=degree)
    model = theory.AnonymityModel(walk=walk, support=DistanceSupport(lo, hi))
    bound = theory.bound_total_variation(SEEN, 634, model=model)
    truth = np.array([true_total_variation(float(seen), 634, model) for seen in SEEN])
    assert np.all(bound >= truth - 1e-15)
    assert bound[5] == 0
    moved = truth > 1e-9
    assert np.all(bound[moved] < 4 * truth[moved])


def test_without_recentring_the_bound_would_say_nothing() -> None:
    """Why D0 is in the proof: with the right means and D0 = 0 the bound is near 0.7 and the floor is 0."""
    ell = MODEL.support.distances
    shift = theory.truncated_mean(math.inf, distance=ell, model=WALK) - theory.truncated_mean(
        634, distance=ell, model=WALK
    )
    plain = np.expm1(WALK.decay_rate * np.abs(shift)).mean()
    assert plain > 0.6
    assert theory.bound_distance_entropy(plain, n_distances=5) == 0
    assert theory.bound_total_variation(math.inf, 634, model=MODEL) < 0.03


def test_the_entropy_bound_holds_for_laws_near_and_far_from_uniform() -> None:
    """thm:estentropybound on seeded random laws, the sharpest being a point mass."""
    rng = np.random.default_rng(5)
    laws = np.vstack([rng.dirichlet(np.full(5, 10.0**power), 200) for power in (-2, -1, 0, 1, 2)])
    laws = np.vstack([laws, np.eye(5)])
    rho = np.abs(laws - 0.2).sum(axis=1) / 2
    assert np.all(theory.distance_entropy(laws) >= theory.bound_distance_entropy(rho, n_distances=5) - 1e-12)


def test_the_entropy_bound_falls_as_the_distance_grows() -> None:
    """So an upper bound on the total variation may be put in."""
    rho = np.linspace(0, 1, 500)
    bound = theory.bound_distance_entropy(rho, n_distances=5)
    assert bound[0] == pytest.approx(math.log(5))
    assert np.all(np.diff(bound) <= 0)
    assert bound.min() == 0


def test_the_guarantee_is_below_every_entropy_it_covers() -> None:
    """thm:optimalsol_entropybound, corrected: scan return times from t1 up; none falls below the floor."""
    promise = theory.guarantee(0.3, model=MODEL)
    pmf = theory.optimal_distance_pmf(promise.return_time_design, model=MODEL)
    seen = np.geomspace(promise.return_time_from, 1e5, 400)
    entropy = theory.distance_entropy(theory.source_posterior(pmf, seen, model=MODEL, shortest_paths=True))
    assert np.all(entropy >= promise.anonymity_floor_nats)
    assert promise.anonymity_floor_nats > 1.4


def test_more_certainty_costs_entropy() -> None:
    """A smaller tail covers shorter return times, so its floor is lower."""
    floors = [theory.guarantee(tail, model=MODEL).anonymity_floor_nats for tail in (0.9, 0.5, 0.3, 0.1, 0.02)]
    assert floors == sorted(floors, reverse=True)


def test_the_corollary_costs_at_most_what_it_says() -> None:
    """Designed for the mean return time or for none, the deviation at most doubles."""
    best = theory.guarantee(0.3, model=MODEL).total_variation_bound
    for kappa in (2 - 1 / math.expm1(-WALK.escape_probability / (WALK.n_nodes - 2)), math.inf):
        assert best < theory.guarantee(0.3, model=MODEL, return_time_design=kappa).total_variation_bound <= 2 * best


# Network, support, window radius and tail; the floor, and what 257 return times said it was.
FLOORS = [
    (300, 3, (2, 6), 5, 0.3, 1.4346, 1.4346),
    (300, 3, (2, 8), 1, 0.1, 0.6014, 0.6026),
    (100, 3, (4, 5), 2, 0.02, 0.0855, 0.1531),
    (1000, 4, (3, 7), 5, 0.02, 0.3451, 0.3877),
]


@pytest.mark.parametrize("case", FLOORS)
def test_the_floor_is_that_of_all_return_times(
    case: tuple[int, int, tuple[int, int], int, float, float, float],
) -> None:
    """The maximum over whole hops is met; a grid of 257 overstated the floor by up to 0.07 nats."""
    nodes, degree, support, radius, tail, floor, on_a_grid = case
    walk = theory.WalkModel(n_nodes=nodes, degree=degree)
    model = theory.AnonymityModel(walk=walk, support=DistanceSupport(*support), window_radius=radius)
    promise = theory.guarantee(tail, model=model)
    hops = np.concatenate(([promise.return_time_from], np.arange(math.ceil(promise.return_time_from), 100 * nodes)))
    rho = theory.bound_total_variation(hops, promise.return_time_design, model=model, shortest_paths=True)
    brute = theory.bound_distance_entropy(rho.max(), n_distances=model.support.size)
    assert promise.anonymity_floor_nats == pytest.approx(float(brute), abs=1e-7)
    assert round(promise.anonymity_floor_nats, 4) == floor <= on_a_grid


def test_printed_guarantee_has_the_off_by_one_of_erratum_3() -> None:
    """Printed: rho = 0.279, alpha = 0.53; the same sum over d + 1: rho = 0.023, alpha = 1.46."""
    error = printed.error_scale(0.3, model=MODEL)
    assert printed.closed_form_total_variation(error, model=MODEL) == pytest.approx(0.279, abs=1e-3)
    assert printed.guaranteed_entropy(0.3, model=MODEL) == pytest.approx(0.53, abs=5e-3)
    repaired = printed.closed_form_total_variation(error, model=MODEL, divide_by_count=True)
    assert repaired == pytest.approx(0.023, abs=5e-4)
    assert printed.guaranteed_entropy(0.3, model=MODEL, divide_by_count=True) == pytest.approx(1.46, abs=5e-3)


def test_the_closed_form_is_the_geometric_sum_it_prints() -> None:
    """(e^(x(l2+1)) - e^(x l1))/(e^x - 1)/d - 1, typed from the paper."""
    error = 6.9
    x = WALK.escape_probability / (2 * 300) * (1 - 2.0**-6 - 1 / 300) * error
    want = (math.exp(7 * x) - math.exp(2 * x)) / (math.exp(x) - 1) / 4 - 1
    assert printed.closed_form_total_variation(error, model=MODEL) == pytest.approx(want, rel=1e-10)


def test_printed_bound_never_falls_below_its_own_total_variation() -> None:
    """On its own (wrong) truncated means the printed theorem is true, a little weak for dividing by d."""
    pmf = printed.optimal_distance_pmf(634, model=MODEL)
    w = printed.source_posterior(pmf, SEEN, model=MODEL)
    truth = np.abs(w - 0.2).sum(axis=-1) / 2
    assert np.all(printed.bound_total_variation(SEEN, 634, model=MODEL) >= truth - 1e-15)


def test_printed_bounds_refuse_a_support_of_one_distance() -> None:
    """They divide by l2 - l1."""
    single = theory.AnonymityModel(walk=WALK, support=DistanceSupport(4, 4))
    with pytest.raises(InvalidParameterError, match="support"):
        printed.bound_total_variation(100.0, 634, model=single)
    assert theory.bound_total_variation(100.0, 634, model=single) == 0


def test_mean_iteration_hops_is_the_weighted_mean() -> None:
    """A law on one distance costs that distance's mean hitting time."""
    got = theory.mean_iteration_hops([0, 0, 1.0, 0, 0], model=MODEL)
    assert got == pytest.approx(float(theory.mean_hitting_time(4, model=WALK)), rel=1e-14)


def test_assumptions_are_weighed_where_they_are_used() -> None:
    """At the design return time ass:fht ignores millionths; at short return times it ignores most."""
    at_design = {term.label: term for term in theory.ignored_terms(634.0, model=MODEL)}
    assert set(at_design) == {"ass:fht", "ass:eth", "ass:tree", "ass:frt"}
    assert at_design["ass:fht"].ignored_share < 1e-5
    assert not at_design["ass:fht"].bends
    assert at_design["ass:frt"].ignored_share == pytest.approx(0.2503, abs=1e-4)
    assert at_design["ass:frt"].bends
    short = {term.label: term for term in theory.ignored_terms(20.0, model=MODEL)}
    assert short["ass:fht"].ignored_share > 0.5
    assert short["ass:eth"].bends
