r"""Sealed for several: which node of a given set meets the token first, and when. Exact, any graph.

With Z the fundamental matrix of the walk's states, pi their shares of time, and nu the law of the first state q that
lies on the set, T the hops to it, every walk from state a has

    Z_ak - \sum_q nu_a(q) Z_qk = (expected visits to k before T) - pi_k E_a[T]    for any state k.

No state on the set is visited before T: as many equations as unknown nu_a(q), one more for E_a[T], and sum nu_a = 1. Z
is made once; a set then costs one small solve, whatever the graph.

A set is drawn from the source's row of a law without replacement, one after the other. Where a source has few sets they
are listed with their chances, and the means over sets are exact. Else sets are drawn, and means carry the half-width of
their 95% intervals. Sets are solved many at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg, sparse
from scipy.sparse import csgraph

from veilwalk.chains._deliveries import stationary_law
from veilwalk.chains._limits import require_memory
from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import GraphError, InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.core.sizes import DEFAULT_MEMORY_BYTES
from veilwalk.core.stats import NORMAL_QUANTILE

if TYPE_CHECKING:
    from veilwalk.chains._chain import States

#: The chance that an opener trains, and P(j trains next | i sealed); None where every opener trains.
Makers = tuple[float, FloatArray] | None
_NEVER = 1e-200
_BALANCE = 1e-9
# Smaller chances are rounding errors.
_POSSIBLE = 1e-11
# Numbers in the systems that are solved together.
_BATCH_NUMBERS = 2_000_000


@dataclass(frozen=True, eq=False)
class MeanOpenings:
    """The protocol in the long run, sealed for several: a mean over sets.

    An ``_error`` is the half-width of a 95% interval, from the spread between drawn sets, with the shares of sources
    taken as given. For listed sets it is 0.

    Attributes:
        by_node: P(j opens | i sealed), one row a source.
        joint: ``joint[arc, i]``, P(i sealed, and the token came to its opener by that arc of the opener).
        n_sets: sets behind the means.
        mean_hops: hops between two updates.
        predecessor_guess: how often the likeliest opener, to one who knows source and set, is the one.
        sender_guess: the same if it is used too to whom the token was sent first, which a predecessor knows.
    """

    by_node: FloatArray
    joint: FloatArray
    n_sets: int
    mean_hops: float
    mean_hops_error: float
    predecessor_guess: float
    predecessor_error: float
    sender_guess: float
    sender_error: float


class SetPotentials:
    """The fundamental matrix of a walk, and what it says about sets. Cost: one dense inverse over the states."""

    def __init__(self, states: States, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
        if states.arrivals is not None and np.all(states.arrivals.degrees == 2):
            # Its chain of arcs falls apart.
            raise GraphError("the graph is a ring, where a non-backtracking walk never turns: take another walk")
        require_memory("potentials of a walk", 4 * len(states.node) ** 2, memory_bytes)
        self._states, self._moves = states, states.transition_matrix
        self._first = np.concatenate([[0], np.cumsum(np.bincount(states.node))])
        self._n_nodes = len(self._first) - 1
        # Moves without waits, by head and tail: those of nodes are arcs in the order of the graph's.
        heads, tails = self._moves.T.tocsr().nonzero()
        self._arcs = tails[heads != tails], heads[heads != tails]
        # Z = (I - P + 1 pi)^-1.
        system = -self._moves.toarray()
        system[np.diag_indices_from(system)] += 1.0
        system += states.shares
        self.matrix: FloatArray = np.asarray(linalg.inv(system, overwrite_a=True, check_finite=False))

    def solve_hits(self, node: int) -> tuple[FloatArray, FloatArray]:
        """Return E_a[T] and nu_a, one row a state a, for entering ``node``; 0 and itself in its own states."""
        own = self._states_of(node)
        entries, means = self._first_entries(np.arange(len(self._states.node)), own[np.newaxis])
        means[0, own], entries[0, own] = 0.0, np.eye(len(own))
        return means[0], entries[0]

    def opening_chances(self, state: int, recipients: IntArray) -> FloatArray:
        """Return the chance that a token in ``state`` comes to each of ``recipients``, ascending, before the others."""
        _, on_sets, is_on = next(self._iter_batches(recipients[np.newaxis], 1))
        entered, _ = self._first_entries(np.array([state]), on_sets)
        return np.asarray(entered[0, 0] @ is_on[0])

    def mean_over_sets(
        self, law: sparse.csr_array, recipients: int, n_sets: int | None, seed: int, makers: Makers = None
    ) -> MeanOpenings:
        """Return the long run of the protocol, from ``n_sets`` sets drawn for each source; from all where None."""
        require_recipients(law, recipients)
        if n_sets is not None:
            validate.integer(2, sets=n_sets)
        sums = self._add_up(law, recipients, n_sets, seed, makers)
        sources = stationary_law(sums.entries)
        if not np.abs(sources @ sums.entries - sources).max() < _BALANCE:
            raise InvalidParameterError("sets", n_sets, "more: through those drawn not every node reaches the others")
        gather = _gather(self._states.node)
        # A node that nobody seals for still has a law of its own: it came there by any arc.
        weights = np.maximum(sources, _NEVER)
        pairs = gather @ (weights[:, np.newaxis] * sums.entries)
        return MeanOpenings(
            np.asarray(pairs / (gather @ weights)[:, np.newaxis] @ gather.T),
            np.asarray(pairs.T if sums.arrivals is None else sums.arrivals * sources),
            sum(len(weights) for _, weights, _, _ in sums.by_source),
            *sums.average(sources),
        )

    def find_idle(self, law: sparse.csr_array, recipients: int) -> IntArray:
        """Return the nodes outside the largest closed set of sealers, by all sets of every source."""
        sums = self._add_up(law, recipients, None, 0)
        return find_outside(sparse.csr_array(sums.entries > _POSSIBLE), self._states.node)

    def _add_up(
        self, law: sparse.csr_array, recipients: int, n_sets: int | None, seed: int, makers: Makers = None
    ) -> _SetSums:
        """Return the sums over the sets of every source."""
        size = len(self._states.node)
        arrivals = np.zeros((len(self._arcs[0]), size)) if self._states.arrivals is None else None
        sums = _SetSums(np.zeros((size, size)), arrivals, [], n_sets is None, makers)
        for source in range(self._n_nodes):
            row = law[[source]].toarray().ravel()
            if n_sets is None:
                sets, weights = list_sets(row, recipients)
            else:
                rng = task_generator(seed, source)
                drawn = [rng.choice(len(row), recipients, replace=False, p=row / row.sum()) for _ in range(n_sets)]
                sets, weights = np.sort(np.array(drawn), axis=1), np.full(n_sets, 1.0 / n_sets)
            self._add_source(sums, source, sets, weights)
        return sums

    def _add_source(self, sums: _SetSums, source: int, sets: IntArray, weights: FloatArray) -> None:
        """Add the openings of one source, for each of ``sets`` with its weight."""
        begin, size = self._states_of(source), len(self._states.node)
        sent = sparse.coo_array(self._moves[begin].mean(axis=0)[np.newaxis])
        everywhere, n_begin = np.concatenate([begin, sent.col]), len(begin)
        hops, guesses = np.empty((n_begin, len(sets))), np.empty((2, len(sets)))
        for rows, on_sets, is_on in self._iter_batches(sets, len(everywhere)):
            entered, times = self._first_entries(everywhere, on_sets)
            hops[:, rows] = times[:, :n_begin].T
            weighted = weights[rows, np.newaxis] * entered[:, :n_begin].transpose(1, 0, 2)
            for state, chances in zip(begin, weighted, strict=True):
                sums.entries[state] += np.bincount(on_sets.ravel(), chances.ravel(), minlength=size)
            opens = entered @ is_on
            if sums.makers is not None:
                chance, makers = sums.makers
                following = (1.0 - chance) * (opens @ makers[sets[rows]])
                places = np.broadcast_to(sets[rows, np.newaxis], opens.shape)
                trained = np.take_along_axis(following, places, axis=2) + chance * opens
                np.put_along_axis(following, places, trained, axis=2)
                opens = following
            guesses[0, rows] = opens[:, :n_begin].mean(axis=1).max(axis=1)
            guesses[1, rows] = opens[:, n_begin:].max(axis=2) @ sent.data
            if sums.arrivals is not None:
                on, hit = np.zeros((len(rows), size)), np.zeros((len(rows), size))
                np.put_along_axis(on, on_sets, 1.0, axis=1)
                np.put_along_axis(hit, on_sets, entered[:, 0], axis=1)
                visits = self.matrix[source] - hit @ self.matrix + times[:, :1] * self._states.shares
                by_move = np.maximum((visits * weights[rows, np.newaxis]).T @ on, 0.0) * self._moves.toarray()
                sums.arrivals[:, source] += by_move[self._arcs]
        sums.by_source.append((begin, weights, hops, guesses))

    def _iter_batches(self, sets: IntArray, n_begin: int) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
        """Yield rows of ``sets``, some at a time: their places, their states, and which recipient each state is on."""
        counts, each = np.diff(self._first)[sets], sets.shape[1]
        totals = counts.sum(axis=1)
        for total in np.unique(totals):
            same = np.flatnonzero(totals == total)
            batch = max(_BATCH_NUMBERS // int((total + 1) * (total + 1 + n_begin)), 1)
            for rows in np.array_split(same, -(-len(same) // batch)):
                lengths = counts[rows].ravel()
                starts = self._first[sets[rows]].ravel() - (np.cumsum(lengths) - lengths)
                on_sets = (np.repeat(starts, lengths) + np.arange(lengths.sum())).reshape(-1, total)
                owners = np.repeat(np.tile(np.arange(each), len(rows)), lengths).reshape(-1, total, 1)
                yield rows, on_sets, (owners == np.arange(each)).astype(np.float64)

    def _states_of(self, node: int) -> IntArray:
        return np.arange(self._first[node], self._first[node + 1])

    def _first_entries(self, begin: IntArray, on_sets: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return nu_a and E_a[T] by the module's equations, for each set (row) and state of ``begin``."""
        n_sets, size = on_sets.shape
        system, right = np.ones((n_sets, size + 1, size + 1)), np.ones((n_sets, size + 1, len(begin)))
        system[:, :size, :size] = self.matrix[on_sets[:, np.newaxis, :], on_sets[:, :, np.newaxis]]
        system[:, :size, size] = -self._states.shares[on_sets]
        system[:, size, size] = 0.0
        right[:, :size] = self.matrix[begin, on_sets[:, :, np.newaxis]]
        solution = np.linalg.solve(system, right)
        # What is impossible comes out as rounding.
        return np.maximum(solution[:, :size].transpose(0, 2, 1), 0.0), np.maximum(solution[:, size], 0.0)


