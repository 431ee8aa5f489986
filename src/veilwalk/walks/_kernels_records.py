"""What a lane of the protocol keeps between calls, and what is written of its arrivals and of what colluders see."""

from __future__ import annotations

from typing import Any

import numpy as np

from veilwalk.walks._compile import inlined

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
