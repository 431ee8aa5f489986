"""How long a walk without a chain stays away from a node: simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from veilwalk.core.arrays import FloatArray, IntArray
    from veilwalk.core.walk import Walk
    from veilwalk.graphs import Graph

_GROUPS = 16
# Student's t with 15 degrees of freedom: 95 % on both sides.
_STUDENT = 2.131
# Places of all walks held at a time.
_PATH_ENTRIES = 16_000_000
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


def simulated_gaps(graph: Graph, walk: Walk, *, hops: int, seed: int) -> Gaps:
    """Walk for ``hops`` hops in all and count the gaps between visits to every node."""
    from veilwalk.walks import token_paths

    settle = 8 * len(graph.indices)
    lanes = _GROUPS * max(1, min(64, _PATH_ENTRIES // (_GROUPS * 2 * settle)))
    steps = max(math.ceil(hops / lanes), settle)
    counts: IntArray = np.zeros((_GROUPS, 1), dtype=np.int64)
    for lane, path in enumerate(token_paths(graph, hops=settle + steps - 1, lanes=lanes, seed=seed, walk=walk)):
        # Visits to one node side by side, in the order of their times.
        times = np.argsort(path, kind="stable")
        again = (path[times[1:]] == path[times[:-1]]) & (times[1:] >= settle)
        found = np.bincount(np.diff(times)[again])
        if len(found) > counts.shape[1]:
            counts = np.pad(counts, ((0, 0), (0, len(found) - counts.shape[1])))
        counts[lane % _GROUPS, : len(found)] += found
    return Gaps(counts, np.full(_GROUPS, lanes / _GROUPS * steps))
