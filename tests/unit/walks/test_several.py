"""Sealed for several: sets, the protocol played with them, and the set summed out."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import Walk
from veilwalk.graphs import barabasi_albert, distances, parse_graph_spec, random_regular, ring
from veilwalk.walks import (
    ExcludedRows,
    draw_recipients,
    estimate_memory,
    estimate_openings,
    iter_protocol,
    run_protocol,
    token_paths,
)

GRAPH = random_regular(40, 3, seed=2)
FAR = ExcludedRows.nearer_than(GRAPH, 3)
WALKS = ("simple", "lazy", "metropolis", "non-backtracking")


def _sets(records: npt.NDArray[np.void], *, seed: int) -> IntArray:
    sealed = records["clock"] - records["leg_hops"]
    lanes, sources = records["replica"], records["source"]
    return draw_recipients(GRAPH, FAR, 5, seed=seed, lane=lanes, source=sources, clock=sealed)


@pytest.mark.parametrize("kind", WALKS)
def test_first_of_the_set_on_the_way_opens(kind: str) -> None:
    walk = Walk.parse(kind)
    records = run_protocol(GRAPH, FAR, updates=300, seed=5, replicas=3, walk=walk, recipients=5)
    drawn = _sets(records, seed=5)
    apart = distances(GRAPH)
    for lane in range(3):
        rows = np.flatnonzero(records["replica"] == lane)
        path = token_paths(GRAPH, hops=int(records["clock"][rows[-1]]), lanes=1, seed=5, walk=walk, first_lane=lane)[0]
        for row in rows:
            clock, source, members = records["clock"][row], records["source"][row], drawn[row]
            sealed = clock - records["leg_hops"][row]
            assert path[sealed] == source
            assert path[clock] == records["destination"][row]
            assert path[clock - 1] == records["last_hop"][row]
            assert records["destination"][row] in members
            assert not np.isin(path[sealed + 1 : clock], members).any()
            assert len(set(members)) == 5
            assert (apart[source, members] >= 3).all()


def test_what_is_seen_of_a_leg_is_what_the_path_says() -> None:
    watching = np.zeros(40, dtype=np.bool_)
    watching[[3, 17, 30]] = True
    records = run_protocol(GRAPH, FAR, updates=200, seed=8, replicas=1, recipients=4, colluders=watching)
    path = token_paths(GRAPH, hops=int(records["clock"][-1]), lanes=1, seed=8)[0]
    for record in records:
        clock, sealed = int(record["clock"]), int(record["clock"] - record["leg_hops"])
        held = [hop for hop in range(sealed + 1, clock + 1) if watching[path[hop]]]
        assert record["first_sight_node"] == (path[held[0]] if held else -1)
        assert record["first_sight_clock"] == (held[0] if held else -1)
        earlier = np.flatnonzero(path[:clock] == path[clock])
        assert record["return_time"] == (clock - earlier[-1] if len(earlier) else -1)


def test_results_do_not_depend_on_chunks_or_replicas() -> None:
    options: dict[str, Any] = {"seed": 9, "walk": Walk("non-backtracking"), "recipients": 3}
    whole = run_protocol(GRAPH, FAR, updates=120, replicas=4, **options)
    parts = np.concatenate(list(iter_protocol(GRAPH, FAR, updates=120, replicas=4, chunk_updates=7, **options)))
    assert np.array_equal(whole, parts[np.argsort(parts["replica"], kind="stable")])
    alone = run_protocol(GRAPH, FAR, updates=30, replicas=1, **options)
    assert np.array_equal(alone, whole[whole["replica"] == 0])
    assert estimate_memory(GRAPH, FAR, updates=120) > 0


def test_sets_of_a_weighted_row_are_drawn_one_after_the_other() -> None:
    """P(S) by successive sampling, enumerated; a mutant that draws by inclusion alone would show here."""
    graph = parse_graph_spec("complete:6")
    weights = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
    law = np.zeros((6, 6))
    for node in range(6):
        law[node, np.arange(6) != node] = np.roll(weights, node)
    n_sets = 60_000
    drawn = draw_recipients(
        graph, law, 3, seed=1, lane=np.arange(n_sets), source=np.zeros(n_sets), clock=np.full(n_sets, 7)
    )
    for chosen in itertools.combinations(range(1, 6), 3):
        expected = sum(
            math.prod(
                weights[node - 1] / (1 - sum(weights[other - 1] for other in order[:place]))
                for place, node in enumerate(order)
            )
            for order in itertools.permutations(chosen)
        )
        found = np.mean((np.sort(drawn, axis=1) == chosen).all(axis=1))
        assert found == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / n_sets))


def test_a_whole_row_can_be_drawn() -> None:
    laws: tuple[Any, ...] = (FAR, _table(FAR))
    for law in laws:
        most = int(FAR.n_choices.min())
        node = int(np.argmin(FAR.n_choices))
        drawn = draw_recipients(GRAPH, law, most, seed=3, lane=[0, 1], source=[node, node], clock=[5, 6])
        allowed = np.setdiff1d(np.arange(40), FAR.nodes[FAR.offsets[node] : FAR.offsets[node + 1]])
        assert np.array_equal(np.sort(drawn, axis=1), np.tile(allowed, (2, 1)))
        with pytest.raises(InvalidParameterError, match=f"^recipients = {most + 1}: "):
            draw_recipients(GRAPH, law, most + 1, seed=3, lane=0, source=node, clock=5)


def _table(rows: ExcludedRows) -> FloatArray:
    table = np.ones((rows.n_nodes, rows.n_nodes))
    for node in range(rows.n_nodes):
        table[node, rows.nodes[rows.offsets[node] : rows.offsets[node + 1]]] = 0.0
    return np.asarray(table / table.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("kind", ["simple", "non-backtracking"])
@pytest.mark.parametrize("recipients", [1, 6])
def test_summed_out_and_played_agree_and_a_set_redrawn_at_every_hop_is_told(kind: str, recipients: int) -> None:
    walk = Walk(kind)
    found = estimate_openings(GRAPH, FAR, recipients, walk=walk, legs=8_000, seed=2)
    played = run_protocol(GRAPH, FAR, updates=40_000, seed=4, walk=walk, recipients=recipients)
    hops = played["leg_hops"].astype(np.float64)
    error = math.hypot(hops.std() / math.sqrt(len(hops)), (found.hops_interval[1] - found.hops) / 1.96)
    assert abs(hops.mean() - found.hops) < 4 * error
    assert found.unopened < 1e-6
    assert found.joint.sum() == pytest.approx(1.0)
    # Who opens, by node: the two roads, each with its noise.
    heads = np.repeat(np.arange(40), GRAPH.degrees)
    openers = np.bincount(heads, weights=found.arrived)
    counted = np.bincount(played["destination"], minlength=40) / len(played)
    assert np.abs(openers - counted).max() < 5 * math.sqrt(counted.max() / 8_000)
    # The mutant: a fresh set at each hop opens at a revisit as easily as at a new node.
    redrawn = _redrawn(walk, recipients)
    assert abs(redrawn - found.hops) > 5 * error


def _redrawn(walk: Walk, recipients: int) -> float:
    paths = token_paths(GRAPH, hops=4_000, lanes=64, seed=6, walk=walk)
    apart, rng, hops = distances(GRAPH), np.random.default_rng(1), []
    for path in paths:
        sealed = 0
        for clock in range(1, len(path)):
            far = apart[path[sealed], path[clock]] >= 3
            if far and rng.random() < recipients / FAR.n_choices[path[sealed]]:
                hops.append(clock - sealed)
                sealed = clock
    return float(np.mean(hops))


def test_uneven_rows_are_nearly_right() -> None:
    """Rosen's approximation, on a graph with hubs and an uneven law: the price within three parts in a hundred."""
    graph = barabasi_albert(60, 2, seed=1)
    rng = np.random.default_rng(3)
    law = np.where(distances(graph) >= 2, rng.exponential(size=(60, 60)), 0.0)
    law /= law.sum(axis=1, keepdims=True)
    found = estimate_openings(graph, law, 5, legs=8_000)
    played = run_protocol(graph, law, updates=40_000, seed=4, recipients=5)
    assert found.hops == pytest.approx(played["leg_hops"].mean(), rel=0.03)