@dataclass(frozen=True, eq=False)
class _SetSums:
    """Sums over sets.

    Entries by states, arrivals by arc and source; of each source its states, the weights of its sets, and for each set
    the hops from every state and the two guesses of the opener; or of who trains next, where makers are given.
    """

    entries: FloatArray
    arrivals: FloatArray | None
    by_source: list[tuple[IntArray, FloatArray, FloatArray, FloatArray]]
    is_listed: bool
    makers: Makers

    def average(self, sources: FloatArray) -> Iterator[float]:
        """Yield the mean of hops and of both guesses, each with the half-width of its 95% interval."""
        means, variances = np.zeros(3), np.zeros(3)
        for begin, weights, hops, guesses in self.by_source:
            values = np.vstack([sources[begin] @ hops, sources[begin].sum() * guesses])
            means += values @ weights
            variances += 0.0 if self.is_listed else values.var(axis=1, ddof=1) / len(weights)
        return itertools.chain.from_iterable(
            zip(means.tolist(), (NORMAL_QUANTILE * np.sqrt(variances)).tolist(), strict=True)
        )


def find_makers(by_node: FloatArray, chance: float) -> FloatArray:
    """Return P(j trains next | i sealed), if an opener trains with that ``chance``: M = q E + (1 - q) E M."""
    return np.asarray(np.linalg.solve(np.eye(len(by_node)) - (1.0 - chance) * by_node, chance * by_node))


