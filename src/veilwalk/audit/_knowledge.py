"""Holds what observers may know of a run: the scheme, the sightings, and what they are granted. No truth."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import sparse

from veilwalk.audit._play import Sightings
from veilwalk.audit._settings import SAMPLED_DESTINATIONS, Plan
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray, normalised
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.randomness import task_generator
from veilwalk.design import Scheme
from veilwalk.graphs import distances
from veilwalk.walks import estimate_openings, token_paths

if TYPE_CHECKING:
    from veilwalk.audit._sampled import Rehearsal

# A stream of its own for the choice of destinations.
_SAMPLE_TASK = 0x64657374
# The seed of a second sample of openings, beside the scheme's own.
_SECOND_SEED = 2


@dataclass(frozen=True, eq=False)
class Posterior:
    """Rows of weights over candidates that sum to one, zero where impossible; ``how`` says how they were obtained."""

    weights: FloatArray
    how: str


@dataclass(frozen=True, eq=False)
class Evidence:
    """Joint weights of candidates, a row a sighting, not scaled: several sightings can be multiplied by them.

    ``prior`` is the posterior without any sighting; None is the prior of the scheme.
    """

    candidates: IntArray
    weights: FloatArray
    how: str
    prior: FloatArray | None = None


class Timing(ABC):
    """What return times say at one destination."""

    @abstractmethod
    def posterior(self, sightings: Sightings, *, use_last_hop: bool) -> Posterior:
        """Return the posterior given the return time, and given the last hop where that is used."""

    def evidence(self, sightings: Sightings) -> Evidence:
        """Return the candidates weighted by return time and last hop, where sightings can be joined."""
        raise TypeError(f"{type(self).__name__} joins no sightings ({len(sightings)} given)")


class Inference(ABC):
    """A way to read return times, called ``name`` in the settings; ``fit`` comes before everything else."""

    name: ClassVar[str]

    def unsupported_reason(self, plan: Plan) -> str | None:
        """Return why this inference is not possible there; None where it is."""
        del plan
        return None

    @abstractmethod
    def fit(self, knowledge: Knowledge) -> None:
        """Learn from the scheme what return times say; never from a source."""

    @abstractmethod
    def iter_timings(self, nodes: IntArray) -> Iterator[Timing]:
        """Yield what return times say at each of these destinations."""


@dataclass(frozen=True, eq=False)
class Grants:
    """Facts that only the scorer knows in full, as far as observers are granted them.

    Attributes:
        lane: The independent lane of each update.
        calibration_sources: Sources of the updates for calibration, which are not scored; -1 for all others.
        by_colluder: Whether a colluder made the update: colluders know their own.
        pseudonyms: Equal for updates of one source; the numbers themselves say nothing.
    """

    lane: IntArray
    calibration_sources: IntArray
    by_colluder: BoolArray
    pseudonyms: IntArray


class Knowledge:
    """A run without its truth, and everything public about the scheme.

    Attributes:
        plan: The plan of the audit; ``settings`` and ``scheme`` are its own.
        graph: The graph of the scheme; ``law`` and ``support`` are those of the scheme too.
        sightings: What was seen at each delivery.
        grants: Facts that observers are granted: lanes, calibration, colluders' own updates, pseudonyms.
        colluders: The nodes that collude; ``is_colluder`` is their mask.
        attacked: The mask of destinations that are attacked.
        progress: The listener for long work.
        rehearsal: Counts on simulated walks, where the plan has some.
    """

    def __init__(
        self, plan: Plan, sightings: Sightings, colluders: IntArray, grants: Grants, progress: Progress = silent
    ) -> None:
        self.plan, self.settings, self.scheme = plan, plan.settings, plan.scheme
        self.graph, self.law, self.support = self.scheme.graph, self.scheme.law, self.scheme.law.support
        self.sightings, self.grants, self.colluders = sightings, grants, colluders
        self.is_colluder = np.isin(np.arange(self.graph.n_nodes), colluders)
        self.attacked = np.ones(self.graph.n_nodes, dtype=np.bool_)
        if plan.samples_destinations:
            order = task_generator(self.settings.seed, _SAMPLE_TASK).permutation(self.graph.n_nodes)
            self.attacked = np.isin(np.arange(self.graph.n_nodes), order[:SAMPLED_DESTINATIONS])
        self.progress = progress
        self.rehearsal: Rehearsal | None = None
        self._timing: Timing | None = None
        self._candidate_prior: FloatArray | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A listener does not work in another process.
        return self.__dict__ | {"progress": silent}

    def with_timing(self, timing: Timing | None, candidate_prior: FloatArray | None = None) -> Knowledge:
        """Return the same knowledge with what return times say at one destination.

        ``candidate_prior`` is the prior of one update's candidates, where candidates are looked up.
        """
        local = copy.copy(self)
        vars(local).update(_timing=timing, _candidate_prior=candidate_prior)
        return local

    @property
    def timing(self) -> Timing:
        """What return times say at the destination in question, for observers that are ``timed``."""
        if self._timing is None:
            raise TypeError("an observer that reads return times must set timed = True")
        return self._timing

    def select_prior(self, rows: IntArray) -> FloatArray:
        """Return the prior over the candidates of each update in ``rows``."""
        if self._candidate_prior is not None:
            return np.tile(self._candidate_prior, (len(rows), 1))
        return self.prior[self.sightings.destination[rows]]

    @cached_property
    def matrix(self) -> FloatArray:
        """The law as a table of all pairs."""
        return self.law.matrix.toarray()

    @cached_property
    def prior(self) -> FloatArray:
        """For each destination (row) the prior over its sources; impossible ones have exactly zero.

        With several recipients it is the prior given that the destination opens: nearer recipients are met first.
        """
        flows = source_flows(self.scheme).toarray()
        if not self.scheme.has_exact_law:
            flows = _opener_flows(self.scheme, flows, self.pair_distances)
        return normalised(np.ascontiguousarray(flows.T))

    @cached_property
    def honest_prior(self) -> FloatArray:
        """The same over sources that do not collude; zero for a destination that only colluders may choose."""
        outside = np.where(self.is_colluder, 0.0, self.prior)
        total = outside.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(outside, total, out=outside, where=total > 0))

    @cached_property
    def pair_distances(self) -> IntArray:
        """Distances of all pairs."""
        return distances(self.graph)

    def replay_paths(self, first_lane: int, lanes: int = 1, *, hops: int) -> IntArray:
        """Return the paths of some lanes of the run again, for observers that are granted hops of the token."""
        scheme, seed = self.scheme, self.settings.seed
        return token_paths(scheme.graph, hops=hops, lanes=lanes, seed=seed, walk=scheme.walk, first_lane=first_lane)

    def iter_destinations(self, rows: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Yield each destination with its updates among ``rows``, ascending."""
        order = rows[np.argsort(self.sightings.destination[rows], kind="stable")]
        nodes, starts = np.unique(self.sightings.destination[order], return_index=True)
        for node, subset in zip(nodes, np.split(order, starts[1:]), strict=True):
            yield int(node), subset


