"""Kernels that sum the set out: along a path, with what chance each node that is met is the one that opens.

Shares are summed as whole numbers of small units, so that sums do not depend on their order, nor on the device; and the
one function that is not correctly rounded everywhere, the exponential, is made here of sums and products that are.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from veilwalk.walks._compile import inlined, kernel
from veilwalk.walks._kernels_laws import BATCH, draw_set, weight_of
from veilwalk.walks._openings import HOP_UNIT, HOPS, LEGS, SHARE_UNIT, UNOPENED

# What is left unopened below this is given up.
_NOTHING = 1e-9

Array = Any


@inlined
def _units(share: float, unit: float) -> Any:
    return np.int64(share * unit + 0.5)


@inlined
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


@inlined
def chance(
    even: Any, recipients: int, eligible: Any, weight: float, met: int, met_weight: float, time: float, slope: float
) -> Any:
    """Return the chance that a node met for the first time is a recipient, if none was that was met before it.

    ``met`` eligible nodes were, of ``met_weight`` together. Exact where all that may be chosen are as likely, and for
    one recipient; else Rosen's: whoever comes before ``time``, at which the others number K on average.
    Returns the chance, and ``time`` and ``slope`` once this node is out of the pool.
    """
    if even:
        return recipients / max(eligible - met, recipients), time, slope
    if recipients == 1:
        return min(weight / max(1.0 - met_weight, weight), 1.0), time, slope
    left = decay(weight * time)
    slope = max(slope - weight * left, 1e-300)
    return 1.0 - left, time + (1.0 - left) / slope, slope


@kernel
def follow_legs(
    paths: Array,
    n_nodes: Any,
    offsets: Array,
    columns: Array,
    weights: Array,
    keep: Array,
    other: Array,
    eligible: Array,
    even: Array,
    pace: Array,
    slopes: Array,
    recipients: int,
    seed: Any,
    first_lane: int,
    warm: int,
    cut: int,
    indptr: Array,
    indices: Array,
    sums: Array,
    made: Array,
    arrived: Array,
    joint: Array,
    by_hop: Array,
) -> None:
    """Play the legs of each path, and of each leg tell what any set would have done.

    A leg goes on, for the sake of the sums, beyond where its own set opens it, until hardly any set would have left it
    unopened; the next begins where its own set opened. Those that are sealed before ``warm`` do not count, and after
    ``cut`` none is; what the end of a path leaves unopened is summed too.

    ``sums[lane]``: legs, mean hops, what was left unopened. ``made[lane, i]``: legs from i. ``arrived[lane, arc]``:
    opened having come by that arc, an entry of the opener's neighbours. ``joint[lane, arc, i]``: that, and sealed by i,
    unless empty. ``by_hop[lane, t]``: opened at hop t. All of these are whole numbers, of the units above.
    """
    for lane in numba.prange(paths.shape[0]):
        path, job = paths[lane], np.uint64(first_lane + lane)
        # In which leg, by when it was sealed, each node was last met, and last was a recipient.
        met_in = np.full(n_nodes, -1, np.int64)
        stamps = np.full(n_nodes, -1, np.int64)
        drawn, batch = np.empty(recipients, np.int64), np.empty((3, BATCH), np.uint64)
        sealed, end = 0, path.shape[0] - 1
        while sealed <= cut:
            source = np.int64(path[sealed])
            draw_set(n_nodes, offsets, columns, weights, keep, other, seed, job, source, sealed, batch, stamps, drawn)
            opened, alive, met, met_weight, hops = -1, 1.0, 0, 0.0, 0.0
            time, slope, clock = pace[source], slopes[source], sealed
            counts = sealed >= warm
            while clock < end and (alive > _NOTHING or opened < 0):
                clock += 1
                hops += alive
                node = np.int64(path[clock])
                if opened < 0 and stamps[node] == sealed:
                    opened = clock
                if met_in[node] == sealed or node == source:
                    continue
                met_in[node] = sealed
                weight = weight_of(offsets, columns, weights, source, node)
                if weight == 0.0:
                    continue
                hit, time, slope = chance(
                    even[source], recipients, eligible[source], weight, met, met_weight, time, slope
                )
                share = alive * hit
                met += 1
                met_weight += weight
                alive -= share
                if not counts:
                    continue
                came_from = np.int64(path[clock - 1])
                whole = _units(share, SHARE_UNIT)
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
                sums[lane, HOPS] += _units(hops, HOP_UNIT)
                sums[lane, UNOPENED] += _units(alive, SHARE_UNIT)
                made[lane, source] += 1
            if opened < 0:
                break
            sealed = opened
