"""Rehearsals: an observer that knows graph, law and kind of walk plays tokens of its own and counts what it would see.

That needs no chain, so any walk can be rehearsed. Tokens are followed over every hop, and what may happen at a hop is
counted with its probability given the path (see ``_kernels_paths``), so that one hop tells as much as many played
updates would. Nothing is taken from the run that is attacked.

Return-time posteriors are the exact prior times a likelihood by classes of candidates. A class is how far a candidate
is from the destination, and whether it is nearer to, as far from, or farther from the neighbour the token came from.
Return times are cut finely, most finely where they are short. Each candidate is also counted for itself: in each bin of
short return times, where the cycles near a destination decide, and in all longer ones together. What that says beyond
its class is believed as far as two halves of the rehearsal agree on it. Against exact posteriors 1 to 9% of the hits
are lost on five graphs, most on the tree (decision 5).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from veilwalk.audit._scene import Scene
from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference._base import Evidence, Inference, Local, Posterior
from veilwalk.audit.inference._kernels_paths import (
    follow,
    follow_sets,
    tally_candidates,
    tally_deliveries,
    tally_openings,
)
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray, normalised
from veilwalk.core.progress import Progress
from veilwalk.core.randomness import task_generator
from veilwalk.core.stats import quantile_bins, quantile_edges
from veilwalk.core.walk import Walk
from veilwalk.design import DestinationLaw, Scheme
from veilwalk.engine import iter_jobs
from veilwalk.graphs import Graph
from veilwalk.walks import token_paths

# A stream of its own: the tokens that are rehearsed are not those that are attacked.
_REHEARSAL_TASK = 0x72656865
# Hops in all cost no more than so many multiplications, unless those are very few hops.
_WORK = 10_000_000_000
_FEWEST_HOPS = 4_000_000
# A lane is long enough to forget how it began and to pass every node many times.
_WARM_PER_NODE, _HOPS_PER_NODE = 20, 200
_FEWEST_LANES, _HOPS_AT_ONCE = 8, 1_000_000
# What is sealed for several is followed for so many legs, twice, until hardly a set would have left it unopened.
_FOLLOWED_LEGS = 2 * 18
# More of those: what tells sources apart is smaller, and joined sightings add up the noise.
_SEVERAL_WORK = 25_000_000_000
#: The weight of so many visits is granted to what is known beforehand, in every table of counts.
TRUSTED_VISITS = 20
#: Distances that are told apart of who opens what colluders saw.
TOLD_DISTANCES = 12
_SHORT = np.geomspace(1e-4, 0.1, 50)
_LONG = np.linspace(0.11, 0.995, 50)
_RELATIONS = 3
# In so many bins as this allows candidates are counted for themselves.
_COUNTED_BYTES = 512 << 20
# A visit costs its return time to weigh: every so-manieth will do.
_STRIDE = 16


@dataclass(frozen=True, eq=False)
class Sets:
    """The law of the set of recipients, as ``_kernels_paths`` reads it.

    Attributes:
        recipients: How many there are.
        weights: The law by columns: ``weights[j, i]`` is the probability that i, drawing one, draws j.
        eligible: How many each node may choose from.
        even: Whether it chooses evenly among them.
        pace: Of uneven rows, see ``walks.SetRows``.
        slope: And this too.
    """

    recipients: int
    weights: FloatArray
    eligible: IntArray
    even: BoolArray
    pace: FloatArray
    slope: FloatArray

    @classmethod
    def of(cls, scheme: Scheme) -> Sets | None:
        """Return those of a scheme; None where there is one recipient, and nothing to sum out."""
        if scheme.recipients == 1:
            return None
        from veilwalk.walks.compiled import set_rows

        rows = set_rows(scheme.graph, scheme.law.rows, scheme.recipients)
        weights = np.ascontiguousarray(scheme.law.matrix.toarray().T)
        return cls(scheme.recipients, weights, *rows.followed_by())

    def arguments(self) -> tuple[FloatArray, IntArray, BoolArray, FloatArray, FloatArray, int]:
        """Return the arrays in the order in which kernels take them."""
        return self.weights, self.eligible, self.even, self.pace, self.slope, self.recipients


@dataclass(frozen=True, eq=False)
class Lanes:
    """Some lanes, walked and followed; hops before ``warm`` still know how the lane began.

    Where there are several recipients, ``made`` and ``openers`` are those of ``_kernels_paths.follow_sets``; else
    ``openers`` is empty.
    """

    paths: IntArray
    made: FloatArray
    warm: int
    openers: FloatArray


def rehearse(scene: Scene, progress: Progress, executor: Executor | None = None) -> None:
    """Play tokens of the scheme and let every counter of the scene see them, a few lanes at a time.

    Lanes are walked and followed as jobs, and counted here.
    """
    if not scene.counters:
        return
    graph, walk, settings = scene.graph, scene.scheme.walk, scene.settings
    hops = int(min(max(_affordable_hops(scene), _FEWEST_HOPS), settings.rehearsed_hops * graph.n_nodes))
    lane_hops = (_WARM_PER_NODE + _HOPS_PER_NODE) * graph.n_nodes
    n_lanes, at_once = max(_FEWEST_LANES, hops // lane_hops), max(_FEWEST_LANES, _HOPS_AT_ONCE // lane_hops)
    member = colluder_numbers(graph.n_nodes, scene.colluders)
    sets = sets_of(scene)
    seed = int(task_generator(settings.seed, _REHEARSAL_TASK).integers(1 << 63))
    jobs = [[first, min(at_once, n_lanes - first), lane_hops] for first in range(0, n_lanes, at_once)]
    script = _Script(graph, walk, seed, scene.law, sets, member, None if sets is None else scene.apart)
    followed = iter_jobs(_followed, jobs, common=(script,), executor=executor, stage="rehearsing", progress=progress)
    # Counted in the order of the lanes, so that sums have the same bits wherever they were followed.
    for paths, made, openers in followed:
        for counter in scene.counters:
            counter.add(Lanes(paths, made, _WARM_PER_NODE * graph.n_nodes, openers))


@dataclass(frozen=True, eq=False)
class _Script:
    """What is needed to rehearse, wherever that is done."""

    graph: Graph
    walk: Walk
    seed: int
    law: DestinationLaw
    sets: Sets | None
    member: IntArray
    apart: IntArray | None


def _followed(script: _Script, job: list[int]) -> tuple[IntArray, FloatArray, FloatArray]:
    """Walk and follow the lanes of one job: the first, how many, and how far."""
    first, lanes, hops = job
    paths = token_paths(script.graph, hops=hops, lanes=lanes, seed=script.seed, walk=script.walk, first_lane=first)
    if script.sets is None:
        return paths, follow_paths(paths, script.law), np.zeros((0, 0, 0))
    return paths, *follow_sealed(paths, script.sets, script.member, script.apart)


def sets_of(scene: Scene) -> Sets | None:
    """Return the law of sets of a scene, the same for all who ask; None where there is one recipient."""
    return scene.once(Sets, lambda: Sets.of(scene.scheme))


def _affordable_hops(scene: Scene) -> float:
    """Return the hops that cost no more than the work allowed.

    A hop multiplies a row of the law, and colluders count; of several recipients it goes over all that may be unopened.
    """
    if scene.scheme.recipients > 1:
        return _SEVERAL_WORK / (_FOLLOWED_LEGS * scene.scheme.openings.hops)
    return _WORK / (scene.law.matrix.nnz / scene.graph.n_nodes + len(scene.colluders))


def follow_sealed(
    paths: IntArray, sets: Sets, member: IntArray, apart: IntArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return ``made`` and, where distances are given, ``openers`` of :func:`_kernels_paths.follow_sets`."""
    made = np.empty((len(paths), 2, paths.shape[1]))
    counts = 0 if apart is None else len(paths)
    openers = np.zeros((counts, TOLD_DISTANCES, TOLD_DISTANCES, TOLD_DISTANCES))
    distances = np.zeros((0, 0), dtype=np.int64) if apart is None else apart.astype(np.int64)
    follow_sets(paths, *sets.arguments(), member, distances, made, openers)
    return made, openers.sum(axis=0)


