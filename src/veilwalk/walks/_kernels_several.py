"""Kernel of the whole protocol for ciphertexts that are sealed for several, whatever the walk.

Where a token goes does not depend on for whom it is sealed: tokens walk by the words of :func:`token_paths`, some
hops at a time, and what happens at each hop is then looked up.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.walks._compile import inlined, kernel, prefetch, serial
from veilwalk.walks._kernels_memory_paths import way_of_memory
from veilwalk.walks._kernels_random import ONE, ZERO, choice, fill_words, split_words
from veilwalk.walks._kernels_records import CLOCK, GROUP, JOB, POSITION, SEALED_AT, SOURCE, arrive, seal, sight
from veilwalk.walks._kernels_sets import BATCH, draw_set

_TWO = np.uint64(2)

Array = Any


@serial
def start_several(
    n_nodes: Any,
    offsets: Array,
    columns: Array,
    weights: Array,
    keep: Array,
    other: Array,
    seed: Any,
    first_job: Any,
    starts: Array,
    state: Array,
    visits: Array,
    stamps: Array,
    drawn: Array,
) -> None:
    """Put every lane on its first node, which has just sealed for its first recipients."""
    n_columns, batch = state.shape[1], np.empty((3, BATCH), np.uint64)
    for lane in range(state.shape[0]):
        node = starts[lane]
        for column in range(n_columns):
            state[lane, column] = -1
        state[lane, POSITION] = node
        state[lane, SOURCE] = node
        state[lane, CLOCK] = 0
        state[lane, SEALED_AT] = 0
        job = first_job + np.uint64(lane)
        state[lane, JOB] = np.int64(job)
        visits[lane, node] = 0
        draw_set(n_nodes, offsets, columns, weights, keep, other, seed, job, node, 0, batch, stamps[lane], drawn)


@serial
def _ways_of_tables(
    table: Array,
    offsets: Array,
    width: Any,
    digits: int,
    span: Any,
    limit: Any,
    seed: Any,
    state: Array,
    due: Array,
    ways: Array,
) -> None:
    """Write into ``ways[lane, 1:]`` the next hops of the lanes ``due``, from ``ways[lane, 0]`` at their clocks.

    The walk is a table of moves; clocks are at the start of a block of words, and hops fill whole blocks. Lanes go in
    turn, so that the lookups of one hide behind those of the others.
    """
    n_due, block_hops = due.shape[0], 4 * digits
    n_blocks = (ways.shape[1] - 1) // block_hops
    size = n_blocks * n_due
    jobs, blocks, nodes = np.empty(size, np.uint64), np.empty(size, np.uint64), np.empty(n_due, np.uint64)
    for turn in range(n_due):
        nodes[turn] = np.uint64(ways[due[turn], 0])
        for block in range(n_blocks):
            jobs[block * n_due + turn] = np.uint64(state[due[turn], JOB])
            blocks[block * n_due + turn] = np.uint64(state[due[turn], CLOCK] // block_hops + block)
    words, moves = np.empty((4, size), np.uint64), np.empty((4, digits, size), np.uint32)
    fill_words(words, size, seed, jobs, blocks, span, limit)
    if width > ZERO:
        split_words(moves, words, size, width)
    hop = 0
    for block in range(n_blocks):
        for part in range(4):
            for digit in range(digits):
                hop += 1
                for turn in range(n_due):
                    place = block * n_due + turn
                    if width > ZERO:
                        node = np.uint64(table[nodes[turn] * width + np.uint64(moves[part, digit, place])])
                        prefetch(table, node * width)
                    else:
                        first = np.uint64(offsets[nodes[turn]])
                        n_choices = np.uint64(offsets[nodes[turn] + ONE]) - first
                        number = (blocks[place] << _TWO) | np.uint64(part)
                        drawn = choice(seed, jobs[place], number, words[part, place], n_choices)
                        node = np.uint64(table[first + drawn])
                        prefetch(offsets, node)
                    nodes[turn] = node
                    ways[due[turn], hop] = np.int64(node)


@inlined
def _open_along(
    way: Array,
    at: int,
    quota: int,
    n_nodes: Any,
    offsets: Array,
    columns: Array,
    weights: Array,
    keep: Array,
    other: Array,
    watching: Array,
    tokens: int,
    seed: Any,
    lane: int,
    state: Array,
    visits: Array,
    stamps: Array,
    batch: Array,
    drawn: Array,
    made: int,
    row: int,
    out: Array,
) -> Any:
    """Let a lane go on from ``way[at]`` until it has made its quota or the way ends; return where and how many."""
    job, now, sealed = np.uint64(state[lane, JOB]), state[lane, CLOCK], state[lane, SEALED_AT]
    while made < quota and at + 1 < way.shape[0]:
        came_from, node = way[at], way[at + 1]
        at += 1
        now += 1
        seen = visits[node]
        visits[node] = now
        if watching.shape[0] > 0:
            sight(state, lane, watching, node, came_from, now)
        if stamps[node] != sealed:
            continue
        if out.shape[0] > 0:
            arrive(out[row + made], state, lane, tokens, node, came_from, now, seen)
        seal(state, lane, node, -1, now)
        draw_set(n_nodes, offsets, columns, weights, keep, other, seed, job, node, now, batch, stamps, drawn)
        sealed = now
        made += 1
    state[lane, CLOCK] = now
    return at, made


@kernel
def run_several(
    memory: Any,
    kind: int,
    offsets: Array,
    table: Array,
    reverse: Array,
    n_words: int,
    width: Any,
    digits: int,
    span: Any,
    limit: Any,
    n_nodes: Any,
    law_offsets: Array,
    law_columns: Array,
    law_weights: Array,
    law_keep: Array,
    law_other: Array,
    recipients: int,
    watching: Array,
    tokens: int,
    seed: Any,
    state: Array,
    visits: Array,
    stamps: Array,
    ways: Array,
    places: Array,
    backs: Array,
    quotas: Array,
    rows: Array,
    out: Array,
) -> None:
    """Run each lane until it has made its quota of updates; lane l's records go to ``out[rows[l]:]``.

    ``ways`` holds for each lane the nodes that it walks over next, ``places`` how far along them it is, ``backs`` the
    entry that leads back at their end. With an empty ``out`` nothing is recorded.
    """
    n_lanes, last = state.shape[0], ways.shape[1] - 1
    for group in numba.prange((n_lanes + GROUP - 1) // GROUP):
        drawn, batch = np.empty(recipients, np.int64), np.empty((3, BATCH), np.uint64)
        made, due = np.zeros(GROUP, np.int64), np.empty(GROUP, np.int64)
        low, high, live = group * GROUP, min(n_lanes, (group + 1) * GROUP), True
        while live:
            n_due, live = 0, False
            for lane in range(low, high):
                if made[lane - low] == quotas[lane] or places[lane] < last:
                    continue
                due[n_due] = lane
                n_due += 1
                ways[lane, 0], places[lane] = ways[lane, last], 0
                if memory:
                    back = np.uint64(backs[lane])
                    job, clock = np.uint64(state[lane, JOB]), state[lane, CLOCK]
                    back = way_of_memory(kind, offsets, table, reverse, n_words, seed, job, clock, back, ways[lane])
                    backs[lane] = np.int64(back)
            if not memory and n_due > 0:
                _ways_of_tables(table, offsets, width, digits, span, limit, seed, state, due[:n_due], ways)
            for lane in range(low, high):
                places[lane], made[lane - low] = _open_along(
                    ways[lane], places[lane], quotas[lane], n_nodes, law_offsets, law_columns, law_weights, law_keep,
                    law_other, watching, tokens, seed, lane, state, visits[lane], stamps[lane], batch, drawn,
                    made[lane - low], rows[lane], out,
                )  # fmt: skip
                live |= made[lane - low] < quotas[lane]
