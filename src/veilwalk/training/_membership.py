"""Membership inference on the models of a run: can who gets one tell the rows its maker trained on from others?

The threshold attack of Zip-DL and of many others. Whoever holds a model that a node has just made asks for the loss of
rows: of that node's, and of rows held out that nobody trained on. Where rows have owners (the users of ratings), those
held out are of the same owners, so that a hard user does not pass for one that was not trained on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from veilwalk.audit import estimate
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, silent
from veilwalk.learning import (
    Params,
    Partition,
    TrainingTask,
    TrainingTrace,
    guarded,
    is_finite,
    row_losses,
    train,
)
from veilwalk.training._scenario import Scenario

# Rows held out that a model is asked about, at most: more would not show in the last digit.
_ROWS = 4_000
# Runs of consecutive updates, whose means the interval is from.
_BLOCKS = 20


def membership(
    scenario: Scenario, trace: TrainingTrace, count: int, *, task: TrainingTask, progress: Progress = silent
) -> dict[str, Any] | None:
    """Train ``task`` along ``trace`` once more, and attack the models that its last ``count`` updates made.

    Returns:
        The mean area under the curve with its 95% interval, and over how many updates; None of a trace that hands no
        models on, or where no maker has rows of both kinds.
    """
    if trace.algorithm == "central" or not len(trace):
        return None
    watch = _Watch(scenario, trace, count, progress)
    train(task, trace, evaluations=1, observe=watch.see)
    if not watch.found:
        return None
    blocks = np.arange(len(watch.found)) * min(_BLOCKS, len(watch.found)) // len(watch.found)
    mean = estimate(np.array(watch.found), blocks, share=True)
    return {"auc": mean.mean, "auc_interval": [mean.low, mean.high], "updates": len(watch.found)}


class _Watch:
    """Looks at the models as they are sent on."""

    def __init__(self, scenario: Scenario, trace: TrainingTrace, count: int, progress: Progress) -> None:
        self._scenario, self._trace, self._progress = scenario, trace, progress
        self._first = max(len(trace) - count, 0)
        self._learner = guarded(scenario.learner)
        self._others: dict[int, Partition] = {}
        self.found: list[float] = []

    def see(self, row: int, received: Params, sent: Params) -> None:
        """Attack one model, of which the node that made it knows the rows."""
        del received
        if row < self._first:
            return
        node = int(self._trace.node[row])
        mine = self._scenario.partitions[node]
        if node not in self._others:
            self._others[node] = self._held_out(mine)
        others = self._others[node]
        # A model that was spoilt beyond numbers says nothing of rows.
        if not len(mine) or not len(others) or not is_finite(sent):
            return
        losses = [row_losses(self._learner, sent, part) for part in (mine, others)]
        self.found.append(threshold_auc(*losses))
        self._progress(f"membership, {self._trace.algorithm}", row + 1 - self._first, len(self._trace) - self._first)

    def _held_out(self, mine: Partition) -> Partition:
        """Return rows that nobody trained on, of the same owners where rows have any."""
        held_out, owner = self._scenario.data.test, self._scenario.data.owner
        rows = np.arange(len(held_out))
        if owner is not None:
            rows = np.flatnonzero(np.isin(held_out.features[:, owner], mine.features[:, owner]))
        rows = rows[:: -(-len(rows) // _ROWS) or 1]
        return Partition(held_out.features[rows], held_out.labels[rows])


def threshold_auc(members: FloatArray, others: FloatArray) -> float:
    """Return how often a row that was trained on has a lower loss than one that was not; ties count half.

    The area under the curve of all thresholds on the loss: a half tells nothing, one tells all.

    Example:
        >>> threshold_auc(np.array([0.1, 0.2]), np.array([0.2, 0.9]))
        0.875
    """
    if not len(members) or not len(others):
        raise InvalidParameterError("rows", min(len(members), len(others)), "at least one of each kind")
    ranks = stats.rankdata(np.concatenate((members, others)))[: len(members)]
    below = ranks.sum() - len(members) * (len(members) + 1) / 2
    return float(1 - below / (len(members) * len(others)))
