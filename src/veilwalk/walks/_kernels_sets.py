"""Kernels of ciphertexts that are sealed for several: for whom, and what weight a law gives each node.

A set is named by the clock at which it was drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from veilwalk.walks._compile import inlined, serial
from veilwalk.walks._kernels_random import ONE, RECIPIENTS, ZERO, block_words, choice, unit_interval

_EIGHT = np.uint64(8)
_BYTE = np.uint64(0xFF)
# Keeps the replacements of recipients' words apart from those of all others.
_RECIPIENT_NUMBERS = np.uint64(3 << 46)
# After so many draws in vain for each recipient the rest of a row is weighed anew.
_PATIENCE = 8

Array = Any


@inlined
def find(columns: Array, low: Any, high: Any, node: Any) -> Any:
    """Return the place of ``node`` among ascending ``columns[low:high]``, -1 if it is not there."""
    while low < high:
        middle = (low + high) >> 1
        if columns[middle] < node:
            low = middle + 1
        else:
            high = middle
    return low if low < columns.shape[0] and columns[low] == node else -1


@inlined
def weight_of(offsets: Array, columns: Array, weights: Array, source: Any, node: Any) -> Any:
    """Return the weight that ``source`` gives ``node``: its probability, or one of those that are all alike."""
    place = find(columns, offsets[source], offsets[source + 1], node)
    if place >= offsets[source + 1]:
        place = -1
    if weights.shape[0] == 0:
        return 0.0 if place >= 0 else 1.0
    return weights[place] if place >= 0 else 0.0


@inlined
def _chosen(out: Array, count: int, node: Any) -> bool:
    found = False
    for place in range(count):
        found |= out[place] == node
    return found


@inlined
def _weighed(
    n_nodes: Any, offsets: Array, columns: Array, weights: Array, source: Any, out: Array, count: int, share: float
) -> Any:
    """Return the node at which ``share`` of the weight of those not chosen yet is reached."""
    total, last = 0.0, -1
    for turn in range(2):
        goal, reached = share * total, 0.0
        for node in range(n_nodes):
            weight = weight_of(offsets, columns, weights, source, node)
            if weight > 0.0 and not _chosen(out, count, node):
                reached += weight
                last = node
                if turn == 1 and reached > goal:
                    return np.int64(node)
        total = reached
    return last


@serial
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
    out: Array,
) -> None:
    """Write into ``out`` the distinct recipients that ``source`` draws at ``clock``, one after the other."""
    first = np.uint64(offsets[source])
    size = np.uint64(offsets[source + 1]) - first
    number, count, vain = ZERO, 0, 0
    while count < out.shape[0]:
        block = np.uint64(clock) << _EIGHT | (number & _BYTE)
        word, high, low, _ = block_words(seed, job, RECIPIENTS, (number >> _EIGHT) & _BYTE, block)
        number += ONE
        if vain > _PATIENCE * out.shape[0]:
            share = unit_interval(high, low)
            out[count] = _weighed(np.int64(n_nodes), offsets, columns, weights, source, out, count, share)
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
        if refused or _chosen(out, count, node):
            vain += 1
            continue
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
            out[row],
        )
