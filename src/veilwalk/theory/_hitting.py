r"""First-hitting times T_FH on random regular graphs, from a source at a given distance.

Two scenarios (Tishby, Biham, Katzav, arXiv 2205.02893). SP: the walk runs along the shortest path, with
detours on the tree around it. Not SP: it loses the target and finds it later, by chance, after a time that is
geometric. The law is their mixture. All functions broadcast over ``distance`` and over times, and hold for
``n_nodes`` from 10 to 10^12: where 1 - exp(-x) or a difference of nearly equal terms would lose digits, expm1,
log-gamma or a series keeps them.

A ``bound`` is the largest hitting time the observer admits (the return time kappa' it saw); it may be any real
number above the distance, or infinity.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.theory._model import WalkModel

# Shortest-path probabilities below this are dropped from sums: far under one unit in the last place.
_NEGLIGIBLE = 1e-22


def shortest_path_probability(distance: npt.ArrayLike, *, model: WalkModel) -> FloatArray:
    """P(SP | distance) = (c-1)^-distance + 1/N.  Paper: text before Gl3 (unlabelled), from Tishby et al."""
    ell = _distances(distance).astype(np.float64)
    return np.exp(-ell * math.log(model.degree - 1)) + 1.0 / model.n_nodes


def hitting_pmf_sp(time: npt.ArrayLike, *, distance: npt.ArrayLike, model: WalkModel) -> FloatArray:
    """P(T_FH = time | distance, SP); zero unless time >= distance and both have the same parity.

    It is the first-passage law of a walk on the integers with drift, so it sums to one.
    Paper: text before Gl4 (unlabelled).
    """
    t, ell = np.broadcast_arrays(np.asarray(time, dtype=np.float64), _distances(distance))
    possible = (t >= ell) & (np.mod(t - ell, 2) == 0)
    t = np.where(possible, t, ell)
    forward, back = (t + ell) / 2, (t - ell) / 2
    log_binomial = special.gammaln(t + 1) - special.gammaln(forward + 1) - special.gammaln(back + 1)
    log_pmf = np.log(ell / t) + log_binomial + forward * math.log1p(-1 / model.degree) - back * math.log(model.degree)
    return np.where(possible, np.exp(log_pmf), 0.0)


def hitting_pmf_nsp(time: npt.ArrayLike, *, distance: npt.ArrayLike, model: WalkModel) -> FloatArray:
    """P(T_FH = time | distance, not SP): geometric on time - distance = 1, 2, ...  Paper: Gl4."""
    a = model.decay_rate
    gap = np.asarray(time, dtype=np.float64) - _distances(distance)
    # expm1 keeps every digit of a tiny c'/N; exp(a) - 1 has lost half of them by N = 1e8.
    return np.where(gap > 0, -math.expm1(-a) * np.exp(-a * np.maximum(gap - 1, 0)), 0.0)


def hitting_cdf_sp(bound: npt.ArrayLike, *, distance: npt.ArrayLike, model: WalkModel) -> FloatArray:
    """P(T_FH <= bound | distance, SP), summed; the neglected tail is below 1e-22."""
    return _accumulate_sp(bound, distance, model=model)[0]


def hitting_cdf_nsp(bound: npt.ArrayLike, *, distance: npt.ArrayLike, model: WalkModel) -> FloatArray:
    """P(T_FH <= bound | distance, not SP) = 1 - exp(-a (bound - distance))."""
    gap = np.asarray(bound, dtype=np.float64) - _distances(distance)
    return np.where(gap > 0, -np.expm1(-model.decay_rate * np.maximum(gap, 0)), 0.0)


def mean_hitting_time_sp(distance: npt.ArrayLike, *, model: WalkModel) -> FloatArray:
    """E[T_FH | distance, SP] = c/(c-2) distance.  Paper: text before Gl3 (unlabelled)."""
    return _distances(distance).astype(np.float64) * (model.degree / (model.degree - 2))


def mean_hitting_time_nsp(distance: npt.ArrayLike, *, model: WalkModel) -> FloatArray:
    """E[T_FH | distance, not SP] = distance + 1/(1 - e^-a).  Paper: Gl3."""
    return _distances(distance).astype(np.float64) - 1 / math.expm1(-model.decay_rate)


def mean_hitting_time(distance: npt.ArrayLike, *, model: WalkModel) -> FloatArray:
    """E[T_FH | distance], both scenarios mixed.  Paper: text before Gl3 (unlabelled).

    Examples:
        >>> from veilwalk.theory import WalkModel
        >>> mean_hitting_time([1, 4], model=WalkModel(n_nodes=300, degree=3)).round(1).tolist()
        [300.3, 565.5]
    """
    sp = shortest_path_probability(distance, model=model)
    direct = mean_hitting_time_sp(distance, model=model)
    lost = mean_hitting_time_nsp(distance, model=model)
    return sp * direct + (1 - sp) * lost


def truncated_mean_nsp(bound: npt.ArrayLike, *, distance: npt.ArrayLike, model: WalkModel) -> FloatArray:
    """E[T_FH | distance, not SP, T_FH <= bound]: the mean of a truncated geometric law, exact.

    With m = bound - distance and r = e^-a it is distance + 1/(1-r) - m r^m/(1-r^m). The last term is missing
    from the printed proposition (see ``printed.truncated_mean_nsp`` and erratum 2).
    Paper: prop:truncexpfht, corrected.
    """
    kappa, ell = _bounds(bound, distance)
    return ell + _truncated_geometric_mean(kappa - ell, model.decay_rate)


def truncated_mean_sp(bound: npt.ArrayLike, *, distance: npt.ArrayLike, model: WalkModel) -> FloatArray:
    """E[T_FH | distance, SP, T_FH <= bound], summed; the neglected tail is below 1e-22."""
    kappa, ell = _bounds(bound, distance)
    mass, moment = _accumulate_sp(kappa, ell, model=model)
    return moment / mass


def truncated_mean(bound: npt.ArrayLike, *, distance: npt.ArrayLike, model: WalkModel) -> FloatArray:
    """E[T_FH | distance, T_FH <= bound], mixed, without ass:eth.  Paper: used in lem:unnormalized_likelihood."""
    lost_share = lost_probability(bound, distance=distance, model=model)
    direct = truncated_mean_sp(bound, distance=distance, model=model)
    lost = truncated_mean_nsp(bound, distance=distance, model=model)
    return (1 - lost_share) * direct + lost_share * lost


def lost_probability(bound: npt.ArrayLike, *, distance: npt.ArrayLike, model: WalkModel) -> FloatArray:
    """P(not SP | distance, T_FH <= bound), by Bayes.  Paper: psp in thm:tvboundest, at any distance."""
    kappa, ell = _bounds(bound, distance)
    sp = shortest_path_probability(ell, model=model)
    direct = sp * hitting_cdf_sp(kappa, distance=ell, model=model)
    lost = (1 - sp) * hitting_cdf_nsp(kappa, distance=ell, model=model)
    return lost / (lost + direct)


def _distances(distance: npt.ArrayLike) -> IntArray:
    ell = np.asarray(distance)
    if not np.issubdtype(ell.dtype, np.integer) or np.any(ell < 1):
        raise InvalidParameterError("distance", distance, "whole numbers >= 1")
    return ell


def _bounds(bound: npt.ArrayLike, distance: npt.ArrayLike) -> tuple[FloatArray, IntArray]:
    kappa, ell = np.broadcast_arrays(np.asarray(bound, dtype=np.float64), _distances(distance))
    # "not >" rather than "<=": NaN must not slip through.
    if not np.all(kappa > ell):
        raise InvalidParameterError("return time", bound, f"more than the distance {int(ell.max())}")
    return kappa, ell


def _truncated_geometric_mean(m: FloatArray, a: float) -> FloatArray:
    """Mean of a geometric law with ratio e^-a on 1, 2, ..., given that it is at most m.

    1/(1-e^-a) - m/(e^(am)-1) = 1 + (B(a) - B(am))/a with B(x) = x/(e^x - 1). For small am both B are close to
    1 and the difference must come from the series of B.
    """
    x = a * m
    direct = 1 + (_bernoulli(np.asarray(a)) - _bernoulli(np.minimum(x, 700.0))) / a
    small = np.minimum(x, 0.1)
    # B(x) = 1 - x/2 + x^2/12 - x^4/720 + x^6/30240 - x^8/1209600: the next term is below 1e-18 at x = 0.1.
    slope = 0.5 - small / 12 + small**3 / 720 - small**5 / 30240 + small**7 / 1209600
    own_slope = 0.5 - a / 12 + a**3 / 720 - a**5 / 30240 + a**7 / 1209600
    series = 1 + np.where(x < 0.1, m, 0) * slope - own_slope
    return np.where(x < 0.1, series, direct)


def _bernoulli(x: FloatArray) -> FloatArray:
    return x / np.expm1(x)


def shortest_path_hops(distance: int, *, model: WalkModel) -> tuple[IntArray, FloatArray]:
    """Return the hitting times along the shortest path that are not negligible, from the distance on, and their law.

    With gamma = log c - log(c-1)/2 - log 2 > 0 the law is below (c-1)^(l/2) e^(-gamma t): so far it may go.
    """
    c = model.degree
    gamma = math.log(c) - math.log(c - 1) / 2 - math.log(2)
    last = math.ceil((distance / 2 * math.log(c - 1) - math.log(_NEGLIGIBLE)) / gamma)
    hops = np.arange(distance, last + 1)
    return hops, hitting_pmf_sp(hops, distance=distance, model=model)


def _accumulate_sp(bound: npt.ArrayLike, distance: npt.ArrayLike, *, model: WalkModel) -> tuple[FloatArray, FloatArray]:
    """Return P(T <= bound | SP) and E[T; T <= bound | SP], by a few hundred terms for each distance."""
    kappa, ell = np.broadcast_arrays(np.asarray(bound, dtype=np.float64), _distances(distance))
    mass, moment = np.zeros(kappa.shape), np.zeros(kappa.shape)
    for value in np.unique(ell):
        t, pmf = shortest_path_hops(int(value), model=model)
        # Index 0 means "nothing yet", so that bounds below the distance give zero.
        cumulative = np.concatenate(([0.0], np.cumsum(pmf)))
        moments = np.concatenate(([0.0], np.cumsum(t * pmf)))
        here = ell == value
        index = np.clip(np.floor(kappa[here]) - value + 1, 0, len(t)).astype(np.int64)
        mass[here], moment[here] = cumulative[index], moments[index]
    return mass, moment
