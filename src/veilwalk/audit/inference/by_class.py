"""Looks up the candidates of each update and corrects their prior by classes, on graphs of any size.

A class is how far a candidate is from the destination, and whether it is nearer to, as far from, or farther from the
neighbour the token came from. On training updates it is counted how often the true source falls into each class in each
return-time bin, against how often the prior puts it there; the quotient corrects the prior. What the prior says within
a class stays as it is: 4 to 17% of the hits are lost on five graphs (decision 5).

There are no tables of all pairs. Laws choose destinations a few hops away, so a search around the destination that
stops at the end of the support reaches every node that could have sealed an update. Of a far law that is everybody but
those who are near: all nodes are searched, and fewer updates looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from veilwalk.audit._scene import Scene, source_flows
from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference._base import Local, Posterior
from veilwalk.audit.inference.exact import HandedOver
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.progress import Progress
from veilwalk.core.stats import quantile_bins, quantile_edges
from veilwalk.graphs import balls, distances

_MOST_BINS = 40
_UPDATES_PER_BIN = 2000
_RELATIONS = 3
# Counts granted to the base in every class: a handful of training updates must not overrule it, or the luckiest class
# would look likelier than it is.
_TRUST = 20.0
HOW = "by-class: calibrated on half of the lanes, scored on the others"

# Bin, distance and relation of every candidate (column) for every sighting (row).
Classes = tuple[IntArray, IntArray, IntArray]
_BLOCK = 2_000
# Candidates of all updates together, of a far law: some minutes.
_FAR_CANDIDATES = 200_000_000
# And those whose distances are held at a time.
_FAR_BLOCK = 4_000_000


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


@dataclass(frozen=True, eq=False)
class Candidates:
    """Who could have made one update: their prior, and how far they are from the destination and its last hop."""

    row: int
    nodes: IntArray
    prior: FloatArray
    away: IntArray
    from_last_hop: IntArray


class LookedUp:
    """The candidates of updates one by one, and what classes say of them."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._learnt: dict[bool, ClassCorrection] = {}

    def learn(self, rows: IntArray, uses: Sequence[bool], progress: Progress) -> None:
        """Count classes on the training updates ``rows``, for observers that use the last hop or do not."""
        scene = self._scene
        times = scene.seen.return_time
        self._learnt = {use: ClassCorrection(times[rows], scene.support.hi) for use in uses}
        for found in self.candidates(rows, "calibrating", progress):
            true = np.searchsorted(found.nodes, scene.taught[[found.row]])
            for use_last_hop, correction in self._learnt.items():
                classes = _classes(correction, found, times[[found.row]], use_last_hop=use_last_hop)
                correction.count(classes, found.prior[np.newaxis], true)

    def local(self, found: Candidates) -> Local:
        """Return what is known of the candidates of one update."""
        return HandedOver(found.nodes) if self._scene.scheme.is_direct else _CorrectedCandidates(found, self._learnt)

    def most(self) -> int:
        """Return how many updates are looked at: as the settings say, fewer where everybody is a candidate."""
        most = self._scene.settings.scored_by_few
        if self._scene.law.far is not None:
            most = min(most, max(_FAR_CANDIDATES // self._scene.graph.n_nodes, 1))
        return most

    def candidates(self, rows: IntArray, stage: str, progress: Progress) -> Iterator[Candidates]:
        """Yield the candidates of each update in ``rows``."""
        if self._scene.law.far is not None:
            size = max(_FAR_BLOCK // self._scene.graph.n_nodes, 1)
            for start in range(0, len(rows), size):
                yield from self._far_candidates(self._scene.law.far, rows[start : start + size])
                progress(stage, min(start + size, len(rows)), len(rows), "updates")
            return
        scene, graph = self._scene, self._scene.graph
        seen, reach = scene.seen, scene.support.hi
        columns = source_flows(scene.scheme).tocsc()
        columns.sort_indices()
        hops = np.full(graph.n_nodes, -1, np.int64)
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            around = balls(graph, reach, seen.destination[block])
            # One hop beside the destination everybody is at most one hop farther.
            beside = balls(graph, reach + 1, seen.last_hop[block])
            for place, row in enumerate(block):
                column = slice(columns.indptr[seen.destination[row]], columns.indptr[seen.destination[row] + 1])
                nodes = columns.indices[column]
                distances = [_hops_to(nodes, *found.of(place), hops) for found in (around, beside)]
                yield Candidates(int(row), nodes, normalised(columns.data[column]), distances[0], distances[1])
            progress(stage, start + len(block), len(rows), "updates")

    def _far_candidates(self, far: int, rows: IntArray) -> Iterator[Candidates]:
        """Everybody who is not too near the destination; who may draw whom is the same both ways."""
        scene, seen = self._scene, self._scene.seen.at(rows)
        weights = scene.scheme.source_prior / scene.law.n_choices
        around, beside = (distances(scene.graph, ends) for ends in (seen.destination, seen.last_hop))
        for place, row in enumerate(rows):
            nodes = np.flatnonzero(around[place] >= far)
            away, from_last_hop = (table[place, nodes].astype(np.int64) for table in (around, beside))
            yield Candidates(int(row), nodes, normalised(weights[nodes]), away, from_last_hop)


@dataclass(frozen=True, eq=False)
class _CorrectedCandidates(Local):
    """The prior of one update's candidates, corrected by class."""

    found: Candidates
    learnt: dict[bool, ClassCorrection]

    def posterior(self, seen: Sightings, *, use_last_hop: bool) -> Posterior:
        """Return the corrected prior."""
        correction = self.learnt[use_last_hop]
        classes = _classes(correction, self.found, seen.return_time, use_last_hop=use_last_hop)
        return Posterior(correction.corrected(classes, self.found.prior[np.newaxis], seen.return_time), HOW)


def _classes(correction: ClassCorrection, found: Candidates, time: IntArray, *, use_last_hop: bool) -> Classes:
    return correction.classes(time, found.away, found.from_last_hop[np.newaxis] if use_last_hop else None)


def _hops_to(nodes: IntArray, near: IntArray, away: IntArray, scratch: IntArray) -> IntArray:
    """Return how far ``nodes`` are, all being among ``near``."""
    scratch[near] = away
    return scratch[nodes]
