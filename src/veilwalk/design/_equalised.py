"""The paper's principle on any graph: no source looks likelier than another at the return time designed for.

With L_ij the chance that an update from i hits j within the observer's window, the law ``P_ij = s_j / L_ij`` gives
every possible source of j the same weight ``P_ij L_ij = s_j``. That rows sum to one makes N equations for the N numbers
``s >= 0``. Graphs that look alike from all nodes have a solution; most others have none. The nearest is then the one
whose row sums differ least from one in relative entropy while every node is drawn at least half as often as the mean:
one that is never drawn would never update.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.design._law import DestinationLaw
from veilwalk.design._scaling import with_matrix

_EXACT = 1e-9
_LEAST_SHARE = 0.5
# Most steps towards the nearest solution, and entries of the table they may look at between them.
_STEPS = 4000
_WORK = 2e10
_CHECKED_EVERY = 50
# The misfit must still fall by this share of itself between two checks.
_PROGRESS = 2e-4


@dataclass(frozen=True, eq=False)
class Equalised:
    """The equalised law and how nearly it equalises.

    ``shares`` say how often each destination is drawn, with mean one: ``s_j`` times the sum over i of ``1 / L_ij``.
    ``row_sums`` are those of ``s_j / L_ij`` before rows are normalised: all one in an exact solution. Where they are
    not, the weights of the sources of one destination stand to each other as the inverses of their row sums.
    """

    law: DestinationLaw
    is_exact: bool
    shares: FloatArray
    row_sums: FloatArray

    @property
    def residual(self) -> float:
        """Largest deviation of a row sum from one."""
        return float(np.abs(self.row_sums - 1.0).max())


def weight_ratio(law: DestinationLaw, likelihood: FloatArray) -> float:
    """Return how many times the likeliest source of a destination outweighs the least likely, at most: 1 if equalised.

    Weights are ``P_ij L_ij``, as the window notion has them.
    """
    weights = law.matrix.toarray() * likelihood
    least = np.where(weights > 0, weights, np.inf).min(axis=0)
    return float((weights.max(axis=0) / least).max())


def equalised_law(base: DestinationLaw, likelihood: FloatArray) -> Equalised:
    """Return the equalised law on the support of ``base``.

    Args:
        base: any law; where it is positive is the support.
        likelihood: the window likelihood of each pair.

    Cost: one dense solve, and a product with an n x n table a step where that has no answer.
    """
    possible = base.matrix.toarray() > 0
    if not np.all(likelihood[possible] > 0):
        # On a bipartite graph hits at every other hop are impossible, and a narrow window may miss all others.
        need = "above 0 for every pair of the support: no hit falls into so narrow a window"
        raise InvalidParameterError("window likelihood", 0.0, need)
    table = np.zeros_like(likelihood)
    table[possible] = 1.0 / likelihood[possible]
    table /= table.sum(axis=0)
    shares = _solved(table)
    is_exact = shares is not None
    if shares is None:
        shares = nearest_shares(table)
    sums = table @ shares
    return Equalised(
        law=with_matrix(base, table * shares),
        is_exact=is_exact or bool(np.abs(sums - 1.0).max() < _EXACT),
        shares=shares,
        row_sums=sums,
    )


def _solved(table: FloatArray) -> FloatArray | None:
    """Return the positive shares whose rows sum to one, or None where there are none or many."""
    try:
        shares = np.linalg.solve(table, np.ones(len(table)))
    except np.linalg.LinAlgError:
        return None
    if shares.min() > 0 and np.abs(table @ shares - 1.0).max() < _EXACT:
        return np.asarray(shares)
    return None


def nearest_shares(table: FloatArray | sparse.csr_array) -> FloatArray:
    """Minimise the relative entropy of ones from the row sums over shares of at least a half; columns sum to one.

    Expectation maximisation with a background, the half that every share has for sure: each step multiplies the rest
    and lowers the misfit, sum of r - 1 - log r.
    """
    background = table @ np.full(table.shape[0], _LEAST_SHARE)
    rest = np.full(table.shape[0], 1.0 - _LEAST_SHARE)
    before = np.inf
    for step in range(min(_STEPS, int(_WORK / table.size) + 1)):
        sums = background + table @ rest
        if step % _CHECKED_EVERY == 0:
            misfit = float((sums - 1.0 - np.log(sums)).sum())
            if before - misfit <= _PROGRESS * misfit:
                break
            before = misfit
        rest *= (1.0 / sums) @ table
    return np.asarray(_LEAST_SHARE + rest)
