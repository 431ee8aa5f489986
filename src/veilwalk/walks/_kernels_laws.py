"""Draws sets of recipients from laws, and sums the set out along sampled paths.

A shelf is the row of a lane in a table with a word per node: the clock of the last visit, shifted by ``TAG_BITS``, and
in the low bits the tag of the last set to which the node belonged. So one lookup per hop answers both "when was the
token here last?" and "is this node a recipient?", and a new set needs no erasing of the old one.

Shares are summed as whole numbers of small units, so that sums do not depend on their order, nor on the device; and the
one function that is not correctly rounded everywhere, the exponential, is made here of sums and products that are.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from veilwalk.walks._compile import jit, jit_inline, jit_inline_nogc, jit_noinline_nogc, jit_parallel
from veilwalk.walks._kernels_random import (
    DESTINATION,
    DESTINATION_NUMBERS,
    RECIPIENTS,
    U1,
    ZERO,
    block_words,
    choice,
    unit_interval,
)
from veilwalk.walks._openings import HOP_UNIT, HOPS, LEGS, SHARE_UNIT, UNOPENED
from veilwalk.walks._protocol import UNVISITED

TAG_BITS = 16
TAG_MASK = (1 << TAG_BITS) - 1

_EIGHT = np.uint64(8)
_BYTE = np.uint64(0xFF)
# Separates the replacements of recipients' words from those of all others.
_RECIPIENT_NUMBERS = np.uint64(3 << 46)
# Draws that one vector instruction makes.
_VECTOR = 8
# Entries that vector instructions compare as fast as a search halves their number.
_SCANNED = np.uint64(64)
# After so many draws in vain for each recipient the rest of a row is weighed anew.
_PATIENCE = 8
# Sets are drawn from the stream of recipients, by the clock.
_BY_CLOCK = False
# A leg ends when less than this share of it is left unopened.
_NEGLIGIBLE = 1e-9

Array = Any


@jit
def build_aliases(offsets: Array, weights: Array, keep: Array, other: Array) -> None:
    """Write Vose's alias table of every row: stay in a slot with probability ``keep``, else go to ``other``."""
    for row in range(offsets.shape[0] - 1):
        first = offsets[row]
        size = offsets[row + 1] - first
        scaled = np.empty(size, np.float64)
        order = np.empty(size, np.int64)
        total = 0.0
        for slot in range(size):
            total += weights[first + slot]
        # Slots below average fill `order` from the left, the others from the right.
        low, high = 0, size
        for slot in range(size):
            scaled[slot] = weights[first + slot] * size / total
            keep[first + slot] = 1.0
            other[first + slot] = slot
            if scaled[slot] < 1.0:
                order[low] = slot
                low += 1
            else:
                high -= 1
                order[high] = slot
        while low > 0 and high < size:
            low -= 1
            small, large = order[low], order[high]
            keep[first + small] = scaled[small]
            other[first + small] = large
            scaled[large] -= 1.0 - scaled[small]
            if scaled[large] < 1.0:
                high += 1
                order[low] = large
                low += 1


@jit_inline_nogc
def weight_of(offsets: Array, columns: Array, weights: Array, source: Any, node: Any) -> Any:
    """Return the weight that ``source`` gives ``node``: its probability, or 1 where all weights are equal."""
    low, column, excluded = np.uint64(offsets[source]), np.int32(node), weights.shape[0] == 0
    left = np.uint64(offsets[source + 1]) - low
    # Where the middle decides nothing but a sum, there is no branch to guess wrong.
    while left > (_SCANNED if excluded else U1):
        half = left >> U1
        low += half * np.uint64(columns[low + half - U1] < column)
        left -= half
    if not excluded:
        return weights[low] if left == U1 and columns[low] == column else 0.0
    listed = np.int32(0)
    for place in range(low, low + left):
        listed += np.int32(columns[place] == column)
    return 1.0 - listed


@jit_inline_nogc
def _choose_by_weight(law: Any, source: Any, shelf: Array, tag: int, share: float) -> Any:
    """Return the node at which ``share`` of the weight of those not chosen yet is reached."""
    total, last = 0.0, -1
    for turn in range(2):
        goal, reached = share * total, 0.0
        for node in range(shelf.shape[0]):
            weight = weight_of(law.offsets, law.columns, law.weights, source, node)
            if weight > 0.0 and shelf[node] & TAG_MASK != tag:
                reached += weight
                last = node
                if turn == 1 and reached > goal:
                    return np.int64(node)
        total = reached
    return last


