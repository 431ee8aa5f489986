"""The same bytes again and again: what nobody can open walks for ever, and must not crowd out what somebody can.

A model is sealed anew at its destination, so an honest ciphertext comes by a node a few times only: after each visit
the walk meets the destination before it is back with a chance of at least 1/(degree x effective resistance), whoever
that is. Bytes that come more often than chance explains wait here, longer every time: an honest message that was very
unlucky is late, not lost. Where a neighbour brings more than it may they are thrown away, before others; and so are
bytes that were first seen so long ago that nobody waits for their walk any more. Whether they opened here once makes no
difference: whoever brings old bytes again must not see whose they were. Counts are kept in memory only, and only so
many.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

# An honest ciphertext is delayed by a node with this probability at most.
_RARE = 1e-4
_REMEMBERED = 4096
_LONGEST_PAUSES = 200


class Visits:
    """How often the same bytes came by, how long they wait for it, and whether they are too old to go on."""

    def __init__(
        self,
        allowed: int,
        *,
        pause_s: float,
        life_s: float = math.inf,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.allowed = allowed
        self._pause_s = pause_s
        self._life_s = life_s
        self._clock = clock or time.monotonic
        self._asleep_s = 0.0
        self._seen: OrderedDict[bytes, tuple[int, float]] = OrderedDict()

    def visit(self, digest: bytes) -> tuple[float, bool]:
        """Count a visit; return how long it lasts, 0 for as long as chance explains it, and whether it is the last."""
        now = self._clock() - self._asleep_s
        count, first = self._seen.pop(digest, (0, now))
        count += 1
        self._seen[digest] = count, first
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        if now - first > self._life_s:
            return self._pause_s * _LONGEST_PAUSES, True
        # By the square: what a flood left is at rest within a few rounds, and a message whose only recipient is away
        # for a while comes round again in a fraction of that time.
        return self._pause_s * min(max(0, count - self.allowed) ** 2, _LONGEST_PAUSES), False

    def slept(self, seconds: float) -> None:
        """Note that this node stood still, or had no neighbour, for so long: nothing grew older meanwhile."""
        self._asleep_s += max(0.0, seconds)


def allowed_visits(links: int, visits_per_link: float) -> int:
    """Return how often a walk may come to a node of so many links, save about once in 10,000 walks.

    ``visits_per_link`` is the manifest's; where it is 0 nothing comes too often.
    """
    visits = links * visits_per_link
    if not visits:
        return 10**9
    return 1 if visits <= 1 + 1e-9 else math.ceil(math.log(_RARE) / math.log1p(-1 / visits))
