"""Metropolis, non-backtracking and least-recent walks: path by path, against exact laws, and against a plain walker."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from scipy import stats
from tests.helpers.chi_square import p_value
from tests.helpers.graphs import bushy_tree

from veilwalk import walks
from veilwalk.chains import WalkChain, hitting_pmf
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph, random_regular
from veilwalk.walks._kernels_random import WALK, block_words
from veilwalk.walks._protocol import Updates

PASS, FAIL = 1e-6, 1e-6
HORIZON = 3000
#: Every walk here, with its mix.
KINDS: list[tuple[str, float]] = [
    ("metropolis", 0.0),
    ("non-backtracking", 0.0),
    ("least-recent", 0.0),
    ("least-recent", 0.3),
    ("least-recent", 1.0),
]


def path_graph(n_nodes: int) -> Graph:
    """Return a path."""
    return Graph.from_edges(n_nodes, np.array([(i, i + 1) for i in range(n_nodes - 1)]))


def cycle(n_nodes: int) -> Graph:
    """Return a cycle."""
    return Graph.from_edges(n_nodes, np.array([(i, (i + 1) % n_nodes) for i in range(n_nodes)]))


def star(n_leaves: int) -> Graph:
    """Return a star whose hub is node 0."""
    return Graph.from_edges(n_leaves + 1, np.array([(0, leaf) for leaf in range(1, n_leaves + 1)]))


LEAFY: dict[str, Callable[[], Graph]] = {
    "path": lambda: path_graph(6),
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


def slow_path(graph: Graph, walk: str, mix: float, start: int, steps: int, *, seed: int, job: int) -> list[int]:
    """Walk in plain Python, from the documented rules and the words they are served by.

    Words so rarely replaced that none is here: one in a billion.
    """
    rows = [graph.neighbours(node).tolist() for node in range(graph.n_nodes)]
    n_words = 2 if (not graph.is_regular if walk == "metropolis" else 0.0 < mix < 1.0) else 1
    n_blocks = (steps * n_words + 3) // 4
    key, lane, zero = np.uint64(seed), np.uint64(job), np.uint64(0)
    stream = [int(word) for b in range(n_blocks) for word in block_words(key, lane, WALK, zero, np.uint64(b))]
    path = [start]
    used: dict[frozenset[int], int] = {}
    for step in range(steps):
        here, word, coin = path[-1], stream[step * n_words], stream[step * n_words + n_words - 1]
        if walk == "metropolis":
            there = rows[here][word * len(rows[here]) >> 32]
            kept = len(rows[there]) <= len(rows[here]) or (coin * len(rows[there]) >> 32) < len(rows[here])
            path.append(there if kept else here)
            continue
        onward = [node for node in rows[here] if step == 0 or node != path[-2]] or rows[here]
        if walk == "least-recent" and coin >= mix * 2**32:
            ages = [used.get(frozenset((here, node)), -1) for node in onward]
            onward = [node for node, age in zip(onward, ages, strict=True) if age == min(ages)]
        path.append(onward[word * len(onward) >> 32])
        used[frozenset((here, path[-1]))] = step
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


def check_paths(graph: Graph, walk: str, mix: float, *, per_lane: int) -> None:
    """Compare every field of every record with the slow walker's path."""
    watching = np.arange(graph.n_nodes) % 4 == 1
    tokens = 1 if walk == "least-recent" else 2
    updates = walks.run_protocol(
        graph,
        uniform_law(graph),
        updates=4 * per_lane,
        seed=5,
        tokens=tokens,
        replicas=4 // tokens,
        walk=Walk(walk, mix),
        colluders=watching,
        burn_in=0,
        chunk_updates=8,
    )
    for lane in range(4):
        mine = updates[(updates["replica"] == lane // tokens) & (updates["token"] == lane % tokens)]
        path = slow_path(graph, walk, mix, int(mine[0]["source"]), int(mine[-1]["clock"]), seed=5, job=lane)
        sealed = last_sealed = 0
        assert len(mine) == per_lane
        for record in mine:
            wanted = expected_record(path, sealed, last_sealed, int(record["destination"]), watching)
            assert {name: int(record[name]) for name in wanted} == wanted
            sealed, last_sealed = int(record["clock"]), sealed


@pytest.mark.parametrize(("walk", "mix"), KINDS)
def test_records_are_read_off_the_path(any_graph: Graph, walk: str, mix: float) -> None:
    """A slow walk along the documented rules gives every field of every record."""
    check_paths(any_graph, walk, mix, per_lane=8 if any_graph.n_nodes < 30 else 2)


@pytest.mark.parametrize(("walk", "mix"), KINDS)
@pytest.mark.parametrize("name", LEAFY)
def test_leaves_are_left_again(name: str, walk: str, mix: float) -> None:
    """The same where nodes have one neighbour only, from which the token came."""
    check_paths(LEAFY[name](), walk, mix, per_lane=30)


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
    own, other = WalkChain.metropolis(graph), WalkChain.simple(graph)
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
    chain = WalkChain.metropolis(graph)
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
@pytest.mark.parametrize(("walk", "mix"), [("non-backtracking", 0.0), ("least-recent", 1.0)])
def test_non_backtracking_legs_have_the_law_of_directed_edges(
    petersen: Graph, name: str, walk: str, mix: float
) -> None:
    """The first leg starts uniformly, the second goes on from where the token came from; nothing else fits."""
    graph = petersen if name == "petersen" else bushy_tree(16, 20)
    there = graph.n_nodes - 1
    first, second = run_two(graph, Walk(walk, mix), 20_000)
    shares = np.bincount(first["source"], minlength=graph.n_nodes) / len(first)
    simple = hitting_pmf(WalkChain.simple(graph), there, HORIZON) @ shares

    assert p_value(first["leg_hops"], edge_pmf(graph, spread_from(graph, first["source"]), there)) > PASS
    assert p_value(first["leg_hops"], simple) < FAIL
    mine = first["last_hop"] == graph.neighbours(there)[0]
    legs, onward = second["leg_hops"][mine], spread_on(graph, first["last_hop"][mine], there)
    assert p_value(legs, edge_pmf(graph, onward, 0)) > PASS
    if graph.degrees[there] > 1:
        # A source that had forgotten whence its token came would show.
        assert p_value(legs, edge_pmf(graph, spread_from(graph, second["source"]), 0)) < FAIL


@pytest.mark.parametrize(("walk", "mix"), KINDS[1:])
def test_no_update_sends_the_token_straight_back(walk: str, mix: float) -> None:
    """With every node watching, the first to see an update is whom its source sent it to."""
    graph = bushy_tree(16, 20)
    everyone = np.ones(graph.n_nodes, dtype=np.bool_)
    law = uniform_law(graph)
    updates = walks.run_protocol(graph, law, updates=20_000, seed=4, walk=Walk(walk, mix), colluders=everyone)
    same = updates["replica"][1:] == updates["replica"][:-1]
    came_from, sent_to = updates["last_hop"][:-1][same], updates["first_sight_node"][1:][same]
    source = updates["source"][1:][same]
    leaf = graph.degrees[source] == 1

    assert np.all(updates["first_sight_hops"] == 1)
    assert leaf.any()
    assert np.array_equal(came_from == sent_to, leaf)
    if walk == "non-backtracking":
        # Whoever has three neighbours sends to either of the other two as often.
        fork = graph.degrees[source] == 3
        row_ends = graph.indices[graph.indptr[1:][source] - 1]
        spare = np.where(row_ends == came_from, graph.indices[graph.indptr[1:][source] - 2], row_ends)
        upper = int(np.count_nonzero((sent_to == spare) & fork))
        assert stats.binomtest(upper, int(fork.sum())).pvalue > PASS


@pytest.mark.parametrize(("walk", "mix"), KINDS[1:])
def test_a_cycle_is_walked_round_and_round(walk: str, mix: float) -> None:
    """On a cycle only the first hop is free: every lane keeps its direction."""
    n_nodes = 11
    updates = walks.run_protocol(
        cycle(n_nodes), uniform_law(cycle(n_nodes)), updates=2000, seed=2, walk=Walk(walk, mix), replicas=50
    )
    right = (updates["destination"] - updates["source"]) % n_nodes == updates["leg_hops"]
    left = (updates["source"] - updates["destination"]) % n_nodes == updates["leg_hops"]
    lanes = np.bincount(updates["replica"], weights=right)

    assert np.array_equal(right, ~left)
    assert set(lanes.tolist()) == {0.0, 40.0}
    assert np.all(updates["return_time"] == n_nodes)


def plain_leg(rng: random.Random, graph: Graph, walk: str, mix: float, goals: int) -> int:
    """Play ``goals`` updates with uniform destinations from an empty memory, and return the last leg.

    Edges are remembered by their two ends, whole edges are compared, and going back is ruled out by name.
    """
    rows = [graph.neighbours(node).tolist() for node in range(graph.n_nodes)]
    used: dict[tuple[int, int], int] = {}
    node, before, clock, sealed_at = rng.randrange(graph.n_nodes), -1, 0, 0
    for _ in range(goals):
        goal, sealed_at = rng.choice([other for other in range(graph.n_nodes) if other != node]), clock
        while node != goal:
            others = [other for other in rows[node] if other != before] or rows[node]
            if walk == "least-recent" and rng.random() >= mix:
                rng.shuffle(others)
                others = [min(others, key=lambda other: used.get((min(node, other), max(node, other)), 0))]
            step, clock = rng.choice(others), clock + 1
            used[min(node, step), max(node, step)] = clock
            node, before = step, node
    return clock - sealed_at


@pytest.mark.parametrize("mix", [0.0, 0.4])
def test_least_recent_legs_are_those_of_a_plain_walker(mix: float) -> None:
    """Fourth legs follow a walker written apart, and not the non-backtracking one."""
    graph = random_regular(16, 3, seed=2)
    rng = random.Random(8)  # noqa: S311 - an oracle that shares nothing with the engine
    lanes, goals = 40_000, 4
    updates = walks.run_protocol(
        graph,
        uniform_law(graph),
        updates=goals * lanes,
        seed=6,
        walk=Walk("least-recent", mix),
        replicas=lanes,
        burn_in=0,
    )
    legs = updates["leg_hops"][goals - 1 :: goals]
    plain = np.array([plain_leg(rng, graph, "least-recent", mix, goals) for _ in range(8000)])
    mutant = np.array([plain_leg(rng, graph, "non-backtracking", 0.0, goals) for _ in range(8000)])

    assert two_sample(legs, plain) > PASS
    assert two_sample(legs, mutant) < FAIL


def two_sample(times: IntArray, others: IntArray) -> float:
    """Return the chi-square p-value of two samples of times, the long ones taken together."""
    last = int(np.quantile(others, 0.99))
    table = np.array([np.bincount(np.minimum(sample, last), minlength=last + 1)[1:] for sample in (times, others)])
    return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)


def edge_uses(path: list[int], graph: Graph) -> IntArray:
    """Return how often a path uses each edge."""
    ends = np.sort(np.array([path[:-1], path[1:]]), axis=0)
    return np.unique(ends[0] * graph.n_nodes + ends[1], return_counts=True)[1]


def test_mix_balances_the_edges() -> None:
    """With some mix all edges are used about equally often, closer to it than chance alone brings them."""
    graph = random_regular(60, 3, seed=2)
    spreads = {}
    for mix in (0.1, 1.0):
        uses = [edge_uses(slow_path(graph, "least-recent", mix, 0, 9000, seed=5, job=job), graph) for job in range(3)]
        assert all(len(counts) == graph.n_edges for counts in uses)
        spreads[mix] = np.mean([counts.std() / counts.mean() for counts in uses])

    assert spreads[0.1] < 0.06
    assert spreads[0.1] < 0.75 * spreads[1.0]


def test_without_mix_the_walk_goes_round_an_euler_circuit() -> None:
    """Where all degrees are even, a token soon uses every edge once a round, for ever; with mix it does not.

    Nodes forward by the clock alone once no edge is new: without mix this walk hides nothing from who has seen a
    round of it, and its lanes, not its hops, are what is independent.
    """
    graph = random_regular(16, 4, seed=2)
    for job in range(3):
        path = slow_path(graph, "least-recent", 0.0, 0, 2000, seed=5, job=job)
        assert path[1000:1500] == path[1000 + graph.n_edges : 1500 + graph.n_edges]
        assert np.array_equal(edge_uses(path[1000 : 1001 + graph.n_edges], graph), np.ones(graph.n_edges))
    places = {}
    for mix in (0.0, 0.1):
        updates = walks.run_protocol(
            graph, uniform_law(graph), updates=20_000, seed=5, walk=Walk("least-recent", mix), replicas=5, burn_in=200
        )
        phases = updates["replica"].astype(np.int64) * graph.n_edges + updates["clock"] % graph.n_edges
        pairs = np.unique(np.stack((phases, updates["destination"])), axis=1)
        places[mix] = pairs.shape[1] / len(np.unique(phases))

    assert places[0.0] == 1.0
    assert places[0.1] > 10.0


def test_mix_leads_from_one_walk_to_the_other(petersen: Graph) -> None:
    """A mix of 1 is the non-backtracking walk to the hop; less of it visits new nodes sooner."""
    law = uniform_law(petersen)
    runs = [
        walks.run_protocol(petersen, law, updates=40_000, seed=1, walk=Walk("least-recent", mix), replicas=2000)
        for mix in (0.0, 0.5, 1.0)
    ]
    onward = walks.run_protocol(petersen, law, updates=40_000, seed=1, walk=Walk("non-backtracking"), replicas=2000)
    means = [run["leg_hops"].mean() for run in runs]

    assert np.array_equal(runs[2], onward)
    assert means[0] < means[1] < means[2]


@pytest.mark.parametrize(("walk", "mix"), KINDS)
def test_threads_and_chunks_do_not_change_a_bit(any_graph: Graph, walk: str, mix: float, two_threads: int) -> None:
    """One thread or two, chunks of any size: the same updates, and what must hold of them."""
    law = uniform_law(any_graph)
    numba.set_num_threads(1)
    first = walks.run_protocol(any_graph, law, updates=300, seed=2, replicas=20, walk=Walk(walk, mix))
    numba.set_num_threads(two_threads)
    again = walks.run_protocol(any_graph, law, updates=300, seed=2, replicas=20, walk=Walk(walk, mix))
    small = walks.run_protocol(any_graph, law, updates=300, seed=2, replicas=20, walk=Walk(walk, mix), chunk_updates=20)

    assert np.array_equal(first, again)
    assert np.array_equal(first, small)
    assert np.all(first["return_time"] > first["leg_hops"])
    assert np.all(any_graph.adjacency.toarray()[first["last_hop"], first["destination"]] == 1.0)


def test_memory_is_predicted(petersen: Graph) -> None:
    """What a run takes is foretold, the nodes' own memory included."""
    law = uniform_law(petersen)
    options: dict[str, Any] = {"updates": 60_000, "replicas": 3000, "chunk_updates": 10_000}
    for walk, _ in KINDS[:3]:
        tracemalloc.start()
        for _chunk in walks.iter_protocol(petersen, law, seed=1, walk=Walk(walk), **options):
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < walks.estimate_memory(petersen, law, walk=Walk(walk), **options) + 800_000
    more = walks.estimate_memory(petersen, law, walk=Walk("least-recent"), **options)

    # Thirty clocks of eight bytes for each lane.
    assert more - walks.estimate_memory(petersen, law, walk=Walk("non-backtracking"), **options) > 0.99 * 3000 * 30 * 8


def test_tokens_of_a_walk_that_remembers_are_refused(petersen: Graph) -> None:
    """They would share what the nodes remember, and nobody has modelled that."""
    with pytest.raises(InvalidParameterError) as caught:
        walks.iter_protocol(petersen, uniform_law(petersen), updates=10, seed=1, walk=Walk("least-recent"), tokens=2)

    need = "1 for the least-recent walk: tokens would share the nodes' memory: not modelled"
    assert str(caught.value) == f"tokens = 2: must be {need}"
