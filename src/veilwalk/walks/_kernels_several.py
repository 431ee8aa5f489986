"""Kernel of the whole protocol for ciphertexts that are sealed for several, whatever the walk.

Where a token goes does not depend on for whom it is sealed: tokens walk by the words of :func:`token_paths`, some
hops at a time, and what happens at each hop is then looked up.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.walks._compile import inlined, kernel, serial
from veilwalk.walks._kernels_memory_paths import step
from veilwalk.walks._kernels_protocol import CLOCK, JOB, POSITION, SEALED_AT, SOURCE, _arrive, _seal, _sight
from veilwalk.walks._kernels_random import HALF, MASK, ONE, WALK, ZERO, block_words, choice, fill_words
from veilwalk.walks._kernels_sets import draw_set

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
    n_columns = state.shape[1]
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
        draw_set(n_nodes, offsets, columns, weights, keep, other, seed, job, node, 0, drawn)
        for place in range(drawn.shape[0]):
            stamps[lane, drawn[place]] = 0


@inlined
def _way_of_tables(
    table: Array,
    offsets: Array,
    width: Any,
    digits: int,
    span: Any,
    limit: Any,
    seed: Any,
    job: Any,
    clock: Any,
    way: Array,
) -> None:
    """Write into ``way[1:]`` the next hops of a walk that is a table of moves, from ``way[0]`` at ``clock``."""
    jobs, blocks, words = np.full(1, job), np.zeros(1, np.uint64), np.empty((4, 1), np.uint64)
    node, word = np.uint64(way[0]), ZERO
    # The digits before this hop, of the word that serves it too, are passed over.
    for hop in range(clock - clock % digits, clock + way.shape[0] - 1):
        number = hop // digits
        if hop % digits == 0:
            blocks[0] = np.uint64(number // 4)
            fill_words(words, 1, seed, jobs, blocks, span, limit)
            word = words[number % 4, 0]
        if width > ZERO:
            drawn = word * width
            word = drawn & MASK
            if hop < clock:
                continue
            node = np.uint64(table[node * width + (drawn >> HALF)])
        else:
            first = np.uint64(offsets[node])
            n_choices = np.uint64(offsets[node + ONE]) - first
            node = np.uint64(table[first + choice(seed, job, np.uint64(number), word, n_choices)])
        way[hop - clock + 1] = np.int64(node)


@inlined
def _way_of_memory(
    kind: Any,
    offsets: Array,
    table: Array,
    reverse: Array,
    threshold: Any,
    n_words: int,
    used: Array,
    seed: Any,
    job: Any,
    clock: Any,
    back: Any,
    way: Array,
) -> Any:
    """Write into ``way[1:]`` the next hops of a walk with memory, and return the entry that leads back at their end."""
    words = np.empty(4, np.uint64)
    node, block_hops = np.uint64(way[0]), 4 // n_words
    for hop in range(clock, clock + way.shape[0] - 1):
        block, part = np.uint64(hop // block_hops), hop % block_hops * n_words
        if part == 0 or hop == clock:
            words[0], words[1], words[2], words[3] = block_words(seed, job, WALK, ZERO, block)
        number = (block << _TWO) | np.uint64(part)
        node, back = step(
            kind, offsets, table, reverse, threshold, used, seed, job, number, words[part], words[part + n_words - 1],
            node, back, hop + 1,
        )  # fmt: skip
        way[hop - clock + 1] = np.int64(node)
    return back


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
    drawn: Array,
    made: int,
    row: int,
    out: Array,
) -> Any:
    """Let a lane go on from ``way[at]`` until it has made its quota or the way ends; return where and how many."""
    job, now = np.uint64(state[lane, JOB]), state[lane, CLOCK]
    while made < quota and at + 1 < way.shape[0]:
        came_from, node = way[at], way[at + 1]
        at += 1
        now += 1
        seen = visits[lane, node]
        visits[lane, node] = now
        if watching.shape[0] > 0:
            _sight(state, lane, watching, node, came_from, now)
        if stamps[lane, node] != state[lane, SEALED_AT]:
            continue
        if out.shape[0] > 0:
            _arrive(out[row + made], state, lane, tokens, node, came_from, now, seen)
        _seal(state, lane, node, -1, now)
        draw_set(n_nodes, offsets, columns, weights, keep, other, seed, job, node, now, drawn)
        for place in range(drawn.shape[0]):
            stamps[lane, drawn[place]] = now
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
    threshold: Any,
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
    used: Array,
    quotas: Array,
    rows: Array,
    out: Array,
) -> None:
    """Run each lane until it has made its quota of updates; lane l's records go to ``out[rows[l]:]``.

    ``ways`` holds for each lane the nodes that it walks over next, ``places`` how far along them it is, ``backs`` the
    entry that leads back at their end. With an empty ``out`` nothing is recorded.
    """
    for lane in numba.prange(state.shape[0]):
        job, way, drawn, made = np.uint64(state[lane, JOB]), ways[lane], np.empty(recipients, np.int64), 0
        at = places[lane]
        while made < quotas[lane]:
            if at + 1 == way.shape[0]:
                way[0], at = way[at], 0
                clock = state[lane, CLOCK]
                if memory:
                    back = np.uint64(backs[lane])
                    back = _way_of_memory(
                        kind, offsets, table, reverse, threshold, n_words, used[lane], seed, job, clock, back, way
                    )
                    backs[lane] = np.int64(back)
                else:
                    _way_of_tables(table, offsets, width, digits, span, limit, seed, job, clock, way)
            at, made = _open_along(
                way, at, quotas[lane], n_nodes, law_offsets, law_columns, law_weights, law_keep, law_other, watching,
                tokens, seed, lane, state, visits, stamps, drawn, made, rows[lane], out,
            )  # fmt: skip
        places[lane] = at
