"""Scaling to given margins and a budget: the nearest joint law, in relative entropy, that keeps both.

A joint law J holds the probability that an update goes from source i to destination j. In the long run every node is a
source as often as it is a destination, so both margins of J are the source prior; with a uniform prior P is doubly
stochastic and the law is called balanced. The nearest law to a positive table K with these margins, and with at most
so many hops on average, is ``K_ij exp(rows_i + columns_j - price hops_ij)``: Sinkhorn's scaling, with one more
multiplier for the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from veilwalk.core.arrays import FloatArray, normalised
from veilwalk.core.errors import InfeasibleDesignError, NumericalError
from veilwalk.design._law import DestinationLaw, scaled_rows

_MARGIN_TOLERANCE = 1e-11
# Sweeps before the scales are folded into the table, so that none of them overflows; and how often that is done.
_SWEEPS = 250
_FOLDS = 20
# A budget is met when it is undercut by no more than this share of it.
_BUDGET_TOLERANCE = 1e-9
_BUDGET_STEPS = 100
_ROUNDING = 1e-12
# A price at which the whole range of hops weighs this many nats is none.
_CHEAPEST = 1e-9
# A price at which the whole range of hops weighs this many nats leaves nearest destinations only.
_DEAREST = 1e4


@dataclass(frozen=True, eq=False)
class Scaling:
    """A scaled joint law and the logarithms of its scales; ``price`` is the multiplier of the mean hops."""

    joint: FloatArray
    rows: FloatArray
    columns: FloatArray
    price: float


def scaled(
    log_table: FloatArray,
    prior: FloatArray,
    *,
    hops: FloatArray | None = None,
    budget: float = math.inf,
    start: Scaling | None = None,
) -> Scaling:
    """Return the joint law nearest to ``exp(log_table)`` with both margins ``prior`` and mean hops within budget.

    Args:
        log_table: logarithms of the table; minus infinity outside the support.
        prior: the margins.
        hops: mean hops of each pair; needed with a budget.
        budget: most mean hops.
        start: scales to start from, those of a similar table.
    """
    price, columns = (0.0, np.zeros(len(prior))) if start is None else (start.price, start.columns)
    if price == 0.0 or hops is None:
        free = _sinkhorn(log_table, prior, columns)
        # A budget that the law just spends must not be missed by rounding.
        if hops is None or float((free.joint * hops).sum()) <= budget * (1.0 + _ROUNDING):
            return free
        columns = free.columns
    return _priced(log_table, prior, hops, budget=budget, columns=columns, price=price)


def _sinkhorn(log_table: FloatArray, prior: FloatArray, columns: FloatArray) -> Scaling:
    # First make the largest entry of each row and column one: nothing overflows, and none of them vanishes.
    rows = -(log_table + columns).max(axis=1)
    columns = columns - (log_table + rows[:, np.newaxis] + columns).max(axis=0)
    for _ in range(_FOLDS):
        table = np.exp(log_table + rows[:, np.newaxis] + columns)
        by_row, by_column, error = _swept(table, prior)
        rows, columns = rows + np.log(by_row), columns + np.log(by_column)
        if error <= _MARGIN_TOLERANCE:
            joint = table * by_row[:, np.newaxis] * by_column
            return Scaling(joint, rows, columns, 0.0)
    raise _unsettled(error)


def _swept(table: FloatArray | sparse.csr_array, prior: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Scale rows and columns in turn; return both scales and how far the rows are off in the end."""
    by_column = np.ones(len(prior))
    sums = table @ by_column
    for _ in range(_SWEEPS):
        by_row = prior / sums
        by_column = prior / (by_row @ table)
        sums = table @ by_column
        error = float(np.abs(by_row * sums / prior - 1.0).max())
        if not _MARGIN_TOLERANCE < error < math.inf:
            break
    return by_row, by_column, error


def _unsettled(error: float) -> NumericalError:
    return NumericalError(
        f"scaling to the margins has not converged: error {error:.1e} after {_FOLDS * _SWEEPS} sweeps"
    )


