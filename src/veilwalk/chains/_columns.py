"""Columns of walks killed at their targets, advanced in time until their tail is geometric.

Column j holds, for a walk from each state, the law of the time at which it hits target j: ``f_t = Q_j f_{t-1}``, with
``Q_j`` the chain with arrivals at j taken out. Once the chain has mixed, every entry falls by one factor per two steps
(per one step would miss periodic chains), and all later times are sums of geometric series. That is measured entry by
entry, never assumed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from veilwalk.core.arrays import FloatArray, IntArray

WIDTH = 32
#: The share of a sum that its tail may be off.
TAIL_TOLERANCE = 1e-12
EPS = float(np.finfo(np.float64).eps)
# Targets advanced together, at most, and floats in each of their arrays, at most: bounds memory.
_BATCH = 16 * WIDTH
_BATCH_FLOATS = 2**23
_LATER = 1.2


@dataclass(frozen=True, slots=True)
class GeometricTail:
    """What happens after ``time``: ``last`` and ``earlier``, taken in turns, fall by ``1 - gap``.

    ``last`` holds the columns at ``time``, ``earlier`` those one step before, ``gap`` one number a column.
    """

    time: int
    earlier: FloatArray
    last: FloatArray
    gap: FloatArray

    def mass(self, after: FloatArray | float, until: FloatArray | float) -> FloatArray:
        """Return the sum of each entry over the times after ``after`` up to ``until``, all after ``time``."""
        odd, even = self._rounds(after)
        odd_end, even_end = self._rounds(until)
        log_kept = np.log1p(-self.gap)
        early = np.exp(odd * log_kept) * _geometric_sum(self.gap, odd_end - odd)
        late = np.exp(even * log_kept) * _geometric_sum(self.gap, even_end - even)
        return np.asarray(self.earlier * early + self.last * late)

    def moment(self, until: FloatArray | float) -> FloatArray:
        """Return the sum of time times entry over the times after ``time`` up to ``until``."""
        odd, even = self._rounds(until)
        early = (self.time - 1) * _geometric_sum(self.gap, odd) + 2.0 * _ramp_sum(self.gap, odd)
        late = self.time * _geometric_sum(self.gap, even) + 2.0 * _ramp_sum(self.gap, even)
        return np.asarray(self.earlier * early + self.last * late)

    def _rounds(self, until: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        left = np.asarray(until, dtype=np.float64) - self.time
        return np.ceil(left / 2.0), np.floor(left / 2.0)


@dataclass(frozen=True, eq=False)
class Windows:
    """A window ``first <= t <= last`` for each entry, and the ``masses`` gathered in it; all in blocks."""

    first: FloatArray
    last: FloatArray
    masses: FloatArray


class Columns(ABC):
    """Killed columns of one batch of targets at one time, and the sums gathered on the way.

    Arrays are in blocks of at most ``WIDTH`` targets; what leaves by :meth:`join_blocks` has one row a state.
    """

    def __init__(self, targets: IntArray, state: FloatArray, spare: FloatArray, totals: FloatArray) -> None:
        self.time = 0
        self._n_targets = len(targets)
        self._targets = split_targets(targets)
        self._state, self._spare, self._totals = state, spare, totals

    def advance(self, time: int, windows: Windows | None = None) -> None:
        """Go on to ``time``; with ``windows``, gather what falls into each of them instead of the sums."""
        self._step(self.time + 1, time, windows)
        if (time - self.time) % 2:
            self._state, self._spare = self._spare, self._state
        self.time = time

    @abstractmethod
    def _step(self, first: int, last: int, windows: Windows | None) -> None:
        """Run the kernel from time ``first - 1`` to ``last``; state and spare take turns."""

    @abstractmethod
    def total(self, kind: int) -> FloatArray:
        """Return the (n_states, n_targets) sum over times 0 to now of ``t**kind`` times the column."""

    @abstractmethod
    def tail(self) -> GeometricTail | None:
        """Return the tail, or None while some entry has not settled."""

    @abstractmethod
    def return_survival(self) -> FloatArray:
        """Return P(return time > t) at the time now, one number a target."""

    @abstractmethod
    def survival_ends(self, tail: GeometricTail) -> tuple[FloatArray, FloatArray]:
        """Return P(return time > t) one step before the time of ``tail``, and at it."""

    def split_rows(self, columns: FloatArray) -> FloatArray:
        """Return (n_states, n_targets) columns as blocks."""
        return split_columns(columns)

    def join_blocks(self, blocks: FloatArray) -> FloatArray:
        """Return blocks as a new (n_states, n_targets) array."""
        return join_columns(blocks, self._n_targets)


def iter_batches(n_states: int, n_targets: int) -> Iterator[slice]:
    """Yield the slices of targets that are advanced together, whatever the number of threads."""
    size = min(max(_BATCH_FLOATS // (n_states * WIDTH), 1) * WIDTH, _BATCH)
    for start in range(0, n_targets, size):
        yield slice(start, min(start + size, n_targets))


def iter_stops(times: Sequence[int], reach: int, first_look: int) -> Iterator[tuple[int, bool]]:
    """Yield ``(time, is_look)`` in order: the times asked for up to ``reach``, and looks at the tail before it."""
    planned, look = set(), float(first_look)
    while look < reach:
        planned.add(math.ceil(look))
        look *= _LATER
    for time in sorted(planned | {time for time in times if 0 < time <= reach}):
        yield time, time in planned


def split_targets(targets: IntArray) -> IntArray:
    """Return ``targets`` as rows of at most ``WIDTH``, the last one filled up with its last target."""
    width = min(WIDTH, len(targets))
    n_blocks = -(-len(targets) // width)
    return np.pad(targets, (0, n_blocks * width - len(targets)), mode="edge").reshape(n_blocks, width)


def split_columns(columns: FloatArray) -> FloatArray:
    """Return (rows, n_targets) columns as blocks, the last one filled up with its last column."""
    n_rows, n_targets = columns.shape
    width = min(WIDTH, n_targets)
    n_blocks = -(-n_targets // width)
    padded = np.pad(columns, ((0, 0), (0, n_blocks * width - n_targets)), mode="edge")
    return np.ascontiguousarray(padded.reshape(n_rows, n_blocks, width).transpose(1, 0, 2))


def join_columns(blocks: FloatArray, n_targets: int) -> FloatArray:
    """Return blocks as a new (rows, n_targets) array."""
    n_blocks, n_rows, width = blocks.shape
    joined = np.empty((n_rows, n_blocks, width))
    joined[...] = blocks.transpose(1, 0, 2)
    return joined.reshape(n_rows, n_blocks * width)[:, :n_targets]


def _geometric_sum(gap: FloatArray, count: FloatArray) -> FloatArray:
    """Return the sum of ``(1 - gap)^k`` for k = 1 to count."""
    return np.asarray((1.0 - gap) / gap * -np.expm1(count * np.log1p(-gap)))


def _ramp_sum(gap: FloatArray, count: FloatArray) -> FloatArray:
    """Return the sum of ``k (1 - gap)^k`` for k = 1 to count."""
    last = count * np.exp((count + 1.0) * np.log1p(-gap))
    return np.asarray((_geometric_sum(gap, count) - last) / gap)
