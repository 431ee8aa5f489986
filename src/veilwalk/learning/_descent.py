"""Minibatch descent around a model written out in NumPy: what softmax regression and the network have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescentLearner(ABC):
    """A classifier with logits and a gradient, float32.

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

    @abstractmethod
    def init_params(self, rng: np.random.Generator) -> Params:
        """Return the parameters training starts from."""

    @abstractmethod
    def _step(self, params: Params, features: Array, labels: Array) -> Params:
        """Return the gradient of the mean loss times the step size, in fresh arrays."""

    @abstractmethod
    def _logits(self, params: Params, features: Array) -> Float32Array:
        """Return the logits, class by example."""

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Return ``params`` after ``local_steps`` minibatch steps on ``data``; a node without data changes nothing.

        A model that has diverged shows in its numbers; whether NumPy should warn as well is for the caller to say.
        """
        check_width(data.features, self.n_features)
        if not len(data):
            return UpdateResult(params=params, num_examples=0)
        seen = 0
        for _ in range(self.local_steps):
            features, labels = draw_batch(data, self.batch_size, ctx.rng)
            params = descend(params, self._step(params, features, labels), ctx, momentum=self.momentum)
            seen += len(labels)
        return UpdateResult(params=params, num_examples=seen)

    def example_losses(self, params: Params, data: Partition) -> FloatArray:
        """Return the loss of every row, in nats."""
        return self._score(params, data)[0]

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return the mean ``loss`` (nats) and the ``accuracy`` on ``data``."""
        return mean_scores(*self._score(params, data))

    def _score(self, params: Params, data: Partition) -> tuple[FloatArray, BoolArray]:
        check_width(data.features, self.n_features)
        with np.errstate(all="ignore"):
            return score_rows(lambda features: self._logits(params, features), data)