def source_flows(scheme: Scheme) -> sparse.csr_array:
    """Return how often, in the long run, each node (row) is the source of an update for each other: mu_i P_ij.

    For the plain walk: how often it takes each arc; all arcs are equal where it is no chain on the nodes.
    """
    if not scheme.is_direct:
        rows = scheme.law.matrix
        data = np.repeat(scheme.source_prior, np.diff(rows.indptr)) * rows.data
        return sparse.csr_array((data, rows.indices, rows.indptr), shape=rows.shape)
    if scheme.chain.on_nodes is None:
        return sparse.csr_array(scheme.graph.adjacency.astype(np.float64))
    steps = sparse.csr_array(scheme.chain.on_nodes.transition_matrix)
    flows = sparse.csr_array(steps.multiply(scheme.chain.node_shares[:, np.newaxis]))
    flows.setdiag(0.0)
    flows.eliminate_zeros()
    return flows


def group_equal(labels: IntArray, size: int) -> IntArray:
    """Return places of equal labels in groups of ``size``, a row each; the remainder of every label is dropped."""
    order = np.argsort(labels, kind="stable")
    _, begins, counts = np.unique(labels[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(begins, counts)
    return order[place < np.repeat(counts // size * size, counts)].reshape(-1, size)


def require_rows(rows: IntArray, purpose: str) -> IntArray:
    """Return ``rows``, or refuse an audit that has none of them."""
    if not len(rows):
        raise InvalidParameterError("updates that count", 0, f"1 or more: none {purpose}; ask for more updates")
    return rows


def _opener_flows(scheme: Scheme, flows: FloatArray, pair_distances: IntArray) -> FloatArray:
    """Return how often i (row) is the source of what j opens, from ``flows``: how often i draws j.

    Pair estimates are shrunk to the mean of their distance class; the weight is the agreement of two independent
    samples. On graphs without pair estimates the result is ``flows``.
    """
    if not len(scheme.openings.joint):
        return flows
    second = estimate_openings(
        scheme.graph, scheme.law.rows, scheme.recipients, walk=scheme.walk, legs=scheme.openings.legs, seed=_SECOND_SEED
    )
    samples = [openings.by_opener(scheme.graph) for openings in (scheme.openings, second)]

    def sum_by_distance(table: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(pair_distances.ravel(), weights=table.ravel()), dtype=np.float64)

    by_class = sum_by_distance(samples[0] + samples[1]) / 2
    expected = flows * _divide(by_class, sum_by_distance(flows))[pair_distances]
    first, other = (_divide(table, expected) - 1.0 for table in samples)
    mean = (first + other) / 2
    signal, both = sum_by_distance(expected * first * other), sum_by_distance(expected * mean**2)
    weight = np.clip(np.divide(signal, both, out=np.zeros_like(signal), where=both > 0), 0.0, 1.0)
    return np.asarray(expected * (1.0 + weight[pair_distances] * mean))


def _divide(counts: FloatArray, expected: FloatArray) -> FloatArray:
    return np.asarray(np.divide(counts, expected, out=np.ones_like(counts), where=expected > 0))
