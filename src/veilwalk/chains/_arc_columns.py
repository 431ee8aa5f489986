"""Columns of non-backtracking walks killed at their targets, advanced in time until their tail is geometric.

Row f of a column is the answer of a walk that has just gone along entry f, as the kernels have it; what leaves this
module is numbered by arcs. All arcs are equally likely in the long run, so a column loses in each step exactly what
arrives on the arcs into its target: the decay of the tail is a ratio of sums of non-negative numbers, and the sum of a
column over the degree is the survival of the return time. The chain is not reversible: how fast the other modes die
is seen from one look to the next, not from a spectrum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from veilwalk.chains import _kernels_arcs as kernels
from veilwalk.chains._arc_chain import ArcChain
from veilwalk.chains._evolution import WIDTH, GeometricTail, blocked_targets, unblocked
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray

_EPS = float(np.finfo(np.float64).eps)
_TAIL_TOLERANCE = 1e-12
# Targets advanced together, at most, and floats in each of their arrays, at most: bounds memory.
_BATCH = 16 * WIDTH
_BATCH_FLOATS = 2**23
_FIRST_LOOK = 32
_LATER = 1.2


class ArcColumns:
    """Killed columns of one batch of targets at one time, and the sums gathered on the way."""

    def __init__(self, chain: ArcChain, targets: IntArray, *, n_sums: int = 0, kept: int = 1) -> None:
        """Start at time 0; sums of ``t**kind`` times the column are gathered, and ``kept`` arrivals remembered."""
        self.time = 0
        self._chain = chain
        self._walk = (chain.graph.indptr, chain.reverse)
        self._n_targets = len(targets)
        self._targets = blocked_targets(targets)
        # One on the arcs into the target, that is along the reverses of the target's own entries.
        self._state = np.ascontiguousarray(
            (chain.graph.indices[np.newaxis, :, np.newaxis] == self._targets[:, np.newaxis, :]).astype(np.float64)
        )
        self._spare = np.zeros_like(self._state)
        self._totals = np.zeros((len(self._targets), n_sums, *self._state.shape[1:]))
        self._arrivals = np.zeros((kept, *self._targets.shape))
        self._last_look: tuple[int, float] | None = None

    def advance(self, time: int) -> None:
        """Go on to ``time``."""
        span = (self.time + 1, time)
        kernels.advance_arcs(*self._walk, self._targets, self._state, self._spare, self._totals, self._arrivals, *span)
        self._arrived(time)

    def advance_windows(self, time: int, lo: FloatArray, hi: FloatArray, masses: FloatArray) -> None:
        """Go on to ``time``, adding to ``masses`` what falls into each pair's window; all in blocks, by entry."""
        span = (self.time + 1, time)
        kernels.advance_arc_windows(
            *self._walk, self._targets, self._state, self._spare, lo, hi, masses, self._arrivals, *span
        )
        self._arrived(time)

    def _arrived(self, time: int) -> None:
        if (time - self.time) % 2:
            self._state, self._spare = self._spare, self._state
        self.time = time

    def total(self, kind: int) -> FloatArray:
        """Return the (n_arcs, n_targets) sum over times 0 to now of ``t**kind`` times the column."""
        total = self._by_arc(self._totals[:, kind])
        # On arcs into the target the walk is over at time 0; what came back later is a return.
        total[self._on_target()] = 1.0 if kind == 0 else 0.0
        return total

    def arrivals(self) -> FloatArray:
        """Return P(return time = t), a column a target; row ``t % kept`` is time t, for the last ``kept`` times."""
        arrived = self._arrivals.reshape(len(self._arrivals), -1)[:, : self._n_targets]
        return np.asarray(arrived / self._degrees())

    def return_survival(self) -> FloatArray:
        """Return P(return time > t) at the time now, one number a target."""
        return np.asarray(self._state.sum(axis=1).ravel()[: self._n_targets] / self._degrees())

    def _on_target(self) -> BoolArray:
        return np.asarray(self._chain.heads[:, np.newaxis] == self._targets.ravel()[: self._n_targets])

    def _degrees(self) -> IntArray:
        return np.asarray(self._chain.graph.degrees[self._targets.ravel()[: self._n_targets]])

    def _by_arc(self, blocks: FloatArray) -> FloatArray:
        return unblocked(blocks, self._n_targets)[self._chain.reverse]

    def tail(self) -> GeometricTail | None:
        """Return the tail, or None while some entry has not settled."""
        ahead, spare = self._state.copy(), np.empty_like(self._state)
        lost = np.zeros((2, *self._targets.shape))
        kernels.advance_arcs(*self._walk, self._targets, ahead, spare, self._totals[:, :0], lost, 1, 2)
        masses = (self._spare.sum(axis=1) + self._state.sum(axis=1))[:, np.newaxis]
        # Two steps from each of the last two times: a column of a bipartite graph is empty at every other step.
        losses = (self._arrivals[self.time % len(self._arrivals)] + 2.0 * lost[1] + lost[0])[:, np.newaxis]
        gaps = np.clip(np.divide(losses, masses, out=np.ones_like(masses), where=masses > 0.0), _EPS, 1.0 - _EPS)
        worst = 0.0
        negligible = _TAIL_TOLERANCE / (self.time / gaps + 2.0 / gaps**2)
        for before, after in ((self._spare, spare), (self._state, ahead)):
            off = np.abs(after - (1.0 - gaps) * before)
            share = np.divide(off, before, out=np.zeros_like(off), where=before > negligible)
            worst = max(worst, float(share.max()))
        if worst > self._allowed(worst):
            return None
        return GeometricTail(
            time=self.time,
            earlier=self._by_arc(self._spare),
            last=self._by_arc(self._state),
            gap=gaps.ravel()[: self._n_targets],
        )

    def _allowed(self, worst: float) -> float:
        """Return how far off an entry may be: what is left of other modes is more the slower they die."""
        before, self._last_look = self._last_look, (self.time, worst)
        rounding = _EPS * (8.0 + float(self._chain.graph.degrees.max()))
        if before is None or not 0.0 < worst < before[1]:
            return rounding
        kept = math.exp(2.0 * math.log(worst / before[1]) / (self.time - before[0]))
        return max(_TAIL_TOLERANCE * (1.0 - kept), rounding)


def arc_batches(chain: ArcChain, targets: IntArray) -> Iterator[slice]:
    """Yield the slices of ``targets`` that are advanced together, whatever the number of threads."""
    size = min(max(_BATCH_FLOATS // (chain.n_arcs * WIDTH), 1) * WIDTH, _BATCH)
    for start in range(0, len(targets), size):
        yield slice(start, min(start + size, len(targets)))


def stops(times: Iterable[int], reach: int) -> Iterator[tuple[int, bool]]:
    """Yield ``(time, is_look)`` in order: the times asked for up to ``reach``, and looks at the tail before it."""
    planned, look = set(), float(_FIRST_LOOK)
    while look < reach:
        planned.add(math.ceil(look))
        look *= _LATER
    for time in sorted(planned | {time for time in times if 0 < time <= reach}):
        yield time, time in planned
