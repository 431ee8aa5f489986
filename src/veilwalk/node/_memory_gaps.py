"""How long a least-recent walk stays away from a node: simulated, for it has no small chain.

The rule is the node's own (:class:`veilwalk.node.NextHop`), played for many walks side by side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.core.randomness import task_generator

if TYPE_CHECKING:
    import numpy.typing as npt

    from veilwalk.core.arrays import FloatArray, IntArray
    from veilwalk.graphs import Graph

_GROUPS = 16
# Student's t with 15 degrees of freedom: 95 % on both sides.
_STUDENT = 2.131
_CLOCK_ENTRIES = 8_000_000
# The tail is drawn through the times that so many gaps exceed: enough to be steady, rare enough to be the tail.
_FAR_GAPS, _NEAR_GAPS = 200, 4000


@dataclass(frozen=True, eq=False)
class Gaps:
    """Gaps between a walk's visits, counted: ``counts[g, t]`` lasted t hops in group g of ``hops[g]`` hops."""

    counts: IntArray
    hops: FloatArray

    def late_after(self, alarm_hops: float) -> tuple[float, float]:
        """Return after how many hops fewer than one gap in ``alarm_hops`` hops is still open, and the 95 % margin."""
        every = np.ones(len(self.hops), dtype=bool)
        found = self._late_after(every, alarm_hops)
        without = [self._late_after(every & (np.arange(len(every)) != left), alarm_hops) for left in range(len(every))]
        # The jackknife: groups are independent.
        spread = math.sqrt((len(without) - 1) * float(np.var(without)))
        return found, _STUDENT * spread

    def alarms(self, late: float) -> float:
        """Return how many gaps last longer than ``late``, per hop."""
        return float(self.counts[:, math.floor(late) + 1 :].sum() / self.hops.sum())

    def _late_after(self, groups: npt.NDArray[np.bool_], alarm_hops: float) -> float:
        # longer[t]: gaps of more than t hops.
        longer = self.counts[groups].sum(axis=0)[::-1].cumsum()[::-1]
        longer = np.append(longer[1:], 0)
        rare = longer * alarm_hops < self.hops[groups].sum()
        far, near = (int(np.flatnonzero(longer >= count)[-1]) for count in (_FAR_GAPS, _NEAR_GAPS))
        if bool(rare[far]) or near >= far:
            return float(np.argmax(rare))
        slope = math.log(longer[near] / longer[far]) / (far - near)
        return far + math.log(longer[far] * alarm_hops / self.hops[groups].sum()) / slope


def least_recent_gaps(graph: Graph, *, mix: float, hops: int, seed: int) -> Gaps:
    """Play least-recent walks for ``hops`` hops in all and count the gaps between their visits to every node."""
    degrees = np.diff(graph.indptr)
    width = int(degrees.max())
    lanes = _GROUPS * max(1, min(64, _CLOCK_ENTRIES // (_GROUPS * graph.n_nodes * width)))
    rng = task_generator(seed, 0)
    walk = _Lanes(graph, lanes, mix, rng)
    settle = 8 * len(graph.indices)
    steps = max(math.ceil(hops / lanes), settle)
    seen = np.full((lanes, graph.n_nodes), -1, dtype=np.int64)
    rows = np.arange(lanes)
    counts: IntArray = np.zeros((_GROUPS, 1), dtype=np.int64)
    for time in range(settle + steps):
        before = seen[rows, walk.at]
        seen[rows, walk.at] = time
        if time >= settle:
            known = before >= 0
            counts = _counted(counts, (rows % _GROUPS)[known], time - before[known])
        walk.hop(time)
    return Gaps(counts, np.full(_GROUPS, lanes / _GROUPS * steps))


def _counted(counts: IntArray, groups: IntArray, gaps: IntArray) -> IntArray:
    most = int(gaps.max(initial=0))
    if most >= counts.shape[1]:
        counts = np.pad(counts, ((0, 0), (0, 2 * most - counts.shape[1])))
    np.add.at(counts, (groups, gaps), 1)
    return counts


class _Lanes:
    """Walks side by side, each with its own memory of when every edge was last used at either end."""

    def __init__(self, graph: Graph, lanes: int, mix: float, rng: np.random.Generator) -> None:
        degrees = np.diff(graph.indptr)
        owner = np.repeat(np.arange(graph.n_nodes), degrees)
        slot = np.arange(len(graph.indices)) - graph.indptr[owner]
        self._width = int(degrees.max())
        self._next = np.zeros((graph.n_nodes, self._width), dtype=np.int64)
        self._back = np.zeros_like(self._next)
        self._next[owner, slot] = graph.indices
        # Arcs sorted by (head, tail) are the arcs sorted by (tail, head), turned round.
        turned = np.lexsort((owner, graph.indices))
        self._back[owner[turned], slot[turned]] = slot
        self._degrees = degrees
        self._mix = mix
        self._rng = rng
        self._rows = np.arange(lanes)
        # Edges never used come first, in random order; slots that are no edges never.
        clocks = -1.0 - rng.random((lanes, graph.n_nodes, self._width))
        clocks[:, np.arange(self._width) >= degrees[:, np.newaxis]] = np.inf
        self._clocks = clocks
        self.at = rng.integers(graph.n_nodes, size=lanes)
        self._came = np.full(lanes, -1)

    def hop(self, time: int) -> None:
        """Let every walk go on by one hop."""
        rows, at, came = self._rows, self.at, self._came
        arrived = came >= 0
        self._clocks[rows[arrived], at[arrived], came[arrived]] = 2 * time
        oldest = self._clocks[rows, at].argmin(axis=1)
        # A plain non-backtracking hop: any of the other edges, or the same where there is no other.
        others = np.maximum(self._degrees[at] - arrived, 1)
        other = (self._rng.random(len(rows)) * others).astype(np.int64)
        other += arrived & (other >= came) & (self._degrees[at] > 1)
        plain = self._rng.random(len(rows)) < self._mix
        slot = np.where(plain, other, oldest)
        self._clocks[rows, at, slot] = 2 * time + 1
        self.at, self._came = self._next[at, slot], self._back[at, slot]
