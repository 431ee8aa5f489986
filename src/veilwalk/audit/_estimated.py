"""Calibration by Monte Carlo, where there is no law to compute posteriors from.

A base posterior (the prior) is corrected by classes of candidates: how far from the
destination, and whether nearer to, as far from, or farther from the neighbour the token came from. On training updates
it is counted how often the true source falls into each class in each return-time bin, against how often the base puts
it there; the quotient corrects the base. What the base says within a class stays as it is.
"""

from __future__ import annotations

import numpy as np

from veilwalk.audit._sightings import Sightings
from veilwalk.core.arrays import FloatArray, IntArray, normalised

_MOST_BINS = 40
_UPDATES_PER_BIN = 2000
_RELATIONS = 3
# Counts granted to the base in every class: a handful of training updates must not overrule it, or the luckiest class
# would look likelier than it is.
_TRUST = 20.0


class Calibration:
    """Corrections of a base posterior, by return-time bin and class of candidate."""

    def __init__(self, apart: IntArray, return_times: IntArray, *, use_last_hop: bool) -> None:
        """Cut ``return_times`` of the training updates into bins; ``apart`` holds the distances of all pairs."""
        self._apart, self._use_last_hop = apart, use_last_hop
        n_bins = min(_MOST_BINS, 1 + len(return_times) // _UPDATES_PER_BIN)
        cuts = np.linspace(0, 1, n_bins + 1)[1:-1]
        self._edges = np.unique(np.quantile(return_times, cuts, method="inverted_cdf"))
        shape = (len(self._edges) + 1, int(apart.max()) + 1, _RELATIONS)
        self._won, self._expected = np.zeros(shape), np.zeros(shape)

    def learn(self, destination: int, seen: Sightings, sources: IntArray, base: FloatArray) -> None:
        """Add training updates at one destination, with their true sources and base posteriors."""
        classes = self._classes(destination, seen)
        np.add.at(self._expected, classes, base)
        rows = np.arange(len(seen))
        np.add.at(self._won, tuple(part[rows, sources] for part in classes), 1.0)

    def apply(self, destination: int, seen: Sightings, base: FloatArray) -> FloatArray:
        """Return corrected posteriors; nodes farther than half the return time get exactly zero."""
        quotient = (self._won + _TRUST) / (self._expected + _TRUST)
        possible = 2 * self._apart[destination].astype(np.int64) <= seen.return_time[:, np.newaxis]
        return normalised(np.where(possible, base * quotient[self._classes(destination, seen)], 0.0))

    def _classes(self, destination: int, seen: Sightings) -> tuple[IntArray, IntArray, IntArray]:
        """Return bin, distance and relation of every candidate (column) for every sighting (row)."""
        away = self._apart[destination].astype(np.int64)
        shape = (len(seen), len(away))
        bins = np.searchsorted(self._edges, seen.return_time, side="left")[:, np.newaxis]
        # 0, 1 or 2: nearer to, as far from, or farther from the last hop than from the destination.
        relation = np.zeros(shape, dtype=np.int64)
        if self._use_last_hop:
            relation = np.clip(self._apart[seen.last_hop].astype(np.int64) - away, -1, 1) + 1
        return np.broadcast_to(bins, shape), np.broadcast_to(away, shape), relation
