"""Kernels of the whole protocol: tokens that walk, arrive, and are sealed for the next destination, or for several.

Sealed for one, lanes go through their hops side by side, each by its own clock. A lane that has made its quota stops at
that very arrival, in the middle of a block of words; the next call draws the block again and passes over the hops
already made. Sealed for several, tokens walk some hops at a time, and what happens at each hop is then looked up.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.walks._compile import inlined, kernel, prefetch, serial
from veilwalk.walks._kernels_laws import BATCH, draw_destination, draw_set
from veilwalk.walks._kernels_paths import onward, way_of_memory
from veilwalk.walks._kernels_random import (
    DESTINATION_NUMBERS,
    HALF,
    MASK,
    ONE,
    START,
    ZERO,
    block_words,
    choice,
    fill_words,
    split_words,
)
from veilwalk.walks._moves import METROPOLIS

#: Lanes that one thread plays side by side.
GROUP = 8

# Columns of the lanes' state between calls.
POSITION = 0
CLOCK = 1
SOURCE = 2
GOAL = 3
SEALED_AT = 4
DRAWS = 5
FIRST_NODE = 6
FIRST_CLOCK = 7
LAST_NODE = 8
LAST_CLOCK = 9
BEFORE_NODE = 10
BEFORE_CLOCK = 11
FIRST_FROM = 12
LAST_TO = 13
BEFORE_TO = 14
# The lane's number in its run, which names its stream: lanes may be played a few at a time.
JOB = 15
N_COLUMNS = 16

_TWO = np.uint64(2)
_STOPPED = np.iinfo(np.int64).max

Array = Any


@inlined
def arrive(record: Any, state: Array, lane: int, tokens: int, node: Any, came_from: Any, now: int, seen: int) -> None:
    """Fill the record of an arrival; ``seen`` is the clock of the token's visit before, or -1."""
    record.replica = state[lane, JOB] // tokens
    record.token = state[lane, JOB] % tokens
    record.source = state[lane, SOURCE]
    record.destination = np.int64(node)
    record.last_hop = np.int64(came_from)
    record.clock = now
    record.leg_hops = now - state[lane, SEALED_AT]
    record.return_time = now - seen if seen >= 0 else -1
    record.first_sight_node = state[lane, FIRST_NODE]
    record.previous_sight_node = state[lane, BEFORE_NODE]
    record.first_sight_clock = -1
    record.first_sight_hops = -1
    record.previous_sight_clock = -1
    record.previous_sight_to = -1
    record.first_sight_from = -1
    if state[lane, BEFORE_NODE] >= 0:
        record.previous_sight_clock = state[lane, BEFORE_CLOCK]
        record.previous_sight_to = state[lane, BEFORE_TO]
    if state[lane, FIRST_NODE] >= 0:
        record.first_sight_from = state[lane, FIRST_FROM]
        record.first_sight_clock = state[lane, FIRST_CLOCK]
        record.first_sight_hops = state[lane, FIRST_CLOCK] - state[lane, SEALED_AT]


@inlined
def seal(state: Array, lane: int, node: Any, goal: Any, now: int) -> None:
    """Let ``node`` send its update to ``goal``: a new ciphertext, which nobody has seen."""
    state[lane, SOURCE] = np.int64(node)
    state[lane, GOAL] = np.int64(goal)
    state[lane, SEALED_AT] = now
    state[lane, DRAWS] += 1
    state[lane, BEFORE_NODE] = state[lane, LAST_NODE]
    state[lane, BEFORE_CLOCK] = state[lane, LAST_CLOCK]
    state[lane, BEFORE_TO] = state[lane, LAST_TO]
    state[lane, FIRST_NODE] = -1
    state[lane, LAST_NODE] = -1


@inlined
def sight(state: Array, lane: int, watching: Array, node: Any, came_from: Any, now: int) -> None:
    """Note what watching nodes see of a hop: one that holds the ciphertext, one that has just sent it on."""
    if state[lane, LAST_NODE] >= 0 and watching[came_from]:
        state[lane, LAST_TO] = np.int64(node)
    if watching[node]:
        if state[lane, FIRST_NODE] < 0:
            state[lane, FIRST_NODE] = np.int64(node)
            state[lane, FIRST_FROM] = np.int64(came_from)
            state[lane, FIRST_CLOCK] = now
        state[lane, LAST_NODE] = np.int64(node)
        state[lane, LAST_CLOCK] = now
        state[lane, LAST_TO] = -1


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
        node = choice(seed, job, DESTINATION_NUMBERS, word, n_nodes)
        goal = draw_destination(law_offsets, law_columns, law_keep, law_other, seed, job, node, ZERO)
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
                        goal = draw_destination(
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
                goal = draw_destination(law_offsets, law_columns, law_keep, law_other, seed, jobs[0], node, draw)
                seal(state, 0, node, goal, now)
                goal_seen = visits[goal]
                made += 1
                if made == quota:
                    state[0, CLOCK] = now
                    state[0, POSITION] = np.int64(node)
                    return
        skip = 0
        blocks[0] += ONE


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
                    goal = draw_destination(law_offsets, law_columns, law_keep, law_other, seed, job, node, draw)
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
