"""Kernels that move many walkers at once.

Walkers are interleaved so that the memory fetches of one hide behind the work of the others: a few walkers
in registers where the table lives in the first cache, ``LANES`` walkers with prefetch where it does not.

``table`` holds the equally likely moves: row after row of ``width`` nodes, or, with ``width`` 0, rows of any
length that start at ``offsets``. ``ends`` and ``pairs`` are the same moves two at a time, and so is ``far``, in
rows of one cache line (see ``_moves``).
Nodes, widths and counts are uint64 inside the kernels, so that indexing needs no sign test.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.walks._compile import apart, inlined, kernel, prefetch
from veilwalk.walks._kernels_random import HALF, MASK, ONE, ZERO, choice, fill_words, split_words

LANES = 128
OCTET = 8
#: Entries of a row of ``far``: one cache line.
FAR_STRIDE = 16
_AHEAD = 64

Array = Any


@inlined
def octet_block(ends: Array, positions: Array, digits: Array, base: int) -> None:
    """Move eight walkers by all leaps of ``digits``, in registers."""
    # Unsigned places need no sign test each, and so fold into one address.
    b0 = np.uint64(base)
    b1 = b0 + np.uint64(1)
    b2 = b0 + np.uint64(2)
    b3 = b0 + np.uint64(3)
    b4 = b0 + np.uint64(4)
    b5 = b0 + np.uint64(5)
    b6 = b0 + np.uint64(6)
    b7 = b0 + np.uint64(7)
    s0, s1, s2, s3 = positions[b0], positions[b1], positions[b2], positions[b3]
    s4, s5, s6, s7 = positions[b4], positions[b5], positions[b6], positions[b7]
    for row in range(np.uint64(digits.shape[0])):
        s0 = np.uint64(ends[s0 + np.uint64(digits[row, b0])])
        s1 = np.uint64(ends[s1 + np.uint64(digits[row, b1])])
        s2 = np.uint64(ends[s2 + np.uint64(digits[row, b2])])
        s3 = np.uint64(ends[s3 + np.uint64(digits[row, b3])])
        s4 = np.uint64(ends[s4 + np.uint64(digits[row, b4])])
        s5 = np.uint64(ends[s5 + np.uint64(digits[row, b5])])
        s6 = np.uint64(ends[s6 + np.uint64(digits[row, b6])])
        s7 = np.uint64(ends[s7 + np.uint64(digits[row, b7])])
    positions[b0], positions[b1], positions[b2], positions[b3] = s0, s1, s2, s3
    positions[b4], positions[b5], positions[b6], positions[b7] = s4, s5, s6, s7


@inlined
def _dense_steps(table: Array, width: Any, stride: Any, positions: Array, words: Array, steps: int) -> None:
    """Move every lane ``steps`` steps by the digits of its word, which are used up."""
    for _ in range(steps):
        for lane in range(positions.shape[0]):
            product = words[lane] * width
            words[lane] = product & MASK
            node = np.uint64(table[positions[lane] * stride + (product >> HALF)])
            positions[lane] = node
            prefetch(table, node * stride)


@kernel
def write_far(table: Array, width: int, out: Array) -> None:
    """Write into ``out``, row after row of ``FAR_STRIDE`` entries, the nodes after two moves."""
    n_moves = table.shape[0]
    n_nodes = n_moves // width
    for chunk in numba.prange((n_nodes + LANES - 1) // LANES):
        for node in range(chunk * LANES, min(n_nodes, (chunk + 1) * LANES)):
            for first in range(width):
                move = node * width + first
                if move + _AHEAD < n_moves:
                    prefetch(table, np.uint64(table[move + _AHEAD]) * np.uint64(width))
                row = np.int64(table[move]) * width
                for second in range(width):
                    out[node * FAR_STRIDE + first * width + second] = table[row + second]


@inlined
def ragged_step(
    table: Array, offsets: Array, seed: Any, jobs: Array, numbers: Array, positions: Array, words: Array
) -> None:
    """Move every lane one step over rows of any length; ``numbers`` are the words' places in their streams."""
    for lane in range(positions.shape[0]):
        first = np.uint64(offsets[positions[lane]])
        n_choices = np.uint64(offsets[positions[lane] + ONE]) - first
        entry = first + choice(seed, jobs[lane], numbers[lane], words[lane], n_choices)
        positions[lane] = entry
        prefetch(table, entry)
    for lane in range(positions.shape[0]):
        node = np.uint64(table[positions[lane]])
        positions[lane] = node
        prefetch(offsets, node)


