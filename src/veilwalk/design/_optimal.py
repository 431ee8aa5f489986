r"""The best law for a fixed channel, prior and budget, with a bound that no law can pass while the channel is held.

For a joint law J with both margins equal to a fixed prior, what the observer sees of a source has the law C of the
channel, and two things are asked for:

* the expected entropy of its posterior, ``H(J) = sum of q log(Q / q)`` with ``q = J_ij C(k | i, j)`` and Q the sum of q
  over sources: concave in J, to be made large;
* the chance that its likeliest source is the right one, ``sum over (j, k) of max_i q``: convex, to be made small.

Both are homogeneous of degree one, so the linear function with the gradient g at any J bounds them everywhere:
``H(X) <= <g(J), X>`` for all X. The largest value of that over all laws with these margins and budget is a transport
problem, and any multipliers ``u_i + v_j + price * hops_ij >= g_ij`` bound it by ``<prior, u> + <prior, v> + price *
budget``. That number is the certificate.

Tables here have one row a destination; the transport problem is the same either way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from veilwalk.core.arrays import BoolArray, FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.design._channel import Channel
from veilwalk.design._kernels import hit_slopes
from veilwalk.design._scaling import Scaling, scaled

OBJECTIVES = ("entropy", "hit-ratio")
_ASCENT_STEPS = 200
_ENTROPY_GAP = 1e-6
# The exponent of the norm that stands for the maximum over sources.
_SHARPNESS = 200.0
# Fewest and most accelerated steps, and the entries of the channel they may look at between them.
_DESCENT_STEPS = (500, 1200)
_DESCENT_WORK = 6e8
_HIT_GAP = 5e-3
_TRANSFORMS = 4
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best joint law found (one row a destination), its value, and a bound on the value of any law.

    For ``entropy`` both are in nats and the bound is an upper one; for ``hit-ratio`` they are probabilities and the
    bound is a lower one.
    """

    objective: str
    joint: FloatArray
    value: float
    bound: float
    steps: int

    @property
    def gap(self) -> float:
        """How far the value may be from the best, as a share of the best."""
        return abs(self.bound - self.value) / self.bound if self.bound > 0 else math.inf


