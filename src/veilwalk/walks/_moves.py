"""What a walk may do next, in the layout the kernels read.

A walk without memory is a table of equally likely moves: the simple walk lists each node's neighbours, the lazy walk
lists them and, as often, the node itself. One set of kernels serves every such walk, and a new kind is a new table.
Metropolis and non-backtracking walks are neighbour lists and a rule, which :mod:`veilwalk.walks._kernels_paths` states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import IntArray, frozen
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph

# Words are rejected with probability below 2**24 / 2**32.
_MAX_SPAN = 1 << 24
_WORD = 1 << 32
_INT32_MAX = np.iinfo(np.int32).max
# The numbers by which the kernel knows the kinds.
METROPOLIS = 0
NON_BACKTRACKING = 1
_CODES: dict[str, int] = {"metropolis": METROPOLIS, "non-backtracking": NON_BACKTRACKING}


# Where the moves of each node start, with the end of the last; and the moves.
Rows = tuple[IntArray, IntArray]


@dataclass(frozen=True, slots=True)
class Moves:
    """Equally likely moves of every node, in the layout the kernels read.

    Attributes:
        n_nodes: Number of nodes.
        width: Moves per node, or 0 where nodes differ.
        table: The moves, row after row.
        offsets: Where each row starts, with the end of the last; empty where ``width`` says it.
        digits: Steps served by one 32-bit word: its leading digits in base ``width``.
        span: ``width ** digits``, what one word is drawn from.
        limit: ``2**32 % span``, below which the low half of word * span means the word is rejected.
    """

    n_nodes: int
    width: int
    table: IntArray
    offsets: IntArray
    digits: int
    span: int
    limit: int

    @property
    def n_bytes(self) -> int:
        """Memory the tables take."""
        return self.table.nbytes + self.offsets.nbytes

    def word_arguments(self) -> tuple[Any, int, Any, Any]:
        """Return width, digits, span and limit as the kernels take them."""
        return np.uint64(self.width), self.digits, np.uint64(self.span), np.uint64(self.limit)


def _neighbours(graph: Graph) -> Rows:
    return graph.indptr.astype(np.int64), graph.indices.astype(np.int32, copy=False)


def _neighbours_or_stay(graph: Graph) -> Rows:
    """Row i of length d becomes its d neighbours and d times i itself."""
    offsets, table = _neighbours(graph)
    nodes = np.arange(graph.n_nodes, dtype=np.int32)
    places = np.arange(len(table)) + offsets[np.repeat(nodes, graph.degrees)]
    doubled = np.repeat(nodes, 2 * graph.degrees)
    doubled[places] = table
    return 2 * offsets, doubled


#: The kinds that are a table of equally likely moves, and how each makes it.
TABLES: dict[str, Callable[[Graph], Rows]] = {"simple": _neighbours, "lazy": _neighbours_or_stay}


def moves_of(graph: Graph, walk: Walk) -> Moves:
    """Return the moves of ``walk`` on ``graph``."""
    if walk.kind not in TABLES:
        raise InvalidParameterError("walk", str(walk), "one of " + ", ".join(TABLES))
    if graph.n_nodes > _INT32_MAX:
        raise ResourceLimitError(f"the graph has {graph.n_nodes} nodes: walks number at most {_INT32_MAX}")
    offsets, table = TABLES[walk.kind](graph)
    width = int(offsets[1])
    if np.any(np.diff(offsets) != width):
        return Moves(graph.n_nodes, 0, frozen(table), frozen(offsets), 1, 1, 0)
    digits = digits_per_word(width)
    span = width**digits
    no_offsets = frozen(np.empty(0, dtype=np.int64))
    return Moves(graph.n_nodes, width, frozen(table), no_offsets, digits, span, _WORD % span)


def digits_per_word(width: int) -> int:
    """Return how many steps one word serves: an even number, or 1. Every stream depends on it."""
    power_of_two = width & (width - 1) == 0
    most = _WORD if power_of_two else _MAX_SPAN
    digits = 1
    while digits < 32 and width ** (digits + 1) <= most:
        digits += 1
    return digits if digits == 1 else digits - digits % 2


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


def walk_arguments(graph: Graph, walk: Walk) -> tuple[Any, ...]:
    """Return a walk of either kind as the one kernel takes it; what it does not need is empty."""
    if walk.kind not in TABLES:
        return (True, *memory_moves_of(graph, walk).arguments(), np.uint64(0), 1, np.uint64(1), np.uint64(0))
    moves = moves_of(graph, walk)
    nowhere = np.empty(0, dtype=graph.indices.dtype)
    nowhere.flags.writeable = False
    return (False, 0, moves.offsets, moves.table, nowhere, 1, *moves.word_arguments())


def stream_key(seed: int) -> Any:
    """Return ``seed`` as the kernels take it."""
    validate.integer(seed=seed)
    if not 0 <= seed < 1 << 64:
        raise InvalidParameterError("seed", seed, "between 0 and 2**64 - 1")
    return np.uint64(seed)
