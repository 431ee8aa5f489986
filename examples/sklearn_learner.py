"""Any linear scikit-learn classifier or regressor with ``partial_fit`` as a learner.

    veilwalk train --learner examples.sklearn_learner:SklearnLearner:learning_rate=0.02

Run it in the folder of the checkout, or copy this file to yours. It needs ``pip install scikit-learn``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning import Array, Params, Partition, StepContext, UpdateResult

_NEEDED = ("partial_fit", "coef_", "intercept_")


@dataclass(frozen=True, kw_only=True)
class SklearnLearner:
    """A linear model of scikit-learn: ``coef_`` and ``intercept_`` travel, nothing else.

    Attributes:
        n_features: Numbers in a row of data.
        n_classes: Labels run from 0 to one less; 0 where they are real numbers to be fitted.
        learning_rate: Constant step size of the default estimator.
        batch_size: Rows of one visit, each a step of ``partial_fit``.
        estimator_fn: Makes another unfitted estimator with ``partial_fit`` and ``predict_proba`` (or ``predict``)
            instead of ``SGDClassifier(loss="log_loss")`` (or ``SGDRegressor()``); ``learning_rate`` is then not used.
    """

    n_features: int
    n_classes: int
    learning_rate: float = 0.02
    batch_size: int = 32
    estimator_fn: Callable[[], Any] | None = None

    def __post_init__(self) -> None:
        validate.integer(n_features=self.n_features, batch_size=self.batch_size, n_classes=self.n_classes)
        validate.at_least(1, n_features=self.n_features, batch_size=self.batch_size)
        validate.at_least(0, n_classes=self.n_classes)
        validate.more_than(0, learning_rate=self.learning_rate)

    @cached_property
    def _prototype(self) -> Any:
        """An estimator that has seen one empty row of each class, so that all it needs is allocated."""
        estimator = self.estimator_fn() if self.estimator_fn is not None else self._default_estimator()
        labels = np.arange(self.n_classes or 1)
        rows = np.zeros((len(labels), self.n_features), dtype=np.float32)
        if hasattr(estimator, "partial_fit"):
            estimator.partial_fit(rows, labels, **({"classes": labels} if self.n_classes else {}))
        needed = (*_NEEDED, "predict_proba" if self.n_classes else "predict")
        missing = [name for name in needed if not hasattr(estimator, name)]
        if missing:
            raise InvalidParameterError("estimator_fn", type(estimator).__name__, f"one with {', '.join(missing)}")
        return estimator

    def init_params(self, rng: np.random.Generator) -> Params:  # noqa: ARG002 - linear models start at zero
        """Return zeros."""
        return {
            "coef": np.zeros_like(self._prototype.coef_, dtype=np.float32),
            "intercept": np.zeros_like(self._prototype.intercept_, dtype=np.float32),
        }

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Return ``params`` after one ``partial_fit`` on a batch of ``data``."""
        if not len(data):
            return UpdateResult(params=params, num_examples=0)
        estimator = self._load_estimator(params)
        rows = np.arange(len(data))
        if self.batch_size < len(data):
            rows = ctx.rng.choice(len(data), self.batch_size, replace=False, shuffle=False)
        features, labels = data.features[rows], data.labels[rows]
        if "random_state" in estimator.get_params():
            estimator.set_params(random_state=int(ctx.rng.integers(2**31)))
        if hasattr(estimator, "t_"):
            # The clock of a falling step size counts this node's rows only.
            estimator.t_ = float(ctx.state.get("t", np.float64(1)))
        estimator.partial_fit(features, labels)
        if hasattr(estimator, "t_"):
            ctx.state["t"] = np.asarray(estimator.t_, dtype=np.float64)
        moved = {
            "coef": np.array(estimator.coef_, dtype=np.float32),
            "intercept": np.array(estimator.intercept_, dtype=np.float32),
        }
        batch = Partition(features, labels)
        loss = float(self.example_losses(params, batch).mean())
        return UpdateResult(params=moved, num_examples=len(labels), metrics={"loss": loss})

    def example_losses(self, params: Params, data: Partition) -> FloatArray:
        """Return the loss of every row, in nats by the estimator's own probabilities, or the squared error."""
        return self._row_losses(self.predict(params, data.features), data)

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return the mean ``loss`` on ``data`` and the ``accuracy``, or ``r2`` where labels are real numbers."""
        outputs = self.predict(params, data.features)
        losses = self._row_losses(outputs, data)
        scores = {"loss": float(losses.mean())}
        if self.n_classes:
            return scores | {"accuracy": float((outputs.argmax(axis=1) == data.labels).mean())}
        spread = float(np.square(data.labels - data.labels.mean(dtype=np.float64)).sum())
        return scores | {"r2": 1 - float(losses.sum()) / spread if spread else 0.0}

    def predict(self, params: Params, features: Array) -> FloatArray:
        """Return the probability of each class in every row, or the number fitted to it."""
        if not len(features):
            return np.zeros((0, self.n_classes) if self.n_classes else 0)
        estimator = self._load_estimator(params)
        ask = estimator.predict_proba if self.n_classes else estimator.predict
        return np.asarray(ask(features), dtype=np.float64)

    def _row_losses(self, outputs: FloatArray, data: Partition) -> FloatArray:
        if not self.n_classes:
            return np.square(outputs - data.labels)
        # One-against-all probabilities may underflow to zero: count such a row as the smallest number there is.
        of_truth = outputs[np.arange(len(data)), data.labels]
        return -np.log(np.maximum(of_truth, np.finfo(np.float64).tiny))

    def _load_estimator(self, params: Params) -> Any:
        estimator = copy.deepcopy(self._prototype)
        estimator.coef_ = np.array(params["coef"], order="C")
        estimator.intercept_ = np.array(params["intercept"], order="C")
        return estimator

    def _default_estimator(self) -> Any:
        try:
            from sklearn.linear_model import SGDClassifier, SGDRegressor
        except ImportError as error:
            raise InvalidParameterError(
                "learner", "SklearnLearner", "used with scikit-learn installed: pip install scikit-learn"
            ) from error
        steps = {"learning_rate": "constant", "eta0": self.learning_rate, "alpha": 0.0}
        return SGDClassifier(loss="log_loss", **steps) if self.n_classes else SGDRegressor(**steps)
