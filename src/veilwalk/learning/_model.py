"""Asks a trained model for predictions and scores, and writes it as a file for other programs.

Files hold named arrays (npz, safetensors, pt), or a graph (ONNX).
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from veilwalk.core import validate
from veilwalk.core.archives import name_errors, read_archive
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.core.records import write_atomically
from veilwalk.core.rooms import import_extra
from veilwalk.core.version import __version__
from veilwalk.learning._contract import Array, Learner, Params, init_generator
from veilwalk.learning._data import SITE, Data, baseline_score
from veilwalk.learning._learners import LEARNERS, is_own_learner, make_learner

MODEL_SUFFIXES = (".npz", ".safetensors", ".pt", ".onnx")
_READ = (".npz", ".safetensors")
# The version of ONNX's operators: what readers of the last years know.
_OPERATORS = 17
_BLOCK_ROWS = 4096
_SHOWN_ARRAYS = 4


def score_sites(learner: Learner, params: Params, data: Data) -> list[dict[str, Any]]:
    """Return how good a model is at every site, on rows that the site held out; none where data do not come by site.

    ``measure`` is what ``score`` is: ``accuracy``, or ``loss``. ``baseline`` is the score of always saying the
    commonest class of the site's own training rows, or their mean; None where labels mean nothing, or the loss is not
    comparable.
    """
    scores = []
    for number, name in enumerate(() if data.sites is None else data.sites.names):
        rows = data.test.take(data.sites.test == number)  # type: ignore[union-attr]
        if not len(rows):
            continue
        labels = data.train.labels[data.columns[SITE] == name]
        values = learner.evaluate(params, rows)
        measure = "accuracy" if "accuracy" in values else "loss"
        comparable = data.has_labels and len(labels) and (measure == "accuracy") == (data.n_classes > 0)
        baseline = baseline_score(labels, rows.labels) if comparable else None
        score = float(values[measure])
        # A learner that loads its own rows says how many they are.
        count = int(values.get("num_examples", len(rows)))
        scores.append({"name": name, "rows": count, "measure": measure, "score": score, "baseline": baseline})
    return scores


def predict(learner: Learner, params: Params, features: Array) -> FloatArray:
    """Return what a model says of every row: a probability for each class (row by class), or one number a row.

    The package's learners and any torch module know how; another learner needs a method ``predict(params, features)``.
    """
    blocks = [features[start : start + _BLOCK_ROWS] for start in range(0, len(features), _BLOCK_ROWS)]
    if callable(method := getattr(learner, "predict", None)):
        outputs = [np.asarray(method(params, block), dtype=np.float64) for block in blocks]
    elif callable(load := getattr(learner, "loaded", None)):
        import torch

        module, outputs = load(params), []
        for block in blocks:
            with torch.no_grad():
                answers = module(torch.tensor(block)).double()
            is_number = answers.ndim == 1 or answers.shape[1] == 1
            outputs.append(np.asarray(answers.reshape(len(block)) if is_number else answers.softmax(dim=1)))
    else:
        raise ConfigError("this learner cannot predict: it needs a method predict(params, features)")
    return np.concatenate(outputs) if outputs else np.zeros(0)


def require_arrays(learner: Learner, params: Params, *, spec: str) -> None:
    """Refuse a model whose arrays have other names or shapes than those of its learner, called ``spec``."""
    needed, shapes = (
        {name: np.shape(array) for name, array in arrays.items()}
        for arrays in (learner.init_params(init_generator(0)), params)
    )
    if needed != shapes:
        first = [f"{name} {'x'.join(map(str, shape))}" for name, shape in list(shapes.items())[:_SHOWN_ARRAYS]]
        need = f"the one that this model is of, with {', '.join(first) or 'no arrays'}"
        raise InvalidParameterError("learner", spec, need)


def save_model(path: Path | str, params: Params, *, learner: str = "", n_features: int = 0, n_classes: int = 0) -> None:
    """Write a model to ``path``, in the format that its ending says: ``.npz``, ``.safetensors``, ``.pt`` or ``.onnx``.

    Args:
        path: The file; one that is there is replaced. Only its owner can read it: a model may hold its training rows.
        params: Named arrays.
        learner: The learner's spec. ONNX needs it: torch exports the built-in learners and torch modules.
        n_features: Numbers in a row; ONNX needs it of torch modules.
        n_classes: Classes, 0 for real labels; likewise.

    Raises:
        InvalidParameterError: The ending is another.
        ConfigError: A library is missing, or ONNX cannot say what this learner does.
    """
    path, buffer = Path(path), io.BytesIO()
    match path.suffix:
        case ".npz":
            np.savez(buffer, allow_pickle=False, **params)
        case ".safetensors":
            arrays = {name: np.ascontiguousarray(array) for name, array in params.items()}
            buffer.write(import_extra("safetensors.numpy", "export").save(arrays, metadata=_describe_origin(learner)))
        case ".pt":
            # A state_dict: torch.load(file, weights_only=True) reads it.
            torch = import_extra("torch", "torch")
            torch.save({name: torch.tensor(array) for name, array in params.items()}, buffer)
        case ".onnx":
            buffer.write(_export_onnx(params, learner, n_features, n_classes))
        case other:
            need = f"a file that ends in {', '.join(MODEL_SUFFIXES)} (not {other})"
            raise InvalidParameterError("to", str(path), need)
    write_atomically(path, buffer.getbuffer(), mode=0o600)


def load_model(path: Path | str) -> dict[str, Array]:
    """Return the named arrays of a ``.npz`` or ``.safetensors`` file that :func:`save_model` wrote."""
    validate.instance((str, Path), "a file", path=path)
    path = Path(path)
    if path.suffix not in _READ:
        raise InvalidParameterError("model", str(path), f"a file that ends in {' or '.join(_READ)}")
    if path.suffix == ".npz":
        return read_archive(path)
    library = import_extra("safetensors.numpy", "export")
    with name_errors(path, "is not a model ({error})", import_extra("safetensors", "export").SafetensorError):
        return dict(library.load(path.read_bytes()))


def _describe_origin(learner: str) -> dict[str, str]:
    return {"made_by": f"veilwalk {__version__}", "learner": learner}


def _export_onnx(params: Params, learner: str, n_features: int, n_classes: int) -> bytes:
    """Return the graph that torch exports: from ``features``, scaled as in training, to what the module returns."""
    torch, onnx = import_extra("torch", "torch"), import_extra("onnx", "export")
    output = "outputs"
    if not is_own_learner(learner):
        module, n_features = _build_module(torch, params), next(iter(params.values())).shape[1]
        output = "probabilities" if len(params["bias"]) > 1 else output
    else:
        is_own = ":" in learner and n_features
        own = make_learner(learner, n_features=n_features, n_classes=n_classes) if is_own else None
        if (load := getattr(own, "loaded", None)) is None:
            need = f"one of {', '.join(LEARNERS)}, or a torch module: take .npz or .safetensors for others"
            raise ConfigError(f"ONNX cannot say what the learner {learner[:80]!r} does; it must be {need}")
        module = load(params)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Its newer exporter needs a further package, and warns of it.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (torch.zeros(2, n_features),),
            buffer,
            input_names=["features"],
            output_names=[output],
            dynamic_axes={"features": {0: "rows"}, output: {0: "rows"}},
            opset_version=_OPERATORS,
            dynamo=False,
        )
    model = onnx.load_from_string(buffer.getvalue())
    onnx.helper.set_model_props(model, _describe_origin(learner))
    return bytes(model.SerializeToString())


def _build_module(torch: Any, params: Params) -> Any:
    """Return a built-in model as a torch module: its layers, and a softmax where there are classes."""
    nn, layers = torch.nn, []
    for prefix in ("hidden_", ""):
        if f"{prefix}weight" in params:
            weight, bias = (torch.tensor(params[f"{prefix}{name}"]) for name in ("weight", "bias"))
            layer = nn.Linear(weight.shape[1], weight.shape[0])
            layer.load_state_dict({"weight": weight, "bias": bias})
            layers += [layer, nn.ReLU()] if prefix else [layer]
    return nn.Sequential(*layers, *([nn.Softmax(dim=1)] if len(params["bias"]) > 1 else []))
