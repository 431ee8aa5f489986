"""Posteriors by calibrated Monte Carlo, for graphs too large for exact ones.

Candidates are put into classes: how far from the destination, and whether nearer to, as far from, or farther from
the neighbour the token came from. On training updates it is counted how often the true source falls into each class
in each return-time bin, against how often the prior alone would put it there. The quotient is the likelihood of the
class; the posterior is the prior times it. Nodes of one class are told apart only by the prior.
"""

from __future__ import annotations

import numpy as np

from veilwalk.audit._run import Truth
from veilwalk.audit._sightings import Sightings
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray, normalised

_BINS = 40
_RELATIONS = 3
# Half a count keeps a class that never won in training possible.
_PSEUDO_COUNT = 0.5


class EstimatedPosteriors:
    """Likelihoods of classes, learnt on the ``training`` rows of a run."""

    def __init__(self, prior: FloatArray, apart: IntArray, seen: Sightings, truth: Truth, training: BoolArray) -> None:
        self._prior, self._apart = prior, apart
        rows = np.flatnonzero(training)
        times = seen.return_time[rows]
        self._edges = np.unique(np.quantile(times, np.linspace(0, 1, _BINS + 1)[1:-1], method="inverted_cdf"))
        self._n_distances = int(apart.max()) + 1
        shape = (len(self._edges) + 1, self._n_distances, _RELATIONS)
        won, expected = np.zeros(shape), np.zeros(shape)
        order = rows[np.argsort(seen.destination[rows], kind="stable")]
        for node in np.unique(seen.destination[order]):
            mine = order[seen.destination[order] == node]
            here = seen.at(mine)
            bins = self._bins(here)
            relation = self._relations(int(node), here.last_hop)
            away = np.broadcast_to(apart[node].astype(np.int64), relation.shape)
            at = (np.arange(len(mine)), truth.source[mine])
            np.add.at(won, (bins, away[at], relation[at]), 1.0)
            place = (bins[:, np.newaxis], away, relation)
            np.add.at(expected, place, np.broadcast_to(prior[node], relation.shape))
        self._with_hop = _quotient(won, expected)
        self._without = _quotient(won.sum(axis=2), expected.sum(axis=2))

    def at(self, destination: int, seen: Sightings, *, with_last_hop: bool) -> FloatArray:
        """Return posteriors for sightings at ``destination``; nodes farther than half the return time get zero."""
        away = self._apart[destination].astype(np.int64)
        bins = self._bins(seen)[:, np.newaxis]
        if with_last_hop:
            likelihood = self._with_hop[bins, away, self._relations(destination, seen.last_hop)]
        else:
            likelihood = self._without[bins, away]
        possible = 2 * away <= seen.return_time[:, np.newaxis]
        return normalised(np.where(possible, self._prior[destination] * likelihood, 0.0))

    def _bins(self, seen: Sightings) -> IntArray:
        return np.searchsorted(self._edges, seen.return_time, side="left")

    def _relations(self, destination: int, last_hop: IntArray) -> IntArray:
        """0, 1 or 2: a candidate nearer to, as far from, or farther from the last hop than from the destination."""
        near = self._apart[last_hop].astype(np.int64) - self._apart[destination].astype(np.int64)
        return np.asarray(np.clip(near, -1, 1) + 1)


def _quotient(won: FloatArray, expected: FloatArray) -> FloatArray:
    return np.where(expected > 0, (won + _PSEUDO_COUNT) / np.maximum(expected + _PSEUDO_COUNT, 1e-300), 0.0)
