"""What a walk may do next, as a table of equally likely moves.

A walk without memory is such a table: the simple walk lists each node's neighbours, the lazy walk lists them
and, as often, the node itself. One set of kernels then serves every such walk, and a new kind is a new table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from veilwalk.core.arrays import IntArray, frozen
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph

# The double-step tables must stay in the first cache, their 16-bit halves below 2**15, a double step in 8 bits.
_MAX_PAIRS = 8192
_MAX_SQUARE = 256
# A table of double steps in lines of 64 bytes halves the lines a walk fetches. It pays where it stays in the last
# cache, or where single steps already miss it; in between it would push the walk out of the cache.
_LINE_BYTES = 64
_FAR_CACHED_BYTES = 16 << 20
_FAR_UNCACHED_BYTES = 128 << 20
_FAR_MOST_BYTES = 1 << 30
# Making it costs as much as it saves on about so many steps for each move.
_FAR_STEPS = 8
# Words are rejected with probability below 2**24 / 2**32.
_MAX_SPAN = 1 << 24
# Leaps that only say where they end, and rows that hold states, pay as long as they stay in the second cache.
_MAX_LEAPS = 1 << 16
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
        ends: For tiny graphs the node after two moves, times ``width**2``; else empty.
        pairs: For tiny graphs both nodes of two moves, each times ``width**2``, the second in the high half;
            else empty.
    """

    n_nodes: int
    width: int
    table: IntArray
    offsets: IntArray
    digits: int
    span: int
    limit: int
    ends: npt.NDArray[np.uint16]
    pairs: npt.NDArray[np.uint32]

    @property
    def n_bytes(self) -> int:
        """Memory the tables take."""
        return self.table.nbytes + self.offsets.nbytes + self.ends.nbytes + self.pairs.nbytes

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


#: The kinds that are a table of equally likely moves, and how each makes it; the others are for the protocol only.
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
        ends, pairs = frozen(np.empty(0, np.uint16)), frozen(np.empty(0, np.uint32))
        return Moves(graph.n_nodes, 0, frozen(table), frozen(offsets), 1, 1, 0, ends, pairs)
    digits = digits_per_word(width)
    ends, pairs = _double_steps(table.reshape(graph.n_nodes, width))
    span = width**digits
    no_offsets = frozen(np.empty(0, dtype=np.int64))
    return Moves(graph.n_nodes, width, frozen(table), no_offsets, digits, span, _WORD % span, ends, pairs)


def leap_moves(moves: Moves) -> tuple[npt.NDArray[np.uint16], int]:
    """Return where two moves at a time lead, times ``width**2``, or one, times ``width``: what 16 bits hold; and which.

    Where neither is held, nothing.
    """
    if moves.ends.size:
        return moves.ends, 2
    for leap in (2, 1):
        base = moves.width**leap
        if 0 < moves.n_nodes * base <= _MAX_LEAPS and base <= _MAX_SQUARE:
            rows = moves.table.reshape(moves.n_nodes, moves.width)
            ends = (rows[rows] if leap == 2 else rows).astype(np.uint32) * np.uint32(base)
            return frozen(ends.astype(np.uint16).reshape(-1)), leap
    return moves.ends, 2


def ragged_moves(moves: Moves) -> tuple[npt.NDArray[np.uint64], np.uint32]:
    """Return each move as the state of the node that it leads to, where nodes differ and they are few; else nothing.

    A state is where the node's row starts, and in the low half how long it is. Also returned are the bits of which
    the low half of a draw must have one to be beyond doubt (see ``_kernels_ragged``).
    """
    if moves.width or len(moves.table) > _MAX_LEAPS:
        return np.empty(0, np.uint64), np.uint32(0)
    lengths = np.diff(moves.offsets)
    states = (moves.offsets[:-1] << 32 | lengths).astype(np.uint64)
    bits = int(2 * lengths.max() - 1).bit_length()
    # The entry behind the last is looked up when the last row's last word is one of those in doubt.
    return np.append(states[moves.table], states[0]), np.uint32((_WORD - 1) >> bits << bits)


def far_moves(moves: Moves, steps: int) -> IntArray:
    """Return the table of double steps, one cache line a node, if it pays for so many steps in all; else nothing."""
    from veilwalk.walks import _kernels

    n_bytes = moves.n_nodes * _LINE_BYTES
    cached = n_bytes <= _FAR_CACHED_BYTES
    pays = cached or moves.table.nbytes >= _FAR_UNCACHED_BYTES
    fits = 0 < moves.width**2 <= _kernels.FAR_STRIDE and n_bytes <= _FAR_MOST_BYTES
    if leap_moves(moves)[0].size or not fits or not pays or steps < _FAR_STEPS * len(moves.table):
        return np.empty(0, np.int32)
    # NumPy starts arrays anywhere; a row that straddles two lines would cost two fetches.
    raw = np.empty(n_bytes // 4 + _kernels.FAR_STRIDE, np.int32)
    skip = -raw.ctypes.data % _LINE_BYTES // 4
    far = raw[skip : skip + n_bytes // 4]
    _kernels.write_far(moves.table, moves.width, far)
    return far


def digits_per_word(width: int) -> int:
    """Return how many steps one word serves: an even number, so that steps pair up, or 1."""
    power_of_two = width & (width - 1) == 0
    most = _WORD if power_of_two else _MAX_SPAN
    digits = 1
    while digits < 32 and width ** (digits + 1) <= most:
        digits += 1
    return digits if digits == 1 else digits - digits % 2


def _double_steps(rows: IntArray) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint32]]:
    n_nodes, width = rows.shape
    square = width * width
    if n_nodes * square > _MAX_PAIRS or square > _MAX_SQUARE:
        return frozen(np.empty(0, np.uint16)), frozen(np.empty(0, np.uint32))
    first = np.repeat(rows[:, :, None], width, axis=2).astype(np.uint32)
    second = rows[rows].astype(np.uint32)
    ends = (second * square).astype(np.uint16).reshape(-1)
    pairs = ((first * square) | ((second * square) << np.uint32(16))).reshape(-1)
    return frozen(ends), frozen(pairs.astype(np.uint32))