def test_refusals_name_what_is_wrong() -> None:
    with pytest.raises(InvalidParameterError, match="recipients = 0"):
        run_protocol(GRAPH, FAR, updates=1, seed=1, recipients=0)
    with pytest.raises(InvalidParameterError, match=r"^far = 30: "):
        ExcludedRows.nearer_than(GRAPH, 30)
    with pytest.raises(InvalidParameterError, match="far = 0"):
        ExcludedRows.nearer_than(GRAPH, 0)


def test_a_set_does_not_remember_the_set_that_had_its_tag() -> None:
    """Sets are marked by tags of 16 bits: after 65,535 sets the tags begin again, and the old marks are erased."""
    graph, law = ring(12), np.zeros((12, 12))
    law[:, [8, 9]] = 0.5
    law[[0, 8, 9]] = 0.0
    law[0, [5, 6]] = law[8, [5, 6]] = law[9, [5, 6]] = 0.5
    # Only the first and the last row are of a source that chooses 5 and 6.
    source = np.ones(1 << 16, dtype=np.int64)
    source[[0, -1]] = 0
    clock = np.arange(1 << 16) % ((1 << 16) - 1)
    sets = draw_recipients(graph, law, 2, seed=1, lane=np.zeros_like(source), source=source, clock=clock)
    assert sorted(sets[0]) == [5, 6]
    assert list(sets[0]) == list(sets[-1])
