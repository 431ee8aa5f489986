"""Draws given beforehand, for playing the same walk twice; and laws of given shares."""

from __future__ import annotations

from collections.abc import Iterable

from veilwalk.core.errors import InvalidParameterError
from veilwalk.node.peer import OsDraws


class RecordedDraws(OsDraws):
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
