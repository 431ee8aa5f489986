"""What a trained model says of rows: probabilities of classes, or numbers; and rows of a file, scaled for a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError
from veilwalk.learning._api import Array, Learner, Params
from veilwalk.learning._data import DATA_USAGE, checked_partition, load_data, read_archive
from veilwalk.learning._descent import DescentLearner
from veilwalk.learning._prepare import pool_images, take_options, take_scale
from veilwalk.learning._scaling import Scaler
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


def load_rows(spec: str, *, n_features: int, seed: int = 0, scaler: Scaler | None = None) -> tuple[Array, Array | None]:
    """Return rows for a model of so many features, and their labels where the file has any.

    ``csv:FILE``, ``parquet:FILE`` and ``npz:FILE`` (``features``, and ``labels`` if there are any) give all rows; of
    ``digits`` (split by ``seed``), ``mnist:DIR`` and an archive with ``x_test`` it is the test part. ``:only=`` and
    ``:pool=`` are applied as in training.

    Args:
        spec: Which rows.
        n_features: Of the model.
        seed: Of the run, by which rows were held out.
        scaler: How the training rows of the model were scaled. None takes rows as they are.

    Raises:
        InvalidParameterError: The spec names no such rows, or asks for another scaling than the model had.
    """
    bare, options = take_options(spec.strip())
    scaler = scaler or Scaler()
    if take_scale(spec, options) not in {None, scaler.kind}:
        raise InvalidParameterError("data", spec, f"with scale={scaler.kind}, as in training, or without scale=")
    kind, _, rest = bare.partition(":")
    if kind in {"digits", "mnist"}:
        test = load_data(bare + "".join(f":{key}={value}" for key, value in options if key != "scale"), seed=seed).test
        return scaler.apply(test.features), test.labels
    features, labels = _read_rows(spec, kind, rest, n_features)
    for key, value in options:
        if key == "pool":
            features = pool_images(features, value, spec)
        elif key == "only":
            if labels is None:
                raise InvalidParameterError("data", spec, "without only=: the rows have no labels")
            chosen = np.isin(labels.astype(np.str_), [name.strip() for name in value.split(",")])
            features, labels = features[chosen], labels[chosen]
    # Another width is refused by name where the model is known.
    return scaler.apply(features) if features.shape[1] == n_features else features, labels


def _read_rows(spec: str, kind: str, rest: str, n_features: int) -> tuple[Array, Array | None]:
    if kind in {"csv", "parquet"} and rest:
        asked = parse_table_spec(spec, rest)
        return _of_table((read_csv if kind == "csv" else read_parquet)(asked.file), asked, n_features)
    if kind == "npz" and rest:
        arrays = read_archive(Path(rest))
        rows, labels = ("features", "labels") if "features" in arrays else ("x_test", "y_test")
        if rows not in arrays:
            raise InputFileError(f"{rest}: need an array features, or x_test")
        return _checked(rest, arrays[rows], arrays.get(labels))
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
