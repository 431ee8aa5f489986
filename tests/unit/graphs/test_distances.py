"""Distances, shells, diameter, spectrum and summary on graphs whose answers are known."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.helpers.graphs import path, petersen

from veilwalk import graphs
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.graphs import Graph, _distances, _summary
from veilwalk.graphs._distances import Diameter, diameter
from veilwalk.graphs._summary import find_gaps


def test_distances_on_a_ring() -> None:
    """min(k, n - k), in the narrowest type."""
    hops = graphs.distances(graphs.ring(9))
    assert hops.dtype == np.uint8
    gap = np.abs(np.subtract.outer(np.arange(9), np.arange(9)))
    assert np.array_equal(hops, np.minimum(gap, 9 - gap))


@pytest.mark.parametrize(("n_nodes", "dtype"), [(253, np.uint8), (600, np.uint16), (140_000, np.int32)])
def test_distance_type_grows_with_the_graph(n_nodes: int, dtype: type[np.integer]) -> None:
    """Long rings need wider types, and are right in them."""
    hops = graphs.distances(graphs.ring(n_nodes), [3])
    assert hops.dtype == dtype
    assert hops.max() == n_nodes // 2
    assert hops[0, 0] == hops[0, 6] == 3


def test_distances_of_chosen_sources_and_blocks() -> None:
    """Rows follow the sources as given, however they are cut into blocks."""
    graph = graphs.random_regular(100, 3, seed=1)
    full = graphs.distances(graph)
    assert np.array_equal(graphs.distances(graph, [7, 3, 7]), full[[7, 3, 7]])
    blocks = list(graphs.iter_distances(graph, memory_bytes=730))
    assert [len(sources) for sources, _ in blocks] == [7] * 14 + [2]
    assert np.array_equal(np.concatenate([block for _, block in blocks]), full)


def test_memory_limits_are_named_in_bytes() -> None:
    """What is needed and what is allowed."""
    graph = graphs.ring(100)
    with pytest.raises(ResourceLimitError, match="memory_bytes = 9999"):
        graphs.distances(graph, memory_bytes=9999)
    with pytest.raises(ResourceLimitError, match="need 100 bytes"):
        graphs.iter_distances(graph, memory_bytes=99)


@pytest.mark.parametrize("sources", [[], [-1], [100], [0.5], [[1]], 3])
def test_bad_sources(sources: object) -> None:
    """Sources are node numbers."""
    with pytest.raises(InvalidParameterError, match="sources = "):
        graphs.distances(graphs.ring(100), sources)  # type: ignore[arg-type]


def test_shells() -> None:
    """Shells of the cube are binomial; a path has different ones from its middle and its end."""
    assert graphs.mean_shell_sizes(graphs.hypercube(4), [5]).tolist() == [1, 4, 6, 4, 1]
    three = path(3)
    assert [graphs.mean_shell_sizes(three, [node]).tolist() for node in range(3)] == [[1, 1, 1], [1, 2], [1, 1, 1]]
    assert graphs.mean_shell_sizes(three) == pytest.approx([1, 4 / 3, 2 / 3])


def test_mean_shells_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Summed block by block it is the same mean."""
    graph = graphs.barabasi_albert(200, 2, seed=1)
    whole = graphs.mean_shell_sizes(graph)
    assert whole == pytest.approx(np.bincount(graphs.distances(graph).ravel()) / 200)
    monkeypatch.setattr(_distances, "_BLOCK_BYTES", 1000)
    assert np.array_equal(graphs.mean_shell_sizes(graph), whole)


