"""Plays the protocol: walks the paths of tokens, and then looks up what happens along them.

The path of a token does not depend on its recipients: it is a function of the seed and of its lane. So the lanes of a
group first walk many hops in turn, which hides the time of their lookups, and then one loop goes along each path. A
lane that has made its quota of updates stops on its path; the next call goes on from there.

Some walks are a table of equally likely moves: row after row of ``width`` nodes, or, with ``width`` 0, rows of any
length that start at ``offsets``. Hop ``h`` is then served by word ``h // digits`` of the lane's stream.

Others have a rule. ``metropolis``: a uniform neighbour y of x is proposed and taken with probability
min(1, deg x / deg y); else the token stays, which is a hop like any other. ``non-backtracking``: uniform over the
neighbours but the one the token came from; at a leaf it goes back. Hop ``h`` of these has the words from ``h * words``
on of its stream: the first chooses, the last is the coin.

Nodes, widths and counts are uint64 inside the kernels, so that indexing needs no sign test.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.walks._compile import jit, jit_inline_nogc, jit_parallel, prefetch
from veilwalk.walks._kernels_laws import TAG_BITS, TAG_MASK, draw_set, new_batch
from veilwalk.walks._kernels_random import (
    DESTINATION_NUMBERS,
    HALF,
    MASK,
    START,
    TWO_TO_32,
    U1,
    WALK,
    ZERO,
    block_words,
    choice,
    fill_words,
    split_words,
)
from veilwalk.walks._tables import METROPOLIS, NON_BACKTRACKING, TABLE

# Columns of the state of a lane between calls: its token, and its number in the run, which names its stream,
POSITION, BACK, PATH_START, PATH_END, JOB = range(5)
# the ciphertext,
CLOCK, SOURCE, SEALED_AT, DRAWS, TAG = range(5, 10)
# and the sightings of it and of the one before.
FIRST_NODE, FIRST_FROM, FIRST_CLOCK, LAST_NODE, LAST_TO, LAST_CLOCK = range(10, 16)
BEFORE_NODE, BEFORE_TO, BEFORE_CLOCK = range(16, 19)
N_COLUMNS = 19

_TWO = np.uint64(2)
# The -1 of a token that came from nowhere yet: no node.
_NOWHERE = MASK << HALF | MASK
# Blocks of words that are drawn at a time, for all lanes together: they stay in the first cache.
_BLOCKS = 64
# Nodes from which on last visits are requested so many hops before they are read.
_FAR, _AHEAD = 20_000, np.uint64(128)

Array = Any


@jit
def place_tokens(n_nodes: Any, seed: Any, first_job: Any, state: Array) -> None:
    """Put the token of every lane from ``first_job`` on on its first node."""
    for lane in range(state.shape[0]):
        for column in range(N_COLUMNS):
            state[lane, column] = 0
        job = first_job + np.uint64(lane)
        word, _, _, _ = block_words(seed, job, START, ZERO, ZERO)
        state[lane, JOB] = np.int64(job)
        state[lane, POSITION] = np.int64(choice(seed, job, DESTINATION_NUMBERS, word, n_nodes))
        state[lane, BACK] = -1


@jit_inline_nogc
def _hop_by_rule(walk: Any, seed: Any, job: Any, number: Any, word: Any, coin: Any, here: Any, before: Any) -> Any:
    """Return the node that a walk goes to from ``here``, where it came to from ``before``.

    ``word`` chooses, and has ``number`` in its stream; ``coin`` decides.
    """
    first, degree = here * walk.width, walk.width
    if degree == ZERO:
        first = np.uint64(walk.offsets[here])
        degree = np.uint64(walk.offsets[here + U1]) - first
    if walk.kind == NON_BACKTRACKING:
        # The entry that leads back is left out, unless there is none, or no other. Entries are in the order of nodes.
        forward = np.uint64(before != _NOWHERE and degree > U1)
        entry = first + choice(seed, job, number, word, degree - forward)
        entry += forward & np.uint64(np.uint64(walk.table[entry]) >= before)
        return np.uint64(walk.table[entry])
    node = np.uint64(walk.table[first + choice(seed, job, number, word, degree)])
    if walk.kind == METROPOLIS and walk.width == ZERO:
        other_degree = np.uint64(walk.offsets[node + U1]) - np.uint64(walk.offsets[node])
        if other_degree > degree and choice(seed, job, number + U1, coin, other_degree) >= degree:
            node = here
    return node


@jit_inline_nogc
def _prefetch_row(walk: Any, node: Any) -> None:
    """Request the moves of a node that a later hop reads."""
    if walk.width > ZERO:
        prefetch(walk.table, node * walk.width)
    else:
        prefetch(walk.offsets, node)


@jit_inline_nogc
def _start_onward(walk: Any, seed: Any, jobs: Array, nodes: Array, backs: Array, moves: Array) -> None:
    """Let tokens that came from nowhere make the move that all of a node's choices allow.

    They are said to come from the first neighbour but the one that is chosen.
    """
    for turn in range(nodes.shape[0]):
        if backs[turn] == _NOWHERE:
            word, _, _, _ = block_words(seed, jobs[turn], WALK, ZERO, ZERO)
            slot = choice(seed, jobs[turn], ZERO, word, walk.width)
            backs[turn] = np.uint64(walk.table[nodes[turn] * walk.width + np.uint64(slot == ZERO)])
            moves[turn] = np.uint32(max(slot, U1) - U1)


@jit_inline_nogc
def _place_lanes(
    lanes: Array, state: Array, block_hops: int, nodes: Array, backs: Array, jobs: Array, blocks: Array, paths: Array
) -> None:
    """Write where the tokens of these lanes are, and which blocks of words they use next."""
    n_lanes = lanes.shape[0]
    for turn in range(n_lanes):
        lane = lanes[turn]
        nodes[turn], backs[turn] = np.uint64(state[lane, POSITION]), np.uint64(state[lane, BACK])
        paths[lane, 0] = state[lane, POSITION]
        for block in range(jobs.shape[0] // n_lanes):
            jobs[block * n_lanes + turn] = np.uint64(state[lane, JOB])
            blocks[block * n_lanes + turn] = np.uint64(state[lane, PATH_END] // block_hops + block)


@jit
def _walk_paths(walk: Any, seed: Any, lanes: Array, n_hops: int, state: Array, paths: Array) -> None:
    """Write into ``paths[lane, :n_hops + 1]`` the next hops of these lanes, from where their paths end.

    Paths end with a block of words, unless they are the last. Lanes go in turn, so that the lookups of one hide behind
    those of the others.
    """
    n_lanes = lanes.shape[0]
    n_blocks = max(1, _BLOCKS // n_lanes)
    size, digits, n_words = n_blocks * n_lanes, walk.digits, walk.words
    block_hops = 4 * digits if walk.kind == TABLE else 4 // n_words
    jobs, blocks = np.empty(size, np.uint64), np.empty(size, np.uint64)
    nodes, backs = np.empty(n_lanes, np.uint64), np.empty(n_lanes, np.uint64)
    # On small graphs one lookup serves two hops.
    width, paired = walk.width, walk.pairs.shape[0] > 0 and n_hops % 2 == 0
    if paired:
        width, digits = width * width, digits // 2
    words, moves = np.empty((4, size), np.uint64), np.zeros((4, digits, size), np.uint32)
    span, limit, onward = walk.span, walk.limit, walk.kind == NON_BACKTRACKING and walk.width > U1
    if onward:
        span = walk.width - U1
        limit = TWO_TO_32 % span
    _place_lanes(lanes, state, block_hops, nodes, backs, jobs, blocks, paths)
    hop = 0
    while hop < n_hops:
        fill_words(words, size, seed, jobs, blocks, span, limit)
        if walk.kind == TABLE and walk.width > ZERO:
            split_words(moves, words, size, width)
        if onward:
            split_words(moves, words, size, span)
            _start_onward(walk, seed, jobs, nodes, backs, moves[0, 0])
        for block in range(n_blocks):
            for part in range(0, 4, n_words):
                for digit in range(digits):
                    hop += 1
                    if hop > n_hops:
                        break
                    first, last = block * n_lanes, part + n_words - 1
                    if onward:
                        for turn in range(n_lanes):
                            node = nodes[turn]
                            entry = node * walk.width + np.uint64(moves[part, 0, first + turn])
                            entry += np.uint64(np.uint64(walk.table[entry]) >= backs[turn])
                            backs[turn] = node
                            node = np.uint64(walk.table[entry])
                            prefetch(walk.table, node * walk.width)
                            nodes[turn] = node
                            paths[lanes[turn], hop] = np.int32(node)
                        continue
                    if paired:
                        for turn in range(n_lanes):
                            entry = (nodes[turn] * width + np.uint64(moves[part, digit, first + turn])) << U1
                            node = np.uint64(walk.pairs[entry + U1])
                            nodes[turn] = node
                            paths[lanes[turn], hop] = walk.pairs[entry]
                            paths[lanes[turn], hop + 1] = np.int32(node)
                        hop += 1
                        continue
                    if walk.kind == TABLE and width > ZERO:
                        for turn in range(n_lanes):
                            entry = nodes[turn] * width + np.uint64(moves[part, digit, first + turn])
                            node = np.uint64(walk.table[entry])
                            prefetch(walk.table, node * width)
                            nodes[turn] = node
                            paths[lanes[turn], hop] = np.int32(node)
                        continue
                    for turn in range(n_lanes):
                        place = first + turn
                        number, word = (blocks[place] << _TWO) | np.uint64(part), words[part, place]
                        here, coin = nodes[turn], words[last, place]
                        node = _hop_by_rule(walk, seed, jobs[place], number, word, coin, here, backs[turn])
                        _prefetch_row(walk, node)
                        nodes[turn], backs[turn] = node, here
                        paths[lanes[turn], hop] = np.int32(node)
        for place in range(size):
            blocks[place] += np.uint64(n_blocks)
    for turn in range(n_lanes):
        lane = lanes[turn]
        state[lane, POSITION], state[lane, BACK] = np.int64(nodes[turn]), np.int64(backs[turn])
        state[lane, PATH_START] = state[lane, PATH_END]
        state[lane, PATH_END] += n_hops


@jit_parallel
def trace_paths(walk: Any, seed: Any, group: int, state: Array, paths: Array) -> None:
    """Write into ``paths[lane]`` the path of the token of every lane."""
    n_lanes = paths.shape[0]
    for turn in numba.prange((n_lanes + group - 1) // group):
        lanes = np.arange(turn * group, min(n_lanes, (turn + 1) * group))
        _walk_paths(walk, seed, lanes, paths.shape[1] - 1, state, paths)


@jit_inline_nogc
def _record(record: Any, state: Array, tokens: int, node: Any, came_from: Any, now: int, last_visit: int) -> None:
    """Fill the record of an arrival; ``last_visit`` is the clock of the token's visit before, or -1."""
    record.replica = state[JOB] // tokens
    record.token = state[JOB] % tokens
    record.source = state[SOURCE]
    record.destination = np.int64(node)
    record.last_hop = np.int64(came_from)
    record.clock = now
    record.leg_hops = now - state[SEALED_AT]
    record.return_time = now - last_visit if last_visit >= 0 else -1
    record.first_sight_node = state[FIRST_NODE]
    record.previous_sight_node = state[BEFORE_NODE]
    record.first_sight_clock = -1
    record.first_sight_hops = -1
    record.previous_sight_clock = -1
    record.previous_sight_to = -1
    record.first_sight_from = -1
    if state[BEFORE_NODE] >= 0:
        record.previous_sight_clock = state[BEFORE_CLOCK]
        record.previous_sight_to = state[BEFORE_TO]
    if state[FIRST_NODE] >= 0:
        record.first_sight_from = state[FIRST_FROM]
        record.first_sight_clock = state[FIRST_CLOCK]
        record.first_sight_hops = state[FIRST_CLOCK] - state[SEALED_AT]


