"""Columns of walks killed at their targets, advanced in time until their tail is geometric.

Column j holds, for a walk from each state, the law of the time at which it hits target j: ``f_t = Q_j f_{t-1}``, with
``Q_j`` the chain with arrivals at j taken out. Once the chain has mixed, every entry falls by one factor per two steps
(per one step would miss periodic chains), and all later times are sums of geometric series. That is measured entry by
entry, never assumed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
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


class Columns(ABC):
    """Killed columns of one batch of targets at one time, and the sums gathered on the way.

    Arrays are in blocks of at most ``WIDTH`` targets; what leaves by :meth:`join_blocks` has one row a state.
    """

    def __init__(self, targets: IntArray, state: FloatArray, spare: FloatArray, totals: FloatArray) -> None:
        self.time = 0
        self._n_targets = len(targets)
        self._targets = split_targets(targets)
        self._state, self._spare, self._totals = state, spare, totals
        self._windows: tuple[FloatArray, FloatArray, FloatArray] | None = None

    def gather_windows(self, lo: FloatArray, hi: FloatArray) -> None:
        """Gather from now on what falls into a window of each state and target, times ``lo`` to ``hi``."""
        first = self.split_rows(lo)
        self._windows = first, self.split_rows(hi), np.zeros_like(first)

    def window_masses(self) -> FloatArray:
        """Return what was gathered in the windows, (n_states, n_targets)."""
        if self._windows is None:
            raise RuntimeError("no windows were named")
        return self.join_blocks(self._windows[2])

    def advance(self, time: int) -> None:
        """Go on to ``time``."""
        self._step(self.time + 1, time)
        if (time - self.time) % 2:
            self._state, self._spare = self._spare, self._state
        self.time = time

    @abstractmethod
    def _step(self, first: int, last: int) -> None:
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
        """Return (n_states, n_targets) columns as blocks, the last one filled up with its last column."""
        n_blocks, width = self._targets.shape
        padded = np.pad(columns, ((0, 0), (0, n_blocks * width - self._n_targets)), mode="edge")
        return np.ascontiguousarray(padded.reshape(-1, n_blocks, width).transpose(1, 0, 2))

    def join_blocks(self, blocks: FloatArray) -> FloatArray:
        """Return blocks as a new (n_states, n_targets) array."""
        n_blocks, n_rows, width = blocks.shape
        joined = np.empty((n_rows, n_blocks, width))
        joined[...] = blocks.transpose(1, 0, 2)
        return joined.reshape(n_rows, n_blocks * width)[:, : self._n_targets]

    def _named_targets(self) -> IntArray:
        """Return the targets without those that fill up the last block."""
        return self._targets.ravel()[: self._n_targets]

    def _geometric_tail(self, gaps: FloatArray) -> GeometricTail:
        """Return the tail from now on, given the gaps in blocks."""
        ends = (self.join_blocks(self._spare), self.join_blocks(self._state))
        return GeometricTail(self.time, *ends, gaps.ravel()[: self._n_targets])


def iter_batches(n_states: int, n_targets: int) -> Iterator[slice]:
    """Yield the slices of targets that are advanced together, whatever the number of threads."""
    size = min(max(_BATCH_FLOATS // (n_states * WIDTH), 1) * WIDTH, _BATCH)
    for start in range(0, n_targets, size):
        yield slice(start, min(start + size, n_targets))


def split_targets(targets: IntArray) -> IntArray:
    """Return ``targets`` as rows of at most ``WIDTH``, the last one filled up with its last target."""
    width = min(WIDTH, len(targets))
    n_blocks = -(-len(targets) // width)
    return np.pad(targets, (0, n_blocks * width - len(targets)), mode="edge").reshape(n_blocks, width)


def _geometric_sum(gap: FloatArray, count: FloatArray) -> FloatArray:
    """Return the sum of ``(1 - gap)^k`` for k = 1 to count."""
    return np.asarray((1.0 - gap) / gap * -np.expm1(count * np.log1p(-gap)))


def _ramp_sum(gap: FloatArray, count: FloatArray) -> FloatArray:
    """Return the sum of ``k (1 - gap)^k`` for k = 1 to count."""
    last = count * np.exp((count + 1.0) * np.log1p(-gap))
    return np.asarray((_geometric_sum(gap, count) - last) / gap)