@dataclass(frozen=True, eq=False)
class Problem:
    """What is held fixed: channel, usable pairs, prior, mean hops of each pair and budget; one row a destination."""

    channel: Channel
    usable: BoolArray
    prior: FloatArray
    hops: FloatArray
    budget: float = math.inf

    def solve(self, objective: str = "entropy") -> Optimum:
        """Return the best law for ``objective`` with its certificate."""
        if objective not in OBJECTIVES:
            raise InvalidParameterError("objective", objective, f"one of {', '.join(OBJECTIVES)}")
        return _most_entropy(self) if objective == "entropy" else _fewest_hits(self)

    def nearest(self, log_table: FloatArray, start: Scaling | None = None) -> Scaling:
        """Return the joint law nearest to ``exp(log_table)`` on the usable pairs that keeps prior and budget."""
        return scaled(
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
        seen = np.log(np.maximum(table @ own, _TINY))
        out[nodes] = spread + seen @ table - np.log(np.maximum(own, _TINY))
        value += float(own @ out[nodes])
    return value, gradient


def _most_entropy(problem: Problem) -> Optimum:
    """Mirror ascent: multiply by exp(gradient), then scale back to margins and budget.

    The entropy is 1-smooth relative to the relative entropy (the observations of a pair sum to one), so the full step
    never descends.
    """
    scaling = problem.nearest(np.zeros_like(problem.hops))
    bound = math.inf
    steps, settled = 0, False
    while not settled:
        joint, steps = scaling.joint, steps + 1
        value, gradient = entropy_gradient(joint, problem.channel)
        scaling = problem.nearest(np.log(np.maximum(joint, _TINY)) + gradient, scaling)
        bound = min(bound, problem.bound_linear(gradient, -scaling.rows, scaling.price))
        settled = bound - value <= _ENTROPY_GAP * value or steps == _ASCENT_STEPS
    return Optimum("entropy", joint, value, bound, steps)


@dataclass(frozen=True, eq=False)
class HitSlope:
    """Hit ratio of a joint law, its smooth stand-in with that one's gradient, and a slope below the hit ratio.

    ``slope`` holds weights of at most one over the sources of each observation: ``<slope, X>`` bounds the hit ratio of
    every X from below.
    """

    value: float
    smooth: float
    gradient: FloatArray
    slope: FloatArray


class HitRatio:
    """The hit ratio under one channel as a function of the joint law, ready to be evaluated many times."""

    def __init__(self, channel: Channel) -> None:
        self._sources = np.concatenate(channel.sources)
        self._first_source = np.cumsum([0, *(len(nodes) for nodes in channel.sources)])
        self._tables = np.concatenate([table.ravel() for table in channel.tables])
        self._first_entry = np.cumsum([0, *(table.size for table in channel.tables)])
        self.size = len(self._tables)

    def at(self, joint: FloatArray, sharpness: float) -> HitSlope:
        """Return value and slopes at ``joint``; the maximum over sources is smoothed as a norm of that exponent."""
        gradient, slope, values = np.zeros_like(joint), np.zeros_like(joint), np.zeros((len(joint), 2))
        ragged = (self._sources, self._first_source, self._tables, self._first_entry)
        hit_slopes(joint, *ragged, sharpness, gradient, slope, values)
        value, smooth = values.sum(axis=0)
        return HitSlope(float(value), float(smooth), gradient, slope)


def _fewest_hits(problem: Problem) -> Optimum:
    """Accelerated mirror descent on the smoothed hit ratio; the mean of all slopes met makes the certificate."""
    ratio = HitRatio(problem.channel)
    point = mirror = best = problem.nearest(np.zeros_like(problem.hops)).joint
    value, bound, lipschitz, total = ratio.at(point, _SHARPNESS).value, 0.0, 1.0, 0.0
    slopes, rows, prices = np.zeros_like(point), np.zeros(len(point)), 0.0
    scaling: Scaling | None = None
    steps, most = 0, int(np.clip(_DESCENT_WORK / ratio.size, *_DESCENT_STEPS))
    while value - bound > _HIT_GAP * value and steps < most:
        steps += 1
        while True:
            weight = (1.0 + math.sqrt(1.0 + 4.0 * total * lipschitz)) / (2.0 * lipschitz)
            share = weight / (total + weight)
            middle = (1.0 - share) * point + share * mirror
            at = ratio.at(middle, _SHARPNESS)
            moved = problem.nearest(np.log(np.maximum(mirror, _TINY)) - weight * at.gradient, scaling)
            ahead = (1.0 - share) * point + share * moved.joint
            then = ratio.at(ahead, _SHARPNESS)
            # The smooth value must stay below its quadratic model; otherwise the step was too long.
            room = _relative_entropy(moved.joint, mirror) / (total + weight)
            if then.smooth <= at.smooth + float((at.gradient * (ahead - middle)).sum()) + room + 1e-14:
                break
            lipschitz *= 2.0
        point, mirror, scaling, total, lipschitz = ahead, moved.joint, moved, total + weight, 0.9 * lipschitz
        slopes, rows, prices = slopes + weight * at.slope, rows + moved.rows, prices + moved.price
        if then.value < value:
            value, best = then.value, ahead
        bound = max(bound, -problem.bound_linear(-slopes / total, -rows / total, prices / total))
    return Optimum("hit-ratio", best, value, bound, steps)


def _relative_entropy(joint: FloatArray, other: FloatArray) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(joint > 0, joint * np.log(joint / np.maximum(other, _TINY)), 0.0)
    return float(terms.sum() - joint.sum() + other.sum())
