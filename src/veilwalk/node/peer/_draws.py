"""Where a node's secret choices come from: the operating system, and nothing that could be seeded.

The generators of :mod:`veilwalk.core.randomness` are another type on purpose: a node cannot be given one by mistake.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable
from typing import Protocol

from veilwalk.core.errors import InvalidParameterError


class Draws(Protocol):
    """A source of the two kinds of draws a node makes."""

    def below(self, count: int) -> int:
        """Return a whole number from 0 to ``count`` - 1, each as likely."""
        ...

    def unit(self) -> float:
        """Return a number from 0 to 1, 1 excluded, with 53 random bits."""
        ...


class OsDraws:
    """Draws from the operating system's source."""

    def below(self, count: int) -> int:
        """Return a whole number from 0 to ``count`` - 1, each as likely."""
        return secrets.randbelow(count)

    def unit(self) -> float:
        """Return a number from 0 to 1, 1 excluded, with 53 random bits."""
        return math.ldexp(secrets.randbits(53), -53)


class RecordedDraws:
    """Draws given beforehand, for playing the same walk twice; a demand that was not recorded is refused."""

    def __init__(self, draws: Iterable[int | float]) -> None:
        self._draws = iter(draws)

    def below(self, count: int) -> int:
        """Return the next draw, which must be a whole number below ``count``."""
        draw = self._next()
        if not isinstance(draw, int) or not 0 <= draw < count:
            raise InvalidParameterError("recorded draw", draw, f"a whole number below {count}")
        return draw

    def unit(self) -> float:
        """Return the next draw, which must be a number from 0 to 1."""
        draw = self._next()
        if not isinstance(draw, float) or not 0 <= draw < 1:
            raise InvalidParameterError("recorded draw", draw, "a number from 0 to 1")
        return draw

    def _next(self) -> int | float:
        try:
            return next(self._draws)
        except StopIteration:
            raise InvalidParameterError("recorded draw", None, "one more") from None
