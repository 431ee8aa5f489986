"""Nodes that spoil the model, to see what tests of received models are worth. Only simulated runs have them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.learning._api import Array, Params

#: How a model is spoilt, and the number that follows the name where none is said.
POISONS = {
    "sign-flip": 10.0,
    "nan": 1.0,
    "random": 1.0,
    "drift": 1.0,
}
_WHO_TASK, _WHAT_TASK, _WAY_TASK = 0x706F6973, 0x73706F69, 0x64726966


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison:
    """What some nodes send on instead of their update.

    Attributes:
        kind: ``sign-flip``: so many times their update, backwards. ``nan``: nothing but NaN. ``random``: Gaussian
            numbers of that deviation. ``drift``: as far as so many of their updates would go, all in one and the same
            direction: no single step of it shows.
        scale: That number.
        share: Share of the nodes.
    """

    kind: str
    scale: float
    share: float

    def __post_init__(self) -> None:
        if self.kind not in POISONS:
            raise InvalidParameterError("poison", self.kind, f"one of {', '.join(POISONS)}, or none")
        validate.finite(scale=self.scale)
        validate.more_than(0, scale=self.scale)
        if not 0 <= self.share < 1:
            raise InvalidParameterError("poisoners", self.share, "a share of the nodes, from 0 to below 1")

    @classmethod
    def of(cls, text: str, share: float) -> Poison | None:
        """Read ``sign-flip:10`` and the like; None where it is ``none``."""
        kind, _, number = text.partition(":")
        if text == "none":
            return None
        try:
            scale = float(number) if number else POISONS.get(kind, 1.0)
        except ValueError:
            raise InvalidParameterError("poison", text, "KIND or KIND:NUMBER") from None
        return cls(kind=kind, scale=scale, share=share)

    def nodes(self, n_nodes: int, *, seed: int) -> frozenset[int]:
        """Return who does it, drawn by the seed."""
        drawn = task_generator(seed, _WHO_TASK).permutation(n_nodes)[: round(self.share * n_nodes)]
        return frozenset(int(node) for node in drawn)

    def spoil(self, before: Params, after: Params, *, seed: int, node: int, step: int) -> Params:
        """Return what is sent on in the place of ``after``, an honest update of ``before``."""
        match self.kind:
            case "sign-flip":
                return {name: _like(value, before[name], -self.scale) for name, value in after.items()}
            case "nan":
                return {name: np.full_like(value, np.nan) if _real(value) else value for name, value in after.items()}
            case "random":
                rng = task_generator(seed, _WHAT_TASK, node, step)
                return {
                    name: (self.scale * rng.standard_normal(value.shape)).astype(value.dtype) if _real(value) else value
                    for name, value in after.items()
                }
        return self._drifted(before, after, seed)

    def _drifted(self, before: Params, after: Params, seed: int) -> Params:
        rng = task_generator(seed, _WAY_TASK)
        way = {name: rng.standard_normal(value.shape) for name, value in after.items() if _real(value)}
        length = math.sqrt(sum(float(np.vdot(part, part)) for part in way.values()))
        moved = {name: np.subtract(after[name], before[name], dtype=np.float64) for name in way}
        size = self.scale * math.sqrt(sum(float(np.vdot(part, part)) for part in moved.values()))
        return {
            name: (before[name] + size / length * way[name]).astype(value.dtype) if name in way else value
            for name, value in after.items()
        }


def _real(array: Array) -> bool:
    return array.dtype.kind == "f"


def _like(after: Array, before: Array, scale: float) -> Array:
    """Return the model before, and so many times the change."""
    if not _real(after):
        return after
    change = np.subtract(after, before, dtype=np.float64)
    return np.asarray((before + scale * change).astype(after.dtype))
