"""Matrix factorisation of ratings: a vector for every user and item, whose product is the rating.

    veilwalk train --data npz:ratings.npz --partition natural:node \
        --learner examples.comparisons.factorisation:FactorisationLearner:users=610:items=9724

``ratings_to_npz.py`` writes the data. Run it in the folder of the checkout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning import Array, Params, Partition, StepContext, UpdateResult

# Least and largest first entries, DecentralizePy's.
_START = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorisationLearner:
    """Ratings as products of a user's and an item's vector, float32, squared error, by minibatch descent.

    Attributes:
        n_features: 2: rows are a user's and an item's number.
        n_classes: 0: ratings are real numbers.
        users: Number of users.
        items: Number of items.
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
        whole = {"users": self.users, "items": self.items, "factors": self.factors}
        whole |= {"batch_size": self.batch_size, "local_steps": self.local_steps}
        validate.integer(**whole)
        validate.at_least(1, **whole)
        validate.more_than(0, learning_rate=self.learning_rate)
        if (self.n_features, self.n_classes) != (2, 0):
            need = "used for ratings: rows of two numbers, real labels"
            raise InvalidParameterError("learner", type(self).__name__, need)

    def init_params(self, rng: np.random.Generator) -> Params:
        """Return small vectors drawn evenly."""
        sizes = {"user": self.users, "item": self.items}
        return {
            name: rng.uniform(-_START, _START, size=(count, self.factors)).astype(np.float32)
            for name, count in sizes.items()
        }

    def _read_numbers(self, features: Array) -> tuple[IntArray, IntArray]:
        """Return the user and the item of every row."""
        users, items = features[:, 0].astype(np.int64), features[:, 1].astype(np.int64)
        for name, numbers, count in (("users", users, self.users), ("items", items, self.items)):
            if len(numbers) and not 0 <= numbers.min() <= numbers.max() < count:
                raise InvalidParameterError(name, count, f"more than {numbers.max()}, the largest number in the data")
        return users, items

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Return ``params`` after ``local_steps`` minibatch steps; only vectors of users and items rated move."""
        if not len(data):
            return UpdateResult(params=params, num_examples=0)
        moved, count = {name: value.copy() for name, value in params.items()}, 0
        for _ in range(self.local_steps):
            rows = np.arange(len(data))
            if self.batch_size < len(data):
                rows = ctx.rng.choice(len(data), self.batch_size, replace=False, shuffle=False)
            users, items = self._read_numbers(data.features[rows])
            user, item = moved["user"][users], moved["item"][items]
            error = (user * item).sum(axis=1) - data.labels[rows]
            step = (np.float32(2 * self.learning_rate / len(rows)) * error)[:, np.newaxis]
            np.subtract.at(moved["user"], users, step * item)
            np.subtract.at(moved["item"], items, step * user)
            count += len(rows)
        return UpdateResult(params=moved, num_examples=count)

    def example_losses(self, params: Params, data: Partition) -> FloatArray:
        """Return the squared error of every rating."""
        users, items = self._read_numbers(data.features)
        with np.errstate(all="ignore"):
            error = (params["user"][users] * params["item"][items]).sum(axis=1) - data.labels
            return np.asarray(error.astype(np.float64) ** 2)

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return the mean squared error as ``loss``, its root as ``rmse``, and ``r2``."""
        losses = self.example_losses(params, data)
        spread = float(np.square(data.labels - data.labels.mean(dtype=np.float64)).sum())
        loss = float(losses.mean())
        return {"loss": loss, "rmse": loss**0.5, "r2": 1 - float(losses.sum()) / spread if spread else 0.0}
