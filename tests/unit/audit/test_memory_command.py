"""``veilwalk audit`` of walks that remember: what ``all`` asks, what is printed, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from veilwalk.audit import _path, _rehearsal, all_observers
from veilwalk.cli import main

SMALL = ["audit", "--graph", "rrg:30:3:seed=1", "--support", "2:3", "--updates", "2000", "--colluders", "4"]
OLDEST = [*SMALL, "--walk", "least-recent", "--mix", "0.2"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rehearse and try out little."""
    monkeypatch.setattr(_path, "_TRIED_HOPS", 2_000)
    monkeypatch.setattr(_rehearsal, "_HOPS_ENOUGH", 10_000)


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    shown = capsys.readouterr()
    assert isinstance(stopped.value.code, int)
    return stopped.value.code, shown.out, shown.err


def test_all_observers_of_a_walk_that_remembers(capsys: pytest.CaptureFixture[str]) -> None:
    """Every one that suits it has its rows, says how it knows, and stands in the printed table."""
    code, out, err = run([*OLDEST, "--posterior", "rehearsed", "--json"], capsys)
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)["observers"]
    assert tuple(found) == all_observers("least-recent", "rehearsed")
    kinds = {name: row["posterior"].partition(":")[0] for name, row in found.items()}
    assert {kinds[name] for name in ("return-time", "last-hop", "repeated", "bridge")} == {"rehearsed"}
    assert kinds["path"] == "exact"
    assert kinds["round"] == "simulated onward from what every node remembered"
    code, out, _ = run([*OLDEST, "--posterior", "rehearsed"], capsys)
    assert code == 0
    for name in found:
        assert name in out


def test_the_curve_over_colluders_is_rehearsed_too(capsys: pytest.CaptureFixture[str]) -> None:
    """More of them name more, against a walk that remembers as against any."""
    arguments = [*OLDEST, "--posterior", "by-class", "--observers", "prior", "--colluders", "2,12", "--json"]
    code, out, _ = run(arguments, capsys)
    assert code == 0
    few, many = json.loads(out)["by_colluders"]
    for name in ("first-sight", "bridge", "predecessor"):
        assert few[name]["hit_ratio"] < many[name]["hit_ratio"]


def test_a_walk_without_a_chain_says_what_to_ask_for(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, for the run and for the dry run; with the right posterior the dry run tells the memory."""
    for extra in ([], ["--dry-run"]):
        code, out, err = run([*OLDEST, *extra], capsys)
        assert (code, out) == (2, "")
        assert err == (
            "veilwalk: posterior = 'exact': must be by-class or rehearsed for the least-recent walk: "
            "it is no chain on the nodes\n"
        )
    code, out, err = run([*OLDEST, "--posterior", "rehearsed", "--dry-run"], capsys)
    assert (code, err) == (0, "")
    assert "MiB beyond the program itself for 2000 updates on 30 nodes" in out
