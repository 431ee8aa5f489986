r"""What the window notion guarantees when the observed return time is not the one designed for.

The argument of thm:tvboundest, with the repairs it needs. Let V(l) = log E_seen(l) - log E_design(l). A part V0
of it common to all distances cancels when the posterior is normalised, so with n = d + 1 distances, for any V0:

    TV(W_seen, uniform) <= (1/n) \sum_l (e^|V(l) - V0| - 1).

Proof: u(l) = e^(V(l) - V0) is proportional to W_seen. By the triangle inequality through u/n,
2 TV <= |n - sum u|/n + (1/n) sum |u - 1| <= (2/n) sum |u - 1|, and |e^x - 1| <= e^|x| - 1.

Under ass:fht, V(l) is -a times the shift of the truncated mean: the printed theorem but for two things. It divides
by d, and it needs no V0, because its truncated mean lacks the term that all distances share (errata 2 and 3).
With the right mean and V0 = 0 the bound would be true but empty. Counting shortest paths in E_seen gives a bound
that does not need ass:fht at all; that is the one the guarantee uses.

The largest total-variation bound over all return times from one on: searched with a certificate, not on a grid.

Return times are whole hops. What changes with kappa' is the centre of the window, C(l) = E[T_FH | l, T_FH <= kappa'],
and it never falls. A stretch of return times is bounded in two ways, and stretches that could still hold the maximum
are halved until none can, or no hop is left inside.

Always: each C(l) lies between its values at the ends; the lost walk's likelihood e^(-a C) falls with it; and the hits
along the shortest path are at least those of hops in every window met, at most those of hops in any.

Where the shortest path's law has ended (kappa' beyond all its hops): C'(l) = h(l) (kappa' + s - C(l)), with
s = 1/(1 - e^-a) - 1/a and h the hazard of the lost walk, which falls. So C'(l) has bounds on a stretch, and the part
that all distances share, which the median takes out, cancels from the change of log E from one distance to another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.theory import _hitting as hitting
from veilwalk.theory import _returns as returns
from veilwalk.theory import _window as window
from veilwalk.theory._model import AnonymityModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """What holds, in the window notion, with probability at least ``1 - tail_probability``.

    ``anonymity_floor_nats`` is a proved lower bound on the distance entropy; of the paper's assumptions it needs
    only ass:frt, for the probability. It holds at every return time covered: whole hops, from t1 on.
    """

    tail_probability: float
    return_time_design: float
    return_time_from: float
    total_variation_bound: float
    anonymity_floor_nats: float


def bound_total_variation(
    return_time_seen: npt.ArrayLike, return_time_design: float, *, model: AnonymityModel, shortest_paths: bool = False
) -> FloatArray:
    """Bound the total variation between W at ``return_time_seen`` and the uniform W of the design.

    With ``shortest_paths`` the observer counts hits along the shortest path too; without, ass:fht is made.
    Paper: thm:tvboundest, corrected.
    """
    observed = window.window_likelihood(return_time_seen, model=model, shortest_paths=shortest_paths)
    designed = window.window_likelihood(return_time_design, model=model, shortest_paths=False)
    return mean_excess(np.log(observed / designed))


def bound_distance_entropy(total_variation: npt.ArrayLike, *, n_distances: int) -> FloatArray:
    """Lower bound on H(W) from its total variation to uniform: (1-rho) log n + rho log rho - rho, at least 0.

    It falls as rho grows, so an upper bound on the total variation may be put in.
    Paper: thm:estentropybound.
    """
    validate.at_least(1, n_distances=n_distances)
    rho = np.asarray(total_variation, dtype=np.float64)
    if not np.all(rho >= 0):
        raise InvalidParameterError("total variation", total_variation, ">= 0")
    rho = np.minimum(rho, 1.0)
    bound = (1 - rho) * math.log(n_distances) + rho * np.log(np.where(rho > 0, rho, 1.0)) - rho
    return np.maximum(bound, 0.0)


def guarantee(tail_probability: float, *, model: AnonymityModel, return_time_design: float | None = None) -> Guarantee:
    """Return what the law designed for ``return_time_design`` guarantees with probability 1 - tail.

    Without ``return_time_design`` the paper's choice is taken; its mean return time or infinity give the case of
    the corollary. The bound is searched with a certificate over all of [t1, infinity].
    Paper: thm:optimalsol_entropybound and its corollary, corrected.
    """
    kappa = return_time_design
    if kappa is None:
        kappa = returns.design_return_time(tail_probability, model=model)
    start = covered_return_time(tail_probability, model=model)
    designed = window.window_likelihood(kappa, model=model, shortest_paths=False)
    rho = worst_total_variation(start, designed, model=model)
    return Guarantee(
        tail_probability=tail_probability,
        return_time_design=kappa,
        return_time_from=start,
        total_variation_bound=rho,
        anonymity_floor_nats=float(bound_distance_entropy(rho, n_distances=model.support.size)),
    )


def covered_return_time(tail_probability: float, *, model: AnonymityModel) -> float:
    """t1, or the first return time above the support if that is later: nothing shorter can be examined."""
    return max(returns.guaranteed_return_time(tail_probability, model=model), model.support.hi + 1.0)


def mean_iteration_hops(distance_pmf: npt.ArrayLike, *, model: AnonymityModel) -> float:
    """Mean hops between two updates: the sum of p(l) E[T_FH | l].  Paper: Numerical Evaluations (unlabelled)."""
    pmf = window.checked_pmf(distance_pmf, model)
    return float(pmf @ hitting.mean_hitting_time(model.support.distances, model=model.walk))


# Stretches at first. Beyond _LIFETIMES / a hops one stretch holds the rest: nothing changes there any more.
_STRETCHES, _LIFETIMES = 256, 45.0
# What is returned exceeds a bound that is met by no more than this.
_SHARE, _GAP = 1e-9, 1e-10
# Halving stops here; the bound then holds all the same, and is a little wider.
_HALVINGS, _MOST_STRETCHES = 60, 8192
# The cap only keeps an idle bound finite.
_CAP = 50.0


def mean_excess(ratio: FloatArray) -> FloatArray:
    """Return the mean of e^|V - V0| - 1 over distances, V0 the median: it minimises the sum to first order."""
    return _excess(np.abs(ratio - np.median(ratio, axis=-1, keepdims=True)))


def worst_total_variation(start: float, designed: FloatArray, *, model: AnonymityModel) -> float:
    """Return the largest bound on the total variation at any return time from ``start`` on, infinity included.

    ``designed`` is the likelihood that the law levels. No return time gives more than is returned.
    """
    lives = start + np.linspace(0.0, 1.0, _STRETCHES) ** 3 * (_LIFETIMES / model.walk.decay_rate)
    ends = np.concatenate(([start], np.unique(np.ceil(lives[1:])), [math.inf]))
    stretches = _Stretches(designed, model)
    early, late = ends[:-1], ends[1:]
    reached, settled = stretches.largest_at(ends), 0.0
    for halving in range(_HALVINGS + 1):
        middle = np.floor((early + late) / 2)
        # Without a hop inside there is nothing beyond the ends; the endless one is never halved.
        inner = (middle > early) | np.isinf(late)
        most = np.where(inner, stretches.between(early, late), 0.0)
        wide = np.isfinite(late) & (most > reached * (1 + _SHARE) + _GAP)
        if halving == _HALVINGS or 2 * wide.sum() > _MOST_STRETCHES:
            wide[:] = False
        settled = max(settled, float(most[~wide].max(initial=0.0)))
        if not wide.any():
            break
        early, middle, late = early[wide], middle[wide], late[wide]
        reached = max(reached, stretches.largest_at(middle))
        early, late = np.concatenate((early, middle)), np.concatenate((middle, late))
    return max(reached, settled)


class _Stretches:
    """Bounds on V = log E_seen - log E_design over stretches of return times."""

    def __init__(self, designed: FloatArray, model: AnonymityModel) -> None:
        self._model, self._a = model, model.walk.decay_rate
        self._sizes = window.shell_sizes(model)
        self._level = np.log(window.window_factor(model)) - np.log(designed)
        self._factor = window.shell_free_window_factor(model)
        self._direct = hitting.shortest_path_probability(model.support.distances, model=model.walk)
        laws = [hitting.shortest_path_hops(int(ell), model=model.walk) for ell in model.support.distances]
        # Summed from the far end: a difference of two tails keeps its digits.
        self._tails = [np.append(np.cumsum(pmf[::-1])[::-1], 0.0) for _, pmf in laws]
        self._ended = max(int(hops[-1]) for hops, _ in laws)

    def largest_at(self, return_times: FloatArray) -> float:
        """Return the largest bound on the total variation at these return times."""
        centre = self._centres(return_times)
        ratio = self._level - self._a * centre + np.log1p(self._extra(centre, centre, centre))
        return float(mean_excess(ratio).max())

    def between(self, early: FloatArray, late: FloatArray) -> FloatArray:
        """Return an upper bound on the bounds at all return times from each of ``early`` to each of ``late``."""
        first, last = self._centres(early), self._centres(late)
        fewest, most = np.log1p(self._extra(first, last, first)), np.log1p(self._extra(last, first, last))
        low = self._level - self._a * last + fewest
        high = self._level - self._a * first + most
        bound = _range_excess(low, high)
        smooth = (early > self._ended) & np.isfinite(late)
        if smooth.any():
            change = self._change(early[smooth], late[smooth], first[smooth], last[smooth])
            level = self._level - self._a * (first[smooth] - first[smooth, :1])
            shared = _range_excess(level - change[0] + fewest[smooth], level + change[1] + most[smooth])
            bound[smooth] = np.minimum(bound[smooth], shared)
        return bound

    def _centres(self, return_times: FloatArray) -> FloatArray:
        model = self._model
        return hitting.truncated_mean(return_times[:, np.newaxis], distance=model.support.distances, model=model.walk)

    def _extra(self, lost: FloatArray, first: FloatArray, last: FloatArray) -> FloatArray:
        """Return the shortest path's hits by the lost walk's.

        The lost walk's window is centred on ``lost``; the hops run from the start of the window around ``first`` to
        the end of that around ``last``.
        """
        delta, mass = self._model.window_radius, np.empty_like(lost)
        for column, (ell, tail) in enumerate(zip(self._model.support.distances, self._tails, strict=True)):
            begin = np.clip(np.ceil(first[:, column] - delta) - ell, 0, len(tail) - 1).astype(np.int64)
            end = np.clip(np.floor(last[:, column] + delta) + 1 - ell, 0, len(tail) - 1).astype(np.int64)
            mass[:, column] = np.maximum(tail[begin] - tail[end], 0.0)
        return self._direct * mass / (self._factor * np.exp(-self._a * lost))

    def _change(
        self, early: FloatArray, late: FloatArray, first: FloatArray, last: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return how far log E without the shortest path falls and rises, at most, against the nearest distance's."""
        early, late = early[:, np.newaxis], late[:, np.newaxis]
        shift = -1 / math.expm1(-self._a) - 1 / self._a
        fastest = self._hazard(early) * (late + shift - first)
        slowest = self._hazard(late) * np.maximum(early + shift - last, 0.0)
        span = self._a * (late - early)
        falls, rises = span * (fastest - slowest[:, :1]), span * (fastest[:, :1] - slowest)
        # Against itself nothing changes.
        falls[:, 0], rises[:, 0] = 0.0, 0.0
        return np.maximum(falls, 0.0), np.maximum(rises, 0.0)

    def _hazard(self, return_time: FloatArray) -> FloatArray:
        """Density of the lost walk's hit at a return time, given a hit so far."""
        left = np.exp(-self._a * (return_time - self._model.support.distances))
        return np.asarray((1 - self._direct) * self._a * left / (1 - (1 - self._direct) * left))


def _range_excess(low: FloatArray, high: FloatArray) -> FloatArray:
    # The median of what lies between two bounds lies between their medians.
    above = high - np.median(low, axis=-1, keepdims=True)
    below = np.median(high, axis=-1, keepdims=True) - low
    return _excess(np.maximum(above, below))


def _excess(deviation: FloatArray) -> FloatArray:
    return np.asarray(np.expm1(np.minimum(deviation, _CAP)).mean(axis=-1))
