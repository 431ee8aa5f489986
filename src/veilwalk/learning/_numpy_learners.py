"""Linear models and a network with one hidden layer, their gradients written out; no torch needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import Array, Params
from veilwalk.learning._descent import DescentLearner, Float32Array, Layer, check_sizes

_FOR_REAL = "linear, mlp or sklearn where labels are real numbers"


@dataclass(frozen=True, slots=True, kw_only=True)
class _LinearModel(DescentLearner):
    def init_params(self, rng: np.random.Generator) -> Params:  # noqa: ARG002 - the problem is convex: start at zero
        """Return zeros."""
        return {
            "weight": np.zeros((self.n_outputs, self.n_features), dtype=np.float32),
            "bias": np.zeros(self.n_outputs, dtype=np.float32),
        }

    def _layers(self, params: Params, features: Array, labels: Array) -> tuple[Layer, ...]:
        return (("weight", "bias", self._slope(self._outputs(params, features), labels), features),)

    def _outputs(self, params: Params, features: Array) -> Float32Array:
        outputs: Float32Array = params["weight"] @ features.T
        outputs += params["bias"][:, np.newaxis]
        return outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxLearner(_LinearModel):
    """Multinomial logistic regression, float32, trained by minibatch descent."""

    def __post_init__(self) -> None:
        DescentLearner.__post_init__(self)
        if not self.n_classes:
            raise InvalidParameterError("learner", "softmax", _FOR_REAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearLearner(_LinearModel):
    """Least squares, float32, by minibatch descent; slopes are not bounded as a softmax's are: steps are smaller."""

    n_classes: int = 0
    learning_rate: float = 0.02

    def __post_init__(self) -> None:
        DescentLearner.__post_init__(self)
        if self.n_classes:
            raise InvalidParameterError("learner", "linear", "softmax, mlp or sklearn where labels are classes")


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpLearner(DescentLearner):
    """One hidden layer of rectified units under a softmax or a squared error, float32, trained by minibatch descent.

    Attributes:
        hidden: Units of the hidden layer.
    """

    hidden: int = 64

    def __post_init__(self) -> None:
        DescentLearner.__post_init__(self)
        check_sizes(hidden=self.hidden)

    def init_params(self, rng: np.random.Generator) -> Params:
        """Return weights drawn evenly with variance 2 / inputs (He), zero biases, and a zero last layer."""
        half_width = (6 / self.n_features) ** 0.5
        weight = (2 * rng.random((self.hidden, self.n_features), dtype=np.float32) - 1) * np.float32(half_width)
        return {
            "hidden_weight": weight,
            "hidden_bias": np.zeros(self.hidden, dtype=np.float32),
            "weight": np.zeros((self.n_outputs, self.hidden), dtype=np.float32),
            "bias": np.zeros(self.n_outputs, dtype=np.float32),
        }

    def _layers(self, params: Params, features: Array, labels: Array) -> tuple[Layer, ...]:
        hidden = _hidden(params, features)
        slope = self._slope(_above(params, hidden), labels)
        back = params["weight"].T @ slope
        # A unit at rest passes nothing back.
        back *= hidden > 0
        return ("hidden_weight", "hidden_bias", back, features), ("weight", "bias", slope, hidden.T)

    def _outputs(self, params: Params, features: Array) -> Float32Array:
        return _above(params, _hidden(params, features))


def _hidden(params: Params, features: Array) -> Float32Array:
    """Return what the hidden layer gives, unit by example."""
    units: Float32Array = params["hidden_weight"] @ features.T
    units += params["hidden_bias"][:, np.newaxis]
    return np.maximum(units, 0, out=units)


def _above(params: Params, hidden: Float32Array) -> Float32Array:
    """Return what the last layer makes of the hidden one."""
    outputs: Float32Array = params["weight"] @ hidden
    outputs += params["bias"][:, np.newaxis]
    return outputs
