"""The graph value: what it checks and what it offers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from veilwalk import graphs
from veilwalk.core.errors import GraphError, InvalidParameterError
from veilwalk.graphs import Graph

TRIANGLE_WITH_TAIL = [(0, 1), (1, 2), (2, 0), (2, 3)]


def test_neighbours_are_sorted_and_frozen() -> None:
    """Lists are in order whatever the order of the edges, and nothing can be written."""
    graph = Graph.from_edges(4, [(3, 2), (2, 0), (1, 0), (1, 2)])
    assert graph.neighbours(2).tolist() == [0, 1, 3]
    assert graph.edges().tolist() == [[0, 1], [0, 2], [1, 2], [2, 3]]
    assert graph.digest == Graph.from_edges(4, TRIANGLE_WITH_TAIL).digest
    for array in (graph.indptr, graph.indices, graph.degrees, graph.stationary_distribution):
        assert not array.flags.writeable
    assert graph.indices.dtype == np.int32


def test_both_constructors_agree() -> None:
    """Edges and matrix give the same graph; the caller's matrix stays as it was."""
    graph = graphs.random_regular(40, 3, seed=5)
    matrix = graph.adjacency.copy()
    assert Graph.from_csr(matrix).digest == graph.digest
    matrix.data[:] = 7
    with pytest.raises(GraphError, match="weight 7"):
        Graph.from_csr(matrix)


def test_neighbour_table_needs_regularity() -> None:
    """The dense table exists for regular graphs only."""
    assert graphs.ring(5).neighbour_table.tolist() == [[1, 4], [0, 2], [1, 3], [2, 4], [0, 3]]
    with pytest.raises(GraphError, match="1 to 3"):
        _ = Graph.from_edges(4, TRIANGLE_WITH_TAIL).neighbour_table


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (graphs.ring(6), True),
        (graphs.ring(7), False),
        (graphs.hypercube(4), True),
        (graphs.complete(3), False),
        (graphs.torus(4, 3), False),
    ],
)
def test_bipartite(graph: Graph, expected: bool) -> None:
    """Even cycles and cubes split in two sides, odd cycles do not."""
    assert graph.is_bipartite is expected


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([(0, 1), (1, 1)], "1 self-loops .first at node 1"),
        ([(0, 1), (1, 0)], "edge 0-1 is listed more than once"),
        ([(0, 1), (1, 5)], "nodes are 0..2"),
        ([(0, -1)], "nodes are 0..2"),
        ([(0.0, 1.0)], "whole numbers"),
        ([0, 1], "whole numbers"),
        ([(0, 1)], "2 components of 2, 1 nodes"),
    ],
)
def test_bad_edges(edges: object, message: str) -> None:
    """Each defect is named in one line."""
    with pytest.raises(GraphError, match=message) as caught:
        Graph.from_edges(3, edges)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_bad_matrices() -> None:
    """Not square, one-way, out of bounds, too small."""
    with pytest.raises(GraphError, match="must be square"):
        Graph.from_csr(sparse.csr_array((2, 3)))
    with pytest.raises(GraphError, match="1 directed edges"):
        Graph.from_csr(sparse.csr_array(np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]])))
    with pytest.raises(GraphError, match="self-loops"):
        Graph.from_csr(sparse.csr_array(np.eye(2)))
    with pytest.raises(InvalidParameterError, match="nodes = 1"):
        Graph.from_csr(sparse.csr_array((1, 1)))
    broken = sparse.csr_array(np.array([[0, 1], [1, 0]]))
    broken.indices[0] = 99
    with pytest.raises(GraphError, match="malformed"):
        Graph.from_csr(broken)


def test_repeats_can_be_merged() -> None:
    """An edge named in both directions and twice counts once when asked to."""
    edges = [*TRIANGLE_WITH_TAIL, (1, 0), (2, 3), (3, 2)]
    assert Graph.from_edges(4, edges, merge_repeats=True).n_edges == 4


def test_largest_component_is_renumbered_in_order() -> None:
    """Nodes keep their order; a graph without edges has nothing to keep."""
    edges = [(0, 1), (2, 5), (5, 7), (7, 2)]
    kept = Graph.from_edges(8, edges, largest_component=True)
    assert kept.digest == graphs.ring(3).digest
    matrix = sparse.coo_array((np.ones(4), np.array(edges).T), shape=(8, 8))
    assert Graph.from_csr((matrix + matrix.T).tocsr(), largest_component=True).digest == kept.digest
    with pytest.raises(GraphError, match="single node"):
        Graph.from_edges(3, np.empty((0, 2), dtype=int), largest_component=True)
