"""Whole networks in virtual time: one bad member of ten, and a network in which everybody is next to everybody."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.campaigns.bad_neighbours import measure, shipped_plan

from veilwalk.node.peer._watches import NeighbourWeights


def avoid_nobody(_: NeighbourWeights, peers: Iterable[str]) -> frozenset[str]:
    """Weigh nobody."""
    del peers
    return frozenset()


def test_finding_05_a_tarpit_costs_less_than_two_thirds_of_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers within all limits. Without weights, which is the mutant, it costs more than four fifths."""
    plan = shipped_plan(recipients=4)
    (early, clean, _), (_, weighed, _) = (measure(kind, 1, plan, seconds=150.0) for kind in ("clean", "tarpit"))
    monkeypatch.setattr(NeighbourWeights, "select_avoided", avoid_nobody)
    unweighed = measure("tarpit", 1, plan, seconds=75.0)[1]
    assert weighed > clean / 3
    assert unweighed < early / 5


def test_nodes_run_a_complete_network() -> None:
    """Everybody may be a recipient there, the next member too."""
    plan = shipped_plan(network="complete:6")
    assert plan.spec.scheme.law == "far:1"
    first, last, made = measure("clean", 1, plan, seconds=40.0)
    assert last > first > 5
    assert made == 0
