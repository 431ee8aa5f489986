"""Linear models with their gradient written out: the ones most runs use, and the cheapest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import Array, Params
from veilwalk.learning._descent import DescentLearner, Layer
from veilwalk.learning._sgd import Float32Array

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