def follow_paths(paths: IntArray, law: DestinationLaw) -> FloatArray:
    """Return ``made`` of :func:`_kernels_paths.follow`."""
    rows = law.matrix
    made = np.empty((len(paths), 1, paths.shape[1]))
    follow(paths, rows.indptr, rows.indices, rows.data, made)
    return made


def colluder_numbers(n_nodes: int, colluders: IntArray) -> IntArray:
    """Return the number of each colluder, -1 for all other nodes."""
    member = np.full(n_nodes, -1)
    member[colluders] = np.arange(len(colluders))
    return member


class RehearsedDeliveries:
    """Counts of deliveries by return-time bin and class, and the posteriors that follow."""

    def __init__(
        self,
        graph: Graph,
        law: FloatArray,
        prior: FloatArray,
        *,
        apart: IntArray,
        attacked: BoolArray,
        return_times: IntArray,
        sets: Sets | None = None,
    ) -> None:
        """Cut ``return_times``, those that were seen, into bins; only deliveries to ``attacked`` nodes count."""
        self._sets = sets
        self._graph, self._prior, self._apart = graph, prior, apart.astype(np.int64)
        self._columns = np.ascontiguousarray(law.T)
        self._edges = quantile_edges(return_times, (*_SHORT, *_LONG))
        heads = np.repeat(np.arange(graph.n_nodes), graph.degrees)
        self._arcs = np.flatnonzero(attacked[heads])
        self._arc_of = np.full(len(heads), -1)
        self._arc_of[self._arcs] = np.arange(len(self._arcs))
        self._heads = heads[self._arcs]
        self._won = np.zeros((len(self._edges) + 1, int(apart.max()) + 1, _RELATIONS))
        self._mass = np.zeros((len(self._edges) + 1, len(self._arcs)))
        self._visits = np.zeros(len(self._edges) + 1)
        n_short = int(np.searchsorted(self._edges, np.quantile(return_times, _SHORT[-1]), side="right"))
        n_short = min(n_short, _COUNTED_BYTES // (16 * graph.n_nodes * max(len(self._arcs), 1)))
        self._short = self._edges[:n_short]
        # Of every other lane in turn.
        self._counted = np.zeros((2, n_short + 1, len(self._arcs), graph.n_nodes))
        self._counted_visits = np.zeros((2, n_short + 1, len(self._arcs)))
        self._lanes = 0
        self._quotients: dict[bool, FloatArray] = {}
        self._needed: dict[bool, FloatArray] = {}

    def add(self, lanes: Lanes) -> None:
        """Count the deliveries that may have happened on these lanes."""
        if self._sets is not None:
            self._add_openings(lanes, self._sets)
            return
        won = np.zeros((len(lanes.paths), *self._won.shape))
        mass = np.zeros((len(lanes.paths), *self._mass.shape))
        visits = np.zeros((len(lanes.paths), len(self._visits)))
        tally_deliveries(
            lanes.paths,
            lanes.made,
            self._columns,
            self._apart,
            self._graph.indptr,
            self._graph.indices,
            self._arc_of,
            self._edges,
            lanes.warm,
            _STRIDE,
            won,
            mass,
            visits,
        )
        self._won += won.sum(axis=0)
        self._mass += mass.sum(axis=0)
        self._visits += visits.sum(axis=0)
        for path, made in zip(lanes.paths, lanes.made, strict=True):
            half, self._lanes = self._lanes % 2, self._lanes + 1
            tally_candidates(
                path,
                made,
                self._columns,
                self._graph.indptr,
                self._graph.indices,
                self._arc_of,
                self._short,
                lanes.warm,
                _STRIDE,
                self._counted[half],
                self._counted_visits[half],
            )

    def _add_openings(self, lanes: Lanes, sets: Sets) -> None:
        """The same where there are several recipients."""
        won, mass, visits = (np.zeros((2, *table.shape)) for table in (self._won, self._mass, self._visits))
        tally_openings(
            lanes.paths,
            lanes.made,
            *sets.arguments(),
            self._apart,
            self._graph.indptr,
            self._graph.indices,
            self._arc_of,
            self._edges,
            len(self._short),
            lanes.warm,
            won,
            mass,
            visits,
            self._counted,
            self._counted_visits,
        )
        self._won += won.sum(axis=0)
        self._mass += mass.sum(axis=0)
        self._visits += visits.sum(axis=0)

    def posterior(self, destination: int, seen: Sightings, *, use_last_hop: bool) -> FloatArray:
        """Return posteriors; nodes farther than half the return time get exactly zero."""
        if use_last_hop not in self._quotients:
            self._quotients[use_last_hop] = self._quotient(use_last_hop=use_last_hop)
            self._needed[use_last_hop] = self._visits_needed(use_last_hop=use_last_hop)
        bins = quantile_bins(self._edges, seen.return_time)
        guess = self._by_class(destination, bins, seen.last_hop, use_last_hop=use_last_hop)
        expected, counted, visits = self._counts(destination, use_last_hop=use_last_hop)
        beyond = _ratio(counted.sum(axis=0), expected) - 1.0
        made = visits.sum(axis=0)
        belief = made / np.maximum(made + self._needed[use_last_hop][:, np.newaxis], 1.0)
        entries = np.searchsorted(self._graph.neighbours(destination), seen.last_hop) if use_last_hop else 0
        guess *= (1.0 + belief[:, :, np.newaxis] * beyond)[np.minimum(bins, len(self._short)), entries]
        return normalised(np.where(2 * self._apart[destination] <= seen.return_time[:, np.newaxis], guess, 0.0))

    def mean_posterior(self, destination: int) -> FloatArray | None:
        """Return the mean of what is inferred there, over all that was counted; None where the prior is exact.

        Of several recipients the prior is estimated too. A sighting's evidence is its posterior over this mean: over
        another prior, whatever they differ by would be counted again with every sighting.
        """
        if self._sets is None:
            return None
        arcs = np.flatnonzero(self._heads == destination)
        times = np.append(self._edges, self._edges[-1] + 1) if len(self._edges) else np.ones(1, dtype=np.int64)
        bins, entries = (part.ravel() for part in np.indices((len(times), len(arcs))))
        seen = Sightings.empty(
            len(bins),
            return_time=times[bins],
            last_hop=self._graph.indices[self._arcs[arcs[entries]]].astype(np.int64),
        )
        return normalised(self._mass[bins, arcs[entries]] @ self.posterior(destination, seen, use_last_hop=True))

    def _by_class(self, destination: int, bins: IntArray, last_hops: IntArray, *, use_last_hop: bool) -> FloatArray:
        """Posteriors from prior and classes alone."""
        away = self._apart[destination]
        relation = np.clip(self._apart[last_hops] - away, -1, 1) + 1
        quotient = self._quotients[use_last_hop][bins[:, np.newaxis], away, relation]
        return normalised(self._prior[destination] * quotient)

    def _counts(self, destination: int, *, use_last_hop: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What classes expect of each candidate [bin, entry, i], what was counted in each half, and on how many visits.

        Without the last hop there is one entry, for all.
        """
        arcs = slice(*np.searchsorted(self._heads, [destination, destination + 1]))
        counted, visits = self._counted[:, :, arcs], self._counted_visits[:, :, arcs]
        last_hops = self._graph.indices[self._arcs[arcs]]
        bins = np.repeat(np.arange(len(self._edges) + 1), len(last_hops))
        guess = self._by_class(destination, bins, np.tile(last_hops, len(self._edges) + 1), use_last_hop=use_last_hop)
        mass = self._mass[:, arcs]
        expected = guess.reshape(*mass.shape, -1) * mass[:, :, np.newaxis]
        n_short = len(self._short)
        expected = np.concatenate((expected[:n_short], expected[n_short:].sum(axis=0, keepdims=True)))
        if not use_last_hop:
            expected, counted = (table.sum(axis=-2, keepdims=True) for table in (expected, counted))
            visits = visits.sum(axis=-1, keepdims=True)
        return expected, counted, visits

    def _visits_needed(self, *, use_last_hop: bool) -> FloatArray:
        """Return, for each bin, the visits at which what is counted of a candidate is as much sign as noise."""
        sign, both, visited, places = np.zeros((4, len(self._short) + 1))
        for destination in np.unique(self._heads):
            expected, counted, visits = self._counts(int(destination), use_last_hop=use_last_hop)
            one, other = (_ratio(half, expected) - 1.0 for half in counted)
            weight = np.where(visits.min(axis=0)[:, :, np.newaxis] > 0, _shares(expected), 0.0)
            sign += (weight * one * other).sum(axis=(1, 2))
            both += (weight * (one + other) ** 2 / 4).sum(axis=(1, 2))
            visited += visits.sum(axis=(0, 2))
            places += visits.shape[2]
        belief = np.clip(np.divide(sign, both, out=np.zeros_like(sign), where=both > 0), 1e-6, 1.0)
        return np.asarray(visited / places * (1.0 - belief) / belief)

    def _quotient(self, *, use_last_hop: bool) -> FloatArray:
        """How much likelier than the prior has it a source of each class is, in each bin."""
        tables = np.zeros((len(self._arcs), self._won.shape[1], _RELATIONS))
        for number, (arc, node) in enumerate(zip(self._arcs, self._heads, strict=True)):
            away = self._apart[node]
            relation = np.clip(self._apart[self._graph.indices[arc]] - away, -1, 1) + 1
            np.add.at(tables[number], (away, relation), self._prior[node])
        expected = np.tensordot(self._mass, tables, axes=1)
        won = self._won
        if not use_last_hop:
            won, expected = (np.broadcast_to(x.sum(axis=2, keepdims=True), x.shape) for x in (won, expected))
        trust = TRUSTED_VISITS / np.maximum(self._visits, 1.0)[:, np.newaxis, np.newaxis]
        ratio = np.divide(won, expected, out=np.ones_like(won), where=expected > 0)
        return np.asarray((ratio + trust) / (1.0 + trust))


def _shares(table: FloatArray) -> FloatArray:
    """Scale along the last axis to one; rows of nothing stay nothing."""
    total = table.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(table, total, out=np.zeros_like(table), where=total > 0))


def _ratio(counted: FloatArray, expected: FloatArray) -> FloatArray:
    """How many times likelier a candidate is by its own counts than expected; one where nothing is known."""
    own, by_class = _shares(counted), _shares(expected)
    known = (by_class > 0) & (counted.sum(axis=-1, keepdims=True) > 0)
    return np.asarray(np.divide(own, by_class, out=np.ones_like(own), where=known))


@dataclass(frozen=True, eq=False)
class _Counted(Local):
    """What was counted at one destination."""

    node: int
    sources: IntArray
    counts: RehearsedDeliveries

    def posterior(self, seen: Sightings, *, use_last_hop: bool) -> Posterior:
        """Return the rehearsed posterior."""
        weights = self.counts.posterior(self.node, seen, use_last_hop=use_last_hop)
        return Posterior(weights, "rehearsed: likelihoods by class from walks of its own")

    def evidence(self, seen: Sightings) -> Evidence:
        """Return whom the prior allows, and the rehearsed posterior of them."""
        found = self.posterior(seen, use_last_hop=True)
        prior = self.counts.mean_posterior(self.node)
        known = None if prior is None else prior[self.sources]
        return Evidence(self.sources, found.weights[:, self.sources], found.how, known)


class Rehearsed(Inference):
    """From walks that the observer plays itself: any walk can be rehearsed."""

    name = "rehearsed"

    def __init__(self, scene: Scene) -> None:
        self._prior, self._counts = scene.prior, rehearsed_deliveries(scene)

    def at(self, nodes: IntArray) -> Iterator[Local]:
        """Yield what was counted at each destination."""
        return (_Counted(int(node), np.flatnonzero(self._prior[node] > 0), self._counts) for node in nodes)


def rehearsed_deliveries(scene: Scene) -> RehearsedDeliveries:
    """Return the counts of a scene, the same for all who ask; they will be filled when its rehearsal is played."""

    def make() -> RehearsedDeliveries:
        counts = RehearsedDeliveries(
            scene.graph,
            scene.matrix,
            scene.prior,
            apart=scene.apart,
            attacked=scene.attacked,
            return_times=scene.seen.return_time,
            sets=sets_of(scene),
        )
        scene.counters.append(counts)
        return counts

    return scene.once(RehearsedDeliveries, make)
