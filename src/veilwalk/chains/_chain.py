"""The walk as a value: transition probabilities, stationary law, spectrum."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg, sparse
from scipy.sparse import csgraph
from scipy.sparse import linalg as sparse_linalg

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray, frozen
from veilwalk.core.errors import InvalidParameterError, NumericalError
from veilwalk.core.randomness import task_generator
from veilwalk.graphs import Graph

_KINDS = ("lazy", "metropolis", "simple")
# Below this size a dense eigensolver is as quick as Lanczos and cannot fail to converge.
_DENSE_NODES = 256
_LANCZOS_TOLERANCE = 1e-6
_LANCZOS_RESTARTS = 400


@dataclass(frozen=True, eq=False)
class WalkChain:
    """A reversible Markov chain on the nodes of a connected graph, as CSR transition probabilities.

    From node ``i`` the walk goes to ``indices[e]`` with probability ``probabilities[e]`` for ``e`` in
    ``indptr[i]:indptr[i+1]``; a self-loop is an entry with ``indices[e] == i``. Build it with :meth:`simple`,
    :meth:`lazy`, :meth:`metropolis` or :meth:`of`. All arrays are read-only.
    """

    kind: str
    indptr: IntArray
    indices: IntArray
    probabilities: FloatArray
    stationary: FloatArray
    is_periodic: bool

    @classmethod
    def of(cls, graph: Graph, kind: str) -> WalkChain:
        """Build the chain named ``kind``: "simple", "lazy" (staying half the time) or "metropolis"."""
        match kind:
            case "simple":
                return cls.simple(graph)
            case "lazy":
                return cls.lazy(graph)
            case "metropolis":
                return cls.metropolis(graph)
            case _:
                raise InvalidParameterError("walk kind", kind, f"one of {', '.join(_KINDS)}")

    @classmethod
    def simple(cls, graph: Graph) -> WalkChain:
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
    def lazy(cls, graph: Graph, stay: float = 0.5) -> WalkChain:
        """Build the lazy walk: stay with probability ``stay``, else a uniform neighbour."""
        validate.probability(stay=stay)
        moves = np.repeat((1.0 - stay) / graph.degrees, graph.degrees)
        loops = np.full(graph.n_nodes, stay)
        return cls._with_loops("lazy", graph, moves, loops, graph.stationary_distribution)

    @classmethod
    def metropolis(cls, graph: Graph) -> WalkChain:
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
    ) -> WalkChain:
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
    def sides(self) -> IntArray:
        """Which of its two sides each node of a periodic chain is on: the walk changes sides at every hop."""
        hops = csgraph.shortest_path(self.transition_matrix, unweighted=True, indices=0)
        return np.asarray(hops, dtype=np.int64) % 2

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

    def __repr__(self) -> str:
        return f"WalkChain(kind={self.kind!r}, n_nodes={self.n_nodes}, is_periodic={self.is_periodic})"


def _lanczos_ends(chain: WalkChain) -> tuple[float, float]:
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


def _inverted_ends(chain: WalkChain, start: FloatArray) -> tuple[float, float]:
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
