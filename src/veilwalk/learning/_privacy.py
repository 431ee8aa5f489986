"""Privacy of noisy updates: what a run reveals about one node's data, or one row, to everybody together.

Who is protected: one node, all its data at once. Neighbouring worlds: its data are used, or it hands the model on with
noise alone. An update is clipped to norm C and gets noise of standard deviation z C (z is the noise multiplier). Or one
row of a node: it is used, or not there; its part of a sum is clipped to norm C, and the sum gets noise of z C.

Everybody may see every model and know who made it. Each update of the node counts as one Gaussian mechanism of
sensitivity C, and Gaussian mechanisms compose to one, whose epsilon is known exactly. Nothing else is assumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from veilwalk.core import validate
from veilwalk.core.errors import ConfigError

# What cannot be told, beyond epsilon.
_WHAT = {
    "node": "whether one node's data, all of them, were used at all",
    "record": "whether one row of one node was there at all",
}


@dataclass(frozen=True, slots=True)
class NoisyUpdate:
    """An update clipped to norm C that got Gaussian noise of standard deviation ``noise_multiplier`` times C."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        validate.more_than(0, noise_multiplier=self.noise_multiplier)
        validate.finite(noise_multiplier=self.noise_multiplier)


class NodePrivacyAccountant:
    """Adds up what the updates of a run reveal about one node's data: count every update that the node may make.

    ``unit`` is what is protected, a ``node`` or a ``record``; an update with several noisy steps counts as so many.
    """

    def __init__(self, *, unit: str = "node") -> None:
        self._unit = unit
        self._counts: dict[NoisyUpdate, int] = {}

    def compose(self, event: NoisyUpdate, count: int = 1) -> NodePrivacyAccountant:
        """Count ``event``, ``count`` times; return the accountant itself."""
        validate.integer(count=count)
        validate.at_least(0, count=count)
        if count:
            self._counts[event] = self._counts.get(event, 0) + count
        return self

    def get_epsilon(self, delta: float) -> float:
        """Return epsilon at ``delta``."""
        validate.probability(delta=delta)
        precision = sum(count / event.noise_multiplier**2 for event, count in self._counts.items())
        return _gaussian_epsilon(1 / math.sqrt(precision), delta) if precision else 0.0

    def statement(self, delta: float) -> str:
        """Say in plain words what epsilon is and against whom it holds."""
        lines = [f"epsilon <= {self.get_epsilon(delta):.3g} at delta = {delta:g}: {_WHAT[self._unit]}."]
        for event, count in self._counts.items():
            lines.append(f"  {count} updates with noise multiplier {event.noise_multiplier:g}, sender known.")
        lines.append("Holds against everybody together, sender known: whatever they see of models and routes.")
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
        raise ConfigError(
            "privacy is accounted with dp-accounting, not installed here: pip install 'veilwalk[dp]' brings it"
        ) from error
    return dp_accounting


@lru_cache(maxsize=32)
def _gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    return float(_dp_accounting().get_epsilon_gaussian(noise_multiplier, delta))
