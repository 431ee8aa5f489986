"""How the exact posterior of one node depends on its distance and on the return time, averaged over destinations."""

from __future__ import annotations

from typing import Any

import numpy as np

from veilwalk.chains import DeliveryLaw
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.bins import geometric_starts
from veilwalk.core.support import DistanceSupport

_BINS = 28


class DistanceProfile:
    """Sums of exact delivery laws by return-time bin and distance of the source."""

    def __init__(self, support: DistanceSupport, horizon: int) -> None:
        self._support = support
        # No delivery is quicker than twice the shortest distance; a horizon below that leaves nothing to show.
        self._edges = geometric_starts(2 * support.lo, max(horizon + 1, 2 * support.lo), _BINS + 1)
        self._mass = np.zeros((len(self._edges) - 1, support.size))
        self._nodes = np.zeros(support.size)
        self._destinations = 0

    def add(self, delivery: DeliveryLaw, hops_away: IntArray) -> None:
        """Add the law of one destination; ``hops_away`` holds the distance of every node from it."""
        if len(self._edges) < 2:
            return
        shells = hops_away[delivery.sources] == self._support.distances[:, np.newaxis]
        by_source: FloatArray = np.add.reduceat(delivery.joint.sum(axis=1), self._edges[:-1], axis=0)
        self._mass += by_source @ shells.T
        self._nodes += shells.sum(axis=1)
        self._destinations += 1

    def rows(self) -> list[dict[str, Any]]:
        """Return, for each bin that can happen, the posterior weight of ONE node at each distance."""
        shell = np.maximum(self._nodes / max(self._destinations, 1), 1e-300)
        return [
            {
                "return_time": float(np.sqrt(begin * (end - 1.0))),
                "distances": self._support.distances.tolist(),
                "weight_of_one_node": (mass / mass.sum() / shell).tolist(),
            }
            for begin, end, mass in zip(self._edges[:-1], self._edges[1:], self._mass, strict=True)
            if mass.sum() > 0
        ]
