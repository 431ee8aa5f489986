"""The same bytes again and again: what nobody can open walks for ever, and must not crowd out what somebody can.

A model is sealed anew at its destination, so an honest ciphertext comes by a node a few times only: after each visit
the walk meets the destination before it is back with a chance of at least 1/(degree x effective resistance), whoever
that is. Bytes that come more often than chance explains wait here, longer every time. They are never thrown away: an
honest message that was very unlucky is late, not lost. Counts are kept in memory only, and only so many.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable

import numpy as np

# An honest ciphertext is delayed by a node with this probability at most.
_RARE = 1e-4
_REMEMBERED = 4096
_LONGEST_PAUSES = 200


class Visits:
    """How often the same bytes came by, and how long they wait for it."""

    def __init__(self, allowed: int, *, pause_s: float) -> None:
        self.allowed = allowed
        self._pause_s = pause_s
        self._seen: OrderedDict[bytes, int] = OrderedDict()

    def wait_s(self, digest: bytes) -> float:
        """Count a visit and return how long it lasts; 0 for as long as chance explains it."""
        count = self._seen.pop(digest, 0) + 1
        self._seen[digest] = count
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return self._pause_s * min(max(0, count - self.allowed), _LONGEST_PAUSES)


def allowed_visits(members: Iterable[str], edges: Iterable[tuple[str, str]], me: str) -> int:
    """Return how often a simple walk may come to ``me`` on its way to any other member, save once in 10,000 walks."""
    index = {member: position for position, member in enumerate(members)}
    laplacian = np.zeros((len(index), len(index)))
    for one, other in edges:
        a, b = index[one], index[other]
        laplacian[[a, b], [b, a]] -= 1
        laplacian[[a, b], [a, b]] += 1
    degree = laplacian[index[me], index[me]]
    others = [position for member, position in index.items() if member != me]
    try:
        resistance = np.diag(np.linalg.inv(laplacian[np.ix_(others, others)]))
    except np.linalg.LinAlgError:
        # In two parts: the mean number of visits is not bounded by the graph.
        return 10**9
    visits = max(1.0, float(degree * resistance.max()))
    return 1 if visits == 1.0 else math.ceil(math.log(_RARE) / math.log1p(-1 / visits))
