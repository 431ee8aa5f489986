"""Membership inference: does a model tell the rows that its maker trained on from rows that nobody trained on?

    python -m examples.comparisons.membership examples/comparisons/zip-dl.toml [MODELS] [OWNER]

The threshold attack of Zip-DL and of many others. The attacker holds a model that a node has just made, and asks for
the loss of rows: of that node's, and of rows held out. It attacks the last MODELS (100) models of every algorithm of
every case of a sweep. OWNER is the feature that says whose row it is (0, the user of a rating): then rows held out are
of the same owners, so that a hard user does not pass for one that was not trained on.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from veilwalk.audit import estimate_over_lanes
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.experiments import SweepPlan
from veilwalk.learning import Learner, Params, Partition, TrainingTask, TrainingTrace, guarded, is_finite, train
from veilwalk.training import TRAIN, Scenario

# Rows held out that a model is asked about, at most: more would not show in the last digit.
_ROWS = 4_000
# Runs of consecutive updates, whose means the interval is from.
_BLOCKS = 20


def infer_membership(
    scenario: Scenario, trace: TrainingTrace, count: int, *, task: TrainingTask, owner: int | None = None
) -> dict[str, Any] | None:
    """Train ``task`` along ``trace`` and attack the models that its last ``count`` updates make.

    Returns:
        The mean area under the curve with its 95% interval, and over how many updates; None of a trace that hands no
        models on, or where no maker has rows of both kinds.
    """
    if trace.algorithm == "central" or not len(trace):
        return None
    learner = guarded(scenario.protection.learner(scenario.learner))
    areas: list[float] = []
    held_out: dict[int, Partition] = {}

    def attack_model(row: int, received: Params, sent: Params) -> None:
        del received
        node = int(trace.node[row])
        rows = scenario.partitions[node]
        # A model that was spoilt beyond numbers says nothing of rows.
        if row < len(trace) - count or not len(rows) or not is_finite(sent):
            return
        if node not in held_out:
            held_out[node] = _select_rows(scenario.data.test, rows, owner)
        if len(held_out[node]):
            areas.append(threshold_auc(*(row_losses(learner, sent, part) for part in (rows, held_out[node]))))

    train(task, trace, evaluations=1, observe=attack_model)
    if not areas:
        return None
    blocks = np.arange(len(areas)) * min(_BLOCKS, len(areas)) // len(areas)
    mean = estimate_over_lanes(np.array(areas), blocks, share=True)
    return {"auc": mean.mean, "auc_interval": [mean.low, mean.high], "updates": len(areas)}


def _select_rows(held_out: Partition, rows: Partition, owner: int | None) -> Partition:
    """Return rows that nobody trained on, of the same owners where rows have any."""
    numbers = np.arange(len(held_out))
    if owner is not None:
        numbers = np.flatnonzero(np.isin(held_out.features[:, owner], rows.features[:, owner]))
    numbers = numbers[:: -(-len(numbers) // _ROWS) or 1]
    return Partition(held_out.features[numbers], held_out.labels[numbers])


def row_losses(learner: Learner, params: Params, data: Partition) -> FloatArray:
    """Return the loss of every row of ``data``; a learner without ``example_losses`` is asked row by row."""
    if callable(ask := getattr(learner, "example_losses", None)):
        return np.asarray(ask(params, data))
    rows = (Partition(data.features[row : row + 1], data.labels[row : row + 1]) for row in range(len(data)))
    return np.array([learner.evaluate(params, row)["loss"] for row in rows])


def threshold_auc(members: FloatArray, others: FloatArray) -> float:
    """Return how often a row that was trained on has a lower loss than one that was not; ties count half.

    The area under the curve of all thresholds on the loss: a half tells nothing, one tells all.
    """
    if not len(members) or not len(others):
        raise InvalidParameterError("rows", min(len(members), len(others)), "at least one of each kind")
    ranks = stats.rankdata(np.concatenate((members, others)))[: len(members)]
    below = ranks.sum() - len(members) * (len(members) + 1) / 2
    return float(1 - below / (len(members) * len(others)))


def main(file: str, models: str = "100", owner: str = "") -> None:
    """Attack every case of a sweep, and print a line for each algorithm."""
    for number, job in enumerate(SweepPlan.read(Path(file)).jobs()):
        scenario = Scenario.from_spec(TRAIN.read(job))
        for name in scenario.spec.algorithms:
            trace, task = scenario.trace(name), scenario.task(name)
            attack = infer_membership(scenario, trace, int(models), task=task, owner=int(owner) if owner else None)
            if attack is not None:
                print(f"case {number}, {name}: area {attack['auc']:.3f} {attack['auc_interval']}, {attack['updates']}")


if __name__ == "__main__":
    main(*sys.argv[1:4])
