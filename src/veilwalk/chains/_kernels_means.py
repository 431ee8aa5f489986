"""Compiled loops that solve ``(I - P) x = e_j - pi_j`` for blocks of targets j, by iterative refinement.

Chebyshev sweeps run in single precision, which halves the bytes moved and doubles the lanes of an instruction;
residuals and solutions are kept in double. Each sweep of the remaining residual gains several digits, so the
result is as exact as double precision allows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import prange

from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.engine import njit

SingleArray = npt.NDArray[np.float32]

_OPTIONS: dict[str, Any] = {"cache": True, "fastmath": {"contract"}, "error_model": "numpy"}
_MOST_SWEEPS = 12
# A sweep that gains less than this has met rounding; more of them would not help.
_LEAST_GAIN = 4.0


@njit(**_OPTIONS)
def _sweep(
    indptr: IntArray,
    indices: IntArray,
    weights: SingleArray,
    lowest: float,
    highest: float,
    products: int,
    right: SingleArray,
    older: SingleArray,
    newer: SingleArray,
) -> SingleArray:
    """Return an approximate solution of ``(I - P) x = right`` after ``products`` Chebyshev steps from zero."""
    size = right.shape[1]
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
    indptr: IntArray,
    indices: IntArray,
    probabilities: FloatArray,
    solution: FloatArray,
    targets: IntArray,
    shares: FloatArray,
    out: FloatArray,
    largest: FloatArray,
) -> None:
    """Write ``e_j - pi_j - (I - P) x`` into ``out`` and its largest entry in each column into ``largest``."""
    size = solution.shape[1]
    largest[:] = 0.0
    for row in range(solution.shape[0]):
        for col in range(size):
            out[row, col] = -shares[col] - solution[row, col]
        for entry in range(indptr[row], indptr[row + 1]):
            weight, head = probabilities[entry], indices[entry]
            for col in range(size):
                out[row, col] += weight * solution[head, col]
        for col in range(size):
            if targets[col] == row:
                out[row, col] += 1.0
            largest[col] = max(largest[col], abs(out[row, col]))


@njit(parallel=True, **_OPTIONS)
def refined_means(
    indptr: IntArray,
    indices: IntArray,
    probabilities: FloatArray,
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
        _residual(indptr, indices, probabilities, solution, own, shares, residual, largest)
        before = np.inf
        for _ in range(_MOST_SWEEPS):
            for row in range(n_nodes):
                for col in range(size):
                    right[row, col] = np.float32(residual[row, col] / largest[col])
            step = _sweep(indptr, indices, weights, lowest, highest, products, right, older, newer)
            for row in range(n_nodes):
                for col in range(size):
                    solution[row, col] += largest[col] * step[row, col]
            _residual(indptr, indices, probabilities, solution, own, shares, residual, largest)
            worst = (largest / shares).max()
            if worst <= tolerance or worst * _LEAST_GAIN > before:
                break
            before = worst
        for col in range(size):
            residuals[begin + col] = largest[col] / shares[col]
        for row in range(n_nodes):
            for col in range(size):
                means[row, begin + col] = (solution[own[col], col] - solution[row, col]) / shares[col]
