"""When to stop."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from veilwalk.core.errors import InvalidParameterError
from veilwalk.graphs import random_regular
from veilwalk.learning import CostModel, Point, Stopping, evaluation_points, gossip_trace, make_ledger, plain_trace

GRAPH = random_regular(40, 3, seed=3)


def points(losses: list[float], accuracies: list[float | None] | None = None) -> list[Point]:
    """Evaluations with these losses."""
    found = accuracies or [0.0] * len(losses)
    return [
        Point(update=i, clock=i, hops=i, sent_bytes=i, seconds=i, loss=loss, accuracy=accuracy)
        for i, (loss, accuracy) in enumerate(zip(losses, found, strict=True))
    ]


def test_an_accuracy_once_reached_ends_the_run() -> None:
    """At the evaluation that reaches it, not before."""
    rule = Stopping(target_accuracy=0.9)
    assert rule.find_reason(points([1.0, 0.5], [0.1, 0.89])) is None
    assert rule.find_reason(points([1.0, 0.5], [0.1, 0.9])) == "accuracy 0.9 reached"
    assert rule.find_reason(points([1.0, 0.5], [None, None])) is None


def test_a_loss_that_no_longer_falls_ends_the_run() -> None:
    """Patience counts evaluations since the last better one; a tiny improvement is none."""
    rule = Stopping(patience=2)
    assert rule.find_reason(points([1.0, 0.9, 0.91])) is None
    why = "no better loss in 2 evaluations, the best was 0.9 after update 1"
    assert rule.find_reason(points([1.0, 0.9, 0.91, 0.8995])) == why
    assert rule.find_reason(points([1.0, 0.9, 0.91, 0.88])) is None
    assert Stopping().find_reason(points([1.0, 1.0, 1.0, 1.0, 1.0])) is None


def test_finding_a8_close_evaluations_at_the_start_end_nothing() -> None:
    """A loss that rises at first, evaluated after updates 1, 2, 3, is no end of learning; the same later is."""
    rule = Stopping(patience=3)
    rising = points([2.3, 2.5, 2.6, 2.7, 2.8])
    assert rule.find_reason(rising, every=75) is None
    # The mutant counts every evaluation, as it was before.
    assert rule.find_reason(rising) is not None
    later = [replace(point, update=100 * point.update) for point in rising]
    assert rule.find_reason(later[:4], every=75) is None
    assert rule.find_reason(later, every=75) == "no better loss in 3 evaluations, the best was 2.5 after update 100"


def test_budgets_are_kept_to_the_update() -> None:
    """The plain walk spends a hop an update; gossip is cut between rounds."""
    costs = make_ledger(plain_trace(GRAPH, updates=50, seed=1), CostModel(), params_bytes=10)
    assert Stopping(max_hops=20).budget(costs) == (20, "budget of hops spent")
    assert Stopping(max_bytes=205).budget(costs) == (20, "budget of bytes spent")
    assert Stopping().budget(costs) == (50, "all updates made")
    rounds = make_ledger(gossip_trace(GRAPH, rounds=4), CostModel(), params_bytes=10)
    assert Stopping(max_hops=299).budget(rounds, every=40) == (80, "budget of hops spent")


def test_evaluations_start_at_the_start_and_end_at_the_end() -> None:
    """Close together at first, then evenly; whole rounds where asked."""
    found = evaluation_points(2000, 40)
    assert found[0] == 0
    assert found[1] == 1
    assert found[-1] == 2000
    assert 30 <= len(found) <= 42
    assert found == sorted(set(found))
    assert evaluation_points(1, 40) == [0, 1]
    assert all(point % 300 == 0 for point in evaluation_points(2100, 40, every=300))


@pytest.mark.parametrize(
    ("name", "value"),
    [("target_accuracy", 0.0), ("target_accuracy", 1.01), ("max_hops", -1), ("patience", 1.5), ("max_bytes", math.nan)],
)
def test_impossible_rules_are_refused_by_name(name: str, value: float) -> None:
    """One line with the parameter in it."""
    with pytest.raises(InvalidParameterError, match=name):
        Stopping(**{name: value})  # type: ignore[arg-type]
