"""Compiled loops over the paths of tokens: what who knows a path can say of the updates made on it.

For whom a token is sealed has no bearing on where it goes. So given its path the updates are a renewal process that
can be followed exactly: ``sealed[d]`` is the probability that the token is sealed for d; at a visit to x that of x is
the probability that an update is made there, and is sealed anew by the row of x.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.walks.compiled import kernel, serial

Array = Any


@kernel
def follow(paths: Array, law_offsets: Array, law_columns: Array, law_weights: Array, made: Array) -> None:
    """Follow the updates along each path, the first being made where it begins.

    ``made[lane, 0, t]`` receives the probability, given the path, that an update is made at hop t.
    """
    n_nodes = law_offsets.shape[0] - 1
    for lane in numba.prange(paths.shape[0]):
        sealed = np.zeros(n_nodes)
        sealed[paths[lane, 0]] = 1.0
        for hop in range(paths.shape[1]):
            node = paths[lane, hop]
            here = sealed[node]
            made[lane, 0, hop] = here
            sealed[node] = 0.0
            if here > 0.0:
                for entry in range(law_offsets[node], law_offsets[node + 1]):
                    sealed[law_columns[entry]] += here * law_weights[entry]


@serial
def entry_of(offsets: Array, table: Array, node: int, neighbour: int) -> int:
    """Return the place of ``neighbour`` in the list of ``node``."""
    first = offsets[node]
    return int(first + np.searchsorted(table[first : offsets[node + 1]], neighbour))


@kernel
def tally_deliveries(
    paths: Array,
    made: Array,
    law: Array,
    apart: Array,
    offsets: Array,
    table: Array,
    arc_of: Array,
    edges: Array,
    warm: int,
    stride: int,
    won: Array,
    mass: Array,
    visits: Array,
) -> None:
    """Add up, over visits after hop ``warm``, who may have sealed what is delivered there.

    ``won[lane, b, l, r]`` receives the probability that an update is delivered after a return time in bin b by a source
    l hops away that is nearer to (r = 0), as far from (1) or farther from (2) the node it came from than from the
    destination; ``mass[lane, b, a]`` all that came by the arc with number a, and ``visits[lane, b]`` counts the visits.
    Only destinations whose arcs have a number in ``arc_of`` are looked at, and of their visits every ``stride``-th.
    ``law[j]`` is the column of j.
    """
    n_nodes = law.shape[0]
    for lane in numba.prange(paths.shape[0]):
        path = paths[lane]
        seen = np.full(n_nodes, -1, np.int64)
        counter = 0
        for hop in range(path.shape[0]):
            node = path[hop]
            before = seen[node]
            seen[node] = hop
            if before < 0 or hop < warm or arc_of[offsets[node]] < 0:
                continue
            counter += 1
            if counter % stride != 0:
                continue
            bin_ = np.searchsorted(edges, hop - before)
            visits[lane, bin_] += 1.0
            last = path[hop - 1]
            total = 0.0
            for then in range(before + 1, hop):
                source = path[then]
                weight = made[lane, 0, then] * law[node, source]
                if weight > 0.0:
                    away = apart[node, source]
                    won[lane, bin_, away, min(max(apart[last, source] - away, -1), 1) + 1] += weight
                    total += weight
            mass[lane, bin_, arc_of[entry_of(offsets, table, node, last)]] += total


@serial
def tally_candidates(
    path: Array,
    made: Array,
    law: Array,
    offsets: Array,
    table: Array,
    arc_of: Array,
    edges: Array,
    warm: int,
    stride: int,
    counted: Array,
    visits: Array,
) -> None:
    """Add up, over visits after hop ``warm``, who may have sealed what is delivered there, candidate by candidate.

    ``counted[b, a, i]`` receives the probability that it is i, for return times in bin b and arrivals by the arc with
    number a; ``visits[b, a]`` counts them. The last bin takes every ``stride``-th of the visits after return times
    beyond the last of ``edges``. Other arguments are those of :func:`tally_deliveries`.
    """
    seen = np.full(law.shape[0], -1, np.int64)
    counter = 0
    for hop in range(path.shape[0]):
        node = path[hop]
        before = seen[node]
        seen[node] = hop
        if before < 0 or hop < warm or arc_of[offsets[node]] < 0:
            continue
        bin_ = np.searchsorted(edges, hop - before)
        if bin_ == edges.shape[0]:
            counter += 1
            if counter % stride != 0:
                continue
        arc = arc_of[entry_of(offsets, table, node, path[hop - 1])]
        visits[bin_, arc] += 1.0
        for then in range(before + 1, hop):
            counted[bin_, arc, path[then]] += made[0, then] * law[node, path[then]]


@serial
def tally_sights(
    path: Array, made: Array, member: Array, offsets: Array, table: Array, arc_of: Array, warm: int, sights: Array
) -> None:
    """Add up, over stretches of a path from one colluder to the next, who may have sealed what the second one sees.

    ``arc_of`` numbers the arcs into colluders from others. ``sights[0, a, i]`` receives ``made`` at i, for first sights
    by arc a.
    """
    before = -1
    for hop in range(path.shape[0]):
        node = path[hop]
        if member[node] < 0:
            continue
        start, before = before, hop
        if start < warm or member[path[hop - 1]] >= 0:
            continue
        into = arc_of[entry_of(offsets, table, node, path[hop - 1])]
        for then in range(start + 1, hop):
            sights[0, into, path[then]] += made[0, then]


@kernel
def weigh_path(
    paths: Array, made: Array, law: Array, lanes: Array, clocks: Array, return_times: Array, out: Array
) -> None:
    """Write into ``out[row, i]`` the weight of source i for who knows the path: it may have sealed at each visit to i.

    Row r is a delivery on path ``lanes[r]`` at ``clocks[r]`` after ``return_times[r]``; ``law[j]`` is the column of j.
    """
    for row in numba.prange(clocks.shape[0]):
        path, weights = paths[lanes[row]], made[lanes[row], 0]
        node = path[clocks[row]]
        for then in range(clocks[row] - return_times[row] + 1, clocks[row]):
            out[row, path[then]] += weights[then] * law[node, path[then]]
