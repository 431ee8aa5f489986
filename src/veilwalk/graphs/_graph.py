"""The network: an immutable, checked, simple, undirected, connected graph in CSR form."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from veilwalk.core import validate
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray, frozen
from veilwalk.core.errors import GraphError, InvalidParameterError

_SHOWN_SIZES = 8
_SHOWN_CHARACTERS = 60
# Line breaks, control characters and half characters would break the one line that names a node.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass(frozen=True, eq=False)
class Graph:
    """A simple, undirected, connected graph; node ``i`` has neighbours ``indices[indptr[i]:indptr[i+1]]``.

    Build it with :meth:`from_edges` or :meth:`from_csr`; both check every promise made here. Neighbour lists
    are sorted, both arrays are read-only, and their integer type is the narrowest of int32 and int64 that
    holds them. Two graphs are the same graph when their digests agree; name and labels do not count.

    Attributes:
        indptr: Where each neighbour list begins.
        indices: The neighbour lists, one after the other.
        name: What made it, a spec such as ``rrg:300:3:seed=1`` or ``file:edges.csv``; empty when unknown.
        labels: What its owner calls each node, all different; None where that is the number itself.
        is_overlay: Whether members know their own links only; else every member knows the whole graph.
    """

    indptr: IntArray
    indices: IntArray
    name: str = ""
    labels: tuple[str, ...] | None = None
    is_overlay: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.indptr, self.indices, self.name, self.labels, self.is_overlay)

    @classmethod
    def from_edges(
        cls,
        n_nodes: int,
        edges: npt.ArrayLike,
        *,
        merge_repeats: bool = False,
        largest_component: bool = False,
        labels: Sequence[str] | None = None,
    ) -> Graph:
        """Build a graph on nodes 0..n_nodes-1 from an (m, 2) array with each edge once.

        ``merge_repeats`` counts an edge that is listed again, in either direction, once. ``largest_component`` keeps
        the largest connected component, renumbered in ascending order; labels keep the old numbers where none were
        given.
        """
        validate.integer(2, nodes=n_nodes)
        pairs = _check_pairs(n_nodes, edges)
        names = _check_labels(labels, n_nodes)
        loops = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
        if loops.size:
            _refuse_loops(pairs[loops, 0], names)
        listed = count_listings(n_nodes, pairs)
        if not merge_repeats and listed.nnz < 2 * len(pairs):
            pair = _edge_name(listed, int(np.argmax(listed.data > 1)), names)
            raise GraphError(f"edge {pair} is listed more than once: must be simple, each edge once")
        return cls._from_lists(
            listed.indptr, listed.indices, largest_component=largest_component, labels=names, keep_numbers=names is None
        )

    @classmethod
    def from_csr(
        cls, adjacency: sparse.csr_array, *, largest_component: bool = False, labels: Sequence[str] | None = None
    ) -> Graph:
        """Build a graph from a symmetric 0/1 adjacency matrix, as :meth:`from_edges`; anything else is refused."""
        rows, columns = adjacency.shape
        if rows != columns:
            raise GraphError(f"adjacency matrix is {rows} x {columns}: must be square")
        validate.at_least(2, nodes=rows)
        matrix = adjacency.copy()
        try:
            # SciPy trusts index arrays by default and reads out of bounds where they are wrong.
            matrix.check_format(full_check=True)
        except ValueError as error:
            raise GraphError(f"adjacency matrix is malformed ({error}): must be a valid CSR matrix") from error
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        names = _check_labels(labels, rows)
        _refuse_not_simple(matrix, names)
        return cls._from_lists(
            matrix.indptr, matrix.indices, largest_component=largest_component, labels=names, keep_numbers=names is None
        )

    @classmethod
    def _from_lists(
        cls,
        indptr: IntArray,
        indices: IntArray,
        *,
        largest_component: bool = False,
        labels: tuple[str, ...] | None = None,
        keep_numbers: bool = False,
    ) -> Graph:
        """Take over sorted, symmetric, simple neighbour lists; only their connection is checked."""
        dtype = index_type(max(len(indptr), len(indices)))
        indptr = frozen(indptr.astype(dtype, copy=False))
        indices = frozen(indices.astype(dtype, copy=False))
        n_nodes = len(indptr) - 1
        matrix: Any = sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=(n_nodes, n_nodes))
        if len(csgraph.breadth_first_order(matrix, 0, return_predecessors=False)) == n_nodes:
            return cls(indptr=indptr, indices=indices, labels=labels)
        _, part_of = csgraph.connected_components(matrix, directed=False)
        if not largest_component:
            _refuse_disconnected(part_of)
        is_member = part_of == np.argmax(np.bincount(part_of))
        if labels is not None:
            labels = tuple(compress(labels, is_member))
        elif keep_numbers:
            labels = tuple(map(str, np.flatnonzero(is_member).tolist()))
        indptr, indices = _keep_nodes(indptr, indices, is_member)
        return cls(indptr=frozen(indptr), indices=frozen(indices), labels=_drop_numbers(labels))

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
    def is_bipartite(self) -> bool:
        """Whether the nodes split into two sides with every edge between them."""
        from veilwalk.graphs._distances import distances

        sides = distances(self, [0])[0][self.edges()] % 2
        return bool(np.all(sides[:, 0] != sides[:, 1]))

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

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {label: node for node, label in enumerate(self.labels or map(str, range(self.n_nodes)))}

    def label(self, node: int) -> str:
        """Return what its owner calls ``node``."""
        validate.integer(node=node)
        if not 0 <= node < self.n_nodes:
            raise InvalidParameterError("node", node, f"from 0 to {self.n_nodes - 1}")
        return str(node) if self.labels is None else self.labels[node]

    def node(self, label: str) -> int:
        """Return the number of the node called ``label``."""
        number = self._numbers.get(label)
        if number is None:
            raise InvalidParameterError("node", label, f"a label of this graph, such as {_cut_label(self.label(0))!r}")
        return number

    def named(self, name: str) -> Graph:
        """Return the same graph under another name."""
        return replace(self, name=name)

    def neighbours(self, node: int) -> IntArray:
        """Return the sorted neighbours of ``node``."""
        return self.indices[self.indptr[node] : self.indptr[node + 1]]

    def edges(self) -> IntArray:
        """Return each undirected edge once, as an (n_edges, 2) array with the smaller end first."""
        heads = np.repeat(np.arange(self.n_nodes, dtype=self.indices.dtype), self.degrees)
        once = heads < self.indices
        return np.column_stack((heads[once], self.indices[once]))

    def __repr__(self) -> str:
        name = f"{self.name!r}, " if self.name else ""
        return f"Graph({name}n_nodes={self.n_nodes}, n_edges={self.n_edges}, digest={self.digest[:12]})"


def index_type(largest: int) -> type[np.int32 | np.int64]:
    """Return the narrowest index type that holds ``largest``."""
    return np.int32 if largest <= np.iinfo(np.int32).max else np.int64


def count_listings(n_nodes: int, pairs: IntArray) -> sparse.csr_array:
    """Return how often each edge is listed among ``pairs``, in both directions; neighbours are sorted."""
    ends = np.concatenate((pairs, pairs[:, ::-1])).T
    return sparse.coo_array((np.ones(ends.shape[1], dtype=np.int32), tuple(ends)), shape=(n_nodes, n_nodes)).tocsr()


def _check_labels(labels: Sequence[str] | None, n_nodes: int) -> tuple[str, ...] | None:
    """Return ``labels`` if they are texts of one line, one a node and all different."""
    if labels is None:
        return None
    names: tuple[Any, ...] = tuple(labels)
    if len(names) != n_nodes:
        raise InvalidParameterError("labels", f"{len(names)} labels", f"one for each of the {n_nodes} nodes")
    for name in names:
        if not isinstance(name, str) or not name or _UNPRINTABLE.search(name):
            raise InvalidParameterError("labels", _cut_label(name), "texts of one line, none of them empty")
    if len(set(names)) < n_nodes:
        repeated = Counter(names).most_common(1)[0][0]
        raise InvalidParameterError("labels", _cut_label(repeated), "different for each node")
    return _drop_numbers(names)


def _drop_numbers(labels: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return None where each label is the number of its node, so that there is one way to say so."""
    if labels is None or all(label == str(node) for node, label in enumerate(labels)):
        return None
    return labels