def list_sets(row: FloatArray, recipients: int) -> tuple[IntArray, FloatArray]:
    """Return all sets that a source with this ``row`` of the law may draw, ascending, and their chances."""
    eligible = np.flatnonzero(row)
    sets = np.array(list(itertools.combinations(eligible.tolist(), recipients)), dtype=np.int64)
    chances = row[eligible] / row.sum()
    if np.ptp(chances) < _POSSIBLE:
        return sets, np.full(len(sets), 1.0 / len(sets))
    each = row[sets] / row.sum()
    # The chance that the first draws are a part of the set, from those of the parts with one less; parts are bits.
    drawn, weight = np.zeros((2**recipients, len(sets))), np.zeros((2**recipients, len(sets)))
    drawn[0] = 1.0
    for part in range(1, 2**recipients):
        last = [place for place in range(recipients) if part >> place & 1]
        weight[part] = each[:, last].sum(axis=1)
        for place in last:
            rest = part ^ 1 << place
            drawn[part] += drawn[rest] * each[:, place] / (1.0 - weight[rest])
    return sets, drawn[-1]


def find_outside(support: sparse.csr_array, node: IntArray) -> IntArray:
    """Return the nodes outside the largest closed set of a chain, which no token leaves; ``node`` is each state's."""
    n_classes, label = csgraph.connected_components(support, directed=True, connection="strong")
    begin, end = support.nonzero()
    is_open = np.zeros(n_classes, dtype=np.bool_)
    is_open[label[begin[label[begin] != label[end]]]] = True
    closed = [np.unique(node[label == each]) for each in np.flatnonzero(~is_open)]
    return np.setdiff1d(node, max(closed, key=len))


def require_recipients(law: sparse.csr_array, recipients: int) -> None:
    """Refuse a number of recipients that some source cannot draw."""
    validate.integer(1, recipients=recipients)
    support = np.asarray((law > 0).sum(axis=1)).ravel()
    least = int(support.argmin())
    if recipients > support[least]:
        raise InvalidParameterError(
            "recipients", recipients, f"at most {support[least]}: node {least} may choose among no more"
        )


def _gather(node: IntArray) -> sparse.csr_array:
    """Return the matrix that sums over the states of each node."""
    return sparse.csr_array((np.ones(len(node)), (node, np.arange(len(node)))))
