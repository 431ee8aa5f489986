r"""Computes the best law for a fixed channel, prior and budget, and a bound that no law can pass.

For a joint law J with both margins equal to a fixed prior, the observation of a source has the law C of the channel.
The objective is the expected entropy of its posterior, ``H(J) = sum of q log(Q / q)`` with ``q = J_ij C(k | i, j)`` and
Q the sum of q over sources. It is concave in J and homogeneous of degree one, so the linear function with the gradient
g at any J bounds it everywhere: ``H(X) <= <g(J), X>`` for all X. The largest value of that over all laws with these
margins and budget is a transport problem, and any multipliers ``u_i + v_j + price * hops_ij >= g_ij`` bound it by
``<prior, u> + <prior, v> + price * budget``. That number is the certificate.

Tables here have one row per destination; the transport problem is the same either way.

The nearest joint law to a positive table K, in relative entropy, with given margins and at most so many mean hops is
``K_ij exp(rows_i + columns_j - price hops_ij)``: Sinkhorn's scaling, with one more multiplier for the budget. In the
long run every node is a source as often as a destination, so both margins are the source prior.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilwalk.chains import chain_of
from veilwalk.core.arrays import BoolArray, FloatArray
from veilwalk.core.errors import InfeasibleDesignError, NumericalError
from veilwalk.core.sizes import DEFAULT_MEMORY_BYTES
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design._channel import Channel
from veilwalk.design._law import (
    FOLDS,
    MARGIN_TOLERANCE,
    DestinationLaw,
    law_by_distance,
    sweep_margins,
    total_support,
    unsettled_margins,
)
from veilwalk.graphs import Graph

_ASCENT_STEPS = 200
_ENTROPY_GAP = 1e-6
_TRANSFORMS = 4
_TINY = 1e-300
# A budget is met when it is undercut by no more than this share of it.
_BUDGET_TOLERANCE = 1e-9
_BUDGET_STEPS = 100
_ROUNDING = 1e-12
# A price at which the whole range of hops weighs this many nats is none.
_CHEAPEST = 1e-9
# A price at which the whole range of hops weighs this many nats leaves nearest destinations only.
_DEAREST = 1e4
# The channel is derived anew from the law it led to, at most so often.
_ROUNDS = 3
# A prior is uniform if it is uniform to this share.
_EVEN = 1e-8


@dataclass(frozen=True, eq=False)
class Scaling:
    """A scaled joint law and the logarithms of its scales; ``price`` is the multiplier of the mean hops."""

    joint: FloatArray
    rows: FloatArray
    columns: FloatArray
    price: float


def scale_to_margins(
    log_table: FloatArray,
    prior: FloatArray,
    *,
    hops: FloatArray | None = None,
    budget: float = math.inf,
    start: Scaling | None = None,
) -> Scaling:
    """Return the joint law nearest to ``exp(log_table)`` with both margins ``prior`` and mean hops within budget.

    ``log_table`` is minus infinity outside the support. A budget needs ``hops``, the mean hops of each pair. ``start``
    holds the scales of a similar table.
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
    for _ in range(FOLDS):
        table = np.exp(log_table + rows[:, np.newaxis] + columns)
        by_row, by_column, error = sweep_margins(table, prior)
        rows, columns = rows + np.log(by_row), columns + np.log(by_column)
        if error <= MARGIN_TOLERANCE:
            joint = table * by_row[:, np.newaxis] * by_column
            return Scaling(joint, rows, columns, 0.0)
    raise unsettled_margins(error)


def _priced(
    log_table: FloatArray, prior: FloatArray, hops: FloatArray, *, budget: float, columns: FloatArray, price: float
) -> Scaling:
    """Return the scaling whose mean hops just meet the budget: they fall as the price of a hop rises."""
    goal = budget * (1.0 - _BUDGET_TOLERANCE / 2)
    scalings: list[Scaling] = []

    def excess(log_price: float) -> float:
        at_price = math.exp(log_price)
        try:
            # Scales move with the price: where they were at the last one is a good place to start.
            scaling = _sinkhorn(log_table - at_price * hops, prior, scalings[-1].columns if scalings else columns)
        except NumericalError:
            raise _budget_error(budget, scalings, hops) from None
        scalings.append(Scaling(scaling.joint, scaling.rows, scaling.columns, at_price))
        del scalings[:-1]
        return float((scaling.joint * hops).sum()) / goal - 1.0

    # Where all pairs cost the same no price changes anything.
    spread = max(float(np.ptp(hops[np.isfinite(log_table)])), _ROUNDING * budget)
    low = high = math.log(price if price > 0 else 1e-3 / spread)
    step = 1e-3 if price > 0 else 1.0
    over = under = excess(low)
    if abs(over) <= _BUDGET_TOLERANCE / 2:
        return scalings[-1]
    while over < 0:
        if low < math.log(_CHEAPEST / spread):
            return _sinkhorn(log_table, prior, scalings[-1].columns)
        low, high, under, step = low - step, low, over, 4 * step
        over = excess(low)
    while under > 0:
        if high > math.log(_DEAREST / spread):
            raise _budget_error(budget, scalings, hops)
        low, high, over, step = high, high + step, under, min(4 * step, 0.5)
        under = excess(high)
    _find_root(excess, (low, over), (high, under))
    return scalings[-1]


