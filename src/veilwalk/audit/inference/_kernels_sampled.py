"""Kernels of the filter by sampled paths: for any number of recipients, and graphs too large for tables of all pairs.

Where a token goes does not depend on for whom it is sealed. So bridges, ways of the token between two sightings, are
drawn exactly from all that avoid members. Level m holds for each state the chance to come to the next sighting in m
more hops, up to a factor of the level. After many hops it no longer matters how many: levels are then alike, but for
those of odd and even walks, and no more are made.

On each bridge the openings are followed with the set summed out: a *sealing* is the time at which the present
ciphertext may have been sealed, with its weight. Layer j of a weight is for j updates more than the fewest that explain
what was seen, where that is counted. Ways that explain little of what is seen are replaced by copies of others now and
then.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.audit.inference._kernels_filter import way_out
from veilwalk.walks.compiled import chance, kernel, part, serial, weight_of

# Levels that differ by less are alike.
_ALIKE = 1e-9
_WEYL = np.uint64(0x9E3779B97F4A7C15)
_MIX, _MIX_AGAIN = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_FIRST, _SECOND, _THIRD, _TOP_BITS = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)

Array = Any
# Columns of sealings: when, by whom, and how many eligible nodes were met since.
_WHEN, _MAKER, _MET = 0, 1, 2
# And the weight of those, Rosen's time and slope, and weights of the sealing itself from there on.
_MET_WEIGHT, _TIME, _SLOPE, _WEIGHT = 0, 1, 2, 3
_PASSES, _MAY_OPEN, _OPENS = 0, 1, 2
#: What is asked at a sighting: nothing, who made what is held, who made what is opened.
UNASKED, HELD, OPENED = 0, 1, 2
# Sealings below this share of all are given up, when there are many.
_TINY, _TIDY = 1e-5, 32
# Ways are chosen anew when they are worth less than this share of them.
_WORTH = 0.5


@part
def uniform(stream: Array) -> float:
    """Return the next number in [0, 1) of a stream, which is one word (splitmix64)."""
    stream[0] += _WEYL
    word = stream[0]
    word = (word ^ (word >> _FIRST)) * _MIX
    word = (word ^ (word >> _SECOND)) * _MIX_AGAIN
    word ^= word >> _THIRD
    return np.float64(word >> _TOP_BITS) * 2.0**-53


@serial
def fill_levels(
    ahead: tuple[Array, Array, Array], place: Array, free: Array, marked: Array, must: Any, end: Array, hops: int,
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
        apart = 0.0
        for z in range(n_states):
            plain[m, z] /= most
            through[m, z] /= most
            if m > 1:
                apart = max(apart, abs(plain[m, z] - plain[m - 2, z]), abs(through[m, z] - through[m - 2, z]))
        if m > 2 and apart < _ALIKE:
            return m
    return last


@part
def level_of(m: int, last: int) -> int:
    """Return which level serves m hops if ``last`` is the last."""
    return m if m <= last else last - ((m - last) & 1)


@part
def next_state(
    ahead: tuple[Array, Array, Array], place: Array, marked: Array, met: Any, z: int, plain: Array, through: Array,
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


@serial
def _meet(
    law: Any, recipients: int, whole: Array, real: Array, n: int, old: int, seen: int, node: int, mode: int, climb: int,
    born: Array
) -> None:  # fmt: skip
    """Let the token come to ``node``, last seen at ``seen``; ``born`` gets the weights of opening and sealing there.

    A recipient opens when first met: only sealings after ``seen`` may be opened here. Those up to ``old`` are of the
    ciphertext that was last sighted.
    """
    n_layers = born.shape[0]
    born[:] = 0.0
    for i in range(n - 1, -1, -1):
        weight = 0.0
        if whole[i, _WHEN] > seen:
            source = np.int64(whole[i, _MAKER])
            # Looked up where there is a table, by columns: that is several times as fast.
            table = law[7]
            weight = table[node, source] if table.shape[0] else weight_of(law[0], law[1], law[2], source, node)
        elif mode != _OPENS:
            break
        if weight == 0.0:
            if mode == _OPENS:
                real[i, _WEIGHT:] = 0.0
            continue
        hit, time, slope = chance(
            law[4][source], recipients, law[3][source], weight, whole[i, _MET], real[i, _MET_WEIGHT], real[i, _TIME],
            real[i, _SLOPE],
        )  # fmt: skip
        whole[i, _MET] += 1
        real[i, _MET_WEIGHT] += weight
        real[i, _TIME] = time
        real[i, _SLOPE] = slope
        up = climb if i >= old else 0
        for j in range(n_layers):
            share = real[i, _WEIGHT + j]
            if mode == _OPENS:
                real[i, _WEIGHT + j] = share * hit
                continue
            real[i, _WEIGHT + j] = share * (1.0 - hit)
            if mode == _MAY_OPEN and j + up < n_layers:
                born[j + up] += share * hit


@serial
def _seal(law: Any, whole: Array, real: Array, n: int, node: int, now: int, born: Array) -> int:
    whole[n, _WHEN] = now
    whole[n, _MAKER] = node
    whole[n, _MET] = 0
    real[n, _MET_WEIGHT] = 0.0
    real[n, _TIME] = law[5][node]
    real[n, _SLOPE] = law[6][node]
    real[n, _WEIGHT:] = born
    return n + 1


@serial
def _tidy(whole: Array, real: Array, n: int, old: int, room: int) -> Any:
    """Give up sealings of hardly any weight, and more until there are fewer than ``room``; return how many are left."""
    tiny = _TINY * real[:n, _WEIGHT:].sum()
    while True:
        kept, kept_old = 0, old
        for i in range(n):
            if real[i, _WEIGHT:].sum() > tiny:
                if kept < i:
                    whole[kept] = whole[i]
                    real[kept] = real[i]
                kept += 1
            elif i < old:
                kept_old -= 1
        n, old = kept, kept_old
        if n < room:
            return n, old
        tiny *= 10.0


@serial
def _go(
    ahead: Any, place: Array, law: Any, recipients: int, marked: Array, must: Any, changed: Any, start: int, hops: int,
    clock: int, skip: int, top: int, plain: Array, through: Array, climb: int, whole: Array, real: Array, n: int,
    last: Array, stream: Array, born: Array
) -> Any:  # fmt: skip
    """Draw a way of ``hops`` hops from ``start``, and follow the openings on it.

    ``must``: the ciphertext is one's own, whose recipients are marked, and was opened by one of them. What was sealed
    before hop ``skip`` is long forgotten. Returns the number of sealings, and how many of them are from before.
    """
    z, old, room = start, n, whole.shape[0]
    waits = must
    for t in range(hops + 1):
        if t:
            level = level_of(hops - t, top)
            z = next_state(ahead, place, marked, not waits, z, plain[level], through[level], stream)
            if z < 0:
                return 0, 0
        node, now = place[z], clock + 1 + t
        if t < skip:
            continue
        if (t == skip and skip > 0) or (waits and marked[node]):
            waits = False
            born[:] = 0.0
            born[0] = 1.0
            n, old = _seal(law, whole, real, 0, node, now, born), 0
        elif n > 0:
            mode = _MAY_OPEN if changed else _PASSES
            _meet(law, recipients, whole, real, n, old, last[node], node, mode, climb, born)
            if changed and born.sum() > 0.0:
                if n == room or t % _TIDY == 0:
                    n, old = _tidy(whole, real, n, old, room)
                n = _seal(law, whole, real, n, node, now, born)
        last[node] = now
    return n, old


@serial
def _choose_anew(weights: Array, whole: Array, real: Array, count: Array, last: Array, stream: Array) -> None:
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
            whole[spare, :n] = whole[p, :n]
            real[spare, :n] = real[p, :n]
            last[spare] = last[p]
            count[spare] = n
            copies[spare] = 1
            copies[p] -= 1
    weights[:] = 1.0 / n_ways


@serial
def _weigh(
    law: Any, recipients: int, whole: Array, real: Array, n: int, old: int, changed: Any, own: Any, seen: int,
    node: int, opens: Any, born: Array
) -> Any:  # fmt: skip
    """Let a member hold what came, or open it; return how well that is explained, and the sealings that are left."""
    _meet(law, recipients, whole, real, n, old, seen, node, _OPENS if opens else _PASSES, 0, born)
    if changed and old > 0:
        for i in range(old, n):
            whole[i - old] = whole[i]
            real[i - old] = real[i]
        n -= old
    if own:
        return 1.0, 0
    # All updates are told of by who opens: nothing is left to come.
    first = _WEIGHT + (born.shape[0] - 1 if opens else 0)
    explained = real[:n, first:].sum()
    if explained > 0.0:
        real[:n, _WEIGHT:] /= explained
    return explained, n


@serial
def _tell(weights: Array, whole: Array, real: Array, count: Array, first: int, out: Array) -> None:
    """Add up who made what is held."""
    for p in range(weights.shape[0]):
        for i in range(count[p]):
            out[whole[p, i, _MAKER]] += weights[p] * real[p, i, first:].sum()


@serial
def _follow(
    ahead: Any, back: Any, law: Any, recipients: int, place: Array, free: Array, starter: int, drawn: Array, own: Any,
    n_layers: int, climb: int, windows: Array, n_ways: int, longest: int, most_levels: int, seed: Any, out: Array,
    worth: Array
) -> None:  # fmt: skip
    """Follow one segment; its ``windows`` have a row each."""
    n_nodes, n_states = out.shape[1], place.shape[0]
    widest = max(windows[:, 1].max(), 0)
    room = min(2 * (widest if climb else min(widest, longest)) + 6, 1024)
    n_levels = min(widest, most_levels) + 1
    plain, through = np.empty((n_levels, n_states)), np.empty((n_levels, n_states))
    whole, real = np.empty((n_ways, room, 3), np.int32), np.empty((n_ways, room, _WEIGHT + n_layers))
    count, weights = np.zeros(n_ways, np.int64), np.full(n_ways, 1.0 / n_ways)
    last, born = np.full((n_ways, n_nodes), -1, np.int32), np.zeros(n_layers)
    stream, marked = np.full(1, seed), np.zeros(n_nodes, np.bool_)
    last[:, starter] = 0
    if own:
        marked[drawn] = True
    else:
        born[0] = 1.0
        for p in range(n_ways):
            count[p] = _seal(law, whole[p], real[p], 0, starter, 0, born)
    for w in range(windows.shape[0]):
        start, hops, came_from, target, new, ask, clock, row = windows[w]
        changed, node, top = new == 1, place[target], 0
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
                n, old = _go(
                    ahead, place, law, recipients, marked, must, changed, start, hops, clock, skip, top, plain, through,
                    climb, whole[p], real[p], n, last[p], stream, born,
                )  # fmt: skip
            now = clock + hops + 2
            explained, count[p] = _weigh(
                law, recipients, whole[p], real[p], n, old, changed, own and not changed, last[p, node], node,
                ask == OPENED, born,
            )  # fmt: skip
            last[p, node] = now
            weights[p] *= explained
        own = own and not changed
        total = weights.sum()
        if not total > 0.0:
            return
        weights /= total
        worth[w] = 1.0 / (weights * weights).sum()
        if ask != UNASKED:
            _tell(weights, whole, real, count, _WEIGHT + (n_layers - 1 if ask == OPENED else 0), out[row])
        if worth[w] < _WORTH * n_ways:
            _choose_anew(weights, whole, real, count, last, stream)


@kernel
def sample_segments(
    ahead: Any, back: Any, law: Any, recipients: int, place: Array, frees: Array, group: Array, bounds: Array,
    starter: Array, drawn: Array, knows: Array, slack: Array, climbs: Array, windows: Array, n_ways: int,
    longest: int, most_levels: int, seeds: Array, out: Array, worth: Array
) -> None:  # fmt: skip
    """Follow every segment through its windows with so many ways; ``out`` gets the weights of makers where asked.

    Windows have columns: start, hops, last node, state at the sighting, new or not, what is asked, when it begins, and
    the row of the answer; the rest is as in the exact kernel. ``drawn[s]``: for whom ``starter[s]`` sealed the first
    ciphertext, if that is known. Of a window in which the ciphertext changed only the last ``longest`` hops are
    followed, unless updates are counted. ``worth[w]``: the effective number of ways; where none explains what was seen
    nothing is said any more.
    """
    for s in numba.prange(bounds.shape[0] - 1):
        a, b = bounds[s], bounds[s + 1]
        _follow(
            ahead, back, law, recipients, place, frees[group[s]], starter[s], drawn[s], knows[s], slack[s] + 1,
            climbs[s], windows[a:b], n_ways, longest, most_levels, seeds[s], out, worth[a:b],
        )  # fmt: skip
