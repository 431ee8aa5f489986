"""Privacy of noisy updates, in two cases: the receiver knows who sent one, or does not.

Who is protected: one node, all its data at once. Neighbouring worlds: its data are used, or it hands the model on with
noise alone. An update is clipped to norm C and gets noise of standard deviation z C (z is the noise multiplier).

*Sender known.* Everybody may see every model and know who made it; each update of the node counts as one Gaussian
mechanism of sensitivity C. Nothing is assumed.

*Sender unknown to the receiver.* One receiver sees every model. Given the routes it saw, the node made an update with
probability w, else somebody else did, whose update may be any of norm at most C. Worlds differ only by the mixtures
(1-w) Q + w M and (1-w) Q + w M'. For a > 1 the hockey-stick divergence of the first from the second is the price of a
put on two log-normal values, 1 - a M'/M - c Q/M with c = (1-w)(a-1)/w, taken under M. It grows with each of their
variances and with their covariance, and those are all largest when M, M' and Q stand on one line, at C, 0 and -C (the
other way round: at 0, C and C). That pair is what is composed here, in closed form. Note that it is *not* the Poisson
sampled Gaussian of a federated round: there the others' sum stays when a node is left out, here another update takes
its place, up to 2 C away. Assumed: routes do not depend on data, and given the routes the sources of different updates
are independent draws. Nothing is assumed about what the content of updates gives away; that is what is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.learning._sender import SenderPosterior

_FORMAT = "veilwalk-privacy-1"
_FINEST = 1e-4
_GRID = 50_000
# What lies beyond the grid of privacy losses counts as if everything were revealed.
_TAIL = 1e-15
# Below this a single update reveals more than any grid holds.
_LEAST_NOISE = 0.01


@dataclass(frozen=True, slots=True)
class NoisyUpdate:
    """An update clipped to norm C that got Gaussian noise of standard deviation ``noise_multiplier`` times C.

    ``sender`` is None where the receiver may know who made it, else what it knows, measured.
    """

    noise_multiplier: float
    sender: SenderPosterior | None = None

    def __post_init__(self) -> None:
        validate.more_than(0, noise_multiplier=self.noise_multiplier)
        validate.finite(noise_multiplier=self.noise_multiplier)
        known: object = self.sender
        if known is not None and not isinstance(known, SenderPosterior):
            raise InvalidParameterError("sender", known, "None (known) or a measured SenderPosterior, not a number")


class NodePrivacyAccountant:
    """Adds up what the updates of a run reveal about one node's data.

    Count for the known case every noisy update of the node. Count for the unknown case all updates of the run,
    whoever made them: those that one receiver opened, with the measured posterior, and all others, which it sees only
    inside later models, with :meth:`SenderPosterior.of_law`.
    """

    def __init__(self) -> None:
        self._counts: dict[NoisyUpdate, int] = {}

    def compose(self, event: NoisyUpdate, count: int = 1) -> NodePrivacyAccountant:
        """Count ``event``, ``count`` times; return the accountant itself."""
        validate.integer(count=count)
        validate.at_least(0, count=count)
        if count:
            self._counts[event] = self._counts.get(event, 0) + count
        return self

    @property
    def sender_known(self) -> bool:
        """Whether any update was counted with its sender known."""
        return any(event.sender is None for event in self._counts)

    def get_epsilon(self, delta: float) -> float:
        """Return an upper bound on epsilon at ``delta``; infinite where the noise is too small to say."""
        validate.probability(delta=delta)
        return _epsilon(tuple(self._counts.items()), delta)

    def would_exceed(self, event: NoisyUpdate, *, epsilon: float, delta: float, count: int = 1) -> bool:
        """Return whether ``count`` more of ``event`` would lift epsilon at ``delta`` above ``epsilon``."""
        after = NodePrivacyAccountant()
        after._counts = dict(self._counts)
        return after.compose(event, count).get_epsilon(delta) > epsilon

    def state_dict(self) -> dict[str, Any]:
        """Return plain data, fit for JSON, that :meth:`load_state_dict` reads."""
        ledger = [
            {
                "noise_multiplier": event.noise_multiplier,
                "sender": None if event.sender is None else event.sender.to_dict(),
                "count": count,
            }
            for event, count in self._counts.items()
        ]
        return {"format": _FORMAT, "ledger": ledger}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace all counts by those of ``state``."""
        try:
            if state["format"] != _FORMAT:
                raise ConfigError(f"privacy state: format {state['format']} is not {_FORMAT}")
            counts: dict[NoisyUpdate, int] = {}
            for row in state["ledger"]:
                sender = None if row["sender"] is None else SenderPosterior.from_dict(row["sender"])
                counts[NoisyUpdate(float(row["noise_multiplier"]), sender)] = int(row["count"])
        except (KeyError, TypeError) as error:
            raise ConfigError(f"privacy state: not written by state_dict ({error})") from error
        self._counts = counts

    def statement(self, delta: float) -> str:
        """Say in plain words what epsilon is, which case was used, against whom it holds and what it assumes."""
        found = self.get_epsilon(delta)
        epsilon = f"{found:.3g}" if math.isfinite(found) else "infinity"
        lines = [f"epsilon <= {epsilon} at delta = {delta:g}: whether one node's data, all of them, were used at all."]
        for event, count in self._counts.items():
            who = "sender known" if event.sender is None else f"sender unknown ({event.sender.origin})"
            lines.append(f"  {count} updates with noise multiplier {event.noise_multiplier:g}, {who}.")
        if self.sender_known:
            lines.append("Holds against everybody together, whatever they know of the routes.")
        else:
            lines.append(
                "Holds against one receiver, even if it sees every model, for routes drawn apart from the data"
            )
            lines.append("and sources of different updates independent of each other; not against receivers together.")
        return "\n".join(lines)


