"""Membership inference by a threshold on the loss: was this row trained on? The weakest attack worth its name.

Rows that a model has learnt have a smaller loss. The area under the curve is the probability that a row trained on has
a smaller loss than one that was not: a half where nothing leaks, one where everything does. Stronger attacks train
models of their own; a small area here promises nothing, which is what epsilon is for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import Learner, Params, Partition
from veilwalk.learning._content import RowScorer

_FEWEST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """What a threshold on the loss tells of who was trained on.

    Attributes:
        auc: Area under the curve of its hits over its false alarms.
        low: Lower end of its 95% interval (DeLong).
        high: Upper end.
    """

    auc: float
    low: float
    high: float


def membership_inference(learner: Learner, params: Params, members: Partition, others: Partition) -> Membership:
    """Attack a model with rows it was trained on, and rows of the same kind that it was not."""
    for name, rows in (("members", members), ("others", others)):
        if len(rows) < _FEWEST:
            raise InvalidParameterError(name, len(rows), f"at least {_FEWEST} rows")
    inside, outside = (_losses(learner, params, rows) for rows in (members, others))
    count, rest = len(inside), len(outside)
    ranks = stats.rankdata(np.concatenate((-inside, -outside)))
    # The share of the others that each member is below, and of the members that each of the others is above.
    below = (ranks[:count] - stats.rankdata(-inside)) / rest
    above = 1 - (ranks[count:] - stats.rankdata(-outside)) / count
    auc = float(below.mean())
    half = float(special.ndtri(0.975)) * math.sqrt(below.var(ddof=1) / count + above.var(ddof=1) / rest)
    return Membership(auc=auc, low=max(auc - half, 0.0), high=min(auc + half, 1.0))


def _losses(learner: Learner, params: Params, rows: Partition) -> FloatArray:
    if isinstance(learner, RowScorer):
        return learner.example_losses(params, rows)
    single = (Partition(rows.features[i : i + 1], rows.labels[i : i + 1]) for i in range(len(rows)))
    return np.array([learner.evaluate(params, row)["loss"] for row in single])
