r"""Sealed for several: who of a given set meets the token first, by which last hop and when. Exact, any graph.

With Z the fundamental matrix of the walk's states, pi their shares of time, and nu the law of the first state q that
lies on the set, T the hops to it, every walk from state a has

    Z_ak - \sum_q nu_a(q) Z_qk = (expected visits to k before T) - pi_k E_a[T]    for any state k.

No state on the set is visited before T: as many equations as unknown nu_a(q), one more for E_a[T], and sum nu_a = 1. Z
is made once; a set then costs one small solve, whatever the graph. Where states are nodes, visits give the last hop.

A set is drawn from the source's row of a law without replacement, one after the other: the mean over sets is estimated
from drawn ones and carries the half-width of its 95% interval. For one recipient nothing need be drawn:
:meth:`Chain.mean_hops` is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg, sparse

from veilwalk.chains._deliveries import stationary_law
from veilwalk.chains._limits import chosen_horizon, require_memory
from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import GraphError, InvalidParameterError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES
from veilwalk.core.randomness import task_generator
from veilwalk.core.stats import NORMAL_QUANTILE
from veilwalk.graphs import Graph

if TYPE_CHECKING:
    from veilwalk.chains._chain import States

_NEVER = 1e-200
_BALANCE = 1e-9


@dataclass(frozen=True, eq=False)
class OpeningLaw:
    """Who opens what a source sealed for a set, exact.

    Attributes:
        source: who sealed it.
        recipients: for whom, sorted.
        came_from: the last hop of each way in which it can be opened.
        opener: who opens it then.
        chances: the probability of each way; they sum to one.
        mean_hops: mean hops until it is opened.
        pmf: ``pmf[t, w]``, the probability that it is opened at hop t in way w, up to the horizon that was asked for.
    """

    source: int
    recipients: IntArray
    came_from: IntArray
    opener: IntArray
    chances: FloatArray
    mean_hops: float
    pmf: FloatArray

    @property
    def by_recipient(self) -> FloatArray:
        """P(opened by each recipient), in the order of ``recipients``."""
        shares = np.zeros(len(self.recipients))
        np.add.at(shares, np.searchsorted(self.recipients, self.opener), self.chances)
        return shares


@dataclass(frozen=True, eq=False)
class MeanOpenings:
    """The protocol in the long run, sealed for several: a mean over drawn sets.

    States are nodes, or arcs into nodes for a walk that knows where it came from; half-widths are those of 95%
    intervals, from the spread between sets, with ``sources`` taken as given.

    Attributes:
        sources: P(an update is made in each state).
        entries: ``entries[a, q]``, P(sealed in state a, opened in state q): estimated.
        mean_hops: hops between two updates.
        mean_hops_error: half-width.
        predecessor_guess: how often the likeliest opener, to one who knows source and set, is the one.
        predecessor_error: half-width.
        sender_guess: the same if it is used too to whom the token was sent first, which a predecessor knows.
        sender_error: half-width.
        node: where each state stands.
    """

    sources: FloatArray
    entries: FloatArray
    mean_hops: float
    mean_hops_error: float
    predecessor_guess: float
    predecessor_error: float
    sender_guess: float
    sender_error: float
    node: IntArray

    @cached_property
    def by_node(self) -> FloatArray:
        """P(j opens | i sealed), one row a source."""
        return self.by_last_hop @ _gather(self.node).T

    @cached_property
    def by_last_hop(self) -> FloatArray:
        """P(opened in state q | i sealed), one row a source: where states are arcs, jointly with the last hop."""
        # A node that nobody seals for still has a law of its own: it came there by any arc.
        weights = np.maximum(self.sources, _NEVER)
        joint = _gather(self.node) @ (weights[:, np.newaxis] * self.entries)
        return np.asarray(joint / (_gather(self.node) @ weights)[:, np.newaxis])


class SetPotentials:
    """The fundamental matrix of a walk, and what it says about sets. Cost: one dense inverse over the states."""

    def __init__(self, states: States, node_shares: FloatArray, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
        if states.arrivals is not None:
            require_turning(states.arrivals)
        size = len(states.node)
        require_memory("openings of a set", 4 * size**2, memory_bytes)
        self._states, self._n_nodes = states, len(node_shares)
        counts = np.bincount(states.node)
        self._shares: FloatArray = node_shares[states.node] / counts[states.node]
        self._first = np.concatenate([[0], np.cumsum(counts)])
        self._moves = states.transition_matrix
        self._matrix = fundamental_matrix(self._moves, self._shares)

    def law(self, source: int, recipients: Sequence[int] | IntArray, horizon: int = 0) -> OpeningLaw:
        """Return who opens what ``source``, come to by any of its arcs alike, seals for ``recipients``."""
        chosen, hops = self._checked(source, recipients), chosen_horizon(horizon)
        begin, on_set = self._of(source), self._on(chosen)
        entries, means = self._first_entries(begin, on_set)
        entry, mean = entries.mean(axis=0), float(means.mean())
        start = np.zeros(len(self._states.node))
        start[begin] = 1.0 / len(begin)
        arrivals = self._states.arrivals
        if arrivals is not None:
            came_from, opener, chances = arrivals.indices[on_set], self._states.node[on_set], entry
        else:
            visits = self._matrix[source] - entry @ self._matrix[on_set] + self._shares * mean
            visits[on_set] = 0.0
            into = sparse.coo_array(self._moves[:, on_set])
            outside = ~np.isin(into.row, on_set)
            came_from, opener = into.row[outside], on_set[into.col[outside]]
            chances = np.maximum(visits[came_from], 0.0) * into.data[outside]
        pmf = self._pmf(start, on_set, came_from, opener, hops)
        return OpeningLaw(int(source), chosen, came_from, opener, chances, mean, pmf)

    def mean_over_sets(self, law: sparse.csr_array, recipients: int, n_sets: int, seed: int) -> MeanOpenings:
        """Return the long run of the protocol, from ``n_sets`` sets drawn for each source."""
        require_recipients(law, recipients)
        validate.integer(sets=n_sets)
        validate.at_least(2, sets=n_sets)
        size = len(self._states.node)
        entries, hops = np.zeros((size, size)), np.empty((size, n_sets))
        guesses = np.empty((2, self._n_nodes, n_sets))
        for source in range(self._n_nodes):
            chances, begin = law[[source]].toarray().ravel(), self._of(source)
            sent = sparse.coo_array(self._moves[begin].mean(axis=0)[np.newaxis])
            rng, everywhere = task_generator(seed, source), np.concatenate([begin, sent.col])
            for drawn in range(n_sets):
                chosen = np.sort(rng.choice(self._n_nodes, recipients, replace=False, p=chances / chances.sum()))
                on_set = self._on(chosen)
                entered, times = self._first_entries(everywhere, on_set)
                hops[begin, drawn] = times[: len(begin)]
                entries[np.ix_(begin, on_set)] += entered[: len(begin)] / n_sets
                # Sets are sorted, and so the states on each recipient follow each other.
                opens = np.add.reduceat(entered, np.flatnonzero(np.diff(self._states.node[on_set], prepend=-1)), axis=1)
                guesses[0, source, drawn] = opens[: len(begin)].mean(axis=0).max()
                guesses[1, source, drawn] = sent.data @ opens[len(begin) :].max(axis=1)
        sources = stationary_law(entries)
        if not np.abs(sources @ entries - sources).max() < _BALANCE:
            raise InvalidParameterError("sets", n_sets, "more: through those drawn not every node reaches the others")
        by_node = _gather(self._states.node)
        legs = by_node @ (sources[:, np.newaxis] * hops)
        knows_set, knows_hop = (by_node @ sources)[:, np.newaxis] * guesses
        return MeanOpenings(
            sources, entries, *_mean(legs), *_mean(knows_set), *_mean(knows_hop), node=self._states.node
        )

    def _of(self, node: int) -> IntArray:
        return np.arange(self._first[node], self._first[node + 1])

    def _on(self, chosen: IntArray) -> IntArray:
        return np.concatenate([self._of(node) for node in chosen])

    def _first_entries(self, begin: IntArray, on_set: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return nu_a and E_a[T], one row a state of ``begin``."""
        inside, ways = self._matrix[np.ix_(on_set, on_set)], self._matrix[np.ix_(begin, on_set)]
        return solve_first_entries(inside, ways, self._shares[on_set])

    def _pmf(self, start: FloatArray, on_set: IntArray, came_from: IntArray, opener: IntArray, hops: int) -> FloatArray:
        """Follow the token hop by hop until it is opened."""
        pmf = np.zeros((hops + 1, len(opener)))
        on_arcs = self._states.arrivals is not None
        chance = None if on_arcs else np.asarray(self._moves[came_from, opener])
        backward, token = sparse.csr_array(self._moves.T), start
        for hop in range(1, hops + 1):
            after = backward @ token
            pmf[hop] = after[on_set] if chance is None else token[came_from] * chance
            after[on_set] = 0.0
            token = after
        return pmf

    def _checked(self, source: int, recipients: Sequence[int] | IntArray) -> IntArray:
        given = np.asarray(recipients)
        chosen = np.unique(given)
        if given.ndim != 1 or given.size == 0 or not np.issubdtype(given.dtype, np.integer) or len(chosen) < len(given):
            raise InvalidParameterError("recipients", recipients, "a sequence of one or more different nodes")
        last = self._n_nodes - 1
        if chosen[0] < 0 or chosen[-1] > last or source in chosen:
            raise InvalidParameterError("recipients", recipients, f"nodes, 0 to {last}, other than the source {source}")
        validate.integer(source=source)
        if not 0 <= source <= last:
            raise InvalidParameterError("source", source, f"a node, 0 to {last}")
        return chosen


