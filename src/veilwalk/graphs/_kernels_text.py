"""The compiled reader of edge lists of whole numbers; import it where it is used, as ``_kernels``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from veilwalk.core.arrays import IntArray
from veilwalk.engine import njit

_NEWLINE, _HASH, _PERCENT, _ZERO, _NINE, _BRACE = 10, 35, 37, 48, 57, 123
_SEPARATORS = (32, 9, 44, 59, 13)  # blank, tab, comma, semicolon, carriage return
_MAX_DIGITS = 18


@njit(cache=True)
def _number_at(text: npt.NDArray[np.uint8], at: int) -> tuple[int, int, bool]:
    """Return the whole number that begins ``at``, where it ends, and whether it is one that fits."""
    first, value = at, 0
    while at < len(text) and _ZERO <= text[at] <= _NINE:
        value = 10 * value + (text[at] - _ZERO)
        at += 1
    ended = at == len(text) or text[at] == _NEWLINE or text[at] in _SEPARATORS
    # Digits behind a zero are somebody's code: 007 is not 7.
    padded = at - first > 1 and text[first] == _ZERO
    return value, at, ended and not padded and 0 < at - first <= _MAX_DIGITS


@njit(cache=True)
def parse_pairs(text: npt.NDArray[np.uint8], out: IntArray) -> tuple[int, int, int]:
    """Read the two different whole numbers that begin each line into ``out``.

    Returns how many lines were read, how many columns each has, and where the first line begins that is not
    like this or has another number of columns; -1 when there is none.
    """
    size, columns, at = 0, 0, 0
    while at < len(text):
        start, column = at, 0
        while at < len(text) and text[at] != _NEWLINE:
            char = text[at]
            if char in _SEPARATORS:
                at += 1
                continue
            if column < 2 and not (column == 0 and char in (_HASH, _PERCENT)):
                value, at, fits = _number_at(text, at)
                if not fits:
                    return size, columns, start
                out[size, column] = value
                column += 1
                continue
            # A comment and the attributes that NetworkX writes go to the end of the line.
            whole_line = column == 0 or char == _BRACE
            while at < len(text) and text[at] != _NEWLINE and (whole_line or text[at] not in _SEPARATORS):
                at += 1
            column += column > 0
        at += 1
        if column == 0:
            continue
        columns = columns or column
        if column < 2 or column != columns or out[size, 0] == out[size, 1]:
            return size, columns, start
        size += 1
    return size, columns, -1
