"""Estimates posteriors from walks that the observer simulates itself.

An observer that knows graph, law and kind of walk plays tokens of its own and counts what it would see. That needs no
chain, so it serves any walk. Tokens are followed over every hop, and each event is counted with its probability given
the path (``_kernels_paths``), so that one hop says as much as many played updates. Nothing comes from the attacked run.

Return-time posteriors are the prior times a likelihood by classes of candidates. A class is the distance of a candidate
from the destination, and whether it is nearer to, as far from, or farther from the last hop. Return times have fine
bins, the finest where they are short. Each candidate is also counted by itself: in each bin of short return times,
where the cycles near a destination decide, and in all longer ones together. Its own estimate is shrunk to its class;
the weight is the agreement of two halves of the rehearsal. Against exact posteriors 1 to 9% of the hits are lost on
five graphs, most on the tree (decision 5).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from veilwalk.audit._kernels_paths import follow_updates, tally_deliveries, tally_sights, weigh_path
from veilwalk.audit._knowledge import Evidence, Inference, Knowledge, Posterior, Timing
from veilwalk.audit._play import Sightings
from veilwalk.audit._settings import REHEARSED
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray, normalised
from veilwalk.core.progress import Progress
from veilwalk.core.randomness import task_generator
from veilwalk.core.stats import quantile_edges
from veilwalk.core.walk import Walk
from veilwalk.design import Scheme
from veilwalk.engine import iter_jobs
from veilwalk.graphs import Graph
from veilwalk.walks import token_paths
from veilwalk.walks.compiled import build_law_tables

# A stream of its own: simulated tokens are not those that are attacked.
_REHEARSAL_TASK = 0x72656865
# Hops in all cost no more than so many multiplications, unless those are very few hops.
_WORK = 25_000_000_000
_FEWEST_HOPS = 4_000_000
# A lane is long enough to forget how it began and to pass every node many times.
_WARM_PER_NODE, _HOPS_PER_NODE = 20, 200
_FEWEST_LANES, _HOPS_AT_ONCE = 8, 1_000_000
# A ciphertext is followed for so many legs, twice, until hardly a set would have left it unopened.
_FOLLOWED_LEGS = 2 * 18
#: Less than this of a ciphertext, still unopened, is given up in a rehearsal.
_NEGLIGIBLE = 1e-8
# The prior has the weight of so many visits in every table of counts.
_TRUSTED_VISITS = 20
# Distances that openings of colluders are counted by.
_DISTANCES = 12
_SHORT = np.geomspace(1e-4, 0.1, 50)
_LONG = np.linspace(0.11, 0.995, 50)
_RELATIONS = 3
# Candidates are counted one by one in as many bins as this allows.
_COUNTED_BYTES = 512 << 20
# Bytes of a path and of its state, a hop; and of paths that are followed at once.
_HOP_BYTES, _PATH_BYTES = 20, 256 << 20


class SetLaw(NamedTuple):
    """The law of the set of recipients, as kernels read it: tables of ``walks.LawTables``, without alias tables.

    ``chances`` are the probabilities of ``columns``. ``weights`` is the law by columns: ``weights[j, i]`` is the
    probability that i, drawing one, draws j; it is empty where there is no table.
    """

    offsets: IntArray
    columns: IntArray
    chances: FloatArray
    eligible: IntArray
    even: BoolArray
    pace: FloatArray
    slope: FloatArray
    weights: FloatArray
    recipients: int

    @classmethod
    def from_scheme(cls, scheme: Scheme, *, has_table: bool = True) -> SetLaw:
        """Return the law of a scheme."""
        rows = build_law_tables(scheme.graph, scheme.law.rows, scheme.recipients)
        tables: tuple[Any, ...] = rows[:3] + rows[5:]
        weights = np.ascontiguousarray(scheme.law.matrix.toarray().T) if has_table else np.empty((0, 0))
        # Copies of one type for every scheme: kernels are compiled once.
        return cls._make([*map(np.array, tables), weights, scheme.recipients])


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """Counts on simulated walks: deliveries and first sights, where the plan needs them."""

    deliveries: DeliveryCounts | None
    sights: SightCounts | None


def simulate_rehearsal(
    knowledge: Knowledge, *, deliveries: bool, sights: bool, progress: Progress, executor: Executor | None = None
) -> Rehearsal:
    """Simulate tokens of the scheme and count deliveries, first sights, or both, a few lanes at a time.

    Lanes are walked and followed as jobs, and counted here in their order: sums have the same bits on any executor.
    """
    graph, settings = knowledge.graph, knowledge.settings
    law = SetLaw.from_scheme(knowledge.scheme)
    rehearsal = Rehearsal(
        DeliveryCounts(knowledge, law) if deliveries else None, SightCounts(knowledge) if sights else None
    )
    affordable = _WORK / (_FOLLOWED_LEGS * knowledge.scheme.openings.hops)
    hops = int(min(max(affordable, _FEWEST_HOPS), settings.rehearsed_hops * graph.n_nodes))
    warm, lane_hops = _WARM_PER_NODE * graph.n_nodes, (_WARM_PER_NODE + _HOPS_PER_NODE) * graph.n_nodes
    n_lanes, at_once = max(_FEWEST_LANES, hops // lane_hops), max(_FEWEST_LANES, _HOPS_AT_ONCE // lane_hops)
    seed = int(task_generator(settings.seed, _REHEARSAL_TASK).integers(1 << 63))
    jobs = [[first, min(at_once, n_lanes - first), lane_hops] for first in range(0, n_lanes, at_once)]
    followed = (law, knowledge.is_colluder, knowledge.pair_distances.astype(np.int64)) if sights else None
    common = (graph, knowledge.scheme.walk, seed, followed)
    batches = iter_jobs(_walk_job, jobs, common=common, executor=executor, stage="rehearsing", progress=progress)
    for paths, updates, openers in batches:
        if rehearsal.deliveries is not None:
            rehearsal.deliveries.add(paths, warm)
        if rehearsal.sights is not None:
            rehearsal.sights.add(paths, warm, updates, openers)
    return rehearsal


def _walk_job(
    graph: Graph, walk: Walk, seed: int, followed: tuple[SetLaw, BoolArray, IntArray] | None, job: list[int]
) -> tuple[IntArray, FloatArray | None, FloatArray | None]:
    """Walk the lanes of one job (the first, how many, and how far), and follow their updates where that is needed."""
    first, lanes, hops = job
    paths = token_paths(graph, hops=hops, lanes=lanes, seed=seed, walk=walk, first_lane=first)
    return paths, *((None, None) if followed is None else follow_paths(paths, *followed))


def follow_paths(
    paths: IntArray,
    law: SetLaw,
    is_colluder: BoolArray,
    pair_distances: IntArray | None = None,
    *,
    least: float = _NEGLIGIBLE,
) -> tuple[FloatArray, FloatArray]:
    """Return ``updates`` and ``openers`` along paths (``_kernels_paths``); openers where distances are given."""
    updates = np.empty((len(paths), 2, paths.shape[1]))
    openers = np.zeros((0 if pair_distances is None else len(paths), _DISTANCES, _DISTANCES, _DISTANCES))
    table = np.zeros((0, 0), dtype=np.int64) if pair_distances is None else pair_distances
    follow_updates(paths, law, least, is_colluder, table, updates, openers)
    return updates, openers.sum(axis=0)


class DeliveryCounts:
    """Counts of deliveries by return-time bin and class, and the posteriors that follow."""

    def __init__(self, knowledge: Knowledge, law: SetLaw) -> None:
        """Cut the return times that were seen into bins; only deliveries to attacked nodes count."""
        graph, return_times = knowledge.graph, knowledge.sightings.return_time
        self._law, self._graph, self._prior = law, graph, knowledge.prior
        self._distances = knowledge.pair_distances.astype(np.int64)
        self._edges = quantile_edges(return_times, (*_SHORT, *_LONG))
        heads = np.repeat(np.arange(graph.n_nodes), graph.degrees)
        self._arcs = np.flatnonzero(knowledge.attacked[heads])
        self._arc_of = np.full(len(heads), -1)
        self._arc_of[self._arcs] = np.arange(len(self._arcs))
        self._heads = heads[self._arcs]
        self._source_mass = np.zeros((len(self._edges) + 1, int(self._distances.max()) + 1, _RELATIONS))
        self._mass = np.zeros((len(self._edges) + 1, len(self._arcs)))
        self._visits = np.zeros(len(self._edges) + 1)
        n_short = int(np.searchsorted(self._edges, np.quantile(return_times, _SHORT[-1]), side="right"))
        n_short = min(n_short, _COUNTED_BYTES // (16 * graph.n_nodes * max(len(self._arcs), 1)))
        self._short = self._edges[:n_short]
        # A half for every other lane.
        self._counted = np.zeros((2, n_short + 1, len(self._arcs), graph.n_nodes))
        self._counted_visits = np.zeros((2, n_short + 1, len(self._arcs)))
        self._quotients: dict[bool, FloatArray] = {}
        self._visits_needed: dict[bool, FloatArray] = {}

    def add(self, paths: IntArray, warm: int) -> None:
        """Count the deliveries that may have happened on these paths after hop ``warm``."""
        totals = (self._source_mass, self._mass, self._visits)
        halves: list[Any] = [np.zeros((2, *table.shape)) for table in totals]
        arcs = (self._distances, self._graph.indptr, self._graph.indices, self._arc_of)
        counted = (*halves, self._counted, self._counted_visits)
        tally_deliveries(paths, self._law, _NEGLIGIBLE, *arcs, self._edges, len(self._short), warm, *counted)
        for total, half in zip(totals, halves, strict=True):
            np.add(total, half.sum(axis=0), out=total)

    def settle(self) -> DeliveryCounts:
        """Compute the likelihoods of classes from the counts; ``posterior`` needs them."""
        for use_last_hop in (False, True):
            self._quotients[use_last_hop] = self._quotient(use_last_hop=use_last_hop)
            self._visits_needed[use_last_hop] = self._count_needed_visits(use_last_hop=use_last_hop)
        return self

    def posterior(self, destination: int, sightings: Sightings, *, use_last_hop: bool) -> FloatArray:
        """Return posteriors; nodes farther than half the return time get exactly zero."""
        bins = np.searchsorted(self._edges, sightings.return_time)
        weights = self._by_class(destination, bins, sightings.last_hop, use_last_hop=use_last_hop)
        expected, counted, visits = self._counts(destination, use_last_hop=use_last_hop)
        excess = _ratio(counted.sum(axis=0), expected) - 1.0
        visited = visits.sum(axis=0)
        shrinkage = visited / np.maximum(visited + self._visits_needed[use_last_hop][:, np.newaxis], 1.0)
        entries = np.searchsorted(self._graph.neighbours(destination), sightings.last_hop) if use_last_hop else 0
        weights *= (1.0 + shrinkage[:, :, np.newaxis] * excess)[np.minimum(bins, len(self._short)), entries]
        possible = 2 * self._distances[destination] <= sightings.return_time[:, np.newaxis]
        return normalised(np.where(possible, weights, 0.0))

    def mean_posterior(self, destination: int) -> FloatArray:
        """Return the mean posterior there, over everything that was counted.

        A sighting's evidence is its posterior over this mean. Over an estimated prior, the difference of the two would
        be counted again with every sighting.
        """
        arcs = np.flatnonzero(self._heads == destination)
        times = np.append(self._edges, self._edges[-1] + 1) if len(self._edges) else np.ones(1, dtype=np.int64)
        bins, entries = (index.ravel() for index in np.indices((len(times), len(arcs))))
        sightings = Sightings.empty(
            len(bins), return_time=times[bins], last_hop=self._graph.indices[self._arcs[arcs[entries]]].astype(np.int64)
        )
        return normalised(self._mass[bins, arcs[entries]] @ self.posterior(destination, sightings, use_last_hop=True))

    def _by_class(self, destination: int, bins: IntArray, last_hops: IntArray, *, use_last_hop: bool) -> FloatArray:
        """Posteriors from prior and classes alone."""
        away = self._distances[destination]
        relation = np.clip(self._distances[last_hops] - away, -1, 1) + 1
        quotient = self._quotients[use_last_hop][bins[:, np.newaxis], away, relation]
        return normalised(self._prior[destination] * quotient)

    def _counts(self, destination: int, *, use_last_hop: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return expected counts by class [bin, entry, i], the counts of each half, and the number of visits.

        Without the last hop there is one entry, for all arcs.
        """
        arcs = slice(*np.searchsorted(self._heads, [destination, destination + 1]))
        counted, visits = self._counted[:, :, arcs], self._counted_visits[:, :, arcs]
        last_hops = self._graph.indices[self._arcs[arcs]]
        bins = np.repeat(np.arange(len(self._edges) + 1), len(last_hops))
        weights = self._by_class(destination, bins, np.tile(last_hops, len(self._edges) + 1), use_last_hop=use_last_hop)
        mass = self._mass[:, arcs]
        expected = weights.reshape(*mass.shape, -1) * mass[:, :, np.newaxis]
        n_short = len(self._short)
        expected = np.concatenate((expected[:n_short], expected[n_short:].sum(axis=0, keepdims=True)))
        if not use_last_hop:
            expected, counted = (table.sum(axis=-2, keepdims=True) for table in (expected, counted))
            visits = visits.sum(axis=-1, keepdims=True)
        return expected, counted, visits

    def _count_needed_visits(self, *, use_last_hop: bool) -> FloatArray:
        """Return, for each bin, the visits at which the counts of a candidate are half signal, half noise."""
        signal, both, visited, places = np.zeros((4, len(self._short) + 1))
        for destination in np.unique(self._heads):
            expected, counted, visits = self._counts(int(destination), use_last_hop=use_last_hop)
            first, other = (_ratio(half, expected) - 1.0 for half in counted)
            weight = np.where(visits.min(axis=0)[:, :, np.newaxis] > 0, _shares(expected), 0.0)
            signal += (weight * first * other).sum(axis=(1, 2))
            both += (weight * (first + other) ** 2 / 4).sum(axis=(1, 2))
            visited += visits.sum(axis=(0, 2))
            places += visits.shape[2]
        agreement = np.clip(np.divide(signal, both, out=np.zeros_like(signal), where=both > 0), 1e-6, 1.0)
        return np.asarray(visited / places * (1.0 - agreement) / agreement)

    def _quotient(self, *, use_last_hop: bool) -> FloatArray:
        """Return the likelihood ratio of each class against the prior, in each bin."""
        tables = np.zeros((len(self._arcs), self._source_mass.shape[1], _RELATIONS))
        for number, (arc, node) in enumerate(zip(self._arcs, self._heads, strict=True)):
            away = self._distances[node]
            relation = np.clip(self._distances[self._graph.indices[arc]] - away, -1, 1) + 1
            np.add.at(tables[number], (away, relation), self._prior[node])
        expected = np.tensordot(self._mass, tables, axes=1)
        won = self._source_mass
        if not use_last_hop:
            won, expected = (np.broadcast_to(x.sum(axis=2, keepdims=True), x.shape) for x in (won, expected))
        trust = _TRUSTED_VISITS / np.maximum(self._visits, 1.0)[:, np.newaxis, np.newaxis]
        ratio = np.divide(won, expected, out=np.ones_like(won), where=expected > 0)
        return np.asarray((ratio + trust) / (1.0 + trust))


