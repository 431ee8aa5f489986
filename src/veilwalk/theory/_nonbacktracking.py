r"""Hitting and return times of the non-backtracking walk on random regular graphs: closed forms by distance.

Derivation. N nodes, degree c, x = 1/(c-1); the walk starts at i without a past, the target j is l hops away.

1. On a tree the walk never turns: it reaches j straight, at time l, or never. In a random regular graph
   n_l = c (c-1)^(l-1) paths of l hops leave i and end anywhere, so about Poisson(n_l / N) of them end at j. Given that
   there is one (and none shorter) the walk takes one of them with probability

       s_l = (1/N) / (1 - e^(-n_l/N)),   close to 1/n_l near i and to 1/N far away; s_1 = 1/c exactly.

2. A walk that missed j comes upon it at rate 1/N a hop. It runs into unexplored ends of edges: (c-1)/(cN) for those of
   j, and (c-2)/(cN) for those of each node at distance r from j on a known way to j, to be followed with probability
   x^r; \sum_r (c-2) x^r = 1, together 1/N.

3. A walk that left j comes back likewise, but a way to j through its own trail must first be laid: coming upon the
   trail k hops from j and following it back takes 2k + 3 hops at least. Up to time t the rate is missing
   (1/c) x^floor((t-3)/2) of itself from t = 3 on, and all before: delayed by

       D = 2 + 2 (c-1) / (c (c-2))   hops in all.

   So the return time is N in the mean, as on every regular graph, of which D hops are delay and the rest geometric.

4. Visits to j up to a late time t number t/N, plus s_l, less l/N for the first l hops, if counted from i; or one, plus
   what follows it, if counted from the first visit. Equating the two gives

       E[T | l] = l + (1 - s_l) (N - D + d_l),

   with d_l the delay of walks that left the way to j: d_1 = D - 2, which makes E[T | 1] exact on every regular graph,
   and d_l = (D - 2) x^(l-1) beyond, where it hardly matters.

The simple walk comes back to where it was with probability 1/(c-1) and so visits everything (c-1)/(c-2) times over; the
non-backtracking walk does not. That is the whole of its gain: N hops in the place of N (c-1)/(c-2).

Error, against exact chains averaged over a few sampled graphs with c = 3, 4, 8 and N = 100 to 1000: up to the distance
of the largest shell E[T | l] is within 1.5 hops and the distribution function within 2/N; in any shell with a tenth of
the nodes or more the mean is within 2 hops; the distribution function of the return time is within 1/N. In the last
thin shells means are too small, by some percent (13% at worst, at N = 100): nodes that far off are hard to find.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from veilwalk.core.arrays import FloatArray
from veilwalk.theory._hitting import _bounds, _distances, _truncated_geometric_mean
from veilwalk.theory._model import WalkModel

# The forms are meant for large graphs; on tiny ones a search still takes more than one hop in the mean.
_SHORTEST_SEARCH = 1.5


def nonbacktracking_straight_probability(distance: npt.ArrayLike, *, model: WalkModel) -> FloatArray:
    """s_l = P(T = distance | distance): the walk takes a shortest way."""
    ell = _distances(distance).astype(np.float64)
    c, n = model.degree, model.n_nodes
    # Where n_l overflows every node has been reached, and the probability is 1/N.
    paths = c * np.exp(np.minimum((ell - 1) * math.log(c - 1), 600.0))
    return np.where(ell == 1, 1.0 / c, 1.0 / (n * -np.expm1(-paths / n)))


def nonbacktracking_return_delay(*, model: WalkModel) -> float:
    """D = 2 + 2 (c-1)/(c (c-2)): by how many hops returns lag behind a geometric law that starts at once."""
    c = model.degree
    return 2.0 + 2.0 * (c - 1) / (c * (c - 2))


def nonbacktracking_mean_hitting_time(distance: npt.ArrayLike, *, model: WalkModel) -> FloatArray:
    """E[T | distance] = l + (1 - s_l) (N - D + d_l); exact at distance 1.

    Example:
        >>> nonbacktracking_mean_hitting_time([1, 2, 6], model=WalkModel(n_nodes=300, degree=3)).round(1)
        array([199.7, 249.3, 299.1])
    """
    straight = nonbacktracking_straight_probability(distance, model=model)
    return _distances(distance) + (1 - straight) * _mean_search(distance, model=model)


def nonbacktracking_hitting_pmf(time: npt.ArrayLike, *, distance: npt.ArrayLike, model: WalkModel) -> FloatArray:
    """P(T = time | distance): s_l at the distance itself, then a geometric law."""
    gap = np.asarray(time, dtype=np.float64) - _distances(distance)
    straight = nonbacktracking_straight_probability(distance, model=model)
    rate = _decay(distance, model=model)
    search = -np.expm1(-rate) * np.exp(-rate * np.maximum(gap - 1, 0))
    return np.where(gap == 0, straight, np.where(gap > 0, (1 - straight) * search, 0.0))


def nonbacktracking_hitting_cdf(bound: npt.ArrayLike, *, distance: npt.ArrayLike, model: WalkModel) -> FloatArray:
    """P(T <= bound | distance) for whole-numbered or infinite bounds."""
    gap = np.asarray(bound, dtype=np.float64) - _distances(distance)
    straight = nonbacktracking_straight_probability(distance, model=model)
    found = -np.expm1(-_decay(distance, model=model) * np.maximum(gap, 0))
    return np.where(gap >= 0, straight + (1 - straight) * found, 0.0)


def nonbacktracking_truncated_mean(bound: npt.ArrayLike, *, distance: npt.ArrayLike, model: WalkModel) -> FloatArray:
    """E[T | distance, T <= bound], for a bound above the distance."""
    kappa, ell = _bounds(bound, distance)
    straight = nonbacktracking_straight_probability(ell, model=model)
    rate = _decay(ell, model=model)
    found = (1 - straight) * -np.expm1(-rate * (kappa - ell))
    searched = np.vectorize(_truncated_geometric_mean, otypes=[np.float64])(kappa - ell, rate)
    return np.asarray(ell + found * searched / (straight + found))


def nonbacktracking_mean_return_time(*, model: WalkModel) -> float:
    """E[R] = N, exact on every regular graph: all nodes are equally likely in the long run."""
    return float(model.n_nodes)


def nonbacktracking_return_survival(time: npt.ArrayLike, *, model: WalkModel) -> FloatArray:
    """P(R > time): 1 up to time 2, geometric at rate 1/(N - D) once the walk's own trail leads back too."""
    t = np.maximum(np.asarray(time, dtype=np.float64), 0.0)
    c = model.degree
    pairs, odd = np.divmod(np.maximum(t - 2, 0.0), 2)
    back = np.exp(-pairs * math.log(c - 1))
    delay = np.minimum(t, 2.0) + (2 * (1 - back) * (c - 1) / (c - 2) + odd * back) / c
    return np.asarray(np.exp(-_return_rate(model) * (t - delay)))


