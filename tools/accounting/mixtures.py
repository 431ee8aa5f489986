"""Privacy against one observer who may not know the sender: mixtures of updates, composed.

Given all that this observer sees, the node made an update with probability at most w, else somebody else did, whose
update may be any of norm at most C. Worlds differ only by the mixtures (1-w) Q + w M and (1-w) Q + w M'. For a > 1 the
hockey-stick divergence of the first from the second is the price of a put on two log-normal values, 1 - a M'/M - c Q/M
with c = (1-w)(a-1)/w, taken under M. It grows with each of their variances and with their covariance, and those are all
largest when M, M' and Q stand on one line, at C, 0 and -C (the other way round: at 0, C and C). That pair is what is
composed here, in closed form. Note that it is *not* the Poisson sampled Gaussian of a federated round: there the
others' sum stays when a node is left out, here another update takes its place, up to 2 C away. Where the weights come
from is the caller's affair: see :meth:`ObserverAccountant.observed`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import dp_accounting
import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtr

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError

_FINEST = 1e-4
_GRID = 50_000
# What lies beyond the grid of privacy losses counts as if everything were revealed.
_TAIL = 1e-15
# Below this a single update reveals more than any grid holds.
_LEAST_NOISE = 0.01
# Logarithm of the ratio of two weights that are kept apart.
_WEIGHT_STEP = 0.05


@dataclass(frozen=True, slots=True)
class MixedUpdate:
    """A noisy update of which the node is the maker with probability ``weight`` at most, to one observer."""

    noise_multiplier: float
    weight: float = 1.0

    def __post_init__(self) -> None:
        validate.more_than(0, noise_multiplier=self.noise_multiplier, weight=self.weight)
        validate.finite(noise_multiplier=self.noise_multiplier)
        if not self.weight <= 1:
            raise InvalidParameterError("weight", self.weight, "at most 1")


class ObserverAccountant:
    """Adds up what the updates of a run reveal about one node's data to one observer. The unit is a node.

    A record gains nothing: another node's sum may be any distance away, and then names its maker by itself.
    """

    def __init__(self) -> None:
        self._counts: dict[MixedUpdate, int] = {}

    def compose(self, event: MixedUpdate, count: int = 1) -> ObserverAccountant:
        """Count ``event``, ``count`` times; return the accountant itself."""
        validate.integer(count=count)
        validate.at_least(0, count=count)
        if count:
            self._counts[event] = self._counts.get(event, 0) + count
        return self

    def observed(self, noise_multiplier: float, weights: npt.ArrayLike) -> ObserverAccountant:
        """Count every update of a run with what the observer can hold the node responsible for; return self.

        Valid only under this contract, which nothing here can check:

        - ``weights`` has an entry for *each* update of the run, opened by the observer or not: it sees them all inside
          later models. The entry is at least the probability that the node made that update given *everything* the
          observer sees: hops relayed and their times, what it drew itself, its own updates, the past. It is 1 where
          the observer is certain (it drew the source, or handed a message over and got another straight back).
        - They are this observer's, not a mean over several, and this node's or a bound for every node.
        - Given all that, who made one update is independent of who made the others. A law that draws the next source
          from the last one does not give that by itself.
        - Routes do not depend on data.
        """
        values = np.asarray(weights, dtype=np.float64)
        if values.ndim != 1 or not np.all((values >= 0) & (values <= 1)):
            raise InvalidParameterError("weights", "values", "one for each update, between 0 and 1")
        # Few different weights, rounded up: divergences grow with the weight, so that nothing is understated.
        powers = np.floor(-np.log(values[values > 0]) / _WEIGHT_STEP * (1 - 1e-12))
        for power, count in zip(*np.unique(powers, return_counts=True), strict=True):
            self.compose(MixedUpdate(noise_multiplier, math.exp(-power * _WEIGHT_STEP)), int(count))
        return self

    def get_epsilon(self, delta: float) -> float:
        """Return an upper bound on epsilon at ``delta``; infinite where the noise is too small to say."""
        validate.probability(delta=delta)
        return _epsilon(tuple(self._counts.items()), delta)


@lru_cache(maxsize=32)
def _epsilon(counts: tuple[tuple[MixedUpdate, int], ...], delta: float) -> float:
    known = sum(count / event.noise_multiplier**2 for event, count in counts if event.weight == 1)
    hidden = [(event, count) for event, count in counts if event.weight < 1]
    if not hidden:
        # Gaussians compose to one Gaussian, whose epsilon is known exactly.
        return float(dp_accounting.get_epsilon_gaussian(1 / math.sqrt(known), delta)) if known else 0.0
    if min(event.noise_multiplier for event, _ in counts) < _LEAST_NOISE:
        return math.inf
    if known:
        hidden.append((MixedUpdate(1 / math.sqrt(known)), 1))
    reach = max(_reach(event) for event, _ in hidden)
    step = max(_FINEST, reach / _GRID)
    total = dp_accounting.pld.privacy_loss_distribution.identity(step)
    for event, count in hidden:
        total = total.compose(_losses(event, step).self_compose(count))
    return float(total.get_epsilon_for_delta(delta))


def _losses(event: MixedUpdate, step: float) -> Any:
    """Return the privacy loss distribution of one update, both directions, never less than the true one."""
    pld = dp_accounting.pld
    size = math.ceil(_reach(event) / step) + 1
    epsilon = step * np.arange(size + 1, dtype=np.float64)
    with_data, without = used_divergence(epsilon, event), unused_divergence(epsilon, event)
    sides = []
    for above, other in ((with_data, without), (without, with_data)):
        # At a < 1 the divergence is a times that at 1/a with the worlds exchanged, plus 1 - a.
        below = np.exp(-epsilon[1:]) * other[1:] - np.expm1(-epsilon[1:])
        curve = np.clip(np.concatenate((below[::-1], above)), 0.0, 1.0)
        sides.append(pld.pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -size, size, curve))
    return pld.privacy_loss_distribution.PrivacyLossDistribution(*sides)


@lru_cache(maxsize=64)
def _reach(event: MixedUpdate) -> float:
    """Return an epsilon beyond which next to nothing is left."""
    epsilon = 1e-3 * 10.0 ** np.linspace(0, 8, 401)
    left = np.maximum(used_divergence(epsilon, event), unused_divergence(epsilon, event))
    return float(epsilon[np.argmax(left < _TAIL)])


def used_divergence(epsilon: FloatArray, event: MixedUpdate) -> FloatArray:
    """Return the largest hockey-stick divergence (epsilon >= 0) of the world with the node's data from that without.

    Of (1-w) N(-1) + w N(1) from (1-w) N(-1) + w N(0), standard deviation z: positive above one point x, found from
    a k u + c u^2 = 1 with u = exp(-x / z^2), k = exp(1 / (2 z^2)).
    """
    z, w = event.noise_multiplier, event.weight
    with np.errstate(divide="ignore"):
        # log((1 - w)(a - 1) / w), safe where a = e^epsilon overflows.
        log_c = epsilon + np.log1p(-np.exp(-epsilon)) + np.log1p(-w) - math.log(w)
    linear = epsilon + 1 / (2 * z**2)
    x = z**2 * (np.logaddexp(linear, 0.5 * np.logaddexp(2 * linear, math.log(4) + log_c)) - math.log(2))
    # Logarithms, since e^epsilon may overflow where the tail it multiplies is nothing.
    gain = ndtr((1 - x) / z) - np.exp(epsilon + log_ndtr(-x / z)) - np.exp(log_c + log_ndtr((-1 - x) / z))
    return np.asarray(w * np.maximum(gain, 0.0))


def unused_divergence(epsilon: FloatArray, event: MixedUpdate) -> FloatArray:
    """Return the largest hockey-stick divergence (epsilon >= 0) of the world without the node's data from that with.

    Of (1-w) N(1) + w N(0) from N(1): w times that of the Gaussian mechanism at 1 + (a - 1) / w.
    """
    z, w = event.noise_multiplier, event.weight
    # log(1 + (e^epsilon - 1) / w), safe where e^epsilon overflows.
    inner = epsilon - math.log(w) + np.log1p((w - 1) * np.exp(-epsilon))
    gain = ndtr(1 / (2 * z) - inner * z) - np.exp(inner + log_ndtr(-1 / (2 * z) - inner * z))
    return np.asarray(w * np.maximum(gain, 0.0))
