"""Reads return times at a destination: by exact laws, by the last hop of a plain walk, or by classes of candidates.

Exact: the joint law of return time, last hop and source follows from the chain of the walk. On larger graphs a sample
of destinations is attacked, to a horizon that takes a few minutes; longer return times are pooled.

By class, on graphs of any size: a class is how far a candidate is from the destination, and whether it is nearer to, as
far from, or farther from the neighbour the token came from. Calibration counts how often the true source falls into
each class in each return-time bin, against how often the prior puts it there; the quotient corrects the prior. Within a
class the prior stays: 4 to 17% of the hits are lost on five graphs (decision 5). There are no tables of all pairs. Laws
choose destinations a few hops away, so a search around the destination that stops at the end of the support reaches
every node that could have sealed an update. Under a far law the candidates are all nodes but the near ones: all nodes
are searched, for fewer updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from veilwalk.audit._knowledge import Evidence, Inference, Knowledge, Posterior, Timing, source_flows
from veilwalk.audit._play import Sightings
from veilwalk.audit._settings import EXACT, SAMPLED_DESTINATIONS, SCORED_BY_FEW, Plan
from veilwalk.chains import DeliveryLaw
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.progress import Progress
from veilwalk.core.sizes import SAMPLED_EXACT_NODES
from veilwalk.core.stats import quantile_edges
from veilwalk.graphs import balls, distances

# By class.
_MOST_BINS = 40
_UPDATES_PER_BIN = 2000
_RELATIONS = 3
# Weight of the prior in every class, as a number of updates: a handful of updates must not overrule it.
_TRUST = 20.0
_BLOCK = 2_000
# Candidates of all updates together, under a far law: some minutes.
_FAR_CANDIDATES = 200_000_000
# Candidates whose distances are held at once.
_FAR_BLOCK = 4_000_000


def last_hop_joint(delivery: DeliveryLaw, return_time: IntArray, last_hop: IntArray) -> FloatArray:
    """Return P(return time, last hop, source) for each sighting at one destination; times past the horizon pooled."""
    entry, inside = np.searchsorted(delivery.neighbours, last_hop), return_time < len(delivery.joint)
    rows = delivery.joint[np.where(inside, return_time, 0), entry]
    return np.where(inside[:, np.newaxis], rows, delivery.beyond[entry])


@dataclass(frozen=True, eq=False)
class LawTiming(Timing):
    """Reads a delivery law at its destination; return times past its horizon are pooled."""

    delivery: DeliveryLaw
    n_nodes: int
    how: str = EXACT

    def posterior(self, sightings: Sightings, *, use_last_hop: bool) -> Posterior:
        """Return the law's posterior."""
        law = self.delivery
        if use_last_hop:
            weight = last_hop_joint(law, sightings.return_time, sightings.last_hop)
        else:
            table = np.concatenate((law.joint.sum(axis=1), law.beyond.sum(axis=0)[np.newaxis]))
            weight = table[np.minimum(sightings.return_time, len(law.joint))]
        full = np.zeros((len(weight), self.n_nodes))
        full[:, law.sources] = normalised(weight)
        return Posterior(full, self.how)

    def evidence(self, sightings: Sightings) -> Evidence:
        """Return the law's sources and the joint probabilities."""
        weights = last_hop_joint(self.delivery, sightings.return_time, sightings.last_hop)
        return Evidence(self.delivery.sources, weights, self.how)


class Exact(Inference):
    """Reads return times by exact laws from the chain of the walk, on nodes or on arcs."""

    name = EXACT

    def unsupported_reason(self, plan: Plan) -> str | None:
        """Exact laws need one recipient and a graph that is not too large."""
        if not plan.scheme.has_exact_law:
            return f"exact laws exist for one recipient, the scheme seals for {plan.scheme.recipients}"
        n_nodes, most = plan.scheme.graph.n_nodes, plan.settings.exact_nodes
        most = most if plan.without_node_chain else max(most, SAMPLED_EXACT_NODES)
        if n_nodes > most:
            return f"exact laws take up to {most} nodes with the {plan.scheme.walk.kind} walk, the graph has {n_nodes}"
        return None

    def fit(self, knowledge: Knowledge) -> None:
        """Remember the scheme; laws are computed one destination at a time."""
        self._knowledge, self._how, plan = knowledge, EXACT, knowledge.plan
        if plan.samples_destinations:
            most = SAMPLED_DESTINATIONS
            self._how = (
                f"exact at up to {most} destinations, with all return times above {plan.horizon:,} hops taken as one"
            )

    def iter_timings(self, nodes: IntArray) -> Iterator[Timing]:
        """Yield the exact law at each destination; one is in memory at a time."""
        knowledge = self._knowledge
        for delivery in knowledge.scheme.chain.deliveries(knowledge.matrix, knowledge.plan.horizon, nodes):
            yield LawTiming(delivery, knowledge.graph.n_nodes, self._how)


