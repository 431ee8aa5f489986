"""Kernels of the whole protocol: tokens that walk, arrive, and are sealed for the next destination.

Lanes go through their hops side by side, each by its own clock: hop ``h`` of a lane is served by word
``h // digits`` of its stream. A lane that has made its quota stops at that very arrival, in the middle of a
block; the next call draws the block again and passes over the hops already made.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.walks._compile import inlined, kernel, prefetch, serial
from veilwalk.walks._kernels_random import (
    DESTINATION,
    HALF,
    MASK,
    ONE,
    START,
    ZERO,
    block_words,
    choice,
    fill_words,
    unit_interval,
)
from veilwalk.walks._kernels_records import (
    BEFORE_NODE,
    CLOCK,
    DRAWS,
    FIRST_NODE,
    GOAL,
    GROUP,
    JOB,
    LAST_NODE,
    N_COLUMNS,
    POSITION,
    SOURCE,
    arrive,
    seal,
    sight,
)

_TWO = np.uint64(2)
# Keeps the replacements of destination words apart from those of walk words.
_DESTINATION_NUMBERS = np.uint64(1 << 47)
_STOPPED = np.iinfo(np.int64).max

Array = Any


@serial
def build_aliases(offsets: Array, weights: Array, keep: Array, other: Array) -> None:
    """Write Vose's alias table of every row: stay in a slot with probability ``keep``, else go to ``other``."""
    for row in range(offsets.shape[0] - 1):
        first = offsets[row]
        size = offsets[row + 1] - first
        scaled = np.empty(size, np.float64)
        order = np.empty(size, np.int64)
        total = 0.0
        for slot in range(size):
            total += weights[first + slot]
        # Slots below average fill `order` from the left, the others from the right.
        low, high = 0, size
        for slot in range(size):
            scaled[slot] = weights[first + slot] * size / total
            keep[first + slot] = 1.0
            other[first + slot] = slot
            if scaled[slot] < 1.0:
                order[low] = slot
                low += 1
            else:
                high -= 1
                order[high] = slot
        while low > 0 and high < size:
            low -= 1
            small, large = order[low], order[high]
            keep[first + small] = scaled[small]
            other[first + small] = large
            scaled[large] -= 1.0 - scaled[small]
            if scaled[large] < 1.0:
                high += 1
                order[low] = large
                low += 1


@inlined
def _draw_destination(
    offsets: Array, columns: Array, keep: Array, other: Array, seed: Any, job: Any, node: Any, draw: Any
) -> Any:
    """Return the destination that ``node`` draws as the lane's draw number ``draw``."""
    first = np.uint64(offsets[node])
    size = np.uint64(offsets[node + ONE]) - first
    word, high, low, _ = block_words(seed, job, DESTINATION, ZERO, draw)
    slot = choice(seed, job, draw | _DESTINATION_NUMBERS, word, size)
    if unit_interval(high, low) >= keep[first + slot]:
        slot = np.uint64(other[first + slot])
    return np.uint64(columns[first + slot])


@serial
def start_lanes(
    n_nodes: Any,
    law_offsets: Array,
    law_columns: Array,
    law_keep: Array,
    law_other: Array,
    seed: Any,
    first_job: Any,
    state: Array,
    visits: Array,
) -> None:
    """Put the lanes from ``first_job`` on each on a drawn node that has just sealed for its first destination."""
    for lane in range(state.shape[0]):
        job = first_job + np.uint64(lane)
        word, _, _, _ = block_words(seed, job, START, ZERO, ZERO)
        node = choice(seed, job, _DESTINATION_NUMBERS, word, n_nodes)
        goal = _draw_destination(law_offsets, law_columns, law_keep, law_other, seed, job, node, ZERO)
        for column in range(N_COLUMNS):
            state[lane, column] = 0
        state[lane, POSITION] = np.int64(node)
        state[lane, SOURCE] = np.int64(node)
        state[lane, GOAL] = np.int64(goal)
        state[lane, DRAWS] = 1
        state[lane, FIRST_NODE] = -1
        state[lane, LAST_NODE] = -1
        state[lane, BEFORE_NODE] = -1
        state[lane, JOB] = np.int64(job)
        visits[np.uint64(lane) * n_nodes + node] = 0


