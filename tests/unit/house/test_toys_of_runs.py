"""A toy flag, a toy learner and a toy privacy mechanism: what stands here for each is all that had to be written.

A flag is one field of a part of the run. A learner is one class and one entry. A mechanism is one class beside
``Protection``, and in the request that settles it its flag and one line. Reference pages are then generated.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
import typer
from tools.pages import cli as pages
from typer.testing import CliRunner

from veilwalk.cli._options import format_settings, merge_settings, take_options
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.options import option
from veilwalk.learning import (
    LEARNERS,
    Learner,
    Params,
    Protection,
    ProtectionRequest,
    RunSize,
    SoftmaxLearner,
    StepContext,
    UpdateMod,
    UpdateResult,
    make_learner,
)
from veilwalk.node.members import RunFigures
from veilwalk.training import TRAIN, RunSpec, Scenario, View, make_spec, run_training

SMALL: Mapping[str, Any] = {
    "graph": "rrg:12:3:seed=1", "law": "uniform-node", "support": "2:3", "updates": 3, "attack": 0,
    "compare": "none", "audit": "none", "learner": "softmax:learning_rate=0.5",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ToyChecks(type(RunSpec().checks)):  # type: ignore[misc]
    """The checks of a run with one more option."""

    patrols: int = option(3, "Walks that patrol.", "COUNT", least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrinking(Protection):
    """Multiplies every update with a factor."""

    shrink: float = 1.0

    def mod(self) -> UpdateMod:
        """Return itself."""
        return self

    def __call__(self, before: Params, result: UpdateResult, ctx: StepContext) -> UpdateResult:  # noqa: ARG002
        """Return the update, smaller."""
        factor = np.float32(self.shrink)
        return replace(
            result, params={name: before[name] + factor * (result.params[name] - before[name]) for name in before}
        )


@dataclass(frozen=True, kw_only=True)
class ShrinkRequest(ProtectionRequest):
    """The request that settles it, with its flag."""

    shrink: float = option(1.0, "Factor of every update.", "FACTOR")

    def settle(self, learner: Learner, size: RunSize) -> Protection:  # noqa: ARG002
        """Return the mechanism."""
        return Shrinking(shrink=self.shrink)


TOYS = View(defaults=RunSpec(checks=ToyChecks(), privacy=ShrinkRequest()), left_out=TRAIN.left_out)


def test_a_toy_flag_is_in_help_files_records_and_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its field alone; a value below its least number is refused by name."""
    app, specs = typer.Typer(), []

    @app.command()
    @take_options(TOYS)
    def train(**values: Any) -> None:
        specs.append(TOYS.read(merge_settings(TOYS, None, [], values)))

    assert CliRunner().invoke(app, ["--patrols", "5", "--updates", "9"]).exit_code == 0
    (spec,) = specs
    assert (spec.options["patrols"].default, spec.end.updates) == (5, 9)
    assert "Walks that patrol." in CliRunner().invoke(app, ["--help"], terminal_width=200).output
    assert "\n# Walks that patrol.\npatrols = 5\n" in format_settings(TOYS, {"patrols": 5})
    assert "patrols = 5\n" in spec.to_toml(TOYS)
    assert spec.params(TOYS)["patrols"] == 5
    assert TOYS.read(spec.params(TOYS)) == spec
    assert spec.digest != TOYS.read({"updates": 9}).digest
    monkeypatch.setattr(pages, "TRAIN", TOYS)
    assert "- `--patrols` [3]: Walks that patrol.\n" in pages.settings_list()
    with pytest.raises(InvalidParameterError) as refused:
        TOYS.read({"patrols": 0})
    assert refused.value.name == "patrols"


def test_a_toy_learner_is_one_class_and_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options, training and record know it by its name; a class of one's own needs no entry."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Eager(SoftmaxLearner):
        """A softmax that takes larger steps."""

        learning_rate: float = 3.0

    monkeypatch.setattr(sys.modules[make_learner.__module__], "LEARNERS", {**LEARNERS, "eager": Eager})
    spec = make_spec(**SMALL).change(learner="eager:batch_size=8")
    run = run_training(Scenario.from_spec(spec))
    assert run.record().params["learner"] == "eager:batch_size=8"
    assert run.scenario.learner == Eager(n_features=64, n_classes=10, batch_size=8)
    assert np.abs(run.model["weight"]).max() > 0


def test_a_toy_mechanism_is_one_class_and_one_flag() -> None:
    """The run is trained by it, and the record says it. A factor of 1 is the named mutant."""
    runs = {
        factor: run_training(Scenario.from_spec(TOYS.read({**SMALL, "updates": 1, "shrink": factor})))
        for factor in (1.0, 0.25)
    }
    assert runs[0.25].model["weight"] == pytest.approx(0.25 * runs[1.0].model["weight"])
    assert np.abs(runs[1.0].model["weight"]).max() > 1e-3
    assert isinstance(runs[0.25].scenario.protection, Shrinking)
    assert runs[0.25].record().params["shrink"] == 0.25


def test_every_number_of_a_mechanism_is_a_figure_of_a_run_of_nodes() -> None:
    """By the same name: a field of both is all that a further number needs to come to every node."""
    assert (
        {"clip", "noise", "rows", "decay"}
        < set(Protection.list_figures())
        <= {item.name for item in fields(RunFigures)}
    )
