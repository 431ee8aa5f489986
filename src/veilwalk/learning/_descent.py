"""Minibatch descent around a model written out in NumPy, and the steps and scores that learners share."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from veilwalk.core import validate
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import Array, Params, Partition, StepContext, UpdateResult
from veilwalk.learning._rows import RowProtection

Float32Array = npt.NDArray[np.float32]
# Rows of logits held at once in an evaluation; more would only leave the caches.
_BLOCK_ROWS = 8192
#: Names of weight and bias, slope of the mean loss times the step size (unit by row), inputs (row by number).
Layer = tuple[str, str, Array, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescentLearner(ABC):
    """A model with outputs and a gradient, float32: logits under a softmax, or one number under a squared error.

    Attributes:
        n_features: Numbers in a row of data.
        n_classes: Labels run from 0 to one less; 0 where they are real numbers to be fitted.
        learning_rate: Step size.
        batch_size: Rows of one step, drawn without repetition; a node with fewer uses all it has. 0: always all.
        local_steps: Steps of one visit.
        momentum: Share of the last step kept; the velocity stays at the node.
        fade: Updates of a model after which what one node changes counts half, after twice as many a third, and so on;
            0: always whole. The model settles as an average of models would, and nothing more has to travel.
        rows: How single rows are protected in every step; None: not.
    """

    n_features: int
    n_classes: int
    learning_rate: float = 0.1
    batch_size: int = 32
    local_steps: int = 1
    momentum: float = 0.0
    fade: float = 0.0
    rows: RowProtection | None = None

    def __post_init__(self) -> None:
        check_sizes(n_features=self.n_features, local_steps=self.local_steps)
        validate.integer(n_classes=self.n_classes, batch_size=self.batch_size)
        validate.at_least(0, n_classes=self.n_classes, batch_size=self.batch_size)
        check_descent(learning_rate=self.learning_rate, momentum=self.momentum)
        validate.at_least(0, fade=self.fade)
        validate.finite(fade=self.fade)

    @property
    def n_outputs(self) -> int:
        """Numbers the model makes of a row: one for each class, or the one that is fitted."""
        return self.n_classes or 1

    @abstractmethod
    def init_params(self, rng: np.random.Generator) -> Params:
        """Return the parameters training starts from."""

    @abstractmethod
    def _layers(self, params: Params, features: Array, labels: Array) -> tuple[Layer, ...]:
        """Return the layers in the order of their parameters."""

    @abstractmethod
    def _outputs(self, params: Params, features: Array) -> Float32Array:
        """Return the outputs, class by example, in a fresh array."""

    def _slope(self, outputs: Float32Array, labels: Array) -> Float32Array:
        """Turn outputs in place into the slope of the mean loss times the step size."""
        slope = softmax_slope if self.n_classes else squared_slope
        return slope(outputs, labels, self.learning_rate)

    def _step(self, params: Params, features: Array, labels: Array, ctx: StepContext) -> Params:
        """Return the gradient of the mean loss times the step size, in fresh arrays; as protected, where it is."""
        step: dict[str, Array] = {}
        layers = self._bounded_layers(params, features, labels)
        for weight, bias, slope, inputs in layers:
            step[weight], step[bias] = slope @ inputs, np.add.reduce(slope, axis=1)
        if self.rows is None:
            return step
        deviation = self.learning_rate * self.rows.deviation(self.batch_size)
        # Rounded once, after the noise.
        return {
            name: np.asarray(step.get(name, 0.0) + deviation * ctx.normal(value.shape), dtype=np.float32)
            for name, value in params.items()
        }

    def predict(self, params: Params, features: Array) -> FloatArray:
        """Return the probability of each class in every row (row by class), or the number fitted to it."""
        check_width(features, self.n_features)
        outputs = self._outputs(params, features).astype(np.float64)
        if not self.n_classes:
            return np.asarray(outputs[0])
        outputs -= outputs.max(axis=0)
        np.exp(outputs, out=outputs)
        return np.asarray((outputs / outputs.sum(axis=0)).T)

    def _bounded_layers(self, params: Params, features: Array, labels: Array) -> tuple[Layer, ...]:
        """Return the layers, the slope of every row shrunk to the clip norm and to its share of the public number.

        The gradient of a row at a layer is an outer product: its norm is the product of two norms, and no gradient of
        a row is ever written out. All this is in double precision, and a row whose gradient is not finite counts as
        none: whatever model came, one row changes the sum by no more than its share.
        """
        n_rows, protection = len(labels), self.rows
        if not n_rows:
            return ()
        layers = self._layers(params, features, labels)
        if protection is None:
            return layers
        exact = [(w, b, slope.astype(np.float64), inputs.astype(np.float64)) for w, b, slope, inputs in layers]
        squares = sum(
            np.square(slope).sum(axis=0) * (1.0 + np.einsum("ij,ij->i", inputs, inputs))
            for _, _, slope, inputs in exact
        )
        norms = np.sqrt(squares) * (n_rows / self.learning_rate)
        shares = protection.shrinks(norms) * (n_rows / protection.divisor(self.batch_size))
        # Nothing times what is not finite is not nothing.
        usable = np.isfinite(norms)
        return tuple(
            (weight, bias, np.where(usable, slope, 0.0) * shares, np.where(usable[:, np.newaxis], inputs, 0.0))
            for weight, bias, slope, inputs in exact
        )

    def protect_rows(self, protection: RowProtection) -> Self:
        """Return the same learner, each step of which clips row by row and adds noise."""
        return replace(self, rows=protection)

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Return ``params`` after ``local_steps`` minibatch steps on ``data``; a node without data changes nothing.

        Where rows are protected it adds its noise all the same: nobody shall see that it has none. A model that has
        diverged shows in its numbers; whether NumPy should warn as well is for the caller to say.
        """
        check_width(data.features, self.n_features)
        if not len(data) and not (self.rows and self.rows.noise):
            return UpdateResult(params=params, num_examples=0)
        seen, before = 0, params
        for _ in range(self.local_steps):
            features, labels = draw_batch(data, self.batch_size, ctx.rng)
            params = descend(params, self._step(params, features, labels, ctx), ctx, momentum=self.momentum)
            seen += len(labels)
        share = np.float32(self.share(ctx.age))
        if share < 1:
            params = {name: value + share * (params[name] - value) for name, value in before.items()}
        return UpdateResult(params=params, num_examples=seen)

    def share(self, age: int) -> float:
        """Return how much of a node's change counts in a model that has had ``age`` updates."""
        return self.fade / (self.fade + age) if self.fade else 1.0

    def whole_steps(self, params: Params, data: Partition, starts: IntArray) -> Float32Array:
        """Return the step that each part of ``data`` would make with all its rows: one line a part, flat.

        The forward pass is one for all; a part without rows makes none.
        """
        steps = np.zeros((len(starts) - 1, sum(value.size for value in params.values())), dtype=np.float32)
        layers = self._bounded_layers(params, data.features, data.labels)
        for part, (start, end) in enumerate(itertools.pairwise(starts.tolist())):
            if start == end:
                continue
            # A mean of the part's own rows; what is bounded has its divisor already.
            share, place = np.float32(-1 if self.rows else -len(data) / (end - start)), 0
            for _, _, slope, inputs in layers:
                rows = slope[:, start:end] * share
                for found in (rows @ inputs[start:end], np.add.reduce(rows, axis=1)):
                    steps[part, place : place + found.size] = found.ravel()
                    place += found.size
        return steps

    def row_products(self, params: Params, data: Partition, change: Params) -> tuple[FloatArray, FloatArray]:
        """Return the products of the steps that single rows would make: each with each, and each with ``change``.

        A row's step at a layer is an outer product: none is ever written out.
        """
        n_rows = len(data)
        # What a row does to the mean of a batch, times the rows that are in it.
        times = np.float64(-self.batch_size if self.rows else -n_rows)
        gram, along = np.zeros((n_rows, n_rows)), np.zeros(n_rows)
        for weight, bias, slope, inputs in self._bounded_layers(params, data.features, data.labels):
            made, given = times * slope, inputs.astype(np.float64)
            gram += (made.T @ made) * (given @ given.T + 1)
            along += ((made.T @ change[weight]) * given).sum(axis=1) + made.T @ change[bias]
        return gram, along

    def example_losses(self, params: Params, data: Partition) -> FloatArray:
        """Return the loss of every row: nats, or the squared error."""
        return self._score(params, data)[0]

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return the mean ``loss`` on ``data`` and the ``accuracy``, or ``r2`` where labels are real numbers."""
        losses, hits = self._score(params, data)
        return fit_scores(losses, losses, data.labels) if hits is None else mean_scores(losses, hits)

    def _score(self, params: Params, data: Partition) -> tuple[FloatArray, BoolArray | None]:
        check_width(data.features, self.n_features)
        with np.errstate(all="ignore"):
            if self.n_classes:
                return score_rows(lambda features: self._outputs(params, features), data)
            return squared_errors(lambda features: self._outputs(params, features), data), None


def check_sizes(**named: int) -> None:
    """Refuse what is not a whole number of at least one."""
    validate.integer(**named)
    validate.at_least(1, **named)


def check_descent(*, learning_rate: float, momentum: float) -> None:
    """Refuse a step size that is not positive and finite, and momentum outside [0, 1)."""
    validate.more_than(0, learning_rate=learning_rate)
    validate.finite(learning_rate=learning_rate)
    if not 0.0 <= momentum < 1.0:
        raise InvalidParameterError("momentum", momentum, "in [0, 1)")


def draw_batch(data: Partition, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return ``size`` different rows drawn evenly; all rows, in order, where there are no more, or ``size`` is 0."""
    features, labels = data.features, data.labels
    if not 0 < size < len(labels):
        return features, labels
    rows = rng.choice(len(labels), size, replace=False, shuffle=False)
    return features.take(rows, axis=0), labels.take(rows)


