"""Checks that turn bad input into one clear line.

Each takes the parameter as a keyword, so that the message carries the caller's own name for it:
``at_least(3, degree=degree)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

from veilwalk.core.errors import InvalidParameterError


def instance(kind: type | tuple[type, ...], need: str, **named: object) -> None:
    """Refuse what is not of ``kind``."""
    for name, value in named.items():
        if not isinstance(value, kind):
            raise InvalidParameterError(name, value, need)


def options(kind: Any, given: Mapping[str, object]) -> None:
    """Refuse options that the dataclass ``kind`` has no field for, and name those that it has, the nearest alone."""
    names = [field.name for field in fields(kind)]
    for name, value in given.items():
        if name not in names:
            known = get_close_matches(name, names, n=1) or names
            raise InvalidParameterError(name, value, f"left out, or another option: {', '.join(known)}")


def integer(**named: object) -> None:
    """Refuse what is not a whole number (booleans included)."""
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise InvalidParameterError(name, value, "a whole number")


def at_least(low: float, **named: float) -> None:
    """Refuse numbers below ``low``, and NaN."""
    instance(Real, "a number", **named)
    for name, value in named.items():
        # "not >=" rather than "<": NaN must not slip through.
        if not value >= low:
            raise InvalidParameterError(name, value, f">= {low}")


def more_than(low: float, **named: float) -> None:
    """Refuse numbers at or below ``low``, and NaN."""
    instance(Real, "a number", **named)
    for name, value in named.items():
        if not value > low:
            raise InvalidParameterError(name, value, f"> {low}")


def finite(**named: float) -> None:
    """Refuse infinities and NaN."""
    instance(Real, "a number", **named)
    for name, value in named.items():
        if not math.isfinite(value):
            raise InvalidParameterError(name, value, "a finite number")


def probability(**named: float) -> None:
    """Refuse what is not strictly between 0 and 1."""
    instance(Real, "a number", **named)
    for name, value in named.items():
        if not 0.0 < value < 1.0:
            raise InvalidParameterError(name, value, "between 0 and 1, both excluded")
