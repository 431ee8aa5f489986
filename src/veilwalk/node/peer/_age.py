"""How a node notices that walks are lost: nothing has come by for longer than chance explains."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from veilwalk.node.peer._draws import Draws, OsDraws


class AgeWatch:
    """How long ago something was last seen here, and whether that is too long.

    The moment of an alarm is put off by a random time, so that the first message after a silence does not tell its
    maker by its timing, and so that not all nodes that wait wake up together.
    """

    def __init__(
        self, late_s: float, *, draws: Draws | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._late_s = late_s
        self._draws = draws or OsDraws()
        self._clock = clock
        self.seen()

    def seen(self) -> None:
        """Note that it was seen now."""
        # Exponential with a tenth of the waiting time as its mean.
        put_off = -math.log1p(-self._draws.unit()) * self._late_s / 10
        self._due = self._clock() + self._late_s + put_off

    @property
    def is_late(self) -> bool:
        """Whether it is time to make a walk."""
        return self._clock() >= self._due
