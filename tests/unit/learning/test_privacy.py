"""The privacy accountant against direct integration of the divergences it bounds."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence

import numpy as np
import pytest

dp_accounting = pytest.importorskip("dp_accounting")

from veilwalk.core.errors import ConfigError, InvalidParameterError  # noqa: E402
from veilwalk.core.randomness import task_generator  # noqa: E402
from veilwalk.core.support import DistanceSupport  # noqa: E402
from veilwalk.design import law_by_distance  # noqa: E402
from veilwalk.graphs import parse_graph_spec  # noqa: E402
from veilwalk.learning import (  # noqa: E402
    Array,
    NodePrivacyAccountant,
    NoisyUpdate,
    SenderPosterior,
    noise_for,
)
from veilwalk.learning._privacy import unused_divergence, used_divergence  # noqa: E402

Mixture = Sequence[tuple[float, Array]]


def unknown(z: float, weight: float) -> NoisyUpdate:
    """An update whose source is the node with this probability, whatever is seen."""
    return NoisyUpdate(z, SenderPosterior((1.0,), (weight,), "test"))


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
    event = unknown(z, weight)
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
        event = unknown(z, weight)
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
    assert found <= used_divergence(at(epsilon), unknown(z, weight))[0] + 1e-6


def test_one_over_n_would_claim_too_much_where_more_was_measured() -> None:
    """Named mutant: a weight of 1/300 for a receiver that holds the node for the source with 0.3."""
    used, unused = worlds(0.3, [(1.0, at(-1, 0))], at(1, 0))
    found = divergence_on_a_line(0.5, used, unused, 1.0)
    assert found > 10 * used_divergence(at(0.5), unknown(1.0, 1 / 300))[0]
    assert found <= used_divergence(at(0.5), unknown(1.0, 0.3))[0] + 1e-6


def test_numbers_nobody_measured_are_refused() -> None:
    """A bare probability is no evidence, and neither are a handful of values."""
    with pytest.raises(InvalidParameterError, match=r"^sender = 0.003.*measured SenderPosterior"):
        NoisyUpdate(1.0, 1 / 300)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="at least 100 measured values"):
        SenderPosterior.measured([1 / 300] * 5, origin="a guess")
    with pytest.raises(InvalidParameterError, match="origin"):
        SenderPosterior((1.0,), (0.1,), "")


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
    accountant = NodePrivacyAccountant().compose(unknown(z, weight), 2)
    for delta in (1e-3, 1e-2):
        epsilon = accountant.get_epsilon(delta)
        assert divergence(epsilon, used, unused, z) <= delta + GRID_ERROR
        assert divergence(epsilon - slack, used, unused, z) > delta


def test_known_senders_are_one_gaussian() -> None:
    """Twelve updates of multiplier 3 are one of 3 / sqrt 12; the unknown case with weight 1 is the same."""
    expected = dp_accounting.get_epsilon_gaussian(3 / math.sqrt(12), 1e-5)
    assert NodePrivacyAccountant().compose(NoisyUpdate(3.0), 12).get_epsilon(1e-5) == pytest.approx(expected)
    certain = NodePrivacyAccountant().compose(unknown(3.0, 1.0), 12).get_epsilon(1e-5)
    assert expected <= certain <= expected + 1e-3
    assert NodePrivacyAccountant().get_epsilon(1e-5) == 0.0


def test_known_and_unknown_updates_add_up() -> None:
    """Together no less than each; half of them known lies between none and all."""
    none, half, full = (
        NodePrivacyAccountant().compose(NoisyUpdate(2.0), known).compose(unknown(2.0, 0.1), 4 - known).get_epsilon(1e-5)
        for known in (0, 2, 4)
    )
    assert none < half < full


def test_more_noise_less_weight_fewer_updates_give_less() -> None:
    """In each direction alone."""

    def epsilon(z: float, weight: float, count: int) -> float:
        return NodePrivacyAccountant().compose(unknown(z, weight), count).get_epsilon(1e-5)

    base = epsilon(2.0, 0.1, 50)
    assert epsilon(3.0, 0.1, 50) < base
    assert epsilon(2.0, 0.05, 50) < base
    assert epsilon(2.0, 0.1, 25) < base
    assert epsilon(0.005, 0.1, 1) == math.inf


def test_measured_posteriors_are_rounded_up_only() -> None:
    """Their divergence is at least the mean over the values measured, and not much more."""
    values = np.clip(task_generator(1).gamma(2, 0.03, 2000), 0.005, 1)
    event = NoisyUpdate(1.0, SenderPosterior.measured(values, origin="test"))
    for epsilon in (0.1, 1.0, 3.0):
        exact = np.mean([used_divergence(at(epsilon), unknown(1.0, v))[0] for v in values])
        assert exact <= used_divergence(at(epsilon), event)[0] <= 1.15 * exact + 1 / 2000
    assert event.sender is not None
    assert event.sender.mean_weight == pytest.approx((values.sum() + 1) / 2001)
    assert "2000 updates measured" in event.sender.origin


def test_the_unseen_is_counted_as_certainty() -> None:
    """However small all measured values are, one in n + 1 may be 1: without that the tail would be missed."""
    sender = SenderPosterior.measured([0.01] * 999, origin="test")
    assert dict(zip(sender.weights, sender.shares, strict=True))[1.0] == pytest.approx(1 / 1000)


def test_the_share_of_a_node_tightens_what_the_top_leaves() -> None:
    """A node is not the likeliest source every time: its mean weight is its share.

    Directly: an observer that names one of 20 nodes with 0.5 and leaves the rest even.
    """
    z, nodes, top = 1.0, 20, 0.5
    with_share = SenderPosterior.measured([top] * 5000, origin="test", largest_share=1 / nodes)
    assert with_share.mean_weight == pytest.approx(1 / nodes)
    for epsilon in (0.2, 1.0):
        named = used_divergence(at(epsilon), unknown(z, top))[0] / nodes
        rest = used_divergence(at(epsilon), unknown(z, (1 - top) / (nodes - 1)))[0] * (nodes - 1) / nodes
        bound = used_divergence(at(epsilon), NoisyUpdate(z, with_share))[0]
        without = NoisyUpdate(z, SenderPosterior.measured([top] * 5000, origin="test"))
        assert named + rest <= bound < used_divergence(at(epsilon), without)[0]


def test_all_of_a_share_may_fall_where_the_receiver_is_surest() -> None:
    """One update in a hundred names its maker, and it is always this node: its share spread evenly would not hold."""
    z, sure, faint = 1.0, 50, 0.001
    tops = [0.9] * sure + [faint] * (5000 - sure)
    share = 0.9 * sure / 5000 + faint * (5000 - sure) / 5000
    posterior = SenderPosterior.measured(tops, origin="test", largest_share=share)
    assert posterior.mean_weight == pytest.approx(share)
    for epsilon in (0.2, 1.0):
        true = used_divergence(at(epsilon), unknown(z, 0.9))[0] * sure / 5000
        true += used_divergence(at(epsilon), unknown(z, faint))[0] * (5000 - sure) / 5000
        # The mutant gives every update the same part of the share.
        spread = SenderPosterior((sure / 5000 * share / 0.9,), (0.9,), "mutant")
        assert used_divergence(at(epsilon), NoisyUpdate(z, spread))[0] < 0.2 * true
        assert true <= used_divergence(at(epsilon), NoisyUpdate(z, posterior))[0] < 1.2 * true


def test_a_mean_alone_counts_as_certainty_that_often() -> None:
    """No spread of posteriors with this mean gives more: even ones, or all or nothing."""
    event = NoisyUpdate(1.0, SenderPosterior.from_mean(0.2, origin="record"))
    for epsilon in (0.1, 1.0):
        bound = used_divergence(at(epsilon), event)[0]
        assert used_divergence(at(epsilon), unknown(1.0, 0.2))[0] <= bound
        assert 0.2 * used_divergence(at(epsilon), unknown(1.0, 1.0))[0] == pytest.approx(bound)


def test_what_the_law_leaves_open() -> None:
    """The largest step of the update chain run backwards, found by Bayes' rule node by node."""
    graph = parse_graph_spec("er:40:5:seed=2:component=largest")
    law = law_by_distance(graph, DistanceSupport(2, 4), np.ones(10))
    sender = SenderPosterior.of_law(law)
    matrix, prior = law.matrix.toarray(), law.source_prior
    backwards = [prior[i] * matrix[i, j] / sum(prior * matrix[:, j]) for i in range(40) for j in range(40)]
    assert sender.weights[0] == pytest.approx(max(backwards))
    assert sender.mean_weight == pytest.approx(prior.max())


