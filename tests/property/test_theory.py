"""Properties the closed forms must have for any network, support and return time."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from veilwalk import theory
from veilwalk.core.support import DistanceSupport
from veilwalk.theory._model import gompertz_shell_sizes


@st.composite
def models(draw: st.DrawFn) -> theory.AnonymityModel:
    """Any network the paper covers, with a support inside its typical diameter."""
    degree = draw(st.integers(3, 12))
    n_nodes = 2 * draw(st.integers(10, 10**12 // 2))
    walk = theory.WalkModel(n_nodes=n_nodes, degree=degree)
    diameter = theory.typical_diameter(walk)
    assume(diameter >= 2)
    lo = draw(st.integers(2, diameter))
    hi = draw(st.integers(lo, diameter))
    radius = draw(st.integers(0, 50))
    return theory.AnonymityModel(walk=walk, support=DistanceSupport(lo, hi), window_radius=radius)


return_factors = st.floats(1e-3, 1e3)


def seen(model: theory.AnonymityModel, factor: float) -> float:
    """A return time above the support, from a few hops to many times the mean."""
    return model.support.hi + 1 + factor * model.walk.n_nodes


@given(models(), return_factors)
def test_truncated_means_lie_between_distance_and_bound(model: theory.AnonymityModel, factor: float) -> None:
    """The mean of T given T <= kappa is at least the distance and never exceeds kappa or the whole mean."""
    ell, kappa = model.support.distances, seen(model, factor)
    mean = theory.truncated_mean(kappa, distance=ell, model=model.walk)
    whole = theory.mean_hitting_time(ell, model=model.walk)
    assert np.all(mean >= ell * (1 - 1e-12))
    assert np.all(mean <= np.minimum(kappa, whole) * (1 + 1e-12))


@given(models(), return_factors, return_factors)
def test_truncated_means_grow_with_the_bound(model: theory.AnonymityModel, first: float, second: float) -> None:
    """Knowing less (a larger bound) can only raise the mean."""
    low, high = sorted((seen(model, first), seen(model, second)))
    ell = model.support.distances
    less = theory.truncated_mean(low, distance=ell, model=model.walk)
    more = theory.truncated_mean(high, distance=ell, model=model.walk)
    assert np.all(less <= more * (1 + 1e-12))


@given(models(), return_factors)
def test_the_optimal_law_levels_the_posterior(model: theory.AnonymityModel, factor: float) -> None:
    """H(W) = log(d+1) to 1e-12 at the design, whatever the network."""
    kappa = seen(model, factor)
    pmf = theory.optimal_distance_pmf(kappa, model=model)
    w = theory.source_posterior(pmf, kappa, model=model)
    assert abs(theory.distance_entropy(w) - math.log(model.support.size)) < 1e-12
    assert (
        abs(theory.node_entropy(w, sizes=theory.shell_sizes(model)) - math.log(theory.shell_sizes(model).sum())) < 1e-9
    )


@given(models(), return_factors, return_factors)
def test_bounds_are_bounds(model: theory.AnonymityModel, design: float, observed: float) -> None:
    """Total variation and entropy never cross their bounds."""
    kappa, kappa_seen = seen(model, design), seen(model, observed)
    pmf = theory.optimal_distance_pmf(kappa, model=model)
    w = theory.source_posterior(pmf, kappa_seen, model=model)
    truth = np.abs(w - 1 / model.support.size).sum() / 2
    rho = theory.bound_total_variation(kappa_seen, kappa, model=model)
    assert truth <= rho + 1e-9
    floor = theory.bound_distance_entropy(rho, n_distances=model.support.size)
    assert theory.distance_entropy(w) >= floor - 1e-9


@given(models())
def test_shells_sum_to_the_network(model: theory.AnonymityModel) -> None:
    """Every other node stands in exactly one shell."""
    reach = theory.typical_diameter(model.walk) + 20
    sizes = gompertz_shell_sizes(np.arange(1, reach), model=model.walk)
    assert abs(sizes.sum() / model.walk.n_nodes - 1) < 1e-9


@settings(max_examples=25)
@given(models(), st.floats(0.001, 0.95), st.one_of(st.none(), return_factors))
def test_no_return_time_covered_is_below_the_floor(
    model: theory.AnonymityModel, tail: float, design: float | None
) -> None:
    """Of 30,000 return times, the first ones and others up to far beyond the mean, none passes what is guaranteed."""
    kappa = None if design is None else seen(model, design)
    if kappa is None:
        assume(theory.design_return_time(tail, model=model) > model.support.hi)
    promise = theory.guarantee(tail, model=model, return_time_design=kappa)
    start = promise.return_time_from
    later = start - np.log(np.linspace(1.0, 1e-12, 15_000)) / model.walk.decay_rate
    tried = np.concatenate(([start], math.ceil(start) + np.arange(15_000.0), np.ceil(later)))
    worst = max(
        float(theory.bound_total_variation(part, promise.return_time_design, model=model, shortest_paths=True).max())
        for part in np.array_split(tried, 6)
    )
    # Return times reach 1e13 hops: their centres are rounded, and log E with them.
    assert worst <= promise.total_variation_bound * (1 + 1e-9) + 1e-11
