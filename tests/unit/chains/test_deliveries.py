"""Exact delivery laws against the whole token chain written out as one dense matrix."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numba
import numpy as np
import pytest

from veilwalk.chains import DeliveryLaw, WalkChain, iter_deliveries, mean_hitting_times, stationary_law, token_law
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.graphs import Graph

HORIZON = 60
PETERSEN = [(i, (i + 1) % 5) for i in range(5)] + [(5 + i, 5 + (i + 2) % 5) for i in range(5)]
PETERSEN += [(i, i + 5) for i in range(5)]
# A leaf, a cut vertex, a triangle: degrees from 1 to 4.
IRREGULAR = [(0, 1), (1, 2), (2, 3), (3, 1), (1, 4), (4, 5), (5, 6), (6, 7), (7, 4), (2, 6)]
CUBE = [(i, i ^ bit) for i in range(8) for bit in (1, 2, 4) if i < i ^ bit]
EDGES = {"petersen": PETERSEN, "irregular": IRREGULAR, "cube": CUBE}
CASES = [(graph, "simple") for graph in EDGES] + [("irregular", "lazy"), ("irregular", "metropolis"), ("cube", "lazy")]


@cache
def hops_apart(name: str) -> IntArray:
    """Distances by relaxing every edge until nothing changes."""
    n_nodes = max(max(edge) for edge in EDGES[name]) + 1
    far = np.full((n_nodes, n_nodes), n_nodes)
    np.fill_diagonal(far, 0)
    for _ in range(n_nodes):
        for one, other in EDGES[name]:
            far[one] = np.minimum(far[one], far[other] + 1)
            far[other] = np.minimum(far[other], far[one] + 1)
    return far


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


@cache
def drawn_law(name: str) -> FloatArray:
    """An uneven law over nodes two or more hops away; one pair is taken out, so that sources differ."""
    far = hops_apart(name)
    law = np.where(far >= 2, np.random.default_rng(3).uniform(0.5, 2.0, far.shape), 0.0)
    law[0, np.flatnonzero(far[0] >= 2)[0]] = 0.0
    return np.asarray(law / law.sum(axis=1, keepdims=True))


class TokenChain:
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
        self.step = step

    def deliveries(self, node: int, horizon: int) -> FloatArray:
        """P(return time, last node, source | a delivery at ``node``): follow every visit, killed at the return."""
        arriving = (self.goal == node) * self.step[self.position, node]
        per_visit = (self.stationary @ arriving) / self.stationary[self.position == node].sum()
        mass = np.where(self.position == node, self.stationary, 0.0)
        mass /= mass.sum()
        table = np.zeros((horizon + 1, len(self.step), len(self.step)))
        for hop in range(1, horizon + 1):
            np.add.at(table[hop], (self.position, self.source), mass * arriving)
            mass = mass @ self.matrix
            mass[self.position == node] = 0.0
        return np.asarray(table / per_visit)


@cache
def token_chain(name: str, kind: str) -> TokenChain:
    return TokenChain(one_hop(name, kind), drawn_law(name))


def chain_of(name: str, kind: str) -> WalkChain:
    return WalkChain.of(Graph.from_edges(len(hops_apart(name)), np.array(EDGES[name])), kind)


@cache
def found(name: str, kind: str, horizon: int = HORIZON) -> list[DeliveryLaw]:
    return list(iter_deliveries(chain_of(name, kind), drawn_law(name), horizon))


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
    matrix = drawn_law(name)
    mu = np.full(len(matrix), 1 / len(matrix))
    for _ in range(5000):
        mu = mu @ (matrix + np.eye(len(matrix))) / 2
    for law in found(name, kind):
        by_source = law.joint.sum(axis=(0, 1)) + law.beyond.sum(axis=0)
        assert by_source.sum() == pytest.approx(1, abs=1e-12)
        want = mu * matrix[:, law.destination]
        np.testing.assert_allclose(by_source, (want / want.sum())[law.sources], atol=1e-12, rtol=0)
        even = matrix[law.sources, law.destination]
        assert np.abs(by_source - even / even.sum()).max() > 1e-4


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
    dense, chain = token_chain(name, kind), chain_of(name, kind)
    want = np.zeros((chain.n_nodes, chain.n_nodes))
    np.add.at(want, (dense.position, dense.goal), dense.stationary)
    got = token_law(chain, drawn_law(name), mean_hitting_times(chain))
    np.testing.assert_allclose(got / got.sum(), want, atol=1e-12, rtol=0)
    per_hop = dense.stationary @ dense.step[dense.position, dense.goal]
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


@pytest.fixture
def two_threads() -> Iterator[int]:
    before = numba.get_num_threads()
    yield min(2, before)
    numba.set_num_threads(before)


def test_threads_and_the_choice_of_destinations_change_no_bit(two_threads: int) -> None:
    """One thread, two, and the destinations asked for in another order."""
    chain, law = chain_of("irregular", "simple"), drawn_law("irregular")
    numba.set_num_threads(1)
    one = list(iter_deliveries(chain, law, 40))
    numba.set_num_threads(two_threads)
    two = list(iter_deliveries(chain, law, 40))
    some = list(iter_deliveries(chain, law, 40, [5, 0, 2]))
    assert [found.destination for found in some] == [5, 0, 2]
    for left, right in [*zip(one, two, strict=True), *((one[found.destination], found) for found in some)]:
        for name in ("neighbours", "sources", "joint", "beyond"):
            np.testing.assert_array_equal(getattr(left, name), getattr(right, name))


def test_unfit_requests_are_refused_before_anything_is_computed() -> None:
    """A law of another size, more memory than allowed, a node that is not there, a horizon below zero."""
    chain, law = chain_of("irregular", "simple"), drawn_law("irregular")
    with pytest.raises(InvalidParameterError, match=r"law = \(10, 10\): must be a matrix of shape \(8, 8\)"):
        iter_deliveries(chain, drawn_law("petersen"), 10)
    with pytest.raises(ResourceLimitError, match=r"delivery laws need \d+ bytes"):
        iter_deliveries(chain, law, 10, memory_bytes=1000)
    with pytest.raises(InvalidParameterError, match="target = 8"):
        iter_deliveries(chain, law, 10, [8])
    with pytest.raises(InvalidParameterError, match="horizon = -1"):
        iter_deliveries(chain, law, -1)
