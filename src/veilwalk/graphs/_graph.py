"""The network: an immutable, checked, simple, undirected, connected graph in CSR form."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray, frozen
from veilwalk.core.errors import GraphError

_INT32_MAX = np.iinfo(np.int32).max
_SHOWN = 8


@dataclass(frozen=True, eq=False)
class Graph:
    """A simple, undirected, connected graph; node ``i`` has neighbours ``indices[indptr[i]:indptr[i+1]]``.

    Build it with :meth:`from_edges` or :meth:`from_csr`; both check every promise made here. Neighbour lists
    are sorted, both arrays are read-only, and their integer type is the narrowest of int32 and int64 that
    holds them. Two graphs are the same graph when their digests agree.
    """

    indptr: IntArray
    indices: IntArray

    @classmethod
    def from_edges(cls, n_nodes: int, edges: npt.ArrayLike) -> Graph:
        """Build a graph on nodes 0..n_nodes-1 from an (m, 2) array with each edge once."""
        validate.integer(nodes=n_nodes)
        validate.at_least(2, nodes=n_nodes)
        pairs = np.asarray(edges)
        if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
            raise GraphError(
                f"edges have shape {pairs.shape} and type {pairs.dtype}: need (m, 2) whole numbers"
            )
        if pairs.size and (pairs.min() < 0 or pairs.max() >= n_nodes):
            raise GraphError(f"edges name node {pairs.min()} or {pairs.max()}: nodes are 0..{n_nodes - 1}")
        # int8 counts would hide a 256-fold edge; int32 cannot overflow before memory does.
        ones = np.ones(len(pairs), dtype=np.int32)
        half = sparse.coo_array((ones, (pairs[:, 0], pairs[:, 1])), shape=(n_nodes, n_nodes)).tocsr()
        return cls.from_csr(half + half.T)

    @classmethod
    def from_csr(cls, adjacency: sparse.csr_array) -> Graph:
        """Build a graph from a symmetric 0/1 adjacency matrix; anything else is refused."""
        rows, columns = adjacency.shape
        if rows != columns:
            raise GraphError(f"adjacency matrix is {rows} x {columns}: must be square")
        validate.at_least(2, nodes=rows)
        matrix = adjacency.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        _refuse_not_simple(matrix)
        _refuse_disconnected(matrix)
        dtype = np.int32 if max(rows, matrix.nnz) <= _INT32_MAX else np.int64
        return cls(
            indptr=frozen(matrix.indptr.astype(dtype, copy=True)),
            indices=frozen(matrix.indices.astype(dtype, copy=True)),
        )

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.indptr) - 1

    @property
    def n_edges(self) -> int:
        """Number of undirected edges."""
        return len(self.indices) // 2

    @cached_property
    def degrees(self) -> IntArray:
        """Degree of every node."""
        return frozen(np.diff(self.indptr))

    @property
    def is_regular(self) -> bool:
        """Whether every node has the same degree."""
        return bool(self.degrees.min() == self.degrees.max())

    @cached_property
    def neighbour_table(self) -> IntArray:
        """The neighbours as one dense (n_nodes, degree) table; regular graphs only."""
        if not self.is_regular:
            low, high = self.degrees.min(), self.degrees.max()
            raise GraphError(f"degrees range from {low} to {high}: a neighbour table needs a regular graph")
        return self.indices.reshape(self.n_nodes, -1)

    @cached_property
    def is_bipartite(self) -> bool:
        """Whether the nodes split into two sides with every edge between them."""
        # A connected graph is bipartite exactly when its double cover falls apart.
        n_parts, _ = csgraph.connected_components(
            sparse.block_array([[None, self.adjacency], [self.adjacency, None]]), directed=False
        )
        return bool(n_parts == 2)

    @cached_property
    def adjacency(self) -> sparse.csr_array:
        """The 0/1 adjacency matrix, sharing this graph's index arrays."""
        ones = np.ones(len(self.indices), dtype=np.float64)
        return sparse.csr_array((ones, self.indices, self.indptr), shape=(self.n_nodes, self.n_nodes))

    @cached_property
    def stationary_distribution(self) -> FloatArray:
        """Share of time the simple walk spends at each node: degree over twice the number of edges."""
        return frozen(self.degrees / len(self.indices))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the structure; laws carry it and refuse another graph."""
        state = hashlib.sha256(b"veilwalk-graph-1")
        for array in (self.indptr, self.indices):
            state.update(array.astype("<i8").tobytes())
        return state.hexdigest()

    def neighbours(self, node: int) -> IntArray:
        """Return the sorted neighbours of ``node``."""
        return self.indices[self.indptr[node] : self.indptr[node + 1]]

    def edges(self) -> IntArray:
        """Return each undirected edge once, as an (n_edges, 2) array with the smaller end first."""
        heads = np.repeat(np.arange(self.n_nodes, dtype=self.indices.dtype), self.degrees)
        once = heads < self.indices
        return np.column_stack((heads[once], self.indices[once]))

    def __repr__(self) -> str:
        return f"Graph(n_nodes={self.n_nodes}, n_edges={self.n_edges}, digest={self.digest[:12]})"


def _refuse_not_simple(matrix: sparse.csr_array) -> None:
    loops = np.flatnonzero(matrix.diagonal())
    if loops.size:
        raise GraphError(f"the graph has {loops.size} self-loops (first at node {loops[0]}): must be simple")
    # A self-loop would also weigh 2 in from_edges, so it is named before repeated edges are.
    if matrix.nnz and not bool(np.all(matrix.data == 1)):
        entry = int(np.flatnonzero(matrix.data != 1)[0])
        row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
        pair = f"{row}-{matrix.indices[entry]}"
        raise GraphError(
            f"edge {pair} has weight {matrix.data[entry]}: must be simple, each edge once, unweighted"
        )
    difference = (matrix - matrix.T).tocsr()
    difference.eliminate_zeros()
    if difference.nnz:
        raise GraphError(f"{difference.nnz} directed edges have no reverse: must be undirected")


def _refuse_disconnected(matrix: sparse.csr_array) -> None:
    n_parts, labels = csgraph.connected_components(matrix, directed=False)
    if n_parts > 1:
        sizes = np.sort(np.bincount(labels))[::-1]
        shown = ", ".join(str(size) for size in sizes[:_SHOWN]) + (", ..." if n_parts > _SHOWN else "")
        raise GraphError(f"the graph falls into {n_parts} components of {shown} nodes: must be connected")
