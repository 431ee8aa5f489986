"""The protocol: every field of every record, read off the path the token takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numba
import numpy as np
import pytest
from scipy import sparse
from tests.helpers.progress import Heard

from veilwalk import walks
from veilwalk.core.arrays import BoolArray, FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph, random_regular
from veilwalk.walks._protocol import Updates
from veilwalk.walks._tables import build_law_tables


def uniform_law(graph: Graph) -> FloatArray:
    """Return the law that is uniform over all other nodes."""
    law = np.full((graph.n_nodes, graph.n_nodes), 1.0 / (graph.n_nodes - 1))
    np.fill_diagonal(law, 0.0)
    return law


def skewed_law(graph: Graph) -> FloatArray:
    """Return a law with other weights and other holes in every row."""
    law = np.random.default_rng(3).random((graph.n_nodes, graph.n_nodes)) ** 3
    law[law < 0.05] = 0.0
    np.fill_diagonal(law, 0.0)
    law[np.arange(graph.n_nodes), (np.arange(graph.n_nodes) + 1) % graph.n_nodes] += 0.1
    return np.asarray(law / law.sum(axis=1, keepdims=True))


def expected_record(path: list[int], before: Updates | None, record: Updates, colluders: BoolArray) -> dict[str, int]:
    """Return what a record must say, by searching the path from where the last one ended."""
    sealed = 0 if before is None else int(before["clock"])
    source, destination = path[sealed], int(record["destination"])
    clock = next(t for t in range(sealed + 1, len(path)) if path[t] == destination)
    earlier = [t for t in range(clock) if path[t] == destination]
    sights = [t for t in range(sealed + 1, clock + 1) if colluders[path[t]]]
    sealed_before = 0 if before is None else sealed - int(before["leg_hops"])
    old_sights = [t for t in range(sealed_before + 1, sealed + 1) if colluders[path[t]]]
    return {
        "source": source,
        "destination": destination,
        "last_hop": path[clock - 1],
        "clock": clock,
        "leg_hops": clock - sealed,
        "return_time": clock - earlier[-1] if earlier else -1,
        "first_sight_node": path[sights[0]] if sights else -1,
        "first_sight_from": path[sights[0] - 1] if sights else -1,
        "first_sight_clock": sights[0] if sights else -1,
        "first_sight_hops": sights[0] - sealed if sights else -1,
        "previous_sight_node": path[old_sights[-1]] if old_sights else -1,
        "previous_sight_to": path[old_sights[-1] + 1] if old_sights and old_sights[-1] < sealed else -1,
        "previous_sight_clock": old_sights[-1] if old_sights else -1,
    }


@pytest.mark.parametrize("walk", ["simple", "lazy"])
def test_records_are_read_off_the_path(any_graph: Graph, walk: str, slow_path: Callable[..., list[int]]) -> None:
    """A slow search along the token's path finds every field of every record."""
    per_lane = 6 if any_graph.n_nodes < 30 else 2
    colluders = np.arange(any_graph.n_nodes) % 4 == 1
    updates = walks.run_protocol(
        any_graph,
        skewed_law(any_graph) if any_graph.n_nodes > 2 else uniform_law(any_graph),
        updates=4 * per_lane,
        seed=5,
        tokens=2,
        replicas=2,
        walk=Walk(walk),
        colluders=colluders,
        burn_in=0,
        chunk_updates=8,
    )
    for lane in range(4):
        mine = updates[(updates["replica"] == lane // 2) & (updates["token"] == lane % 2)]
        # A lane is the walker of that number.
        path = slow_path(any_graph, walk, int(mine[0]["source"]), int(mine[-1]["clock"]), seed=5, job=lane)
        assert len(mine) == per_lane
        for number, record in enumerate(mine):
            wanted = expected_record(path, mine[number - 1] if number else None, record, colluders)
            assert {name: int(record[name]) for name in wanted} == wanted


def test_invariants(any_graph: Graph) -> None:
    """What must hold whatever was drawn."""
    law = uniform_law(any_graph)
    updates = walks.run_protocol(any_graph, law, updates=3000, seed=6, replicas=7, tokens=3)

    assert np.all(updates["return_time"] > updates["leg_hops"])
    assert np.all(updates["leg_hops"] >= 1)
    assert np.all(law[updates["source"], updates["destination"]] > 0.0)
    assert np.all(any_graph.adjacency.toarray()[updates["last_hop"], updates["destination"]] == 1.0)
    assert np.all(updates["first_sight_node"] == -1)
    lanes = 3 * updates["replica"] + updates["token"]
    assert np.all(np.diff(lanes) >= 0)
    assert np.ptp(np.bincount(lanes, minlength=21)) <= 1
    same = np.diff(lanes) == 0
    assert np.array_equal(updates["source"][1:][same], updates["destination"][:-1][same])
    assert np.array_equal((updates["clock"][1:] - updates["leg_hops"][1:])[same], updates["clock"][:-1][same])


def test_threads_and_chunks_do_not_change_a_bit(any_graph: Graph, two_threads: int) -> None:
    """One thread or two, chunks of any size, dense or sparse law: the same updates."""
    law = uniform_law(any_graph)
    numba.set_num_threads(1)
    first = walks.run_protocol(any_graph, law, updates=900, seed=2, replicas=20)
    numba.set_num_threads(two_threads)

    assert np.array_equal(first, walks.run_protocol(any_graph, law, updates=900, seed=2, replicas=20))
    small = walks.run_protocol(any_graph, law, updates=900, seed=2, replicas=20, chunk_updates=50)
    assert np.array_equal(first, small)
    rows = sparse.csr_array(law)
    assert np.array_equal(first, walks.run_protocol(any_graph, rows, updates=900, seed=2, replicas=20))
    assert not np.array_equal(first, walks.run_protocol(any_graph, law, updates=900, seed=3, replicas=20))


def test_chunks_are_bounded_and_ordered(petersen: Graph) -> None:
    """Chunks keep to their size, report progress, and go lane by lane."""
    heard = Heard()
    chunks = list(
        walks.iter_protocol(
            petersen,
            uniform_law(petersen),
            updates=1003,
            seed=1,
            replicas=10,
            chunk_updates=100,
            progress=heard,
        )
    )

    assert sum(map(len, chunks)) == 1003
    assert max(map(len, chunks)) == 100
    assert all(np.all(np.diff(chunk["replica"]) >= 0) for chunk in chunks)
    assert heard.steps[-1] == (1003, 1003)


def test_unknown_return_times_are_marked(petersen: Graph) -> None:
    """Without burn-in the first visit of a node has no return time; with it every one is known."""
    law = uniform_law(petersen)
    raw = walks.run_protocol(petersen, law, updates=64, seed=1, burn_in=0)

    assert np.any(raw["return_time"] == -1)
    assert np.all(walks.run_protocol(petersen, law, updates=64, seed=1)["return_time"] > 0)


def test_memory_does_not_grow_with_updates(petersen: Graph) -> None:
    """Twenty times the updates take the memory that was predicted, not twenty times as much."""
    law = uniform_law(petersen)
    peaks = []
    for updates in (20_000, 400_000):
        tracemalloc.start()
        total = sum(
            len(chunk) for chunk in walks.iter_protocol(petersen, law, updates=updates, seed=1, chunk_updates=10_000)
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert total == updates
        predicted = walks.estimate_memory(petersen, law, updates=updates, chunk_updates=10_000)
        assert peaks[-1] < predicted + 200_000

    assert peaks[1] < 1.2 * peaks[0]


def test_prediction_counts_what_is_collected(petersen: Graph) -> None:
    """Keeping every update costs memory for every update, and more lanes cost more tables."""
    law = uniform_law(petersen)
    stream = walks.estimate_memory(petersen, law, updates=10**9)

    assert walks.estimate_memory(petersen, law, updates=10**9, collect=True) > stream + 10**9
    assert walks.estimate_memory(petersen, law, updates=10**9, tokens=100) > stream
    assert stream < 20_000_000


def test_an_abandoned_run_leaves_what_it_gave(petersen: Graph) -> None:
    """Chunks already yielded stay as they are when the run goes on or stops."""
    run = walks.iter_protocol(petersen, uniform_law(petersen), updates=500, seed=1, chunk_updates=100)
    first = next(run)
    copy = first.copy()
    next(run)

    assert np.array_equal(first, copy)


def test_alias_tables_hold_the_law(any_graph: Graph) -> None:
    """Summing the slots of an alias table gives back each row."""
    law = uniform_law(any_graph) if any_graph.n_nodes < 3 else skewed_law(any_graph)
    aliases = build_law_tables(any_graph, law, 1)
    for node in range(any_graph.n_nodes):
        part = slice(int(aliases.offsets[node]), int(aliases.offsets[node + 1]))
        columns, keep, other = aliases.columns[part], aliases.keep[part], aliases.other[part]
        row = np.zeros(any_graph.n_nodes)
        np.add.at(row, columns, keep / len(columns))
        np.add.at(row, columns[other], (1.0 - keep) / len(columns))
        np.testing.assert_allclose(row, law[node], rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"law": np.full((9, 9), 1 / 9)}, "law = 'matrix of shape (9, 9)': must be of shape (10, 10)"),
        ({"law": np.eye(10)}, "law row 0 = 'a node that may choose itself': must be a law over the other"),
        ({"law": np.zeros((10, 10))}, "law row 0 = 'sum 0': must be a sum of 1"),
        ({"law": np.full((10, 10), np.nan)}, "law = 'matrix with negative or non-finite entries': must be"),
        ({"law": -np.ones((10, 10))}, "law = 'matrix with negative or non-finite entries': must be"),
        ({"updates": 0}, "updates = 0: must be >= 1"),
        ({"updates": 1.5}, "updates = 1.5: must be a whole number"),
        ({"tokens": 0}, "tokens = 0: must be >= 1"),
        ({"replicas": 0}, "replicas = 0: must be >= 1"),
        ({"burn_in": -1}, "burn_in = -1: must be >= 0"),
        ({"chunk_updates": 0}, "chunk_updates = 0: must be >= 1"),
        ({"colluders": [1, 2]}, "colluders = 'array of shape (2,) and type int64': must be a mask of 10"),
    ],
)
def test_bad_input_is_refused_before_the_first_chunk(petersen: Graph, change: dict[str, object], message: str) -> None:
    """Messages name the parameter, its value and what is needed, when the run is asked for."""
    given: dict[str, object] = {"law": uniform_law(petersen), "updates": 10, "seed": 1, **change}
    with pytest.raises(InvalidParameterError) as caught:
        walks.iter_protocol(petersen, **given)  # type: ignore[arg-type]

    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("walk", ["simple", "lazy"])
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_a_lane_by_itself_goes_as_it_goes_among_others(walk: str, chunk: int) -> None:
    """The kernel for one lane against the one for many, also across chunks; another seed is the mutant."""
    graph = random_regular(40, 3, seed=2)
    law = uniform_law(graph)
    alone = walks.run_protocol(graph, law, updates=60, seed=5, walk=Walk(walk), replicas=1, chunk_updates=chunk)
    among = walks.run_protocol(graph, law, updates=180, seed=5, walk=Walk(walk), replicas=3)
    np.testing.assert_array_equal(alone, among[among["replica"] == 0])
    other = walks.run_protocol(graph, law, updates=60, seed=6, walk=Walk(walk), replicas=1)
    assert not np.array_equal(alone, other)
