"""What the NumPy learners share: drawing a batch, one step of descent, scores from outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from veilwalk.core import validate
from veilwalk.core.arrays import BoolArray, FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import Array, Params, Partition, StepContext

Float32Array = npt.NDArray[np.float32]
# Rows of logits held at once in an evaluation; more would only leave the caches.
_BLOCK_ROWS = 8192


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
