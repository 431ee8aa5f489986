"""Generators: the structure each promises, what each refuses, and the laws the random ones follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from veilwalk import graphs
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import GraphError, InvalidParameterError, ResourceLimitError
from veilwalk.graphs import Graph, _generators
from veilwalk.graphs._distances import diameter


@pytest.mark.parametrize(("n_nodes", "degree"), [(4, 3), (6, 5), (8, 5), (50, 3), (30, 14), (41, 20), (40, 37)])
def test_random_regular_is_regular(n_nodes: int, degree: int) -> None:
    """Sparse, half-full and nearly complete degrees all come out exact."""
    graph = graphs.random_regular(n_nodes, degree, seed=3)
    assert graph.n_nodes == n_nodes
    assert set(graph.degrees) == {degree}
    assert Graph.from_edges(n_nodes, graph.edges()).digest == graph.digest


def test_random_regular_is_uniform_on_six_nodes() -> None:
    """All 70 labelled cubic graphs on 6 nodes (10 K33, 60 prisms) come equally often."""
    seen = Counter(graphs.random_regular(6, 3, seed=seed).digest for seed in range(2100))
    assert len(seen) == 70
    assert stats.chisquare(list(seen.values())).pvalue > 1e-6


def test_uniformity_test_rejects_a_ring_plus_matching() -> None:
    """Named mutant: a random Hamiltonian cycle plus a random matching is not uniform, and it shows."""
    rng = np.random.default_rng(0)
    seen: Counter[str] = Counter()
    while seen.total() < 2100:
        cycle, match = rng.permutation(6), rng.permutation(6)
        edges = np.concatenate((np.column_stack((cycle, np.roll(cycle, 1))), match.reshape(3, 2)))
        try:
            seen[Graph.from_edges(6, edges).digest] += 1
        except GraphError:
            continue
    assert stats.chisquare(list(seen.values())).pvalue < 1e-6


def test_switches_leave_a_simple_graph_and_little_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken pairs mended by switches leave as many triangles as exact redrawing does."""
    redrawn = [_triangles(graphs.random_regular(60, 3, seed=seed)) for seed in range(400)]
    monkeypatch.setattr(_generators, "_REDRAW_STUBS", 1)
    switched = [_triangles(graphs.random_regular(60, 3, seed=seed)) for seed in range(400, 800)]
    assert stats.ks_2samp(redrawn, switched).pvalue > 1e-6
    # Named mutant: graphs of degree 4 have more than three times as many triangles.
    other = [_triangles(graphs.random_regular(60, 4, seed=seed)) for seed in range(400)]
    assert stats.ks_2samp(redrawn, other).pvalue < 1e-6


def _triangles(graph: Graph) -> float:
    adjacency = graph.adjacency
    return float((adjacency @ adjacency).multiply(adjacency).sum() / 6)


def _gompertz_shells(n_nodes: int, degree: int, n_shells: int) -> FloatArray:
    """N (G(l-1) - G(l)), G(l) = exp(-c/((c-2)N) ((c-1)^l - 1)), and the source itself at 0."""
    level = np.arange(n_shells, dtype=np.float64)
    tail = np.exp(-degree / ((degree - 2) * n_nodes) * ((degree - 1) ** level - 1))
    return np.concatenate(([1.0], n_nodes * -np.diff(tail)))


@pytest.mark.parametrize("degree", [3, 4])
def test_shells_of_random_regular_graphs_follow_the_gompertz_law(degree: int) -> None:
    """Measured shells match the law of their own degree, and only that one."""
    n_nodes = 2000
    mean = np.zeros(40)
    for seed in range(6):
        shells = graphs.mean_shell_sizes(graphs.random_regular(n_nodes, degree, seed=seed))
        mean[: len(shells)] += shells / 6
    law, mutant = (_gompertz_shells(n_nodes, c, 40) for c in (degree, 7 - degree))
    assert np.abs(mean - law).sum() / n_nodes < 0.02
    assert np.abs(mean - mutant).sum() / n_nodes > 0.5


def test_erdos_renyi_has_binomial_edges() -> None:
    """The number of edges is binomial; half the mean degree would be noticed."""
    counts = [graphs.erdos_renyi(200, 8.0, seed=seed, largest_component=True).n_edges for seed in range(200)]
    pairs = 200 * 199 // 2
    expected = stats.binom(pairs, 8 / 199)
    z = (np.mean(counts) - expected.mean()) / (expected.std() / np.sqrt(200))
    assert abs(z) < 5
    assert np.var(counts) == pytest.approx(expected.var(), rel=0.5)


def test_erdos_renyi_reaches_every_pair_equally() -> None:
    """Every pair of 6 nodes is as likely as any other, the first and the last included."""
    tally = np.zeros((6, 6))
    for seed in range(2000):
        edges = _generators._binomial_pairs(6, 0.4, np.random.default_rng(seed))
        tally[edges[:, 0], edges[:, 1]] += 1
    counts = tally[np.triu_indices(6, 1)]
    assert tally.sum() == counts.sum()
    assert np.all(np.abs(counts - 800) < 5 * np.sqrt(2000 * 0.24))