def _priced(
    log_table: FloatArray, prior: FloatArray, hops: FloatArray, *, budget: float, columns: FloatArray, price: float
) -> Scaling:
    """Return the scaling whose mean hops just meet the budget: they fall as the price of a hop rises."""
    goal = budget * (1.0 - _BUDGET_TOLERANCE / 2)
    found: list[Scaling] = []

    def excess(log_price: float) -> float:
        at_price = math.exp(log_price)
        try:
            # Scales move with the price: where they were at the last one is a good place to start.
            at = _sinkhorn(log_table - at_price * hops, prior, found[-1].columns if found else columns)
        except NumericalError:
            raise _too_dear(budget, found, hops) from None
        found.append(Scaling(at.joint, at.rows, at.columns, at_price))
        del found[:-1]
        return float((at.joint * hops).sum()) / goal - 1.0

    # Where all pairs cost the same no price changes anything.
    spread = max(float(np.ptp(hops[np.isfinite(log_table)])), _ROUNDING * budget)
    low = high = math.log(price if price > 0 else 1e-3 / spread)
    step = 1e-3 if price > 0 else 1.0
    over = under = excess(low)
    if abs(over) <= _BUDGET_TOLERANCE / 2:
        return found[-1]
    while over < 0:
        if low < math.log(_CHEAPEST / spread):
            return _sinkhorn(log_table, prior, found[-1].columns)
        low, high, under, step = low - step, low, over, 4 * step
        over = excess(low)
    while under > 0:
        if high > math.log(_DEAREST / spread):
            raise _too_dear(budget, found, hops)
        low, high, over, step = high, high + step, under, min(4 * step, 0.5)
        under = excess(high)
    _to_root(excess, (low, over), (high, under))
    return found[-1]


def _too_dear(budget: float, found: list[Scaling], hops: FloatArray) -> InfeasibleDesignError:
    reached = float((found[-1].joint * hops).sum()) if found else math.inf
    return InfeasibleDesignError(
        f"budget of {budget:.6g} hops: less than a law with these margins can keep, or too near to it; "
        f"{reached:.6g} hops were reached"
    )


def _to_root(excess: Callable[[float], float], low: tuple[float, float], high: tuple[float, float]) -> None:
    """Call ``excess`` last at its root between two prices, by the Illinois rule: a secant that keeps its bracket."""
    (left, over), (right, under) = low, high
    for _ in range(_BUDGET_STEPS):
        middle = left + (right - left) * over / (over - under)
        value = excess(middle)
        if abs(value) <= _BUDGET_TOLERANCE / 2:
            return
        if value > 0:
            left, over, under = middle, value, under / 2
        else:
            right, under, over = middle, value, over / 2
    raise NumericalError(f"the budget was not met to one part in a billion after {_BUDGET_STEPS} steps")


def total_support(table: sparse.csr_array) -> sparse.csr_array:
    """Return the entries that some doubly stochastic law can use; refuse a support on which there is none.

    A pair is usable if it belongs to a perfect matching of sources to destinations (Birkhoff). Given one matching,
    these are the pairs within one strong component of the graph that leads from a source to whoever is matched with
    the destinations it may choose.
    """
    partner = csgraph.maximum_bipartite_matching(table, perm_type="row")
    alone = np.flatnonzero(partner < 0)
    if alone.size:
        raise InfeasibleDesignError(
            f"no balanced law on this support: node {alone[0]} ({alone.size} in all) can receive only from nodes that "
            "others need too; choose a wider support"
        )
    follows = sparse.csr_array((table.data, partner[table.indices], table.indptr), shape=table.shape)
    _, label = csgraph.connected_components(follows, directed=True, connection="strong")
    within = np.repeat(label, np.diff(table.indptr)) == label[partner[table.indices]]
    found = sparse.csr_array((np.where(within, table.data, 0.0), table.indices, table.indptr), shape=table.shape)
    if not within.all():
        found = found.copy()
        found.eliminate_zeros()
    return found


def balanced(law: DestinationLaw) -> DestinationLaw:
    """Return the nearest balanced law: ``P_ij`` scaled by rows and columns until every node updates equally often."""
    table = total_support(law.matrix)
    prior = np.full(table.shape[0], 1.0 / table.shape[0])
    for _ in range(_FOLDS):
        by_row, by_column, error = _swept(table, prior)
        table = scaled_rows(table, by_row)
        table.data *= by_column[table.indices]
        if error <= _MARGIN_TOLERANCE:
            sums = np.asarray(table.sum(axis=1)).ravel()
            return replace(law, rows=scaled_rows(table, 1 / sums))
    raise _unsettled(error)


def with_matrix(law: DestinationLaw, joint: FloatArray) -> DestinationLaw:
    """Return a law on the same graph and support with the rows of ``joint``, normalised."""
    return replace(law, rows=sparse.csr_array(normalised(joint)))
