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
from collections.abc import Callable, Iterable

import numpy as np

from veilwalk.core.arrays import FloatArray
from veilwalk.core.walk import SIMPLE, Walk

# An honest ciphertext is delayed by a node with this probability at most.
_RARE = 1e-4
_REMEMBERED = 4096
_LONGEST_PAUSES = 200
# Directed edges of the largest network whose non-backtracking walk is solved for, a fraction of a second.
_MOST_ARCS = 400


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


def allowed_visits(
    members: Iterable[str], edges: Iterable[tuple[str, str]], me: str, *, recipients: int = 1, walk: Walk = SIMPLE
) -> int:
    """Return how often a walk may come to ``me`` on its way to any recipient, save about once in 10,000 walks.

    With several it ends at the first of them that it meets. Half as many are counted on, those that are hardest to
    reach from here: some may be away. Walks with memory are taken for simple ones, which come by more often, and so is
    the non-backtracking one where the network is large.
    """
    index = {member: position for position, member in enumerate(members)}
    laplacian = np.zeros((len(index), len(index)))
    for one, other in edges:
        a, b = index[one], index[other]
        laplacian[[a, b], [b, a]] -= 1
        laplacian[[a, b], [a, b]] += 1
    others = [position for member, position in index.items() if member != me]
    try:
        resistance = np.diag(np.linalg.inv(laplacian[np.ix_(others, others)]))
        goals = np.array(others)[np.argsort(resistance, kind="stable")[-min((recipients + 1) // 2, len(others)) :]]
        if walk.kind == "non-backtracking" and np.trace(laplacian) <= _MOST_ARCS:
            visits = _straight_visits(laplacian, index[me], set(goals.tolist()))
        else:
            kept = [index[me], *(other for other in others if other not in goals)]
            visits = float(laplacian[index[me], index[me]] * np.linalg.inv(laplacian[np.ix_(kept, kept)])[0, 0])
    except np.linalg.LinAlgError:
        # In two parts: the mean number of visits is not bounded by the graph.
        return 10**9
    return 1 if visits <= 1 + 1e-9 else math.ceil(math.log(_RARE) / math.log1p(-1 / visits))


def _straight_visits(laplacian: FloatArray, me: int, goals: set[int]) -> float:
    """Return how often, on average, a non-backtracking walk that came to ``me`` is there before it meets a goal."""
    near = [[int(b) for b in np.flatnonzero(row < 0)] for row in laplacian]
    arcs = [(a, b) for a, row in enumerate(near) for b in row if not {a, b} & goals]
    place = {arc: number for number, arc in enumerate(arcs)}
    stays = np.eye(len(arcs))
    for (a, b), number in place.items():
        onward = [c for c in near[b] if c != a] or near[b]
        for c in onward:
            if c not in goals:
                stays[number, place[b, c]] -= 1 / len(onward)
    mine = np.array([float(b == me) for _, b in arcs])
    return float(np.linalg.solve(stays, mine)[mine > 0].max(initial=1.0))
