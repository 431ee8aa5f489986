"""Computes distances, shells, balls and the diameter, by breadth-first search from many sources at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.graphs._graph import Graph

DistanceArray = npt.NDArray[np.integer[Any]]

_ARRAY_BYTES = 4 * 2**30
_BLOCK_BYTES = 256 * 2**20
# A node and how far it is, in a ball.
_BALL_ENTRY_BYTES = 4 + 2
# Edges looked at by searches from every node: some ten seconds on two cores.
_AFFORDABLE_VISITS = 5_000_000_000
_SWEEPS = 32
# 64 sources in one word share the work of a level, but every level costs all edges. Measured faster (3 to 6
# times on expanders) up to a bound of about 150 levels and down to about 32 sources.
_PACKED_LEVELS = 100
_PACKED_SOURCES = 32


@dataclass(frozen=True, slots=True)
class Diameter:
    """The largest distance of a graph, or bounds around it."""

    lower: int
    upper: int

    @property
    def exact(self) -> bool:
        """Whether the bounds meet."""
        return self.lower == self.upper


@dataclass(frozen=True, slots=True, eq=False)
class Balls:
    """The nodes within some distance of each center: ``nodes[starts[k]:starts[k + 1]]``, nearest first.

    ``hops`` says how far each is. The center itself comes first.
    """

    centers: IntArray
    starts: IntArray
    nodes: IntArray
    hops: IntArray

    def row(self, number: int) -> tuple[IntArray, IntArray]:
        """Return nodes and hops of the center with this number."""
        place = slice(self.starts[number], self.starts[number + 1])
        return self.nodes[place], self.hops[place]


def distances(graph: Graph, sources: npt.ArrayLike | None = None, *, memory_bytes: int = _ARRAY_BYTES) -> DistanceArray:
    """Return the hops from each source (row), all nodes when None, to every node (column).

    The type is the narrowest of uint8, uint16 and int32 that surely holds every distance of this graph.
    """
    chosen = _check_sources(graph, sources)
    bound = _distance_bound(graph)
    dtype = _distance_type(bound)
    _refuse_beyond("distances", len(chosen) * graph.n_nodes * dtype.itemsize, memory_bytes)
    return _distance_block(graph, chosen, bound)


def iter_distances(
    graph: Graph, sources: npt.ArrayLike | None = None, *, memory_bytes: int = _BLOCK_BYTES
) -> Iterator[tuple[IntArray, DistanceArray]]:
    """Yield the distances in blocks of sources, all nodes when None: the sources of the block, and a row for each."""
    chosen = _check_sources(graph, sources)
    bound = _distance_bound(graph)
    row_bytes = graph.n_nodes * _distance_type(bound).itemsize
    _refuse_beyond("one row of distances", row_bytes, memory_bytes)
    # An inner generator, so that what is wrong is said at the call and not at the first block.
    return ((block, _distance_block(graph, block, bound)) for block in _blocks(chosen, memory_bytes // row_bytes))


def mean_shell_sizes(graph: Graph, sources: npt.ArrayLike | None = None) -> FloatArray:
    """Return the mean number of nodes at distance 0, 1, 2, ... over the sources (all nodes when None)."""
    from veilwalk.graphs import _kernels

    chosen = _check_sources(graph, sources)
    bound = _distance_bound(graph)
    totals = np.zeros(bound + 1, dtype=np.int64)
    for block in _blocks(chosen, max(1, _BLOCK_BYTES // (4 * (bound + 1)))):
        sizes = np.zeros((len(block), bound + 1), dtype=np.int32)
        _kernels.count_shells(graph.indptr, graph.indices, block, bound, sizes)
        totals += sizes.sum(axis=0)
    return np.trim_zeros(totals, "b") / len(chosen)


def diameter(graph: Graph) -> Diameter:
    """Return the diameter: exact when a search from every node is affordable, else the best bounds found.

    On large graphs each of a few searches from well-chosen nodes narrows the eccentricity of every other
    node (Takes and Kosters); on many real networks the bounds meet after a handful.
    """
    if is_search_from_all_affordable(graph):
        farthest = len(mean_shell_sizes(graph)) - 1
        return Diameter(lower=farthest, upper=farthest)
    lower = np.zeros(graph.n_nodes, dtype=np.int64)
    upper = np.full(graph.n_nodes, graph.n_nodes - 1, dtype=np.int64)
    source = int(np.argmax(graph.degrees))
    for sweep in range(_SWEEPS):
        hops = _hops_from(graph, source)
        eccentricity = hops.max()
        np.maximum(lower, np.maximum(hops, eccentricity - hops), out=lower)
        np.minimum(upper, eccentricity + hops, out=upper)
        lower[source] = upper[source] = eccentricity
        if lower.max() == upper.max():
            break
        # In turn the node that may be the farthest out, and one that may be a centre.
        undecided = np.flatnonzero(lower < upper)
        reach = upper[undecided] if sweep % 2 == 0 else -lower[undecided]
        source = int(undecided[np.argmax(reach)])
    # Any eccentricity is at least half the diameter.
    return Diameter(lower=int(lower.max()), upper=int(min(upper.max(), 2 * upper.min())))


def balls(
    graph: Graph, radius: int, centers: npt.ArrayLike | None = None, *, memory_bytes: int = _ARRAY_BYTES
) -> Balls:
    """Return the nodes within ``radius`` hops of each center, all nodes when None.

    Cost: two searches a center that stop at ``radius``, whatever the size of the graph.
    """
    from veilwalk.graphs import _kernels

    validate.integer(0, radius=radius)
    chosen = _check_sources(graph, centers)
    sizes = np.zeros((len(chosen), 1), np.int64)
    _kernels.count_shells(graph.indptr, graph.indices, chosen, radius, sizes)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    _refuse_beyond(f"nodes within {radius} hops", int(starts[-1]) * _BALL_ENTRY_BYTES, memory_bytes)
    nodes, hops = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int16)
    _kernels.fill_balls(graph.indptr, graph.indices, chosen, radius, starts, nodes, hops)
    return Balls(chosen, starts, nodes, hops)


def is_search_from_all_affordable(graph: Graph) -> bool:
    """Say whether a search from every node takes seconds, not minutes."""
    return graph.n_nodes * len(graph.indices) <= _AFFORDABLE_VISITS


def _check_sources(graph: Graph, sources: npt.ArrayLike | None) -> IntArray:
    if sources is None:
        return np.arange(graph.n_nodes, dtype=np.int64)
    chosen = np.asarray(sources)
    if chosen.ndim != 1 or not chosen.size or not np.issubdtype(chosen.dtype, np.integer):
        raise InvalidParameterError("sources", sources, "a list of one or more whole node numbers")
    if chosen.min() < 0 or chosen.max() >= graph.n_nodes:
        wrong = chosen[(chosen < 0) | (chosen >= graph.n_nodes)][0]
        raise InvalidParameterError("sources", int(wrong), f"node numbers from 0 to {graph.n_nodes - 1}")
    return chosen.astype(np.int64)


def _distance_bound(graph: Graph) -> int:
    """Return a number that no distance exceeds: twice the eccentricity of one node."""
    return min(2 * int(_hops_from(graph, 0).max()), graph.n_nodes - 1)


def _distance_type(bound: int) -> np.dtype[Any]:
    # The largest value of the type marks a node that is not reached yet.
    fits = (np.dtype(kind) for kind in (np.uint8, np.uint16, np.int32) if bound < np.iinfo(kind).max)
    return next(fits, np.dtype(np.int64))


def _hops_from(graph: Graph, source: int) -> DistanceArray:
    block = _distance_block(graph, np.array([source], dtype=np.int64), np.iinfo(np.int32).max - 1)
    return block.ravel()


def _distance_block(graph: Graph, sources: IntArray, bound: int) -> DistanceArray:
    from veilwalk.graphs import _kernels

    out = np.empty((len(sources), graph.n_nodes), dtype=_distance_type(bound))
    if bound <= _PACKED_LEVELS and len(sources) >= _PACKED_SOURCES:
        _kernels.packed_distance_rows(graph.indptr, graph.indices, sources, out)
    else:
        _kernels.distance_rows(graph.indptr, graph.indices, sources, np.iinfo(out.dtype).max, out)
    return out


def _blocks(sources: IntArray, size: int) -> Iterator[IntArray]:
    for start in range(0, len(sources), size):
        yield sources[start : start + size]


def _refuse_beyond(what: str, needed: int, memory_bytes: int) -> None:
    validate.integer(memory_bytes=memory_bytes)
    if needed > memory_bytes:
        raise ResourceLimitError(f"{what} need {needed} bytes: must be within memory_bytes = {memory_bytes}")
