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
    def parse(
        cls, support: DistanceSupport | tuple[int, int] | str, *, allow_neighbours: bool = False
    ) -> DistanceSupport:
        """Read a support from its text ``LO:HI`` or its two ends; return a support as it is."""
        if isinstance(support, DistanceSupport):
            return support
        if not isinstance(support, str):
            try:
                lo, hi = support
            except (TypeError, ValueError):
                raise InvalidParameterError("support", support, "two distances: (2, 6), or LO:HI as text") from None
            return cls(lo, hi, allow_neighbours)
        match = _RANGE.fullmatch(support.strip())
        if match is None:
            raise InvalidParameterError("support", support, "LO:HI, two whole numbers, for example 2:6")
        return cls(int(match[1]), int(match[2]), allow_neighbours)

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