@jit_inline
def new_batch(recipients: int) -> Any:
    """Return room for the words of as many draws as a set is likely to need."""
    return np.empty((3, (recipients + recipients // _VECTOR) // _VECTOR * _VECTOR + _VECTOR), np.uint64)


@jit_inline_nogc
def _draw_batch(batch: Array, seed: Any, job: Any, clock: Any, number: Any) -> None:
    """Fill ``batch`` with the three words of each draw from ``number`` on."""
    # The length is unknown to the compiler, or it would unroll the loop instead of making vectors of it.
    for turn in range(batch.shape[1]):
        draw = number + np.uint64(turn)
        block = np.uint64(clock) << _EIGHT | (draw & _BYTE)
        word, high, low, _ = block_words(seed, job, RECIPIENTS, (draw >> _EIGHT) & _BYTE, block)
        batch[0, turn] = word
        batch[1, turn] = high
        batch[2, turn] = low


@jit_inline_nogc
def choose_tag(n_drawn: Any, shelf: Array) -> Any:
    """Return the tag of the next set, after ``n_drawn``; where tags begin again, erase the old ones."""
    turn = n_drawn % TAG_MASK
    if turn == 0 and n_drawn > 0:
        for node in range(shelf.shape[0]):
            shelf[node] &= ~TAG_MASK
    return turn + 1


@jit_noinline_nogc
def draw_set(
    law: Any, by_number: Any, seed: Any, job: Any, source: Any, clock: Any, n_drawn: Any, batch: Array, shelf: Array,
    out: Array,
) -> Any:  # fmt: skip
    """Write into ``out`` the distinct recipients that ``source`` draws at ``clock``, and return the tag of the set.

    It is the lane's set number ``n_drawn``. With ``by_number`` its one recipient is drawn from the stream of
    destinations, by that number; else from the stream of recipients, by the clock. ``batch`` is of ``new_batch``.
    """
    tag = choose_tag(n_drawn, shelf)
    excluded, n_nodes = law.weights.shape[0] == 0, np.uint64(shelf.shape[0])
    first = np.uint64(law.offsets[source])
    size = np.uint64(law.offsets[source + 1]) - first
    number, count, vain, turn = ZERO, 0, 0, 0
    while count < out.shape[0]:
        if by_number:
            word, high, low, _ = block_words(seed, job, DESTINATION, ZERO, np.uint64(n_drawn))
            name = np.uint64(n_drawn) | DESTINATION_NUMBERS
        else:
            if turn == 0:
                _draw_batch(batch, seed, job, clock, number)
            word, high, low = batch[0, turn], batch[1, turn], batch[2, turn]
            name = np.uint64(clock) << _EIGHT | (number & _BYTE) | _RECIPIENT_NUMBERS
            number += U1
            turn = turn + 1 if turn + 1 < batch.shape[1] else 0
        if vain > _PATIENCE * out.shape[0]:
            node = _choose_by_weight(law, source, shelf, tag, unit_interval(high, low))
        else:
            if excluded:
                node = np.int64(choice(seed, job, name, word, n_nodes))
                refused = weight_of(law.offsets, law.columns, law.weights, source, node) == 0.0
            else:
                slot = choice(seed, job, name, word, size)
                if unit_interval(high, low) >= law.keep[first + slot]:
                    slot = np.uint64(law.other[first + slot])
                node = np.int64(law.columns[first + slot])
                refused = False
            if refused or shelf[node] & TAG_MASK == tag:
                vain += 1
                continue
        shelf[node] = (shelf[node] & ~TAG_MASK) | tag
        out[count] = node
        count += 1
    return tag


@jit
def draw_sets(law: Any, seed: Any, lanes: Array, sources: Array, clocks: Array, out: Array) -> None:
    """Write one set a row."""
    batch, shelf = new_batch(out.shape[1]), np.full(law.offsets.shape[0] - 1, UNVISITED, np.int64)
    for row in range(out.shape[0]):
        draw_set(law, _BY_CLOCK, seed, np.uint64(lanes[row]), sources[row], clocks[row], row, batch, shelf, out[row])


@jit_inline_nogc
def _to_units(share: float, unit: float) -> Any:
    """Return a share as a whole number of units."""
    return np.int64(share * unit + 0.5)


@jit_inline_nogc
def decay(x: float) -> Any:
    """Return exp(-x) for x >= 0, by Taylor's series after taking out powers of two: the same bits everywhere."""
    if x > 745.0:
        return 0.0
    turns = np.floor(x * 1.4426950408889634 + 0.5)
    # ln 2 in two parts, of which the first has few enough digits for an exact product.
    rest = turns * 1.9082149292705877e-10 - (x - turns * 0.6931471803691238)
    total = 1.0 / 6227020800.0
    total = total * rest + 1.0 / 479001600.0
    total = total * rest + 1.0 / 39916800.0
    total = total * rest + 1.0 / 3628800.0
    total = total * rest + 1.0 / 362880.0
    total = total * rest + 1.0 / 40320.0
    total = total * rest + 1.0 / 5040.0
    total = total * rest + 1.0 / 720.0
    total = total * rest + 1.0 / 120.0
    total = total * rest + 1.0 / 24.0
    total = total * rest + 1.0 / 6.0
    total = total * rest + 0.5
    total = total * rest + 1.0
    total = total * rest + 1.0
    return math.ldexp(total, -int(turns))


@jit_inline_nogc
def chance(
    even: Any, recipients: int, eligible: Any, weight: float, met: int, met_weight: float, time: float, slope: float
) -> Any:
    """Return the chance that a node met for the first time is a recipient, if no node met before it is one.

    ``met`` eligible nodes of weight ``met_weight`` were met before. Exact for one recipient, and where all eligible
    nodes are equally likely. Else Rosen's: a node is chosen if it comes before ``time``, by which K of the others come
    on average.
    Returns the chance, and ``time`` and ``slope`` once this node is out of the pool.
    """
    if even:
        return recipients / max(eligible - met, recipients), time, slope
    if recipients == 1:
        return min(weight / max(1.0 - met_weight, weight), 1.0), time, slope
    left = decay(weight * time)
    slope = max(slope - weight * left, 1e-300)
    return 1.0 - left, time + (1.0 - left) / slope, slope


@jit_parallel
def follow_legs(
    paths: Array,
    law: Any,
    recipients: int,
    seed: Any,
    first_lane: int,
    warm: int,
    cut: int,
    indptr: Array,
    indices: Array,
    sums: Array,
    sources: Array,
    arrived: Array,
    joint: Array,
    by_hop: Array,
) -> None:
    """Play the legs of each path, and add to the sums of each leg the outcomes of all sets.

    A leg goes on beyond the node at which its own set opens it, until hardly any set would leave it unopened; the next
    leg begins at that node. Legs that are sealed before ``warm`` do not count, and none is sealed after ``cut``; the
    share that the end of a path leaves unopened is summed too.

    ``sums[lane]``: legs, mean hops, unopened share. ``sources[lane, i]``: legs from i. ``arrived[lane, arc]``:
    opened after coming by that arc, an entry of the opener's neighbours. ``joint[lane, arc, i]``: that, and sealed by
    i, unless empty. ``by_hop[lane, t]``: opened at hop t. All of these are whole numbers, of the units above.
    """
    for lane in numba.prange(paths.shape[0]):
        path, job = paths[lane], np.uint64(first_lane + lane)
        # In place of its last visit, a node has the clock at which the leg was sealed that met it last.
        shelf = np.full(indptr.shape[0] - 1, UNVISITED, np.int64)
        members, batch = np.empty(recipients, np.int64), new_batch(recipients)
        sealed, end, n_drawn = 0, path.shape[0] - 1, 0
        while sealed <= cut:
            source = np.int64(path[sealed])
            tag = draw_set(law, _BY_CLOCK, seed, job, source, sealed, n_drawn, batch, shelf, members)
            n_drawn += 1
            opened, alive, met, met_weight, hops = -1, 1.0, 0, 0.0, 0.0
            time, slope, clock = law.pace[source], law.slope[source], sealed
            counts = sealed >= warm
            while clock < end and (alive > _NEGLIGIBLE or opened < 0):
                clock += 1
                hops += alive
                node = np.int64(path[clock])
                entry = shelf[node]
                if opened < 0 and entry & TAG_MASK == tag:
                    opened = clock
                if entry >> TAG_BITS == sealed or node == source:
                    continue
                shelf[node] = (sealed << TAG_BITS) | (entry & TAG_MASK)
                weight = weight_of(law.offsets, law.columns, law.weights, source, node)
                if weight == 0.0:
                    continue
                hit, time, slope = chance(
                    law.even[source], recipients, law.eligible[source], weight, met, met_weight, time, slope
                )
                share = alive * hit
                met += 1
                met_weight += weight
                alive -= share
                if not counts:
                    continue
                came_from = np.int64(path[clock - 1])
                whole = _to_units(share, SHARE_UNIT)
                arc = indptr[node]
                while arc < indptr[node + 1] and indices[arc] != came_from:
                    arc += 1
                if arc < indptr[node + 1]:
                    arrived[lane, arc] += whole
                    if joint.shape[1] > 0:
                        joint[lane, arc, source] += whole
                by_hop[lane, min(clock - sealed, by_hop.shape[1] - 1)] += whole
            if counts:
                sums[lane, LEGS] += 1
                sums[lane, HOPS] += _to_units(hops, HOP_UNIT)
                sums[lane, UNOPENED] += _to_units(alive, SHARE_UNIT)
                sources[lane, source] += 1
            if opened < 0:
                break
            sealed = opened
