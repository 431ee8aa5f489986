"""Checks that turn bad input into one clear line.

Each takes the parameter as a keyword, so that the message carries the caller's own name for it:
``at_least(3, degree=degree)``.
"""

from __future__ import annotations

import math
from numbers import Integral

from veilwalk.core.errors import InvalidParameterError


def integer(**named: object) -> None:
    """Refuse what is not a whole number (booleans included)."""
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise InvalidParameterError(name, value, "a whole number")


def at_least(low: float, **named: float) -> None:
    """Refuse numbers below ``low``, and NaN."""
    for name, value in named.items():
        # "not >=" rather than "<": NaN must not slip through.
        if not value >= low:
            raise InvalidParameterError(name, value, f">= {low}")


def more_than(low: float, **named: float) -> None:
    """Refuse numbers at or below ``low``, and NaN."""
    for name, value in named.items():
        if not value > low:
            raise InvalidParameterError(name, value, f"> {low}")


def finite(**named: float) -> None:
    """Refuse infinities and NaN."""
    for name, value in named.items():
        if not math.isfinite(value):
            raise InvalidParameterError(name, value, "a finite number")


def probability(**named: float) -> None:
    """Refuse what is not strictly between 0 and 1."""
    for name, value in named.items():
        if not 0.0 < value < 1.0:
            raise InvalidParameterError(name, value, "between 0 and 1, both excluded")
