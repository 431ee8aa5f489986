"""Noise correlated along the walk: each update takes back part of the noise before it (DP-FTRL, banded square root).

The noise of update t is z_t - z_{t-1} / 2 - z_{t-2} / 8 - ... with fresh z, so that what adds up in the model is far
less than with noise that is independent. Whoever makes update t must know z_{t-1}: here all members draw it from a
secret that they share. Against a member, who can take all noise off again, this protects nothing; it is sound against
whoever has models and is no member. See the page on privacy accounting for what one node could do alone, and why not.
"""

from __future__ import annotations

import math

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.learning import Array, TrainingTrace

_SHARED_TASK = 0x73686172


def sqrt_series(band: int) -> FloatArray:
    """Return by what the noise of an update and of those before it is multiplied: the series of (1 - x)^(1/2)."""
    validate.integer(band=band)
    validate.at_least(1, band=band)
    terms = np.ones(band)
    for k in range(1, band):
        terms[k] = terms[k - 1] * (k - 1.5) / k
    return terms


def inverse_series(band: int, length: int) -> FloatArray:
    """Return the inverse of that series, by which an update shows in all later ones; no entry is negative."""
    taken, left = sqrt_series(band), np.zeros(length)
    left[0] = 1.0
    for t in range(1, length):
        reach = min(t, band - 1)
        left[t] = -float(taken[1 : reach + 1] @ left[t - reach : t][::-1])
    return left


def walk_sensitivity(trace: TrainingTrace, *, band: int, most_updates: int = 0) -> float:
    """Return the noise multiplier per unit of a single update's, for the node that is worst off.

    The updates of a node, each of norm at most one in any direction, move what is released by no more than this, before
    fresh noise. Of independent noise (``band`` 1) it is the root of the number of updates.
    """
    if trace.n_models != 1:
        raise InvalidParameterError("tokens", trace.n_models, "1: noise is correlated along one walk")
    left, largest = inverse_series(band, len(trace)), 0.0
    for node in np.unique(trace.node):
        updates = np.flatnonzero(trace.node == node)[: most_updates or None]
        moved = np.zeros(len(trace))
        for update in updates.tolist():
            moved[update:] += left[: len(trace) - update]
        largest = max(largest, float(moved @ moved))
    return math.sqrt(largest)


class SharedNoise:
    """Where the noise of one update comes from: ``secret`` is what members share, ``age`` the updates before it."""

    def __init__(self, secret: int, age: int, *, band: int) -> None:
        self._secret, self._age, self._taken = secret, age, sqrt_series(band)
        self._drawn = 0

    def standard_normal(self, shape: tuple[int, ...]) -> Array:
        """Return fresh normal numbers less part of those before; arrays are told apart by the order of asking."""
        total = np.zeros(shape)
        for back, share in enumerate(self._taken[: self._age + 1].tolist()):
            fresh = task_generator(self._secret, _SHARED_TASK, self._age - back, self._drawn)
            total += share * fresh.standard_normal(shape)
        self._drawn += 1
        return total
