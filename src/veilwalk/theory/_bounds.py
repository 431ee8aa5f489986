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
from veilwalk.theory import _worst_case as worst_case
from veilwalk.theory._model import AnonymityModel

# Return times at which the notion's own worst entropies are looked for; both ends are among them.
_GRID = 257


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """What holds, in the window notion, with probability at least ``1 - tail_probability``.

    ``anonymity_floor_nats`` is a proved lower bound on the distance entropy; of the paper's assumptions it needs
    only ass:frt, for the probability. It holds at every return time covered: whole hops, from t1 on. The two
    ``worst_`` entropies are the notion's own values at the least favourable of 257 return times.
    """

    tail_probability: float
    return_time_design: float
    return_time_from: float
    total_variation_bound: float
    anonymity_floor_nats: float
    worst_distance_entropy_nats: float
    worst_node_entropy_nats: float
    worst_return_time: float


def bound_total_variation(
    return_time_seen: npt.ArrayLike,
    return_time_design: float,
    *,
    model: AnonymityModel,
    shortest_paths: bool = False,
) -> FloatArray:
    """Bound the total variation between W at ``return_time_seen`` and the uniform W of the design.

    With ``shortest_paths`` the observer counts hits along the shortest path too; without, ass:fht is made.
    Paper: thm:tvboundest, corrected.
    """
    seen = window.window_likelihood(return_time_seen, model=model, shortest_paths=shortest_paths)
    designed = window.window_likelihood(return_time_design, model=model, shortest_paths=False)
    return worst_case.mean_excess(np.log(seen / designed))


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
    the corollary. The bound is searched with a certificate over all of [t1, infinity]; the ``worst_`` entropies are
    those of 257 return times that cut it into equal probabilities.
    Paper: thm:optimalsol_entropybound and its corollary, corrected.
    """
    kappa = return_time_design
    if kappa is None:
        kappa = returns.design_return_time(tail_probability, model=model)
    start = covered_return_time(tail_probability, model=model)
    survival = np.linspace(1.0, 0.0, _GRID)
    with np.errstate(divide="ignore"):
        seen = start - np.log(survival) / model.walk.decay_rate
    designed = window.window_likelihood(kappa, model=model, shortest_paths=False)
    rho = worst_case.worst_total_variation(start, designed, model=model)
    pmf = window.optimal_distance_pmf(kappa, model=model)
    posterior = window.source_posterior(pmf, seen, model=model, shortest_paths=True)
    by_distance = window.distance_entropy(posterior)
    by_node = window.node_entropy(posterior, sizes=window.shell_sizes(model))
    worst = int(np.argmin(by_distance))
    return Guarantee(
        tail_probability=tail_probability,
        return_time_design=kappa,
        return_time_from=start,
        total_variation_bound=rho,
        anonymity_floor_nats=float(bound_distance_entropy(rho, n_distances=model.support.size)),
        worst_distance_entropy_nats=float(by_distance[worst]),
        worst_node_entropy_nats=float(np.min(by_node)),
        worst_return_time=float(seen[worst]),
    )


def covered_return_time(tail_probability: float, *, model: AnonymityModel) -> float:
    """t1, or the first return time above the support if that is later: nothing shorter can be examined."""
    return max(returns.guaranteed_return_time(tail_probability, model=model), model.support.hi + 1.0)


def mean_iteration_hops(distance_pmf: npt.ArrayLike, *, model: AnonymityModel) -> float:
    """T_{l1,l2} = sum of p(l) E[T_FH | l]: the mean number of hops between two updates.

    Paper: Section Numerical Evaluations (unlabelled).
    """
    pmf = window.checked_pmf(distance_pmf, model)
    return float(pmf @ hitting.mean_hitting_time(model.support.distances, model=model.walk))
