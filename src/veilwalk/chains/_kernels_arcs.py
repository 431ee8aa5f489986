"""Compiled loops over arcs: edges with a direction, the states of a walk that never goes straight back.

Entry s of the neighbour lists, at node y with neighbour x, stands for the arc from x into y. A step from y goes along
any entry f of y but s, and arrives on arc ``reverse[f]``; at a leaf f is s. Mass is therefore pushed by

    out[reverse[f]] = mean of mass[s] over the entries s of y other than f.

Turned round in time the walk is the same walk on reversed arcs, so the same push serves laws of hitting times: there
row f holds the answer of a walk that has just gone along entry f.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange

from veilwalk.chains._kernels_nodes import seal_again
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.engine import njit

_OPTIONS: dict[str, Any] = {"cache": True, "fastmath": {"contract"}, "error_model": "numpy"}


class Arcs(NamedTuple):
    """The neighbour lists of a graph, and for each entry that of the same edge at its other end."""

    indptr: IntArray
    indices: IntArray
    reverse: IntArray


@njit(inline="always")
def _push_row(arcs: Arcs, node: int, mass: FloatArray, out: FloatArray, running: FloatArray) -> None:
    """Push all mass that stands on ``node`` one step; ``running`` is a row of scratch.

    The sums leave one entry out without ever subtracting it: what is zero stays exactly zero.
    """
    reverse, width = arcs.reverse, mass.shape[1]
    first, stop = arcs.indptr[node], arcs.indptr[node + 1]
    if stop - first == 3:
        # The paper's degree, in one pass.
        a, b, c = reverse[first], reverse[first + 1], reverse[first + 2]
        for col in range(width):
            x, y, z = mass[first, col], mass[first + 1, col], mass[first + 2, col]
            out[a, col] = 0.5 * (y + z)
            out[b, col] = 0.5 * (x + z)
            out[c, col] = 0.5 * (x + y)
    elif stop - first == 1:
        for col in range(width):
            out[reverse[first], col] = mass[first, col]
    else:
        share = 1.0 / (stop - first - 1)
        for col in range(width):
            running[col] = 0.0
        for entry in range(first, stop):
            row = reverse[entry]
            for col in range(width):
                out[row, col] = running[col]
                running[col] += mass[entry, col]
        for col in range(width):
            running[col] = 0.0
        for entry in range(stop - 1, first - 1, -1):
            row = reverse[entry]
            for col in range(width):
                out[row, col] = share * (out[row, col] + running[col])
                running[col] += mass[entry, col]


@njit(inline="always")
def _take_out(arcs: Arcs, targets: IntArray, columns: FloatArray, arrived: FloatArray) -> None:
    """Empty the arcs into each column's target; ``arrived`` receives what stood there."""
    indptr, reverse = arcs.indptr, arcs.reverse
    for col in range(len(targets)):
        arrived[col] = 0.0
        for entry in range(indptr[targets[col]], indptr[targets[col] + 1]):
            arrived[col] += columns[reverse[entry], col]
            columns[reverse[entry], col] = 0.0


@njit(parallel=True, **_OPTIONS)
def advance_arcs(
    arcs: Arcs,
    targets: IntArray,
    state: FloatArray,
    spare: FloatArray,
    totals: FloatArray,
    arrivals: FloatArray,
    first: int,
    last: int,
) -> None:
    """Advance columns killed at their targets from time ``first - 1`` to ``last``; ``state`` and ``spare`` take turns.

    ``totals[b]`` gathers the column and, if it has room for two, t times the column; ``arrivals``, a ring over times,
    keeps the sum of what stood on the arcs into each target before it was taken out.
    """
    n_kept = arrivals.shape[0]
    for block in prange(state.shape[0]):
        now, following = state[block], spare[block]
        width = now.shape[1]
        running = np.empty(width)
        for time in range(first, last + 1):
            for node in range(len(arcs.indptr) - 1):
                _push_row(arcs, node, now, following, running)
                for kind in range(totals.shape[1]):
                    factor = 1.0 if kind == 0 else float(time)
                    for entry in range(arcs.indptr[node], arcs.indptr[node + 1]):
                        row = arcs.reverse[entry]
                        for col in range(width):
                            totals[block, kind, row, col] += factor * following[row, col]
            _take_out(arcs, targets[block], following, arrivals[time % n_kept, block])
            now, following = following, now


