"""Metropolis and non-backtracking walks: path by path, and against exact laws."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from scipy import stats
from tests.helpers.chi_square import p_value
from tests.helpers.dense_walks import hitting_pmf
from tests.helpers.graphs import bushy_tree, cycle, path, star

from veilwalk import walks
from veilwalk.chains import NodeChain
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph
from veilwalk.walks._kernels_random import WALK, block_words
from veilwalk.walks._protocol import Updates

PASS, FAIL = 1e-6, 1e-6
HORIZON = 3000
#: Every walk here.
KINDS = ("metropolis", "non-backtracking")


LEAFY: dict[str, Callable[[], Graph]] = {
    "path": lambda: path(6),
    "star": lambda: star(5),
    "bushy": lambda: bushy_tree(16, 20),
}


def uniform_law(graph: Graph) -> FloatArray:
    """Return the law that is uniform over all other nodes."""
    return np.asarray((1.0 - np.eye(graph.n_nodes)) / (graph.n_nodes - 1))


def shuttle_law(graph: Graph) -> FloatArray:
    """Return the law by which all send to the last node, and that one to node 0."""
    law = np.zeros((graph.n_nodes, graph.n_nodes))
    law[:-1, -1] = law[-1, 0] = 1.0
    return law


def slow_path(graph: Graph, walk: str, start: int, steps: int, *, seed: int, job: int) -> list[int]:
    """Walk in plain Python, from the documented rules and the words they are served by.

    Words so rarely replaced that none is here: one in a billion.
    """
    rows = [graph.neighbours(node).tolist() for node in range(graph.n_nodes)]
    n_words = 2 if walk == "metropolis" and not graph.is_regular else 1
    n_blocks = (steps * n_words + 3) // 4
    key, lane, zero = np.uint64(seed), np.uint64(job), np.uint64(0)
    stream = [int(word) for b in range(n_blocks) for word in block_words(key, lane, WALK, zero, np.uint64(b))]
    path = [start]
    for step in range(steps):
        here, word, coin = path[-1], stream[step * n_words], stream[step * n_words + n_words - 1]
        if walk == "metropolis":
            there = rows[here][word * len(rows[here]) >> 32]
            kept = len(rows[there]) <= len(rows[here]) or (coin * len(rows[there]) >> 32) < len(rows[here])
            path.append(there if kept else here)
            continue
        onward = [node for node in rows[here] if step == 0 or node != path[-2]] or rows[here]
        path.append(onward[word * len(onward) >> 32])
    return path


def expected_record(path: list[int], sealed: int, last_sealed: int, goal: int, watching: BoolArray) -> dict[str, int]:
    """Return what the record of an update must say, by searching the path."""
    clock = path.index(goal, sealed + 1)
    earlier = [t for t in range(clock) if path[t] == goal]
    first = next((t for t in range(sealed + 1, clock + 1) if watching[path[t]]), None)
    last = next((t for t in range(sealed, last_sealed, -1) if watching[path[t]]), None)
    return {
        "source": path[sealed],
        "last_hop": path[clock - 1],
        "clock": clock,
        "leg_hops": clock - sealed,
        "return_time": clock - earlier[-1] if earlier else -1,
        "first_sight_node": -1 if first is None else path[first],
        "first_sight_from": -1 if first is None else path[first - 1],
        "first_sight_clock": -1 if first is None else first,
        "first_sight_hops": -1 if first is None else first - sealed,
        "previous_sight_node": -1 if last is None else path[last],
        "previous_sight_to": -1 if last is None or last == sealed else path[last + 1],
        "previous_sight_clock": -1 if last is None else last,
    }


def check_paths(graph: Graph, walk: str, *, per_lane: int) -> None:
    """Compare every field of every record with the slow walker's path."""
    watching = np.arange(graph.n_nodes) % 4 == 1
    tokens = 2
    updates = walks.run_protocol(
        graph,
        uniform_law(graph),
        updates=4 * per_lane,
        seed=5,
        tokens=tokens,
        replicas=4 // tokens,
        walk=Walk(walk),
        colluders=watching,
        burn_in=0,
        chunk_updates=8,
    )
    for lane in range(4):
        mine = updates[(updates["replica"] == lane // tokens) & (updates["token"] == lane % tokens)]
        path = slow_path(graph, walk, int(mine[0]["source"]), int(mine[-1]["clock"]), seed=5, job=lane)
        sealed = last_sealed = 0
        assert len(mine) == per_lane
        for record in mine:
            wanted = expected_record(path, sealed, last_sealed, int(record["destination"]), watching)
            assert {name: int(record[name]) for name in wanted} == wanted
            sealed, last_sealed = int(record["clock"]), sealed


@pytest.mark.parametrize("walk", KINDS)
def test_records_are_read_off_the_path(any_graph: Graph, walk: str) -> None:
    """A slow walk along the documented rules gives every field of every record."""
    check_paths(any_graph, walk, per_lane=8 if any_graph.n_nodes < 30 else 2)


@pytest.mark.parametrize("walk", KINDS)
@pytest.mark.parametrize("name", LEAFY)
def test_leaves_are_left_again(name: str, walk: str) -> None:
    """The same where nodes have one neighbour only, from which the token came."""
    check_paths(LEAFY[name](), walk, per_lane=30)


def first_two(updates: Updates) -> tuple[Updates, Updates]:
    """Return first and second updates of the lanes that made two."""
    return updates[0::2], updates[1::2]


def run_two(graph: Graph, walk: Walk, lanes: int) -> tuple[Updates, Updates]:
    """Play two updates of many lanes to the last node, from it to node 0, starting at nodes other than it."""
    law = shuttle_law(graph)
    first, second = first_two(
        walks.run_protocol(graph, law, updates=2 * lanes, seed=9, walk=walk, replicas=lanes, burn_in=0)
    )
    fit = first["source"] < graph.n_nodes - 1
    return first[fit], second[fit]


def test_metropolis_legs_have_the_law_of_its_chain() -> None:
    """Legs given their source are hitting times of the Metropolis chain, and not of the simple one."""
    graph = bushy_tree(16, 20)
    first, second = run_two(graph, Walk("metropolis"), 20_000)
    shares = np.bincount(first["source"], minlength=graph.n_nodes) / len(first)
    own, other = NodeChain.metropolis(graph), NodeChain.simple(graph)
    there = graph.n_nodes - 1

    assert p_value(first["leg_hops"], hitting_pmf(own, there, HORIZON) @ shares) > PASS
    assert p_value(first["leg_hops"], hitting_pmf(other, there, HORIZON) @ shares) < FAIL
    assert p_value(second["leg_hops"], hitting_pmf(own, 0, HORIZON)[:, there]) > PASS
    assert p_value(second["leg_hops"], hitting_pmf(other, 0, HORIZON)[:, there]) < FAIL


def test_metropolis_visits_all_nodes_alike() -> None:
    """Whatever their degrees, nodes hold the token equally often: the hub of a star comes back after n hops."""
    graph = star(6)
    law = uniform_law(graph)
    updates = walks.run_protocol(graph, law, updates=60_000, seed=3, walk=Walk("metropolis"))
    chain = NodeChain.metropolis(graph)
    held = float(hitting_pmf(chain, 0, HORIZON)[:, 1] @ np.arange(HORIZON + 1))
    legs = updates["leg_hops"][(updates["source"] == 1) & (updates["destination"] == 0)]

    # A leaf proposes the hub and is accepted once in six.
    assert abs(held - 6.0) < 1e-9
    assert abs(legs.mean() - held) < 5.0 * legs.std() / np.sqrt(len(legs))


def onward_chain(graph: Graph) -> tuple[FloatArray, IntArray, IntArray]:
    """Return the non-backtracking chain on directed edges, their tails and their heads."""
    tails = np.repeat(np.arange(graph.n_nodes), graph.degrees)
    heads = graph.indices.astype(np.int64)
    matrix = (heads[:, None] == tails[None, :]) & (tails[:, None] != heads[None, :])
    dead_ends = np.flatnonzero(~matrix.any(axis=1))
    for edge in dead_ends:
        matrix[edge, np.flatnonzero((tails == heads[edge]) & (heads == tails[edge]))] = True
    return matrix / matrix.sum(axis=1, keepdims=True), tails, heads


def edge_pmf(graph: Graph, first_edges: FloatArray, target: int) -> FloatArray:
    """Return the law of the first time at ``target`` when the first hop is drawn from ``first_edges``."""
    matrix, _, heads = onward_chain(graph)
    alive, pmf = first_edges.copy(), np.zeros(HORIZON + 1)
    for time in range(1, HORIZON + 1):
        pmf[time] = alive[heads == target].sum()
        alive[heads == target] = 0.0
        alive = alive @ matrix
    return pmf


def spread_from(graph: Graph, nodes: IntArray) -> FloatArray:
    """Return the law of a uniform first hop from each of ``nodes``."""
    _, tails, _ = onward_chain(graph)
    return np.asarray(np.bincount(nodes, minlength=graph.n_nodes)[tails] / graph.degrees[tails] / len(nodes))


def spread_on(graph: Graph, came_from: IntArray, node: int) -> FloatArray:
    """Return the law of the first hop from ``node`` that goes on from where each token came from."""
    matrix, tails, heads = onward_chain(graph)
    counts = np.bincount(came_from, minlength=graph.n_nodes)[tails] * (heads == node)
    return np.asarray(counts / counts.sum() @ matrix)


@pytest.mark.parametrize("name", ["petersen", "bushy"])
def test_non_backtracking_legs_have_the_law_of_directed_edges(petersen: Graph, name: str) -> None:
    """The first leg starts uniformly, the second goes on from where the token came from; nothing else fits."""
    graph = petersen if name == "petersen" else bushy_tree(16, 20)
    there = graph.n_nodes - 1
    first, second = run_two(graph, Walk("non-backtracking"), 20_000)
    shares = np.bincount(first["source"], minlength=graph.n_nodes) / len(first)
    simple = hitting_pmf(NodeChain.simple(graph), there, HORIZON) @ shares

    assert p_value(first["leg_hops"], edge_pmf(graph, spread_from(graph, first["source"]), there)) > PASS
    assert p_value(first["leg_hops"], simple) < FAIL
    mine = first["last_hop"] == graph.neighbours(there)[0]
    legs, onward = second["leg_hops"][mine], spread_on(graph, first["last_hop"][mine], there)
    assert p_value(legs, edge_pmf(graph, onward, 0)) > PASS
    if graph.degrees[there] > 1:
        # A source that had forgotten whence its token came would show.
        assert p_value(legs, edge_pmf(graph, spread_from(graph, second["source"]), 0)) < FAIL


def test_no_update_sends_the_token_straight_back() -> None:
    """With every node watching, the first to see an update is whom its source sent it to."""
    graph = bushy_tree(16, 20)
    everyone = np.ones(graph.n_nodes, dtype=np.bool_)
    law = uniform_law(graph)
    updates = walks.run_protocol(graph, law, updates=20_000, seed=4, walk=Walk("non-backtracking"), colluders=everyone)
    same = updates["replica"][1:] == updates["replica"][:-1]
    came_from, sent_to = updates["last_hop"][:-1][same], updates["first_sight_node"][1:][same]
    source = updates["source"][1:][same]
    leaf = graph.degrees[source] == 1

    assert np.all(updates["first_sight_hops"] == 1)
    assert leaf.any()
    assert np.array_equal(came_from == sent_to, leaf)
    # Whoever has three neighbours sends to either of the other two as often.
    fork = graph.degrees[source] == 3
    row_ends = graph.indices[graph.indptr[1:][source] - 1]
    spare = np.where(row_ends == came_from, graph.indices[graph.indptr[1:][source] - 2], row_ends)
    upper = int(np.count_nonzero((sent_to == spare) & fork))
    assert stats.binomtest(upper, int(fork.sum())).pvalue > PASS


def test_a_cycle_is_walked_round_and_round() -> None:
    """On a cycle only the first hop is free: every lane keeps its direction."""
    n_nodes = 11
    updates = walks.run_protocol(
        cycle(n_nodes), uniform_law(cycle(n_nodes)), updates=2000, seed=2, walk=Walk("non-backtracking"), replicas=50
    )
    right = (updates["destination"] - updates["source"]) % n_nodes == updates["leg_hops"]
    left = (updates["source"] - updates["destination"]) % n_nodes == updates["leg_hops"]
    lanes = np.bincount(updates["replica"], weights=right)

    assert np.array_equal(right, ~left)
    assert set(lanes.tolist()) == {0.0, 40.0}
    assert np.all(updates["return_time"] == n_nodes)


@pytest.mark.parametrize("walk", KINDS)
def test_threads_and_chunks_do_not_change_a_bit(any_graph: Graph, walk: str, two_threads: int) -> None:
    """One thread or two, chunks of any size: the same updates, and what must hold of them."""
    law = uniform_law(any_graph)
    numba.set_num_threads(1)
    first = walks.run_protocol(any_graph, law, updates=300, seed=2, replicas=20, walk=Walk(walk))
    numba.set_num_threads(two_threads)
    again = walks.run_protocol(any_graph, law, updates=300, seed=2, replicas=20, walk=Walk(walk))
    small = walks.run_protocol(any_graph, law, updates=300, seed=2, replicas=20, walk=Walk(walk), chunk_updates=20)

    assert np.array_equal(first, again)
    assert np.array_equal(first, small)
    assert np.all(first["return_time"] > first["leg_hops"])
    assert np.all(any_graph.adjacency.toarray()[first["last_hop"], first["destination"]] == 1.0)


def test_memory_is_predicted(petersen: Graph) -> None:
    """What a run takes is foretold."""
    law = uniform_law(petersen)
    options: dict[str, Any] = {"updates": 60_000, "replicas": 3000, "chunk_updates": 10_000}
    for walk in KINDS:
        tracemalloc.start()
        for _chunk in walks.iter_protocol(petersen, law, seed=1, walk=Walk(walk), **options):
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < walks.estimate_memory(petersen, law, walk=Walk(walk), **options) + 800_000
