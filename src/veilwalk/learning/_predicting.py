"""What a trained model says of rows: probabilities of classes, or numbers; and rows as a file has them, unscaled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError
from veilwalk.learning._api import Array, Learner, Params
from veilwalk.learning._data import DATA_USAGE, checked_partition, load_data, read_archive
from veilwalk.learning._descent import DescentLearner
from veilwalk.learning._streams import init_generator
from veilwalk.learning._table import Table, TableSpec, parse_table_spec, read_csv, read_parquet, roles

_BLOCK_ROWS = 4096
_SHOWN_ARRAYS = 4


def predict(learner: Learner, params: Params, features: Array) -> FloatArray:
    """Return what a model says of every row: a probability for each class (row by class), or one number a row.

    The package's learners and any torch module know how; another learner needs a method ``predict(params, features)``.

    Raises:
        ConfigError: The learner cannot predict.
    """
    blocks = [features[start : start + _BLOCK_ROWS] for start in range(0, len(features), _BLOCK_ROWS)]
    if isinstance(learner, DescentLearner):
        made = [learner.predict(params, block) for block in blocks]
    elif callable(theirs := getattr(learner, "predict", None)):
        made = [np.asarray(theirs(params, block), dtype=np.float64) for block in blocks]
    elif callable(loaded := getattr(learner, "loaded", None)):
        module = loaded(params)
        made = [_of_module(module, block) for block in blocks]
    else:
        raise ConfigError("this learner cannot predict: it needs a method predict(params, features)")
    return np.concatenate(made) if made else np.zeros(0)


def require_arrays(learner: Learner, params: Params, *, spec: str) -> None:
    """Refuse a model whose arrays are not those of its learner, of which ``spec`` is the name.

    Raises:
        InvalidParameterError: Some have other names or shapes.
    """
    wanted, given = (
        {name: np.shape(array) for name, array in arrays.items()}
        for arrays in (learner.init_params(init_generator(0)), params)
    )
    if wanted != given:
        shown = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in list(given.items())[:_SHOWN_ARRAYS])
        raise InvalidParameterError("learner", spec, f"the one that this model is of, with {shown or 'no arrays'}")


def _of_module(module: Any, features: Array) -> FloatArray:
    """Return what a torch module says: its number, or the softmax of its logits."""
    import torch

    with torch.no_grad():
        outputs = module(torch.tensor(features)).double().numpy()
    if outputs.ndim == 1 or outputs.shape[1] == 1:
        return np.asarray(outputs.reshape(len(features)))
    outputs -= outputs.max(axis=1, keepdims=True)
    shares = np.exp(outputs)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def scaled_rows(features: Array, feature_range: tuple[Array, Array] | None) -> Array:
    """Return rows scaled as those of the training were: by their range there, cut off beyond it."""
    if feature_range is None:
        return features
    low, high = (np.asarray(end, dtype=np.float32) for end in feature_range)
    width = np.where(high > low, high - low, np.float32(1))
    return np.asarray(np.clip((features - low) / width, 0, 1), dtype=np.float32)


def load_rows(spec: str, *, n_features: int, seed: int = 0) -> tuple[Array, Array | None]:
    """Return rows for a model of so many features as a file has them, not scaled, and their labels where it has any.

    ``csv:FILE``, ``parquet:FILE`` and ``npz:FILE`` (``features``, and ``labels`` if there are any) give all rows; of
    ``digits`` (split by ``seed``), ``mnist:DIR`` and an archive with ``x_test`` it is the test part.
    """
    kind, _, rest = spec.strip().partition(":")
    if kind in {"csv", "parquet"} and rest:
        asked = parse_table_spec(spec, rest)
        return _of_table((read_csv if kind == "csv" else read_parquet)(asked.file), asked, n_features)
    if kind == "npz" and rest:
        arrays = read_archive(Path(rest))
        rows, labels = ("features", "labels") if "features" in arrays else ("x_test", "y_test")
        if rows not in arrays:
            raise InputFileError(f"{rest}: need an array features, or x_test")
        return _checked(rest, arrays[rows], arrays.get(labels))
    if kind in {"digits", "mnist"}:
        test = load_data(spec, seed=seed).test
        return test.features, test.labels
    raise InvalidParameterError("data", spec, DATA_USAGE)


def _of_table(table: Table, asked: TableSpec, n_features: int) -> tuple[Array, Array | None]:
    named = asked.label or asked.target or "label" in table.columns
    if named or len(table.columns) - len(asked.groups) != n_features:
        features, labels, _ = roles(table, asked)
        return _checked(str(table.file), features, labels)
    columns = [name for name in table.columns if name not in asked.groups]
    return _checked(str(table.file), np.stack([table.numbers(name, why="") for name in columns], axis=1), None)


def _checked(name: str, features: Array, labels: Array | None) -> tuple[Array, Array | None]:
    rows = checked_partition(name, features, np.zeros(len(features)) if labels is None else labels)
    return rows.features, None if labels is None else rows.labels