@dataclass(frozen=True, eq=False)
class PlainTiming(Timing):
    """Names the last hop with certainty, over the given candidates."""

    candidates: IntArray

    def posterior(self, sightings: Sightings, *, use_last_hop: bool) -> Posterior:
        """Return certainty on the last hop; a plain walk has no return time to read."""
        del use_last_hop
        weights = (self.candidates == sightings.last_hop[:, np.newaxis]).astype(np.float64)
        return Posterior(weights, "exact: the neighbour it came from is the source")


class PlainInference(Inference):
    """Serves the plain walk, which seals nothing: there is nothing to fit."""

    name = EXACT

    def unsupported_reason(self, plan: Plan) -> str | None:
        """No other inference serves a plain walk."""
        return None if plan.posterior == self.name else "the receiver of a plain walk knows the sender"

    def fit(self, knowledge: Knowledge) -> None:
        """Remember the nodes."""
        self._nodes = np.arange(knowledge.graph.n_nodes)

    def iter_timings(self, nodes: IntArray) -> Iterator[Timing]:
        """Yield the same everywhere."""
        return (PlainTiming(self._nodes) for _ in nodes)


@dataclass(frozen=True, eq=False)
class Candidates:
    """The possible sources of one update, their prior, and their distances from the destination and its last hop."""

    row: int
    nodes: IntArray
    prior: FloatArray
    away: IntArray
    from_last_hop: IntArray


