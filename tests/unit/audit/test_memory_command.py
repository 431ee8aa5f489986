"""``veilwalk audit`` of walks that remember: what ``all`` asks, what is printed, what is refused."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from tests.helpers.cli import Cli

from veilwalk.audit import OBSERVERS, AuditSettings

SMALL = ["audit", "--graph", "rrg:30:3:seed=1", "--support", "2:3", "--updates", "2000", "--colluders", "4"]
# They need a chain.
FOLLOWERS = {"memory", "neighbour", "linked-neighbour", "coalition", "linked-coalition"}
OLDEST = [*SMALL, "--walk", "least-recent", "--mix", "0.2"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rehearse and try out little: what the command does not ask for is as the settings have it."""
    monkeypatch.setattr("veilwalk.audit.AuditSettings", partial(AuditSettings, rehearsed_hops=10_000))


def test_all_observers_of_a_walk_that_remembers(run: Cli) -> None:
    """Every one that suits it has its rows, says how it knows, and stands in the printed table."""
    code, out, _ = run([*OLDEST, "--json"])
    assert code == 0
    found: dict[str, Any] = json.loads(out)["observers"]
    assert tuple(found) == tuple(name for name in OBSERVERS if name not in {"window", *FOLLOWERS})
    kinds = {name: row["posterior"].partition(":")[0] for name, row in found.items()}
    assert {kinds[name] for name in ("return-time", "last-hop", "repeated", "first-sight")} == {"rehearsed"}
    assert kinds["path"] == "exact"
    code, out, _ = run([*SMALL, "--walk", "least-recent:0.2"])
    assert code == 0
    for name in found:
        assert name in out


def test_the_curve_over_colluders_is_rehearsed_too(run: Cli) -> None:
    """More of them name more, against a walk that remembers as against any."""
    arguments = [*OLDEST, "--posterior", "by-class", "--observers", "prior", "--colluders", "2,12", "--json"]
    code, out, _ = run(arguments)
    assert code == 0
    few, many = json.loads(out)["by_colluders"]
    assert few["first-sight"]["hit_ratio"] < many["first-sight"]["hit_ratio"]


def test_a_walk_without_a_chain_says_what_to_ask_for(run: Cli) -> None:
    """One line, for the run and for the dry run; left to itself the dry run tells the memory."""
    for extra in ([], ["--dry-run"]):
        code, out, err = run([*OLDEST, "--posterior", "exact", *extra])
        assert (code, out) == (2, "")
        assert err == (
            "veilwalk: --posterior = 'exact': must be rehearsed or by-class: the least-recent walk is no chain\n"
        )
    code, out, err = run([*OLDEST, "--dry-run"])
    assert (code, err) == (0, "")
    assert "MiB beyond the program itself for 2000 updates on 30 nodes" in out
