"""Kernel of the protocol for walks that need more than a table of moves.

``metropolis``: a uniform neighbour y of x is proposed and taken with probability min(1, deg x / deg y); else the
token stays, which is a hop like any other. ``non-backtracking``: uniform over the neighbours but the one the token
came from; at a leaf it goes back.

Hop ``h`` of a lane has the words from ``h * words`` on of its stream: the first chooses, the last is the coin.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.walks._compile import inlined, kernel, prefetch
from veilwalk.walks._kernels_protocol import _draw_destination
from veilwalk.walks._kernels_random import ONE, ZERO, choice, fill_words
from veilwalk.walks._kernels_records import (
    CLOCK,
    DRAWS,
    GOAL,
    GROUP,
    JOB,
    POSITION,
    arrive,
    seal,
    sight,
)
from veilwalk.walks._memory import METROPOLIS

_TWO = np.uint64(2)
_STOPPED = np.iinfo(np.int64).max

#: The -1 of a token that came from nowhere yet, as the kernel has it.
_NOWHERE = np.uint64(0xFFFFFFFFFFFFFFFF)

Array = Any


@inlined
def onward(seed: Any, job: Any, number: Any, word: Any, first: Any, degree: Any, back: Any) -> Any:
    """Return a uniform entry of a node except ``back``, unless there is no other."""
    if back == _NOWHERE or degree == ONE:
        return first + choice(seed, job, number, word, degree)
    entry = first + choice(seed, job, number, word, degree - ONE)
    return entry + ONE if entry >= back else entry


@kernel
def run_memory_lanes(
    kind: int,
    offsets: Array,
    table: Array,
    reverse: Array,
    n_words: int,
    n_nodes: Any,
    law_offsets: Array,
    law_columns: Array,
    law_keep: Array,
    law_other: Array,
    watching: Array,
    tokens: int,
    seed: Any,
    state: Array,
    last_backs: Array,
    visits: Array,
    quotas: Array,
    rows: Array,
    out: Array,
) -> None:
    """Run each lane until it has made its quota of updates; lane l's records go to ``out[rows[l]:]``.

    With an empty ``out`` nothing is recorded. Between calls ``last_backs`` holds for each lane the entry that leads
    back to where the token came from, -1 before its first hop.
    """
    n_lanes = state.shape[0]
    recording = out.shape[0] > 0
    watched = watching.shape[0] > 0
    block_hops = 4 // n_words
    for group in numba.prange((n_lanes + GROUP - 1) // GROUP):
        low = group * GROUP
        size = min(GROUP, n_lanes - low)
        jobs = np.zeros(size, np.uint64)
        blocks = np.zeros(size, np.uint64)
        positions = np.zeros(size, np.uint64)
        backs = np.zeros(size, np.uint64)
        goals = np.zeros(size, np.uint64)
        bases = np.zeros(size, np.int64)
        skips = np.full(size, _STOPPED, np.int64)
        made = np.zeros(size, np.int64)
        # No arrival happens between two visits of a goal, so what is read when sealing holds on arrival.
        goal_seen = np.zeros(size, np.int64)
        words = np.empty((4, size), np.uint64)
        live = 0
        for lane in range(size):
            jobs[lane] = np.uint64(state[low + lane, JOB])
            positions[lane] = np.uint64(state[low + lane, POSITION])
            backs[lane] = np.uint64(last_backs[low + lane])
            goals[lane] = np.uint64(state[low + lane, GOAL])
            goal_seen[lane] = visits[np.uint64(low + lane) * n_nodes + goals[lane]]
            clock = state[low + lane, CLOCK]
            blocks[lane] = np.uint64(clock // block_hops)
            bases[lane] = clock - clock % block_hops
            if quotas[low + lane] > 0:
                skips[lane] = clock % block_hops
                live += 1
        while live > 0:
            fill_words(words, size, seed, jobs, blocks, ONE, ZERO)
            for hop in range(block_hops):
                part = hop * n_words
                coin_part = part + n_words - 1
                for lane in range(size):
                    if hop < skips[lane]:
                        continue
                    job = jobs[lane]
                    word = words[part, lane]
                    coin = words[coin_part, lane]
                    number = (blocks[lane] << _TWO) | np.uint64(part)
                    came_from = positions[lane]
                    first = np.uint64(offsets[came_from])
                    degree = np.uint64(offsets[came_from + ONE]) - first
                    now = bases[lane] + hop + 1
                    if kind == METROPOLIS:
                        node = np.uint64(table[first + choice(seed, job, number, word, degree)])
                        other_degree = np.uint64(offsets[node + ONE]) - np.uint64(offsets[node])
                        if other_degree > degree and choice(seed, job, number + ONE, coin, other_degree) >= degree:
                            node = came_from
                    else:
                        entry = onward(seed, job, number, word, first, degree, backs[lane])
                        backs[lane] = np.uint64(reverse[entry])
                        node = np.uint64(table[entry])
                    prefetch(offsets, node)
                    positions[lane] = node
                    visits[np.uint64(low + lane) * n_nodes + node] = now
                    if watched:
                        sight(state, low + lane, watching, node, came_from, now)
                    if node != goals[lane]:
                        continue
                    if recording:
                        record = out[rows[low + lane] + made[lane]]
                        arrive(record, state, low + lane, tokens, node, came_from, now, goal_seen[lane])
                    draw = np.uint64(state[low + lane, DRAWS])
                    goal = _draw_destination(law_offsets, law_columns, law_keep, law_other, seed, job, node, draw)
                    seal(state, low + lane, node, goal, now)
                    goals[lane] = goal
                    goal_seen[lane] = visits[np.uint64(low + lane) * n_nodes + goal]
                    made[lane] += 1
                    if made[lane] == quotas[low + lane]:
                        state[low + lane, CLOCK] = now
                        state[low + lane, POSITION] = np.int64(node)
                        last_backs[low + lane] = np.int64(backs[lane])
                        skips[lane] = _STOPPED
                        live -= 1
            for lane in range(size):
                if skips[lane] != _STOPPED:
                    skips[lane] = 0
                    bases[lane] += block_hops
                    blocks[lane] += ONE
