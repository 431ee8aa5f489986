"""Delivery laws from transforms: what they share with the exact ones, and how near they come."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.dense_walks import hitting_pmf

from veilwalk.chains import NodeChain, stationary_law
from veilwalk.core.arrays import FloatArray, normalised
from veilwalk.graphs import Graph, distances, hypercube, random_regular, torus, watts_strogatz

GRAPH = random_regular(24, 3, seed=2)
CHAIN = NodeChain.simple(GRAPH)
APART = distances(GRAPH)
LAW = normalised((APART >= 2).astype(np.float64))
HORIZON = 2000


def test_it_has_the_right_margins_and_zeros() -> None:
    """All of it sums to one, sources follow the prior, and no source farther than half the return time has weight."""
    for found in CHAIN.estimated_deliveries(LAW, HORIZON, np.array([0, 7])):
        node = found.destination
        prior = normalised(stationary_law(LAW) * LAW[:, node])
        assert found.joint.sum() + found.beyond.sum() == pytest.approx(1, abs=1e-9)
        together = found.joint.sum(axis=(0, 1)) + found.beyond.sum(axis=0)
        np.testing.assert_allclose(together, prior[found.sources], atol=1e-9)
        away = APART[node, found.sources]
        for time in range(2 * int(away.max())):
            assert np.all(found.joint[time][:, time < 2 * away] == 0)


def total_variation(first: FloatArray, second: FloatArray) -> float:
    """Half the sum of absolute differences."""
    return float(np.abs(first - second).sum() / 2)


@pytest.mark.parametrize("graph", [GRAPH, random_regular(80, 3, seed=2), watts_strogatz(60, 4, 0.2, seed=1)])
def test_it_is_close_to_the_exact_law(graph: Graph) -> None:
    """Within a few thousandths, ever nearer on larger graphs; a past independent of all legs is ten times as far off.

    That mutant is the law this one replaced: the time since the destination was passed taken for a hitting time.
    """
    chain, apart = NodeChain.simple(graph), distances(graph)
    law = normalised((apart >= 2).astype(np.float64))
    horizon, node = 60 * graph.n_nodes, 3
    found = next(chain.estimated_deliveries(law, horizon, np.array([node])))
    exact = next(chain.deliveries(law, horizon, [node]))
    np.testing.assert_array_equal(found.sources, exact.sources)
    off = total_variation(found.joint, exact.joint)
    assert off < 0.25 / graph.n_nodes
    hits = hitting_pmf(chain, node, horizon)[:, exact.sources]
    sums = np.stack([np.convolve(column, column)[: horizon + 1] for column in hits.T], axis=1)
    mutant = sums * normalised(stationary_law(law) * law[:, node])[exact.sources]
    assert total_variation(mutant, exact.joint.sum(axis=1)) > 10 * off


def tree(n_nodes: int, seed: int) -> Graph:
    """A random tree: each node hangs on one that was there before."""
    generator = np.random.default_rng(seed)
    return Graph.from_edges(n_nodes, np.array([(int(generator.integers(node)), node) for node in range(1, n_nodes)]))


SWINGING = {
    "torus": torus(4, 6),
    "hypercube": hypercube(4),
    "ring": torus(12),
    "path": Graph.from_edges(8, np.array([(node, node + 1) for node in range(7)])),
    "tree": tree(20, 1),
    "another tree": tree(20, 2),
}


@pytest.mark.parametrize("name", SWINGING)
def test_sides_are_kept_where_the_walk_swings(name: str) -> None:
    """On bipartite graphs posteriors given return time and last hop are within 0.005 of the exact, at every node."""
    graph = SWINGING[name]
    chain, apart = NodeChain.simple(graph), distances(graph)
    law = normalised((apart >= 2).astype(np.float64))
    horizon = 12 * graph.n_nodes
    # Times past the horizon are one observation.
    pairs = zip(
        chain.estimated_deliveries(law, horizon, np.arange(graph.n_nodes)),
        chain.deliveries(law, horizon),
        strict=True,
    )
    for found, exact in pairs:
        mine, truth = (np.concatenate((one.joint, one.beyond[np.newaxis])) for one in (found, exact))
        weight = truth.sum(axis=-1)
        seen = weight > 1e-12
        assert np.all(mine.sum(axis=-1)[seen] > 0)
        off = np.zeros_like(weight)
        off[seen] = np.abs(normalised(mine[seen]) - normalised(truth[seen])).sum(axis=-1) / 2
        assert (weight * off).sum() < 0.005
        assert not found.joint[1::2].any()
