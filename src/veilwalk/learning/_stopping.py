"""When to stop: enough updates, hops or bytes, an accuracy reached, a loss that no longer falls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._ledger import Ledger
from veilwalk.learning._models import MEAN


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One evaluation on held-out data, and what had been spent by then.

    Accuracy is None where there is none; ``scores`` are all others that the learner gives. ``chosen`` is the model that
    was evaluated and would be handed out: the mean of all in flight, or the one walk that is better than it.
    """

    update: int
    clock: int
    hops: int
    sent_bytes: int
    seconds: float
    loss: float
    accuracy: float | None
    scores: Mapping[str, float] = field(default_factory=dict)
    chosen: str = MEAN


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """Budgets and goals; whatever comes first ends the run.

    Attributes:
        max_hops: Budget of transfers.
        max_bytes: Budget of bytes sent.
        target_accuracy: Stop at the first evaluation that reaches it.
        patience: Stop after so many evaluations in a row without a better loss; 0 never. Of evaluations that lie closer
            together than evenly spread ones, as the first do, only some count.
        min_improvement: What counts as better: lower than the best loss by this share of it.
    """

    max_hops: float = math.inf
    max_bytes: float = math.inf
    target_accuracy: float | None = None
    patience: int = 0
    min_improvement: float = 0.001

    def __post_init__(self) -> None:
        validate.at_least(0, max_hops=self.max_hops, max_bytes=self.max_bytes, patience=self.patience)
        validate.integer(patience=self.patience)
        validate.at_least(0, min_improvement=self.min_improvement)
        if self.target_accuracy is not None and not 0.0 < self.target_accuracy <= 1.0:
            raise InvalidParameterError("target_accuracy", self.target_accuracy, "above 0 and at most 1")

    def budget(self, ledger: Ledger, *, every: int = 1) -> tuple[int, str]:
        """Return how many updates of the trace may be made, in whole multiples of ``every``, and what ends it there."""
        allowed = ledger.up_to(max_hops=self.max_hops, max_bytes=self.max_bytes)
        whole = len(ledger.hops) - 1
        if allowed >= whole:
            return whole, "all updates made"
        # The next update is the one that would not fit.
        out_of = "hops" if ledger.hops[allowed + 1] > self.max_hops else "bytes"
        return allowed - allowed % every, f"budget of {out_of} spent"

    def reached(self, points: Sequence[Point], *, every: int = 1) -> str | None:
        """Return why to stop after these evaluations, or None; they count where they are ``every`` updates apart."""
        last = points[-1]
        if self.target_accuracy is not None and last.accuracy is not None and last.accuracy >= self.target_accuracy:
            return f"accuracy {self.target_accuracy:g} reached"
        stale, best = self._stale(points, every)
        if self.patience and stale >= self.patience:
            what = f"no better loss in {self.patience} evaluations"
            return f"{what}, the best was {best.loss:.4g} after update {best.update}"
        return None

    def _stale(self, points: Sequence[Point], every: int) -> tuple[int, Point]:
        """Return evaluations, each at least ``every`` updates after the last counted, since the best, and the best.

        The first model is no best one: a loss that rises at first, as with few classes at a node, ends nothing.
        """
        best, stale, counted = points[0], 0, 0
        for point in points[1:]:
            if best.update == 0 or point.loss < best.loss - self.min_improvement * abs(best.loss):
                best, stale, counted = point, 0, point.update
            elif point.update - counted >= every:
                stale, counted = stale + 1, point.update
        return stale, best


def evaluation_points(updates: int, count: int, *, every: int = 1) -> list[int]:
    """Return the updates after which to evaluate: the start, the end, early ones closely and then evenly.

    Args:
        updates: Updates in all.
        count: About how many evaluations, the start not counted.
        every: Only whole multiples of this; the last is rounded up.
    """
    validate.integer(updates=updates, count=count, every=every)
    validate.at_least(1, updates=updates, count=count, every=every)
    # Half of them on a logarithmic scale, where curves against hops are read; half on an even one.
    early = np.geomspace(1, updates, max(count // 2, 2))
    even = np.linspace(0, updates, max(count - count // 2, 1) + 1)
    rounded = np.ceil(np.concatenate((early, even)) / every - 1e-9).astype(np.int64) * every
    return [int(point) for point in np.unique(rounded)]
