"""The range of distances a destination may be drawn from."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import InvalidParameterError

_RANGE = re.compile(r"(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class DistanceSupport:
    """Distances ``lo`` to ``hi``, both included.

    The paper keeps direct neighbours out (``lo`` at least 2): a neighbour that receives the update one hop
    later knows its source. ``allow_neighbours`` lifts that, on purpose and by name.
    """

    lo: int
    hi: int
    allow_neighbours: bool = False

    def __post_init__(self) -> None:
        validate.integer(support_lo=self.lo, support_hi=self.hi)
        least = 1 if self.allow_neighbours else 2
        if self.lo < least:
            need = ">= 1" if self.allow_neighbours else ">= 2 (direct neighbours are excluded unless allowed by name)"
            raise InvalidParameterError("support lo", self.lo, need)
        if self.hi < self.lo:
            raise InvalidParameterError("support", f"{self.lo}:{self.hi}", "LO:HI with LO <= HI")

    @classmethod
    def parse(cls, text: str, *, allow_neighbours: bool = False) -> DistanceSupport:
        """Read ``LO:HI``."""
        match = _RANGE.fullmatch(text.strip())
        if match is None:
            raise InvalidParameterError("support", text, "LO:HI, two whole numbers, for example 2:6")
        return cls(int(match[1]), int(match[2]), allow_neighbours)

    @classmethod
    def of(cls, given: DistanceSupport | tuple[int, int] | str) -> DistanceSupport:
        """Return a support given as such, as its two ends or as text."""
        if isinstance(given, DistanceSupport):
            return given
        if isinstance(given, str):
            return cls.parse(given)
        try:
            lo, hi = given
        except (TypeError, ValueError):
            raise InvalidParameterError("support", given, "two distances: (2, 6), or LO:HI as text") from None
        return cls(lo, hi)

    @property
    def size(self) -> int:
        """How many distances there are: d + 1 in the paper's symbols."""
        return self.hi - self.lo + 1

    @property
    def distances(self) -> IntArray:
        """All distances, ascending."""
        return np.arange(self.lo, self.hi + 1)

    def __str__(self) -> str:
        return f"{self.lo}:{self.hi}"
