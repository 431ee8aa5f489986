"""One row protected: each row's gradient clipped for itself, their sum noised, and divided by a public number.

A learner that can do so has ``protect_rows``. The sum of a batch is divided by the same public number at every node,
not by how many rows it happened to have: one row more or less moves the result by at most the clip norm, divided so,
and a node with few rows adds no more noise than others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray
from veilwalk.learning._api import Learner


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProtection:
    """What every step of a learner does to the gradients of its rows.

    Attributes:
        clip: Largest norm of the gradient of one row, all arrays together.
        noise: Standard deviation of the noise on the sum of a batch, in units of ``clip``.
        rows: By what the sum is divided: about the rows of a node, a number that everybody knows.
    """

    clip: float
    noise: float
    rows: int

    def __post_init__(self) -> None:
        validate.more_than(0, clip=self.clip)
        validate.at_least(0, noise=self.noise)
        validate.finite(clip=self.clip, noise=self.noise)
        validate.integer(rows=self.rows)
        validate.at_least(1, rows=self.rows)

    def shrinks(self, norms: FloatArray) -> FloatArray:
        """Return what clipping multiplies gradients of these norms with: 0 where a norm is not finite."""
        finite = np.isfinite(norms)
        return np.asarray(np.where(finite, self.clip / np.maximum(np.where(finite, norms, 0.0), self.clip), 0.0))

    def divisor(self, batch_size: int) -> int:
        """Return by what the sum over a batch is divided; 0 stands for a batch of all rows."""
        return min(self.rows, batch_size) if batch_size else self.rows

    def deviation(self, batch_size: int) -> float:
        """Return the standard deviation of the noise on each number of the divided sum."""
        return self.noise * self.clip / self.divisor(batch_size)


@runtime_checkable
class RowLearner(Learner, Protocol):
    """A learner that can clip row by row, and adds the noise itself: before momentum and the like."""

    local_steps: int

    def protect_rows(self, protection: RowProtection) -> Self:
        """Return the same learner with this in each of its steps."""
        ...
