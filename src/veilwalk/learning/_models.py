"""Several models at once: their mean, the best of them, and one round of gossip."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from veilwalk.learning._api import Array, Params

if TYPE_CHECKING:
    # Types only: a node starts without SciPy.
    from scipy import sparse


#: Name of the mean among the models that may be handed out.
MEAN = "mean"


def average(models: Sequence[Params]) -> Params:
    """Return the mean of several models, in their own types, whole numbers rounded; a single one as it is."""
    if len(models) == 1:
        return models[0]
    return {
        name: _in_type(np.asarray(np.mean([model[name] for model in models], axis=0, dtype=np.float64)), array.dtype)
        for name, array in models[0].items()
    }


def candidate_models(models: Sequence[Params]) -> dict[str, Params]:
    """Return what a run of several walks may hand out, by name: the mean, and the end of each walk."""
    ends = {f"walk {number}": model for number, model in enumerate(models, start=1)} if len(models) > 1 else {}
    return {MEAN: average(models), **ends}


def least_loss(scores: Mapping[str, Mapping[str, float]]) -> str:
    """Return which of some scored models has the least loss, the first of equals; a loss that is no number is worst.

    The mean of networks that were trained apart may be far worse than each of them.
    """
    return min(scores, key=lambda name: (not math.isfinite(scores[name]["loss"]), scores[name]["loss"]))


def choose_model(
    models: Sequence[Params], evaluate: Callable[[Params], Mapping[str, float]] | None
) -> tuple[str, Params]:
    """Return the model that several walks hand out, after its name.

    Args:
        models: The end of each walk.
        evaluate: Scores a model on public rows; None where there are none: then the first end is handed out, since
            nobody knows whether the mean is any good.
    """
    candidates = candidate_models(models)
    if len(models) == 1:
        return MEAN, candidates[MEAN]
    if evaluate is None:
        return "walk 1", models[0]
    chosen = least_loss({name: evaluate(params) for name, params in candidates.items()})
    return chosen, candidates[chosen]


def _in_type(values: Array, kind: np.dtype[Any]) -> Array:
    return (np.rint(values) if kind.kind in "iu" else values).astype(kind)


def mixed(models: list[Params], mixing: sparse.csr_array) -> list[Params]:
    """Average every model with its neighbours'."""
    found = {}
    for name, array in models[0].items():
        rows = np.stack([model[name] for model in models])
        found[name] = np.asarray(mixing @ rows.reshape(len(models), -1)).reshape(rows.shape).astype(array.dtype)
    return [{name: rows[m] for name, rows in found.items()} for m in range(len(models))]