@njit(parallel=True, **_OPTIONS)
def advance_arc_windows(
    arcs: Arcs,
    targets: IntArray,
    state: FloatArray,
    spare: FloatArray,
    lo: FloatArray,
    hi: FloatArray,
    masses: FloatArray,
    arrivals: FloatArray,
    first: int,
    last: int,
) -> None:
    """As :func:`advance_arcs`, gathering each pair's own window ``lo <= t <= hi`` into ``masses``."""
    n_kept = arrivals.shape[0]
    for block in prange(state.shape[0]):
        now, following = state[block], spare[block]
        width = now.shape[1]
        running = np.empty(width)
        for time in range(first, last + 1):
            clock = float(time)
            for node in range(len(arcs.indptr) - 1):
                _push_row(arcs, node, now, following, running)
            for row in range(following.shape[0]):
                for col in range(width):
                    inside = (lo[block, row, col] <= clock) & (clock <= hi[block, row, col])
                    masses[block, row, col] += following[row, col] if inside else 0.0
            _take_out(arcs, targets[block], following, arrivals[time % n_kept, block])
            now, following = following, now


@njit(parallel=True, **_OPTIONS)
def record_arcs(arcs: Arcs, targets: IntArray, laws: FloatArray) -> None:
    """Fill ``laws[t, :, k]`` for every t > 0 from the columns at ``laws[0]``, one target a column."""
    for col in prange(len(targets)):
        now = np.empty((laws.shape[1], 1))
        following = np.empty((laws.shape[1], 1))
        running = np.empty(1)
        arrived = np.empty(1)
        now[:, 0] = laws[0, :, col]
        for time in range(1, laws.shape[0]):
            for node in range(len(arcs.indptr) - 1):
                _push_row(arcs, node, now, following, running)
            _take_out(arcs, targets[col : col + 1], following, arrived)
            laws[time, :, col] = following[:, 0]
            now, following = following, now


@njit(**_OPTIONS)
def _deliver_one(
    arcs: Arcs, law: FloatArray, observer: int, column_of: IntArray, sealed_for: FloatArray, out: FloatArray
) -> None:
    """Follow a token from a visit to ``observer`` until it is back, for as many hops as ``out`` has rows.

    ``bound[s, d]`` is the probability that the token has not been back, stands on arc s, and is sealed for d, not the
    observer. ``incoming[s, k]`` is the same with a ciphertext sealed for the observer by its k-th possible source
    (``column_of`` says which column a source has). ``sealed_for[e, d]`` says how it starts: on the observer's e-th arc.
    ``out[t, e, k]`` receives the probability that such a ciphertext arrives after t hops on that arc.
    """
    indptr, indices, reverse = arcs
    n_nodes, n_arcs = law.shape[0], len(reverse)
    begin, stop = indptr[observer], indptr[observer + 1]
    bound = np.zeros((n_arcs, n_nodes))
    bound[begin:stop] = sealed_for
    next_bound = np.empty((n_arcs, n_nodes))
    incoming = np.zeros((n_arcs, out.shape[2]))
    next_incoming = np.empty_like(incoming)
    running = np.empty(max(n_nodes, out.shape[2]))
    for hop in range(1, out.shape[0]):
        for node in range(n_nodes):
            _push_row(arcs, node, bound, next_bound, running)
            _push_row(arcs, node, incoming, next_incoming, running)
            # What was just pushed is dealt with while it is in the first cache.
            for entry in range(indptr[node], indptr[node + 1]):
                arc, head = reverse[entry], indices[entry]
                if head == observer:
                    out[hop, arc - begin, :] = next_incoming[arc]
                    next_incoming[arc] = 0.0
                    next_bound[arc] = 0.0
                    continue
                seal_again(law[head], head, observer, column_of[head], next_bound[arc], next_incoming[arc])
        bound, next_bound = next_bound, bound
        incoming, next_incoming = next_incoming, incoming


@njit(parallel=True, **_OPTIONS)
def deliver_on_arcs(
    arcs: Arcs, law: FloatArray, observers: IntArray, column_of: IntArray, sealed_for: FloatArray, out: FloatArray
) -> None:
    """Run :func:`_deliver_one` for each observer; rows of the last three arguments belong to them in turn."""
    for row in prange(len(observers)):
        degree = arcs.indptr[observers[row] + 1] - arcs.indptr[observers[row]]
        sealed, arrived = sealed_for[row, :degree], out[row, :, :degree]
        _deliver_one(arcs, law, observers[row], column_of[row], sealed, arrived)