class ClassCorrection:
    """Counts by return-time bin and class of candidate, and the corrections that follow."""

    def __init__(self, return_times: IntArray, farthest: int, *, use_last_hop: bool) -> None:
        """Cut ``return_times`` of the training updates into bins; no candidate is farther off than ``farthest``."""
        n_bins = min(_MOST_BINS, 1 + len(return_times) // _UPDATES_PER_BIN)
        self._edges = quantile_edges(return_times, np.linspace(0, 1, n_bins + 1)[1:-1])
        shape = (len(self._edges) + 1, farthest + 1, _RELATIONS)
        self._won, self._expected = np.zeros(shape), np.zeros(shape)
        self._use_last_hop = use_last_hop

    def _find_classes(self, candidates: Candidates, return_time: int) -> tuple[IntArray, IntArray, IntArray]:
        """Return bin, distance and relation of the candidates of one update."""
        away = candidates.away
        bins = np.searchsorted(self._edges, np.full(len(away), return_time))
        # 0, 1 or 2: nearer to, as far from, or farther from the last hop than from the destination.
        relation = np.clip(candidates.from_last_hop - away, -1, 1) + 1 if self._use_last_hop else np.zeros_like(away)
        return bins, away, relation

    def count(self, candidates: Candidates, return_time: int, source: int) -> None:
        """Add one update for calibration, with its source."""
        classes, true = self._find_classes(candidates, return_time), np.searchsorted(candidates.nodes, source)
        np.add.at(self._expected, classes, candidates.prior)
        self._won[tuple(index[true] for index in classes)] += 1.0

    def correct(self, candidates: Candidates, return_time: int) -> FloatArray:
        """Return the corrected prior; candidates farther than half the return time get exactly zero."""
        classes = self._find_classes(candidates, return_time)
        quotient = (self._won[classes] + _TRUST) / (self._expected[classes] + _TRUST)
        return normalised(np.where(2 * candidates.away <= return_time, candidates.prior * quotient, 0.0))


class CandidateSearch:
    """Looks up the candidates of updates one by one, and corrects their prior by classes."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._knowledge = knowledge
        self._corrections: dict[bool, ClassCorrection] = {}

    def calibrate(self, rows: IntArray, uses: Sequence[bool], progress: Progress) -> None:
        """Count classes on the updates ``rows``, for observers that use the last hop or do not."""
        knowledge = self._knowledge
        times, farthest = knowledge.sightings.return_time, knowledge.support.hi
        self._corrections = {use: ClassCorrection(times[rows], farthest, use_last_hop=use) for use in uses}
        for candidates in self.iter_candidates(rows, "calibrating", progress):
            source = knowledge.grants.calibration_sources[candidates.row]
            for correction in self._corrections.values():
                correction.count(candidates, times[candidates.row], source)

    def timing(self, candidates: Candidates) -> Timing:
        """Return what the return time says of the candidates of one update."""
        if self._knowledge.scheme.is_direct:
            return PlainTiming(candidates.nodes)
        return _ClassTiming(candidates, self._corrections)

    @property
    def most_updates(self) -> int:
        """How many updates are attacked: as the settings say, fewer where all nodes are candidates."""
        fewer = max(_FAR_CANDIDATES // self._knowledge.graph.n_nodes, 1)
        return SCORED_BY_FEW if self._knowledge.law.far is None else min(SCORED_BY_FEW, fewer)

    def iter_candidates(self, rows: IntArray, stage: str, progress: Progress) -> Iterator[Candidates]:
        """Yield the candidates of each update in ``rows``."""
        if self._knowledge.law.far is not None:
            size = max(_FAR_BLOCK // self._knowledge.graph.n_nodes, 1)
            for start in range(0, len(rows), size):
                yield from self._far_candidates(self._knowledge.law.far, rows[start : start + size])
                progress(stage, min(start + size, len(rows)), len(rows), "updates")
            return
        knowledge, graph = self._knowledge, self._knowledge.graph
        sightings, reach = knowledge.sightings, knowledge.support.hi
        columns = source_flows(knowledge.scheme).tocsc()
        columns.sort_indices()
        hops = np.full(graph.n_nodes, -1, np.int64)
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            around = balls(graph, reach, sightings.destination[block])
            # From a neighbour of the destination all nodes are at most one hop farther.
            beside = balls(graph, reach + 1, sightings.last_hop[block])
            for place, row in enumerate(block):
                destination = sightings.destination[row]
                column = slice(columns.indptr[destination], columns.indptr[destination + 1])
                nodes = columns.indices[column]
                away, from_last_hop = (_lookup_hops(nodes, *ball.row(place), hops) for ball in (around, beside))
                yield Candidates(int(row), nodes, normalised(columns.data[column]), away, from_last_hop)
            progress(stage, start + len(block), len(rows), "updates")

    def _far_candidates(self, far: int, rows: IntArray) -> Iterator[Candidates]:
        """Yield all nodes that are not too near the destination; far laws are symmetric."""
        knowledge, sightings = self._knowledge, self._knowledge.sightings.take(rows)
        weights = knowledge.scheme.source_prior / knowledge.law.n_choices
        around, beside = (distances(knowledge.graph, ends) for ends in (sightings.destination, sightings.last_hop))
        for place, row in enumerate(rows):
            nodes = np.flatnonzero(around[place] >= far)
            away, from_last_hop = (table[place, nodes].astype(np.int64) for table in (around, beside))
            yield Candidates(int(row), nodes, normalised(weights[nodes]), away, from_last_hop)


@dataclass(frozen=True, eq=False)
class _ClassTiming(Timing):
    """The prior of one update's candidates, corrected by class."""

    candidates: Candidates
    corrections: dict[bool, ClassCorrection]

    def posterior(self, sightings: Sightings, *, use_last_hop: bool) -> Posterior:
        """Return the corrected prior."""
        (return_time,) = sightings.return_time
        weights = self.corrections[use_last_hop].correct(self.candidates, return_time)
        return Posterior(weights[np.newaxis], "by-class: calibrated on half of the lanes, scored on the others")


def _lookup_hops(nodes: IntArray, near: IntArray, away: IntArray, scratch: IntArray) -> IntArray:
    """Return the distances of ``nodes``, which are all among ``near``."""
    scratch[near] = away
    return scratch[nodes]
