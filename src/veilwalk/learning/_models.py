"""Several models at once: their average, and one round of gossip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.learning._api import Params

if TYPE_CHECKING:
    # Types only: a node starts without SciPy.
    from scipy import sparse


def average(models: Sequence[Params]) -> Params:
    """Return the mean of several models, in their own types; a single one as it is."""
    if len(models) == 1:
        return models[0]
    return {
        name: np.mean([model[name] for model in models], axis=0, dtype=np.float64).astype(array.dtype)
        for name, array in models[0].items()
    }


def mixed(models: list[Params], mixing: sparse.csr_array) -> list[Params]:
    """Average every model with its neighbours'."""
    found = {}
    for name, array in models[0].items():
        rows = np.stack([model[name] for model in models])
        found[name] = np.asarray(mixing @ rows.reshape(len(models), -1)).reshape(rows.shape).astype(array.dtype)
    return [{name: rows[m] for name, rows in found.items()} for m in range(len(models))]