def _cut_label(label: object) -> object:
    """Return ``label`` short enough for a message."""
    return label[:_SHOWN_CHARACTERS] if isinstance(label, str) else label


def _node_name(node: int, labels: tuple[str, ...] | None) -> object:
    """Return what a message should call ``node``."""
    return node if labels is None else _cut_label(labels[node])


def _edge_name(matrix: sparse.csr_array, entry: int, labels: tuple[str, ...] | None) -> str:
    row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
    return f"{_node_name(row, labels)}-{_node_name(matrix.indices[entry], labels)}"


def _check_pairs(n_nodes: int, edges: npt.ArrayLike) -> IntArray:
    pairs = np.asarray(edges)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
        raise GraphError(f"edges have shape {pairs.shape} and type {pairs.dtype}: need (m, 2) whole numbers")
    if pairs.size and (pairs.min() < 0 or pairs.max() >= n_nodes):
        raise GraphError(f"edges name node {pairs.min()} or {pairs.max()}: nodes are 0..{n_nodes - 1}")
    return np.ascontiguousarray(pairs, dtype=index_type(max(n_nodes, 2 * len(pairs))))


def _refuse_loops(nodes: IntArray, labels: tuple[str, ...] | None) -> None:
    first = _node_name(nodes[0], labels)
    raise GraphError(f"the graph has {nodes.size} self-loops (first at node {first}): must be simple")


