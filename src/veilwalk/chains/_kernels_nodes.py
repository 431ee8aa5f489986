"""Compiled loops over nodes: killed columns, mean hitting times, and deliveries of walks without memory.

A block is an (n_nodes, width) array with one target a column; products run along its rows, which LLVM
vectorises. Blocks never touch each other, so results do not depend on the number of threads.

Mean hitting times solve ``(I - P) x = e_j - pi_j`` for blocks of targets j, by iterative refinement. Chebyshev sweeps
run in single precision, which halves the bytes moved and doubles the lanes of an instruction; residuals and solutions
are kept in double. Each sweep of the remaining residual gains several digits, so the result is as exact as double
precision allows.

Deliveries follow a token through its states: where it is, and for whom its ciphertext is sealed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from numba import prange

from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.engine import njit

SingleArray = npt.NDArray[np.float32]

# Contraction to fused multiply-add is the only liberty given: sums keep their order.
_OPTIONS: dict[str, Any] = {"cache": True, "fastmath": {"contract"}, "error_model": "numpy"}
_MOST_SWEEPS = 12
# A sweep that gains less than this has met rounding; more of them would not help.
_LEAST_GAIN = 4.0


class Rows(NamedTuple):
    """A sparse matrix: row i has ``weights[e]`` in column ``indices[e]`` for e in ``indptr[i]:indptr[i+1]``."""

    indptr: IntArray
    indices: IntArray
    weights: FloatArray


def thread_count() -> int:
    """Return how many threads the kernels use."""
    return int(numba.get_num_threads())


@njit(inline="always")
def _apply_row(rows: Rows, source: FloatArray, row: int, out: FloatArray) -> None:
    """Write row ``row`` of the sparse product ``rows @ source`` into that of ``out``."""
    indices, weights = rows.indices, rows.weights
    width = source.shape[1]
    entry = rows.indptr[row]
    stop = rows.indptr[row + 1]
    # Four neighbours a pass: one store of the row instead of four.
    if stop - entry >= 4:
        a, b, c, d = indices[entry], indices[entry + 1], indices[entry + 2], indices[entry + 3]
        wa, wb, wc, wd = weights[entry], weights[entry + 1], weights[entry + 2], weights[entry + 3]
        for col in range(width):
            out[row, col] = wa * source[a, col] + wb * source[b, col] + wc * source[c, col] + wd * source[d, col]
        entry += 4
    else:
        a, wa = indices[entry], weights[entry]
        for col in range(width):
            out[row, col] = wa * source[a, col]
        entry += 1
    while entry + 4 <= stop:
        a, b, c, d = indices[entry], indices[entry + 1], indices[entry + 2], indices[entry + 3]
        wa, wb, wc, wd = weights[entry], weights[entry + 1], weights[entry + 2], weights[entry + 3]
        for col in range(width):
            out[row, col] += wa * source[a, col] + wb * source[b, col] + wc * source[c, col] + wd * source[d, col]
        entry += 4
    while entry < stop:
        a, wa = indices[entry], weights[entry]
        for col in range(width):
            out[row, col] += wa * source[a, col]
        entry += 1


@njit(parallel=True, **_OPTIONS)
def advance(
    rows: Rows,
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
                _apply_row(rows, now, row, following)
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
    rows: Rows,
    targets: IntArray,
    state: FloatArray,
    spare: FloatArray,
    lo: FloatArray,
    hi: FloatArray,
    masses: FloatArray,
    first: int,
    last: int,
) -> None:
    """As :func:`advance`, gathering each pair's own window ``lo <= t <= hi`` into ``masses``.

    Both in one kernel take a fifth longer.
    """
    n_nodes = state.shape[1]
    width = state.shape[2]
    for block in prange(state.shape[0]):
        now = state[block]
        following = spare[block]
        for time in range(first, last + 1):
            clock = float(time)
            for row in range(n_nodes):
                _apply_row(rows, now, row, following)
                for col in range(width):
                    inside = (lo[block, row, col] <= clock) & (clock <= hi[block, row, col])
                    masses[block, row, col] += following[row, col] if inside else 0.0
            for col in range(width):
                following[targets[block, col], col] = 0.0
            now, following = following, now


@njit(parallel=True, **_OPTIONS)
def record(rows: Rows, targets: IntArray, laws: FloatArray) -> None:
    """Fill ``laws[block, t]`` for every t > 0 from the columns at ``laws[block, 0]``."""
    for block in prange(laws.shape[0]):
        for time in range(1, laws.shape[1]):
            now = laws[block, time - 1]
            following = laws[block, time]
            for row in range(laws.shape[2]):
                _apply_row(rows, now, row, following)
            for col in range(laws.shape[3]):
                following[targets[block, col], col] = 0.0


@njit(**_OPTIONS)
def _sweep(
    rows: Rows,
    weights: SingleArray,
    lowest: float,
    highest: float,
    products: int,
    right: SingleArray,
    older: SingleArray,
    newer: SingleArray,
) -> SingleArray:
    """Return an approximate solution of ``(I - P) x = right`` after ``products`` Chebyshev steps from zero."""
    indptr, indices, size = rows.indptr, rows.indices, right.shape[1]
    centre = 0.5 * (lowest + highest)
    steepness = (0.5 * (highest - lowest) / centre) ** 2
    first = np.float32(1.0 / centre)
    for row in range(right.shape[0]):
        for col in range(size):
            older[row, col] = np.float32(0.0)
            newer[row, col] = first * right[row, col]
    relaxation = 2.0
    for _ in range(products - 1):
        relaxation = 1.0 / (1.0 - 0.25 * steepness * relaxation)
        # Single-precision factors: one double among them would turn the whole loop double.
        scale = np.float32(relaxation / centre)
        keep = np.float32(relaxation * (1.0 - 1.0 / centre))
        back = np.float32(1.0 - relaxation)
        for row in range(right.shape[0]):
            entry, stop = indptr[row], indptr[row + 1]
            if stop - entry == 4:
                # Rows of four neighbours in one pass over the row.
                a, b, c, d = indices[entry], indices[entry + 1], indices[entry + 2], indices[entry + 3]
                wa, wb = scale * weights[entry], scale * weights[entry + 1]
                wc, wd = scale * weights[entry + 2], scale * weights[entry + 3]
                for col in range(size):
                    older[row, col] = (
                        wa * newer[a, col]
                        + wb * newer[b, col]
                        + wc * newer[c, col]
                        + wd * newer[d, col]
                        + keep * newer[row, col]
                        + back * older[row, col]
                        + scale * right[row, col]
                    )
                continue
            for col in range(size):
                older[row, col] = keep * newer[row, col] + back * older[row, col] + scale * right[row, col]
            for other in range(entry, stop):
                weight, head = scale * weights[other], indices[other]
                for col in range(size):
                    older[row, col] += weight * newer[head, col]
        older, newer = newer, older
    return newer


@njit(**_OPTIONS)
def _residual(
    rows: Rows, solution: FloatArray, targets: IntArray, shares: FloatArray, out: FloatArray, largest: FloatArray
) -> None:
    """Write ``e_j - pi_j - (I - P) x`` into ``out`` and its largest entry in each column into ``largest``."""
    size = solution.shape[1]
    largest[:] = 0.0
    for row in range(solution.shape[0]):
        for col in range(size):
            out[row, col] = -shares[col] - solution[row, col]
        for entry in range(rows.indptr[row], rows.indptr[row + 1]):
            weight, head = rows.weights[entry], rows.indices[entry]
            for col in range(size):
                out[row, col] += weight * solution[head, col]
        for col in range(size):
            if targets[col] == row:
                out[row, col] += 1.0
            largest[col] = max(largest[col], abs(out[row, col]))


@njit(parallel=True, **_OPTIONS)
def refined_means(
    rows: Rows,
    weights: SingleArray,
    stationary: FloatArray,
    targets: IntArray,
    width: int,
    lowest: float,
    highest: float,
    products: int,
    tolerance: float,
    means: FloatArray,
    residuals: FloatArray,
) -> None:
    """Write mean hitting times; ``residuals`` receives the largest |1 + (P h)_i - h_i| of each target.

    ``lowest`` and ``highest`` enclose the spectrum of ``I - P`` but its zero; ``weights`` are the probabilities
    in single precision. A block stops when all its residuals are below ``tolerance``, or gain no more.
    """
    n_nodes, n_targets = means.shape
    for block in prange((n_targets + width - 1) // width):
        begin = block * width
        size = min(width, n_targets - begin)
        own = targets[begin : begin + size]
        shares = stationary[own]
        solution = np.zeros((n_nodes, size))
        residual = np.empty((n_nodes, size))
        largest = np.empty(size)
        right = np.empty((n_nodes, size), dtype=np.float32)
        older, newer = np.empty_like(right), np.empty_like(right)
        _residual(rows, solution, own, shares, residual, largest)
        before = np.inf
        for _ in range(_MOST_SWEEPS):
            for row in range(n_nodes):
                for col in range(size):
                    right[row, col] = np.float32(residual[row, col] / largest[col])
            step = _sweep(rows, weights, lowest, highest, products, right, older, newer)
            for row in range(n_nodes):
                for col in range(size):
                    solution[row, col] += largest[col] * step[row, col]
            _residual(rows, solution, own, shares, residual, largest)
            worst = (largest / shares).max()
            if worst <= tolerance or worst * _LEAST_GAIN > before:
                break
            before = worst
        for col in range(size):
            residuals[begin + col] = largest[col] / shares[col]
        for row in range(n_nodes):
            for col in range(size):
                means[row, begin + col] = (solution[own[col], col] - solution[row, col]) / shares[col]


@njit(**_OPTIONS)
def _step_avoiding(inflow: Rows, avoided: int, mass: FloatArray, out: FloatArray) -> None:
    """Move all mass one hop; what reaches the avoided node is dropped."""
    indptr, indices, weights = inflow
    for node in range(mass.shape[0]):
        entry = indptr[node]
        if node == avoided:
            out[node, :] = 0.0
        elif indptr[node + 1] - entry == 3:
            # The paper's degree, in one pass: a third less time than the general row.
            a, b, c = indices[entry], indices[entry + 1], indices[entry + 2]
            wa, wb, wc = weights[entry], weights[entry + 1], weights[entry + 2]
            for column in range(mass.shape[1]):
                out[node, column] = wa * mass[a, column] + wb * mass[b, column] + wc * mass[c, column]
        else:
            _apply_row(inflow, mass, node, out)


@njit(inline="always")
def seal_again(law: FloatArray, node: int, observer: int, column: int, bound: FloatArray, incoming: FloatArray) -> None:
    """Open what has come to ``node`` and seal it by its row of the law; the other rows are its own of the tables."""
    arrived = bound[node]
    if arrived > 0.0:
        for goal in range(len(law)):
            bound[goal] += arrived * law[goal]
        bound[node] -= arrived
        if column >= 0:
            incoming[column] += bound[observer]
            bound[observer] = 0.0


@njit(**_OPTIONS)
def _deliver_one(
    inflow: Rows, law: FloatArray, observer: int, column_of: IntArray, sealed_for: FloatArray, out: FloatArray
) -> None:
    """Follow a token from a visit to ``observer`` until it is back, for as many hops as ``out`` has rows.

    ``bound[x, d]`` is the probability that the token has not been back, is at x, and is sealed for d, not the
    observer. ``incoming[x, s]`` is the same with a ciphertext sealed for the observer by its s-th possible source
    (``column_of`` says which column a source has). ``out[t, e, s]`` receives the probability that such a
    ciphertext arrives after t hops through the observer's e-th neighbour.
    """
    n_nodes = law.shape[0]
    first, stop = inflow.indptr[observer], inflow.indptr[observer + 1]
    bound = np.zeros((n_nodes, n_nodes))
    bound[observer, :] = sealed_for
    next_bound = np.empty((n_nodes, n_nodes))
    incoming = np.zeros((n_nodes, out.shape[2]))
    next_incoming = np.empty_like(incoming)
    for hop in range(1, out.shape[0]):
        for entry in range(first, stop):
            out[hop, entry - first, :] = inflow.weights[entry] * incoming[inflow.indices[entry]]
        _step_avoiding(inflow, observer, bound, next_bound)
        _step_avoiding(inflow, observer, incoming, next_incoming)
        for node in range(n_nodes):
            seal_again(law[node], node, observer, column_of[node], next_bound[node], next_incoming[node])
        bound, next_bound = next_bound, bound
        incoming, next_incoming = next_incoming, incoming


@njit(parallel=True, **_OPTIONS)
def deliver(
    inflow: Rows, law: FloatArray, observers: IntArray, column_of: IntArray, sealed_for: FloatArray, out: FloatArray
) -> None:
    """Run :func:`_deliver_one` for each observer; rows of the last three arguments belong to them in turn."""
    for row in prange(len(observers)):
        _deliver_one(inflow, law, observers[row], column_of[row], sealed_for[row], out[row])
