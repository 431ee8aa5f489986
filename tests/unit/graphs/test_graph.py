"""The graph value: what it checks and what it offers."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from scipy import sparse
from tests.helpers.graphs import path, star

from veilwalk import graphs
from veilwalk.core.errors import GraphError, InvalidParameterError
from veilwalk.graphs import Graph, random_regular

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


def test_labels_name_nodes() -> None:
    """Both ways, through naming and cutting, and none of it changes the digest."""
    graph = Graph.from_edges(4, TRIANGLE_WITH_TAIL, labels=["a", "b c", "ö", "0"]).named("mine")
    assert (graph.name, graph.label(1), graph.node("ö"), graph.node("0")) == ("mine", "b c", 2, 3)
    assert graph.digest == Graph.from_edges(4, TRIANGLE_WITH_TAIL).digest
    plain = graphs.ring(5)
    assert (plain.labels, plain.label(3), plain.node("3")) == (None, "3", 3)
    assert Graph.from_edges(4, TRIANGLE_WITH_TAIL, labels=["0", "1", "2", "3"]).labels is None
    assert Graph.from_csr(graph.adjacency, labels=["a", "b", "c", "d"]).labels == ("a", "b", "c", "d")
    for label in ("5", "03", "x"):
        with pytest.raises(InvalidParameterError, match=r"^node = "):
            plain.node(label)
    for node in (-1, 5):
        with pytest.raises(InvalidParameterError, match="from 0 to 4"):
            plain.label(node)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "b", "c"], "'3 labels': must be one for each of the 4 nodes"),
        (["a", "b", "a", "c"], "'a': must be different"),
        (["a", "b", "", "c"], "texts of one line"),
        (["a", "b", "c\nd", "e"], "texts of one line"),
        (["a", "b", "\ud800", "e"], "texts of one line"),
        (["a", "b", 3, "c"], "texts of one line"),
    ],
)
def test_bad_labels(labels: list[str], message: str) -> None:
    """Every constructor checks them."""
    matrix = Graph.from_edges(4, TRIANGLE_WITH_TAIL).adjacency
    with pytest.raises(InvalidParameterError, match=message) as caught:
        Graph.from_edges(4, TRIANGLE_WITH_TAIL, labels=labels)
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidParameterError, match=message):
        Graph.from_csr(matrix, labels=labels)
    with pytest.raises(InvalidParameterError, match=message):
        graphs.from_sparse(matrix, labels=labels)


def test_errors_name_nodes_by_label() -> None:
    """The owner knows labels, not numbers."""
    with pytest.raises(GraphError, match="first at node y"):
        Graph.from_edges(2, [(0, 1), (1, 1)], labels=["x", "y"])
    with pytest.raises(GraphError, match="edge x-y is listed"):
        Graph.from_edges(2, [(0, 1), (1, 0)], labels=["x", "y"])
    with pytest.raises(GraphError, match="edge x-y has weight 2"):
        Graph.from_csr(sparse.csr_array(np.array([[0, 2], [2, 0]])), labels=["x", "y"])


@pytest.mark.parametrize("graph", [path(2), path(4), star(4)])
def test_the_smallest_graphs_have_answers(graph: Graph) -> None:
    """Two nodes, a path, a star: nothing here needs more."""
    found = graphs.summary(graph)
    width = int(graphs.distances(graph).max())
    assert found.bipartite
    assert (found.diameter_lower, found.diameter_upper, found.absolute_spectral_gap) == (width, width, 0.0)
    assert graphs.mean_shell_sizes(graph).sum() == pytest.approx(graph.n_nodes)
    assert len(graphs.balls(graph, width).nodes) == graph.n_nodes**2


def test_repeats_can_be_merged() -> None:
    """An edge named in both directions and twice counts once when asked to."""
    edges = [*TRIANGLE_WITH_TAIL, (1, 0), (2, 3), (3, 2)]
    assert Graph.from_edges(4, edges, merge_repeats=True).n_edges == 4


def test_largest_component_is_renumbered_in_order() -> None:
    """Nodes keep their order; a graph without edges has nothing to keep."""
    edges = [(0, 1), (2, 5), (5, 7), (7, 2)]
    kept = Graph.from_edges(8, edges, largest_component=True)
    assert kept.digest == graphs.ring(3).digest
    assert kept.labels == ("2", "5", "7")
    assert Graph.from_edges(8, edges, largest_component=True, labels="abcdefgh").labels == ("c", "f", "h")
    matrix = sparse.coo_array((np.ones(4), np.array(edges).T), shape=(8, 8))
    assert Graph.from_csr((matrix + matrix.T).tocsr(), largest_component=True).digest == kept.digest
    with pytest.raises(GraphError, match="single node"):
        Graph.from_edges(3, np.empty((0, 2), dtype=int), largest_component=True)


def test_a_graph_from_another_process_is_read_only_too() -> None:
    """Kernels are compiled for read-only arrays: a copy that can be written would have them compiled again."""
    graph = random_regular(20, 3, seed=1)
    again = copy.deepcopy(graph)
    assert (again.digest, again.name, again.labels) == (graph.digest, graph.name, graph.labels)
    assert not again.indptr.flags.writeable
    assert not again.indices.flags.writeable
