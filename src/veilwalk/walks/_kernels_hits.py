"""Kernels that walk until a node is met, a lane taking the next job when it has met its own.

Tables are those of ``_kernels``. Where double steps fit the first cache, the jobs of a chunk share their
target, and the chunk's own table makes it absorbing: the walk then needs no test in its inner loop, and the
step of the hit is found by replaying the one word in which it happened.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.walks._compile import apart, inlined, kernel, prefetch, serial
from veilwalk.walks._kernels import LANES, OCTET, Array, octet_block, ragged_step
from veilwalk.walks._kernels_random import (
    HALF,
    MASK,
    ONE,
    TAIL,
    ZERO,
    block_words,
    fill_words,
    split_words,
    unit_interval,
)

# Few, so that all they need stays in the first cache beside the tables.
_PAIRED_LANES = 64
_TWO = np.uint64(2)
_PAIR_SHIFT = np.uint64(16)
_PAIR_LOW = np.uint64(0xFFFF)
# No node has this number.
_NEVER = np.uint64(0xFFFFFFFFFFFFFFFF)


@serial
def _absorbing(pairs: Array, square: Any, goal: Any) -> Array:
    """Return the double steps of walks that never leave ``goal``, with a last row for those that start there."""
    n_pairs = pairs.shape[0]
    ends = np.empty(n_pairs + np.int64(square), np.uint16)
    for entry in range(n_pairs):
        pair = pairs[entry]
        ends[entry] = np.uint16(goal) if np.uint64(pair) & _PAIR_LOW == goal else np.uint16(pair >> _PAIR_SHIFT)
    for digit in range(square):
        ends[np.uint64(n_pairs) + digit] = ends[goal + digit]
        ends[goal + digit] = np.uint16(goal)
    return ends


@inlined
def _replay(pairs: Array, state: Any, goal: Any, digits: Array, lane: int) -> int:
    """Return the step at which the double steps of one word, begun at ``state``, first meet ``goal``."""
    row = 0
    while True:
        pair = np.uint64(pairs[state + np.uint64(digits[row, lane])])
        state = pair >> _PAIR_SHIFT
        if (pair & _PAIR_LOW) == goal:
            return 2 * row + 1
        if state == goal:
            return 2 * row + 2
        row += 1


@apart
def _draw_doubles(
    doubles: Array, words: Array, used: int, seed: Any, jobs: Array, blocks: Array, square: Any, span: Any, limit: Any
) -> None:
    """Fill ``doubles`` with the double steps that the blocks of the first lanes serve; not inlined, see _kernels."""
    fill_words(words, used, seed, jobs, blocks, span, limit)
    split_words(doubles, words, used, square)


@serial
def _paired_block(
    pairs: Array, ends: Array, goal: Any, positions: Array, digits: Array, live: int, hits: Array
) -> None:
    """Move every lane by the double steps of four words; ``hits`` keeps the step of each lane's first hit."""
    starts = np.empty((4, positions.shape[0]), np.uint64)
    for part in range(4):
        for lane in range(live):
            starts[part, lane] = positions[lane]
        for base in range(0, live, OCTET):
            octet_block(ends, positions, digits[part], base)
    for lane in range(live):
        if positions[lane] != goal:
            continue
        part = 3
        while starts[part, lane] == goal:
            part -= 1
        state = starts[part, lane]
        # The row behind all others stands for the goal's own, before the first step.
        state = goal if state == np.uint64(pairs.shape[0]) else state
        hits[lane] = 2 * part * digits.shape[1] + _replay(pairs, state, goal, digits[part], lane)


@inlined
def _lane_block(
    table: Array,
    offsets: Array,
    width: Any,
    digits: int,
    seed: Any,
    jobs: Array,
    blocks: Array,
    numbers: Array,
    positions: Array,
    goals: Array,
    words: Array,
    hits: Array,
) -> None:
    """Move every lane by four words; ``hits`` keeps the step of each lane's first hit."""
    n_lanes = positions.shape[0]
    for part in range(4):
        row = words[part, :n_lanes]
        for digit in range(digits):
            step = part * digits + digit + 1
            if width > ZERO:
                for lane in range(n_lanes):
                    product = row[lane] * width
                    row[lane] = product & MASK
                    node = np.uint64(table[positions[lane] * width + (product >> HALF)])
                    positions[lane] = node
                    prefetch(table, node * width)
                    if node == goals[lane]:
                        goals[lane] = _NEVER
                        hits[lane] = step
            else:
                for lane in range(n_lanes):
                    numbers[lane] = (blocks[lane] << _TWO) | np.uint64(part)
                ragged_step(table, offsets, seed, jobs, numbers, positions, row)
                for lane in range(n_lanes):
                    if positions[lane] == goals[lane]:
                        goals[lane] = _NEVER
                        hits[lane] = step