@kernel
def run_lanes(
    table: Array,
    offsets: Array,
    width: Any,
    digits: int,
    span: Any,
    limit: Any,
    n_nodes: Any,
    law_offsets: Array,
    law_columns: Array,
    law_keep: Array,
    law_other: Array,
    watching: Array,
    tokens: int,
    seed: Any,
    state: Array,
    visits: Array,
    quotas: Array,
    rows: Array,
    out: Array,
) -> None:
    """Run each lane until it has made its quota of updates; lane l's records go to ``out[rows[l]:]``.

    With an empty ``out`` nothing is recorded.
    """
    n_lanes = state.shape[0]
    recording = out.shape[0] > 0
    watched = watching.shape[0] > 0
    block_hops = 4 * digits
    for group in numba.prange((n_lanes + GROUP - 1) // GROUP):
        low = group * GROUP
        size = min(GROUP, n_lanes - low)
        jobs = np.zeros(size, np.uint64)
        blocks = np.zeros(size, np.uint64)
        positions = np.zeros(size, np.uint64)
        goals = np.zeros(size, np.uint64)
        shelves = np.zeros(size, np.uint64)
        bases = np.zeros(size, np.int64)
        skips = np.full(size, _STOPPED, np.int64)
        made = np.zeros(size, np.int64)
        # No arrival happens between two visits of a goal, so what is read when sealing holds on arrival.
        goal_seen = np.zeros(size, np.int64)
        words = np.empty((4, size), np.uint64)
        live = 0
        for lane in range(size):
            jobs[lane] = np.uint64(state[low + lane, JOB])
            shelves[lane] = np.uint64(low + lane) * n_nodes
            positions[lane] = np.uint64(state[low + lane, POSITION])
            goals[lane] = np.uint64(state[low + lane, GOAL])
            goal_seen[lane] = visits[shelves[lane] + goals[lane]]
            clock = state[low + lane, CLOCK]
            blocks[lane] = np.uint64(clock // block_hops)
            bases[lane] = clock - clock % block_hops
            if quotas[low + lane] > 0:
                skips[lane] = clock % block_hops
                live += 1
        while live > 0:
            fill_words(words, size, seed, jobs, blocks, span, limit)
            for part in range(4):
                row = words[part]
                for hop in range(part * digits, (part + 1) * digits):
                    for lane in range(size):
                        word = row[lane]
                        if width > ZERO:
                            row[lane] = (word * width) & MASK
                        if hop < skips[lane]:
                            continue
                        came_from = positions[lane]
                        if width > ZERO:
                            node = np.uint64(table[came_from * width + ((word * width) >> HALF)])
                            prefetch(table, node * width)
                        else:
                            first = np.uint64(offsets[came_from])
                            n_choices = np.uint64(offsets[came_from + ONE]) - first
                            number = (blocks[lane] << _TWO) | np.uint64(part)
                            node = np.uint64(table[first + choice(seed, jobs[lane], number, word, n_choices)])
                            prefetch(offsets, node)
                        positions[lane] = node
                        now = bases[lane] + hop + 1
                        visits[shelves[lane] + node] = now
                        if watched:
                            sight(state, low + lane, watching, node, came_from, now)
                        if node != goals[lane]:
                            continue
                        if recording:
                            record = out[rows[low + lane] + made[lane]]
                            arrive(record, state, low + lane, tokens, node, came_from, now, goal_seen[lane])
                        draw = np.uint64(state[low + lane, DRAWS])
                        goal = _draw_destination(
                            law_offsets, law_columns, law_keep, law_other, seed, jobs[lane], node, draw
                        )
                        seal(state, low + lane, node, goal, now)
                        goals[lane] = goal
                        goal_seen[lane] = visits[shelves[lane] + goal]
                        made[lane] += 1
                        if made[lane] == quotas[low + lane]:
                            state[low + lane, CLOCK] = now
                            state[low + lane, POSITION] = np.int64(node)
                            skips[lane] = _STOPPED
                            live -= 1
            for lane in range(size):
                if skips[lane] != _STOPPED:
                    skips[lane] = 0
                    bases[lane] += block_hops
                    blocks[lane] += ONE


@serial
def run_lane(
    table: Array,
    width: Any,
    digits: int,
    span: Any,
    limit: Any,
    law_offsets: Array,
    law_columns: Array,
    law_keep: Array,
    law_other: Array,
    tokens: int,
    seed: Any,
    state: Array,
    visits: Array,
    quota: int,
    out: Array,
) -> None:
    """Run one lane by itself, as :func:`run_lanes` would; unwatched, on a table of one width.

    There are no other lanes to hide the time of a lookup behind; with its place in a register it takes two thirds.
    """
    recording = out.shape[0] > 0
    block_hops = 4 * digits
    jobs, blocks = np.full(1, np.uint64(state[0, JOB])), np.zeros(1, np.uint64)
    words = np.empty((4, 1), np.uint64)
    now = state[0, CLOCK]
    blocks[0] = np.uint64(now // block_hops)
    skip = now % block_hops
    node, goal = np.uint64(state[0, POSITION]), np.uint64(state[0, GOAL])
    goal_seen = visits[goal]
    made = 0
    while made < quota:
        fill_words(words, 1, seed, jobs, blocks, span, limit)
        for part in range(4):
            word = words[part, 0]
            for hop in range(part * digits, (part + 1) * digits):
                drawn = word * width
                word = drawn & MASK
                if hop < skip:
                    continue
                came_from = node
                node = np.uint64(table[came_from * width + (drawn >> HALF)])
                now += 1
                visits[node] = now
                if node != goal:
                    continue
                if recording:
                    arrive(out[made], state, 0, tokens, node, came_from, now, goal_seen)
                draw = np.uint64(state[0, DRAWS])
                goal = _draw_destination(law_offsets, law_columns, law_keep, law_other, seed, jobs[0], node, draw)
                seal(state, 0, node, goal, now)
                goal_seen = visits[goal]
                made += 1
                if made == quota:
                    state[0, CLOCK] = now
                    state[0, POSITION] = np.int64(node)
                    return
        skip = 0
        blocks[0] += ONE
