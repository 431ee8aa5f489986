"""Middleware between a learner and the token: clipping, noise, quantisation, decay.

Each works on the difference between the model received and the model made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import Array, Params, StepContext, UpdateMod, UpdateResult


@dataclass(frozen=True, slots=True)
class ClipUpdate:
    """Shrink the whole difference, all arrays together, to a Euclidean norm of at most ``max_norm``."""

    max_norm: float

    def __post_init__(self) -> None:
        validate.more_than(0, max_norm=self.max_norm)
        validate.finite(max_norm=self.max_norm)

    def __call__(self, before: Params, result: UpdateResult, ctx: StepContext) -> UpdateResult:  # noqa: ARG002
        """Return ``result`` no further from ``before`` than ``max_norm``."""
        changes = _differences(before, result.params)
        norm = _norm(changes)
        if norm <= self.max_norm:
            return result
        factor = self.max_norm / norm
        return _moved(before, result, {name: change * factor for name, change in changes.items()})


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """Clip the whole difference to ``max_norm`` and add noise of ``multiplier`` times that to every number.

    Both happen in one step in double precision; the model is rounded once, after the noise. Nothing is refused here:
    a refusal would depend on the data and tell of them. A difference that is not finite counts as none. Arrays of
    whole numbers, which noise cannot cover, stay as they were received. The noise is ``ctx.normal``: from the stream of
    the update in a simulation, where the same seed must give the same bits; a node uses the operating system's source.
    """

    multiplier: float
    max_norm: float

    def __post_init__(self) -> None:
        validate.more_than(0, multiplier=self.multiplier, max_norm=self.max_norm)
        validate.finite(multiplier=self.multiplier, max_norm=self.max_norm)

    def __call__(self, before: Params, result: UpdateResult, ctx: StepContext) -> UpdateResult:
        """Return ``result`` with noise on every number, also on those that did not change."""
        changes = _differences(before, result.params)
        norm, deviation = _norm(changes), self.multiplier * self.max_norm
        if not math.isfinite(norm):
            changes, norm = {name: np.zeros(change.shape) for name, change in changes.items()}, 0.0
        factor = self.max_norm / max(norm, self.max_norm)
        noisy = {name: factor * change + deviation * ctx.normal(change.shape) for name, change in changes.items()}
        unchanged = {name: value for name, value in before.items() if name not in noisy}
        return _moved(before, replace(result, params={**result.params, **unchanged}), noisy)


@dataclass(frozen=True, slots=True)
class Quantise:
    """Round each array of the difference to ``2**bits - 1`` even levels, up to its own largest value of either sign.

    ``stochastic`` rounds up or down at random, so that the mean stays; otherwise to the nearest step, ties to even.
    The model still travels as its own type: this shows what fewer bits do to learning.
    """

    bits: int
    stochastic: bool = False

    def __post_init__(self) -> None:
        validate.integer(bits=self.bits)
        if not 2 <= self.bits <= 16:
            raise InvalidParameterError("bits", self.bits, "2 to 16")

    def __call__(self, before: Params, result: UpdateResult, ctx: StepContext) -> UpdateResult:
        """Return ``result`` with its difference on a coarse grid."""
        changes = _differences(before, result.params)
        return _moved(before, result, {name: self._rounded(change, ctx) for name, change in changes.items()})

    def _rounded(self, change: Array, ctx: StepContext) -> Array:
        largest = float(np.abs(change).max(initial=0.0))
        if largest == 0.0:
            return change
        # An odd number of levels, so that zero is one of them and a number that did not move stays.
        step = largest / (2 ** (self.bits - 1) - 1)
        scaled = change / step
        rounded = np.floor(scaled + ctx.rng.random(change.shape)) if self.stochastic else np.rint(scaled)
        return np.asarray(rounded * step)


@dataclass(frozen=True, slots=True)
class Decay:
    """Let an update count less the older the model is, linearly, and nothing once it has had ``updates``.

    After the noise it costs no privacy; a model that settles so needs no average of models, which would have to travel.
    """

    updates: int

    def __post_init__(self) -> None:
        validate.integer(updates=self.updates)
        validate.at_least(1, updates=self.updates)

    def share(self, age: int) -> float:
        """Return how much of an update counts in a model that has had ``age`` updates."""
        return max(1.0 - age / self.updates, 0.0)

    def __call__(self, before: Params, result: UpdateResult, ctx: StepContext) -> UpdateResult:
        """Return ``result`` moved towards ``before``."""
        share = self.share(ctx.age)
        if share == 1.0:
            return result
        changes = _differences(before, result.params)
        return _moved(before, result, {name: share * change for name, change in changes.items()})


@dataclass(frozen=True, slots=True)
class Composed:
    """Several mods in turn."""

    mods: tuple[UpdateMod, ...]

    def __call__(self, before: Params, result: UpdateResult, ctx: StepContext) -> UpdateResult:
        """Return ``result`` after each mod in turn."""
        for mod in self.mods:
            result = mod(before, result, ctx)
        return result


def compose(mods: Sequence[UpdateMod]) -> Composed:
    """Return one mod that applies ``mods`` in turn; a composed one counts as its parts."""
    return Composed(tuple(part for mod in mods for part in (mod.mods if isinstance(mod, Composed) else (mod,))))


def adds_noise(mod: UpdateMod | None) -> bool:
    """Return whether ``mod`` adds noise that protects what an update is made from."""
    return isinstance(mod, GaussianNoise) or (isinstance(mod, Composed) and any(map(adds_noise, mod.mods)))


def _differences(before: Params, after: Params) -> dict[str, Array]:
    """Return how far each array of real numbers moved, in double precision."""
    return {
        name: np.asarray(after[name], dtype=np.float64) - value
        for name, value in before.items()
        if np.issubdtype(value.dtype, np.floating)
    }


def _norm(changes: Params) -> float:
    return math.sqrt(sum(float(np.vdot(change, change)) for change in changes.values()))


def _moved(before: Params, result: UpdateResult, changes: Params) -> UpdateResult:
    params = {
        name: (value + changes[name]).astype(value.dtype) if name in changes else result.params[name]
        for name, value in before.items()
    }
    return replace(result, params=params)
