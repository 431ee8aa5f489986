"""Window likelihood, the law that levels it, posteriors and entropies."""

from __future__ import annotations

import math

import numpy as np
import pytest

from veilwalk import theory
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.theory import printed
from veilwalk.theory._model import gompertz_shell_sizes

WALK = theory.WalkModel(n_nodes=300, degree=3)


def model_for(
    lo: int = 2, hi: int = 6, *, radius: int = 5, n_nodes: int = 300, degree: int = 3
) -> theory.AnonymityModel:
    walk = theory.WalkModel(n_nodes=n_nodes, degree=degree)
    return theory.AnonymityModel(walk=walk, support=DistanceSupport(lo, hi), window_radius=radius)


def test_window_likelihood_is_the_sum_of_the_law_over_the_window() -> None:
    """The closed form of lem:unnormalized_likelihood against 2 delta + 1 terms added one by one."""
    model = model_for()
    ell = model.support.distances
    centre = theory.truncated_mean(634, distance=ell, model=WALK)
    a = WALK.decay_rate
    lost = 1 - theory.shortest_path_probability(ell, model=WALK)
    terms = [math.expm1(a) * np.exp(-a * (centre + k - ell)) for k in range(-5, 6)]
    want = lost * np.sum(terms, axis=0) / theory.shell_sizes(model)
    got = theory.window_likelihood(634, model=model, shortest_paths=False)
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_shortest_paths_add_the_hits_at_whole_hops_inside_the_window() -> None:
    """Without ass:fht: the extra mass is P(SP) times the law summed over the integers in the window."""
    model = model_for(hi=4, radius=3)
    ell = model.support.distances
    extra = theory.window_likelihood(40, model=model) - theory.window_likelihood(40, model=model, shortest_paths=False)
    centre = theory.truncated_mean(40, distance=ell, model=WALK)
    for i, distance in enumerate(ell):
        hops = [t for t in range(100) if abs(t - centre[i]) <= 3]
        mass = theory.hitting_pmf_sp(hops, distance=int(distance), model=WALK).sum()
        share = theory.shortest_path_probability(int(distance), model=WALK)
        assert extra[i] == pytest.approx(share * mass / theory.shell_sizes(model)[i], rel=1e-9)
        assert mass > 0


@pytest.mark.parametrize("formulas", [theory, printed])
@pytest.mark.parametrize("shortest_paths", [False, True])
@pytest.mark.parametrize(("lo", "hi"), [(2, 4), (2, 6), (3, 9), (5, 5)])
def test_the_optimal_law_makes_the_posterior_uniform(formulas: object, shortest_paths: bool, lo: int, hi: int) -> None:
    """lemma:rrgopt: at the design return time H(W) = log(d+1) to 1e-12, in either set of formulas."""
    law = getattr(formulas, "optimal_distance_pmf")  # noqa: B009
    posterior = getattr(formulas, "source_posterior")  # noqa: B009
    model = model_for(lo, hi)
    pmf = law(634, model=model, shortest_paths=shortest_paths)
    assert pmf.sum() == pytest.approx(1, abs=1e-14)
    w = posterior(pmf, 634, model=model, shortest_paths=shortest_paths)
    assert theory.distance_entropy(w) == pytest.approx(math.log(hi - lo + 1), abs=1e-12)


def test_an_unbounded_design_is_the_case_without_side_information() -> None:
    """lemma:rrgoptprelim_sp is the limit kappa -> infinity of lemma:rrgopt."""
    model = model_for()
    ell = model.support.distances
    mean = theory.mean_hitting_time(ell, model=WALK)
    weight = theory.shell_sizes(model) / (
        (1 - theory.shortest_path_probability(ell, model=WALK)) * np.exp(WALK.decay_rate * (ell - mean))
    )
    np.testing.assert_allclose(theory.optimal_distance_pmf(math.inf, model=model), weight / weight.sum(), rtol=1e-12)


@pytest.mark.parametrize("n_nodes", [10**3, 10**6, 10**12])
def test_laws_exist_from_small_to_astronomic_networks(n_nodes: int) -> None:
    """Nothing overflows, underflows or turns NaN up to N = 10^12."""
    model = model_for(n_nodes=n_nodes, degree=4)
    kappa = theory.design_return_time(0.3, model=model)
    pmf = theory.optimal_distance_pmf(kappa, model=model)
    assert np.all(np.isfinite(pmf))
    assert np.all(pmf > 0)


def test_node_entropy_is_the_entropy_of_the_expanded_posterior() -> None:
    """Spell out every node behind W and take its entropy: whole shells, so that nodes can be listed."""
    sizes = np.array([3.0, 6.0, 12.0])
    w = np.array([0.5, 0.3, 0.2])
    nodes = np.repeat(w, sizes.astype(int))
    nodes /= nodes.sum()
    assert theory.node_entropy(w, sizes=sizes) == pytest.approx(-(nodes * np.log(nodes)).sum(), rel=1e-14)
    assert theory.node_entropy(np.full(3, 1 / 3), sizes=sizes) == pytest.approx(math.log(21), rel=1e-14)


def test_entropies_of_a_certain_source_are_zero() -> None:
    """0 log 0 is 0, not NaN."""
    assert theory.distance_entropy([0.0, 1.0, 0.0]) == 0
    assert theory.node_entropy([0.0, 1.0], sizes=[5.0, 1.0]) == pytest.approx(0, abs=1e-15)


def test_shell_sizes_partition_the_network() -> None:
    """Shells add up to the N - 1 other nodes; each is its share of the Gompertz law, digits kept at large N."""
    sizes = gompertz_shell_sizes(np.arange(1, 60), model=WALK)
    assert sizes.sum() == pytest.approx(300 * math.exp(0), rel=1e-12)
    huge = theory.WalkModel(n_nodes=10**12, degree=3)
    near = gompertz_shell_sizes(np.arange(1, 10), model=huge)
    np.testing.assert_allclose(near, 3 * 2.0 ** np.arange(9), rtol=1e-8)


def test_supports_beyond_the_diameter_are_refused() -> None:
    """At N = 300, c = 3 no pair is expected 12 hops apart."""
    assert theory.typical_diameter(WALK) == 11
    theory.shell_sizes(model_for(2, 11))
    with pytest.raises(InvalidParameterError, match="diameter"):
        theory.shell_sizes(model_for(2, 12))


@pytest.mark.parametrize("seen", [6.0, 3.0, math.nan, [100.0, 5.0]])
def test_return_times_within_the_support_are_refused(seen: float) -> None:
    """kappa' must exceed the largest distance."""
    with pytest.raises(InvalidParameterError, match="return time"):
        theory.window_likelihood(seen, model=model_for())


@pytest.mark.parametrize("pmf", [[0.5, 0.5], [0.3] * 5, [1.2, -0.2, 0, 0, 0], [math.nan] * 5])
def test_what_is_not_a_law_is_refused(pmf: list[float]) -> None:
    """Wrong length, wrong sum, negative, NaN."""
    with pytest.raises(InvalidParameterError, match="distance pmf"):
        theory.source_posterior(pmf, 634, model=model_for())
