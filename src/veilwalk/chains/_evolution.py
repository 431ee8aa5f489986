"""Columns of walks killed at their targets, advanced in time until their tail is geometric.

Started at ``e_j``, column j holds the law of the hitting time, ``f_t = Q_j f_{t-1}``, ``Q_j`` the chain with
arrivals at j taken out. ``Q_j`` is symmetric up to scaling by the stationary law; by Cauchy interlacing only
its largest eigenvalue exceeds the chain's second, and none falls below the chain's smallest. So once the
chain has mixed, every entry falls by one factor per two steps (per one step would miss periodic chains), and
all later times are sums of geometric series. That is measured entry by entry, never assumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from veilwalk.chains import _kernels
from veilwalk.chains._chain import WalkChain
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import NumericalError

WIDTH = 32
# Targets advanced together, at most, and floats in each of their arrays, at most: bounds memory.
_BATCH = 16 * WIDTH
_BATCH_FLOATS = 2**23
_EPS = float(np.finfo(np.float64).eps)
_TAIL_TOLERANCE = 1e-12
_MIXED = 1e-16
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


class KilledWalks:
    """Killed columns of one batch of targets at one time, and the sums gathered on the way."""

    def __init__(
        self, chain: WalkChain, targets: IntArray, factors: FloatArray, *, survival: bool = False, kept: int = 1
    ) -> None:
        """Start at time 0; ``factors[kind, t]`` weigh the sums, ``kept`` is how many arrivals to remember."""
        self.chain = chain
        self.time = 0
        self._walk = (chain.indptr, chain.indices, chain.probabilities)
        self._n_targets = len(targets)
        self._targets = blocked_targets(targets)
        self._state = starting_columns(chain, self._targets, survival=survival)
        self._spare = np.empty_like(self._state)
        self._factors = factors
        n_blocks, width = self._targets.shape
        self._totals = factors[:, 0, None, None] * self._state[:, None]
        self._arrivals = np.zeros((kept, n_blocks, width))

    def advance(self, time: int) -> None:
        """Go on to ``time``."""
        _kernels.advance(
            *self._walk,
            self._targets,
            self._state,
            self._spare,
            self._factors,
            self._totals,
            self._arrivals,
            self.time + 1,
            time,
        )
        self._arrived(time)

    def advance_windows(self, time: int, lo: FloatArray, hi: FloatArray, masses: FloatArray) -> None:
        """Go on to ``time``, adding to ``masses`` what falls into each pair's window; all blocked."""
        _kernels.advance_windows(
            *self._walk,
            self._targets,
            self._state,
            self._spare,
            lo,
            hi,
            masses,
            self.time + 1,
            time,
        )
        self._arrived(time)

    def _arrived(self, time: int) -> None:
        if (time - self.time) % 2:
            self._state, self._spare = self._spare, self._state
        self.time = time

    def total(self, kind: int) -> FloatArray:
        """Return the (n_nodes, n_targets) sum over times 0 to now of ``factors[kind, t]`` times the column."""
        total = unblocked(self._totals[:, kind], self._n_targets)
        columns = np.arange(self._n_targets)
        # After time 0 nothing counts at the target: the walk is over there.
        targets = self._targets.ravel()[: self._n_targets]
        total[targets, columns] = self._factors[kind, 0]
        return total

    def arrivals(self) -> FloatArray:
        """Return what stood at each target before it was taken out, one column a target.

        Row ``t % kept`` is time t, for the last ``kept`` times.
        """
        return self._arrivals.reshape(len(self._arrivals), -1)[:, : self._n_targets].copy()

    def tail(self) -> GeometricTail | None:
        """Return the tail, or None while some entry has not settled."""
        chain = self.chain
        ahead_one, ahead_two = self._two_steps_ahead()
        gaps = _two_step_gaps(chain, (self._spare, ahead_one), (self._state, ahead_two))
        # An error left now in slower modes sums to at most this share of itself in the tail.
        share = np.maximum(1.0 - chain.mixing_rate**2 / (1.0 - gaps), 0.0)
        rounding = _EPS * (8.0 + float(np.diff(chain.indptr).max()))
        tolerance = np.maximum(_TAIL_TOLERANCE * share, rounding)
        negligible = _TAIL_TOLERANCE / (self.time / gaps + 2.0 / gaps**2)
        for before, after in ((self._spare, ahead_one), (self._state, ahead_two)):
            off = np.abs(after - (1.0 - gaps) * before)
            if not np.all((off <= tolerance * before) | (before <= negligible)):
                return None
        return GeometricTail(
            time=self.time,
            earlier=unblocked(self._spare, self._n_targets),
            last=unblocked(self._state, self._n_targets),
            gap=gaps.ravel()[: self._n_targets],
        )

    def _two_steps_ahead(self) -> tuple[FloatArray, FloatArray]:
        """Return the columns one and two steps from now, without going there."""
        ahead, spare = self._state.copy(), np.empty_like(self._state)
        nothing = np.zeros((0, 1))
        arrivals = np.zeros((1, *self._targets.shape))
        _kernels.advance(*self._walk, self._targets, ahead, spare, nothing, self._totals, arrivals, 1, 2)
        return spare, ahead


