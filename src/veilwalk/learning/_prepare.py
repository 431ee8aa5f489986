"""What is done to data before they are dealt out: options behind any spec, ``:only=``, ``:pool=`` and ``:scale=``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import Array, Partition
from veilwalk.learning._data import Data

_OPTION = re.compile(r":(only|pool|scale)=([^:]*)$")


def take_options(spec: str) -> tuple[str, list[tuple[str, str]]]:
    """Return a spec without the options at its end, and these in the order given."""
    options: list[tuple[str, str]] = []
    while match := _OPTION.search(spec):
        options.insert(0, (match[1], match[2]))
        spec = spec[: match.start()]
    return spec, options


def prepared(data: Data, options: list[tuple[str, str]], spec: str) -> Data:
    """Return data after each option in turn.

    ``only=A,B``
        Rows of these classes alone, numbered anew in the order of their names.
    ``pool=P``
        Square images made smaller: the mean of every P x P block of pixels.
    ``scale=rows``
        Features less their mean over their standard deviation in the training part, then every row at length one: what
        bounds the slope of a row.
    """
    for key, value in options:
        if key == "only":
            data = _only(data, [part.strip() for part in value.split(",")], spec)
        elif key == "pool":
            data = _each(data, partial(_pooled, value=value, spec=spec))
        elif value != "rows":
            raise InvalidParameterError("data", spec, f"scale=rows (not {value!r})")
        else:
            mean, width = data.train.features.mean(axis=0), data.train.features.std(axis=0)
            width = np.where(width > 0, width, 1)
            data = _each(data, partial(_standard, mean=mean, width=width))
    return data


def _each(data: Data, change: Callable[[Array], Array]) -> Data:
    # What the range of features was says nothing of what they are now.
    train, test = (Partition(change(part.features), part.labels) for part in (data.train, data.test))
    return replace(data, train=train, test=test, feature_range=None)


def _only(data: Data, names: list[str], spec: str) -> Data:
    known = data.class_names
    unknown = [name for name in names if name not in known]
    if unknown or len(set(names)) < 2:
        need = f"only= with two or more of the classes {', '.join(known) or '(there are none)'}"
        raise InvalidParameterError("data", spec, need)
    kept = [number for number, name in enumerate(known) if name in names]
    number_of = np.full(len(known), -1)
    number_of[kept] = np.arange(len(kept))
    parts, columns = [], {}
    for part in (data.train, data.test):
        rows = np.flatnonzero(number_of[part.labels] >= 0)
        parts.append(Partition(part.features[rows], number_of[part.labels[rows]]))
        if part is data.train:
            columns = {name: column[rows] for name, column in data.columns.items()}
    return replace(data, train=parts[0], test=parts[1], columns=columns, class_names=tuple(known[k] for k in kept))


def _pooled(rows: Array, value: str, spec: str) -> Array:
    side, block = math.isqrt(rows.shape[1]), int(value) if value.isdecimal() else 0
    if side**2 != rows.shape[1] or not block or side % block:
        raise InvalidParameterError("data", spec, f"pool= with a divisor of the side of square images, here {side}")
    cells = side // block
    blocks = rows.reshape(len(rows), cells, block, cells, block).mean(axis=(2, 4), dtype=np.float32)
    return np.ascontiguousarray(blocks.reshape(len(rows), cells**2))


def _standard(rows: Array, mean: Array, width: Array) -> Array:
    rows = (rows - mean) / width
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(length > 0, length, 1), dtype=np.float32)
