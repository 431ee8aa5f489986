"""Walks side by side: cheaper ones are cheaper, rows compare, the record draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from veilwalk.audit import scheme_law
from veilwalk.core.records import Record
from veilwalk.core.support import DistanceSupport
from veilwalk.experiments import compare_walks
from veilwalk.graphs import random_regular
from veilwalk.report import walk_files
from veilwalk.walks import WalkKind


@pytest.fixture(scope="module")
def record() -> Record:
    graph = random_regular(60, 3, seed=1)
    law = scheme_law("uniform-node", graph, DistanceSupport(2, 4))
    walks: list[tuple[WalkKind, float]] = [("simple", 0.0), ("non-backtracking", 0.0), ("least-recent", 0.1)]
    return compare_walks(graph, law, walks, updates=60_000, seed=3, names=("rrg:60:3:seed=1", "uniform-node"))


def test_hops_are_relative_to_the_first_walk(record: Record) -> None:
    """The order the theory expects: straight back is wasted, and so is what was used just before."""
    simple, straight, oldest = record.result["rows"]
    assert simple["relative_hops"] == 1
    assert straight["relative_hops"] == pytest.approx(straight["hops_per_update"] / simple["hops_per_update"])
    assert oldest["relative_hops"] < straight["relative_hops"] < 0.65


def test_walks_that_do_not_turn_back_hide_short_returns_better(record: Record) -> None:
    """In the shortest percent of return times the simple walk leaves least, by more than the intervals."""
    simple, straight, _ = record.result["rows"]
    for name in ("return-time", "last-hop"):
        first, other = (row[name]["by_return_time"][0] for row in (simple, straight))
        assert first["node_entropy_nats_interval"][1] < other["node_entropy_nats_interval"][0]
        assert len(simple[name]["by_return_time"]) == len(straight[name]["by_return_time"])


def test_the_record_draws_the_same_figure_twice(record: Record, tmp_path: Path) -> None:
    """JSON, PNG and SVG, byte for byte."""
    first, second = walk_files(record, tmp_path / "a"), walk_files(record, tmp_path / "b")
    assert [path.name for path in first] == ["walks.json", "walks.png", "walks.svg"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
