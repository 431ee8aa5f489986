"""Array types used in every signature."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.integer[Any]]
BoolArray = npt.NDArray[np.bool_]
_Array = TypeVar("_Array", bound=npt.NDArray[Any])


def normalised(weights: FloatArray) -> FloatArray:
    """Return ``weights`` scaled to sum to one along the last axis."""
    total: FloatArray = weights.sum(axis=-1, keepdims=True)
    return weights / total


def frozen(array: _Array) -> _Array:
    """Return ``array`` made read-only, so that a value built on it cannot change."""
    array.setflags(write=False)
    return array
