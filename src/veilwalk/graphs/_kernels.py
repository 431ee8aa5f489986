"""Compiled loops of the graphs package: plain arrays in, plain arrays out.

Import this module where it is used, not at the top of a file: numba costs half a second that ``--help``
should not pay.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import prange

from veilwalk.core.arrays import IntArray
from veilwalk.engine import njit

DistanceArray = npt.NDArray[np.integer[Any]]

# More pieces than cores, so that an unlucky piece does not keep the others waiting.
_PIECES = 64

# A product with this sequence has a different top six bits for each single bit (Leiserson et al., 1998).
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
_BIT_OF = np.argsort([(0x03F79D71B4CB0A89 << bit & 0xFFFFFFFFFFFFFFFF) >> 58 for bit in range(64)])


@njit(parallel=True, cache=True)
def distance_rows(indptr: IntArray, indices: IntArray, sources: IntArray, far: int, out: DistanceArray) -> None:
    """Write the distances from each source into its row of ``out``; ``far`` is no distance."""
    n_nodes = len(indptr) - 1
    n_pieces = min(len(sources), _PIECES)
    for piece in prange(n_pieces):
        # One place to spare: every neighbour is written there, and stays only when it is new. A branch
        # instead would be mispredicted every other time, which costs more than the search.
        queue = np.empty(n_nodes + 1, dtype=indices.dtype)
        for which in range(piece, len(sources), n_pieces):
            row = out[which]
            row[:] = far
            row[sources[which]] = 0
            queue[0] = sources[which]
            head, tail = 0, 1
            # On an expander half the nodes are last: stopping at the last one found halves the work.
            while head < tail < n_nodes:
                node = queue[head]
                head += 1
                further = row[node] + 1
                for entry in range(indptr[node], indptr[node + 1]):
                    other = indices[entry]
                    known = row[other]
                    queue[tail] = other
                    tail += known == far
                    row[other] = min(known, further)


@njit(parallel=True, cache=True)
def packed_distance_rows(indptr: IntArray, indices: IntArray, sources: IntArray, out: DistanceArray) -> None:
    """Do what :func:`distance_rows` does, for 64 sources at a time: a bit of a word for each.

    Every level looks at all nodes, so this pays on graphs with few levels.
    """
    n_nodes = len(indptr) - 1
    u1 = np.uint64(1)
    for batch in prange((len(sources) + 63) // 64):
        first = 64 * batch
        size = min(64, len(sources) - first)
        everyone = _ALL_BITS >> np.uint64(64 - size)
        reached_from = np.zeros(n_nodes, dtype=np.uint64)
        for bit in range(size):
            reached_from[sources[first + bit]] |= u1 << np.uint64(bit)
            out[first + bit, sources[first + bit]] = 0
        front = reached_from.copy()
        fresh = np.empty(n_nodes, dtype=np.uint64)
        level, unfinished = 0, True
        while unfinished:
            level += 1
            unfinished = False
            for node in range(n_nodes):
                reached = np.uint64(0)
                if reached_from[node] != everyone:
                    for entry in range(indptr[node], indptr[node + 1]):
                        reached |= front[indices[entry]]
                    reached &= ~reached_from[node]
                    reached_from[node] |= reached
                    unfinished = unfinished or reached_from[node] != everyone
                fresh[node] = reached
                while reached:
                    lowest = reached & (~reached + u1)
                    out[first + _BIT_OF[(lowest * _DE_BRUIJN) >> np.uint64(58)], node] = level
                    reached ^= lowest
            front, fresh = fresh, front


@njit(cache=True)
def _search(
    indptr: IntArray, indices: IntArray, center: int, radius: int, stamp: int, last_search: IntArray, queue: IntArray
) -> int:
    """Fill ``queue`` with the nodes within ``radius`` of ``center``, nearest first; return how many there are.

    ``last_search`` holds in each node the stamp of the last search that met it. The queue's second row holds the hops;
    as in :func:`distance_rows` it has a place to spare.
    """
    queue[0, 0], queue[1, 0] = center, 0
    last_search[center] = stamp
    size, place = 1, 0
    while place < size < len(last_search) and queue[1, place] < radius:
        node, hops = queue[0, place], queue[1, place] + 1
        for entry in range(indptr[node], indptr[node + 1]):
            head = indices[entry]
            queue[0, size], queue[1, size] = head, hops
            size += last_search[head] != stamp
            last_search[head] = stamp
        place += 1
    return size


@njit(cache=True, parallel=True)
def count_shells(indptr: IntArray, indices: IntArray, centers: IntArray, radius: int, out: IntArray) -> None:
    """Add up in the rows of zeros ``out`` how many nodes lie at every distance up to ``radius`` from each center.

    Distances beyond the last column count there.
    """
    n_nodes = len(indptr) - 1
    n_pieces = min(len(centers), _PIECES)
    for piece in prange(n_pieces):
        last_search = np.full(n_nodes, -1, np.int32)
        queue = np.empty((2, n_nodes + 1), np.int32)
        for row in range(piece, len(centers), n_pieces):
            size = _search(indptr, indices, centers[row], radius, row, last_search, queue)
            for place in range(size):
                out[row, min(queue[1, place], out.shape[1] - 1)] += 1


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
    n_pieces = min(len(centers), _PIECES)
    for piece in prange(n_pieces):
        last_search = np.full(n_nodes, -1, np.int32)
        queue = np.empty((2, n_nodes + 1), np.int32)
        for row in range(piece, len(centers), n_pieces):
            size = _search(indptr, indices, centers[row], radius, row, last_search, queue)
            for place in range(size):
                nodes[starts[row] + place] = queue[0, place]
                hops[starts[row] + place] = queue[1, place]


@njit(cache=True)
def bad_stubs(mate: IntArray, degree: int, limit: int) -> IntArray:
    """Return up to ``limit`` stubs that lie on a self-loop or on a further copy of an edge."""
    n_nodes = len(mate) // degree
    seen_by = np.full(n_nodes, -1, dtype=mate.dtype)
    stubs = np.empty(limit, dtype=mate.dtype)
    size = 0
    for node in range(n_nodes):
        for stub in range(node * degree, (node + 1) * degree):
            other = mate[stub] // degree
            if other == node or seen_by[other] == node:
                stubs[size] = stub
                size += 1
                if size == limit:
                    return stubs
            seen_by[other] = node
    return stubs[:size]


@njit(cache=True)
def _joined(mate: IntArray, degree: int, node: int, other: int, but: int) -> bool:
    joined = node == other
    for stub in range(node * degree, (node + 1) * degree):
        joined = joined or (stub != but and mate[stub] // degree == other)
    return joined


@njit(cache=True)
def switch_bad_pairs(mate: IntArray, degree: int, bad: IntArray, partners: IntArray) -> bool:
    """Break the bad pairs by switching each with random ``partners``; False when those ran out."""
    used = 0
    for stub in bad:
        node = stub // degree
        # Asked anew each time: an earlier switch may have mended this pair from its other end.
        while _joined(mate, degree, node, mate[stub] // degree, stub):
            if used == len(partners):
                return False
            partner = partners[used]
            used += 1
            end, far_end = mate[stub], mate[partner]
            a, v, b = partner // degree, end // degree, far_end // degree
            if (node == v and a == b) or _joined(mate, degree, node, a, -1) or _joined(mate, degree, v, b, -1):
                continue
            mate[stub], mate[partner] = partner, stub
            mate[end], mate[far_end] = far_end, end
    return True


@njit(cache=True)
def preferential_edges(n_nodes: int, attach: int, rng: np.random.Generator) -> IntArray:
    """Grow a star of ``attach`` leaves: each further node joins ``attach`` others, likelier by degree."""
    ends = np.empty(2 * attach * (n_nodes - attach), dtype=np.int64)
    size = 0
    for leaf in range(1, attach + 1):
        ends[size], ends[size + 1] = 0, leaf
        size += 2
    for node in range(attach + 1, n_nodes):
        grown = size
        while size < grown + 2 * attach:
            # A node stands among the ends as often as its degree says.
            target = ends[int(rng.random() * grown)]
            known = False
            for entry in range(grown + 1, size, 2):
                known = known or ends[entry] == target
            if not known:
                ends[size], ends[size + 1] = node, target
                size += 2
    return ends.reshape(-1, 2)


@njit(cache=True)
def rewired_ring(n_nodes: int, reach: int, rewire: float, rng: np.random.Generator) -> IntArray:
    """Return the far ends of the ring edges that each node owns, some moved to random nodes."""
    target = np.empty((n_nodes, reach), dtype=np.int64)
    degree = np.full(n_nodes, 2 * reach, dtype=np.int64)
    for step in range(reach):
        for node in range(n_nodes):
            target[node, step] = (node + step + 1) % n_nodes
    for step in range(reach):
        for node in range(n_nodes):
            if rng.random() >= rewire or degree[node] >= n_nodes - 1:
                continue
            while True:
                other = int(rng.random() * n_nodes)
                joined = other == node
                for own in range(reach):
                    joined = joined or target[node, own] == other or target[other, own] == node
                if not joined:
                    break
            degree[target[node, step]] -= 1
            degree[other] += 1
            target[node, step] = other
    return target
