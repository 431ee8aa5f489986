"""Exact delivery laws against the whole token chain written out as one dense matrix."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests.helpers.token_chains import (
    TokenChain,
    assert_bits_are_the_same,
    assert_sources_have_the_prior,
    drawn_law,
    graph_of,
    hops_apart,
)

from veilwalk.chains import CHAINS, DeliveryLaw, NodeChain, stationary_law, token_law
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError

HORIZON = 60
CASES = [(graph, "simple") for graph in ("petersen", "irregular", "cube")] + [
    ("irregular", "lazy"),
    ("irregular", "metropolis"),
    ("cube", "lazy"),
]


@cache
def one_hop(name: str, kind: str) -> FloatArray:
    """Transition probabilities of the walk, entry by entry."""
    far = hops_apart(name)
    degree = (far == 1).sum(axis=1)
    step = np.zeros(far.shape)
    for here in range(len(far)):
        for there in np.flatnonzero(far[here] == 1):
            step[here, there] = {
                "simple": 1 / degree[here],
                "lazy": 1 / degree[here] / 2,
                "metropolis": min(1 / degree[here], 1 / degree[there]),
            }[kind]
        step[here, here] = 1 - step[here].sum()
    if kind == "simple":
        np.fill_diagonal(step, 0.0)
    return step


class NodeTokenChain(TokenChain):
    """States (position, destination, source of the ciphertext); the stationary law by one dense solve."""

    def __init__(self, step: FloatArray, law: FloatArray) -> None:
        nodes = range(len(step))
        self.states = [(x, d, s) for d in nodes for s in nodes if law[s, d] > 0 for x in nodes if x != d]
        number = {state: index for index, state in enumerate(self.states)}
        self.matrix = np.zeros((len(number), len(number)))
        for (x, d, s), row in number.items():
            for y in np.flatnonzero(step[x]):
                if y != d:
                    self.matrix[row, number[int(y), d, s]] += step[x, y]
                    continue
                for goal in np.flatnonzero(law[d]):
                    self.matrix[row, number[d, int(goal), d]] += step[x, y] * law[d, goal]
        system = np.vstack((self.matrix.T - np.eye(len(number)), np.ones(len(number))))
        self.stationary = np.linalg.lstsq(system, np.append(np.zeros(len(number)), 1.0), rcond=None)[0]
        self.position, self.goal, self.source = np.array(self.states).T
        self.arriving = step[self.position, self.goal]


@cache
def token_chain(name: str, kind: str) -> NodeTokenChain:
    return NodeTokenChain(one_hop(name, kind), drawn_law(name))


def chain_on(name: str, kind: str) -> NodeChain:
    chain = CHAINS[kind](graph_of(name)).on_nodes
    assert chain is not None
    return chain


@cache
def found(name: str, kind: str, horizon: int = HORIZON) -> list[DeliveryLaw]:
    return list(chain_on(name, kind).deliveries(drawn_law(name), horizon))


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_joint_law_is_that_of_the_whole_token_chain(name: str, kind: str) -> None:
    """Return time, last hop and source at every destination; with sources and last hops swapped it would not be."""
    dense = token_chain(name, kind)
    for law in found(name, kind):
        want = dense.deliveries(law.destination, HORIZON)
        np.testing.assert_allclose(law.joint, want[:, law.neighbours][:, :, law.sources], atol=1e-10, rtol=0)
        assert law.joint.sum() == pytest.approx(want.sum(), abs=1e-9)
        mutant = want[:, law.neighbours[::-1]][:, :, law.sources]
        degree = np.count_nonzero(hops_apart(name)[law.destination] == 1)
        assert degree < 2 or np.abs(law.joint - mutant).max() > 1e-5


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_everything_sums_to_one_and_sources_to_the_prior(name: str, kind: str) -> None:
    """Summed over what is seen, the posterior is mu_i P_ij; with an even mu it would not be."""
    assert_sources_have_the_prior(found(name, kind), drawn_law(name))
    assert all(len(law.sources) > 1 for law in found(name, kind))


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_what_cannot_happen_has_exactly_zero(name: str, kind: str) -> None:
    """Sources outside the law, returns shorter than there and back, odd returns on a bipartite graph."""
    far = hops_apart(name)
    for law in found(name, kind):
        assert law.sources.tolist() == np.flatnonzero(drawn_law(name)[:, law.destination]).tolist()
        assert np.all(law.joint >= 0)
        for column, source in enumerate(law.sources):
            shortest = 2 * int(far[source, law.destination])
            assert np.all(law.joint[:shortest, :, column] == 0)
            assert law.joint[shortest, :, column].sum() > 0
        odd = law.joint[1::2].sum()
        assert (odd == 0) == (name == "cube" and kind == "simple")


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_beyond_is_the_tail_of_a_longer_horizon(name: str, kind: str) -> None:
    """Entry by entry, at a horizon that leaves much beyond it."""
    for short, long in zip(found(name, kind, 20), found(name, kind, 3000), strict=True):
        np.testing.assert_allclose(short.beyond, long.joint[21:].sum(axis=0) + long.beyond, atol=1e-12, rtol=0)
        np.testing.assert_array_equal(short.joint, long.joint[:21])
        assert long.beyond.sum() < 1e-9
        assert short.beyond.sum() > 0.05


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_token_law_is_the_stationary_law_of_position_and_destination(name: str, kind: str) -> None:
    """Up to its sum, the mean hops of a leg, which is one over the deliveries per hop."""
    dense, chain = token_chain(name, kind), chain_on(name, kind)
    want = np.zeros((chain.n_nodes, chain.n_nodes))
    np.add.at(want, (dense.position, dense.goal), dense.stationary)
    got = token_law(chain, drawn_law(name), chain.mean_hitting_times())
    np.testing.assert_allclose(got / got.sum(), want, atol=1e-12, rtol=0)
    per_hop = dense.stationary @ dense.arriving
    assert got.sum() == pytest.approx(1 / per_hop, rel=1e-10)
    assert np.all(np.diag(got) == 0)


def test_the_stationary_law_is_the_left_eigenvector() -> None:
    """Against numpy's general eigensolver, also for a periodic matrix."""
    dense = np.random.default_rng(8).uniform(0, 1, (9, 9)) ** 4
    cycle = np.roll(np.diag([0.2, 0.5, 0.7, 0.9]), 1, axis=1)
    cycle += np.roll(np.diag(1 - cycle.sum(axis=1)), -1, axis=1)
    for matrix in (dense / dense.sum(axis=1, keepdims=True), cycle):
        values, vectors = np.linalg.eig(matrix.T)
        vector = np.real(vectors[:, np.argmin(np.abs(values - 1))])
        np.testing.assert_allclose(stationary_law(matrix), vector / vector.sum(), atol=1e-13, rtol=0)


def test_threads_and_the_choice_of_destinations_change_no_bit(two_threads: int) -> None:
    """One thread, two, and the destinations asked for in another order."""
    chain, law = chain_on("irregular", "simple"), drawn_law("irregular")
    assert_bits_are_the_same(lambda goals: list(chain.deliveries(law, 40, goals)), two_threads)


def test_unfit_requests_are_refused_before_anything_is_computed() -> None:
    """A law of another size, more memory than allowed, a node that is not there, a horizon below zero."""
    chain, law = chain_on("irregular", "simple"), drawn_law("irregular")
    with pytest.raises(InvalidParameterError, match=r"^law = \(10, 10\): "):
        chain.deliveries(drawn_law("petersen"), 10)
    with pytest.raises(ResourceLimitError, match=r"delivery laws need \d+ bytes"):
        chain.deliveries(law, 10, memory_bytes=1000)
    with pytest.raises(InvalidParameterError, match="target = 8"):
        chain.deliveries(law, 10, [8])
    with pytest.raises(InvalidParameterError, match="horizon = -1"):
        chain.deliveries(law, -1)