def descend(params: Params, step: Params, ctx: StepContext, *, momentum: float) -> Params:
    """Return ``params`` less ``step``, which is the gradient times the step size; velocities stay in ``ctx.state``.

    ``step`` is used up: what is returned, or kept, may be its arrays.
    """
    if momentum == 0.0:
        return {name: np.subtract(value, step[name], out=step[name]) for name, value in params.items()}
    moved: dict[str, Array] = {}
    for name, value in params.items():
        key = f"velocity/{name}"
        before = ctx.state.get(key)
        velocity = step[name] if before is None else np.float32(momentum) * before + step[name]
        ctx.state[key] = velocity
        moved[name] = value - velocity
    return moved


def softmax_slope(logits: Float32Array, labels: Array, scale: float) -> Float32Array:
    """Turn logits (class by example) in place into ``scale`` times the slope of the mean loss, and return it.

    Classes run down the first axis, so that every reduction is over whole rows. The step size is multiplied in here,
    where arrays are smallest. The logits are fresh from a matrix product, hence contiguous, and one number finds an
    entry. The loss itself is not needed to descend; whoever wants it evaluates.
    """
    n_rows = len(labels)
    logits -= np.maximum.reduce(logits, axis=0)
    np.exp(logits, out=logits)
    total = np.add.reduce(logits, axis=0)
    # One division brings each column to the scale wanted.
    total *= n_rows / scale
    logits /= total
    truth = np.multiply(labels, n_rows, dtype=np.int64)
    truth += np.arange(n_rows)
    logits.ravel()[truth] -= scale / n_rows
    return logits


