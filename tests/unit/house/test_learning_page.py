"""The page of the learning tables: hops to the target, single models, sections that a run leaves as they were."""

from __future__ import annotations

from typing import Any

import pytest
from tools.pages.learning_jobs import OwnModels
from tools.pages.learning_page import OWN_MODELS, page

from veilwalk.core.records import Record
from veilwalk.design import choose_scheme
from veilwalk.graphs import random_regular
from veilwalk.learning import load_data, train
from veilwalk.training import Scenario, make_spec

SETTING = {"learning_rate": 0.3, "local_steps": 10, "fade": 10}


def run_of(*points: tuple[int, int, float]) -> dict[str, Any]:
    """Make a run of updates, hops and accuracies."""
    made = [{"update": update, "hops": hops, "accuracy": accuracy} for update, hops, accuracy in points]
    return {"setting": SETTING, "message_bytes": 100, "points": made}


def record_of(**found: Any) -> Record:
    """Make a record of one softmax cell."""
    cell = {"kind": "train", "model": "softmax", "partition": "iid", "seed": 1, "found": found}
    params = {
        "graph": "rrg:12:3",
        "support": "2:2",
        "far": "far:2",
        "recipients": 3,
        "seeds": [1],
        "grids": {"softmax": [SETTING, {"learning_rate": 1.0, "local_steps": 1, "fade": 0}]},
        "tuning_updates": 24,
        "updates": {"softmax": 60},
    }
    return Record(kind="learning", params=params, result={"cells": [cell]})


def row(text: str, algorithm: str) -> list[str]:
    """Return the cells of an algorithm's row."""
    line = next(line for line in text.splitlines() if line.startswith(f"| iid | {algorithm} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_hops_to_the_target_lie_between_evaluations_of_a_walk_and_after_whole_rounds_of_gossip() -> None:
    """The target is 80%: half of the way from 70 to 90."""
    steps = run_of((0, 0, 0.1), (30, 300, 0.7), (60, 600, 0.9))
    rounds = run_of((0, 0, 0.1), (30, 90, 0.7), (60, 180, 0.9))
    never = run_of((0, 0, 0.1), (60, 180, 0.79))
    text = page(record_of(**{"private-walk": steps, "gossip": rounds, OWN_MODELS: never}))
    assert row(text, "private-walk")[2:7] == [
        "0.3, 10, 10",
        "90.0% [90.0%-90.0%]",
        "10.0% [10.0%-10.0%]",
        "450",
        "45 kB",
    ]
    assert row(text, "gossip")[5:] == ["180", "18 kB", "3.0", "300 B"]
    assert row(text, OWN_MODELS)[3:7] == ["79.0% [79.0%-79.0%]", "10.0% [10.0%-10.0%]", "not reached", "not reached"]


def test_sections_that_were_not_run_stay_as_they_are() -> None:
    """To the letter, in the order of the page; a section that was run is written anew."""
    kept = "\n\n## Noise\n\nkept **so**\n\n| a |\n|---|\n\n## Speed\n\ntoo\n"
    old = "# Learning\n\nOUTDATED\n\n## Softmax regression\n\nOUTDATED" + kept
    text = page(record_of(gossip=run_of((0, 0, 0.1), (60, 180, 0.9))), before=old)
    assert text.endswith(kept)
    assert "OUTDATED" not in text
    assert text == page(record_of(gossip=run_of((0, 0, 0.1), (60, 180, 0.9))), before=text)


def test_single_models_are_those_that_nodes_hold_after_each_round() -> None:
    """After r rounds of a longer run they are as accurate as at the end of a run of r rounds; before any, all alike."""
    scheme = choose_scheme(random_regular(12, 3, seed=1), "paper", support="2:2")
    data = load_data("digits", seed=3)
    scenario = Scenario.build(scheme, make_spec(seed=1), data=data, partition="dirichlet:0.3", learner="softmax")
    found = {}
    for rounds in (1, 2, 3):
        trace = scenario.change(updates=12 * rounds).trace("gossip")
        own = OwnModels(trace)
        run = train(scenario.task("gossip"), trace, observe=own.see)
        found[rounds] = own.accuracies(run, scenario)
        held = [scenario.learner.evaluate(params, data.test)["accuracy"] for params in run.models]
        assert found[rounds][-1] == pytest.approx(sum(held) / 12, rel=1e-12)
        assert found[rounds][0] == pytest.approx(run.points[0].accuracy, rel=1e-12)
    assert found[3][:2] == found[1]
    assert found[3][:3] == found[2]
