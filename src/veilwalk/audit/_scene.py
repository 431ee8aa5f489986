"""One run as all observers may know it: the scheme, what was seen, the prior. The truth is not here."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from scipy import sparse

from veilwalk.audit._play import Run
from veilwalk.audit._settings import Plan
from veilwalk.chains import Chain
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.randomness import task_generator
from veilwalk.design import Scheme
from veilwalk.graphs import distances
from veilwalk.walks import estimate_openings

# A stream of its own for the choice of destinations.
_SAMPLE_TASK = 0x64657374
# And one for the names of sources.
_ALIKE_TASK = 0x616C696B
_Made = TypeVar("_Made")
# The seed of a second telling, beside the scheme's own.
_OTHER_SEED = 2


class Counter(Protocol):
    """Something that learns from rehearsed lanes."""

    def add(self, lanes: Any) -> None:
        """Count these lanes too."""


class Scene:
    """A run without its truth, and all that is public about the scheme."""

    def __init__(self, plan: Plan, run: Run) -> None:
        self.plan, self.settings, self.scheme = plan, plan.settings, plan.scheme
        self.graph, self.law, self.support = self.scheme.graph, self.scheme.law, self.scheme.law.support
        self.seen, self.lane, self.colluders = run.seen, run.truth.lane, run.colluders
        self.training = (run.truth.lane % 2 == 0) & plan.calibrates
        # What calibration is told: who made the updates of every other lane. Those are not scored.
        self.taught = np.where(self.training, run.truth.source, -1)
        member = np.zeros(self.graph.n_nodes, dtype=np.bool_)
        member[run.colluders] = True
        # Colluders know their own updates; nobody asks them about these.
        self.member, self.own = member, member[run.truth.source]
        # Which updates are of one source, under names that say nothing: for who is granted that.
        self.alike = task_generator(self.settings.seed, _ALIKE_TASK).permutation(self.graph.n_nodes)[run.truth.source]
        self.attacked = np.ones(self.graph.n_nodes, dtype=np.bool_)
        if plan.samples_destinations:
            order = task_generator(self.settings.seed, _SAMPLE_TASK).permutation(self.graph.n_nodes)
            self.attacked = np.isin(np.arange(self.graph.n_nodes), order[: self.settings.sampled_destinations])
        #: Told what goes on by who takes long.
        self.progress: Progress = silent
        #: Whoever learns from a rehearsal; it is played once for all of them.
        self.counters: list[Counter] = []
        self._made: dict[Hashable, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Whoever listens here does not hear another process.
        return self.__dict__ | {"progress": silent}

    @cached_property
    def matrix(self) -> FloatArray:
        """The law as a table of all pairs."""
        return self.law.matrix.toarray()

    @cached_property
    def prior(self) -> FloatArray:
        """For each destination (row) the prior over its sources; impossible ones have exactly zero.

        With several recipients, one that opens: the nearer ones are met first.
        """
        flows = source_flows(self.scheme).toarray()
        if self.scheme.recipients > 1:
            flows = opener_flows(self.scheme, flows, self.apart)
        return normalised(np.ascontiguousarray(flows.T))

    @cached_property
    def honest_prior(self) -> FloatArray:
        """The same over sources that are no colluders; zero for a destination that only colluders may choose."""
        outside = np.where(self.member, 0.0, self.prior)
        total = outside.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(outside, total, out=outside, where=total > 0))

    @cached_property
    def apart(self) -> IntArray:
        """Distances of all pairs."""
        return distances(self.graph)

    @property
    def chain(self) -> Chain:
        """The exact chain of the walk."""
        return self.scheme.chain

    def once(self, key: Hashable, make: Callable[[], _Made]) -> _Made:
        """Return what ``make`` makes, made once for all observers that ask by this key."""
        if key not in self._made:
            self._made[key] = make()
        return cast(_Made, self._made[key])

    def by_destination(self, rows: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Yield each destination with its updates among ``rows``, ascending."""
        order = rows[np.argsort(self.seen.destination[rows], kind="stable")]
        nodes, starts = np.unique(self.seen.destination[order], return_index=True)
        for node, mine in zip(nodes, np.split(order, starts[1:]), strict=True):
            yield int(node), mine


def source_flows(scheme: Scheme) -> sparse.csr_array:
    """Return how often, in the long run, each node (row) is the source of an update for each other: mu_i P_ij.

    Of the plain walk: how often it takes each arc, which is alike for all where it is no chain on the nodes.
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


def require(rows: IntArray, what: str) -> IntArray:
    """Return ``rows``, or complain that none are left."""
    if not len(rows):
        raise InvalidParameterError("updates that count", 0, f"1 or more: none {what}; ask for more updates")
    return rows


def opener_flows(scheme: Scheme, flows: FloatArray, apart: IntArray) -> FloatArray:
    """Return how often i (row) is the source of what j opens, from ``flows``: how often i draws j, all being alike.

    What was told of openings is believed at each distance as a whole, and of single pairs as far as two tellings agree.
    On graphs of which pairs were not told, ``flows`` are all that is known.
    """
    if not len(scheme.openings.joint):
        return flows
    other = estimate_openings(
        scheme.graph,
        scheme.law.rows,
        scheme.recipients,
        walk=scheme.walk,
        legs=scheme.openings.legs,
        seed=_OTHER_SEED,
    )
    told = [found.by_opener(scheme.graph) for found in (scheme.openings, other)]

    def by_distance(table: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(apart.ravel(), weights=table.ravel()), dtype=np.float64)

    expected = flows * _ratio(by_distance(told[0] + told[1]) / 2, by_distance(flows))[apart]
    one, two = (_ratio(table, expected) - 1.0 for table in told)
    mean = (one + two) / 2
    sign, both = by_distance(expected * one * two), by_distance(expected * mean**2)
    belief = np.clip(np.divide(sign, both, out=np.zeros_like(sign), where=both > 0), 0.0, 1.0)
    return np.asarray(expected * (1.0 + belief[apart] * mean))


def _ratio(told: FloatArray, expected: FloatArray) -> FloatArray:
    return np.asarray(np.divide(told, expected, out=np.ones_like(told), where=expected > 0))