@inlined
def _start(source: Any, target: Any, pairs: Array, scale: Any) -> Any:
    """Return the state a walk starts in: its node's row, or the last row where it starts at its target."""
    if pairs.shape[0] > 0 and source == target:
        return np.uint64(pairs.shape[0])
    return np.uint64(source) * scale


@kernel
def first_hits(
    table: Array,
    offsets: Array,
    pairs: Array,
    width: Any,
    digits: int,
    span: Any,
    limit: Any,
    sources: Array,
    targets: Array,
    streams: Array,
    bounds: Array,
    max_steps: int,
    seed: Any,
    out: Array,
) -> None:
    """Write into ``out`` the first step from 1 on at which each job meets its target, or -1 after ``max_steps``.

    Chunk k is the jobs from ``bounds[k]`` to ``bounds[k + 1]``, all of one target where there are double steps.
    ``streams`` are the numbers of the jobs' streams. A lane that has hit idles to the end of its four words
    and takes the chunk's next job there.
    """
    paired = pairs.shape[0] > 0
    scale = width * width if paired else ONE
    n_lanes = _PAIRED_LANES if paired else LANES
    for chunk in numba.prange(bounds.shape[0] - 1):
        next_job = bounds[chunk]
        stop = bounds[chunk + 1]
        jobs = np.zeros(n_lanes, np.uint64)
        blocks = np.zeros(n_lanes, np.uint64)
        numbers = np.zeros(n_lanes, np.uint64)
        positions = np.zeros(n_lanes, np.uint64)
        goals = np.zeros(n_lanes, np.uint64)
        words = np.empty((4, n_lanes), np.uint64)
        doubles = np.empty((4, digits // 2, n_lanes), np.uint8)
        hits = np.full(n_lanes, -1, np.int64)
        at = np.full(n_lanes, -1, np.int64)
        goal = np.uint64(targets[next_job]) * scale
        ends = _absorbing(pairs, scale if paired else ZERO, goal) if paired else np.empty(0, np.uint16)
        live = min(n_lanes, stop - next_job)
        for lane in range(live):
            at[lane] = next_job
            next_job += 1
            jobs[lane] = streams[at[lane]]
            positions[lane] = _start(sources[at[lane]], targets[at[lane]], pairs, scale)
            goals[lane] = np.uint64(targets[at[lane]])
        while live > 0:
            # Whole octets: up to seven lanes behind the last live one move on without meaning.
            used = (live + OCTET - 1) // OCTET * OCTET
            if paired:
                _draw_doubles(doubles, words, used, seed, jobs, blocks, scale, span, limit)
                _paired_block(pairs, ends, goal, positions, doubles, live, hits)
            else:
                fill_words(words, used, seed, jobs, blocks, span, limit)
                _lane_block(
                    table,
                    offsets,
                    width,
                    digits,
                    seed,
                    jobs[:used],
                    blocks[:used],
                    numbers[:used],
                    positions[:used],
                    goals[:used],
                    words,
                    hits[:used],
                )
            lane = 0
            while lane < live:
                done = np.int64(blocks[lane]) * 4 * digits
                blocks[lane] += ONE
                if hits[lane] < 0 and done + 4 * digits < max_steps:
                    lane += 1
                    continue
                time = done + hits[lane]
                out[at[lane]] = time if hits[lane] >= 0 and time <= max_steps else -1
                hits[lane] = -1
                if next_job < stop:
                    at[lane] = next_job
                    next_job += 1
                    jobs[lane] = streams[at[lane]]
                    blocks[lane] = ZERO
                    positions[lane] = _start(sources[at[lane]], targets[at[lane]], pairs, scale)
                    goals[lane] = np.uint64(targets[at[lane]])
                    lane += 1
                else:
                    # The last live lane, whose block is still to be counted, takes the place.
                    live -= 1
                    at[lane] = at[live]
                    jobs[lane] = jobs[live]
                    blocks[lane] = blocks[live]
                    positions[lane] = positions[live]
                    goals[lane] = goals[live]
                    hits[lane] = hits[live]
                    hits[live] = -1


@serial
def tail_uniforms(seed: Any, jobs: Array, out: Array) -> None:
    """Write one number in [0, 1) for each job, from a stream that no walk uses."""
    for place in range(jobs.shape[0]):
        high, low, _, _ = block_words(seed, jobs[place], TAIL, ZERO, ZERO)
        out[place] = unit_interval(high, low)
