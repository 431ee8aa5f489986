"""Kernels that draw destinations from laws: one, or a set of several, and the weight that a law gives each node.

A set is named by the clock at which it was drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from veilwalk.walks._compile import apart, inlined, serial
from veilwalk.walks._kernels_random import (
    DESTINATION,
    DESTINATION_NUMBERS,
    ONE,
    RECIPIENTS,
    ZERO,
    block_words,
    choice,
    unit_interval,
)

_EIGHT = np.uint64(8)
_BYTE = np.uint64(0xFF)
# Keeps the replacements of recipients' words apart from those of all others.
_RECIPIENT_NUMBERS = np.uint64(3 << 46)
#: Draws of recipients that are made at a time, by vector instructions.
BATCH = 8
_IN_BATCH = np.uint64(BATCH - 1)
# After so many draws in vain for each recipient the rest of a row is weighed anew.
_PATIENCE = 8

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
def draw_destination(
    offsets: Array, columns: Array, keep: Array, other: Array, seed: Any, job: Any, node: Any, draw: Any
) -> Any:
    """Return the destination that ``node`` draws as the lane's draw number ``draw``."""
    first = np.uint64(offsets[node])
    size = np.uint64(offsets[node + ONE]) - first
    word, high, low, _ = block_words(seed, job, DESTINATION, ZERO, draw)
    slot = choice(seed, job, draw | DESTINATION_NUMBERS, word, size)
    if unit_interval(high, low) >= keep[first + slot]:
        slot = np.uint64(other[first + slot])
    return np.uint64(columns[first + slot])


@inlined
def find(columns: Array, low: Any, high: Any, node: Any) -> Any:
    """Return the place of ``node`` among ascending ``columns[low:high]``, -1 if it is not there."""
    left = high - low
    # Where the middle decides nothing but a sum, there is no branch to guess wrong.
    while left > 1:
        half = left >> 1
        low += half * (columns[low + half - 1] < node)
        left -= half
    return low if left == 1 and columns[low] == node else -1


@inlined
def weight_of(offsets: Array, columns: Array, weights: Array, source: Any, node: Any) -> Any:
    """Return the weight that ``source`` gives ``node``: its probability, or one of those that are all alike."""
    place = find(columns, offsets[source], offsets[source + 1], node)
    if weights.shape[0] == 0:
        return 0.0 if place >= 0 else 1.0
    return weights[place] if place >= 0 else 0.0


@inlined
def _weighed(
    n_nodes: Any, offsets: Array, columns: Array, weights: Array, source: Any, stamps: Array, clock: Any, share: float
) -> Any:
    """Return the node at which ``share`` of the weight of those not chosen yet is reached."""
    total, last = 0.0, -1
    for turn in range(2):
        goal, reached = share * total, 0.0
        for node in range(n_nodes):
            weight = weight_of(offsets, columns, weights, source, node)
            if weight > 0.0 and stamps[node] != clock:
                reached += weight
                last = node
                if turn == 1 and reached > goal:
                    return np.int64(node)
        total = reached
    return last


@inlined
def _draw_batch(batch: Array, seed: Any, job: Any, clock: Any, number: Any) -> None:
    """Fill ``batch`` with the three words of each draw from ``number`` on."""
    # Of a length that the compiler does not know, or it would unroll the loop instead of making vectors of it.
    for turn in range(batch.shape[1]):
        draw = number + np.uint64(turn)
        block = np.uint64(clock) << _EIGHT | (draw & _BYTE)
        word, high, low, _ = block_words(seed, job, RECIPIENTS, (draw >> _EIGHT) & _BYTE, block)
        batch[0, turn] = word
        batch[1, turn] = high
        batch[2, turn] = low


@apart
def draw_set(
    n_nodes: Any,
    offsets: Array,
    columns: Array,
    weights: Array,
    keep: Array,
    other: Array,
    seed: Any,
    job: Any,
    source: Any,
    clock: Any,
    batch: Array,
    stamps: Array,
    out: Array,
) -> None:
    """Write into ``out`` the distinct recipients that ``source`` draws at ``clock``, one after the other.

    They are known by the clock in ``stamps``, which no node may have before. ``batch`` is room for 3 times ``BATCH``
    words.
    """
    first = np.uint64(offsets[source])
    size = np.uint64(offsets[source + 1]) - first
    number, count, vain = ZERO, 0, 0
    while count < out.shape[0]:
        turn = number & _IN_BATCH
        if turn == ZERO:
            _draw_batch(batch, seed, job, clock, number)
        word, high, low = batch[0, turn], batch[1, turn], batch[2, turn]
        block = np.uint64(clock) << _EIGHT | (number & _BYTE)
        number += ONE
        if vain > _PATIENCE * out.shape[0]:
            share = unit_interval(high, low)
            node = _weighed(np.int64(n_nodes), offsets, columns, weights, source, stamps, clock, share)
            stamps[node] = clock
            out[count] = node
            count += 1
            continue
        named = block | _RECIPIENT_NUMBERS
        if weights.shape[0] == 0:
            node = np.int64(choice(seed, job, named, word, n_nodes))
            refused = weight_of(offsets, columns, weights, source, node) == 0.0
        else:
            slot = choice(seed, job, named, word, size)
            if unit_interval(high, low) >= keep[first + slot]:
                slot = np.uint64(other[first + slot])
            node = np.int64(columns[first + slot])
            refused = False
        if refused or stamps[node] == clock:
            vain += 1
            continue
        stamps[node] = clock
        out[count] = node
        count += 1


@serial
def draw_sets(
    n_nodes: Any,
    offsets: Array,
    columns: Array,
    weights: Array,
    keep: Array,
    other: Array,
    seed: Any,
    lanes: Array,
    sources: Array,
    clocks: Array,
    out: Array,
) -> None:
    """Write a set a row."""
    batch, stamps = np.empty((3, BATCH), np.uint64), np.full(np.int64(n_nodes), -1, np.int64)
    for row in range(out.shape[0]):
        draw_set(
            n_nodes,
            offsets,
            columns,
            weights,
            keep,
            other,
            seed,
            np.uint64(lanes[row]),
            sources[row],
            clocks[row],
            batch,
            stamps,
            out[row],
        )
        # The clocks of other lanes may be the same.
        for place in range(out.shape[1]):
            stamps[out[row, place]] = -1
