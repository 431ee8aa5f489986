"""Calibration by Monte Carlo, where there is no law to compute posteriors from.

A base posterior (the prior) is corrected by classes of candidates: how far from the destination, and whether nearer to,
as far from, or farther from the neighbour the token came from. On training updates it is counted how often the true
source falls into each class in each return-time bin, against how often the base puts it there; the quotient corrects
the base. What the base says within a class stays as it is: 4 to 17% of the hits are lost on five graphs (decision 5).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from veilwalk.audit._scene import Scene, require
from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference._base import Inference, Local, Posterior
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.bins import quantile_bins, quantile_edges

_MOST_BINS = 40
_UPDATES_PER_BIN = 2000
_RELATIONS = 3
# Counts granted to the base in every class: a handful of training updates must not overrule it, or the luckiest class
# would look likelier than it is.
_TRUST = 20.0
HOW = "by-class: calibrated on half of the lanes, scored on the others"

# Bin, distance and relation of every candidate (column) for every sighting (row).
Classes = tuple[IntArray, IntArray, IntArray]


class ClassCorrection:
    """Counts by return-time bin and class of candidate, and the corrections they give."""

    def __init__(self, return_times: IntArray, farthest: int) -> None:
        """Cut ``return_times`` of the training updates into bins; no candidate is farther off than ``farthest``."""
        n_bins = min(_MOST_BINS, 1 + len(return_times) // _UPDATES_PER_BIN)
        self._edges = quantile_edges(return_times, np.linspace(0, 1, n_bins + 1)[1:-1])
        shape = (len(self._edges) + 1, farthest + 1, _RELATIONS)
        self._won, self._expected = np.zeros(shape), np.zeros(shape)

    def classes(self, return_time: IntArray, away: IntArray, from_last_hop: IntArray | None = None) -> Classes:
        """Return the classes of candidates ``away`` from the destination and ``from_last_hop`` (rows as sightings)."""
        shape = (len(return_time), len(away))
        bins = quantile_bins(self._edges, return_time)[:, np.newaxis]
        # 0, 1 or 2: nearer to, as far from, or farther from the last hop than from the destination.
        relation = np.zeros(shape, dtype=np.int64)
        if from_last_hop is not None:
            relation = np.clip(from_last_hop - away, -1, 1) + 1
        return np.broadcast_to(bins, shape), np.broadcast_to(away, shape), relation

    def count(self, classes: Classes, base: FloatArray, true: IntArray) -> None:
        """Add training updates: their base posteriors, and the column of the true source of each."""
        np.add.at(self._expected, classes, base)
        rows = np.arange(len(true))
        np.add.at(self._won, tuple(part[rows, true] for part in classes), 1.0)

    def corrected(self, classes: Classes, base: FloatArray, return_time: IntArray) -> FloatArray:
        """Return corrected posteriors; candidates farther than half the return time get exactly zero."""
        quotient = (self._won + _TRUST) / (self._expected + _TRUST)
        possible = 2 * classes[1] <= return_time[:, np.newaxis]
        return normalised(np.where(possible, base * quotient[classes], 0.0))


class Calibration:
    """Corrections of a base posterior over all nodes."""

    def __init__(self, apart: IntArray, return_times: IntArray, *, use_last_hop: bool) -> None:
        """Prepare for the given return times of training updates; ``apart`` holds the distances of all pairs."""
        self._apart, self._use_last_hop = apart, use_last_hop
        self._counts = ClassCorrection(return_times, int(apart.max()))

    def learn(self, destination: int, seen: Sightings, sources: IntArray, base: FloatArray) -> None:
        """Add training updates at one destination, with their true sources and base posteriors."""
        self._counts.count(self._classes(destination, seen), base, sources)

    def apply(self, destination: int, seen: Sightings, base: FloatArray) -> FloatArray:
        """Return corrected posteriors."""
        return self._counts.corrected(self._classes(destination, seen), base, seen.return_time)

    def _classes(self, destination: int, seen: Sightings) -> Classes:
        away = self._apart[destination].astype(np.int64)
        from_last_hop = self._apart[seen.last_hop].astype(np.int64) if self._use_last_hop else None
        return self._counts.classes(seen.return_time, away, from_last_hop)


@dataclass(frozen=True, eq=False)
class _Corrected(Local):
    """The prior at one destination, corrected by class."""

    node: int
    inference: ByClass

    def posterior(self, seen: Sightings, *, use_last_hop: bool) -> Posterior:
        """Return the corrected prior."""
        base = self.inference.base(self.node, seen)
        return Posterior(self.inference.learnt(use_last_hop=use_last_hop).apply(self.node, seen, base), HOW)


class ByClass(Inference):
    """The prior, calibrated by classes of candidates on half of the lanes; the others are scored."""

    name = "by-class"

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def at(self, nodes: IntArray) -> Iterator[Local]:
        """Yield the corrected prior of each destination."""
        return (_Corrected(int(node), self) for node in nodes)

    def base(self, node: int, seen: Sightings) -> FloatArray:
        """Return what is corrected: the prior."""
        return np.tile(self._scene.prior[node], (len(seen), 1))

    def learnt(self, *, use_last_hop: bool) -> Calibration:
        """Return the correction, learnt on the training lanes when it is first asked for."""
        return self._scene.once(("by-class", use_last_hop), lambda: self._learn(use_last_hop=use_last_hop))

    def _learn(self, *, use_last_hop: bool) -> Calibration:
        scene = self._scene
        rows = require(np.flatnonzero(scene.training), "was left to calibrate on")
        learnt = Calibration(scene.apart, scene.seen.return_time[rows], use_last_hop=use_last_hop)
        for node, mine in scene.by_destination(rows):
            here = scene.seen.at(mine)
            learnt.learn(node, here, scene.taught[mine], self.base(node, here))
        return learnt