def _budget_error(budget: float, scalings: list[Scaling], hops: FloatArray) -> InfeasibleDesignError:
    reached = float((scalings[-1].joint * hops).sum()) if scalings else math.inf
    return InfeasibleDesignError(
        f"budget of {budget:.6g} hops: less than a law with these margins can keep, or too near to it; "
        f"{reached:.6g} hops were reached"
    )


def _find_root(excess: Callable[[float], float], low: tuple[float, float], high: tuple[float, float]) -> None:
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


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best joint law (one row per destination), its entropy in nats, and an upper bound on that of any law."""

    joint: FloatArray
    value: float
    bound: float

    @property
    def gap(self) -> float:
        """How far the value may be from the best, as a share of the best."""
        return abs(self.bound - self.value) / self.bound if self.bound > 0 else math.inf

    def certify(self, name: str, law: DestinationLaw, channel: Channel, *, prior: str, budget: float) -> Certificate:
        """Compare ``law``, on the channel that was held fixed, with this optimum."""
        value = channel.expose(law).node_entropy.mean
        return Certificate(name, prior, budget, value, best_found=self.value, bound=self.bound)


@dataclass(frozen=True, eq=False)
class Problem:
    """The fixed quantities: channel, usable pairs, prior, mean hops of each pair, budget; one row per destination."""

    channel: Channel
    usable: BoolArray
    prior: FloatArray
    hops: FloatArray
    budget: float = math.inf

    def solve(self) -> Optimum:
        """Return the best law with its certificate, by mirror ascent: multiply by exp(gradient), then scale back.

        The entropy is 1-smooth relative to the relative entropy (the observations of a pair sum to one), so the full
        step never descends.
        """
        scaling = self.nearest(np.zeros_like(self.hops))
        bound = math.inf
        steps, settled = 0, False
        while not settled:
            joint, steps = scaling.joint, steps + 1
            value, gradient = entropy_gradient(joint, self.channel)
            scaling = self.nearest(np.log(np.maximum(joint, _TINY)) + gradient, scaling)
            bound = min(bound, self.bound_linear(gradient, -scaling.rows, scaling.price))
            settled = bound - value <= _ENTROPY_GAP * value or steps == _ASCENT_STEPS
        return Optimum(joint, value, bound)

    def nearest(self, log_table: FloatArray, start: Scaling | None = None) -> Scaling:
        """Return the joint law nearest to ``exp(log_table)`` on the usable pairs that keeps prior and budget."""
        return scale_to_margins(
            np.where(self.usable, log_table, -np.inf), self.prior, hops=self.hops, budget=self.budget, start=start
        )

    def bound_linear(self, score: FloatArray, rows: FloatArray, price: float) -> float:
        """Bound ``<score, X>`` over all joint laws X from above, from multipliers of the rows and a price of hops.

        The bound holds whatever multipliers are given: those of the columns are chosen to fit, then in turn.
        """
        net = np.where(self.usable, score - price * self.hops, -np.inf)
        least = math.inf
        for _ in range(_TRANSFORMS):
            columns = (net - rows[:, np.newaxis]).max(axis=0)
            rows = (net - columns).max(axis=1)
            least = min(least, float(self.prior @ (rows + columns)))
        return least + (price * self.budget if price > 0 else 0.0)


def entropy_gradient(joint: FloatArray, channel: Channel) -> tuple[float, FloatArray]:
    """Return the expected posterior entropy of a joint law, in nats, and its gradient."""
    gradient = np.zeros_like(joint)
    value = 0.0
    for row, nodes, table, spread, out in zip(
        joint, channel.sources, channel.tables, channel.spreads, gradient, strict=True
    ):
        own = row[nodes]
        log_seen = np.log(np.maximum(table @ own, _TINY))
        out[nodes] = spread + log_seen @ table - np.log(np.maximum(own, _TINY))
        value += float(own @ out[nodes])
    return value, gradient


@dataclass(frozen=True, eq=False)
class BestLaw:
    """The best law, its own channel, the optimum behind it, and the channel that was held fixed for the optimum."""

    law: DestinationLaw
    channel: Channel
    optimum: Optimum
    held_fixed: Channel


class LawDesigner:
    """Designs and certifies laws on one graph, support and walk, and holds the tables that they share."""

    def __init__(
        self, graph: Graph, *, support: DistanceSupport, walk: Walk = SIMPLE, memory_bytes: int = DEFAULT_MEMORY_BYTES
    ):
        """Compute the mean hitting times; ``memory_bytes`` limits each observation channel."""
        self.graph, self.support, self.walk = graph, support, walk
        self.chain = chain_of(graph, walk)
        self.hops = self.chain.mean_hitting_times(memory_bytes=memory_bytes)
        self.uniform = law_by_distance(graph, support, np.ones(support.hi + 1))
        self._memory_bytes = memory_bytes

    def channel(self, law: DestinationLaw, observer: str = "return-time") -> Channel:
        """Derive the observation channel of ``law``."""
        return Channel.derive(self.chain, law, observer=observer, hops=self.hops, memory_bytes=self._memory_bytes)

    def within_budget(self, law: DestinationLaw, budget: float) -> DestinationLaw:
        """Return the nearest law with the same source prior and at most so many mean hops."""
        if law.mean_hops(self.hops) <= budget:
            return law
        with np.errstate(divide="ignore"):
            table = np.log(law.matrix.toarray() * law.source_prior[:, np.newaxis])
        return law.with_rows(scale_to_margins(table, law.source_prior, hops=self.hops, budget=budget).joint)

    def problem(self, law: DestinationLaw, channel: Channel, budget: float, *, balanced: bool) -> Problem:
        """Return the problem of the best law on the support of ``law``: balanced, or with its prior."""
        table, prior = law.matrix, law.source_prior
        if balanced:
            table, prior = total_support(table), np.full(len(prior), 1.0 / len(prior))
        usable: BoolArray = table.toarray() > 0
        return Problem(channel, np.ascontiguousarray(usable.T), prior, np.ascontiguousarray(self.hops.T), budget)

    def optimal(self, start: DestinationLaw, budget: float, *, observer: str = "return-time") -> BestLaw:
        """Return the best law with the prior of ``start``.

        The channel depends on the law: it is derived anew from each optimum until that moves its value by less than it
        may be from the best. The result is the law, ``start`` included, that is best with its own channel.
        """
        held = self.channel(start, observer)
        candidates = [(held.expose(start).node_entropy.mean, start, held)]
        for _ in range(_ROUNDS):
            optimum = self.problem(start, held, budget, balanced=False).solve()
            law = start.with_rows(optimum.joint.T)
            anew = self.channel(law, observer)
            value = anew.expose(law).node_entropy.mean
            candidates.append((value, law, anew))
            if abs(value - optimum.value) <= optimum.gap * optimum.value:
                break
            held = anew
        _, law, channel = max(candidates, key=lambda candidate: candidate[0])
        return BestLaw(law, channel, optimum, held)

    def certify(self, name: str, law: DestinationLaw, channel: Channel) -> tuple[Certificate, ...]:
        """Compare ``law`` with the best balanced law that costs no more, and with the best that has its prior.

        The first is left out where no balanced law is that cheap, the second where it is the same.
        """
        budget = law.mean_hops(self.hops)
        is_balanced = float(np.ptp(law.source_prior)) * len(law.source_prior) < _EVEN
        certificates = []
        for prior in ("uniform",) if is_balanced else ("uniform", "its own"):
            try:
                best = self.problem(law, channel, budget, balanced=prior == "uniform").solve()
            except InfeasibleDesignError:
                continue
            certificates.append(best.certify(name, law, channel, prior=prior, budget=budget))
        return tuple(certificates)


@dataclass(frozen=True, eq=False)
class Certificate:
    """A law's value beside a bound that no comparable law can pass, the observation channel held fixed.

    With its own channel a law may pass the bound by as much as the channel moves: some millionths of a nat.

    Comparable is a law on the same support with at most ``budget_hops`` mean hops; with ``prior`` ``uniform`` any
    balanced one, with ``its own`` any that makes each node the source as often as this law does.
    """

    law: str
    prior: str
    budget_hops: float
    value: float
    best_found: float
    bound: float

    @property
    def shortfall(self) -> float:
        """How far the law may be from the best, as a share of the bound; negative where it does better."""
        behind = self.bound - self.value
        # Where nobody can hide at all, no law is behind another.
        return behind / self.bound if self.bound else behind

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as plain data, with its sentence."""
        return vars(self) | {"shortfall": self.shortfall, "in_words": self.in_words()}

    def in_words(self) -> str:
        """Return the certificate as a sentence."""
        rivals = "any balanced law" if self.prior == "uniform" else "any law with its own source prior"
        hops = f"with up to {self.budget_hops:.1f} hops"
        where = f"on this graph, in node entropy, {hops}, for this walk and observation channel"
        if self.shortfall < -1e-9:
            return f"{self.law} does {-self.shortfall:.3%} better than {rivals} could {where}: it is not balanced"
        # Rounded up: "within" must stay true.
        share = math.ceil(max(self.shortfall, 0.0) * 1e5) / 1e5
        return f"{self.law} is within {share:.3%} of the best {rivals} could do {where}"
