"""The paper's window notion: likelihoods, the law that levels them, the posterior it leaves, entropies.

A destination that saw the walk ``return_time_seen`` hops ago expects it from distance l after
E[T_FH | l, T_FH <= return_time_seen] hops, and weighs each l by the chance of a hit within ``window_radius``
hops of that (Definition PrivacyNotion). This is the paper's observer, not the best one: see ``docs/explanation``.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, normalised
from veilwalk.core.errors import InvalidParameterError
from veilwalk.theory import _hitting as hitting
from veilwalk.theory._model import AnonymityModel, gompertz_shell_sizes, typical_diameter


def window_factor(model: AnonymityModel) -> FloatArray:
    """K_delta(l): the window likelihood of one node, its mean hitting time left out.  Paper: K, after ass:fht."""
    return shell_free_window_factor(model) / shell_sizes(model)


def shell_free_window_factor(model: AnonymityModel) -> FloatArray:
    """A(l) K_delta(l): P(not SP | l) times the sum of Gl4 over 2 delta + 1 hops, centred on hop 0."""
    walk, ell, delta = model.walk, model.support.distances, model.window_radius
    a = walk.decay_rate
    lost = 1 - hitting.shortest_path_probability(ell, model=walk)
    geometric_sum = math.expm1(-a * (2 * delta + 1)) / math.expm1(-a)
    factor: FloatArray = lost * math.expm1(a) * np.exp(a * (delta + ell)) * geometric_sum
    return factor


def shell_sizes(model: AnonymityModel) -> FloatArray:
    """Return the expected number of nodes at each distance of the support, refusing empty shells.

    The paper bounds the support by the diameter. A random graph's diameter is random; a shell is refused when
    fewer than one pair of nodes in the whole graph is expected that far apart. In a complete graph all others are
    neighbours, whatever the formula says.
    """
    if model.support.hi > 1 and model.walk.degree == model.walk.n_nodes - 1:
        raise InvalidParameterError("support", str(model.support), "1:1: in a complete graph all others are neighbours")
    farthest = typical_diameter(model.walk)
    if model.support.hi > farthest:
        first = max(model.support.lo, farthest + 1)
        need = f"within the diameter: no two of {model.walk.n_nodes} nodes are expected {first} hops apart"
        raise InvalidParameterError("support", str(model.support), need)
    return gompertz_shell_sizes(model.support.distances, model=model.walk)


def window_likelihood(
    return_time_seen: npt.ArrayLike, *, model: AnonymityModel, shortest_paths: bool = True
) -> FloatArray:
    """E_{delta,kappa'}(l): the chance that one node at distance l, if chosen, hits within the window.

    Args:
        return_time_seen: kappa', one number above the support or infinity; an array adds leading axes.
        model: walk, support and window.
        shortest_paths: count shortest-path hits inside the window too. False makes ass:fht and gives the
            closed form of the paper. Truncated means are exact mixtures either way (ass:eth is never made).

    Paper: lem:unnormalized_likelihood; at infinity lem:unnormalized_likelihood_sp.
    """
    kappa = _check_return_time(return_time_seen, model)
    walk, ell = model.walk, model.support.distances
    centre = hitting.truncated_mean(kappa, distance=ell, model=walk)
    likelihood = window_factor(model) * np.exp(-walk.decay_rate * centre)
    if shortest_paths:
        likelihood = likelihood + shortest_path_mass(centre, model) / shell_sizes(model)
    return likelihood


def optimal_distance_pmf(
    return_time_design: float, *, model: AnonymityModel, shortest_paths: bool = False
) -> FloatArray:
    """p*(l), proportional to 1/E_{delta,kappa}(l): it makes the window posterior at kappa uniform.

    A destination at distance l is then drawn with p*(l)/A(l).
    Paper: lemma:rrgopt; at infinity lemma:rrgoptprelim_sp.

    Example:
        >>> from veilwalk.core.support import DistanceSupport
        >>> from veilwalk.theory import WalkModel
        >>> walk = WalkModel(n_nodes=300, degree=3)
        >>> optimal_distance_pmf(634, model=AnonymityModel(walk=walk, support=DistanceSupport(2, 6))).round(3)
        array([0.049, 0.086, 0.157, 0.276, 0.432])
    """
    likelihood = window_likelihood(return_time_design, model=model, shortest_paths=shortest_paths)
    return normalised(likelihood.min() / likelihood)


def source_posterior(
    distance_pmf: npt.ArrayLike, return_time_seen: npt.ArrayLike, *, model: AnonymityModel, shortest_paths: bool = False
) -> FloatArray:
    """W_{delta,kappa'}(l), proportional to p(l) E_{delta,kappa'}(l).

    The factor 1/A(l) stands inside E, so W(l) weighs ONE node at distance l; it is normalised over distances as
    the paper does. See :func:`node_entropy` for what that means for nodes.
    Paper: eq:designdist.
    """
    likelihood = window_likelihood(return_time_seen, model=model, shortest_paths=shortest_paths)
    return normalised(checked_pmf(distance_pmf, model) * likelihood)


def distance_entropy(posterior: npt.ArrayLike) -> FloatArray:
    """H(W) in nats, over distances: at most log(number of distances).  Paper: H in Definition PrivacyNotion."""
    w = np.asarray(posterior, dtype=np.float64)
    return np.asarray(special.entr(w).sum(axis=-1))


def node_entropy(posterior: npt.ArrayLike, *, sizes: npt.ArrayLike) -> FloatArray:
    """Entropy in nats over the nodes behind W: each of ``sizes[l]`` nodes weighs W(l), then normalised.

    At most log(sum of sizes).  Paper: the remark after lemma:rrgoptprelim_sp, made exact.
    """
    w = np.asarray(posterior, dtype=np.float64)
    counts = np.asarray(sizes, dtype=np.float64)
    total: FloatArray = (counts * w).sum(axis=-1)
    entropy: FloatArray = np.log(total) + (counts * special.entr(w)).sum(axis=-1) / total
    return entropy


def checked_pmf(distance_pmf: npt.ArrayLike, model: AnonymityModel) -> FloatArray:
    """Return ``distance_pmf`` as an array, refusing one of the wrong length, sign or sum."""
    pmf = np.asarray(distance_pmf, dtype=np.float64)
    size = model.support.size
    if pmf.shape != (size,) or not np.all(pmf >= 0) or abs(pmf.sum() - 1) > 1e-9:
        raise InvalidParameterError("distance pmf", distance_pmf, f"{size} probabilities that sum to 1")
    return pmf


def _check_return_time(return_time: npt.ArrayLike, model: AnonymityModel) -> FloatArray:
    kappa = np.asarray(return_time, dtype=np.float64)
    if not np.all(kappa > model.support.hi):
        need = f"more than the largest distance of the support, {model.support.hi}"
        raise InvalidParameterError("return time", return_time, need)
    return kappa[..., np.newaxis]


def shortest_path_mass(centre: FloatArray, model: AnonymityModel) -> FloatArray:
    """P(SP | l) P(a shortest-path hit at a whole hop within the window | l, SP)."""
    walk, ell, delta = model.walk, model.support.distances, model.window_radius
    validate.finite(centre=float(centre.max()))
    first = np.ceil(centre - delta)
    offsets = np.arange(2 * delta + 1)
    hops = first[..., np.newaxis] + offsets
    inside = hops <= (centre + delta)[..., np.newaxis]
    mass = np.where(inside, hitting.hitting_pmf_sp(hops, distance=ell[:, np.newaxis], model=walk), 0.0)
    within: FloatArray = hitting.shortest_path_probability(ell, model=walk) * mass.sum(axis=-1)
    return within