def _shares(table: FloatArray) -> FloatArray:
    """Scale along the last axis to one; rows of zeros stay zero."""
    total = table.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(table, total, out=np.zeros_like(table), where=total > 0))


def _ratio(counted: FloatArray, expected: FloatArray) -> FloatArray:
    """Return how many times likelier a candidate is by its own counts than expected; 1 without counts."""
    own, by_class = _shares(counted), _shares(expected)
    known = (by_class > 0) & (counted.sum(axis=-1, keepdims=True) > 0)
    return np.asarray(np.divide(own, by_class, out=np.ones_like(own), where=known))


@dataclass(frozen=True, eq=False)
class _CountTiming(Timing):
    """Reads the counts at one destination."""

    node: int
    sources: IntArray
    counts: DeliveryCounts
    prior_is_exact: bool

    def posterior(self, sightings: Sightings, *, use_last_hop: bool) -> Posterior:
        """Return the rehearsed posterior."""
        weights = self.counts.posterior(self.node, sightings, use_last_hop=use_last_hop)
        return Posterior(weights, "estimated from simulated walks, by class")

    def evidence(self, sightings: Sightings) -> Evidence:
        """Return the sources that the prior allows, and their rehearsed posterior."""
        posterior = self.posterior(sightings, use_last_hop=True)
        prior = None if self.prior_is_exact else self.counts.mean_posterior(self.node)[self.sources]
        return Evidence(self.sources, posterior.weights[:, self.sources], posterior.how, prior)


