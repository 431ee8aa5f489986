"""The content of an update as evidence: how well a received model fits each candidate's data.

Anonymous routing does not hide what an update says. Whoever holds data like the candidates' can ask whose data the
model has just learnt from: the lower the loss, the likelier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from veilwalk.core.arrays import FloatArray
from veilwalk.learning._api import Learner, Params, Partition
from veilwalk.learning._partition import Partitions

#: Told how many candidates have been tried since it was last told.
Tried = Callable[[int], None]


def silent(count: int) -> None:
    """Tell nobody."""


@runtime_checkable
class RowScorer(Protocol):
    """A learner that can say the loss of every row at once."""

    def example_losses(self, params: Params, data: Partition) -> FloatArray:
        """Return the loss of every row, in nats."""
        ...


def row_losses(learner: Learner, params: Params, data: Partition) -> FloatArray:
    """Return the loss of every row of ``data``; a learner without ``example_losses`` is asked row by row."""
    if isinstance(learner, RowScorer):
        return learner.example_losses(params, data)
    rows = (Partition(data.features[row : row + 1], data.labels[row : row + 1]) for row in range(len(data)))
    return np.array([learner.evaluate(params, row)["loss"] for row in rows])


def candidate_losses(
    learner: Learner, params: Params, partitions: Sequence[Partition], *, tried: Tried = silent
) -> FloatArray:
    """Return the mean loss (nats) of ``params`` on the data of each candidate; NaN for one without data.

    A learner with ``example_losses`` scores all rows in one pass (for the softmax, one matrix product); any other is
    asked candidate by candidate. Give :class:`Partitions` where many models are scored: other sequences are put
    side by side first.
    """
    if not isinstance(learner, RowScorer):
        return np.array([learner.evaluate(params, part)["loss"] if len(part) else np.nan for part in partitions])
    stacked = partitions if isinstance(partitions, Partitions) else Partitions.of_parts(partitions)
    sums = np.concatenate(([0.0], np.cumsum(learner.example_losses(params, stacked.rows))))
    totals, sizes = np.diff(sums[stacked.starts]), stacked.sizes
    losses = np.full(len(sizes), np.nan)
    np.divide(totals, sizes, out=losses, where=sizes > 0)
    tried(len(sizes))
    return losses
