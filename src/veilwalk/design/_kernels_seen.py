"""The compiled walks from a source to the first of its recipients."""

from __future__ import annotations

from typing import Any

import numpy as np

from veilwalk.engine import njit

Array = Any


@njit(cache=True, error_model="numpy")
def _next_word(state: Any) -> Any:
    """Splitmix64: the next state and its word."""
    state += np.uint64(0x9E3779B97F4A7C15)
    word = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state, word ^ (word >> np.uint64(31))


@njit(cache=True, error_model="numpy")
def count_openers(
    indptr: Array, indices: Array, straight: Any, sources: Array, chosen: Array, walks: int, seed: Any, counts: Array
) -> None:
    """Count, for each source and its set, who opens what walks from it bring: ``counts[set, half, first hop, place]``.

    A walk that does not turn round begins as if it had come by any arc alike; at leaves it must turn.
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
                state, word = _next_word(state)
                degree = indptr[source + 1] - indptr[source]
                came_from = indices[indptr[source] + np.int64((word >> np.uint64(33)) % np.uint64(degree))]
                hop = 0
                while hop == 0 or place_of[node] < 0:
                    begin = indptr[node]
                    degree = indptr[node + 1] - begin
                    while True:
                        state, word = _next_word(state)
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
