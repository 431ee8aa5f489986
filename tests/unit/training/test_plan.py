"""Predictions of a run: by a clock that only work moves on, so that no machine is too slow or too busy for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from veilwalk.audit import audit
from veilwalk.design import choose_scheme
from veilwalk.graphs import random_regular
from veilwalk.learning import Params, Partition, StepContext, UpdateResult
from veilwalk.training import Scenario, _route, _run, make_spec, plan_run, run_training


@dataclass
class Clock:
    """Seconds of all work so far."""

    seconds: float = 0.0

    def perf_counter(self) -> float:
        """Return the time."""
        return self.seconds


@dataclass(frozen=True)
class Timed:
    """A learner whose work takes time on a clock: so much a row, for an update and for an evaluation."""

    clock: Clock = field(repr=False)
    update_s: float
    evaluation_s: float
    load_s: float = 100.0
    is_random: bool = True

    def init_params(self, rng: np.random.Generator) -> Params:  # noqa: ARG002
        """Return some numbers."""
        return {"a": np.zeros(50, np.float32)}

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Add to them; the very first time takes long, as where a library is loaded."""
        self.clock.seconds += self.update_s * len(data) + (0.0 if self.clock.seconds else self.load_s)
        step = ctx.rng.normal(size=50) if self.is_random else np.full(50, data.features.mean())
        state = {"momentum": np.zeros(50, np.float32)}
        ctx.state.update(state)
        return UpdateResult(params={"a": params["a"] + np.float32(0.1) * step.astype(np.float32)}, num_examples=1)

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return a loss."""
        self.clock.seconds += self.evaluation_s * len(data)
        return {"loss": float(np.square(params["a"]).mean())}

    @property
    def spec(self) -> str:
        """Its name."""
        return "timed"


def build(learner: Any, **options: Any) -> Scenario:
    scheme = choose_scheme(random_regular(20, 3, seed=1), "uniform-node", support="2:3")
    rng = np.random.default_rng(0)
    rows = rng.random((400, 3)), rng.integers(2, size=400)
    spec = make_spec(**{"updates": 150, "audit": "none", "compare": "plain-walk,gossip,central"} | options)
    return Scenario.build(scheme, spec, data=rows, partition="dirichlet:0.5", learner=learner)


@pytest.mark.parametrize("update_s", [1e-5, 0.01, 1.0])
@pytest.mark.parametrize("is_random", [True, False])
@pytest.mark.parametrize("attack", [0, 60])
def test_finding_a2_a_prediction_is_within_a_factor_of_two(
    update_s: float, attack: int, *, is_random: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of fast and of slow learners, with the attack and without it; what is loaded once is not counted as an update."""
    clock = Clock()
    monkeypatch.setattr(_run, "time", SimpleNamespace(perf_counter=clock.perf_counter))
    monkeypatch.setattr(_run, "_SCORING_S", 0.0)
    scenario = build(Timed(clock, update_s, update_s / 4, is_random=is_random), attack=attack)
    plan = plan_run(scenario)
    assert (plan.attack_s > 0) == bool(attack)
    before = clock.seconds
    run_training(scenario)
    assert 0.5 < plan.total_s / (clock.seconds - before) < 2


def test_each_algorithm_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Central training updates on the rows of all: here some twenty times as many."""
    clock = Clock()
    monkeypatch.setattr(_run, "time", SimpleNamespace(perf_counter=clock.perf_counter))
    plan = plan_run(build(Timed(clock, 0.01, 0.0), attack=0))
    assert plan.training_s["central"] == pytest.approx(150 * 0.01 * 320)
    assert plan.training_s["private-walk"] < plan.training_s["central"] / 8
    assert list(plan.training_s) == ["private-walk", "plain-walk", "gossip", "central"]


def test_without_a_trial_nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are known all the same; what a learner keeps is known after one update."""
    clock = Clock()
    monkeypatch.setattr(_run, "time", SimpleNamespace(perf_counter=clock.perf_counter))
    scenario = build(Timed(clock, 1.0, 1.0, load_s=0.0), attack=60)
    plan = plan_run(scenario, trial=False)
    assert (clock.seconds, plan.total_s, plan.model_bytes, plan.state_bytes) == (0.0, 0.0, 200, 0)
    kept = plan_run(scenario, times=False)
    assert 0 < clock.seconds < 40
    assert (kept.total_s, kept.state_bytes) == (0.0, 200)
    assert kept.checkpoint_bytes["gossip"] == 20 * 400
    assert kept.total_bytes > plan.total_bytes


def test_a_route_is_predicted_until_it_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates and exact results are stored by scheme, the paper's as well; without an audit there is none."""
    monkeypatch.setattr(_route, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(
        _route, "audit", lambda scheme, settings, **options: audit(scheme, replace(settings, updates=500), **options)
    )
    settings = {"attack": 0, "compare": "none", "updates": 20, "graph": "rrg:20:3:seed=1", "walk": "non-backtracking"}
    several = Scenario.from_spec(make_spec(**settings, law="far:2", recipients=3))
    assert plan_run(several).route_s > 0
    assert plan_run(several.change(audit="none")).route_s == 0
    run_training(several)
    assert plan_run(several).route_s == 0
    single = Scenario.from_spec(make_spec(**settings, law="far:2", recipients=1))
    before = plan_run(single).route_s
    run_training(single)
    after, compared = (plan_run(one).route_s for one in (single, single.change(compare="paper-walk")))
    assert min(before, compared) > after == 0
