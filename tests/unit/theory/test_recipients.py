"""Sealed for several: closed forms against identities, trees and sums written here."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from veilwalk import theory
from veilwalk.core.errors import InvalidParameterError
from veilwalk.graphs import distances, random_regular
from veilwalk.theory import RecipientModel, WalkModel
from veilwalk.theory._shell_walk import shell_walk, shells

KINDS = ["simple", "non-backtracking"]


def sealed(n_nodes: int, degree: int, recipients: int, far: int, kind: str = "non-backtracking") -> RecipientModel:
    walk = WalkModel(n_nodes=n_nodes, degree=degree)
    return RecipientModel(walk=walk, recipients=recipients, far=far, kind=kind)


@pytest.mark.parametrize(("n_nodes", "degree"), [(4, 3), (100, 3), (300, 8), (10**6, 4), (10**12, 3)])
def test_shells_hold_all_nodes_and_both_ends_of_every_edge(n_nodes: int, degree: int) -> None:
    """What leads out of a shell leads into the next; near the source it is a tree."""
    seen = shells(WalkModel(n_nodes=n_nodes, degree=degree))
    assert seen.sizes.sum() == pytest.approx(n_nodes, rel=1e-12)
    np.testing.assert_allclose(seen.edges[:-1, 2], seen.edges[1:, 0], rtol=1e-12)
    np.testing.assert_allclose(seen.edges[:-1].sum(axis=1), degree * seen.sizes[:-1], rtol=1e-9)
    assert seen.sizes[:2].tolist() == [1, degree]
    if n_nodes > 10**5:
        assert seen.sizes[2:4] == pytest.approx([degree * (degree - 1), degree * (degree - 1) ** 2], rel=1e-3)


@pytest.mark.parametrize("degree", [3, 4])
def test_shells_are_those_of_sampled_graphs(degree: int) -> None:
    """Within a percent of the nodes, over ten graphs of 300."""
    mean = np.zeros(20)
    for seed in range(10):
        hops = distances(random_regular(300, degree, seed=seed))
        mean += np.bincount(hops.ravel(), minlength=20) / 3000
    sizes = shells(WalkModel(n_nodes=300, degree=degree)).sizes
    assert np.abs(np.pad(sizes, (0, 20 - len(sizes))) - mean).max() < 3


@pytest.mark.parametrize("backtracking", [True, False])
def test_every_state_that_is_reached_goes_somewhere(backtracking: bool) -> None:
    """Rows sum to one, or to nothing where no walk comes."""
    chain = shell_walk(WalkModel(n_nodes=300, degree=3), backtracking=backtracking)
    rows = np.asarray((chain.along + chain.fresh).sum(axis=1)).ravel()
    entered = np.asarray((chain.along + chain.fresh).sum(axis=0)).ravel() + chain.start > 0
    np.testing.assert_allclose(rows[entered], 1, atol=1e-12)
    assert set(rows.round(9)) <= {0.0, 1.0}


def test_the_share_left_unopened_is_hypergeometric() -> None:
    """All others are eligible from far 1 on: ratios of binomial coefficients."""
    for k in (1, 3, 16):
        got = theory.unopened_share(np.arange(0.0, 100.0), model=sealed(100, 3, k, 1))
        want = [comb(99 - met, k) / comb(99, k) for met in range(100)]
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_the_price_is_the_sum_of_the_survival(kind: str) -> None:
    """Two ways to the same number: by new nodes met, and hop by hop."""
    for n_nodes, degree, k, far in [(300, 3, 16, 4), (300, 4, 8, 2), (100, 3, 32, 1)]:
        model = sealed(n_nodes, degree, k, far, kind)
        price = theory.mean_opening_hops(model=model)
        survival = theory.opening_survival(int(12 * price), model=model)
        assert survival.sum() == pytest.approx(price, rel=2e-4)
        assert np.all(np.diff(survival) <= 1e-15)
        assert survival[:far] == pytest.approx(1, abs=1e-14)
        assert theory.opening_distance_pmf(model=model).sum() == pytest.approx(1, abs=1e-12)
        assert theory.opening_distance_pmf(model=model)[:far].sum() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_one_recipient_costs_a_mean_hitting_time(kind: str) -> None:
    """Averaged over the far shells, the older closed forms by distance say the same: two derivations."""
    older = theory.mean_hitting_time if kind == "simple" else theory.nonbacktracking_mean_hitting_time
    for n_nodes, degree, far in [(300, 3, 2), (300, 3, 4), (1000, 4, 3), (10**6, 3, 4)]:
        model = sealed(n_nodes, degree, 1, far, kind)
        weights = shells(model.walk).sizes[far:]
        means = older(np.arange(far, far + len(weights)), model=model.walk)
        assert theory.mean_opening_hops(model=model) == pytest.approx(weights @ means / weights.sum(), rel=0.015)
        assert theory.predecessor_guess(model=model) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(("kind", "far"), [(kind, far) for kind in KINDS for far in (1, 2, 3)])
def test_sealed_for_everybody_far_it_is_opened_where_the_walk_leaves_the_ball(kind: str, far: int) -> None:
    """As on a tree: straight, or the biased walk on the distances; up to the few short cycles of 3000 nodes."""
    everybody = sealed(3000, 3, int(theory.eligible_nodes(sealed(3000, 3, 1, far, kind))), far, kind)
    to_next = [1.0]
    for _ in range(1, far):
        # From one shell to the next: a hop, and with probability 1/3 two such ways more.
        to_next.append(1.5 + 0.5 * to_next[-1])
    want = far if kind == "non-backtracking" else sum(to_next)
    assert theory.mean_opening_hops(model=everybody) == pytest.approx(want, rel=3e-3)
    assert theory.opening_distance_pmf(model=everybody)[far] == pytest.approx(1, abs=3e-3)


@pytest.mark.parametrize("degree", [3, 4, 8])
def test_the_simple_walk_meets_as_many_nodes_as_on_a_tree(degree: int) -> None:
    """The mean range, from first returns counted on the tree, within a quarter of a node over thirty hops."""
    model, horizon = sealed(10**6, degree, 1, 1, "simple"), 30
    met = (1 - theory.opening_survival(horizon, model=model)) * theory.eligible_nodes(model)
    away, unreturned = np.zeros(horizon + 3), [1.0]
    away[1] = 1.0
    for _ in range(horizon):
        unreturned.append(away.sum())
        step = np.zeros_like(away)
        step[2:] += away[1:-1] * (degree - 1) / degree
        step[1:-1] += away[2:] / degree
        away = step
    # Seen backwards, the node met at hop t is new if the walk from it has not come back to it within t hops.
    want = np.cumsum(unreturned[1:])
    np.testing.assert_allclose(met[1:], want, rtol=0, atol=0.25)


def test_the_price_falls_as_one_over_the_recipients() -> None:
    """A hop meets one of K recipients with probability K/N, after the way out of the ball; at 10^9 nodes as well."""
    for n_nodes in (300, 10**9):
        for k in (4, 16):
            searched = theory.mean_opening_hops(model=sealed(n_nodes, 3, k, 4)) - 3
            assert searched == pytest.approx((n_nodes - 10 / 3) / k, rel=0.015)
    costs = [theory.mean_opening_hops(model=sealed(300, 3, k, 4)) for k in (1, 2, 4, 8, 16, 32)]
    assert np.all(np.diff(costs) < 0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_opener_is_left_with_nearly_all_nodes(kind: str) -> None:
    """Entropy below that of all eligible; more recipients leave less of it, and the top grows."""
    eligible = theory.eligible_nodes(sealed(300, 3, 1, 4, kind))
    beliefs = [theory.opener_posterior(model=sealed(300, 3, k, 4, kind)) for k in (2, 8, 32)]
    entropies = [belief.node_entropy_nats for belief in beliefs]
    assert np.log(eligible) > entropies[0] > entropies[1] > entropies[2] > np.log(150)
    tops = [belief.top_posterior for belief in beliefs]
    assert 1 / eligible < tops[0] < tops[1] < tops[2]
    for belief in beliefs:
        by_hand = -sum(
            w * np.log(w / n) for w, n in zip(belief.weights.flat, belief.sources.flat, strict=True) if w > 0
        )
        assert belief.node_entropy_nats == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_predecessor_guesses_better_than_by_chance_and_better_when_near(kind: str) -> None:
    """At least one in K; far recipients are harder to tell apart; where all are neighbours, one in K exactly."""
    for k in (2, 8, 32):
        near, far = (theory.predecessor_guess(model=sealed(300, 3, k, far, kind)) for far in (2, 4))
        assert 1 / k < far < near < 1
    complete = sealed(12, 11, 4, 1, kind)
    assert theory.predecessor_guess(model=complete) == pytest.approx(1 / 4, rel=1e-9)


def test_impossible_numbers_are_refused_in_one_line() -> None:
    """No recipients, more than are far, a walk without closed forms, nobody that far."""
    walk = WalkModel(n_nodes=300, degree=3)
    for k, need in [(0, ">= 1"), (290, "at most 278"), (1.5, "whole")]:
        with pytest.raises(InvalidParameterError, match=f"recipients = {k}.*{need}"):
            RecipientModel(walk=walk, recipients=k, far=4)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="far = 0"):
        RecipientModel(walk=walk, recipients=1, far=0)
    with pytest.raises(InvalidParameterError, match=r"recipients = 1.*at most 0"):
        RecipientModel(walk=walk, recipients=1, far=40)
    with pytest.raises(InvalidParameterError, match="lazy"):
        RecipientModel(walk=walk, recipients=1, far=2, kind="lazy")


def test_an_entropy_is_never_negative() -> None:
    """Where the one eligible shell holds less than a node in the mean."""
    assert theory.opener_posterior(model=sealed(8, 3, 1, 3)).node_entropy_nats == 0.0
