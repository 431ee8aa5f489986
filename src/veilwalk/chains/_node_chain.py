"""Walks without memory, as reversible chains on the nodes of a graph: probabilities, spectrum, killed columns, tokens.

With ``Q_j`` the chain with arrivals at j taken out: it is symmetric up to scaling by the stationary law. By Cauchy
interlacing only its largest eigenvalue exceeds the chain's second, and none falls below the chain's smallest. So the
tail of a hitting time settles once the chain has mixed, at a time that the spectrum tells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg, sparse
from scipy.sparse import linalg as sparse_linalg

from veilwalk.chains import _kernels_nodes as kernels
from veilwalk.chains._chain import Chain, States
from veilwalk.chains._columns import EPS, TAIL_TOLERANCE, WIDTH, Columns, GeometricTail, split_targets
from veilwalk.chains._deliveries import Tokens, stationary_law, token_law
from veilwalk.chains._limits import Nodes, chosen_horizon, chosen_targets, require_memory
from veilwalk.chains._means import solve_mean_times
from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray, frozen, normalised
from veilwalk.core.errors import NumericalError
from veilwalk.core.randomness import task_generator
from veilwalk.core.sizes import DEFAULT_MEMORY_BYTES
from veilwalk.graphs import Graph

# Below this size a dense eigensolver is as quick as Lanczos and cannot fail to converge.
_DENSE_NODES = 256
_LANCZOS_TOLERANCE = 1e-6
_LANCZOS_RESTARTS = 400
_MIXED = 1e-16


@dataclass(frozen=True, eq=False)
class NodeChain(Chain):
    """A reversible Markov chain on the nodes of a connected graph, as CSR transition probabilities.

    From node ``i`` the walk goes to ``indices[e]`` with probability ``probabilities[e]`` for ``e`` in
    ``indptr[i]:indptr[i+1]``; a self-loop is an entry with ``indices[e] == i``. Build it with :meth:`simple`,
    :meth:`lazy` or :meth:`metropolis`. All arrays are read-only.
    """

    kind: str
    indptr: IntArray
    indices: IntArray
    probabilities: FloatArray
    stationary: FloatArray
    is_periodic: bool

    @classmethod
    def simple(cls, graph: Graph) -> NodeChain:
        """Build the simple walk: a uniform neighbour at each step."""
        return cls(
            kind="simple",
            indptr=graph.indptr,
            indices=graph.indices,
            probabilities=frozen(np.repeat(1.0 / graph.degrees, graph.degrees)),
            stationary=graph.stationary_distribution,
            is_periodic=graph.is_bipartite,
        )

    @classmethod
    def lazy(cls, graph: Graph, stay: float = 0.5) -> NodeChain:
        """Build the lazy walk: stay with probability ``stay``, else a uniform neighbour."""
        validate.probability(stay=stay)
        moves = np.repeat((1.0 - stay) / graph.degrees, graph.degrees)
        loops = np.full(graph.n_nodes, stay)
        return cls._with_loops("lazy", graph, moves, loops, graph.stationary_distribution)

    @classmethod
    def metropolis(cls, graph: Graph) -> NodeChain:
        """Build the Metropolis walk, whose stationary law is uniform.

        A uniform neighbour is proposed and taken with probability min(1, degree here / degree there).
        """
        here = np.repeat(1.0 / graph.degrees, graph.degrees)
        there = 1.0 / graph.degrees[graph.indices]
        # Summed refusals, not one minus the moves: rounding must not invent a self-loop.
        loops = np.add.reduceat(np.maximum(here - there, 0.0), graph.indptr[:-1])
        uniform = np.full(graph.n_nodes, 1.0 / graph.n_nodes)
        return cls._with_loops("metropolis", graph, np.minimum(here, there), loops, frozen(uniform))

    @classmethod
    def _with_loops(
        cls, kind: str, graph: Graph, moves: FloatArray, loops: FloatArray, stationary: FloatArray
    ) -> NodeChain:
        shape = (graph.n_nodes, graph.n_nodes)
        matrix = sparse.csr_array((moves, graph.indices, graph.indptr), shape=shape)
        matrix = sparse.csr_array(matrix + sparse.diags_array(loops, format="csr"))
        matrix.eliminate_zeros()
        matrix.sort_indices()
        return cls(
            kind=kind,
            indptr=frozen(matrix.indptr.astype(graph.indptr.dtype)),
            indices=frozen(matrix.indices.astype(graph.indices.dtype)),
            probabilities=frozen(np.asarray(matrix.data, dtype=np.float64)),
            stationary=stationary,
            is_periodic=not loops.any() and graph.is_bipartite,
        )

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.indptr) - 1

    @cached_property
    def transition_matrix(self) -> sparse.csr_array:
        """The transition probabilities as a sparse matrix sharing this chain's arrays."""
        shape = (self.n_nodes, self.n_nodes)
        return sparse.csr_array((self.probabilities, self.indices, self.indptr), shape=shape)

    @cached_property
    def symmetric_matrix(self) -> sparse.csr_array:
        """The matrix ``D^(1/2) P D^(-1/2)`` with ``D`` the stationary law: symmetric, same spectrum."""
        root = np.sqrt(self.stationary)
        rows = np.repeat(root, np.diff(self.indptr))
        values = self.probabilities * rows / root[self.indices]
        shape = (self.n_nodes, self.n_nodes)
        return sparse.csr_array((values, self.indices, self.indptr), shape=shape)

    @cached_property
    def spectrum(self) -> tuple[float, float]:
        """Second largest and smallest eigenvalue, the first rounded up and the other down."""
        if self.n_nodes <= _DENSE_NODES:
            values = linalg.eigvalsh(self.symmetric_matrix.toarray())
            second, least = float(values[-2]), float(values[0])
        else:
            second, least = _lanczos_ends(self)
        second += min(_LANCZOS_TOLERANCE, 1e-3 * (1.0 - second))
        return second, -1.0 if self.is_periodic else max(least - min(1e-6, 1e-3 * (1.0 + least)), -1.0)

    @property
    def mixing_rate(self) -> float:
        """Largest modulus of an eigenvalue other than 1, and other than -1 when the chain is periodic."""
        second, least = self.spectrum
        # The spectrum of a periodic chain is symmetric: its second value also bounds the lower end.
        return max(second, 0.0) if self.is_periodic else max(second, -least, 0.0)

    @property
    def node_shares(self) -> FloatArray:
        """Share of its time that the walk spends on each node: the stationary law."""
        return self.stationary

    @property
    def products_per_hop(self) -> float:
        """Multiplications of one hop of all delivery laws."""
        return float(self.n_nodes**2 * len(self.indices))

    @property
    def on_nodes(self) -> NodeChain:
        """The chain itself."""
        return self

    @property
    def states(self) -> States:
        """The walk hop by hop."""
        return States(sparse.csr_array(self.transition_matrix), self.stationary, self.state_nodes)

    @cached_property
    def state_nodes(self) -> IntArray:
        """The nodes: they are the states."""
        return np.arange(self.n_nodes)

    @property
    def rows(self) -> kernels.Rows:
        """The transition probabilities as the kernels take them."""
        return kernels.Rows(self.indptr, self.indices, self.probabilities)

    @cached_property
    def inflow(self) -> kernels.Rows:
        """P(indices[e] -> row) for each entry: reversibility turns the transpose into a scaling."""
        rows = np.repeat(np.arange(self.n_nodes), np.diff(self.indptr))
        ratio = self.stationary[rows] / self.stationary[self.indices]
        return kernels.Rows(self.indptr, self.indices, np.asarray(self.probabilities * ratio))

    def entry_shares(self, node: int, hitting: FloatArray) -> FloatArray:
        """P(the walk first enters ``node`` through its e-th neighbour | it starts at i), as a table [e, i]."""
        entries = slice(self.indptr[node], self.indptr[node + 1])
        neighbours = self.indices[entries]
        visits = hitting[:, [node]] + hitting[node, neighbours] - hitting[:, neighbours]
        shares = np.maximum(visits, 0.0) * (self.stationary[neighbours] * self.inflow.weights[entries])
        # The row of the node itself is empty: it is never its own source.
        shares[node] = 1.0
        return np.ascontiguousarray(normalised(shares).T)

    def mean_hitting_times(self, targets: Nodes = None, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> FloatArray:
        """Return E[T_ij], the mean hops from each node to each target; see :mod:`veilwalk.chains._means`."""
        return solve_mean_times(self, targets, memory_bytes)

    def hitting_laws(
        self, horizon: int, targets: Nodes = None, *, memory_bytes: int = DEFAULT_MEMORY_BYTES
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield targets and P(T_ij = t) for them; the next step of the iteration overwrites the array."""
        chosen, last = chosen_targets(self.n_nodes, targets), chosen_horizon(horizon)
        per_block = (last + 1) * self.n_nodes * WIDTH
        require_memory("hitting laws", per_block, memory_bytes)
        at_once = max(1, min(kernels.thread_count(), memory_bytes // (8 * per_block), -(-len(chosen) // WIDTH)))
        laws = np.empty((at_once, last + 1, self.n_nodes, WIDTH))
        for start in range(0, len(chosen), at_once * WIDTH):
            part = chosen[start : start + at_once * WIDTH]
            n_blocks = -(-len(part) // WIDTH)
            padded = np.pad(part, (0, n_blocks * WIDTH - len(part)), mode="edge").reshape(n_blocks, WIDTH)
            laws[:n_blocks, 0] = _starting_columns(self.n_nodes, padded, of_returns=False)
            kernels.record(self.rows, padded, laws[:n_blocks])
            for index in range(n_blocks):
                named = part[index * WIDTH : (index + 1) * WIDTH]
                yield named, laws[index, :, :, : len(named)]

    def mean_hops(self, law: sparse.csr_array) -> float:
        """Return the exact mean hops between two updates under a destination law."""
        legs = np.asarray(law.multiply(self.mean_hitting_times()).sum(axis=1)).ravel()
        return float(stationary_law(law.toarray()) @ legs)

    def _start_columns(self, targets: IntArray, *, n_sums: int = 0, of_returns: bool = False) -> NodeColumns:
        return NodeColumns(self, targets, n_sums=n_sums, of_returns=of_returns)

    @property
    def _n_entries(self) -> IntArray:
        return np.diff(self.indptr)

    def _token_floats(self, batch: int, widest: int) -> int:  # noqa: ARG002
        return (4 * batch + 5) * self.n_nodes**2

    def _solve_tokens(self, law: FloatArray, memory_bytes: int) -> NodeTokens:  # noqa: ARG002
        return NodeTokens(self, law)

    @property
    def _first_look(self) -> int:
        """When modes other than the slowest have fallen below rounding."""
        rate = self.mixing_rate
        steps = math.log(_MIXED) / math.log(rate) if rate > 0.0 else 0.0
        return max(16, math.ceil(steps))

    @property
    def _give_up(self) -> float:
        return 4 * self._first_look + 64

    def __repr__(self) -> str:
        return f"NodeChain(kind={self.kind!r}, n_nodes={self.n_nodes}, is_periodic={self.is_periodic})"


class NodeColumns(Columns):
    """Killed columns on the nodes; those of returns start as survival: 1 everywhere but at the target."""

    def __init__(self, chain: NodeChain, targets: IntArray, *, n_sums: int, of_returns: bool) -> None:
        state = _starting_columns(chain.n_nodes, split_targets(targets), of_returns=of_returns)
        # At time 0 only the sum of t**0 counts.
        totals = np.eye(n_sums, 1)[:, :, np.newaxis] * state[:, np.newaxis]
        super().__init__(targets, state, np.empty_like(state), totals)
        self._chain, self._n_sums = chain, n_sums
        # What stood at each target before it was taken out, at the last two times in turn.
        self._arrivals = np.zeros((2, *self._targets.shape))

    def _step(self, first: int, last: int) -> None:
        now = (self._chain.rows, self._targets, self._state, self._spare)
        if self._windows is not None:
            kernels.advance_windows(*now, *self._windows, first, last)
            return
        factors = np.arange(last + 1.0) ** np.arange(self._n_sums)[:, np.newaxis]
        kernels.advance(*now, factors, self._totals, self._arrivals, first, last)

    def total(self, kind: int) -> FloatArray:
        """Return the (n_nodes, n_targets) sum over times 0 to now of ``t**kind`` times the column."""
        total = self.join_blocks(self._totals[:, kind])
        # After time 0 nothing counts at the target: the walk is over there.
        total[self._named_targets(), np.arange(self._n_targets)] = 1.0 if kind == 0 else 0.0
        return total

    def return_survival(self) -> FloatArray:
        """Return P(return time > t) at the time now, one number a target."""
        return self._survival_at(self.time)

    def survival_ends(self, tail: GeometricTail) -> tuple[FloatArray, FloatArray]:
        """Return P(return time > t) one step before the time of ``tail``, and at it."""
        return self._survival_at(tail.time - 1), self._survival_at(tail.time)

    def _survival_at(self, time: int) -> FloatArray:
        return np.asarray(self._arrivals[time % 2].ravel()[: self._n_targets].copy())

    def tail(self) -> GeometricTail | None:
        """Return the tail, or None while some entry has not settled."""
        ahead_one, ahead_two = self._two_steps_ahead()
        gaps = self._two_step_gaps((self._spare, ahead_one), (self._state, ahead_two))
        # An error left now in slower modes sums to at most this share of itself in the tail.
        share = np.maximum(1.0 - self._chain.mixing_rate**2 / (1.0 - gaps), 0.0)
        rounding = EPS * (8.0 + float(np.diff(self._chain.indptr).max()))
        tolerance = np.maximum(TAIL_TOLERANCE * share, rounding)
        negligible = TAIL_TOLERANCE / (self.time / gaps + 2.0 / gaps**2)
        for before, after in ((self._spare, ahead_one), (self._state, ahead_two)):
            off = np.abs(after - (1.0 - gaps) * before)
            if not np.all((off <= tolerance * before) | (before <= negligible)):
                return None
        return self._geometric_tail(gaps)

    def _two_steps_ahead(self) -> tuple[FloatArray, FloatArray]:
        """Return the columns one and two steps from now, without going there."""
        ahead, spare = self._state.copy(), np.empty_like(self._state)
        nothing, arrivals = np.zeros((0, 1)), np.zeros((1, *self._targets.shape))
        kernels.advance(self._chain.rows, self._targets, ahead, spare, nothing, self._totals, arrivals, 1, 2)
        return spare, ahead

    def _two_step_gaps(self, odd: tuple[FloatArray, FloatArray], even: tuple[FloatArray, FloatArray]) -> FloatArray:
        """Return one minus the Rayleigh quotient of two steps, (n_blocks, 1, width), over both parities.

        A periodic column vanishes at every other step; both parities together never do.
        """
        share = self._chain.stationary[:, np.newaxis]
        lost, weight = np.zeros(()), np.zeros(())
        for before, after in (odd, even):
            # The loss is summed itself: one minus a quotient near one would lose its digits.
            lost = lost + ((before - after) * before * share).sum(axis=1, keepdims=True)
            weight = weight + (before * before * share).sum(axis=1, keepdims=True)
        ratio = np.divide(lost, weight, out=np.ones_like(weight), where=weight > 0.0)
        return np.asarray(np.clip(ratio, EPS, 1.0 - EPS))


class NodeTokens(Tokens):
    """The token of a walk without memory: in state (position, destination)."""

    def __init__(self, chain: NodeChain, law: FloatArray) -> None:
        self._chain, self._law = chain, law
        self._hitting = chain.mean_hitting_times()
        self._sources = stationary_law(law)
        self._visits = token_law(chain, law, self._hitting)

    def follow(self, nodes: IntArray, columns: IntArray, arrivals: FloatArray) -> None:
        """Follow the token from a visit to each of ``nodes`` until it is back."""
        kernels.deliver(self._chain.inflow, self._law, nodes, columns, normalised(self._visits[nodes]), arrivals)

    def scale_arrivals(self, node: int, arrivals: FloatArray) -> FloatArray:
        """Return the weights as probabilities: a visit is a delivery with probability (mu_j / hops per leg) / pi_j."""
        arrivals *= self._chain.stationary[node] * self._visits.sum() / self._sources[node]
        return arrivals

    def last_hops(self, node: int) -> tuple[IntArray, FloatArray]:
        """Return the neighbours of ``node`` and P(last hop, source | a delivery)."""
        neighbours = self._chain.indices[self._chain.indptr[node] : self._chain.indptr[node + 1]]
        prior = normalised(self._sources * self._law[:, node])
        return neighbours, prior * self._chain.entry_shares(node, self._hitting)


def _starting_columns(n_nodes: int, targets: IntArray, *, of_returns: bool) -> FloatArray:
    """Return (n_blocks, n_nodes, width) columns at time 0: 1 at the target, or 1 everywhere else."""
    n_blocks, width = targets.shape
    columns = np.full((n_blocks, n_nodes, width), 1.0 if of_returns else 0.0)
    columns[np.arange(n_blocks)[:, np.newaxis], targets, np.arange(width)] = 0.0 if of_returns else 1.0
    return columns


def _lanczos_ends(chain: NodeChain) -> tuple[float, float]:
    matrix = chain.symmetric_matrix
    top = np.sqrt(chain.stationary)
    # Moved to the mean of the others, the known eigenvalue 1 is neither their largest nor their smallest.
    shift = 1.0 - (float(matrix.trace()) - 1.0) / (chain.n_nodes - 1)

    def deflated(vector: FloatArray) -> FloatArray:
        column = vector.ravel()
        return np.asarray(matrix @ column - shift * (top @ column) * top)

    operator = sparse_linalg.LinearOperator(matrix.shape, matvec=deflated, dtype=np.float64)
    # A fixed start makes the eigenvalues, and all that follows, the same in every run.
    start = task_generator(0).standard_normal(chain.n_nodes)
    try:
        values = sparse_linalg.eigsh(
            operator,
            k=1 if chain.is_periodic else 2,
            which="LA" if chain.is_periodic else "BE",
            v0=start,
            tol=_LANCZOS_TOLERANCE,
            maxiter=_LANCZOS_RESTARTS,
            return_eigenvectors=False,
        )
    except sparse_linalg.ArpackNoConvergence:
        return _inverted_ends(chain, start)
    return float(values.max()), float(values.min())


def _inverted_ends(chain: NodeChain, start: FloatArray) -> tuple[float, float]:
    """Return both ends by shift and invert: a graph on which Lanczos crawls has small separators."""
    matrix = sparse.csc_array(chain.symmetric_matrix)
    ends = []
    for shift in (1.0 + 1e-6, -1.0 - 1e-6):
        try:
            values = sparse_linalg.eigsh(matrix, k=2, sigma=shift, v0=start, return_eigenvectors=False)
        except sparse_linalg.ArpackNoConvergence as error:
            raise NumericalError(f"the spectrum of {chain!r} did not converge near {shift:+.0f}") from error
        ends.append(values)
    return float(ends[0].min()), float(ends[1].min())
