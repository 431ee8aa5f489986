"""How the exact posterior of one node depends on its distance and on the return time, averaged over destinations."""

from __future__ import annotations

from collections.abc import Sequence
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
        #: Of each destination: mass by bin and distance, and nodes by distance.
        self.parts: list[tuple[FloatArray, IntArray]] = []

    def add(self, delivery: DeliveryLaw, hops_away: IntArray) -> None:
        """Add the law of one destination; ``hops_away`` holds the distance of every node from it."""
        if len(self._edges) < 2:
            return
        shells = hops_away[delivery.sources] == self._support.distances[:, np.newaxis]
        by_source: FloatArray = np.add.reduceat(delivery.joint.sum(axis=1), self._edges[:-1], axis=0)
        self.parts.append((by_source @ shells.T, shells.sum(axis=1)))

    def rows(self, parts: Sequence[tuple[FloatArray, IntArray]]) -> list[dict[str, Any]]:
        """Return, for each bin that can happen, the posterior weight of ONE node at each distance.

        Parts are those of all destinations, in their order, whoever followed them.
        """
        masses, nodes = np.zeros((len(self._edges) - 1, self._support.size)), np.zeros(self._support.size)
        for mass, shells in parts:
            masses += mass
            nodes += shells
        shell = np.maximum(nodes / max(len(parts), 1), 1e-300)
        return [
            {
                "return_time": float(np.sqrt(begin * (end - 1.0))),
                "distances": self._support.distances.tolist(),
                "weight_of_one_node": (mass / mass.sum() / shell).tolist(),
            }
            for begin, end, mass in zip(self._edges[:-1], self._edges[1:], masses, strict=True)
            if mass.sum() > 0
        ]