def squared_slope(outputs: Float32Array, labels: Array, scale: float) -> Float32Array:
    """Turn outputs (one row) in place into ``scale`` times the slope of the mean squared error, and return it."""
    outputs -= labels
    outputs *= 2 * scale / len(labels)
    return outputs


def score_rows(logits_of: Callable[[Array], Float32Array], data: Partition) -> tuple[FloatArray, BoolArray]:
    """Return the loss of every row, in nats, and whether its label has the highest logit."""
    losses, hits = np.empty(len(data)), np.empty(len(data), dtype=np.bool_)
    for start in range(0, len(data), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        logits, labels = logits_of(data.features[block]), data.labels[block]
        hits[block] = logits.argmax(axis=0) == labels
        logits -= np.maximum.reduce(logits, axis=0)
        of_truth = logits[labels, np.arange(len(labels))]
        np.exp(logits, out=logits)
        losses[block] = np.log(np.add.reduce(logits, axis=0)) - of_truth
    return losses, hits


def squared_errors(outputs_of: Callable[[Array], Float32Array], data: Partition) -> FloatArray:
    """Return the squared error of every row."""
    errors = np.empty(len(data))
    for start in range(0, len(data), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        errors[block] = outputs_of(data.features[block])[0]
        errors[block] -= data.labels[block]
    return errors * errors


def fit_scores(losses: FloatArray, squares: FloatArray, labels: Array) -> Mapping[str, float]:
    """Return mean ``loss`` and ``r2``, the share of the labels' variance that is explained, from squared errors."""
    _need_rows(losses)
    real = np.asarray(labels, dtype=np.float64)
    spread, left = float(np.square(real - real.mean()).sum()), float(squares.sum())
    # Labels that are all the same have nothing to be explained.
    r2 = 1 - left / spread if spread > 0 else float(left == 0)
    return {"loss": float(losses.mean()), "r2": r2}


def mean_scores(losses: FloatArray, hits: BoolArray) -> Mapping[str, float]:
    """Return mean ``loss`` and ``accuracy``, as an evaluation reports them."""
    _need_rows(losses)
    return {"loss": float(losses.mean()), "accuracy": float(hits.mean())}


def _need_rows(losses: FloatArray) -> None:
    if not len(losses):
        raise InvalidParameterError("data", "no rows", "at least one row to evaluate on")


def check_width(features: Array, n_features: int) -> None:
    """Refuse rows of another width than the model's."""
    if features.shape[1:] != (n_features,):
        raise InvalidParameterError("features", features.shape, f"rows of {n_features} numbers")
