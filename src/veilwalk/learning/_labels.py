"""Labels: classes by number or name, or real numbers to be fitted (regression)."""

from __future__ import annotations

import numpy as np

from veilwalk.core.errors import InputFileError
from veilwalk.learning._api import Array

# More different labels than this, and than half the rows, are no classes but ids or amounts.
_MANY_CLASSES = 20
#: Whole numbers above are not told apart by a double.
WHOLE = 2.0**53
_NEED = "whole numbers or names for classes, or real numbers for regression"


def is_real(labels: Array) -> bool:
    """Return whether labels are real numbers, to be fitted, rather than classes."""
    return bool(labels.dtype.kind == "f")


def checked_labels(name: str, labels: Array) -> Array:
    """Return labels as text, as int64 where all are whole or, for regression, as float32; refuse what is neither."""
    kind = labels.dtype.kind
    if kind not in "biufUS":
        raise InputFileError(f"{name}: labels are missing or of type {labels.dtype}: need {_NEED}")
    text = labels.astype(np.str_) if kind in "US" else None
    missing = ~np.isfinite(labels) if text is None else text == ""
    if missing.any():
        raise InputFileError(f"{name}: the label of row {int(missing.argmax())} is missing: need {_NEED}")
    if text is not None:
        return text
    whole = kind != "f" or bool(np.all(labels == np.floor(labels)) and np.abs(labels).max() < WHOLE)
    return labels.astype(np.int64 if whole else np.float32)


def as_classes(name: str, train: Array, test: Array) -> tuple[Array, Array, tuple[str, ...]]:
    """Number the classes of checked labels from 0 in sorted order, and return their names; none where labels are real.

    Labels that already run from 0 without a gap stay what they are.
    """
    if is_real(train) or is_real(test):
        if "U" in train.dtype.kind + test.dtype.kind:
            raise InputFileError(f"{name}: labels are names in one part and real numbers in the other")
        return train.astype(np.float32), test.astype(np.float32), ()
    values, numbers = np.unique(np.concatenate((train, test)), return_inverse=True)
    if len(values) > max(_MANY_CLASSES, len(numbers) // 2):
        raise InputFileError(
            f"{name}: labels have {len(values)} different values in {len(numbers)} rows: need fewer for classes; "
            f"for regression, real numbers or a column given as target="
        )
    numbers = numbers.astype(np.int64)
    return numbers[: len(train)], numbers[len(train) :], tuple(str(value) for value in values)
