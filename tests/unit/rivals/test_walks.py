"""Walks side by side: cheaper ones are cheaper, rows compare, the record draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tools.rivals.walks import compare_walks, price_walks
from tools.rivals.walks_figure import walk_files

from veilwalk.core.records import Record
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design import choose_scheme
from veilwalk.engine import open_engine
from veilwalk.graphs import random_regular

WALKS = (SIMPLE, Walk("non-backtracking"))


@pytest.fixture(scope="module")
def record() -> Record:
    graph = random_regular(60, 3, seed=1)
    law = choose_scheme(graph, "uniform-node", support=DistanceSupport(2, 4)).law
    observers = ("path", "first-sight")
    asked: dict[str, Any] = {"updates": 60_000, "seed": 3, "colluders": 6, "rehearsed_hops": 40_000}
    return compare_walks(graph, law, WALKS, observers=observers, **asked)


def test_hops_are_relative_to_the_first_walk(record: Record) -> None:
    """The order the theory expects: straight back is wasted."""
    simple, straight = record.result["rows"]
    assert simple["relative_hops"] == 1
    assert straight["relative_hops"] == pytest.approx(straight["hops_per_update"] / simple["hops_per_update"])
    assert straight["relative_hops"] < 0.65


def test_walks_that_do_not_turn_back_hide_short_returns_better(record: Record) -> None:
    """From the last-hop observer, in the shortest percent of return times, by more than the intervals."""
    simple, straight = (row["observers"]["last-hop"]["by_return_time"] for row in record.result["rows"])
    assert simple[0]["node_entropy_nats_interval"][1] < straight[0]["node_entropy_nats_interval"][0]
    assert simple[0]["node_entropy_lost_nats_interval"][0] > straight[0]["node_entropy_lost_nats_interval"][1]
    assert len(simple) == len(straight)


def test_what_is_lost_is_what_the_prior_had(record: Record) -> None:
    """More to who sees more; only where both score the same updates."""
    for row in record.result["rows"]:
        seen = row["observers"]
        timed, hopped = (seen[name]["overall"]["node_entropy_lost_nats"] for name in ("return-time", "last-hop"))
        assert hopped > timed > 0
        assert "node_entropy_lost_nats" not in seen["path"]["overall"]
        assert "prior" not in seen


def test_prices_agree_with_the_comparison(record: Record) -> None:
    """The same law, given as bare rows: hops per update within both intervals; relative to the first."""
    graph = random_regular(60, 3, seed=1)
    law = choose_scheme(graph, "uniform-node", support=DistanceSupport(2, 4)).law
    priced = price_walks(graph, law.matrix, WALKS, hops=2_000_000, seed=8)
    for one, other in zip(priced, record.result["rows"], strict=True):
        assert one["walk"] == other["walk"]
        half = sum(np.ptp(row["hops_per_update_interval"]) / 2 for row in (one, other))
        assert abs(one["hops_per_update"] - other["hops_per_update"]) < half
        assert one["relative_hops"] == one["hops_per_update"] / priced[0]["hops_per_update"]


def test_the_record_draws_the_same_figure_twice(record: Record, tmp_path: Path) -> None:
    """JSON, PNG and SVG, byte for byte; with prices of other graphs another figure."""
    first, second = walk_files(record, tmp_path / "a"), walk_files(record, tmp_path / "b")
    rows = [{"name": "here", "walks": record.result["rows"]}]
    prices = Record(kind="prices", params={}, seed=3, result={"rows": rows})
    other = walk_files(record, tmp_path / "c", prices=prices)
    assert other[0].read_bytes() != first[0].read_bytes()
    assert [path.name for path in first] == ["walks.png", "walks.svg", "walks.json"]
    for one, again in zip(first, second, strict=True):
        assert one.read_bytes() == again.read_bytes()


def test_the_comparison_is_the_same_in_processes() -> None:
    """Audits and prices alike: the engine has no say."""
    graph, walks = random_regular(20, 3, seed=1), WALKS[:2]
    law = choose_scheme(graph, "uniform-node", support=DistanceSupport(2, 3)).law
    asked: dict[str, Any] = {"updates": 1_000, "seed": 3, "colluders": 3, "rehearsed_hops": 2_000}
    here = compare_walks(graph, law, walks, **asked).to_json()
    prices = price_walks(graph, law.matrix, walks, hops=20_000, seed=3, replicas=12)
    with open_engine("process:2") as pool:
        assert compare_walks(graph, law, walks, **asked, executor=pool).to_json() == here
        assert price_walks(graph, law.matrix, walks, hops=20_000, seed=3, replicas=12, executor=pool) == prices