def test_a_hidden_sender_helps_where_noise_is_enough() -> None:
    """300 nodes, ten updates each: far below the known case."""
    graph = parse_graph_spec("rrg:300:3:seed=1")
    sender = SenderPosterior.of_law(law_by_distance(graph, DistanceSupport(2, 6), np.ones(10)))
    hidden = NodePrivacyAccountant().compose(NoisyUpdate(4.0, sender), 3000).get_epsilon(1e-5)
    known = NodePrivacyAccountant().compose(NoisyUpdate(4.0), 10).get_epsilon(1e-5)
    assert hidden < 0.2 * known


def test_state_survives_json() -> None:
    """And gives the same epsilon; other things are refused."""
    accountant = NodePrivacyAccountant().compose(NoisyUpdate(2.0), 3).compose(unknown(2.0, 0.1), 5)
    again = NodePrivacyAccountant()
    again.load_state_dict(json.loads(json.dumps(accountant.state_dict())))
    assert again.get_epsilon(1e-5) == accountant.get_epsilon(1e-5)
    with pytest.raises(ConfigError, match="privacy state"):
        again.load_state_dict({"format": "other"})
    with pytest.raises(ConfigError, match="privacy state"):
        again.load_state_dict({"format": "veilwalk-privacy-1", "ledger": [{}]})