def noise_for(epsilon: float, delta: float, *, updates: int) -> float:
    """Return the least noise multiplier that keeps ``updates`` updates, sender known, within (epsilon, delta)."""
    validate.more_than(0, epsilon=epsilon)
    validate.probability(delta=delta)
    validate.integer(updates=updates)
    validate.at_least(1, updates=updates)
    return float(_dp_accounting().get_sigma_gaussian(epsilon, delta)) * math.sqrt(updates)


def _dp_accounting() -> Any:
    try:
        import dp_accounting
    except ImportError as error:
        raise ConfigError("privacy is accounted with dp-accounting, not installed here: veilwalk[dp]") from error
    return dp_accounting


@lru_cache(maxsize=32)
def _epsilon(counts: tuple[tuple[NoisyUpdate, int], ...], delta: float) -> float:
    known = sum(count / event.noise_multiplier**2 for event, count in counts if event.sender is None)
    unknown = [(event, count) for event, count in counts if event.sender is not None]
    accounting = _dp_accounting()
    if not unknown:
        # Gaussians compose to one Gaussian, whose epsilon is known exactly.
        return float(accounting.get_epsilon_gaussian(1 / math.sqrt(known), delta)) if known else 0.0
    if min(event.noise_multiplier for event, _ in counts) < _LEAST_NOISE:
        return math.inf
    if known:
        certain = SenderPosterior((1.0,), (1.0,), "known")
        unknown.append((NoisyUpdate(1 / math.sqrt(known), certain), 1))
    reach = max(_reach(event) for event, _ in unknown)
    step = max(_FINEST, reach / _GRID)
    total = accounting.pld.privacy_loss_distribution.identity(step)
    for event, count in unknown:
        total = total.compose(_losses(event, step).self_compose(count))
    return float(total.get_epsilon_for_delta(delta))


def _losses(event: NoisyUpdate, step: float) -> Any:
    """Return the privacy loss distribution of one update, both directions, never less than the true one."""
    pld = _dp_accounting().pld
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
def _reach(event: NoisyUpdate) -> float:
    """Return an epsilon beyond which next to nothing is left."""
    epsilon = 1e-3 * 10.0 ** np.linspace(0, 8, 401)
    left = np.maximum(used_divergence(epsilon, event), unused_divergence(epsilon, event))
    return float(epsilon[np.argmax(left < _TAIL)])


def used_divergence(epsilon: FloatArray, event: NoisyUpdate) -> FloatArray:
    """Return the largest hockey-stick divergence (epsilon >= 0) of the world with the node's data from that without.

    Of (1-w) N(-1) + w N(1) from (1-w) N(-1) + w N(0), standard deviation z: positive above one point x, found from
    a k u + c u^2 = 1 with u = exp(-x / z^2), k = exp(1 / (2 z^2)).
    """
    z, total = event.noise_multiplier, np.zeros_like(epsilon)
    for share, w in _weights(event):
        with np.errstate(divide="ignore"):
            # log((1 - w)(a - 1) / w), safe where a = e^epsilon overflows.
            log_c = epsilon + np.log1p(-np.exp(-epsilon)) + np.log1p(-w) - math.log(w)
        linear = epsilon + 1 / (2 * z**2)
        x = z**2 * (np.logaddexp(linear, 0.5 * np.logaddexp(2 * linear, math.log(4) + log_c)) - math.log(2))
        # Logarithms, since e^epsilon may overflow where the tail it multiplies is nothing.
        gain = ndtr((1 - x) / z) - np.exp(epsilon + log_ndtr(-x / z)) - np.exp(log_c + log_ndtr((-1 - x) / z))
        total += share * w * np.maximum(gain, 0.0)
    return total


def unused_divergence(epsilon: FloatArray, event: NoisyUpdate) -> FloatArray:
    """Return the largest hockey-stick divergence (epsilon >= 0) of the world without the node's data from that with.

    Of (1-w) N(1) + w N(0) from N(1): w times that of the Gaussian mechanism at 1 + (a - 1) / w.
    """
    z, total = event.noise_multiplier, np.zeros_like(epsilon)
    for share, w in _weights(event):
        # log(1 + (e^epsilon - 1) / w), safe where e^epsilon overflows.
        inner = epsilon - math.log(w) + np.log1p((w - 1) * np.exp(-epsilon))
        gain = ndtr(1 / (2 * z) - inner * z) - np.exp(inner + log_ndtr(-1 / (2 * z) - inner * z))
        total += share * w * np.maximum(gain, 0.0)
    return total


def _weights(event: NoisyUpdate) -> list[tuple[float, float]]:
    if event.sender is None:
        return [(1.0, 1.0)]
    pairs = zip(event.sender.shares, event.sender.weights, strict=True)
    return [(share, weight) for share, weight in pairs if share > 0 and weight > 0]
