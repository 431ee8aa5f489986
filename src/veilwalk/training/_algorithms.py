"""One algorithm of a run: its walk, its training, and what it made."""

from __future__ import annotations

from dataclasses import dataclass, replace

from veilwalk.learning import Tell, Training, TrainingTask, TrainingTrace
from veilwalk.learning import train as train_along
from veilwalk.training._folder import RunFolder
from veilwalk.training._scenario import Scenario
from veilwalk.training._settings import PAPER, PRIVATE, TrainSettings

_CHECKPOINT_S = 0.5
# Where one model is handed on, and so can be tested and spoilt.
_WALKS = (PRIVATE, PAPER, "plain-walk")


@dataclass(frozen=True, eq=False)
class Made:
    """What one algorithm made: the updates of its trace that it made, and those that its budgets allowed."""

    training: Training
    trace: TrainingTrace
    planned: TrainingTrace


def train_by(
    scenario: Scenario,
    settings: TrainSettings,
    name: str,
    *,
    folder: RunFolder | None = None,
    identity: str = "",
    tell: Tell | None = None,
) -> Made:
    """Train by one algorithm, and ask nothing about what leaks.

    Args:
        scenario: What to train, by whom, over what.
        settings: How long, by which seed.
        name: The algorithm.
        folder: Where its trace and its checkpoint are kept; nowhere without one.
        identity: Name of the run; a checkpoint of another is refused.
        tell: Told how far it is.
    """
    trace = scenario.trace(
        name,
        updates=settings.updates,
        seed=settings.seed,
        tokens=settings.tokens,
        kept=folder.trace if folder is not None else None,
    )
    training = train_along(
        task_of(scenario, settings, name),
        trace,
        stopping=settings.stopping,
        cost=settings.cost,
        evaluations=settings.evaluations,
        checkpoint=folder.checkpoint(name) if folder is not None else None,
        identity=identity,
        every_s=_CHECKPOINT_S,
        tell=tell,
    )
    return Made(training, trace.first(training.updates), trace.first(training.planned))


def task_of(scenario: Scenario, settings: TrainSettings, name: str) -> TrainingTask:
    """Return the task of an algorithm; only in walks are models tested, and spoilt."""
    task = scenario.task(name, seed=settings.seed)
    return replace(task, acceptance=settings.acceptance, poison=settings.poisoning) if name in _WALKS else task
