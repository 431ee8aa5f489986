"""Models as files that others can read: named arrays (npz, safetensors), or a graph that runs by itself (ONNX)."""

from __future__ import annotations

import io
import warnings
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError
from veilwalk.core.records import write_atomically
from veilwalk.core.version import __version__
from veilwalk.learning._api import Array, Params

MODEL_SUFFIXES = (".npz", ".safetensors", ".pt", ".onnx")
_READ = (".npz", ".safetensors")
# The version of ONNX's operators that is asked for, and of its files: what readers of the last years know.
_OPERATORS, _FILE_VERSION = 17, 8
_DRAWN = ("softmax", "linear", "mlp")


def save_model(path: Path | str, params: Params, *, learner: str = "", n_features: int = 0, n_classes: int = 0) -> None:
    """Write a model to ``path``, in the format that its ending says: ``.npz``, ``.safetensors``, ``.pt`` or ``.onnx``.

    Args:
        path: The file; one that is there is replaced.
        params: Named arrays.
        learner: The learner's spec. ONNX needs it, and knows ``softmax``, ``linear``, ``mlp`` and torch modules.
        n_features: Numbers in a row; ONNX needs it of torch modules.
        n_classes: Classes, 0 for real labels; likewise.

    Raises:
        InvalidParameterError: The ending is another.
        ConfigError: A library is missing, or ONNX cannot say what this learner does.
    """
    path = Path(path)
    match path.suffix:
        case ".npz":
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **params)
            data = buffer.getvalue()
        case ".safetensors":
            arrays = {name: np.ascontiguousarray(array) for name, array in params.items()}
            data = _library("safetensors.numpy").save(arrays, metadata=_about(learner))
        case ".pt":
            data = _state_dict(params)
        case ".onnx":
            drawn = learner.partition(":")[0] in _DRAWN
            data = _onnx(params, learner) if drawn else _torch_onnx(params, learner, n_features, n_classes)
        case other:
            raise InvalidParameterError(
                "to", str(path), f"a file that ends in {', '.join(MODEL_SUFFIXES)} (not {other})"
            )
    write_atomically(path, data)


def load_model(path: Path | str) -> dict[str, Array]:
    """Return the named arrays of a ``.npz`` or ``.safetensors`` file that :func:`save_model` wrote."""
    path = Path(path)
    if path.suffix not in _READ:
        raise InvalidParameterError("model", str(path), f"a file that ends in {' or '.join(_READ)}")
    try:
        data = path.read_bytes()
        if path.suffix == ".safetensors":
            return dict(_library("safetensors.numpy").load(data))
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except ConfigError:
        raise
    except OSError as error:
        raise InputFileError(f"model {path}: {error.strerror or error}") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputFileError(f"model {path}: not a model ({error})") from None
    except Exception as error:
        # The library's own error is no ValueError, and it has no public base.
        if type(error).__module__.partition(".")[0] != "safetensors":
            raise
        raise InputFileError(f"model {path}: not a model ({error})") from None


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        library = name.partition(".")[0]
        extra = "torch" if library == "torch" else "export"
        raise ConfigError(f"{library} is not installed here: pip install 'veilwalk[{extra}]' brings it") from None


def _about(learner: str) -> dict[str, str]:
    return {"made_by": f"veilwalk {__version__}", "learner": learner}


def _state_dict(params: Params) -> bytes:
    """Return a ``state_dict`` as torch writes it; ``torch.load(file, weights_only=True)`` reads it."""
    torch = _library("torch")
    buffer = io.BytesIO()
    torch.save({name: torch.tensor(array) for name, array in params.items()}, buffer)
    return buffer.getvalue()


def _torch_onnx(params: Params, learner: str, n_features: int, n_classes: int) -> bytes:
    """Return what torch itself makes of a torch module, from ``features`` to ``outputs``."""
    from veilwalk.learning._registry import make_learner

    made = make_learner(learner, n_features=n_features, n_classes=n_classes) if ":" in learner and n_features else None
    loaded = getattr(made, "loaded", None)
    if loaded is None:
        need = f"one of {', '.join(_DRAWN)}, or a torch module: take .npz or .safetensors for others"
        raise ConfigError(f"ONNX cannot say what the learner {learner[:80]!r} does; it must be {need}")
    torch, onnx = _library("torch"), _library("onnx")
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Its newer way to write needs a further package, and says so.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            loaded(params),
            (torch.zeros(2, n_features),),
            buffer,
            input_names=["features"],
            output_names=["outputs"],
            dynamic_axes={"features": {0: "rows"}, "outputs": {0: "rows"}},
            opset_version=_OPERATORS,
            dynamo=False,
        )
    model = onnx.load_from_string(buffer.getvalue())
    onnx.helper.set_model_props(model, _about(learner))
    return bytes(model.SerializeToString())


def _onnx(params: Params, learner: str) -> bytes:
    """Return the model as an ONNX graph from ``features``, scaled as in training, to what the learner predicts."""
    kind = learner.partition(":")[0]
    onnx = _library("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    nodes, last = [], "features"
    if kind == "mlp":
        nodes.append(helper.make_node("Gemm", [last, "hidden_weight", "hidden_bias"], ["units"], transB=1))
        nodes.append(helper.make_node("Relu", ["units"], ["hidden"]))
        last = "hidden"
    nodes.append(helper.make_node("Gemm", [last, "weight", "bias"], ["outputs"], transB=1))
    inputs = next(iter(params.values())).shape[1]
    n_outputs = len(params["bias"])
    shown = [helper.make_tensor_value_info("outputs", kinds.FLOAT, ["rows", n_outputs])]
    # One output is a real number; classes have one each.
    if n_outputs > 1:
        nodes.append(helper.make_node("Softmax", ["outputs"], ["probabilities"], axis=1))
        nodes.append(helper.make_node("ArgMax", ["outputs"], ["label"], axis=1, keepdims=0))
        shown = [
            helper.make_tensor_value_info("label", kinds.INT64, ["rows"]),
            helper.make_tensor_value_info("probabilities", kinds.FLOAT, ["rows", n_outputs]),
        ]
    graph = helper.make_graph(
        nodes,
        "veilwalk",
        [helper.make_tensor_value_info("features", kinds.FLOAT, ["rows", inputs])],
        shown,
        [onnx.numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in params.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPERATORS)], ir_version=_FILE_VERSION, producer_name="veilwalk"
    )
    helper.set_model_props(model, _about(learner))
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())
