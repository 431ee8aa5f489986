"""Softmax regression with its gradient written out: the model most runs use, and the cheapest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilwalk.learning._api import Array, Params
from veilwalk.learning._descent import DescentLearner
from veilwalk.learning._sgd import Float32Array, softmax_slope


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxLearner(DescentLearner):
    """Multinomial logistic regression, float32, trained by minibatch descent."""

    def init_params(self, rng: np.random.Generator) -> Params:  # noqa: ARG002 - the problem is convex: start at zero
        """Return zeros."""
        return {
            "weight": np.zeros((self.n_classes, self.n_features), dtype=np.float32),
            "bias": np.zeros(self.n_classes, dtype=np.float32),
        }

    def _step(self, params: Params, features: Array, labels: Array) -> Params:
        slope = softmax_slope(self._logits(params, features), labels, self.learning_rate)
        return {"weight": slope @ features, "bias": np.add.reduce(slope, axis=1)}

    def _logits(self, params: Params, features: Array) -> Float32Array:
        logits: Float32Array = params["weight"] @ features.T
        logits += params["bias"][:, np.newaxis]
        return logits
