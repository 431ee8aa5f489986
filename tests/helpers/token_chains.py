"""Small graphs with an uneven law, and the whole token chain on them as one dense matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numba
import numpy as np
import pytest

from tests.helpers.graphs import PETERSEN_EDGES, build_graph, cube_edges, path_edges
from veilwalk.chains import DeliveryLaw
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.graphs import Graph

# Two triangles with an edge between each two corners: regular, of degree three.
PRISM = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (0, 3), (1, 4), (2, 5)]
# A leaf, a cut vertex, triangles: degrees from 1 to 4.
IRREGULAR = [(0, 1), (1, 2), (2, 3), (3, 1), (1, 4), (4, 5), (5, 6), (6, 7), (7, 4), (2, 6)]
EDGES = {
    "petersen": PETERSEN_EDGES,
    "prism": PRISM,
    "irregular": IRREGULAR,
    "cube": cube_edges(3),
    "path": path_edges(range(6)),
}


@cache
def graph_of(name: str) -> Graph:
    return build_graph(EDGES[name])


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
def drawn_law(name: str) -> FloatArray:
    """An uneven law over nodes two or more hops away; one pair is taken out, so that sources differ."""
    far = hops_apart(name)
    law = np.where(far >= 2, np.random.default_rng(3).uniform(0.5, 2.0, far.shape), 0.0)
    law[0, np.flatnonzero(far[0] >= 2)[0]] = 0.0
    return np.asarray(law / law.sum(axis=1, keepdims=True))


class TokenChain:
    """The token's chain, whatever its states are: hops between them, and the chance that the next hop delivers."""

    matrix: FloatArray
    arriving: FloatArray
    stationary: FloatArray
    position: IntArray
    goal: IntArray
    source: IntArray

    def deliveries(self, node: int, horizon: int) -> FloatArray:
        """P(return time, last node, source | a delivery at ``node``): follow every visit, killed at the return."""
        arriving = np.where(self.goal == node, self.arriving, 0.0)
        per_visit = (self.stationary @ arriving) / self.stationary[self.position == node].sum()
        mass = np.where(self.position == node, self.stationary, 0.0)
        mass /= mass.sum()
        n_nodes = int(self.position.max()) + 1
        table = np.zeros((horizon + 1, n_nodes, n_nodes))
        for hop in range(1, horizon + 1):
            np.add.at(table[hop], (self.position, self.source), mass * arriving)
            mass = mass @ self.matrix
            mass[self.position == node] = 0.0
        return np.asarray(table / per_visit)


def assert_sources_have_the_prior(laws: Sequence[DeliveryLaw], matrix: FloatArray) -> None:
    """Summed over what is seen, the posterior is mu_i P_ij; where there are two sources, with an even mu it is not."""
    mu = np.full(len(matrix), 1 / len(matrix))
    for _ in range(5000):
        mu = mu @ (matrix + np.eye(len(matrix))) / 2
    for law in laws:
        by_source = law.joint.sum(axis=(0, 1)) + law.beyond.sum(axis=0)
        assert by_source.sum() == pytest.approx(1, abs=1e-12)
        want = mu * matrix[:, law.destination]
        np.testing.assert_allclose(by_source, (want / want.sum())[law.sources], atol=1e-12, rtol=0)
        even = matrix[law.sources, law.destination]
        assert len(even) < 2 or np.abs(by_source - even / even.sum()).max() > 1e-4


def assert_bits_are_the_same(deliver: Callable[[list[int] | None], list[DeliveryLaw]], n_threads: int) -> None:
    """On one thread, on so many, and for the destinations asked for in another order."""
    numba.set_num_threads(1)
    one = deliver(None)
    numba.set_num_threads(n_threads)
    two = deliver(None)
    some = deliver([5, 0, 2])
    assert [law.destination for law in some] == [5, 0, 2]
    for left, right in [*zip(one, two, strict=True), *((one[law.destination], law) for law in some)]:
        for name in ("neighbours", "sources", "joint", "beyond"):
            np.testing.assert_array_equal(getattr(left, name), getattr(right, name))
