"""Walks that no table of equally likely moves describes: metropolis, non-backtracking.

The rule of each is in :mod:`veilwalk.walks._kernels_memory`; here is what that kernel needs to know of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilwalk.core.arrays import IntArray, frozen
from veilwalk.core.errors import ResourceLimitError
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph

# The numbers by which the kernel knows the kinds.
METROPOLIS = 0
NON_BACKTRACKING = 1
_CODES: dict[str, int] = {"metropolis": METROPOLIS, "non-backtracking": NON_BACKTRACKING}
_INT32_MAX = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True)
class MemoryMoves:
    """Neighbour lists and the rule of the walk, in the layout the kernel reads.

    An entry is a place in the neighbour lists: an edge as one of its ends sees it.

    Attributes:
        n_nodes: Number of nodes.
        code: Number of the kind.
        offsets: Where each node's entries start, with the end of the last.
        table: The neighbour at every entry.
        reverse: The entry of the same edge at its other end.
        words: Random words per hop: 2 where the walk tosses a coin besides choosing, else 1.
    """

    n_nodes: int
    code: int
    offsets: IntArray
    table: IntArray
    reverse: IntArray
    words: int

    @property
    def n_bytes(self) -> int:
        """Memory the tables take."""
        return self.offsets.nbytes + self.table.nbytes + self.reverse.nbytes

    def arguments(self) -> tuple[int, IntArray, IntArray, IntArray, int]:
        """Return the walk as the kernel takes it."""
        return self.code, self.offsets, self.table, self.reverse, self.words


def memory_moves_of(graph: Graph, walk: Walk) -> MemoryMoves:
    """Return what the kernel needs for ``walk`` on ``graph``."""
    if graph.n_nodes > _INT32_MAX:
        raise ResourceLimitError(f"the graph has {graph.n_nodes} nodes: walks number at most {_INT32_MAX}")
    coin = walk.kind == "metropolis" and not graph.is_regular
    # Sorted by neighbour, and by node where that is the same, entries come in the order of their reverses.
    reverse = np.argsort(graph.indices, kind="stable").astype(graph.indices.dtype)
    return MemoryMoves(
        n_nodes=graph.n_nodes,
        code=_CODES[walk.kind],
        offsets=frozen(graph.indptr.astype(np.int64)),
        table=frozen(graph.indices.astype(np.int32)),
        reverse=frozen(reverse),
        words=2 if coin else 1,
    )


def estimate_bytes(graph: Graph) -> int:
    """Return the bytes of the tables, and of making them."""
    n_entries = len(graph.indices)
    tables = 8 * (graph.n_nodes + 1) + n_entries * (4 + graph.indices.itemsize)
    # Sorting takes an order in 64 bits and, while it lasts, some more.
    return tables + 3 * 8 * n_entries
