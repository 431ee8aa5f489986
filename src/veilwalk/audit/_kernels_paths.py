"""Follows the updates along paths of tokens, with the set of recipients summed out.

The recipients have no influence on where a token goes. An update sealed at hop t is opened at hop s with the chance
that no node met between was a recipient and the node met there, for the first time since, is one. ``updates[s]``, the
probability that an update is made at hop s, is the sum over t of ``updates[t]`` times that chance. One version serves
every number of recipients.

``law`` is a ``_sampled.SetLaw``.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.walks.compiled import chance, jit, jit_inline, jit_parallel

Array = Any
#: Rows of the state of each ciphertext, by the hop at which it was sealed.
LEFT, MET, MET_WEIGHT, TIME, SLOPE, SHARE, N_ROWS = 0, 1, 2, 3, 4, 5, 6


@jit
def find_entry(offsets: Array, table: Array, node: int, neighbour: int) -> int:
    """Return the place of ``neighbour`` in the list of ``node``."""
    first = offsets[node]
    return int(first + np.searchsorted(table[first : offsets[node + 1]], neighbour))


@jit_inline
def _arrive(path: Array, hop: int, law: Any, state: Array, last_visit: Array, oldest: int, least: float) -> Any:
    """Let the node at ``hop`` open what may be for it, and seal anew; the first update is made at hop 0.

    The node may open what was sealed since it was last met. ``state[SHARE, t]`` receives the probability that it opens
    what was sealed at t. Of a ciphertext, ``least`` or less is given up. Returns when the node was last met, the first
    hop whose ciphertext it may open, the probability that an update is made, and the oldest that may be unopened.
    """
    node, even, recipients = path[hop], law.even, law.recipients
    before = last_visit[node]
    since = max(before + 1, oldest)
    last_visit[node] = hop
    weights, total = law.weights[node], 0.0
    for then in range(since, hop):
        source, share = path[then], 0.0
        left, weight = state[LEFT, then], weights[source]
        if weight > 0.0 and left > least:
            hit, time, slope = chance(
                even[source], recipients, law.eligible[source], weight, state[MET, then], state[MET_WEIGHT, then],
                state[TIME, then], state[SLOPE, then],
            )  # fmt: skip
            share = left * hit
            state[LEFT, then] = left - share
            state[MET, then] += 1.0
            if not even[source]:
                state[MET_WEIGHT, then] += weight
                state[TIME, then] = time
                state[SLOPE, then] = slope
            total += share
        state[SHARE, then] = share
    if hop == 0:
        total = 1.0
    state[LEFT, hop] = total
    state[TIME, hop] = law.pace[node]
    state[SLOPE, hop] = law.slope[node]
    while oldest < hop and state[LEFT, oldest] <= least:
        oldest += 1
    return before, since, total, oldest


@jit_parallel
def follow_updates(
    paths: Array, law: Any, least: float, member: Array, distances: Array, updates: Array, openers: Array
) -> None:
    """Follow the updates along each path; the first is made where the path begins.

    ``updates[lane, 0, t]`` receives the probability, given the path, that an update is made at hop t; row 1 that it is
    and a colluder passes on its ciphertext, times how much likelier than at the sealing any node not met yet is a
    recipient. ``openers[lane, l, r, d]`` receives, unless it is empty, how often a colluder opens what a source l hops
    from the first colluder that had it sealed, the opener being r hops from that colluder and d from the source; longer
    distances count as the longest. ``member`` is the mask of colluders.
    """
    n_nodes, most = member.shape[0], openers.shape[1] - 1
    for lane in numba.prange(paths.shape[0]):
        path, size, eligible = paths[lane], paths.shape[1], law.eligible
        state = np.zeros((N_ROWS, size))
        last_visit = np.full(n_nodes, -1, np.int64)
        sighted = np.zeros(size, np.int32)
        # The oldest ciphertext that may still be unopened, and when a colluder last had the token.
        oldest, held = 0, 0
        for hop in range(size):
            node = path[hop]
            _, since, updates[lane, 0, hop], oldest = _arrive(path, hop, law, state, last_visit, oldest, least)
            if member[node]:
                for then in range(held, hop):
                    source = path[then]
                    sighted[then] = node
                    grown = eligible[source] / max(eligible[source] - state[MET, then], law.recipients)
                    if not law.even[source]:
                        grown = state[TIME, then] / law.pace[source]
                        if law.recipients == 1:
                            grown = 1.0 / max(1.0 - state[MET_WEIGHT, then], 1e-12)
                    updates[lane, 1, then] = state[LEFT, then] * grown
                held = hop
                for then in range(since if openers.shape[0] > 0 else hop, hop):
                    source, first = path[then], sighted[then]
                    if not member[source]:
                        away, onward = min(distances[source, first], most), min(distances[first, node], most)
                        openers[lane, away, onward, min(distances[source, node], most)] += state[SHARE, then]
        for then in range(held, size):
            updates[lane, 1, then] = 0.0


@jit_parallel
def tally_deliveries(
    paths: Array, law: Any, least: float, distances: Array, offsets: Array, table: Array, arc_of: Array, edges: Array,
    n_short: int, warm: int, won: Array, mass: Array, visits: Array, counted: Array, counted_visits: Array
) -> None:  # fmt: skip
    """Add up, over visits after hop ``warm``, the sources that may have sealed what is opened there.

    All tables have a half for every other lane. ``won[h, b, l, r]`` receives the probability that an update is opened
    after a return time in bin b from a source l hops away that is nearer to (r = 0), as far from (1) or farther from
    (2) the last hop than from the destination; ``mass[h, b, a]`` all that came by the arc with number a;
    ``visits[h, b]`` counts the visits. ``counted[h, b, a, i]`` and ``counted_visits[h, b, a]`` are by candidate i, with
    the first ``n_short`` bins and one for all others. Arcs without a number in ``arc_of`` are not counted.
    """
    for half in numba.prange(2):
        for lane in range(half, paths.shape[0], 2):
            path, size = paths[lane], paths.shape[1]
            state = np.zeros((N_ROWS, size))
            last_visit = np.full(law.weights.shape[0], -1, np.int64)
            oldest = 0
            for hop in range(size):
                node = path[hop]
                before, since, total, oldest = _arrive(path, hop, law, state, last_visit, oldest, least)
                if before < 0 or hop < warm or arc_of[offsets[node]] < 0 or total == 0.0:
                    continue
                bin_ = np.searchsorted(edges, hop - before)
                last = path[hop - 1]
                arc = arc_of[find_entry(offsets, table, node, last)]
                short = min(bin_, n_short)
                visits[half, bin_] += 1.0
                mass[half, bin_, arc] += total
                counted_visits[half, short, arc] += 1.0
                for then in range(since, hop):
                    source, share = path[then], state[SHARE, then]
                    away = distances[node, source]
                    won[half, bin_, away, min(max(distances[last, source] - away, -1), 1) + 1] += share
                    counted[half, short, arc, source] += share


@jit_parallel
def weigh_path(paths: Array, law: Any, least: float, first_row: Array, clocks: Array, out: Array) -> None:
    """Write into ``out[row, i]`` the weight of source i given the path: i may have sealed at each of its visits.

    Rows ``first_row[lane]`` to ``first_row[lane + 1]`` are openings on path ``lane`` at ``clocks``, ascending.
    """
    for lane in numba.prange(paths.shape[0]):
        path = paths[lane]
        state = np.zeros((N_ROWS, path.shape[0]))
        last_visit = np.full(law.weights.shape[0], -1, np.int64)
        oldest, row, stop = 0, first_row[lane], first_row[lane + 1]
        for hop in range(path.shape[0]):
            if row == stop:
                break
            _, since, _, oldest = _arrive(path, hop, law, state, last_visit, oldest, least)
            if clocks[row] == hop:
                for then in range(since, hop):
                    out[row, path[then]] += state[SHARE, then]
                row += 1


@jit
def tally_sights(
    path: Array, updates: Array, member: Array, offsets: Array, table: Array, arc_of: Array, warm: int, sights: Array
) -> None:
    """Add up, over stretches of a path from one colluder to the next, the sources of what the second one sees.

    ``arc_of`` numbers the arcs into colluders from others. ``sights[0, a, i]`` receives what i sealed that comes to the
    colluder by arc a unopened and is passed on: of sources that may choose that colluder, what it opens comes in nearly
    the same proportions. ``sights[1, a, i]`` receives everything that i sealed.
    """
    before = -1
    for hop in range(path.shape[0]):
        node = path[hop]
        if not member[node]:
            continue
        start, before = before, hop
        if start < warm or member[path[hop - 1]]:
            continue
        into = arc_of[find_entry(offsets, table, node, path[hop - 1])]
        for then in range(start + 1, hop):
            source, update = path[then], updates[0, then]
            if update > 0.0:
                sights[0, into, source] += updates[1, then]
                sights[1, into, source] += update
