"""Mean hitting times of all pairs: sparse Chebyshev semi-iteration, or Cholesky where the gap is poor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import lapack

from veilwalk.chains import _kernels
from veilwalk.chains._chain import WalkChain
from veilwalk.chains._limits import DEFAULT_MEMORY_BYTES, chosen_targets, require_memory
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import NumericalError

_TOLERANCE = 1e-13
# Targets solved together: two blocks of this width stay in a core's cache up to that many nodes.
_WIDTH, _WIDE_NODES = 32, 3000
_EPS = float(np.finfo(np.float64).eps)
# The residual itself is a difference of numbers up to 1 / pi, each rounded a few times.
_ROUNDINGS = 16.0
# Fitted to both methods at 300, 2000 and 5000 nodes: a sparse flop costs two dense ones, and LAPACK works as
# if the matrix had 700 more rows until it is large.
_SPARSE_FLOP_COST = 2.0
_LAPACK_START = 700


def mean_hitting_times(
    chain: WalkChain,
    targets: Sequence[int] | IntArray | None = None,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> FloatArray:
    """Return E[T_ij] for every source ``i`` (rows) and target ``j`` (columns); 0 where they meet.

    Columns of the fundamental matrix solve ``(I - P) x = e_j - pi_j``. Chebyshev semi-iteration needs about
    ``16 / sqrt(1 - lambda_2)`` products of ``2 nnz`` flops a target; where Cholesky's ``n^3`` is cheaper (poor
    gap), the symmetrised fundamental matrix is inverted instead.

    The residual r of ``h_i = 1 + (P h)_i`` off the target is checked: the relative error of every entry is at
    most ``max |r|``, since the error is ``(I - Q)^{-1} r`` and ``h = (I - Q)^{-1} 1``. It is brought below
    1e-13, or below the rounding of the longest mean where that is more.

    Args:
        chain: The walk.
        targets: Targets to answer for; all nodes when none are named.
        memory_bytes: Most memory the arrays may take.

    Raises:
        ResourceLimitError: The dense answer would not fit.
        NumericalError: The accuracy was not reached.
    """
    columns = chosen_targets(chain, targets)
    require_memory("mean hitting times", chain.n_nodes * len(columns), memory_bytes)
    first_check, limit = _product_range(chain)
    sparse_flops = 2.0 * len(chain.indices) * len(columns) * first_check
    dense_flops = chain.n_nodes**2 * (chain.n_nodes + _LAPACK_START)
    fits_dense = 16 * chain.n_nodes**2 <= memory_bytes
    if not fits_dense or sparse_flops * _SPARSE_FLOP_COST <= dense_flops:
        means, residual = _by_chebyshev(chain, columns, first_check, limit)
        if residual <= _allowed(chain, means):
            return means
    if fits_dense:
        # Rounding grows with the number of products; a factorisation has none of that.
        means, residual = _by_cholesky(chain, columns)
        if residual <= _allowed(chain, means):
            return means
    raise NumericalError(f"mean hitting times of {chain!r}: relative error {residual:.1e} is more than rounding")


def _allowed(chain: WalkChain, means: FloatArray) -> float:
    """Return the tolerance, or what rounding alone may leave in the residual of means this long."""
    row = int(np.diff(chain.indptr).max())
    return max(_TOLERANCE, 4.0 * _EPS * (4.0 + math.sqrt(row)) * float(means.max()))


def _product_range(chain: WalkChain) -> tuple[int, int]:
    """Return after how many products the residual is small, and when to give up.

    It is at most ``2 q^k / sqrt(pi_i pi_j)``, q the Chebyshev rate; 1 / pi is also the mean return time, the
    scale of hitting times and so of rounding where the gap is good.
    """
    second, least = chain.spectrum
    root = math.sqrt((1.0 - second) / (1.0 - least))
    rate = max((1.0 - root) / (1.0 + root), 1e-3)
    smallest = float(chain.stationary.min())
    goal = max(_TOLERANCE, _EPS / smallest)
    enough = math.ceil(math.log(2.0 / (goal * smallest)) / -math.log(rate))
    return 2 + enough, 64 + 2 * enough


def _by_chebyshev(chain: WalkChain, columns: IntArray, first: int, limit: int) -> tuple[FloatArray, float]:
    second, least = chain.spectrum
    means = np.empty((chain.n_nodes, len(columns)))
    residuals = np.empty(len(columns))
    _kernels.chebyshev_means(
        chain.indptr,
        chain.indices,
        chain.probabilities,
        chain.stationary,
        columns,
        _WIDTH if chain.n_nodes <= _WIDE_NODES else _WIDTH // 2,
        1.0 - second,
        1.0 - least,
        max(_TOLERANCE, _ROUNDINGS * _EPS / float(chain.stationary.min())),
        first,
        limit,
        means,
        residuals,
    )
    return means, float(residuals.max())


def _by_cholesky(chain: WalkChain, columns: IntArray) -> tuple[FloatArray, float]:
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
