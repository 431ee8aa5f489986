"""Kernels of the filter by sampled paths: what members who hold the token now and then know of who sealed it.

States and layers are as in the exact kernel. This one serves any number of recipients, and graphs too large for tables
of all pairs. Where a token goes does not depend on for whom it is sealed. So bridges, ways of the token between two
sightings, are drawn exactly from all that avoid members. Level m holds for each state the chance to come to the next
sighting in m more hops, up to a factor of the level. After many hops it no longer matters how many: levels are then
alike, but for those of odd and even walks, and no more are made. On each bridge the openings are followed with the set
summed out: a *sealing* is the time at which the present ciphertext may have been sealed, with its weight, by the same
layers where updates are counted. Ways that explain little of what is seen are replaced by copies of others now and
then.

Smoothing goes over each way that is left at the end of a segment once more. Forwards it records every sealing and the
chance that each later one opened it; backwards it weighs every sealing by all that was seen afterwards. An update that
somebody held is named by its ciphertext, one that nobody held by its number.

Members that share keys know which of them are recipients of what they hold, and its number where one of them is.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from veilwalk.audit._kernels_exact import Links, way_out
from veilwalk.walks.compiled import chance, jit, jit_inline_nogc, jit_noinline_nogc, jit_parallel, next_word, weight_of

# Levels that differ by less are alike.
_EQUAL = 1e-9
_TOP_BITS = np.uint64(11)

Array = Any
# Rows of sealings: when, and by whom.
_WHEN, _MAKER = 0, 1
# And columns: eligible nodes not met since, the chance that it is unopened, the chance to be opened at present, the
# weight of those met, Rosen's time and slope, recipients not known yet, and from there on the weights of the sealing
# itself, by layers.
_LEFT, _SCALE, _SHARE, _MET_WEIGHT, _TIME, _SLOPE, _UNKNOWN, _WEIGHT = 0, 1, 2, 3, 4, 5, 6, 7
_PASSES, _MAY_OPEN, _OPENS = 0, 1, 2
#: What is asked at a sighting: nothing, who made what is held, what is opened, or each update of the whole segment.
UNASKED, HELD, OPENED, SMOOTHED = 0, 1, 2, 3
# Rows whose weights differ.
_UNEVEN = False
# Ways of less weight are not smoothed.
_NO_WEIGHT = 1e-6
# Sealings below this share of all are given up, when there are many.
_TINY, _TIDY = 1e-5, 32
# Ways are chosen anew when they are worth less than this share of them.
_WORTH = 0.5


@jit_inline_nogc
def uniform(stream: Array) -> float:
    """Return the next number in [0, 1) of a stream, which is one word."""
    stream[0], word = next_word(stream[0])
    return np.float64(word >> _TOP_BITS) * 2.0**-53


@jit
def fill_levels(
    ahead: Links, place: Array, free: Array, marked: Array, must: Any, end: Array, hops: int,
    plain: Array, through: Array
) -> Any:  # fmt: skip
    """Fill levels 0 to ``hops``, or until they are alike; return the last.

    ``plain`` is for ways through free states to ``end``; ``through``, if it ``must`` be, for those of them that have
    yet to come to a marked node.
    """
    n_states = place.shape[0]
    for z in range(n_states):
        plain[0, z] = end[z]
        through[0, z] = 0.0
    last = min(hops, plain.shape[0] - 1)
    for m in range(1, last + 1):
        most = 0.0
        for z in range(n_states):
            total, part = 0.0, 0.0
            if free[z]:
                for e in range(ahead[0][z], ahead[0][z + 1]):
                    y = ahead[1][e]
                    total += ahead[2][e] * plain[m - 1, y]
                    if must:
                        part += ahead[2][e] * (plain[m - 1, y] if marked[place[y]] else through[m - 1, y])
            plain[m, z] = total
            through[m, z] = part
            most = max(most, total)
        if most == 0.0:
            return m
        change = 0.0
        for z in range(n_states):
            plain[m, z] /= most
            through[m, z] /= most
            if m > 1:
                change = max(change, abs(plain[m, z] - plain[m - 2, z]), abs(through[m, z] - through[m - 2, z]))
        if m > 2 and change < _EQUAL:
            return m
    return last


@jit_inline_nogc
def next_state(
    ahead: Links, place: Array, marked: Array, met: Any, z: int, plain: Array, through: Array,
    stream: Array
) -> int:  # fmt: skip
    """Draw where a way goes from state z, with the levels of what is left of it; ``met``: it need not be marked."""
    total = 0.0
    for e in range(ahead[0][z], ahead[0][z + 1]):
        y = ahead[1][e]
        total += ahead[2][e] * (plain[y] if met or marked[place[y]] else through[y])
    goal, chosen = uniform(stream) * total, -1
    for e in range(ahead[0][z], ahead[0][z + 1]):
        y = ahead[1][e]
        share = ahead[2][e] * (plain[y] if met or marked[place[y]] else through[y])
        if share > 0.0:
            chosen = y
            goal -= share
            if goal < 0.0:
                break
    return chosen


@jit_inline_nogc
def _come_to_node(
    law: Any, even: Any, whole: Array, real: Array, n: int, old: int, visit: int, node: int, mode: int, climb: int,
    born: Array
) -> bool:  # fmt: skip
    """Let the token come to ``node``, last visited at ``visit``; ``born`` gets the weights of sealing there anew.

    A recipient opens when first met: only sealings after ``visit`` may be opened here. Those up to ``old`` are of the
    ciphertext that was last sighted. ``even``: all rows of the law are even, and it has a table. Returns whether
    anything may be opened.
    """
    n_layers, first, table = born.shape[0], n, law.weights
    while first > 0 and whole[_WHEN, first - 1] > visit:
        first -= 1
    total = 0.0
    if even:
        for i in range(first, n):
            weight = 1.0 if table[node, whole[_MAKER, i]] > 0.0 else 0.0
            unknown = real[i, _UNKNOWN]
            share = real[i, _SCALE] * weight * unknown / max(real[i, _LEFT], unknown, 1.0)
            real[i, _LEFT] -= weight
            real[i, _SHARE] = share
            real[i, _SCALE] -= share
            total += share
    else:
        for i in range(first, n):
            source, share = whole[_MAKER, i], 0.0
            # Looked up where there is a table, by columns: that is several times as fast.
            if table.shape[0]:
                weight = table[node, source]
            else:
                weight = weight_of(law.offsets, law.columns, law.chances, source, node)
            if weight > 0.0 and real[i, _UNKNOWN] > 0.0:
                if law.even[source]:
                    hit, time, slope = real[i, _UNKNOWN] / max(real[i, _LEFT], real[i, _UNKNOWN]), 0.0, 0.0
                else:
                    hit, time, slope = chance(
                        _UNEVEN, law.recipients, 0, weight, 0, real[i, _MET_WEIGHT], real[i, _TIME], real[i, _SLOPE]
                    )
                real[i, _LEFT] -= 1.0
                real[i, _MET_WEIGHT] += weight
                real[i, _TIME] = time
                real[i, _SLOPE] = slope
                share = real[i, _SCALE] * hit
            real[i, _SHARE] = share
            real[i, _SCALE] -= share
            total += share
    if mode == _OPENS:
        for i in range(n):
            real[i, _SCALE] = real[i, _SHARE] if i >= first else 0.0
    elif mode == _MAY_OPEN and total > 0.0:
        for j in range(n_layers):
            born[j] = 0.0
        for i in range(first, n):
            higher = 1 if climb and i >= old else 0
            for j in range(higher, n_layers):
                born[j] += real[i, _WEIGHT + j - higher] * real[i, _SHARE]
    return total > 0.0


@jit_inline_nogc
def _sum_layers(real: Array, i: int, first: int) -> Any:
    """Return the weight of a sealing in its layers from ``first`` on."""
    total = 0.0
    for column in range(_WEIGHT + first, real.shape[1]):
        total += real[i, column]
    return total * real[i, _SCALE]


@jit_inline_nogc
def _add_sealing(law: Any, whole: Array, real: Array, n: int, node: int, now: int, born: Array) -> int:
    """Add the sealing of a ciphertext; return how many there are."""
    whole[_WHEN, n] = now
    whole[_MAKER, n] = node
    real[n, _LEFT] = law.eligible[node]
    real[n, _SCALE] = 1.0
    real[n, _MET_WEIGHT] = 0.0
    real[n, _TIME] = law.pace[node]
    real[n, _SLOPE] = law.slope[node]
    real[n, _UNKNOWN] = law.recipients
    for j in range(born.shape[0]):
        real[n, _WEIGHT + j] = born[j]
    return n + 1


@jit_inline_nogc
def _move_sealing(whole: Array, real: Array, i: int, place: int) -> None:
    """Move a sealing to an earlier place."""
    for row in range(whole.shape[0]):
        whole[row, place] = whole[row, i]
    for column in range(real.shape[1]):
        real[place, column] = real[i, column]


@jit_noinline_nogc
def _drop_sealings(whole: Array, real: Array, n: int, old: int, room: int) -> Any:
    """Give up sealings of hardly any weight, and more until there are fewer than ``room``; return how many are left."""
    total = 0.0
    for i in range(n):
        total += _sum_layers(real, i, 0)
    tiny = _TINY * total
    while True:
        n_left, n_old = 0, old
        for i in range(n):
            if _sum_layers(real, i, 0) > tiny:
                if n_left < i:
                    _move_sealing(whole, real, i, n_left)
                n_left += 1
            elif i < old:
                n_old -= 1
        n, old = n_left, n_old
        if n < room:
            return n, old
        tiny *= 10.0


@jit_noinline_nogc
def _draw_way(
    ahead: Any, place: Array, law: Any, even: Any, marked: Array, must: Any, changed: Any, start: int,
    hops: int, clock: int, skip: int, top: int, plain: Array, through: Array, climb: int, whole: Array, real: Array,
    n: int, last: Array, stream: Array, born: Array, trail: Array
) -> Any:  # fmt: skip
    """Draw a way of ``hops`` hops from ``start``, and follow the openings on it; ``trail`` gets its nodes by time.

    ``must``: the ciphertext is one's own, whose recipients are marked, and was opened by one of them. What was sealed
    before hop ``skip`` is long forgotten. Returns the number of sealings, and how many of them are from before.
    """
    z, old, room = start, n, whole.shape[1]
    waits, mode = must, _MAY_OPEN if changed else _PASSES
    for t in range(hops + 1):
        if t:
            # Levels after the last are like it, or the one before.
            level = hops - t if hops - t <= top else top - ((hops - t - top) & 1)
            z = next_state(ahead, place, marked, not waits, z, plain[level], through[level], stream)
            if z < 0:
                return 0, 0
        node, now = place[z], clock + 1 + t
        trail[now] = node
        if t < skip:
            continue
        if (t == skip and skip > 0) or (waits and marked[node]):
            waits = False
            born[:] = 0.0
            born[0] = 1.0
            n, old = _add_sealing(law, whole, real, 0, node, now, born), 0
        elif n > 0 and _come_to_node(law, even, whole, real, n, old, last[node], node, mode, climb, born) and changed:
            if n == room or t % _TIDY == 0:
                n, old = _drop_sealings(whole, real, n, old, room)
            n = _add_sealing(law, whole, real, n, node, now, born)
        last[node] = now
    return n, old


@jit
def _choose_anew(
    weights: Array, whole: Array, real: Array, count: Array, last: Array, trail: Array, now: int, stream: Array
) -> None:  # fmt: skip
    """Replace ways of little weight by copies of heavy ones, in place, and give all the same weight."""
    n_ways = weights.shape[0]
    copies = np.zeros(n_ways, np.int64)
    reached, point = 0.0, uniform(stream) / n_ways
    for p in range(n_ways):
        reached += weights[p]
        while point < reached:
            copies[p] += 1
            point += 1.0 / n_ways
    spare = 0
    for p in range(n_ways):
        while copies[p] > 1:
            while spare < n_ways and copies[spare] > 0:
                spare += 1
            if spare == n_ways:
                break
            n = count[p]
            whole[spare, :, :n] = whole[p, :, :n]
            real[spare, :n] = real[p, :n]
            last[spare] = last[p]
            trail[spare, :now] = trail[p, :now]
            count[spare] = n
            copies[spare] = 1
            copies[p] -= 1
    weights[:] = 1.0 / n_ways


@jit_noinline_nogc
def _log_choose(total: float, chosen: float) -> float:
    """Return the logarithm of the number of sets of ``chosen`` among ``total``."""
    return math.lgamma(total + 1.0) - math.lgamma(chosen + 1.0) - math.lgamma(total - chosen + 1.0)


@jit_noinline_nogc
def _learn_recipients(law: Any, reach: Array, shared: Array, whole: Array, real: Array, n: int) -> None:
    """Weigh each sealing by which members are its recipients, ``shared``, padded with -1.

    ``reach[x]``: how many members x may seal for, and their weight. None of them was met since the sealing.
    """
    for i in range(n):
        source, left, unknown, known, weights = whole[_MAKER, i], real[i, _LEFT], real[i, _UNKNOWN], 0, 0.0
        time, share = real[i, _TIME], 1.0
        for column in range(shared.shape[0]):
            node = shared[column]
            if node < 0:
                break
            weight = weight_of(law.offsets, law.columns, law.chances, source, node)
            known += 1
            weights += weight
            if weight <= 0.0:
                share = 0.0
            elif not law.even[source] and law.recipients > 1:
                share *= 1.0 - math.exp(-weight * time)
        if law.even[source]:
            rest = left - reach[source, 0]
            if left < unknown or rest < unknown - known or known > unknown:
                share = 0.0
            else:
                share *= math.exp(_log_choose(rest, unknown - known) - _log_choose(left, unknown))
            real[i, _LEFT] = rest
        elif law.recipients > 1:
            share *= math.exp(-(reach[source, 1] - weights) * time)
        else:
            free = max(1.0 - real[i, _MET_WEIGHT], 1e-12)
            share *= weights / free if known > 0 else max(free - reach[source, 1], 0.0) / free
            real[i, _MET_WEIGHT] += reach[source, 1]
        real[i, _UNKNOWN] = unknown - known
        real[i, _SCALE] *= share


@jit_noinline_nogc
def _weigh_sighting(
    law: Any, even: Any, whole: Array, real: Array, n: int, old: int, changed: Any, own: Any, visit: int, node: int,
    opens: Any, keys: Any, reach: Array, shared: Array, pin: int, born: Array
) -> Any:  # fmt: skip
    """Let a member hold what came, or open it; return how well that is explained, and the sealings that are left.

    ``keys``: members share them, and know who of them is a recipient. Then ``pin`` is the layer that they read, or -1.
    """
    if not keys:
        _come_to_node(law, even, whole, real, n, old, visit, node, _OPENS if opens else _PASSES, 0, born)
    if changed and old > 0:
        for i in range(old, n):
            _move_sealing(whole, real, i, i - old)
        n -= old
    if own:
        return 1.0, 0
    if keys and changed:
        _learn_recipients(law, reach, shared, whole, real, n)
        for j in range(born.shape[0]):
            if 0 <= pin != j:
                for i in range(n):
                    real[i, _WEIGHT + j] = 0.0
    # The message that is opened states the number of updates: nothing is left to come.
    first, explained = born.shape[0] - 1 if opens else 0, 0.0
    for i in range(n):
        explained += _sum_layers(real, i, first)
    if explained > 0.0:
        for i in range(n):
            real[i, _SCALE] /= explained
    return explained, n


@jit
def _smooth_way(
    law: Any, even: Any, marked: Array, own: Any, starter: int, climb: int, longest: int, windows: Array, keys: Any,
    reach: Array, shared: Array, trail: Array, weight: float, whole: Array, real: Array, unheld: Array, out: Array
) -> None:  # fmt: skip
    """Add to ``out``, times ``weight``, the makers of all updates of a segment by everything seen in it, given a way.

    Row ``number - 1`` is for an update of that number that nobody held, if it is asked; the rows of ciphertexts that
    somebody held are those of their windows.
    """
    n_layers, size = real.shape[1] - _WEIGHT, trail.shape[0] + 2
    last, born = np.full(reach.shape[0], -1, np.int32), np.zeros(n_layers)
    # Of each sealing, by layers: the weight of what was seen before, and of what was seen after it if somebody held
    # what it sealed, or else if nobody did.
    before, held, unseen = np.zeros((size, n_layers)), np.zeros((size, n_layers)), np.zeros((size, n_layers))
    maker, window = np.empty(size, np.int32), np.full(size, -1, np.int32)
    # The sealings from begins on may be opened by a later one, those below crossed of an older ciphertext.
    begins, crossed, places = np.zeros(size, np.int32), np.zeros(size, np.int32), np.zeros(size, np.int32)
    shares = np.empty(8 * size)
    # Sealings are numbered; the one at place i of those at hand has the number base + i.
    n, base, n_shares, explained = 0, 0, 0, 1.0
    last[starter] = 0
    if not own:
        born[0] = 1.0
        n = _add_sealing(law, whole, real, 0, starter, 0, born)
        maker[0], before[0, 0] = starter, 1.0
    for w in range(windows.shape[0]):
        _, hops, _, _, new, ask, clock, _, pin, node = windows[w]
        changed, old = new == 1, n
        skip = hops - longest if changed and climb == 0 and hops > longest else 0
        waits = own and changed and skip == 0
        for t in range(skip, hops + 1):
            here, now = trail[clock + 1 + t], clock + 1 + t
            visit, first, sealed = last[here], n, False
            last[here] = now
            if (t == skip and skip > 0) or (waits and marked[here]):
                first, waits, sealed = 0, False, True
                born[:] = 0.0
                born[0] = 1.0
                real[:n, _SHARE] = real[:n, _SCALE]
            elif n > 0 and _come_to_node(
                law, even, whole, real, n, old, visit, here, _MAY_OPEN if changed else _PASSES, climb, born
            ):
                sealed = changed
                while first > 0 and whole[_WHEN, first - 1] > visit:
                    first -= 1
            if not sealed:
                continue
            if n_shares + n > shares.shape[0]:
                shares = np.concatenate((shares, shares))
            begins[base + n], crossed[base + n], places[base + n] = base + first, base + old, n_shares
            for i in range(first, n):
                shares[n_shares] = real[i, _SHARE]
                n_shares += 1
            if t == skip and skip > 0:
                base, n, old = base + n, 0, 0
            maker[base + n], window[base + n] = here, w
            before[base + n] = born
            n = _add_sealing(law, whole, real, n, here, now, born)
        explained, rest = _weigh_sighting(
            law, even, whole, real, n, old, changed, own and not changed, last[node], node, ask >= OPENED, keys,
            reach, shared[w], pin, born,
        )  # fmt: skip
        base, n = base + n - rest, rest
        last[node] = clock + hops + 2
        own = own and not changed
        if not explained > 0.0:
            return
    fewest = np.cumsum(windows[:, 4])
    for i in range(n):
        held[base + i, n_layers - 1] = real[i, _SCALE]
    for end in range(base + n - 1, -1, -1):
        # All that may open what it sealed come later: its weights are complete.
        w = window[end]
        for j in range(n_layers):
            if w >= 0:
                if 0 <= windows[w, 8] != j:
                    held[end, j] = 0.0
                out[windows[w, 7], maker[end]] += weight * before[end, j] * held[end, j]
                row = fewest[w] + j - 1
                if climb and j < n_layers - 1 and unheld[row]:
                    out[row, maker[end]] += weight * before[end, j] * unseen[end, j]
            unseen[end, j] += held[end, j]
        for place in range(places[end], n_shares):
            begin, share = begins[end] + place - places[end], shares[place]
            if begin < crossed[end]:
                for j in range(n_layers):
                    held[begin, j] += share * unseen[end, j]
            else:
                for j in range(n_layers - climb):
                    unseen[begin, j] += share * unseen[end, j + climb]
        n_shares = places[end]


@jit
def _follow_segment(
    ahead: Any, back: Any, law: Any, place: Array, free: Array, starter: int, drawn: Array, own: Any,
    n_layers: int, climb: int, windows: Array, keys: Any, reach: Array, shared: Array, n_ways: int, longest: int,
    most_levels: int, seed: Any, unheld: Array, out: Array
) -> None:  # fmt: skip
    """Follow one segment; its ``windows`` have a row each."""
    n_nodes, n_states = out.shape[1], place.shape[0]
    widest = max(windows[:, 1].max(), 0)
    room = min(2 * (widest if climb else min(widest, longest)) + 6, 1024)
    n_levels = min(widest, most_levels) + 1
    plain, through = np.empty((n_levels, n_states)), np.empty((n_levels, n_states))
    whole, real = np.empty((n_ways, 2, room), np.int32), np.empty((n_ways, room, _WEIGHT + n_layers))
    count, weights = np.zeros(n_ways, np.int64), np.full(n_ways, 1.0 / n_ways)
    last, born = np.full((n_ways, n_nodes), -1, np.int32), np.zeros(n_layers)
    stream, marked = np.full(1, seed), np.zeros(n_nodes, np.bool_)
    even = law.even.all() and law.weights.shape[0] > 0
    length = windows[-1, 6] + windows[-1, 1] + 2
    trail = np.full((n_ways, length), -1, np.int32)
    last[:, starter] = 0
    knew = own
    if own:
        marked[drawn] = True
    else:
        born[0] = 1.0
        for p in range(n_ways):
            count[p] = _add_sealing(law, whole[p], real[p], 0, starter, 0, born)
    for w in range(windows.shape[0]):
        start, hops, came_from, target, new, ask, clock, row, pin, node = windows[w]
        changed, top = new == 1, 0
        skip = hops - longest if changed and not climb and hops > longest else 0
        must = own and changed and skip == 0
        if hops >= 0:
            clear = free.copy()
            if own and not changed:
                for z in range(n_states):
                    clear[z] &= not marked[place[z]]
            end = way_out(back, place, clear, came_from, target)
            top = fill_levels(ahead, place, clear, marked, must, end, hops, plain, through)
        for p in range(n_ways):
            n, old = count[p], count[p]
            if hops >= 0:
                n, old = _draw_way(
                    ahead, place, law, even, marked, must, changed, start, hops, clock, skip, top, plain,
                    through, climb, whole[p], real[p], n, last[p], stream, born, trail[p],
                )  # fmt: skip
            now = clock + hops + 2
            explained, count[p] = _weigh_sighting(
                law, even, whole[p], real[p], n, old, changed, own and not changed, last[p, node], node,
                ask >= OPENED, keys, reach, shared[w], pin, born,
            )  # fmt: skip
            last[p, node] = now
            weights[p] *= explained
        own = own and not changed
        total = weights.sum()
        if not total > 0.0:
            return
        weights /= total
        if ask == SMOOTHED:
            room = length + 2
            long_whole, long_real = np.empty((2, room), np.int32), np.empty((room, _WEIGHT + n_layers))
            for p in range(n_ways):
                if weights[p] > _NO_WEIGHT:
                    _smooth_way(
                        law, even, marked, knew, starter, climb, longest, windows, keys, reach, shared, trail[p],
                        weights[p], long_whole, long_real, unheld, out,
                    )  # fmt: skip
        elif ask != UNASKED:
            for p in range(n_ways):
                for i in range(count[p]):
                    weight = _sum_layers(real[p], i, n_layers - 1 if ask == OPENED else 0)
                    out[row, whole[p, _MAKER, i]] += weights[p] * weight
        # The effective number of ways.
        if 1.0 / (weights * weights).sum() < _WORTH * n_ways:
            _choose_anew(weights, whole, real, count, last, trail, clock + hops + 2, stream)


@jit
def reach_members(law: Any, members: Array) -> Array:
    """Return for each mask of members how many of them each node may seal for, and their weight."""
    n_nodes = members.shape[1]
    reach = np.zeros((members.shape[0], n_nodes, 2))
    for group in range(members.shape[0]):
        for node in range(n_nodes):
            if members[group, node]:
                for source in range(n_nodes):
                    weight = weight_of(law.offsets, law.columns, law.chances, source, node)
                    reach[group, source, 0] += 1.0 if weight > 0.0 else 0.0
                    reach[group, source, 1] += weight
    return reach


@jit_parallel
def sample_segments(
    ahead: Any, back: Any, law: Any, place: Array, frees: Array, group: Array, bounds: Array,
    starter: Array, drawn: Array, knows: Array, slack: Array, climbs: Array, windows: Array, keys: Any,
    reach: Array, shared: Array, n_ways: int, longest: int, most_levels: int, seeds: Array, rows: Array,
    unheld: Array, out: Array
) -> None:  # fmt: skip
    """Follow every segment through its windows with so many ways; ``out`` gets the weights of makers where asked.

    Windows have columns: start, hops, last node, state at the sighting, new or not, what is asked, when it begins, the
    row of the answer, the layer that is read or -1, and the member; the rest is as in the exact kernel. ``drawn[s]``:
    for whom ``starter[s]`` sealed the first ciphertext, if that is known. ``reach`` and ``shared`` are for members that
    share ``keys``. Segment s has the rows ``rows[s]:rows[s + 1]`` of ``out``, and those of its windows are counted from
    there; where it is smoothed, ``unheld`` marks those of updates that nobody held. Of a window in which the ciphertext
    changed only the last ``longest`` hops are followed, unless updates are counted. Where no way explains what was seen
    nothing is said any more.
    """
    for s in numba.prange(bounds.shape[0] - 1):
        a, b, first, last = bounds[s], bounds[s + 1], rows[s], rows[s + 1]
        _follow_segment(
            ahead, back, law, place, frees[group[s]], starter[s], drawn[s], knows[s], slack[s] + 1, climbs[s],
            windows[a:b], keys, reach[group[s]], shared[a:b], n_ways, longest, most_levels, seeds[s],
            unheld[first:last], out[first:last],
        )  # fmt: skip