@pytest.mark.parametrize(
    "graph",
    [
        graphs.ring(101),
        graphs.torus(5, 8),
        graphs.random_regular(200, 3, seed=1),
        graphs.barabasi_albert(300, 1, seed=1),
        graphs.complete(2),
    ],
    ids=repr,
)
def test_diameter_bounds_hold(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not every node is searched from, the truth lies between the bounds."""
    exact = int(graphs.distances(graph).max())
    assert diameter(graph) == Diameter(exact, exact)
    monkeypatch.setattr(_distances, "_AFFORDABLE_VISITS", 0)
    bounds = diameter(graph)
    assert bounds.lower <= exact <= bounds.upper
    assert bounds.exact is (bounds.lower == bounds.upper)
    monkeypatch.setattr(_distances, "_SWEEPS", 1)
    rough = diameter(graph)
    assert rough.lower <= bounds.lower <= exact <= bounds.upper <= rough.upper


def test_diameter_of_a_large_tree_is_found_by_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a tree the bounds meet after a few searches."""
    monkeypatch.setattr(_distances, "_AFFORDABLE_VISITS", 0)
    assert diameter(graphs.barabasi_albert(3000, 1, seed=2)).exact


@pytest.mark.parametrize(
    ("graph", "second", "smallest"),
    [
        (graphs.ring(7), np.cos(2 * np.pi / 7), np.cos(6 * np.pi / 7)),
        (graphs.complete(10), -1 / 9, -1 / 9),
        (graphs.hypercube(4), 0.5, -1.0),
        (graphs.complete(1100), -1 / 1099, -1 / 1099),
        (graphs.torus(33, 35), (1 + np.cos(2 * np.pi / 35)) / 2, None),
        (graphs.hypercube(11), 9 / 11, -1.0),
        (graphs.complete(2), -1.0, -1.0),
        (petersen(), 1 / 3, -2 / 3),
    ],
    ids=repr,
)
def test_spectrum(graph: Graph, second: float, smallest: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known spectra, dense and iterative; a bipartite graph has no absolute gap."""
    monkeypatch.setattr(_summary, "_SPECTRUM_TOLERANCE", 1e-9)
    monkeypatch.setattr(_summary, "_SPECTRUM_ENTRIES", 2_000_000)
    gap, absolute = find_gaps(graph)
    assert gap == pytest.approx(1 - second, abs=1e-8)
    if smallest is not None:
        assert absolute == pytest.approx(1 - max(abs(second), abs(smallest)), abs=1e-8)
    if graph.is_bipartite:
        assert absolute == 0.0


def test_iterative_gaps_are_repeatable_and_agree_with_dense_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """One graph, one result; and the one a dense solution gives."""
    graph = graphs.random_regular(300, 3, seed=1)
    dense = find_gaps(graph)
    monkeypatch.setattr(_summary, "_DENSE_NODES", 100)
    assert find_gaps(graph) == find_gaps(graph) == pytest.approx(dense, abs=1e-3)
    values = np.linalg.eigvalsh(graph.adjacency.toarray() / 3)
    assert dense == pytest.approx((1 - values[-2], 1 - max(values[-2], -values[0])), abs=1e-8)


def test_gaps_that_are_not_resolved_are_none() -> None:
    """One below the tolerance would be noise."""
    assert find_gaps(graphs.ring(1500)) == (None, None)


def test_summary() -> None:
    """The fields of a known graph; plain data that JSON keeps."""
    found = graphs.summary(graphs.hypercube(4))
    assert (found.nodes, found.edges, found.degree_min, found.degree_max) == (16, 32, 4, 4)
    assert (found.regular, found.bipartite, found.diameter_exact, found.shells_exact) == (True,) * 4
    assert (found.diameter_lower, found.diameter_upper, found.shell_sources) == (4, 4, 16)
    assert found.mean_shell_sizes.tolist() == [1, 4, 6, 4, 1]
    assert found.spectral_gap == pytest.approx(0.5)
    assert found.absolute_spectral_gap == 0.0
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()


def test_summary_of_a_large_graph_says_what_was_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampled shells are marked as such; a gap out of reach is None, not a guess."""
    monkeypatch.setattr(_distances, "_AFFORDABLE_VISITS", 0)
    found = graphs.summary(graphs.ring(2001))
    assert (found.shells_exact, found.shell_sources) == (False, 64)
    assert found.mean_shell_sizes[1] == 2
    assert found.spectral_gap is None
    assert found.diameter_lower <= 1000 <= found.diameter_upper
