"""Compiled loops over blocks of targets.

A block is an (n_nodes, width) array with one target a column; products run along its rows, which LLVM
vectorises. Blocks never touch each other, so results do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import prange

from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.engine import njit

# Contraction to fused multiply-add is the only liberty given: sums keep their order.
_OPTIONS: dict[str, Any] = {"cache": True, "fastmath": {"contract"}, "error_model": "numpy"}


def thread_count() -> int:
    """Return how many threads the kernels use."""
    return int(numba.get_num_threads())


@njit(inline="always")
def _apply_row(
    indptr: IntArray,
    indices: IntArray,
    weights: FloatArray,
    source: FloatArray,
    row: int,
    out: FloatArray,
    place: int,
) -> None:
    """Write row ``row`` of the sparse product ``P @ source`` into ``out[place]``."""
    width = source.shape[1]
    entry = indptr[row]
    stop = indptr[row + 1]
    # Four neighbours a pass: one store of the row instead of four.
    if stop - entry >= 4:
        a, b, c, d = indices[entry], indices[entry + 1], indices[entry + 2], indices[entry + 3]
        wa, wb, wc, wd = weights[entry], weights[entry + 1], weights[entry + 2], weights[entry + 3]
        for col in range(width):
            out[place, col] = wa * source[a, col] + wb * source[b, col] + wc * source[c, col] + wd * source[d, col]
        entry += 4
    else:
        a, wa = indices[entry], weights[entry]
        for col in range(width):
            out[place, col] = wa * source[a, col]
        entry += 1
    while entry + 4 <= stop:
        a, b, c, d = indices[entry], indices[entry + 1], indices[entry + 2], indices[entry + 3]
        wa, wb, wc, wd = weights[entry], weights[entry + 1], weights[entry + 2], weights[entry + 3]
        for col in range(width):
            out[place, col] += wa * source[a, col] + wb * source[b, col] + wc * source[c, col] + wd * source[d, col]
        entry += 4
    while entry < stop:
        a, wa = indices[entry], weights[entry]
        for col in range(width):
            out[place, col] += wa * source[a, col]
        entry += 1


@njit(parallel=True, **_OPTIONS)
def advance(
    indptr: IntArray,
    indices: IntArray,
    probabilities: FloatArray,
    targets: IntArray,
    state: FloatArray,
    spare: FloatArray,
    factors: FloatArray,
    totals: FloatArray,
    arrivals: FloatArray,
    first: int,
    last: int,
) -> None:
    """Advance killed columns from time ``first - 1`` to ``last``; ``state`` and ``spare`` take turns.

    ``totals[b, m]`` gathers ``factors[m, t] * column``; ``arrivals``, a ring over times, keeps what stood at
    the target before it was taken out: the return law.
    """
    n_nodes = state.shape[1]
    width = state.shape[2]
    n_kept = arrivals.shape[0]
    for block in prange(state.shape[0]):
        now = state[block]
        following = spare[block]
        for time in range(first, last + 1):
            second = (time - first) % 2 == 1
            for row in range(n_nodes):
                _apply_row(indptr, indices, probabilities, now, row, following, row)
                # Two times a pass: the sums, not the product, are what would wait for memory.
                if second:
                    for kind in range(factors.shape[0]):
                        before, factor = factors[kind, time - 1], factors[kind, time]
                        for col in range(width):
                            totals[block, kind, row, col] += before * now[row, col] + factor * following[row, col]
                elif time == last:
                    for kind in range(factors.shape[0]):
                        factor = factors[kind, time]
                        for col in range(width):
                            totals[block, kind, row, col] += factor * following[row, col]
            for col in range(width):
                arrivals[time % n_kept, block, col] = following[targets[block, col], col]
                following[targets[block, col], col] = 0.0
            now, following = following, now


@njit(parallel=True, **_OPTIONS)
def advance_windows(
    indptr: IntArray,
    indices: IntArray,
    probabilities: FloatArray,
    targets: IntArray,
    state: FloatArray,
    spare: FloatArray,
    lo: FloatArray,
    hi: FloatArray,
    masses: FloatArray,
    first: int,
    last: int,
) -> None:
    """As :func:`advance`, gathering each pair's own window ``lo <= t <= hi`` into ``masses``."""
    n_nodes = state.shape[1]
    width = state.shape[2]
    for block in prange(state.shape[0]):
        now = state[block]
        following = spare[block]
        for time in range(first, last + 1):
            at = float(time)
            for row in range(n_nodes):
                _apply_row(indptr, indices, probabilities, now, row, following, row)
                for col in range(width):
                    inside = (lo[block, row, col] <= at) & (at <= hi[block, row, col])
                    masses[block, row, col] += following[row, col] if inside else 0.0
            for col in range(width):
                following[targets[block, col], col] = 0.0
            now, following = following, now


@njit(parallel=True, **_OPTIONS)
def record(indptr: IntArray, indices: IntArray, probabilities: FloatArray, targets: IntArray, laws: FloatArray) -> None:
    """Fill ``laws[block, t]`` for every t > 0 from the columns at ``laws[block, 0]``."""
    for block in prange(laws.shape[0]):
        for time in range(1, laws.shape[1]):
            now = laws[block, time - 1]
            following = laws[block, time]
            for row in range(laws.shape[2]):
                _apply_row(indptr, indices, probabilities, now, row, following, row)
            for col in range(laws.shape[3]):
                following[targets[block, col], col] = 0.0
