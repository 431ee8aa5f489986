"""Models as files: what goes in comes out, and an ONNX graph predicts what the learner does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError
from veilwalk.learning import load_model, make_learner, save_model

ARRAYS: dict[str, np.ndarray] = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "steps": np.array([7], dtype=np.int64),
}


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_arrays_come_back_by_name(suffix: str, tmp_path: Path) -> None:
    if suffix == ".safetensors":
        pytest.importorskip("safetensors")
    save_model(tmp_path / f"model{suffix}", ARRAYS)
    found = load_model(str(tmp_path / f"model{suffix}"))
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    ("spec", "n_classes"), [("softmax", 3), ("mlp:hidden=5", 3), ("mlp:hidden=5", 0), ("linear", 0)]
)
def test_a_graph_predicts_what_the_learner_does(spec: str, n_classes: int, tmp_path: Path) -> None:
    """ONNX's own evaluator, on rows that nobody trained on."""
    reference: Any = pytest.importorskip("onnx.reference")
    pytest.importorskip("torch")
    learner: Any = make_learner(spec, n_features=4, n_classes=n_classes)
    rng = np.random.default_rng(1)
    params = {name: rng.normal(size=array.shape).astype(np.float32) for name, array in learner.init_params(rng).items()}
    save_model(tmp_path / "model.onnx", params, learner=spec)
    rows = rng.random((9, 4), dtype=np.float32)
    found = reference.ReferenceEvaluator(str(tmp_path / "model.onnx")).run(None, {"features": rows})
    outputs = learner._outputs(params, rows).T
    if not n_classes:
        np.testing.assert_allclose(found[0], outputs, rtol=1e-5)
        return
    shares = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found[0], shares, rtol=1e-4)


def test_what_cannot_be_written_or_read_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidParameterError, match=r"\.npz, \.safetensors, \.pt, \.onnx"):
        save_model(tmp_path / "model.bin", ARRAYS)
    with pytest.raises(ConfigError, match="ONNX cannot say what the learner 'mine:Mean' does"):
        save_model(tmp_path / "model.onnx", ARRAYS, learner="mine:Mean")
    for library, name in (("safetensors.numpy", "model.safetensors"), ("onnx", "model.onnx")):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(ConfigError, match=r"pip install 'veilwalk\[export\]'"):
            save_model(tmp_path / name, ARRAYS, learner="softmax")
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    with pytest.raises(InputFileError, match=r"bad\.npz: is not an npz archive"):
        load_model(tmp_path / "bad.npz")
    with pytest.raises(InputFileError, match="No such file"):
        load_model(tmp_path / "none.npz")
    with pytest.raises(InvalidParameterError, match=r"\.npz or \.safetensors"):
        load_model(tmp_path / "model.onnx")


def test_a_damaged_safetensors_file_is_named(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(InputFileError, match="is not a model"):
        load_model(tmp_path / "bad.safetensors")
