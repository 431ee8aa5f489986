"""Whose update was this? The update that each candidate would have made, held against the one that was.

A candidate's rows, the model before and the learner's settings say what step it would make; its random draws are not
known. A batch that is all of its rows leaves nothing to draw: the step is known to rounding. A smaller batch is a
mean of its rows' steps, so that the update lies, but for noise, in what they span: Gaussian around the whole-data
step, with the covariance of sampling without replacement. Learners that are not of this package are asked for a few
updates, and the mean of those is taken. Clipping is the attacker's to apply as well; noise only adds variance.

Simpler evidence is how well the model fits each candidate's rows: the lower their loss, the likelier.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from veilwalk.core.arrays import FloatArray
from veilwalk.learning._api import Learner, Params, Partition, StepContext
from veilwalk.learning._descent import DescentLearner
from veilwalk.learning._partition import Partitions
from veilwalk.learning._protection import Protection

#: Told how many candidates have been tried since it was last told.
Tried = Callable[[int], None]
# Draws of an update that is random; of large models, whose updates take long, fewer.
_DRAWS, _LARGE_DRAWS, _LARGE = 4, 2, 1_000_000
# Numbers of a large model of somebody else's that are looked at: an attacker needs no more.
_LOOKED_AT = 16_384
# How far the deviation that no model explains may be below the largest: steps of the search.
_DEVIATIONS = 25
# Share of the variance of how often candidates took part that steps at both ends leave unexplained: nobody knows the
# models in between.
_UNEXPLAINED = 0.02
# Nobody is ruled out by an estimate of no part at all.
_NEVER = 0.05


def candidates_bytes(learner: Learner, candidates: int, params: Params) -> int:
    """Return about the memory that asking so many for their updates takes: three tables of these at a time."""
    numbers = sum(value.size for value in params.values())
    if not isinstance(learner, DescentLearner):
        numbers = min(numbers, _LOOKED_AT)
    return 3 * candidates * numbers * np.dtype(np.float64).itemsize


def silent(count: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidates:
    """All who may have made an update, with their data, and the mechanism that everybody knows.

    Attributes:
        learner: The model and how it is updated.
        partitions: The data of each candidate.
        rng: The attacker's own draws.
        protection: Clipping and noise.
        tried: Told how many candidates have been tried.
    """

    learner: Learner
    partitions: Partitions
    rng: np.random.Generator
    protection: Protection = field(default_factory=Protection)
    tried: Tried = silent

    def updates(self, params: Params, age: int = 0) -> FloatArray:
        """Return the change that each candidate (row) is expected to make to a model of that age, flat."""
        learner, parts = self.learner, self.partitions
        if isinstance(learner, DescentLearner) and learner.local_steps == 1:
            found: FloatArray = learner.whole_steps(params, parts.rows, parts.starts).astype(np.float64)
            self.tried(len(parts))
            found *= learner.share(age)
            found *= self._shrunk(np.sqrt(np.square(found).sum(axis=1)), age)[:, np.newaxis]
            return found
        draws = _DRAWS if sum(value.size for value in params.values()) <= _LARGE else _LARGE_DRAWS
        if isinstance(learner, DescentLearner):
            # All rows at every local step: what the batches scatter around.
            learner, draws = replace(learner, batch_size=0), 1
        rows = []
        for part in parts:
            rows.append(self._drawn(learner, params, part, age, draws))
            self.tried(1)
        return np.stack(rows)

    def change(self, before: Params, after: Params) -> FloatArray:
        """Return the numbers looked at of the difference of two models, flat."""
        return self._flat(_difference(before, after))

    def _drawn(self, learner: Learner, params: Params, part: Partition, age: int, draws: int) -> FloatArray:
        """Return the mean of a few updates, each clipped; of one, where the second is the same."""
        made: list[FloatArray] = []
        while len(made) < draws:
            result = learner.update(params, part, StepContext(rng=self.rng, step=0, age=age))
            change = _difference(params, result.params)
            norm = math.sqrt(sum(float(np.vdot(array, array)) for array in change.values()))
            made.append(self._flat(change) * self._shrunk(norm, age))
            if len(made) == 2 and np.array_equal(made[0], made[1]):
                break
        return np.asarray(np.mean(made, axis=0))

    def _flat(self, change: Params) -> FloatArray:
        whole = np.concatenate([array.ravel() for array in change.values()])
        if isinstance(self.learner, DescentLearner) or len(whole) <= _LOOKED_AT:
            return whole
        return whole[np.linspace(0, len(whole) - 1, _LOOKED_AT).astype(np.int64)]

    def _shrunk(self, norm: FloatArray | float, age: int) -> FloatArray:
        """Return what clipping and decay multiply an update of that norm with."""
        clip = self.protection.clip
        if not clip or self.protection.rows:
            return self.protection.share(age) * np.ones_like(norm)
        return self.protection.share(age) * (clip / np.maximum(norm, clip))

    def _variance(self, age: int) -> float:
        """Return the variance of the noise on each number of an update."""
        learner, found = self.learner, self.protection
        if not found.rows:
            return (found.share(age) * found.noise * found.clip) ** 2
        if not isinstance(learner, DescentLearner) or learner.rows is None:
            # What becomes of noise in somebody else's optimiser is not known; it is fitted.
            return 0.0
        each = learner.learning_rate * learner.share(age) * learner.rows.deviation(learner.batch_size)
        return learner.local_steps * (found.share(age) * each) ** 2

    def fits(self, before: Params, after: Params, age: int = 0) -> tuple[FloatArray, FloatArray]:
        """Return how well the update of each candidate fits the one made: by its residual, and by its direction.

        Both are log-likelihoods (nats) up to what all have in common: the change is the expected one, or any
        multiple of it, and Gaussian deviations. These are as large as the noise, or, where that fits better, larger:
        what is not known of an update (momentum, the models between local steps) is deviation too. ``age`` is how many
        updates the model before has had.
        """
        change, expected = self.change(before, after), self.updates(before, age)
        size, square, along = len(change), np.square(expected).sum(axis=1), expected @ change
        own = float(change @ change)
        least = self._least(before, age)
        by_residual = _profile(np.maximum(own - 2 * along + square, 0.0), size, least)
        cosine = np.maximum(along, 0.0) / np.sqrt(np.maximum(own * square, 1e-300))
        by_direction = _profile(own * np.maximum(1 - np.square(cosine), 0.0), size, least)
        learner = self.learner
        if isinstance(learner, DescentLearner):
            # Rows' steps are in proportion to the step size: a share of them is a smaller one.
            whole = learner.batch_size or int(self.partitions.sizes.max())
            learner = replace(learner, learning_rate=learner.learning_rate * learner.share(age))
            for number in np.flatnonzero(self.partitions.sizes > whole):
                part, off = self.partitions[int(number)], change - expected[number]
                by_residual[number] = self._by_rows(learner, before, part, off, age)
        return by_residual, by_direction

    def _least(self, params: Params, age: int) -> float:
        """Return the least variance of a number: the noise's, and what rounding leaves in a float32 model."""
        numbers = sum(value.size for value in params.values())
        mean_square = sum(float(np.vdot(value, value)) for value in params.values()) / max(numbers, 1)
        return self._variance(age) + float(np.finfo(np.float32).eps) ** 2 * (mean_square + 1e-6)

    def _by_rows(self, learner: DescentLearner, before: Params, part: Partition, off: FloatArray, age: int) -> float:
        """Return the log-likelihood of a residual where the batch is a sample of the rows of ``part``."""
        n_rows, batch, steps = len(part), learner.batch_size, learner.local_steps
        gram, along = learner.row_products(before, part, _shaped(off, before))
        norm = steps * math.sqrt(float(gram.sum()) / n_rows**2 + float(np.trace(gram)) / (n_rows * batch))
        # Of a mean of rows drawn without repetition, once for every local step, as clipped.
        scale = steps * (n_rows - batch) / (n_rows - 1) / (batch * n_rows) * float(self._shrunk(norm, age)) ** 2
        centred = gram - gram.mean(axis=0)
        centred = scale * (centred - centred.mean(axis=1, keepdims=True))
        weights, vectors = np.linalg.eigh(centred)
        kept = weights > 1e-10 * weights[-1]
        spread = weights[kept]
        inside = np.square(vectors[:, kept].T @ (along - along.mean())) * scale / spread
        square = float(off @ off)
        outside, size = max(square - float(inside.sum()), 0.0), len(off)
        least = self._least(before, age)
        variance = np.geomspace(least, max(square / size, 2 * least), _DEVIATIONS)[:, np.newaxis]
        explained = (inside / (variance + spread) + np.log(variance + spread)).sum(axis=1)
        rest = outside / variance[:, 0] + (size - len(spread)) * np.log(variance[:, 0])
        return -0.5 * float((explained + rest).min())

    def participation(
        self, earlier: Params, now: Params, expected: FloatArray, ages: tuple[int, int] = (0, 0)
    ) -> FloatArray:
        """Return the logarithm of how often each candidate took part between two models, as far as that shows.

        The difference is taken to be the sum of the candidates' updates, at the mean of both ends; how often each
        took part is ``expected`` with the variance of a count, and the best linear estimate follows. ``ages`` are the
        updates that both models have had.
        """
        # In place: of large models even one table of all candidates' updates takes gigabytes.
        steps = self.updates(earlier, ages[0])
        steps += self.updates(now, ages[1])
        steps /= 2
        change, root = self.change(earlier, now), np.sqrt(expected)
        scaled = root[:, np.newaxis] * steps
        products = scaled @ scaled.T
        variance = _UNEXPLAINED * float(np.trace(products)) / len(steps) + float(expected.sum()) * self._variance(
            ages[1]
        )
        matrix = products + max(variance, 1e-300) * np.eye(len(steps))
        counts = expected + root * np.linalg.solve(matrix, scaled @ (change - expected @ steps))
        return np.asarray(np.log(np.maximum(counts, 0.0) + _NEVER))


