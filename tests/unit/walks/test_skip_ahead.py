"""The skip-ahead sampler: its tail is exact, and its bad input named."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from veilwalk import walks
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph, random_regular

N_TIMES = 1500


def transition(graph: Graph, walk: str) -> FloatArray:
    """Return the dense transition matrix."""
    matrix = graph.adjacency.toarray() / graph.degrees[:, None]
    return np.asarray(matrix if walk == "simple" else 0.5 * (matrix + np.eye(graph.n_nodes)))


def survivals(graph: Graph, walk: str, target: int) -> FloatArray:
    """Return P(T > t) for t = 0..N_TIMES and every source, by plain recursion."""
    killed = transition(graph, walk)
    killed[target] = 0.0
    killed[:, target] = 0.0
    now = np.ones(graph.n_nodes)
    now[target] = 0.0
    table = [now]
    for _ in range(N_TIMES):
        table.append(killed @ table[-1])
    return np.array(table)


def cube(dimension: int) -> Graph:
    """Return the hypercube: bipartite."""
    nodes = range(1 << dimension)
    edges = [(i, i ^ (1 << bit)) for i in nodes for bit in range(dimension) if i < i ^ (1 << bit)]
    return Graph.from_edges(len(nodes), np.array(edges))


def star(n_leaves: int) -> Graph:
    """Return the star: bipartite, irregular, hit at once from every leaf."""
    return Graph.from_edges(n_leaves + 1, np.array([(0, leaf) for leaf in range(1, n_leaves + 1)]))


def lollipop() -> Graph:
    """Return a clique of 12 with a tail of 8: irregular, slow to mix."""
    clique = [(i, j) for i in range(12) for j in range(i)]
    return Graph.from_edges(20, np.array(clique + [(i, i + 1) for i in range(11, 19)]))


GRAPHS: dict[str, Callable[[], Graph]] = {
    "rrg-300-3": lambda: random_regular(300, 3, seed=1),
    "rrg-300-4": lambda: random_regular(300, 4, seed=2),
    "cube": lambda: cube(6),
    "star": lambda: star(9),
    "lollipop": lollipop,
}


@pytest.mark.parametrize("walk", ["simple", "lazy"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_tail_is_exact_to_a_millionth(name: str, walk: str) -> None:
    """From every source, transient plus geometric tail is within 1e-6 of the exact distribution function."""
    graph = GRAPHS[name]()
    target = graph.n_nodes - 1
    tail = walks.hitting_tail(graph, target, walk=Walk(walk))
    exact = survivals(graph, walk, target)
    start = tail.transient_steps
    ages = np.arange(N_TIMES + 1 - start)[:, None]
    if walk == "simple" and graph.is_bipartite:
        # Survival falls at every other step, from a source's own parity on.
        pairs = tail.perron_value ** (2 * (ages // 2)) * exact[start]
        shifted = tail.perron_value ** (2 * ((ages + 1) // 2)) * exact[start]
        error = np.minimum(np.abs(exact[start:] - pairs).max(axis=0), np.abs(exact[start:] - shifted).max(axis=0))
    else:
        error = np.abs(exact[start:] - tail.perron_value**ages * exact[start]).max(axis=0)

    assert start <= N_TIMES
    assert error.max() < 1e-6


def test_the_tail_of_the_complete_graph_is_known() -> None:
    """On the complete graph every step hits with probability 1 / (n - 1)."""
    edges = np.array([(i, j) for i in range(30) for j in range(i)])
    tail = walks.hitting_tail(Graph.from_edges(30, edges), 3)

    assert math.isclose(tail.perron_value, 28 / 29, rel_tol=1e-14)


def test_times_within_the_transient_are_those_of_the_walk(petersen: Graph) -> None:
    """Until the tail takes over, walks are the walks of hitting_times, and beyond it they are beyond it."""
    tail = walks.hitting_tail(petersen, 1)
    walked = walks.hitting_times(petersen, [0] * 2000, 1, seed=3)
    given = walks.skip_ahead_hitting_times(
        petersen,
        [0] * 2000,
        1,
        seed=3,
        perron_values=tail.perron_value,
        transient_steps=tail.transient_steps,
    )
    found = walks.skip_ahead_hitting_times(petersen, [0] * 2000, 1, seed=3)
    early = walked <= tail.transient_steps

    assert np.array_equal(given, found)
    assert np.array_equal(given[early], walked[early])
    assert np.all(given[~early] > tail.transient_steps)


def test_parity_is_kept_on_bipartite_graphs() -> None:
    """On a bipartite graph every time has the parity of the distance, before and after the transient."""
    graph = cube(5)
    sources = np.tile([0, 1, 2, 3], 500)
    odd = np.tile([1, 0, 0, 1], 500)
    for steps in (2, 3):
        times = walks.skip_ahead_hitting_times(graph, sources, 31, seed=1, perron_values=0.96, transient_steps=steps)
        assert np.array_equal(times % 2, odd)
        assert np.any(times == steps + 1)
        assert np.any(times == steps + 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"perron_values": 0.5}, "perron_values, transient_steps = (0.5, None): must be given both or neither"),
        ({"perron_values": 1.0, "transient_steps": 5}, r"perron_values = 1.0: must be in [0, 1)"),
        (
            {"perron_values": [0.5, 0.5, 0.5], "transient_steps": 5},
            "perron_values = 'array of shape (3,)': must be one value or 2",
        ),
        ({"perron_values": 0.5, "transient_steps": 0}, "max_steps = 0: must be >= 1"),
    ],
)
def test_bad_input_is_one_clear_line(petersen: Graph, arguments: dict[str, object], message: str) -> None:
    """Messages name the parameter, its value and what is needed."""
    with pytest.raises(InvalidParameterError) as caught:
        walks.skip_ahead_hitting_times(petersen, [0, 1], [2, 3], seed=1, **arguments)  # type: ignore[arg-type]

    assert str(caught.value) == message


def test_a_tolerance_below_rounding_is_refused(petersen: Graph) -> None:
    """No tail is known better than double precision knows it."""
    with pytest.raises(InvalidParameterError, match="tolerance"):
        walks.hitting_tail(petersen, 0, tolerance=1e-17)
