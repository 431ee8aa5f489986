"""Sampled laws against exact ones; each test also shows that it would notice a wrong law."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from scipy import sparse, stats
from tests.helpers.chi_square import p_value
from tests.helpers.graphs import build_graph, bushy_tree, cube_edges, petersen

from veilwalk import walks
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph, random_regular

N_SAMPLES = 20_000
N_TIMES = 3000
PASS, FAIL = 1e-6, 1e-6


GRAPHS: dict[str, Callable[[], Graph]] = {
    "petersen": petersen,
    "cube": lambda: build_graph(cube_edges(5)),
    "bushy-tree": lambda: bushy_tree(40, 50),
    "rrg-60-3": lambda: random_regular(60, 3, seed=1),
}
KINDS: list[str] = ["simple", "lazy"]


def first_visit_laws(graph: Graph, walk: str, target: int) -> FloatArray:
    """Return P(first visit of target from time 1 on is at t), a row for t = 0..N_TIMES, a column a source."""
    matrix = (sparse.diags_array(1.0 / graph.degrees) @ graph.adjacency).tocsr()
    if walk == "lazy":
        matrix = (0.5 * (matrix + sparse.eye_array(graph.n_nodes))).tocsr()
    law = np.zeros(graph.n_nodes)
    law[target] = 1.0
    laws = np.zeros((N_TIMES + 1, graph.n_nodes))
    for time in range(1, N_TIMES + 1):
        law = matrix @ law
        laws[time] = law
        law[target] = 0.0
    return laws


@pytest.mark.parametrize("walk", KINDS)
@pytest.mark.parametrize("name", GRAPHS)
def test_first_visits_have_the_exact_law(name: str, walk: str) -> None:
    """First visits along paths, and first returns, follow the absorbing chain and not that of the other walk."""
    graph = GRAPHS[name]()
    target = graph.n_nodes - 1
    paths = walks.token_paths(graph, hops=N_TIMES, lanes=N_SAMPLES, seed=17, walk=Walk(walk))
    hits = paths[:, 1:] == target
    times = np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, N_TIMES + 1)
    shares = np.bincount(paths[:, 0], minlength=graph.n_nodes) / len(paths)
    mutant = "lazy" if walk == "simple" else "simple"

    assert p_value(times, first_visit_laws(graph, walk, target) @ shares) > PASS
    assert p_value(times, first_visit_laws(graph, mutant, target) @ shares) < FAIL


@pytest.mark.parametrize("degree", [3, 4, 5, 7])
def test_neighbours_are_chosen_uniformly(degree: int) -> None:
    """Every neighbour is taken as often, at every digit of a word; a 3 % preference would show."""
    graph = random_regular(50, degree, seed=degree)
    paths = walks.token_paths(graph, hops=9, lanes=2_000_000, seed=3)
    for steps in (1, 2, 9):
        before, after = paths[:, steps - 1], paths[:, steps]
        places = np.zeros(len(after), dtype=np.int64)
        for place in range(degree):
            places[graph.indices.reshape(-1, degree)[before, place] == after] = place
        counts = np.bincount(places, minlength=degree)
        tilted = np.full(degree, 1.0)
        tilted[0] = 1.03
        mutant = tilted / tilted.sum() * counts.sum()

        assert stats.chisquare(counts).pvalue > PASS
        assert stats.chisquare(counts, mutant).pvalue < FAIL


@pytest.mark.parametrize("name", ["petersen", "bushy-tree", "rrg-60-3"])
def test_legs_of_the_protocol_have_the_hitting_law(name: str) -> None:
    """Given source and destination a leg is a hitting time, and destinations follow the law."""
    graph = GRAPHS[name]()
    n_nodes = graph.n_nodes
    law = np.random.default_rng(8).random((n_nodes, n_nodes)) ** 2
    np.fill_diagonal(law, 0.0)
    # One pair is common enough to give its leg law a sharp test.
    law[0, n_nodes - 1] = law[n_nodes - 1, 0] = law.sum(axis=1).max()
    law[:, 0] += law.sum(axis=1) * (np.arange(n_nodes) != 0)
    law /= law.sum(axis=1, keepdims=True)
    updates = walks.run_protocol(graph, law, updates=150_000, seed=20)
    mine = updates[(updates["source"] == 0) & (updates["destination"] == n_nodes - 1)]
    times = mine["leg_hops"]
    drawn = np.bincount(updates["destination"][updates["source"] == 0], minlength=n_nodes)[1:]
    expected = law[0, 1:] * drawn.sum()
    wrong = np.roll(expected, 1)
    neighbour = int(graph.neighbours(n_nodes - 1)[0])

    assert len(times) > 10_000
    assert p_value(times, first_visit_laws(graph, "simple", n_nodes - 1)[:, 0]) > PASS
    assert p_value(times, first_visit_laws(graph, "simple", n_nodes - 1)[:, neighbour]) < FAIL
    assert stats.chisquare(drawn, expected * drawn.sum() / expected.sum()).pvalue > PASS
    assert stats.chisquare(drawn, wrong * drawn.sum() / wrong.sum()).pvalue < FAIL


def plain_protocol(graph: Graph, n_updates: int) -> tuple[IntArray, IntArray]:
    """Play the protocol with uniform destinations in plain Python; return legs and return times."""
    draw = random.Random(5)  # noqa: S311 - an oracle that shares nothing with the engine
    rows = [graph.neighbours(node).tolist() for node in range(graph.n_nodes)]
    last_visit = [-1] * graph.n_nodes
    legs: list[int] = []
    returns: list[int] = []
    node, clock = 0, 0
    while len(legs) < n_updates:
        destination = draw.choice([other for other in range(graph.n_nodes) if other != node])
        sealed_at, seen = clock, last_visit[destination]
        while node != destination:
            node = draw.choice(rows[node])
            clock += 1
            last_visit[node] = clock
        if min(last_visit) >= 0 and seen >= 0:
            legs.append(clock - sealed_at)
            returns.append(clock - seen)
    return np.array(legs), np.array(returns)


def test_return_times_of_the_protocol_are_those_of_a_plain_one() -> None:
    """Return times have the law of a protocol written apart; twice the leg, near as its mean is, has not.

    Looking back from the source, the walk is not a fresh one (it has just hit the source for the first time),
    so no exact law of return times is at hand that would not need the engine's own bookkeeping.
    """
    graph = GRAPHS["rrg-60-3"]()
    legs, returns = plain_protocol(graph, 15_000)
    law = (1.0 - np.eye(graph.n_nodes)) / (graph.n_nodes - 1)
    updates = walks.run_protocol(graph, law, updates=200_000, seed=21)

    assert stats.ks_2samp(returns, updates["return_time"]).pvalue > PASS
    assert stats.ks_2samp(legs, updates["leg_hops"]).pvalue > PASS
    assert stats.ks_2samp(2 * legs, updates["return_time"]).pvalue < FAIL