@jit_inline_nogc
def _sight(state: Array, watching: Array, node: Any, came_from: Any, now: int) -> None:
    """Note the sightings of a hop: by a watching node that holds the ciphertext, or has just sent it on."""
    if state[LAST_NODE] >= 0 and watching[came_from]:
        state[LAST_TO] = np.int64(node)
    if watching[node]:
        if state[FIRST_NODE] < 0:
            state[FIRST_NODE] = np.int64(node)
            state[FIRST_FROM] = np.int64(came_from)
            state[FIRST_CLOCK] = now
        state[LAST_NODE] = np.int64(node)
        state[LAST_CLOCK] = now
        state[LAST_TO] = -1


@jit_inline_nogc
def _seal(
    law: Any, by_number: Any, seed: Any, node: Any, now: int, batch: Array, state: Array, shelf: Array, members: Array
) -> None:
    """Let ``node`` seal its update for the next recipients: a new ciphertext, which no colluder has sighted."""
    job, source = np.uint64(state[JOB]), np.int64(node)
    state[TAG] = draw_set(law, by_number, seed, job, source, now, state[DRAWS], batch, shelf, members)
    state[DRAWS] += 1
    state[SOURCE] = source
    state[SEALED_AT] = now
    state[BEFORE_NODE] = state[LAST_NODE]
    state[BEFORE_CLOCK] = state[LAST_CLOCK]
    state[BEFORE_TO] = state[LAST_TO]
    state[FIRST_NODE] = -1
    state[LAST_NODE] = -1


