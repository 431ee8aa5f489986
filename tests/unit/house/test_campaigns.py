"""Campaigns are jobs of the one engine: what is done is not done again, and every part reaches its page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tools.pages import audit_campaign, learning, learning_jobs, local_steps
from tools.pages.audit_page import page as audit_page
from tools.pages.campaign import engine
from tools.pages.learning_page import page as learning_page
from tools.pages.tuning import Setting

from veilwalk.core.records import Record

GRAPH = "rrg:12:3:seed=1"
TINY = learning_jobs.Profile(
    seeds=(1, 2),
    updates={"softmax": 24, "cnn": 24},
    tuning_updates=12,
    evaluations={"softmax": 2, "cnn": 2},
    held_out={"softmax": 50, "cnn": 50},
    attacked=4,
    attack_seeds=(1,),
    graph=GRAPH,
    support="2:2",
    far="far:2",
    recipients=3,
    watched=5,
)


def written(work: Path) -> dict[str, tuple[int, bytes]]:
    """When each kept job was written, and what it holds."""
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in work.iterdir()}


def test_the_learning_campaign_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that was done before is taken as it is; the page has all sections; more seeds are only more jobs."""
    monkeypatch.setitem(learning_jobs.PROFILES, "tiny", TINY)
    monkeypatch.setitem(
        learning_jobs.GRIDS, "softmax", [Setting(learning_rate=rate, local_steps=2) for rate in (0.001, 0.3)]
    )
    monkeypatch.setattr(local_steps, "RATES", (0.3,))
    monkeypatch.setattr(local_steps, "LOCAL_STEPS", (1,))
    monkeypatch.setattr(local_steps, "leak", lambda *_, **__: [{"reference": "x", "deliveries": 4, "hits": 1}])

    def made(*parts: str) -> Record:
        with engine("serial", tmp_path) as run:
            return learning.Plan("tiny", "digits", parts, run).record()

    trained = made("softmax").result["cells"]
    assert [(cell["partition"], cell["seed"]) for cell in trained] == [
        ("iid", 1), ("dirichlet:0.3", 1), ("iid", 2), ("dirichlet:0.3", 2),
    ]  # fmt: skip
    assert set(trained[0]["found"]) == {*learning_jobs.ALGORITHMS, "gossip, own models"}
    # The smaller step does not learn in so few updates.
    assert trained[0]["found"]["central"]["setting"]["learning_rate"] == 0.3
    first = written(tmp_path)
    # Tuned: two settings for five algorithms on two partitions; trained with two seeds.
    assert len(first) == 20 + 20
    record = made("softmax", "attack", "steps")
    assert {name: one for name, one in written(tmp_path).items() if name in first} == first
    text = learning_page(record)
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Softmax regression", "## Local steps", "## What content gives away",
    ]  # fmt: skip
    assert learning_page(made("softmax", "attack", "steps")) == text


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
