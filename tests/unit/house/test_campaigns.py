"""Campaigns are jobs of the one engine: what is done is not done again, and every part reaches its page."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
from tools.pages import audit_campaign, clock
from tools.pages.audit_page import page as audit_page
from tools.pages.campaign import engine

from veilwalk.core.records import Record

GRAPH = "rrg:12:3:seed=1"


def written(work: Path) -> dict[str, tuple[int, bytes]]:
    """When each kept job was written, and what it holds."""
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in work.iterdir()}


def test_the_audit_campaign_is_the_same_in_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws and the curve over colluders, by the bytes of every kept job."""
    monkeypatch.setattr(audit_campaign, "GRAPH", GRAPH)
    monkeypatch.setattr(audit_campaign, "SUPPORT", "2:2")
    monkeypatch.setattr(audit_campaign, "LAWS", ("plain", "paper"))
    monkeypatch.setattr(audit_campaign, "COUNTS", (1, 3))
    laws, curve = audit_campaign.law_jobs(500), audit_campaign.curve_jobs(500)
    found: dict[str, list[dict[str, Any]]] = {}
    for name in ("serial", "process:2")[: 2 if len(os.sched_getaffinity(0)) > 1 else 1]:
        with engine(name, tmp_path / name) as run:
            found[name] = run(audit_campaign.audited, laws + curve, what={"kind": "audit-campaign"})
    kept = [{name: data for name, (_, data) in written(tmp_path / one).items()} for one in found]
    assert all(one == kept[0] for one in kept)
    by_law = {job["law"]: Record(**part) for job, part in zip(laws, found["serial"], strict=False)}
    text = audit_page(by_law, Record(**found["serial"][-1]), {})
    assert [row.split(" | ")[0] for row in text.splitlines() if row.startswith(("| plain", "| paper"))] == [
        "| plain", "| plain", "| paper", "| paper", "| paper", "| paper",
    ]  # fmt: skip


def test_an_accuracy_is_reached_between_evaluations_of_a_walk_and_after_whole_rounds_of_gossip() -> None:
    """80% is half of the way from 70 to 90; where it is never reached the answer is infinite."""
    points = [(0, 0, 0, 0.1), (30, 300, 500, 0.7), (60, 600, 900, 0.9)]
    assert [clock.reach({"points": points}, 0.8, column) for column in (0, 1, 2)] == pytest.approx([45, 450, 700])
    assert clock.reach({"points": points, "alg": "gossip-push"}, 0.8, 1) == 600
    assert clock.reach({"points": points}, 0.95, 1) == math.inf


def test_the_page_shows_every_job_of_the_clock() -> None:
    """All rows of all tables, from runs that were made up; no group is empty, and none is left out."""
    points = [(0, 0, 0, 0.1), (30, 300, 500, 0.7), (60, 600, 900, 0.95)]
    runs = [job | {"final": 0.95, "own": 0.5, "points": points} for job in clock.list_jobs()]
    for number, run in enumerate(runs):
        run["points"] = [*points[:2], (60, 600 + number, 900, 0.95)]
    rows = [line for line in clock.write_section(runs) if line.startswith("| ")]
    tables = len(clock.TUNED) + 12 + len(clock.ONE) + 2 + sum(map(len, clock.MEET.values()))
    assert len(rows) == tables + 4
    assert "not by all" not in "".join(rows)
