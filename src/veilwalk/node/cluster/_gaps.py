"""How long a node opens nothing: simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from veilwalk.core.arrays import FloatArray, IntArray
    from veilwalk.design import Scheme

_GROUPS = 16
# Student's t with 15 degrees of freedom: 95 % on both sides.
_STUDENT = 2.131
# The tail is drawn through the times that so many gaps exceed: enough to be steady, rare enough to be the tail.
_FAR_GAPS, _NEAR_GAPS = 200, 4000
# A lane plays so many mean waits, so that few are cut off at its end; waits are counted in so many parts of the mean.
_LANE_WAITS, _PARTS = 200, 100
_MOST_PLAYED = 4_000_000


@dataclass(frozen=True, eq=False)
class Gaps:
    """Gaps, counted: ``counts[g, t]`` lasted t times ``unit`` hops in group g of ``hops[g]`` hops."""

    counts: IntArray
    hops: FloatArray
    unit: int = 1

    def late_after(self, alarm_hops: float) -> tuple[float, float]:
        """Return after how many hops fewer than one gap in ``alarm_hops`` hops is still open, and the 95 % margin."""
        every = np.ones(len(self.hops), dtype=bool)
        found = self._late_after(every, alarm_hops)
        without = [self._late_after(every & (np.arange(len(every)) != left), alarm_hops) for left in range(len(every))]
        # The jackknife: groups are independent.
        spread = math.sqrt((len(without) - 1) * float(np.var(without)))
        return self.unit * found, self.unit * _STUDENT * spread

    def alarms(self, late: float) -> float:
        """Return how many gaps last longer than ``late``, per hop."""
        return float(self.counts[:, math.floor(late / self.unit) + 1 :].sum() / self.hops.sum())

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


def simulated_waits(scheme: Scheme, *, seed: int) -> Gaps | None:
    """Play the protocol and count the hops between two openings by the same node; None where that would take long."""
    updates = max(_GROUPS * _LANE_WAITS * scheme.graph.n_nodes, 50 * _NEAR_GAPS)
    if updates > _MOST_PLAYED:
        return None
    unit = max(1, math.floor(scheme.price.hops * scheme.graph.n_nodes / _PARTS))
    played = np.concatenate(list(scheme.iter_updates(updates=updates, seed=seed, replicas=_GROUPS)))
    found = []
    hops = np.zeros(_GROUPS)
    for group in range(_GROUPS):
        lane = played[played["replica"] == group]
        hops[group] = lane["clock"].max() - lane["clock"].min()
        # Openings by one node side by side, in the order of their times.
        lane = lane[np.lexsort((lane["clock"], lane["destination"]))]
        again = lane["destination"][1:] == lane["destination"][:-1]
        found.append(np.bincount(np.diff(lane["clock"])[again] // unit))
    longest = max(len(counts) for counts in found)
    return Gaps(np.array([np.pad(counts, (0, longest - len(counts))) for counts in found]), hops, unit)
