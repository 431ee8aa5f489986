"""Matrix factorisation of ratings in NumPy: a vector for every user and item, whose product is the rating."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import Array, Params, Partition, StepContext, UpdateResult
from veilwalk.learning._descent import check_descent, check_sizes, check_width, draw_batch, fit_scores

# Least and largest first entries, DecentralizePy's.
_START = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorisationLearner:
    """Ratings as products of a user's and an item's vector, float32, squared error, by minibatch descent.

    Attributes:
        n_features: 2: rows are a user's and an item's number, as ``ratings:FILE`` gives them.
        n_classes: 0: ratings are real numbers.
        users: How many users there are.
        items: How many items.
        factors: Numbers in a vector.
        learning_rate: Step size.
        batch_size: Rows of one step.
        local_steps: Steps of one visit.
    """

    n_features: int
    n_classes: int
    users: int = 610
    items: int = 9724
    factors: int = 20
    learning_rate: float = 0.1
    batch_size: int = 32
    local_steps: int = 1

    def __post_init__(self) -> None:
        check_sizes(users=self.users, items=self.items, factors=self.factors)
        check_sizes(batch_size=self.batch_size, local_steps=self.local_steps)
        check_descent(learning_rate=self.learning_rate, momentum=0.0)
        validate.integer(n_features=self.n_features)
        if (self.n_features, self.n_classes) != (2, 0):
            raise InvalidParameterError(
                "learner", "factorisation", "softmax or another one for rows that are no ratings"
            )

    def init_params(self, rng: np.random.Generator) -> Params:
        """Return small vectors drawn evenly."""
        sizes = {"user": self.users, "item": self.items}
        return {
            name: rng.uniform(-_START, _START, size=(count, self.factors)).astype(np.float32)
            for name, count in sizes.items()
        }

    def _numbers(self, features: Array) -> tuple[IntArray, IntArray]:
        check_width(features, 2)
        users, items = features[:, 0].astype(np.int64), features[:, 1].astype(np.int64)
        for name, found, count in (("users", users, self.users), ("items", items, self.items)):
            if len(found) and not 0 <= found.min() <= found.max() < count:
                raise InvalidParameterError(name, count, f"more than {found.max()}, the largest number in the data")
        return users, items

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Return ``params`` after ``local_steps`` minibatch steps; only vectors of users and items rated move."""
        if not len(data):
            return UpdateResult(params=params, num_examples=0)
        made, seen = {name: value.copy() for name, value in params.items()}, 0
        for _ in range(self.local_steps):
            features, labels = draw_batch(data, self.batch_size, ctx.rng)
            users, items = self._numbers(features)
            mine, theirs = made["user"][users], made["item"][items]
            error = (mine * theirs).sum(axis=1) - labels
            step = (np.float32(2 * self.learning_rate / len(labels)) * error)[:, np.newaxis]
            np.subtract.at(made["user"], users, step * theirs)
            np.subtract.at(made["item"], items, step * mine)
            seen += len(labels)
        return UpdateResult(params=made, num_examples=seen)

    def example_losses(self, params: Params, data: Partition) -> FloatArray:
        """Return the squared error of every rating."""
        users, items = self._numbers(data.features)
        with np.errstate(all="ignore"):
            error = (params["user"][users] * params["item"][items]).sum(axis=1) - data.labels
            return np.asarray(error.astype(np.float64) ** 2)

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return the mean squared error as ``loss``, its root as ``rmse``, and ``r2``."""
        losses = self.example_losses(params, data)
        found = fit_scores(losses, losses, data.labels)
        return {**found, "rmse": float(found["loss"] ** 0.5)}