def test_erdos_renyi_complete_and_disconnected() -> None:
    """The largest mean degree gives the complete graph; a sparse one is refused or cut down."""
    assert graphs.erdos_renyi(7, 6.0, seed=0).digest == graphs.complete(7).digest
    with pytest.raises(GraphError, match="component=largest"):
        graphs.erdos_renyi(500, 2.0, seed=1)
    assert 200 < graphs.erdos_renyi(500, 2.0, seed=1, largest_component=True).n_nodes < 500


def test_barabasi_albert_degrees() -> None:
    """Each node brings its edges, and early nodes collect many."""
    graph = graphs.barabasi_albert(3000, 3, seed=1)
    assert graph.n_edges == 3 * (3000 - 3)
    assert graph.degrees[4:].min() == 3
    # Preferential attachment: the largest degree grows like the root of n; uniform growth gives about 30.
    assert graph.degrees.max() > 60


def test_random_geometric_joins_what_is_near() -> None:
    """Every pair within the radius and no other, by counting; a radius that spans the square joins all."""
    from veilwalk.core.randomness import task_generator
    from veilwalk.graphs._generators import _GRAPH_STREAM

    graph = _generators.random_geometric(120, 0.25, seed=3)
    points = task_generator(3, _GRAPH_STREAM).random((120, 2))
    near = np.linalg.norm(points[:, np.newaxis] - points, axis=2) <= 0.25
    assert np.array_equal(graph.adjacency.toarray() > 0, near & ~np.eye(120, dtype=np.bool_))
    assert graph.digest == graphs.parse_graph_spec("geometric:120:0.25:seed=3").digest
    assert _generators.random_geometric(6, 1.5, seed=1).digest == graphs.complete(6).digest
    with pytest.raises(GraphError):
        _generators.random_geometric(50, 0.01, seed=1)


def test_watts_strogatz_limits() -> None:
    """Without rewiring it is the ring lattice; with it edges stay as many and distances shrink."""
    lattice = graphs.watts_strogatz(200, 4, 0.0, seed=1)
    assert set(lattice.degrees) == {4}
    assert diameter(lattice).upper == 50
    small = graphs.watts_strogatz(200, 4, 0.2, seed=1)
    assert small.n_edges == lattice.n_edges
    assert diameter(small).upper < 20
    assert graphs.watts_strogatz(5, 4, 1.0, seed=1).digest == graphs.complete(5).digest


def test_lattices() -> None:
    """Degrees, sizes and diameters of the graphs without chance."""
    assert graphs.ring(9).n_edges == 9
    assert diameter(graphs.torus(4, 6)).upper == 5
    assert set(graphs.torus(3, 4, 5).degrees) == {6}
    assert diameter(graphs.hypercube(5)).upper == 5
    assert set(graphs.hypercube(5).degrees) == {5}
    assert graphs.complete(6).n_edges == 15
    assert graphs.hypercube(1).digest == graphs.complete(2).digest


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: graphs.random_regular(10, 2, seed=0), "degree"),
        (lambda: graphs.random_regular(5, 3, seed=0), "degree"),
        (lambda: graphs.random_regular(4, 4, seed=0), "degree"),
        (lambda: graphs.random_regular(10.0, 3, seed=0), "nodes"),  # type: ignore[arg-type]
        (lambda: graphs.random_regular(10, 3, seed=-1), "seed"),
        (lambda: graphs.erdos_renyi(10, float("nan"), seed=0), "mean_degree"),
        (lambda: graphs.erdos_renyi(10, 9.5, seed=0), "mean_degree"),
        (lambda: graphs.erdos_renyi(1, 0.5, seed=0), "nodes"),
        (lambda: graphs.barabasi_albert(5, 0, seed=0), "attach"),
        (lambda: graphs.barabasi_albert(5, 5, seed=0), "attach"),
        (lambda: graphs.watts_strogatz(10, 3, 0.1, seed=0), "degree"),
        (lambda: graphs.watts_strogatz(4, 4, 0.1, seed=0), "degree"),
        (lambda: graphs.watts_strogatz(10, 4, float("nan"), seed=0), "rewire"),
        (lambda: graphs.ring(2), "nodes"),
        (graphs.torus, "sides"),
        (lambda: graphs.torus(2, 4), "side"),
        (lambda: graphs.hypercube(0), "dimension"),
        (lambda: graphs.complete(1), "nodes"),
    ],
)
def test_bad_parameters_are_named(make: Callable[[], Graph], name: str) -> None:
    """One line that names the parameter."""
    with pytest.raises(InvalidParameterError) as caught:
        make()
    assert caught.value.name == name
    assert str(caught.value).startswith(f"{name} = ")
    assert "\n" not in str(caught.value)


def test_degree_two_is_sent_to_the_ring() -> None:
    """The message says what to use instead."""
    with pytest.raises(InvalidParameterError, match="ring"):
        graphs.random_regular(10, 2, seed=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: graphs.complete(10**6),
        lambda: graphs.hypercube(60),
        lambda: graphs.random_regular(10**10, 4, seed=0),
    ],
)
def test_huge_graphs_are_refused_before_memory_is_asked_for(make: Callable[[], Graph]) -> None:
    """The bytes needed are named."""
    with pytest.raises(ResourceLimitError, match="bytes"):
        make()
