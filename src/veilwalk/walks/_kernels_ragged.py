"""Kernels that move many walkers over a small graph whose nodes differ in degree.

A state is one 64-bit number: where the row of a node starts, and in the low half how long it is. ``rows`` holds for
each move the state that it leads to, so that a step is one product, one sum and one lookup; see ``_moves``.

A word ``w`` picks move ``w * d >> 32`` of ``d``, unless ``w * d`` has a low half below ``2**32 % d``: then the word is
replaced. Adding the whole state to the product, ``q = w * d + state``, gives the entry at once, except where the low
half of ``q`` is below ``2 * d``: there its ``+ d`` may have carried, or the word may have to be replaced. These cases
are looked for afterwards, for many steps at once, and such steps are made again by the rule itself.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.walks._compile import apart, inlined, kernel
from veilwalk.walks._kernels_random import HALF, MASK, WALK, ZERO, block_words, choice

_LANES = 64
_OCTET = 8
#: Blocks of four words drawn at a time: few, so that all stays in the first cache.
_BLOCKS = 4

Array = Any


@apart
def _draw(words: Array, seed: Any, jobs: Array, block: Any) -> None:
    """Fill the rows of ``words`` with the words from block ``block`` on of every lane."""
    for turn in range(words.shape[0] // 4):
        for lane in range(words.shape[1]):
            first, second, third, fourth = block_words(seed, jobs[lane], WALK, ZERO, block + np.uint64(turn))
            words[4 * turn, lane] = first
            words[4 * turn + 1, lane] = second
            words[4 * turn + 2, lane] = third
            words[4 * turn + 3, lane] = fourth


@inlined
def _moved(rows: Array, state: Any, word: Any, lows: Array, row: Any, lane: Any) -> Any:
    """Return the state after one step; what decides whether it holds goes to ``lows``."""
    entry = word * (state & MASK) + state
    lows[row, lane] = np.uint32(entry)
    return rows[entry >> HALF]


@inlined
def _octet(rows: Array, states: Array, words: Array, lows: Array, base: int, steps: Any) -> None:
    """Move eight walkers, in registers."""
    # Unsigned places need no sign test each, and so fold into one address.
    b0 = np.uint64(base)
    b1 = b0 + np.uint64(1)
    b2 = b0 + np.uint64(2)
    b3 = b0 + np.uint64(3)
    b4 = b0 + np.uint64(4)
    b5 = b0 + np.uint64(5)
    b6 = b0 + np.uint64(6)
    b7 = b0 + np.uint64(7)
    s0, s1, s2, s3 = states[b0], states[b1], states[b2], states[b3]
    s4, s5, s6, s7 = states[b4], states[b5], states[b6], states[b7]
    for row in range(steps):
        s0 = _moved(rows, s0, words[row, b0], lows, row, b0)
        s1 = _moved(rows, s1, words[row, b1], lows, row, b1)
        s2 = _moved(rows, s2, words[row, b2], lows, row, b2)
        s3 = _moved(rows, s3, words[row, b3], lows, row, b3)
        s4 = _moved(rows, s4, words[row, b4], lows, row, b4)
        s5 = _moved(rows, s5, words[row, b5], lows, row, b5)
        s6 = _moved(rows, s6, words[row, b6], lows, row, b6)
        s7 = _moved(rows, s7, words[row, b7], lows, row, b7)
    states[b0], states[b1], states[b2], states[b3] = s0, s1, s2, s3
    states[b4], states[b5], states[b6], states[b7] = s4, s5, s6, s7


@apart
def _walk(rows: Array, states: Array, words: Array, lows: Array, doubtful: Any, steps: Any) -> Any:
    """Move every lane; return whether steps are in doubt, their low halves having no bit of ``doubtful``."""
    for base in range(0, states.shape[0], _OCTET):
        _octet(rows, states, words, lows, base, steps)
    found = np.uint32(0)
    for row in range(np.int64(steps)):
        for lane in range(states.shape[0]):
            found += np.uint32((lows[row, lane] & doubtful) == 0)
    return found > 0


@apart
def _walk_by_rule(rows: Array, states: Array, words: Array, seed: Any, jobs: Array, number: Any, steps: Any) -> None:
    """Move every lane by the rule; ``number`` is the place of the first words in their streams."""
    for lane in range(states.shape[0]):
        state = states[lane]
        for row in range(steps):
            drawn = choice(seed, jobs[lane], number + row, words[row, lane], state & MASK)
            state = rows[(state >> HALF) + drawn]
        states[lane] = state


@inlined
def _node_of(offsets: Array, first: Any) -> Any:
    """Return the node whose row starts at ``first``."""
    low, high = 0, offsets.shape[0] - 1
    while low < high:
        middle = (low + high) >> 1
        if offsets[middle] < first:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def ragged_positions(
    rows: Array, offsets: Array, doubtful: Any, starts: Array, steps: int, seed: Any, first_job: Any, out: Array
) -> None:
    """Write into ``out`` where each walker is after ``steps`` steps."""
    n_jobs = starts.shape[0]
    for chunk in numba.prange((n_jobs + _LANES - 1) // _LANES):
        low = chunk * _LANES
        size = min(_LANES, n_jobs - low)
        jobs = np.empty(_LANES, np.uint64)
        states = np.empty(_LANES, np.uint64)
        before = np.empty(_LANES, np.uint64)
        words = np.empty((4 * _BLOCKS, _LANES), np.uint64)
        lows = np.empty((4 * _BLOCKS, _LANES), np.uint32)
        for lane in range(_LANES):
            jobs[lane] = first_job + np.uint64(low + lane)
            node = starts[low + min(lane, size - 1)]
            first = np.uint64(offsets[node])
            states[lane] = (first << HALF) | (np.uint64(offsets[node + 1]) - first)
        for done in range(0, steps, 4 * _BLOCKS):
            now = np.uint64(min(4 * _BLOCKS, steps - done))
            before[:] = states
            _draw(words, seed, jobs, np.uint64(done // 4))
            if _walk(rows, states, words, lows, doubtful, now):
                states[:] = before
                _walk_by_rule(rows, states, words, seed, jobs, np.uint64(done), now)
        for lane in range(size):
            out[low + lane] = _node_of(offsets, np.int64(states[lane] >> HALF))