def nonbacktracking_return_pmf(time: npt.ArrayLike, *, model: WalkModel) -> FloatArray:
    """P(R = time); zero below 3. Its mean is N up to a tenth of a hop from N = 100 on."""
    t = np.asarray(time, dtype=np.float64)
    missing = np.exp(-np.maximum((t - 3) // 2, 0.0) * math.log(model.degree - 1)) / model.degree
    before = nonbacktracking_return_survival(t - 1, model=model)
    # Not a difference of survivals: at large N they are nearly equal.
    return np.where(t >= 3, before * -np.expm1(-_return_rate(model) * (1 - missing)), 0.0)


def _return_rate(model: WalkModel) -> float:
    return -math.log1p(-1.0 / max(model.n_nodes - nonbacktracking_return_delay(model=model), _SHORTEST_SEARCH))


def _mean_search(distance: npt.ArrayLike, *, model: WalkModel) -> FloatArray:
    """N - D + d_l: mean hops to the target after the straight way was missed, counted from hop ``distance``."""
    lag = nonbacktracking_return_delay(model=model)
    left_the_way = (lag - 2.0) * np.exp(-(_distances(distance) - 1) * math.log(model.degree - 1))
    return np.asarray(np.maximum(model.n_nodes - lag + left_the_way, _SHORTEST_SEARCH))


def _decay(distance: npt.ArrayLike, *, model: WalkModel) -> FloatArray:
    """Return the rate of the geometric law with mean N - D + d_l on 1, 2, ..."""
    return -np.log1p(-1.0 / _mean_search(distance, model=model))