def test_would_exceed_looks_ahead_and_changes_nothing() -> None:
    """One more update or a hundred."""
    accountant = NodePrivacyAccountant().compose(NoisyUpdate(5.0), 10)
    before = accountant.get_epsilon(1e-5)
    assert not accountant.would_exceed(NoisyUpdate(5.0), epsilon=before + 0.3, delta=1e-5)
    assert accountant.would_exceed(NoisyUpdate(5.0), epsilon=before + 0.3, delta=1e-5, count=100)
    assert accountant.get_epsilon(1e-5) == before


def test_noise_for_a_target_reaches_it_and_no_more() -> None:
    """The multiplier back through the accountant."""
    z = noise_for(8.0, 1e-5, updates=40)
    assert NodePrivacyAccountant().compose(NoisyUpdate(z), 40).get_epsilon(1e-5) == pytest.approx(8.0, abs=1e-6)


def test_the_statement_says_which_case_against_whom_and_what_is_assumed() -> None:
    """Both cases, in words."""
    known = NodePrivacyAccountant().compose(NoisyUpdate(2.0), 3).statement(1e-5)
    assert "sender known" in known
    assert "against everybody" in known
    hidden = NodePrivacyAccountant().compose(unknown(2.0, 0.1), 5).statement(1e-5)
    assert "5 updates with noise multiplier 2, sender unknown (test)" in hidden
    assert "one receiver" in hidden
    assert "independent" in hidden
    assert "against everybody" not in hidden


def test_without_dp_accounting_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """No traceback from an import."""
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match=r"veilwalk\[dp\]"):
        NodePrivacyAccountant().compose(NoisyUpdate(1.234), 3).get_epsilon(1e-5)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: NoisyUpdate(0.0), "noise_multiplier"),
        (lambda: NodePrivacyAccountant().compose(NoisyUpdate(1.0), -1), "count"),
        (lambda: NodePrivacyAccountant().get_epsilon(0.0), "delta"),
        (lambda: SenderPosterior.measured([1.5] * 200, origin="x"), "top_posteriors"),
        (lambda: SenderPosterior.from_mean(1.5, origin="x"), "share"),
        (lambda: SenderPosterior((0.7, 0.7), (0.1, 0.2), "x"), "shares"),
        (lambda: SenderPosterior((1.0,), (2.0,), "x"), "weights"),
        (lambda: noise_for(0.0, 1e-5, updates=1), "epsilon"),
    ],
)
def test_bad_parameters_are_refused_by_name(make: object, name: str) -> None:
    """One line that names the parameter."""
    with pytest.raises(InvalidParameterError, match=f"^{name} = "):
        make()  # type: ignore[operator]