class Rehearsed(Inference):
    """Reads return times by counts on simulated walks: it serves any walk."""

    name = REHEARSED

    def fit(self, knowledge: Knowledge) -> None:
        """Take the counts of the rehearsal."""
        if knowledge.rehearsal is None or knowledge.rehearsal.deliveries is None:
            raise TypeError("a rehearsal must count deliveries before it is fitted")
        self._counts, self._prior = knowledge.rehearsal.deliveries.settle(), knowledge.prior
        self._prior_is_exact = knowledge.scheme.has_exact_law

    def iter_timings(self, nodes: IntArray) -> Iterator[Timing]:
        """Yield the counts at each destination."""
        for node in nodes:
            yield _CountTiming(int(node), np.flatnonzero(self._prior[node] > 0), self._counts, self._prior_is_exact)


class SightCounts:
    """Counts of what colluders see first, and the posteriors that follow.

    A rehearsal counts how often a walk from node i meets the first colluder by a given arc, with its ciphertext
    unopened. Thin counts are shrunk to classes of nodes by distance. Which of the colluders opens what one of them has
    held depends on the source by the law, and on the other recipients on the way: that is counted by distances.
    """

    def __init__(self, knowledge: Knowledge) -> None:
        """Prepare for the scheme and its colluders."""
        graph, n_nodes = knowledge.graph, knowledge.graph.n_nodes
        self._graph, self._law = graph, knowledge.matrix
        self._distances = knowledge.pair_distances.astype(np.int64)
        self._free = ~knowledge.is_colluder
        legs = knowledge.scheme.source_prior[:, np.newaxis] * self._law
        self._prior = self._normalise(np.where(self._free, legs.T, 0.0))
        # Arcs from others into colluders; the entry at either end names them.
        self._heads = np.repeat(np.arange(n_nodes), graph.degrees)
        into = ~self._free[self._heads] & self._free[graph.indices]
        self._arcs = np.flatnonzero(into)
        self._arc_of = np.where(into, np.cumsum(into) - 1, -1)
        self._sights = np.zeros((2, len(self._arcs), n_nodes))
        self._openers = np.zeros((_DISTANCES, _DISTANCES, _DISTANCES))
        self._capped = np.minimum(self._distances, _DISTANCES - 1)
        self._hops = 0

    def add(self, paths: IntArray, warm: int, updates: FloatArray, openers: FloatArray) -> None:
        """Count the stretches between colluders on these paths after hop ``warm``, and the openings by colluders."""
        offsets, table = self._graph.indptr, self._graph.indices
        for path, own_updates in zip(paths, updates, strict=True):
            tally_sights(path, own_updates, ~self._free, offsets, table, self._arc_of, warm, self._sights)
        self._hops += len(paths) * (paths.shape[1] - warm)
        self._openers += openers

    def posterior(self, sightings: Sightings) -> Posterior:
        """Return the posterior; colluders get exactly zero."""
        first, last = sightings.first_sight_node, sightings.destination
        n_nodes, capped = self._graph.n_nodes, self._capped
        keys = self._heads * n_nodes + self._graph.indices
        into = self._arc_of[np.searchsorted(keys, first * n_nodes + sightings.first_sight_from)]
        opening = self._openings[capped[first], capped[first, last][:, np.newaxis], capped[last]]
        weight = self._prior[last] * self._first_sights[into] * opening
        return Posterior(self._normalise(weight), "estimated from simulated walks")

    def _normalise(self, weights: FloatArray) -> FloatArray:
        """Return rows of weights that sum to 1; a row without any is even over all who are no colluders.

        On a small network all who seal for a node may be colluders, and a sight may be one that no walk counted.
        """
        empty = weights.sum(axis=1, keepdims=True) == 0.0
        return normalised(np.where(empty, self._free.astype(np.float64), weights))

    @cached_property
    def _first_sights(self) -> FloatArray:
        """P(the first colluder is met by arc a | sealed by i), [a, i]; nodes have trust in their class.

        A class is how far a node is from the arc, and whether it is nearer to the colluder's end of it.
        """
        counts, totals = self._sights[0], self._sights[1].sum(axis=0)
        trust = _TRUSTED_VISITS * totals.sum() / max(self._hops, 1)
        totals = np.broadcast_to(totals, counts.shape)
        away = self._distances[self._graph.indices[self._arcs]]
        classes = 3 * away + np.clip(self._distances[self._heads[self._arcs]] - away, -1, 1) + 1
        won, expected = (
            np.bincount(classes[:, self._free].ravel(), table[:, self._free].ravel(), minlength=classes.max() + 1)
            for table in (counts, totals)
        )
        by_class = np.divide(won, expected, out=np.zeros_like(won), where=expected > 0)
        return np.asarray((counts + trust * by_class[classes]) / (totals + trust))

    @cached_property
    def _openings(self) -> FloatArray:
        """Openings by colluders over what the law expects of what they pass on, by distances (``openers``)."""
        expected = np.zeros_like(self._openers)
        members, heads = np.flatnonzero(~self._free), self._heads[self._arcs]
        for first in members:
            passed = self._sights[0][heads == first].sum(axis=0)
            for last in members:
                classes = (self._capped[first], self._capped[first, last], self._capped[last])
                np.add.at(expected, classes, np.where(self._free, passed * self._law[:, last], 0.0))
        # The scale has no effect: immediate and later openings are never weighed against each other.
        expected *= self._openers.sum() / max(expected.sum(), 1e-300)
        trust = _TRUSTED_VISITS * self._openers.sum() / max(self._hops, 1)
        return np.asarray((self._openers + trust) / (expected + trust))


