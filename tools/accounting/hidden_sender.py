"""Privacy against an observer who has every model, in order, but no part in any route: it does not know who made what.

Makers are a chain: who made one update drew the next, by a law that is public. They are therefore not independent, and
content that gives one away says something of the next. What is sound: give away the makers of every other update. Those
between are then independent of each other, each with a law given both its neighbours, and their mixtures compose
(:mod:`tools.accounting.mixtures`). Taking a node's data out of the updates at even places first, and out of those at
odd places then, gives the sum of both epsilons. See the page on privacy accounting for the proof, and for who is no
such observer: every member, who relays.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tools.accounting.mixtures import ObserverAccountant
from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning import epsilon_of

_ROUNDS = 30
_CLOSE = 1e-4


def between_neighbours(kernel: npt.ArrayLike) -> FloatArray:
    """Return, for each node, the largest probability that it made an update, given who made the ones before and after.

    ``kernel[s, v]`` is the probability that v makes the update after one of s: the matrix of the law, where an update
    is sealed for one.
    """
    steps = np.asarray(kernel, dtype=np.float64)
    if steps.ndim != 2 or steps.shape[0] != steps.shape[1] or not np.allclose(steps.sum(axis=1), 1.0, atol=1e-9):
        raise InvalidParameterError("kernel", steps.shape, "square, with rows that sum to one")
    twice = steps @ steps
    # What cannot happen is given nobody's.
    possible = np.where(twice > 0, twice, np.inf)
    return np.array([float((np.outer(steps[:, v], steps[v]) / possible).max()) for v in range(len(steps))])


def hidden_sender_epsilon(
    kernel: npt.ArrayLike, *, noise_multiplier: float, updates: int, most_updates: int, delta: float
) -> float:
    """Return epsilon at ``delta`` of the node that is worst off, against that observer, makers drawn by ``kernel``.

    The first maker is drawn by the law that the chain tends to. Never more than with the sender known, of whom no
    more than ``most_updates`` are counted. The unit is a node: another node's sum of clipped rows may be so far away
    that it names its maker by itself, and a record gains nothing.
    """
    validate.integer(updates=updates, most_updates=most_updates)
    validate.at_least(1, updates=updates, most_updates=most_updates)
    known = epsilon_of(noise_multiplier, delta, updates=most_updates)
    weight = float(between_neighbours(kernel).max())
    if weight >= 1:
        return known
    half = ObserverAccountant().observed(noise_multiplier, np.full(-(-updates // 2), weight))
    found = half.get_epsilon(delta / 2)
    for _ in range(_ROUNDS):
        # Of both halves together: delta of one, and e^epsilon times delta of the other.
        if 2 * found >= known:
            return known
        after = half.get_epsilon(delta / (1 + math.exp(found)))
        if after <= found:
            return 2 * found
        # A little more at once, so that it ends.
        found = after + _CLOSE
    return known
