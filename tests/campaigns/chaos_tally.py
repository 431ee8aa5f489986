"""A learner that can be checked: its model counts the updates of every node, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from veilwalk.learning import Params, Partition, StepContext, UpdateResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Adds this node's row to the model; node i's row is one at i and nought elsewhere.

    ``padding`` numbers more make the model as large as a test wants it. Walks that meet need a mean of whole numbers,
    which is exact as ``float64`` where there are two.
    """

    n_features: int
    n_classes: int
    padding: int = 0
    dtype: str = "int64"

    def init_params(self, rng: np.random.Generator) -> Params:
        """Return zeros."""
        del rng
        return {
            "counts": np.zeros(self.n_features, dtype=self.dtype),
            "padding": np.zeros(1 + self.padding, dtype=np.int64),
        }

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Count one more update of this node."""
        del ctx
        counted = params["counts"] + data.features[0].astype(self.dtype)
        return UpdateResult(params={"counts": counted, "padding": params["padding"]}, num_examples=1)

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return a loss that means nothing."""
        del params, data
        return {"loss": 0.0}