@inlined
def _next_words(words: Array, seed: Any, jobs: Array, blocks: Array, block: int, span: Any, limit: Any) -> None:
    """Fill the words of block ``block`` of every lane."""
    for lane in range(LANES):
        blocks[lane] = np.uint64(block)
    fill_words(words, LANES, seed, jobs, blocks, span, limit)


@apart
def _draw_leaps(
    leaps: Array, words: Array, seed: Any, jobs: Array, blocks: Array, block: int, base: Any, span: Any, limit: Any
) -> None:
    """Fill ``leaps`` with the leaps that block ``block`` of every lane serves.

    This and the walk itself are functions of their own, not inlined: together they run out of registers.
    """
    _next_words(words, seed, jobs, blocks, block, span, limit)
    split_words(leaps, words, LANES, base)


@apart
def _walk_leaps(ends: Array, positions: Array, rows: Array) -> None:
    """Move every lane by its leaps."""
    for base in range(0, LANES, OCTET):
        octet_block(ends, positions, rows, base)


@kernel
def final_positions(
    table: Array,
    offsets: Array,
    ends: Array,
    leap: int,
    far: Array,
    width: Any,
    digits: int,
    span: Any,
    limit: Any,
    starts: Array,
    steps: int,
    seed: Any,
    first_job: Any,
    out: Array,
) -> None:
    """Write into ``out`` where each walker is after ``steps`` steps."""
    n_jobs = starts.shape[0]
    paired = ends.shape[0] > 0
    square = width * width
    base = square if leap == 2 else width
    for chunk in numba.prange((n_jobs + LANES - 1) // LANES):
        low = chunk * LANES
        size = min(LANES, n_jobs - low)
        jobs = np.empty(LANES, np.uint64)
        blocks = np.zeros(LANES, np.uint64)
        numbers = np.zeros(LANES, np.uint64)
        positions = np.zeros(LANES, np.uint64)
        words = np.empty((4, LANES), np.uint64)
        leaps = np.empty((4, digits // leap, LANES), np.uint8)
        rows = leaps.reshape(4 * (digits // leap), LANES)
        for lane in range(LANES):
            jobs[lane] = first_job + np.uint64(low + lane)
            if lane < size:
                positions[lane] = np.uint64(starts[low + lane])
        block = 0
        if paired:
            for lane in range(LANES):
                positions[lane] *= base
            for _ in range(steps // (4 * digits)):
                _draw_leaps(leaps, words, seed, jobs, blocks, block, base, span, limit)
                _walk_leaps(ends, positions, rows)
                block += 1
            for lane in range(LANES):
                positions[lane] //= base
        left = steps - 4 * digits * block
        while left > 0:
            _next_words(words, seed, jobs, blocks, block, span, limit)
            for part in range(4):
                now = min(digits, left)
                if width > ZERO:
                    if far.shape[0] > 0:
                        _dense_steps(far, square, np.uint64(FAR_STRIDE), positions, words[part], now // 2)
                        _dense_steps(table, width, width, positions, words[part], now % 2)
                    else:
                        _dense_steps(table, width, width, positions, words[part], now)
                elif now > 0:
                    for lane in range(LANES):
                        numbers[lane] = np.uint64(4 * block + part)
                    ragged_step(table, offsets, seed, jobs, numbers, positions, words[part])
                left -= now
            block += 1
        for lane in range(size):
            out[low + lane] = positions[lane]