def require_turning(graph: Graph) -> None:
    """Refuse a ring, on which a non-backtracking walk never turns: its chain of arcs falls apart."""
    if np.all(graph.degrees == 2):
        raise GraphError("the graph is a ring, where a non-backtracking walk never turns: take another walk")


def fundamental_matrix(transitions: sparse.csr_array, shares: FloatArray) -> FloatArray:
    """Return Z = (I - P + 1 pi)^-1 for transitions P with stationary law pi, dense."""
    system = -transitions.toarray()
    system[np.diag_indices_from(system)] += 1.0
    system += shares
    return np.asarray(linalg.inv(system, overwrite_a=True, check_finite=False))


def solve_first_entries(inside: FloatArray, ways: FloatArray, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return nu_a and E_a[T] by the module's equations, one row a starting state a.

    Args:
        inside: Z from each state of the set to each.
        ways: Z from each starting state to each state of the set.
        shares: pi on the set.
    """
    size = len(inside)
    system = np.ones((size + 1, size + 1))
    system[:size, :size] = inside.T
    system[:size, size] = -shares
    system[size, size] = 0.0
    right = np.ones((size + 1, len(ways)))
    right[:size] = ways.T
    solution = np.linalg.solve(system, right)
    # What is impossible comes out as rounding.
    return np.maximum(solution[:size].T, 0.0), np.maximum(solution[size], 0.0)


def require_recipients(law: sparse.csr_array, recipients: int) -> None:
    """Refuse a number of recipients that some source cannot draw."""
    validate.integer(recipients=recipients)
    validate.at_least(1, recipients=recipients)
    support = np.asarray((law > 0).sum(axis=1)).ravel()
    least = int(support.argmin())
    if recipients > support[least]:
        raise InvalidParameterError(
            "recipients", recipients, f"at most {support[least]}: node {least} may choose among no more"
        )


def _gather(node: IntArray) -> sparse.csr_array:
    """Return the matrix that sums over the states of each node."""
    return sparse.csr_array((np.ones(len(node)), (node, np.arange(len(node)))))


def _mean(legs: FloatArray) -> tuple[float, float]:
    """Return the sum over sources of their mean over sets, and the half-width of its 95% interval."""
    n_sets = legs.shape[1]
    variance = legs.var(axis=1, ddof=1).sum() / n_sets
    return float(legs.mean(axis=1).sum()), float(NORMAL_QUANTILE * np.sqrt(variance))