def settling_time(chain: WalkChain) -> int:
    """Return when modes other than the slowest have fallen below rounding: the time of the first look."""
    rate = chain.mixing_rate
    steps = math.log(_MIXED) / math.log(rate) if rate > 0.0 else 0.0
    return max(16, math.ceil(steps))


def give_up_time(chain: WalkChain) -> int:
    """Return when a tail that has not settled never will."""
    return 4 * settling_time(chain) + 64


def looks(chain: WalkChain) -> Iterator[int]:
    """Yield the times at which to look whether the tail has settled, up to :func:`give_up_time`."""
    time = float(settling_time(chain))
    while time < give_up_time(chain):
        yield math.ceil(time)
        time *= _LATER


def refuse_unsettled(chain: WalkChain, time: int) -> NumericalError:
    """Return the error for a tail that did not settle by ``time``."""
    return NumericalError(f"hitting times of {chain!r}: the tail is not geometric by time {time}")


def batches(chain: WalkChain, targets: IntArray) -> Iterator[slice]:
    """Yield the slices of ``targets`` that are advanced together, whatever the number of threads."""
    size = min(max(_BATCH_FLOATS // (chain.n_nodes * WIDTH), 1) * WIDTH, _BATCH)
    for start in range(0, len(targets), size):
        yield slice(start, min(start + size, len(targets)))


def blocked_targets(targets: IntArray) -> IntArray:
    """Return ``targets`` as rows of at most ``WIDTH``, the last one filled up with its last target."""
    width = min(WIDTH, len(targets))
    n_blocks = -(-len(targets) // width)
    return np.pad(targets, (0, n_blocks * width - len(targets)), mode="edge").reshape(n_blocks, width)


def starting_columns(chain: WalkChain, targets: IntArray, *, survival: bool) -> FloatArray:
    """Return (n_blocks, n_nodes, width) columns at time 0: 1 at the target, or 1 everywhere else."""
    n_blocks, width = targets.shape
    columns = np.full((n_blocks, chain.n_nodes, width), 1.0 if survival else 0.0)
    columns[np.arange(n_blocks)[:, None], targets, np.arange(width)] = 0.0 if survival else 1.0
    return columns


def blocked(columns: FloatArray) -> FloatArray:
    """Return (n_nodes, n_targets) columns as blocks, the last one filled up with its last column."""
    n_nodes, n_targets = columns.shape
    width = min(WIDTH, n_targets)
    n_blocks = -(-n_targets // width)
    padded = np.pad(columns, ((0, 0), (0, n_blocks * width - n_targets)), mode="edge")
    return np.ascontiguousarray(padded.reshape(n_nodes, n_blocks, width).transpose(1, 0, 2))


def unblocked(columns: FloatArray, n_targets: int) -> FloatArray:
    """Return blocks as a new (n_nodes, n_targets) array."""
    n_blocks, n_nodes, width = columns.shape
    joined = np.empty((n_nodes, n_blocks, width))
    joined[...] = columns.transpose(1, 0, 2)
    return joined.reshape(n_nodes, n_blocks * width)[:, :n_targets]


def merged_stops(chain: WalkChain, checkpoints: Sequence[int]) -> Iterator[tuple[int, bool]]:
    """Yield ``(time, is_look)`` in order: every checkpoint within reach, and every look before the last one."""
    reach = min(checkpoints[-1], give_up_time(chain)) if checkpoints else 0
    planned = {time for time in looks(chain) if time < reach}
    for time in sorted(planned | {time for time in checkpoints if 0 < time <= reach}):
        yield time, time in planned


def _two_step_gaps(
    chain: WalkChain, odd: tuple[FloatArray, FloatArray], even: tuple[FloatArray, FloatArray]
) -> FloatArray:
    """Return one minus the Rayleigh quotient of two steps, (n_blocks, 1, width), over both parities.

    A periodic column vanishes at every other step; both parities together never do.
    """
    share = chain.stationary[:, None]
    lost, weight = np.zeros(()), np.zeros(())
    for before, after in (odd, even):
        # The loss is summed itself: one minus a quotient near one would lose its digits.
        lost = lost + ((before - after) * before * share).sum(axis=1, keepdims=True)
        weight = weight + (before * before * share).sum(axis=1, keepdims=True)
    ratio = np.divide(lost, weight, out=np.ones_like(weight), where=weight > 0.0)
    return np.asarray(np.clip(ratio, _EPS, 1.0 - _EPS))


def _geometric_sum(gap: FloatArray, count: FloatArray) -> FloatArray:
    """Return the sum of ``(1 - gap)^k`` for k = 1 to count."""
    return np.asarray((1.0 - gap) / gap * -np.expm1(count * np.log1p(-gap)))


def _ramp_sum(gap: FloatArray, count: FloatArray) -> FloatArray:
    """Return the sum of ``k (1 - gap)^k`` for k = 1 to count."""
    last = count * np.exp((count + 1.0) * np.log1p(-gap))
    return np.asarray((_geometric_sum(gap, count) - last) / gap)
