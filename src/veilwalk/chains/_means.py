"""Mean hitting times of all pairs: sparse Chebyshev semi-iteration, or Cholesky where the gap is poor."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import lapack

from veilwalk.chains._kernels_nodes import refined_means
from veilwalk.chains._limits import Nodes, chosen_targets, require_memory
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import NumericalError

if TYPE_CHECKING:
    from veilwalk.chains._node_chain import NodeChain

_TOLERANCE = 1e-13
# Targets solved together: measured best of 16 to 64 at 2000 and 5000 nodes, where blocks no longer fit into L2.
_WIDTH = 64
# What one sweep in single precision is asked to gain; rounding spoils much more than this.
_SWEEP_GAIN = 3e4
_EPS = float(np.finfo(np.float64).eps)
# The residual itself is a difference of numbers up to 1 / pi, each rounded a few times.
_ROUNDINGS = 16.0
# A flop of a single-precision sweep costs about as much as a dense one of LAPACK, which works as if the matrix had
# 700 more rows until it is large. Measured at 300, 2000 and 5000 nodes.
_SPARSE_FLOP_COST = 1.0
_LAPACK_START = 700


def solve_mean_times(chain: NodeChain, targets: Nodes, memory_bytes: int) -> FloatArray:
    """Return E[T_ij] for every source ``i`` (rows) and target ``j`` (columns); 0 where they meet.

    Columns of the fundamental matrix solve ``(I - P) x = e_j - pi_j``. Chebyshev sweeps in single precision,
    refined in double, need about ``16 / sqrt(1 - lambda_2)`` products of ``2 nnz`` flops each; where Cholesky's
    ``n^3`` is cheaper (poor gap), the symmetrised fundamental matrix is inverted instead.

    The residual r of ``h_i = 1 + (P h)_i`` off the target is checked: the relative error of every entry is at
    most ``max |r|``, since the error is ``(I - Q)^{-1} r`` and ``h = (I - Q)^{-1} 1``. It is brought below
    1e-13, or below the rounding of the longest mean where that is more.
    """
    columns = chosen_targets(chain.n_nodes, targets)
    require_memory("mean hitting times", chain.n_nodes * len(columns), memory_bytes)
    products, sweeps = _sweep_plan(chain)
    sparse_flops = 2.0 * len(chain.indices) * len(columns) * products * sweeps
    dense_flops = chain.n_nodes**2 * (chain.n_nodes + _LAPACK_START)
    fits_dense = 16 * chain.n_nodes**2 <= memory_bytes
    if not fits_dense or sparse_flops * _SPARSE_FLOP_COST <= dense_flops:
        means, residual = _by_chebyshev(chain, columns, products)
        if residual <= _allowed(chain, means):
            return means
    if fits_dense:
        # Rounding grows with the number of products; a factorisation has none of that.
        means, residual = _by_cholesky(chain, columns)
        if residual <= _allowed(chain, means):
            return means
    raise NumericalError(f"mean hitting times of {chain!r}: relative error {residual:.1e} is more than rounding")


def _allowed(chain: NodeChain, means: FloatArray) -> float:
    """Return the tolerance, or what rounding alone may leave in the residual of means this long."""
    row = int(np.diff(chain.indptr).max())
    return max(_TOLERANCE, 4.0 * _EPS * (4.0 + math.sqrt(row)) * float(means.max()))


def _sweep_plan(chain: NodeChain) -> tuple[int, int]:
    """Return the products of one sweep and how many sweeps the accuracy will take.

    k products shrink the residual to ``2 q^k / sqrt(pi_i pi_j)``, q the Chebyshev rate.
    """
    second, least = chain.spectrum
    root = math.sqrt((1.0 - second) / (1.0 - least))
    rate = max((1.0 - root) / (1.0 + root), 1e-3)
    products = max(2, math.ceil(math.log(2.0 * _SWEEP_GAIN) / -math.log(rate)))
    smallest = float(chain.stationary.min())
    digits = math.log(1.0 / (smallest * _goal(chain)))
    return products, math.ceil(digits / math.log(_SWEEP_GAIN))


def _goal(chain: NodeChain) -> float:
    return max(_TOLERANCE, _ROUNDINGS * _EPS / float(chain.stationary.min()))


def _by_chebyshev(chain: NodeChain, columns: IntArray, products: int) -> tuple[FloatArray, float]:
    second, least = chain.spectrum
    means = np.empty((chain.n_nodes, len(columns)))
    residuals = np.empty(len(columns))
    refined_means(
        chain.rows,
        chain.probabilities.astype(np.float32),
        chain.stationary,
        columns,
        _WIDTH,
        1.0 - second,
        1.0 - least,
        products,
        _goal(chain),
        means,
        residuals,
    )
    return means, float(residuals.max())


def _by_cholesky(chain: NodeChain, columns: IntArray) -> tuple[FloatArray, float]:
    root = np.sqrt(chain.stationary)
    matrix = np.outer(root, root)
    matrix -= chain.symmetric_matrix.toarray()
    matrix[np.diag_indices_from(matrix)] += 1.0
    # LAPACK works on columns: the transpose of a C-ordered symmetric matrix is itself, without a copy.
    factor, failed = lapack.dpotrf(matrix.T, lower=1, overwrite_a=1, clean=0)
    inverse, failed_inverse = lapack.dpotri(factor, lower=1, overwrite_c=1)
    if failed or failed_inverse:
        raise NumericalError(f"the fundamental matrix of {chain!r} is not positive definite")
    lower = np.tril(inverse)
    lower += np.tril(inverse, -1).T
    scaled = lower[:, columns] / root[:, None] / root[columns]
    means = scaled[columns, np.arange(len(columns))] - scaled
    residual = 1.0 + chain.transition_matrix @ means - means
    residual[columns, np.arange(len(columns))] = 0.0
    return means, float(np.abs(residual).max())
