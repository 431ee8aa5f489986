"""Other ways to bring an update on: what is told of them, against playing them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special
from tools.rivals import routes

from veilwalk.graphs import barabasi_albert, random_regular


def test_every_way_is_told_by_the_same_observers() -> None:
    """What is not sealed hides nothing; more hops of an onion hide more; nobody is below the floor but by chance."""
    record = routes.compare_routes(random_regular(40, 3, seed=1), fars=(3,), counts=(4,))
    rows = {row["route"]: row for row in record.result["rows"]}
    assert set(rows) == {
        "plain walk",
        "gossip",
        "paper",
        "recommended",
        "onion 8",
        "onion 10",
        "onion 12",
        "crowd",
        "several",
    }
    assert rows["plain walk"]["node_entropy_nats"] == 0.0
    assert rows["onion 8"]["node_entropy_nats"] < rows["onion 12"]["node_entropy_nats"] < np.log(40)
    assert all(row["times_floor"] > 0.85 for row in rows.values())
    assert len(record.result["rows"]) == 8 + 2


def test_the_table_of_an_onion_is_that_of_its_paths() -> None:
    """By walking, on a graph with hubs and leaves; paths one hop longer are told apart."""
    graph = barabasi_albert(12, 1, seed=3)
    table = routes._onion_table(graph, 3)
    assert table.sum() == pytest.approx(1.0)
    played, longer = np.zeros_like(table), routes._onion_table(graph, 4)
    rng = np.random.default_rng(1)
    for _ in range(12_000):
        at = int(rng.choice(graph.n_nodes, p=graph.degrees / graph.degrees.sum()))
        source, before = at, -1
        for _ in range(3):
            ways = graph.indices[graph.indptr[at] : graph.indptr[at + 1]]
            onward = ways[ways != before] if len(ways) > 1 else ways
            before, at = at, int(rng.choice(onward))
        arc = graph.indptr[at] + int(
            np.flatnonzero(graph.indices[graph.indptr[at] : graph.indptr[at + 1]] == before)[0]
        )
        played[arc, source] += 1 / 12_000
    assert np.abs(played - table).sum() < 0.1 < np.abs(played - longer).sum()


def test_a_crowd_is_as_its_closed_form_says() -> None:
    """By playing it: hops, entropy of the source given the last hop, and what colluders name."""
    size, plays = 20, 30_000
    rng = np.random.default_rng(1)
    row = routes._crowd(size)
    hops = rng.geometric(1 - routes.PASSED_ON, plays)
    source, last, named = np.empty(plays, int), np.empty(plays, int), 0
    colluders = round(routes.COLLUDE * size)
    for play in range(plays):
        path = rng.integers(colluders, size, 1).tolist() + rng.integers(0, size, hops[play]).tolist()
        first = next((place for place, node in enumerate(path[1:]) if node < colluders), None)
        named += first is not None and path[first] == path[0]
        path[0] = rng.integers(size)
        source[play], last[play] = path[0], path[-2]
    counts = np.zeros((size, size))
    np.add.at(counts, (last, source), 1 / plays)
    nats = special.entr(counts).sum() - special.entr(counts.sum(axis=1)).sum()
    assert hops.mean() == pytest.approx(row["hops"], rel=0.02)
    assert nats == pytest.approx(row["node_entropy_nats"], abs=0.02)
    assert named / plays / routes.COLLUDE == pytest.approx(row["times_floor"], abs=0.08)
