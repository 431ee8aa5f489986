"""Membership inference by a threshold: was this row trained on? The lower its loss, the likelier."""

from __future__ import annotations

import numpy as np
from scipy import stats

from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError


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
