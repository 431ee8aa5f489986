"""First-return times T_FR on random regular graphs, and the return times a guarantee covers.

RETRO: the walk comes back by retracing its own tree. Not RETRO: it comes back by another way, after a time that
is geometric (Tishby, Biham, Katzav, arXiv 2106.10449). The paper keeps only the second (ass:frt); how much
that leaves out is :func:`retroceding_share`.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray
from veilwalk.theory._model import AnonymityModel, WalkModel


def return_survival(time: npt.ArrayLike, *, model: WalkModel) -> FloatArray:
    """P(T_FR > time | not RETRO): 1 up to time 2, exponential from there.  Paper: ass:frt."""
    t = np.asarray(time, dtype=np.float64)
    return np.exp(-_rate(model) * np.maximum(t - 2, 0.0))


def guaranteed_return_time(tail_probability: float, *, model: AnonymityModel) -> float:
    """t1: destinations see a return time of at least t1 with probability 1 - tail_probability.

    Exact under ass:frt, with N-2 as in eq:critical_cdf; below 3 the law is flat, which matters only for destinations
    one hop away. The proof of thm:optimalsol_entropybound replaces N-2 by
    N in the wrong direction (erratum 8; ``printed.guaranteed_return_time``).
    """
    validate.probability(tail=tail_probability)
    first = max(2 * model.support.lo, 3)
    return first - math.log1p(-tail_probability) / _rate(model.walk)


def design_return_time(tail_probability: float, *, model: AnonymityModel) -> float:
    """kappa = t1 + (N/c') ln 2: e^(-a kappa) halfway between e^(-a t1) and 0.

    kappa is the designer's free choice, so it keeps the paper's t1; only the guarantee must use the exact one.
    Paper: proof of thm:optimalsol_entropybound.
    """
    validate.probability(tail=tail_probability)
    walk = model.walk
    printed_t1 = 2 * model.support.lo - math.log1p(-tail_probability) / walk.decay_rate
    return printed_t1 + math.log(2) / walk.decay_rate


def retroceding_pmf(time: npt.ArrayLike, *, model: WalkModel) -> FloatArray:
    """P(T_FR = time, RETRO): first returns on the infinite c-regular tree; they sum to 1/(c-1).

    A first return after 2k hops is one of c (c-1)^(k-1) Catalan(k-1) paths of probability c^(-2k).
    """
    t = np.asarray(time, dtype=np.float64)
    even = (t >= 2) & (np.mod(t, 2) == 0)
    k = np.where(even, t / 2, 1.0)
    c = model.degree
    log_catalan = special.gammaln(2 * k - 1) - special.gammaln(k) - special.gammaln(k + 1)
    log_pmf = log_catalan + (k - 1) * math.log(c - 1) - (2 * k - 1) * math.log(c)
    return np.where(even, np.exp(log_pmf), 0.0)


def retroceding_share(shortest_distance: int, *, model: WalkModel) -> float:
    """P(RETRO | T_FR >= 2 shortest_distance): the part of the return law that ass:frt leaves out."""
    early = np.arange(2, 2 * shortest_distance)
    retro = 1 / (model.degree - 1) - float(np.sum(retroceding_pmf(early, model=model)))
    other = model.escape_probability * float(return_survival(2 * shortest_distance - 1, model=model))
    return retro / (retro + other)


def _rate(model: WalkModel) -> float:
    return model.escape_probability / (model.n_nodes - 2)
