"""Checks shared by every question: which targets, which horizon, which law, how much memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError

Nodes = Sequence[int] | IntArray | None
_FLOAT_BYTES = 8


def chosen_targets(n_nodes: int, targets: Nodes) -> IntArray:
    """Return the targets as int64, all nodes when none are named."""
    if targets is None:
        return np.arange(n_nodes)
    chosen = np.asarray(targets)
    if chosen.ndim != 1 or chosen.size == 0 or not np.issubdtype(chosen.dtype, np.integer):
        raise InvalidParameterError("targets", targets, "a sequence of one or more nodes")
    if chosen.min() < 0 or chosen.max() >= n_nodes:
        outside = int(chosen[(chosen < 0) | (chosen >= n_nodes)][0])
        raise InvalidParameterError("target", outside, f"a node, 0 to {n_nodes - 1}")
    return chosen.astype(np.int64)


def chosen_horizon(horizon: int) -> int:
    """Return ``horizon`` as an int once it is known to be a whole number, 0 or more."""
    validate.integer(0, horizon=horizon)
    return int(horizon)


def require_law(law: FloatArray, n_nodes: int) -> None:
    """Refuse a destination law of another number of nodes."""
    if law.shape != (n_nodes, n_nodes):
        raise InvalidParameterError("law", law.shape, f"a matrix of shape ({n_nodes}, {n_nodes})")


def require_memory(what: str, n_floats: int, memory_bytes: int) -> None:
    """Refuse a job of ``n_floats`` numbers that would not fit into ``memory_bytes``."""
    needed = n_floats * _FLOAT_BYTES
    if needed > memory_bytes:
        raise ResourceLimitError(
            f"{what} need {needed} bytes, memory_bytes = {memory_bytes}: ask for fewer targets or allow more"
        )
