"""Compiled loops over the paths of tokens whose ciphertexts are sealed for several: what who knows a path can say.

For whom a token is sealed has no bearing on where it goes. Given its path, what was sealed at hop t is opened at hop s
with the chance that nobody met between was a recipient and whoever is met there, for the first time since, is one. So
the set is summed out, never drawn: ``made[s]``, the probability that an update is made at hop s, is the sum over t of
``made[t]`` times that chance. With one recipient this is ``_kernels_paths``, at a higher price.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.audit.inference._kernels_paths import entry_of
from veilwalk.walks.compiled import chance, kernel, part, serial

#: Less than this of a ciphertext, still unopened, is given up.
NOTHING = 1e-8
#: Rows of what is followed of each ciphertext, by the hop at which it was sealed.
LEFT, MET, MET_WEIGHT, TIME, SLOPE, SHARE, N_ROWS = 0, 1, 2, 3, 4, 5, 6

Array = Any


@part
def seal_here(state: Array, hop: int, made: float, pace: float, slope: float) -> None:
    """Begin to follow what is sealed at ``hop`` with probability ``made``."""
    state[LEFT, hop] = made
    state[TIME, hop] = pace
    state[SLOPE, hop] = slope


@part
def open_here(
    path: Array, hop: int, since: int, weights: Array, eligible: Array, even: Array, recipients: int, state: Array
) -> float:
    """Let the node at ``hop``, last met before ``since``, open what was sealed since then.

    ``state[SHARE, t]`` receives the probability that it opens what was sealed at t; their sum is returned.
    ``weights[i]`` is the probability that source i draws it.
    """
    total = 0.0
    for then in range(since, hop):
        source, share = path[then], 0.0
        left, weight = state[LEFT, then], weights[source]
        if weight > 0.0 and left > NOTHING:
            hit, time, slope = chance(
                even[source],
                recipients,
                eligible[source],
                weight,
                state[MET, then],
                state[MET_WEIGHT, then],
                state[TIME, then],
                state[SLOPE, then],
            )
            share = left * hit
            state[LEFT, then] = left - share
            state[MET, then] += 1.0
            if not even[source]:
                state[MET_WEIGHT, then] += weight
                state[TIME, then] = time
                state[SLOPE, then] = slope
            total += share
        state[SHARE, then] = share
    return total


@kernel
def follow_sets(
    paths: Array,
    weights: Array,
    eligible: Array,
    even: Array,
    pace: Array,
    slopes: Array,
    recipients: int,
    member: Array,
    apart: Array,
    made: Array,
    openers: Array,
) -> None:
    """Follow the updates along each path, the first being made where it begins.

    ``made[lane, 0, t]`` receives the probability, given the path, that an update is made at hop t; row 1 that it is and
    a colluder passes on what it sealed, times how much likelier than at the sealing any node not met yet is a
    recipient.
    ``openers[lane, l, r, d]`` receives, unless it is empty, how often a colluder opens what a source l hops from the
    first colluder that had it sealed, the opener being r hops from that colluder and d from the source; longer
    distances count as the longest. ``weights[j]`` is the column of j. ``member`` holds the numbers of colluders, -1 for
    all others.
    """
    n_nodes = member.shape[0]
    for lane in numba.prange(paths.shape[0]):
        path, size = paths[lane], paths.shape[1]
        state = np.zeros((N_ROWS, size))
        seen = np.full(n_nodes, -1, np.int64)
        sighted = np.zeros(size, np.int32)
        # The oldest that may still be unopened, and when a colluder last had the token.
        oldest, held = 0, 0
        for hop in range(size):
            node = path[hop]
            since = max(seen[node] + 1, oldest)
            seen[node] = hop
            total = 1.0
            if hop > 0:
                total = open_here(path, hop, since, weights[node], eligible, even, recipients, state)
            made[lane, 0, hop] = total
            seal_here(state, hop, total, pace[node], slopes[node])
            if member[node] >= 0:
                for then in range(held, hop):
                    source = path[then]
                    sighted[then] = node
                    grown = eligible[source] / max(eligible[source] - state[MET, then], recipients)
                    if not even[source]:
                        grown = state[TIME, then] / pace[source]
                    made[lane, 1, then] = state[LEFT, then] * grown
                held = hop
                if openers.shape[0] > 0:
                    _count_openers(path, hop, since, member, apart, sighted, state, openers[lane])
            while oldest < hop and state[LEFT, oldest] <= NOTHING:
                oldest += 1
        for then in range(held, size):
            made[lane, 1, then] = 0.0


@part
def _count_openers(
    path: Array, hop: int, since: int, member: Array, apart: Array, sighted: Array, state: Array, openers: Array
) -> None:
    """Add what the colluder at ``hop`` has opened, by the distances of source, opener and first colluder."""
    node, most = path[hop], openers.shape[0] - 1
    for then in range(since, hop):
        source, first = path[then], sighted[then]
        if member[source] < 0:
            away, onward = min(apart[source, first], most), min(apart[first, node], most)
            openers[away, onward, min(apart[source, node], most)] += state[SHARE, then]


@kernel
def tally_openings(
    paths: Array,
    made: Array,
    weights: Array,
    eligible: Array,
    even: Array,
    pace: Array,
    slopes: Array,
    recipients: int,
    apart: Array,
    offsets: Array,
    table: Array,
    arc_of: Array,
    edges: Array,
    n_short: int,
    warm: int,
    won: Array,
    mass: Array,
    visits: Array,
    counted: Array,
    counted_visits: Array,
) -> None:
    """Add up, over visits after hop ``warm``, who may have sealed what is opened there.

    All tables have a half for every other lane. ``won[h, b, l, r]``, ``mass[h, b, a]`` and ``visits[h, b]`` are by
    class as in ``_kernels_paths.tally_deliveries``, ``counted[h, b, a, i]`` and ``counted_visits[h, b, a]`` by
    candidate as in ``tally_candidates``, the bins being the first ``n_short`` and one for all others. No visit is
    passed by.
    """
    for half in numba.prange(2):
        for lane in range(half, paths.shape[0], 2):
            path, size = paths[lane], paths.shape[1]
            state = np.zeros((N_ROWS, size))
            seen = np.full(weights.shape[0], -1, np.int64)
            oldest = 0
            for hop in range(size):
                node = path[hop]
                before = seen[node]
                since = max(before + 1, oldest)
                seen[node] = hop
                total = open_here(path, hop, since, weights[node], eligible, even, recipients, state)
                seal_here(state, hop, made[lane, 0, hop], pace[node], slopes[node])
                while oldest < hop and state[LEFT, oldest] <= NOTHING:
                    oldest += 1
                if before < 0 or hop < warm or arc_of[offsets[node]] < 0 or total == 0.0:
                    continue
                bin_ = np.searchsorted(edges, hop - before)
                last = path[hop - 1]
                arc = arc_of[entry_of(offsets, table, node, last)]
                short = min(bin_, n_short)
                visits[half, bin_] += 1.0
                mass[half, bin_, arc] += total
                counted_visits[half, short, arc] += 1.0
                for then in range(since, hop):
                    source, share = path[then], state[SHARE, then]
                    away = apart[node, source]
                    won[half, bin_, away, min(max(apart[last, source] - away, -1), 1) + 1] += share
                    counted[half, short, arc, source] += share


@kernel
def weigh_openings(
    paths: Array,
    made: Array,
    weights: Array,
    eligible: Array,
    even: Array,
    pace: Array,
    slopes: Array,
    recipients: int,
    first_row: Array,
    clocks: Array,
    out: Array,
) -> None:
    """Write into ``out[row, i]`` the weight of source i for who knows the path: it may have sealed at each visit to i.

    Rows ``first_row[lane]`` to ``first_row[lane + 1]`` are openings on path ``lane`` at ``clocks``, ascending.
    """
    for lane in numba.prange(paths.shape[0]):
        path = paths[lane]
        state = np.zeros((N_ROWS, path.shape[0]))
        seen = np.full(weights.shape[0], -1, np.int64)
        oldest, row, stop = 0, first_row[lane], first_row[lane + 1]
        for hop in range(path.shape[0]):
            if row == stop:
                break
            node = path[hop]
            since = max(seen[node] + 1, oldest)
            seen[node] = hop
            open_here(path, hop, since, weights[node], eligible, even, recipients, state)
            seal_here(state, hop, made[lane, 0, hop], pace[node], slopes[node])
            if clocks[row] == hop:
                for then in range(since, hop):
                    out[row, path[then]] += state[SHARE, then]
                row += 1
            while oldest < hop and state[LEFT, oldest] <= NOTHING:
                oldest += 1


@serial
def tally_sealed_sights(
    path: Array, made: Array, member: Array, offsets: Array, table: Array, arc_of: Array, warm: int, sights: Array
) -> None:
    """Add up, over stretches of a path from one colluder to the next, who may have sealed what the second one sees.

    As ``_kernels_paths.tally_sights``, but that what is sealed must come to the colluder unopened and be passed on: of
    those who may choose that colluder, what it opens comes in nearly the same proportions. ``sights[1, a, i]`` receives
    all that is sealed.
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
            source, here = path[then], made[0, then]
            if here > 0.0:
                sights[0, into, source] += made[1, then]
                sights[1, into, source] += here
