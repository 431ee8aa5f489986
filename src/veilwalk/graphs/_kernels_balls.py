"""Compiled searches that stop at a given distance, for graphs too large to search whole from every node."""

from __future__ import annotations

import numpy as np
from numba import prange

from veilwalk.core.arrays import IntArray
from veilwalk.engine import njit

# More pieces than cores, so that an unlucky piece does not keep the others waiting.
_PIECES = 16


@njit(cache=True)
def _search(
    indptr: IntArray, indices: IntArray, center: int, radius: int, stamp: int, seen: IntArray, queue: IntArray
) -> int:
    """Fill ``queue`` with the nodes within ``radius`` of ``center``, nearest first; return how many there are.

    ``seen`` holds in each node the stamp of the last search that met it. The queue's second row holds the hops.
    """
    queue[0, 0], queue[1, 0] = center, 0
    seen[center] = stamp
    size, place = 1, 0
    while place < size:
        hops = queue[1, place] + 1
        if hops > radius:
            break
        node = queue[0, place]
        for entry in range(indptr[node], indptr[node + 1]):
            head = indices[entry]
            if seen[head] != stamp:
                seen[head] = stamp
                queue[0, size], queue[1, size] = head, hops
                size += 1
        place += 1
    return size


@njit(cache=True, parallel=True)
def ball_sizes(indptr: IntArray, indices: IntArray, centers: IntArray, radius: int, out: IntArray) -> None:
    """Write into ``out`` how many nodes lie within ``radius`` of each center, the center included."""
    n_nodes = len(indptr) - 1
    for piece in prange(_PIECES):
        seen = np.full(n_nodes, -1, np.int32)
        queue = np.empty((2, n_nodes), np.int32)
        for row in range(piece, len(centers), _PIECES):
            out[row] = _search(indptr, indices, centers[row], radius, row, seen, queue)


@njit(cache=True, parallel=True)
def fill_balls(
    indptr: IntArray,
    indices: IntArray,
    centers: IntArray,
    radius: int,
    starts: IntArray,
    nodes: IntArray,
    hops: IntArray,
) -> None:
    """Write the nodes within ``radius`` of each center, and how far they are, from ``starts`` on."""
    n_nodes = len(indptr) - 1
    for piece in prange(_PIECES):
        seen = np.full(n_nodes, -1, np.int32)
        queue = np.empty((2, n_nodes), np.int32)
        for row in range(piece, len(centers), _PIECES):
            size = _search(indptr, indices, centers[row], radius, row, seen, queue)
            for place in range(size):
                nodes[starts[row] + place] = queue[0, place]
                hops[starts[row] + place] = queue[1, place]
