"""What a walk may do next, as a table of equally likely moves.

A walk without memory is such a table: the simple walk lists each node's neighbours, the lazy walk lists them
and, as often, the node itself. One set of kernels then serves every such walk, and a new kind is a new table.
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


def stream_key(seed: int) -> Any:
    """Return ``seed`` as the kernels take it."""
    validate.integer(seed=seed)
    if not 0 <= seed < 1 << 64:
        raise InvalidParameterError("seed", seed, "between 0 and 2**64 - 1")
    return np.uint64(seed)
