"""Balls around nodes, against whole searches."""

from __future__ import annotations

import numpy as np
import pytest

from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.graphs import Graph, balls, barabasi_albert, distances, random_regular, torus


@pytest.mark.parametrize("graph", [random_regular(60, 3, seed=1), barabasi_albert(50, 2, seed=2), torus(5, 6)])
@pytest.mark.parametrize("radius", [0, 1, 3, 99])
def test_a_ball_is_what_lies_within(graph: Graph, radius: int) -> None:
    """Every node within the radius with its distance, nearest first, and no other."""
    apart = distances(graph).astype(np.int64)
    found = balls(graph, radius)
    for node in range(graph.n_nodes):
        nodes, hops = found.row(node)
        assert nodes[0] == node
        assert sorted(nodes) == np.flatnonzero(apart[node] <= radius).tolist()
        assert np.array_equal(hops, apart[node, nodes])
        assert np.all(np.diff(hops) >= 0)


def test_centers_may_repeat_and_come_in_any_order() -> None:
    """Each has a ball of its own."""
    graph = random_regular(60, 3, seed=1)
    whole, some = balls(graph, 2), balls(graph, 2, [7, 3, 7])
    for row, node in enumerate((7, 3, 7)):
        assert np.array_equal(some.row(row)[0], whole.row(node)[0])


def test_what_cannot_be_is_refused() -> None:
    """A negative radius, a node that is not there, more memory than allowed."""
    graph = random_regular(60, 3, seed=1)
    with pytest.raises(InvalidParameterError, match="radius = -1"):
        balls(graph, -1)
    with pytest.raises(InvalidParameterError, match="sources = 60"):
        balls(graph, 1, [60])
    with pytest.raises(ResourceLimitError, match="within 5 hops need"):
        balls(graph, 5, memory_bytes=1000)
