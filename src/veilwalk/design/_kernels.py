"""Compiled loops: walks from a source to its recipients, and classes of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from veilwalk.core.arrays import FloatArray
from veilwalk.engine import njit
from veilwalk.walks.compiled import next_word

Array = Any


@njit(cache=True, error_model="numpy")
def count_openers(
    indptr: Array, indices: Array, straight: Any, sources: Array, chosen: Array, walks: int, seed: Any, counts: Array
) -> None:
    """Count the openers of walks from each source to its set: ``counts[set, half, first hop, place]``.

    A walk that does not turn back begins as if it had come by a random arc; at leaves it must turn.
    """
    place_of = np.full(len(indptr) - 1, -1, np.int64)
    state = seed
    for number in range(len(sources)):
        source = sources[number]
        for place in range(chosen.shape[1]):
            place_of[chosen[number, place]] = place
        for half in range(2):
            for _ in range(walks):
                node, arc = source, np.int64(0)
                state, word = next_word(state)
                degree = indptr[source + 1] - indptr[source]
                came_from = indices[indptr[source] + np.int64((word >> np.uint64(33)) % np.uint64(degree))]
                hop = 0
                while hop == 0 or place_of[node] < 0:
                    begin = indptr[node]
                    degree = indptr[node + 1] - begin
                    while True:
                        state, word = next_word(state)
                        step = np.int64((word >> np.uint64(33)) % np.uint64(degree))
                        if not straight or degree == 1 or indices[begin + step] != came_from:
                            break
                    if hop == 0:
                        arc = step
                    came_from = node
                    node = np.int64(indices[begin + step])
                    hop += 1
                counts[number, half, arc, place_of[node]] += 1.0
        for place in range(chosen.shape[1]):
            place_of[chosen[number, place]] = -1


@njit(cache=True, error_model="numpy")
def classify_balls(
    opener_starts: Array,
    opener_nodes: Array,
    opener_hops: Array,
    last_starts: Array,
    last_nodes: Array,
    last_hops: Array,
    sources: Array,
    weights: FloatArray,
    hops_to_last: Array,
    pair: Array,
    expected: FloatArray,
) -> None:
    """Fill the class of each delivery's source, and the weight of all sources by class for the rows of ``expected``.

    The class of a node in the ball around the opener is its distance there and whether it is nearer to, as far from, or
    farther from the last hop; nodes outside are in the last class. ``hops_to_last`` holds -1, before and after.
    """
    last_class = expected.shape[1] - 1
    for row in range(len(sources)):
        for place in range(last_starts[row], last_starts[row + 1]):
            hops_to_last[last_nodes[place]] = last_hops[place]
        pair[row] = last_class
        for place in range(opener_starts[row], opener_starts[row + 1]):
            node, hops = opener_nodes[place], np.int64(opener_hops[place])
            from_last = hops_to_last[node] if hops_to_last[node] >= 0 else hops + 1
            kind = 3 * hops + min(max(from_last - hops, -1), 1) + 1
            if node == sources[row]:
                pair[row] = kind
            if row < len(expected):
                expected[row, kind] += weights[node]
        for place in range(last_starts[row], last_starts[row + 1]):
            hops_to_last[last_nodes[place]] = -1
