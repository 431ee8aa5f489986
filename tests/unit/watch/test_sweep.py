"""The page of a sweep."""

from __future__ import annotations

from pathlib import Path

from veilwalk.engine import JobStore
from veilwalk.experiments import SweepPlan, sweep
from veilwalk.watch import open_source


def test_a_page_of_a_sweep_has_its_finished_cases(tmp_path: Path) -> None:
    """As they come: the numbers are those of the summary, with their intervals."""
    fixed = {"graph": "rrg:20:3:seed=1", "support": "2:3", "observers": "prior", "updates": 200}
    plan = SweepPlan(kind="audit", settings=fixed, grid={"law": ["uniform-node", "plain"], "seed": [1, 2]})
    plan.keep(tmp_path)
    source = open_source(tmp_path)
    assert next(iter(source.look()))["title"] == "0 of 4 cases of audit"
    found = sweep(plan, store=JobStore(tmp_path / "jobs"))
    about, told, state = source.look()
    assert about["title"] == "4 of 4 cases of audit"
    assert state["finished"]
    row = found.summary()[0]
    place = told["columns"].index("hit ratio")
    interval = f"{row['hit_ratio']:.4g} ({row['hit_ratio_low']:.4g} to {row['hit_ratio_high']:.4g})"
    assert told["rows"][0][place] == interval
    assert told["rows"][0][0] == "uniform-node"
    assert list(source.look()) == []
