"""Softmax regression with its gradient written out: the model most runs use, and the cheapest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from veilwalk.core.arrays import BoolArray, FloatArray
from veilwalk.learning._api import Array, Params, Partition, StepContext, UpdateResult
from veilwalk.learning._sgd import (
    Float32Array,
    check_descent,
    check_sizes,
    check_width,
    descend,
    draw_batch,
    mean_scores,
    score_rows,
    softmax_slope,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxLearner:
    """Multinomial logistic regression, float32, trained by minibatch descent.

    Attributes:
        n_features: Numbers in a row of data.
        n_classes: Labels run from 0 to one less.
        learning_rate: Step size.
        batch_size: Rows of one step, drawn without repetition; a node with fewer uses all it has.
        local_steps: Steps of one visit.
        momentum: Share of the last step kept; the velocity stays at the node.
    """

    n_features: int
    n_classes: int
    learning_rate: float = 0.1
    batch_size: int = 32
    local_steps: int = 1
    momentum: float = 0.0

    def __post_init__(self) -> None:
        check_sizes(
            n_features=self.n_features,
            n_classes=self.n_classes,
            batch_size=self.batch_size,
            local_steps=self.local_steps,
        )
        check_descent(learning_rate=self.learning_rate, momentum=self.momentum)

    def init_params(self, rng: np.random.Generator) -> Params:  # noqa: ARG002 - the problem is convex: start at zero
        """Return zeros."""
        return {
            "weight": np.zeros((self.n_classes, self.n_features), dtype=np.float32),
            "bias": np.zeros(self.n_classes, dtype=np.float32),
        }

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Return ``params`` after ``local_steps`` minibatch steps on ``data``; a node without data changes nothing."""
        check_width(data.features, self.n_features)
        if not len(data):
            return UpdateResult(params=params, num_examples=0)
        loss, seen = 0.0, 0
        # A model that has diverged gives a loss that is not finite, which the caller looks at, not a warning a hop.
        with np.errstate(all="ignore"):
            for _ in range(self.local_steps):
                features, labels = draw_batch(data, self.batch_size, ctx.rng)
                slope, loss = softmax_slope(_logits(params, features), labels, self.learning_rate)
                step = {"weight": slope @ features, "bias": np.add.reduce(slope, axis=1)}
                params = descend(params, step, ctx, momentum=self.momentum)
                seen += len(labels)
        return UpdateResult(params=params, num_examples=seen, metrics={"loss": loss})

    def example_losses(self, params: Params, data: Partition) -> FloatArray:
        """Return the loss of every row, in nats."""
        return self._score(params, data)[0]

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return the mean ``loss`` (nats) and the ``accuracy`` on ``data``."""
        return mean_scores(*self._score(params, data))

    def _score(self, params: Params, data: Partition) -> tuple[FloatArray, BoolArray]:
        check_width(data.features, self.n_features)
        with np.errstate(all="ignore"):
            return score_rows(lambda features: _logits(params, features), data)


def _logits(params: Params, features: Array) -> Float32Array:
    """Return the logits, class by example."""
    logits: Float32Array = params["weight"] @ features.T
    logits += params["bias"][:, np.newaxis]
    return logits
