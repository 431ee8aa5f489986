"""The privacy accountant against direct integration of the divergences it bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

dp_accounting = pytest.importorskip("dp_accounting")

from tools.accounting.mixtures import (  # noqa: E402
    MixedUpdate,
    ObserverAccountant,
    unused_divergence,
    used_divergence,
)

from veilwalk.core.errors import InvalidParameterError  # noqa: E402
from veilwalk.core.randomness import task_generator  # noqa: E402
from veilwalk.learning import Array, epsilon_of  # noqa: E402

Mixture = Sequence[tuple[float, Array]]


def hidden(z: float, weight: float) -> MixedUpdate:
    """An update that the node made with this probability, whatever is seen."""
    return MixedUpdate(z, weight)


def against_one() -> ObserverAccountant:
    """An account against one observer."""
    return ObserverAccountant()


GRID_ERROR = 3e-5


def divergence(epsilon: float, one: Mixture, two: Mixture, z: float) -> float:
    """Hockey-stick divergence of two mixtures of plane Gaussians, by summing over a grid; right to GRID_ERROR."""
    side = np.linspace(-1 - 6 * z, 1 + 6 * z, 501)
    x, y = np.meshgrid(side, side)

    def density(mixture: Mixture) -> Array:
        total = np.zeros_like(x)
        for weight, (a, b) in mixture:
            total += weight * np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * z**2))
        return total / (2 * math.pi * z**2)

    above = np.maximum(density(one) - math.exp(epsilon) * density(two), 0)
    return float(above.sum() * (side[1] - side[0]) ** 2)


def divergence_on_a_line(epsilon: float, one: Mixture, two: Mixture, z: float) -> float:
    """The same where all places lie on the first axis: one dimension, a much finer grid."""
    x = np.linspace(-1 - 9 * z, 1 + 9 * z, 400_001)

    def density(mixture: Mixture) -> Array:
        bells = [w * np.exp(-((x - a) ** 2) / (2 * z**2)) for w, (a, _) in mixture]
        return np.asarray(sum(bells) / math.sqrt(2 * math.pi * z**2))

    return float(np.maximum(density(one) - math.exp(epsilon) * density(two), 0).sum() * (x[1] - x[0]))


def test_the_oracle_knows_the_gaussian() -> None:
    """Total variation of two Gaussians a distance d apart is 2 Phi(d / 2z) - 1."""
    one, two = [(1.0, at(0.6, 0.8))], [(1.0, at(0, 0))]
    exact = math.erf(1 / (2 * 0.5) / math.sqrt(2))
    assert divergence(0.0, one, two, 0.5) == pytest.approx(exact, abs=GRID_ERROR)
    assert divergence_on_a_line(0.0, [(1.0, at(1, 0))], two, 0.5) == pytest.approx(exact, abs=1e-9)


def at(*values: float) -> Array:
    return np.array(values)


def worlds(weight: float, others: Mixture, mine: Array) -> tuple[Mixture, Mixture]:
    """What a receiver gets with and without the node's data: else somebody else's update, or noise alone."""
    rest = [((1 - weight) * share, place) for share, place in others]
    return [*rest, (weight, mine)], [*rest, (weight, at(0, 0))]


@pytest.mark.parametrize("weight", [1.0, 0.3, 0.02])
@pytest.mark.parametrize("z", [0.6, 2.0])
def test_the_bound_is_attained_on_a_line(z: float, weight: float) -> None:
    """Others at the opposite end in one direction, at the same end in the other."""
    event = hidden(z, weight)
    mine = at(1, 0)
    for epsilon in (0.0, 0.3, 1.5):
        used, unused = worlds(weight, [(1.0, -mine)], mine)
        found = divergence_on_a_line(epsilon, used, unused, z)
        assert used_divergence(at(epsilon), event) == pytest.approx(found, abs=1e-9)
        used, unused = worlds(weight, [(1.0, mine)], mine)
        found = divergence_on_a_line(epsilon, unused, used, z)
        assert unused_divergence(at(epsilon), event) == pytest.approx(found, abs=1e-9)


def test_no_other_updates_of_others_give_more() -> None:
    """Random places in the disc, several others mixed: never above the bound, in neither direction."""
    rng = task_generator(0)
    largest = 0.0
    for _ in range(40):
        weight, z, epsilon = rng.uniform(0.05, 1), rng.uniform(0.5, 2), rng.uniform(0, 1.5)
        radius, angle = np.sqrt(rng.random(4)), rng.uniform(0, 2 * math.pi, 4)
        places = np.column_stack((radius * np.cos(angle), radius * np.sin(angle)))
        shares = rng.dirichlet(np.ones(3))
        used, unused = worlds(weight, list(zip(shares, places[1:], strict=True)), places[0])
        event = hidden(z, weight)
        found = divergence(epsilon, used, unused, z)
        bound = used_divergence(at(epsilon), event)[0]
        assert found <= bound + GRID_ERROR
        assert divergence(epsilon, unused, used, z) <= unused_divergence(at(epsilon), event)[0] + GRID_ERROR
        largest = max(largest, found / bound)
    # The search comes near the bound, so that a smaller one would have been caught.
    assert largest > 0.5


def test_poisson_sampling_would_claim_too_much() -> None:
    """Named mutant: the sampled Gaussian of federated rounds, with the same noise, is broken by a pair of worlds."""
    z, weight, epsilon = 1.0, 0.05, 0.5
    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(weight, dp_accounting.GaussianDpEvent(z)))
    used, unused = worlds(weight, [(1.0, at(-1, 0))], at(1, 0))
    found = divergence_on_a_line(epsilon, used, unused, z)
    assert found > 2 * accountant.get_delta(epsilon)
    assert found <= used_divergence(at(epsilon), hidden(z, weight))[0] + 1e-6


def test_one_over_n_would_claim_too_much_where_more_was_measured() -> None:
    """Named mutant: a weight of 1/300 for a receiver that holds the node for the source with 0.3."""
    used, unused = worlds(0.3, [(1.0, at(-1, 0))], at(1, 0))
    found = divergence_on_a_line(0.5, used, unused, 1.0)
    assert found > 10 * used_divergence(at(0.5), hidden(1.0, 1 / 300))[0]
    assert found <= used_divergence(at(0.5), hidden(1.0, 0.3))[0] + 1e-6


@pytest.mark.parametrize("weight", [0.2, 1.0])
def test_two_updates_compose_as_integrated(weight: float) -> None:
    """Two coordinates are two updates, each with its own source: the product of the worst pair.

    The accountant is never below the truth. It is a little above, since no one pair of worlds is the worst in both
    directions at once.
    """
    z = 1.5
    slack = 0.02 if weight < 1 else 0.002
    line = ((weight, 1.0), (1 - weight, -1.0)), ((weight, 0.0), (1 - weight, -1.0))
    used, unused = ([(w1 * w2, at(a, b)) for w1, a in world for w2, b in world if w1 * w2 > 0] for world in line)
    accountant = against_one().compose(hidden(z, weight), 2)
    for delta in (1e-3, 1e-2):
        epsilon = accountant.get_epsilon(delta)
        assert divergence(epsilon, used, unused, z) <= delta + GRID_ERROR
        assert divergence(epsilon - slack, used, unused, z) > delta


def test_known_senders_are_one_gaussian() -> None:
    """Twelve updates of multiplier 3 are one of 3 / sqrt 12; the unknown case with weight 1 is the same."""
    expected = dp_accounting.get_epsilon_gaussian(3 / math.sqrt(12), 1e-5)
    assert epsilon_of(3.0, 1e-5, updates=12) == pytest.approx(expected)
    certain = against_one().compose(hidden(3.0, 1.0), 12).get_epsilon(1e-5)
    assert expected <= certain <= expected + 1e-3
    assert against_one().get_epsilon(1e-5) == 0.0


def test_known_and_unknown_updates_add_up() -> None:
    """Together no less than each; half of them known lies between none and all."""
    none, half, full = (
        against_one().compose(MixedUpdate(2.0), known).compose(hidden(2.0, 0.1), 4 - known).get_epsilon(1e-5)
        for known in (0, 2, 4)
    )
    assert none < half < full


def test_more_noise_less_weight_fewer_updates_give_less() -> None:
    """In each direction alone."""

    def epsilon(z: float, weight: float, count: int) -> float:
        return against_one().compose(hidden(z, weight), count).get_epsilon(1e-5)

    base = epsilon(2.0, 0.1, 50)
    assert epsilon(3.0, 0.1, 50) < base
    assert epsilon(2.0, 0.05, 50) < base
    assert epsilon(2.0, 0.1, 25) < base
    assert epsilon(0.005, 0.1, 1) == math.inf


def test_weights_are_rounded_up_only() -> None:
    """Of very different ones, epsilon is never below that of counting each as it is, and a little above."""
    weights = task_generator(1).uniform(0, 0.4, 12)
    each = against_one()
    for weight in weights:
        each.compose(hidden(1.0, weight))
    exact, rounded = each.get_epsilon(1e-5), against_one().observed(1.0, weights).get_epsilon(1e-5)
    assert exact <= rounded < 1.05 * exact


def test_what_the_observer_is_certain_of_counts_as_known() -> None:
    """Weight one is the known case to the last digit, weight nought nothing."""
    certain = against_one().observed(2.0, [1.0, 1.0, 0.0, 1.0]).get_epsilon(1e-5)
    assert certain == epsilon_of(2.0, 1e-5, updates=3)
    assert against_one().observed(2.0, [0.0, 0.0]).get_epsilon(1e-5) == 0.0


def test_a_mean_over_observers_would_claim_too_much() -> None:
    """Named mutant: weights pooled over receivers, where one is certain of a third and the others of nothing."""
    worst = np.array([1.0] * 10 + [0.01] * 20)
    pooled = np.full(30, worst.mean() / 10)
    accounts = (against_one().observed(3.0, weights).get_epsilon(1e-5) for weights in (pooled, worst))
    assert next(accounts) < 0.5 * next(accounts)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: MixedUpdate(0.0), "noise_multiplier"),
        (lambda: MixedUpdate(1.0, 1.5), "weight"),
        (lambda: against_one().observed(1.0, [0.1, 1.5]), "weights"),
        (lambda: against_one().compose(MixedUpdate(1.0), -1), "count"),
        (lambda: against_one().get_epsilon(0.0), "delta"),
    ],
)
def test_bad_parameters_are_refused_by_name(make: object, name: str) -> None:
    """One line that names the parameter."""
    with pytest.raises(InvalidParameterError, match=f"^{name} = "):
        make()  # type: ignore[operator]
