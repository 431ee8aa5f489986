"""Prepares data before they are dealt out: options in any spec, ``:only=``, ``:pool=`` and ``:scale=``."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np

from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import Array, Partition
from veilwalk.learning._data import Data
from veilwalk.learning._scaling import SCALES, scale_data

_OPTION = re.compile(r":(only|pool|scale)=([^:]*)(?=:|$)")


def take_options(spec: str) -> tuple[str, list[tuple[str, str]]]:
    """Return a spec without these options, and the options in the order given."""
    return _OPTION.sub("", spec), [(match[1], match[2]) for match in _OPTION.finditer(spec)]


def take_scale(spec: str, options: list[tuple[str, str]]) -> str | None:
    """Return the scaling that options ask for, if any; refuse an unknown one, and two.

    Raises:
        InvalidParameterError: It is not one of :data:`SCALES`.
    """
    kinds = [value for key, value in options if key == "scale"]
    if len(kinds) > 1 or any(kind not in SCALES for kind in kinds):
        need = f"with one scale=, of {', '.join(SCALES)} (not {' and '.join(map(repr, kinds))})"
        raise InvalidParameterError("data", spec, need)
    return kinds[0] if kinds else None


def prepare_data(data: Data, options: list[tuple[str, str]], spec: str) -> Data:
    """Return data after each option in turn; scaling comes last, wherever it is said.

    ``only=A,B``
        Rows of these classes alone, numbered anew in the order of their names.
    ``pool=P``
        Square images made smaller: the mean of every P x P block of pixels.
    ``scale=none``, ``scale=range``, ``scale=rows``
        As :func:`scale_data` says. Rows at length one bound the slope of a row.
    """
    scale = take_scale(spec, options)
    for key, value in options:
        if key == "only":
            data = _only(data, [part.strip() for part in value.split(",")], spec)
        elif key == "pool":
            train, test = (
                Partition(pool_images(part.features, value, spec), part.labels) for part in (data.train, data.test)
            )
            data = replace(data, train=train, test=test)
    return data if scale is None else scale_data(data, scale)


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


def pool_images(rows: Array, value: str, spec: str) -> Array:
    """Return square images made smaller: the mean of every block of ``value`` x ``value`` pixels."""
    side, block = math.isqrt(rows.shape[1]), int(value) if value.isdecimal() else 0
    if side**2 != rows.shape[1] or not block or side % block:
        raise InvalidParameterError("data", spec, f"pool= with a divisor of the side of square images, here {side}")
    cells = side // block
    blocks = rows.reshape(len(rows), cells, block, cells, block).mean(axis=(2, 4), dtype=np.float32)
    return np.ascontiguousarray(blocks.reshape(len(rows), cells**2))