def path_posterior(knowledge: Knowledge, rows: IntArray) -> Posterior:
    """Return the exact posterior given every hop of the token: each visit since it last left may be the sealing.

    The observer cannot look into a ciphertext, nor see where one ends and the next begins.
    """
    scheme, clocks, lanes = knowledge.scheme, knowledge.sightings.clock[rows], knowledge.grants.lane[rows]
    law, weights = SetLaw.from_scheme(scheme), np.zeros((len(rows), scheme.graph.n_nodes))
    at_once = max(1, _PATH_BYTES // (_HOP_BYTES * (int(clocks.max()) + 1)))
    for first in range(0, int(lanes.max()) + 1, at_once):
        part = slice(*np.searchsorted(lanes, (first, first + at_once)))
        if part.start == part.stop:
            continue
        n_lanes = int(lanes[part].max()) - first + 1
        paths = knowledge.replay_paths(first, n_lanes, hops=int(clocks[part].max()))
        first_row = np.searchsorted(lanes[part], first + np.arange(n_lanes + 1))
        least = 0.0 if scheme.has_exact_law else _NEGLIGIBLE
        weigh_path(paths, law, least, first_row, clocks[part], weights[part])
    return Posterior(normalised(weights), "exact: every hop is known")


def select_first_updates(lanes: IntArray, rows: IntArray, count: int) -> IntArray:
    """Return of ``rows``, ordered by lane and time, the first few of every lane: about ``count`` in all."""
    starts = np.flatnonzero(np.r_[True, np.diff(lanes[rows]) != 0])
    sizes = np.diff(np.r_[starts, len(rows)])
    place = np.arange(len(rows)) - np.repeat(starts, sizes)
    return rows[place < -(-count // len(starts))]
