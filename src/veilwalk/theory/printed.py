"""The paper's formulas exactly as printed, where they are wrong; kept to draw its curves beside the right ones.

Nothing else in the package relies on this module. ``paper/errata.md`` says what is wrong with each, and with
what evidence. Where the evaluation section approximates P(not SP | l, T <= kappa') by P(not SP | l), so does
this module.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, normalised
from veilwalk.core.errors import InvalidParameterError
from veilwalk.theory import _bounds as bounds
from veilwalk.theory import _hitting as hitting
from veilwalk.theory import _window as window
from veilwalk.theory._model import AnonymityModel, WalkModel

__all__ = [
    "bound_total_variation",
    "closed_form_total_variation",
    "error_scale",
    "guaranteed_entropy",
    "guaranteed_return_time",
    "optimal_distance_pmf",
    "source_posterior",
    "truncated_mean",
    "truncated_mean_nsp",
    "window_likelihood",
]


def truncated_mean_nsp(bound: npt.ArrayLike, *, distance: npt.ArrayLike, model: WalkModel) -> FloatArray:
    """prop:truncexpfht as printed: l/(1 - e^(-a(kappa-l))) + 1/(1 - e^-a).

    It lacks -m r^m/(1-r^m), and so exceeds ``bound`` itself, which no mean of T given T <= bound can.
    """
    a = model.decay_rate
    kappa, ell = np.asarray(bound, dtype=np.float64), np.asarray(distance)
    mean: FloatArray = ell / -np.expm1(-a * (kappa - ell)) - 1 / math.expm1(-a)
    return mean


def truncated_mean(bound: npt.ArrayLike, *, distance: npt.ArrayLike, model: WalkModel) -> FloatArray:
    """ass:eth as evaluated in the paper: the printed mean times P(not SP | l)."""
    lost = 1 - hitting.shortest_path_probability(distance, model=model)
    return lost * truncated_mean_nsp(bound, distance=distance, model=model)


def window_likelihood(
    return_time_seen: npt.ArrayLike, *, model: AnonymityModel, shortest_paths: bool = False
) -> FloatArray:
    """lem:unnormalized_likelihood with the printed truncated mean.

    With ``shortest_paths`` the hits along the shortest path are added, as the paper does "without ass:fht".
    """
    kappa = np.asarray(return_time_seen, dtype=np.float64)[..., np.newaxis]
    centre = truncated_mean(kappa, distance=model.support.distances, model=model.walk)
    likelihood = window.window_factor(model) * np.exp(-model.walk.decay_rate * centre)
    if shortest_paths:
        likelihood = likelihood + window.shortest_path_mass(centre, model) / window.shell_sizes(model)
    return likelihood


def optimal_distance_pmf(
    return_time_design: float, *, model: AnonymityModel, shortest_paths: bool = False
) -> FloatArray:
    """lemma:rrgopt on the printed likelihood."""
    return normalised(1 / window_likelihood(return_time_design, model=model, shortest_paths=shortest_paths))


def source_posterior(
    distance_pmf: npt.ArrayLike, return_time_seen: npt.ArrayLike, *, model: AnonymityModel, shortest_paths: bool = False
) -> FloatArray:
    """eq:designdist on the printed likelihood."""
    likelihood = window_likelihood(return_time_seen, model=model, shortest_paths=shortest_paths)
    return normalised(window.checked_pmf(distance_pmf, model) * likelihood)


def bound_total_variation(
    return_time_seen: npt.ArrayLike, return_time_design: float, *, model: AnonymityModel
) -> FloatArray:
    """thm:tvboundest as printed: divided by d rather than d + 1, on the printed truncated means."""
    walk, ell = model.walk, model.support.distances
    kappa = np.asarray(return_time_seen, dtype=np.float64)[..., np.newaxis]
    error = np.abs(
        truncated_mean_nsp(kappa, distance=ell, model=walk)
        - truncated_mean_nsp(return_time_design, distance=ell, model=walk)
    )
    exponent = walk.decay_rate * _lost_at_farthest(model) * error
    return np.asarray(np.expm1(exponent).sum(axis=-1)) / _range(model)


def guaranteed_return_time(tail_probability: float, *, model: AnonymityModel) -> float:
    """t1 in the proof of thm:optimalsol_entropybound, with N where eq:critical_cdf has N-2."""
    validate.probability(tail=tail_probability)
    return 2 * model.support.lo - math.log1p(-tail_probability) / model.walk.decay_rate


def error_scale(tail_probability: float, *, model: AnonymityModel) -> float:
    """Epsilon in thm:optimalsol_entropybound, its O(.) read as an equality."""
    validate.probability(tail=tail_probability)
    lo, hi = model.support.lo, model.support.hi
    log_keep = math.log1p(-tail_probability)
    large = (1 - tail_probability) * math.exp(-(2 * lo - hi) * model.walk.decay_rate) - 1
    small = (-2 - log_keep) / (2 * log_keep)
    return hi / 2 * max(large, small)


def closed_form_total_variation(error: float, *, model: AnonymityModel, divide_by_count: bool = False) -> float:
    """Rho in thm:optimalsol_entropybound, its O(.) read as an equality.

    The sum has d + 1 terms and is divided by d before 1 is taken off, so rho never falls below 1/d.
    ``divide_by_count`` divides by d + 1 instead: the same formula without the off-by-one (erratum 3).
    """
    x = model.walk.decay_rate / 2 * _lost_at_farthest(model) * error
    total = float(np.sum(np.exp(x * model.support.distances)))
    return total / (model.support.size if divide_by_count else _range(model)) - 1


def guaranteed_entropy(
    tail_probability: float, *, model: AnonymityModel, divide_by_count: bool = False, corollary: bool = False
) -> float:
    """Alpha of thm:optimalsol_entropybound as printed, in nats; ``corollary`` doubles epsilon."""
    error = error_scale(tail_probability, model=model) * (2 if corollary else 1)
    rho = closed_form_total_variation(error, model=model, divide_by_count=divide_by_count)
    # Its O(.) hides a sign: for tails near 1 the "error" is negative, and the least rho can be is 0.
    return float(bounds.bound_distance_entropy(max(rho, 0.0), n_distances=model.support.size))


def _lost_at_farthest(model: AnonymityModel) -> float:
    return 1 - float(hitting.shortest_path_probability(model.support.hi, model=model.walk))


def _range(model: AnonymityModel) -> int:
    if model.support.size == 1:
        raise InvalidParameterError(
            "support", str(model.support), "two distances or more: the printed bounds divide by their difference"
        )
    return model.support.size - 1
