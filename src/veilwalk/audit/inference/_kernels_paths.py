"""Compiled loops over the paths of tokens: what an observer that knows a path can say of the updates made on it.

For whom a token is sealed has no bearing on where it goes. So given its path the updates are a renewal process that
can be followed exactly: ``sealed[d]`` is the probability that the token is sealed for d; at a visit to x that of x is
the probability that an update is made there, and is sealed anew by the row of x.

Of several recipients, what was sealed at hop t is opened at hop s with the chance that nobody met between was a
recipient and the node met there, for the first time since, is one. So the set is summed out, never drawn: ``made[s]``,
the probability that an update is made at hop s, is the sum over t of ``made[t]`` times that chance. With one recipient
both are the same, but the second costs more.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.walks.compiled import chance, kernel, part, serial

Array = Any
#: Less than this of a ciphertext, still unopened, is given up.
NOTHING = 1e-8
#: Rows of what is followed of each ciphertext, by the hop at which it was sealed.
LEFT, MET, MET_WEIGHT, TIME, SLOPE, SHARE, N_ROWS = 0, 1, 2, 3, 4, 5, 6


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
    class as in :func:`tally_deliveries`, ``counted[h, b, a, i]`` and ``counted_visits[h, b, a]`` by
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

    As :func:`tally_sights`, but that what is sealed must come to the colluder unopened and be passed on: of
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