@jit
def start_lanes(law: Any, recipients: int, by_number: Any, seed: Any, state: Array, shelves: Array) -> None:
    """Let every lane's first node seal for its first recipients."""
    batch, members = new_batch(recipients), np.empty(recipients, np.int64)
    for lane in range(state.shape[0]):
        state[lane, LAST_NODE] = -1
        shelves[lane, state[lane, POSITION]] = 0
        _seal(law, by_number, seed, state[lane, POSITION], 0, batch, state[lane], shelves[lane], members)


@jit_inline_nogc
def _open_along(
    path: Array,
    law: Any,
    by_number: Any,
    watching: Array,
    tokens: int,
    seed: Any,
    batch: Array,
    members: Array,
    state: Array,
    shelf: Array,
    count: int,
    quota: int,
    row: int,
    out: Array,
) -> int:
    """Go along the path of a lane until its quota of updates is made or the path ends; return how many are made."""
    start, end, now, tag = state[PATH_START], state[PATH_END], state[CLOCK], state[TAG]
    far, last = shelf.shape[0] >= _FAR, np.uint64(end - start)
    watched, recording = watching.shape[0] > 0, out.shape[0] > 0
    while count < quota and now < end:
        place = np.uint64(now - start)
        node = np.uint64(path[place + U1])
        if far:
            prefetch(shelf, np.uint64(path[min(place + _AHEAD, last)]))
        now += 1
        entry = shelf[node]
        shelf[node] = now << TAG_BITS
        if watched:
            _sight(state, watching, node, np.uint64(path[place]), now)
        if entry & TAG_MASK != tag:
            continue
        if recording:
            _record(out[row + count], state, tokens, node, path[place], now, entry >> TAG_BITS)
        _seal(law, by_number, seed, node, now, batch, state, shelf, members)
        tag = state[TAG]
        count += 1
    state[CLOCK] = now
    return count