def _difference(before: Params, after: Params) -> dict[str, FloatArray]:
    return {name: np.asarray(after[name], dtype=np.float64) - value for name, value in before.items()}


def _shaped(flat: FloatArray, like: Params) -> dict[str, FloatArray]:
    ends = np.cumsum([value.size for value in like.values()])
    pieces = np.split(flat, ends[:-1])
    return {name: piece.reshape(value.shape) for (name, value), piece in zip(like.items(), pieces, strict=True)}


def _profile(squares: FloatArray, size: int, least: float) -> FloatArray:
    """Return the Gaussian log-likelihood of residuals at the likeliest variance that is at least ``least``."""
    variance = np.maximum(squares / size, least)
    return np.asarray(-0.5 * (squares / variance + size * np.log(variance)))


@runtime_checkable
class RowScorer(Protocol):
    """A learner that can say the loss of every row at once."""

    def example_losses(self, params: Params, data: Partition) -> FloatArray:
        """Return the loss of every row, in nats."""
        ...


def row_losses(learner: Learner, params: Params, data: Partition) -> FloatArray:
    """Return the loss of every row of ``data``; a learner without ``example_losses`` is asked row by row."""
    if isinstance(learner, RowScorer):
        return learner.example_losses(params, data)
    rows = (Partition(data.features[row : row + 1], data.labels[row : row + 1]) for row in range(len(data)))
    return np.array([learner.evaluate(params, row)["loss"] for row in rows])


def candidate_losses(
    learner: Learner, params: Params, partitions: Sequence[Partition], *, tried: Tried = silent
) -> FloatArray:
    """Return the mean loss (nats) of ``params`` on the data of each candidate; NaN for one without data.

    A learner with ``example_losses`` scores all rows in one pass (for the softmax, one matrix product); any other is
    asked candidate by candidate. Give :class:`Partitions` where many models are scored: other sequences are put
    side by side first.
    """
    if not isinstance(learner, RowScorer):
        found = []
        for part in partitions:
            found.append(learner.evaluate(params, part)["loss"] if len(part) else np.nan)
            # With large models even one candidate takes long.
            tried(1)
        return np.array(found)
    stacked = partitions if isinstance(partitions, Partitions) else Partitions.of_parts(partitions)
    sums = np.concatenate(([0.0], np.cumsum(learner.example_losses(params, stacked.rows))))
    totals, sizes = np.diff(sums[stacked.starts]), stacked.sizes
    losses = np.full(len(sizes), np.nan)
    np.divide(totals, sizes, out=losses, where=sizes > 0)
    tried(len(sizes))
    return losses