def _refuse_not_simple(matrix: sparse.csr_array, labels: tuple[str, ...] | None) -> None:
    loops = np.flatnonzero(matrix.diagonal())
    if loops.size:
        _refuse_loops(loops, labels)
    if matrix.nnz and not bool(np.all(matrix.data == 1)):
        entry = int(np.flatnonzero(matrix.data != 1)[0])
        pair = _edge_name(matrix, entry, labels)
        raise GraphError(f"edge {pair} has weight {matrix.data[entry]}: must be simple, each edge once, unweighted")
    reverse = matrix.T.tocsr()
    if not (np.array_equal(matrix.indptr, reverse.indptr) and np.array_equal(matrix.indices, reverse.indices)):
        # Each shows twice: +1 where it is, -1 where its reverse would be.
        one_way = sparse.csr_array(matrix.astype(np.int8) - reverse.astype(np.int8))
        raise GraphError(f"{one_way.count_nonzero() // 2} directed edges have no reverse: must be undirected")


def _refuse_disconnected(part_of: IntArray) -> None:
    sizes = np.sort(np.bincount(part_of))[::-1]
    largest = ", ".join(str(size) for size in sizes[:_SHOWN_SIZES]) + (", ..." if len(sizes) > _SHOWN_SIZES else "")
    raise GraphError(
        f"the graph falls into {len(sizes)} components of {largest} nodes: must be connected "
        "(component=largest keeps the largest)"
    )


def _keep_nodes(indptr: IntArray, indices: IntArray, is_member: BoolArray) -> tuple[IntArray, IntArray]:
    if np.count_nonzero(is_member) < 2:
        raise GraphError("the graph has no edge: its largest component is a single node")
    new_number = np.cumsum(is_member, dtype=indices.dtype) - 1
    degrees = np.diff(indptr)
    new_indptr = np.concatenate(([0], np.cumsum(degrees[is_member]))).astype(indptr.dtype)
    return new_indptr, new_number[indices[np.repeat(is_member, degrees)]].astype(indices.dtype)


def _rebuild(indptr: IntArray, indices: IntArray, *others: Any) -> Graph:
    """Return a graph that came from another process, read-only as it was: kernels are compiled for that."""
    return Graph(frozen(indptr), frozen(indices), *others)
