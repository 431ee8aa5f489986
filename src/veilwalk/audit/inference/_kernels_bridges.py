"""Kernels of bridges: ways of the token between two sightings, drawn exactly from all that avoid members.

Level m holds for each state the chance to come to the next sighting in m more hops, up to a factor of the level. After
many hops it no longer matters how many: levels are then alike, but for those of odd and even walks, and no more are
made.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from veilwalk.walks.compiled import part, serial

# Levels that differ by less are alike.
_ALIKE = 1e-9
_WEYL = np.uint64(0x9E3779B97F4A7C15)
_MIX, _MIX_AGAIN = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_FIRST, _SECOND, _THIRD, _TOP_BITS = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)

Array = Any


@part
def uniform(stream: Array) -> float:
    """Return the next number in [0, 1) of a stream, which is one word (splitmix64)."""
    stream[0] += _WEYL
    word = stream[0]
    word = (word ^ (word >> _FIRST)) * _MIX
    word = (word ^ (word >> _SECOND)) * _MIX_AGAIN
    word ^= word >> _THIRD
    return np.float64(word >> _TOP_BITS) * 2.0**-53


@serial
def fill_levels(
    ahead: tuple[Array, Array, Array], place: Array, free: Array, marked: Array, must: Any, end: Array, hops: int,
    plain: Array, through: Array
) -> Any:  # fmt: skip
    """Fill levels 0 to ``hops``, or until they are alike; return the last.

    ``plain`` is for ways through free states to ``end``; ``through``, if it ``must`` be, for those of them that have
    yet to come to a marked node.
    """
    n_states = place.shape[0]
    for z in range(n_states):
        plain[0, z] = end[z]
        through[0, z] = 0.0
    last = min(hops, plain.shape[0] - 1)
    for m in range(1, last + 1):
        most = 0.0
        for z in range(n_states):
            total, part = 0.0, 0.0
            if free[z]:
                for e in range(ahead[0][z], ahead[0][z + 1]):
                    y = ahead[1][e]
                    total += ahead[2][e] * plain[m - 1, y]
                    if must:
                        part += ahead[2][e] * (plain[m - 1, y] if marked[place[y]] else through[m - 1, y])
            plain[m, z] = total
            through[m, z] = part
            most = max(most, total)
        if most == 0.0:
            return m
        apart = 0.0
        for z in range(n_states):
            plain[m, z] /= most
            through[m, z] /= most
            if m > 1:
                apart = max(apart, abs(plain[m, z] - plain[m - 2, z]), abs(through[m, z] - through[m - 2, z]))
        if m > 2 and apart < _ALIKE:
            return m
    return last


@part
def level_of(m: int, last: int) -> int:
    """Return which level serves m hops if ``last`` is the last."""
    return m if m <= last else last - ((m - last) & 1)


@part
def next_state(
    ahead: tuple[Array, Array, Array], place: Array, marked: Array, met: Any, z: int, plain: Array, through: Array,
    stream: Array
) -> int:  # fmt: skip
    """Draw where a way goes from state z, with the levels of what is left of it; ``met``: it need not be marked."""
    total = 0.0
    for e in range(ahead[0][z], ahead[0][z + 1]):
        y = ahead[1][e]
        total += ahead[2][e] * (plain[y] if met or marked[place[y]] else through[y])
    goal, chosen = uniform(stream) * total, -1
    for e in range(ahead[0][z], ahead[0][z + 1]):
        y = ahead[1][e]
        share = ahead[2][e] * (plain[y] if met or marked[place[y]] else through[y])
        if share > 0.0:
            chosen = y
            goal -= share
            if goal < 0.0:
                break
    return chosen