@jit_parallel
def run_lanes(
    walk: Any,
    law: Any,
    recipients: int,
    by_number: Any,
    watching: Array,
    tokens: int,
    seed: Any,
    group: int,
    leg_hops: int,
    state: Array,
    shelves: Array,
    paths: Array,
    quotas: Array,
    rows: Array,
    out: Array,
) -> None:
    """Run each lane until it has made its quota of updates; lane l's records go to ``out[rows[l]:]``.

    ``paths`` holds for each lane the nodes that it walks over next. It walks as many hops at a time as they have room
    for, but few more than its updates need at ``leg_hops`` each. With an empty ``out`` nothing is recorded.
    """
    n_lanes, most_hops = state.shape[0], paths.shape[1] - 1
    block_hops = 4 * walk.digits if walk.kind == TABLE else 4 // walk.words
    for turn in numba.prange((n_lanes + group - 1) // group):
        low, high = turn * group, min(n_lanes, (turn + 1) * group)
        members, batch = np.empty(recipients, np.int64), new_batch(recipients)
        counts, due, n_due = np.zeros(group, np.int64), np.empty(group, np.int64), 1
        while n_due > 0:
            n_due, hops = 0, block_hops
            for lane in range(low, high):
                counts[lane - low] = _open_along(
                    paths[lane], law, by_number, watching, tokens, seed, batch, members, state[lane], shelves[lane],
                    counts[lane - low], quotas[lane], rows[lane], out,
                )  # fmt: skip
                if counts[lane - low] < quotas[lane]:
                    due[n_due] = lane
                    n_due += 1
                    hops = max(hops, (quotas[lane] - counts[lane - low]) * leg_hops)
            if n_due > 0:
                hops = min(most_hops, (hops + block_hops - 1) // block_hops * block_hops)
                _walk_paths(walk, seed, due[:n_due], hops, state, paths)
