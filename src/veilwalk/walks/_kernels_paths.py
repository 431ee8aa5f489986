"""Kernels of the paths of tokens: where each hop of each kind of walk leads.

Where a token goes does not depend on for whom it is sealed: its path is a function of the seed and of its lane.

Some walks are a table of equally likely moves: row after row of ``width`` nodes, or, with ``width`` 0, rows of any
length that start at ``offsets``. Hop ``h`` is then served by word ``h // digits`` of the lane's stream.

Others need more. ``metropolis``: a uniform neighbour y of x is proposed and taken with probability
min(1, deg x / deg y); else the token stays, which is a hop like any other. ``non-backtracking``: uniform over the
neighbours but the one the token came from; at a leaf it goes back. Hop ``h`` of these has the words from ``h * words``
on of its stream: the first chooses, the last is the coin.

Nodes, widths and counts are uint64 inside the kernels, so that indexing needs no sign test.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.walks._compile import inlined, kernel, serial
from veilwalk.walks._kernels_random import (
    DESTINATION_NUMBERS,
    HALF,
    MASK,
    ONE,
    START,
    WALK,
    ZERO,
    block_words,
    choice,
    fill_words,
)
from veilwalk.walks._moves import METROPOLIS

_TWO = np.uint64(2)
#: The -1 of a token that came from nowhere yet: no node, and no entry of a table.
NOWHERE = MASK << HALF | MASK

Array = Any


@inlined
def onward(seed: Any, job: Any, number: Any, word: Any, first: Any, degree: Any, back: Any) -> Any:
    """Return a uniform entry of a node except ``back``, unless there is no other."""
    if back == NOWHERE or degree == ONE:
        return first + choice(seed, job, number, word, degree)
    entry = first + choice(seed, job, number, word, degree - ONE)
    return entry + ONE if entry >= back else entry


@inlined
def step(
    kind: Any,
    offsets: Array,
    table: Array,
    reverse: Array,
    seed: Any,
    job: Any,
    number: Any,
    word: Any,
    coin: Any,
    came_from: Any,
    back: Any,
) -> Any:
    """Return the next node of a walk with memory and the entry that leads back from it.

    As ``_kernels_protocol.run_memory_lanes`` does, for one token: ``word`` chooses, has ``number`` in its stream, and
    ``coin`` decides.
    """
    first = np.uint64(offsets[came_from])
    degree = np.uint64(offsets[came_from + ONE]) - first
    if kind == METROPOLIS:
        node = np.uint64(table[first + choice(seed, job, number, word, degree)])
        other_degree = np.uint64(offsets[node + ONE]) - np.uint64(offsets[node])
        if other_degree > degree and choice(seed, job, number + ONE, coin, other_degree) >= degree:
            node = came_from
        return node, back
    entry = onward(seed, job, number, word, first, degree, back)
    return np.uint64(table[entry]), np.uint64(reverse[entry])


@serial
def start_nodes(n_nodes: Any, seed: Any, first_job: Any, out: Array) -> None:
    """Write into ``out`` where the lanes from ``first_job`` on start."""
    for lane in range(out.shape[0]):
        job = first_job + np.uint64(lane)
        word, _, _, _ = block_words(seed, job, START, ZERO, ZERO)
        out[lane] = np.int64(choice(seed, job, DESTINATION_NUMBERS, word, n_nodes))


@kernel
def trace_tables(
    table: Array,
    offsets: Array,
    width: Any,
    digits: int,
    span: Any,
    limit: Any,
    seed: Any,
    first_job: Any,
    starts: Array,
    out: Array,
) -> None:
    """Write into ``out[lane]`` the path from ``starts[lane]`` of a walk that is a table of moves."""
    n_hops = out.shape[1] - 1
    for lane in numba.prange(out.shape[0]):
        jobs = np.full(1, first_job + np.uint64(lane))
        blocks = np.zeros(1, np.uint64)
        words = np.empty((4, 1), np.uint64)
        node = np.uint64(starts[lane])
        out[lane, 0] = np.int32(node)
        word = ZERO
        for hop in range(n_hops):
            number = hop // digits
            if hop % digits == 0:
                if number % 4 == 0:
                    blocks[0] = np.uint64(number // 4)
                    fill_words(words, 1, seed, jobs, blocks, span, limit)
                word = words[number % 4, 0]
            if width > ZERO:
                node = np.uint64(table[node * width + ((word * width) >> HALF)])
                word = (word * width) & MASK
            else:
                first = np.uint64(offsets[node])
                n_choices = np.uint64(offsets[node + ONE]) - first
                node = np.uint64(table[first + choice(seed, jobs[0], np.uint64(number), word, n_choices)])
            out[lane, hop + 1] = np.int32(node)


@serial
def way_of_memory(
    kind: Any,
    offsets: Array,
    table: Array,
    reverse: Array,
    n_words: int,
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
            kind, offsets, table, reverse, seed, job, number, words[part], words[part + n_words - 1], node, back
        )
        way[hop - clock + 1] = node
    return back


@kernel
def trace_memory(
    kind: int,
    offsets: Array,
    table: Array,
    reverse: Array,
    n_words: int,
    seed: Any,
    first_job: Any,
    starts: Array,
    out: Array,
) -> None:
    """Write into ``out[lane]`` the path from ``starts[lane]`` of a walk with memory."""
    for lane in numba.prange(out.shape[0]):
        out[lane, 0] = np.int32(starts[lane])
        job = first_job + np.uint64(lane)
        way_of_memory(kind, offsets, table, reverse, n_words, seed, job, 0, NOWHERE, out[lane])
