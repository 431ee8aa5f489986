"""``veilwalk predict``: what a trained model makes of rows of a file."""

from __future__ import annotations

import csv
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.cli import Cli

from veilwalk.learning import load_model, make_learner, predict, save_model
from veilwalk.training import Scenario, make_spec, run_training


def write(path: Path, rows: list[list[Any]]) -> None:
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table whose features are far from [0, 1] and whose classes have names."""
    folder = tmp_path_factory.mktemp("predict")
    rng = np.random.default_rng(0)
    kinds = rng.integers(2, size=200)
    table = [[900 + 50 * kind + rng.normal(), -5 + rng.normal(), ("hen", "owl")[kind]] for kind in kinds]
    write(folder / "train.csv", [["weight", "depth", "label"], *table])
    settings = make_spec(
        graph="rrg:20:3:seed=1", support="2:3", data=f"csv:{folder / 'train.csv'}", partition="iid",
        learner="softmax:learning_rate=1", updates=300, attack=0, compare="none",
    )  # fmt: skip
    run_training(Scenario.from_spec(settings), out=folder / "run")
    return folder


def test_rows_are_scaled_as_those_of_the_training(place: Path, run: Cli) -> None:
    """Two rows of a file whose own range is another: scaled by that they would be told wrongly."""
    write(place / "new.csv", [["weight", "depth", "label"], [900, -5, "hen"], [901, -5, "hen"], [950, -5, "owl"]])
    code, out, _ = run(["predict", str(place / "run"), "--data", f"csv:{place / 'new.csv'}", "--to", str(place / "p")])
    assert code == 0
    assert "accuracy 100.00% on 3 rows (95% interval" in out
    assert "always saying hen, the commonest class here, would be right for 66.67%" in out
    with (place / "p").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["predicted"], row["label"], row["correct"]) for row in rows] == [
        ("hen", "hen", "1"),
        ("hen", "hen", "1"),
        ("owl", "owl", "1"),
    ]
    assert all(0.5 < float(row["probability"]) <= 1 for row in rows)


def test_the_label_column_is_that_of_the_training(tmp_path: Path, run: Cli) -> None:
    """It need not be the last, nor be named again; a file without it has no labels."""
    rng = np.random.default_rng(0)
    table = [[("hen", "owl")[kind], "x", kind + rng.normal() / 9, rng.normal()] for kind in rng.integers(2, size=60)]
    write(tmp_path / "train.csv", [["kind", "pen", "weight", "depth"], *table])
    settings = make_spec(
        graph="ring:8", scheme="paper", data=f"csv:{tmp_path / 'train.csv'}:label=kind:group=pen", partition="iid",
        learner="softmax", updates=20, attack=0, compare="none", audit="none",
    )  # fmt: skip
    run_training(Scenario.from_spec(settings), out=tmp_path / "run")
    code, out, _ = run(["predict", str(tmp_path / "run"), "--data", f"csv:{tmp_path / 'train.csv'}"])
    assert (code, "on 60 rows" in out) == (0, True)
    write(tmp_path / "bare.csv", [["weight", "depth"], [0.1, 0.2], [0.9, 0.2]])
    code, out, _ = run(["predict", str(tmp_path / "run"), "--data", f"csv:{tmp_path / 'bare.csv'}"])
    assert (code, "2 rows predicted; they have no labels" in out) == (0, True)


def test_rows_without_labels_are_only_predicted(place: Path, run: Cli) -> None:
    write(place / "bare.csv", [["weight", "depth"], [900, -5], [950, -5]])
    code, out, _ = run(["predict", str(place / "run"), "--data", f"csv:{place / 'bare.csv'}"])
    assert (code, out) == (0, "2 rows predicted; they have no labels\n")
    write(place / "wide.csv", [["a", "b", "c", "label"], [1, 2, 3, "hen"], [1, 2, 3, "hen"]])
    code, _, err = run(["predict", str(place / "run"), "--data", f"csv:{place / 'wide.csv'}"])
    assert (code, "must be rows of 2 features (not 3)" in err) == (2, True)


def test_the_bundled_rows_are_those_held_out(run: Cli, tmp_path: Path) -> None:
    """The accuracy is the record's: by another seed, rows of the training would be among them."""
    settings = make_spec(graph="rrg:20:3:seed=1", support="2:3", updates=40, attack=0, compare="none", seed=5)
    run_training(Scenario.from_spec(settings), out=tmp_path / "run")
    accuracy = json.loads((tmp_path / "run" / "record.json").read_text())["algorithms"]["private-walk"]["accuracy"]
    out = run(["predict", str(tmp_path / "run"), "--data", "digits"])[1]
    assert f"accuracy {accuracy:.2%} on 359 rows" in out
    file = tmp_path / "run" / "model.npz"
    code, _, err = run(["predict", str(file), "--data", "digits"])
    assert (code, "--learner" in err) == (2, True)
    assert run(["predict", str(file), "--data", "digits", "--learner", "softmax"])[0] == 0


def test_numbers_come_back_in_their_own_unit(tmp_path: Path, run: Cli) -> None:
    rng = np.random.default_rng(0)
    table = [[x, 1000 + 300 * x + rng.normal()] for x in rng.random(200)]
    write(tmp_path / "t.csv", [["x", "y"], *table])
    data = f"csv:{tmp_path / 't.csv'}:target=y"
    settings = make_spec(
        graph="rrg:20:3:seed=1", support="2:3", data=data, partition="iid",
        learner="linear:learning_rate=0.3:local_steps=5", updates=300, attack=0, compare="none",
    )  # fmt: skip
    run_training(Scenario.from_spec(settings), out=tmp_path / "run")
    code, out, _ = run(["predict", str(tmp_path / "run"), "--data", data, "--to", str(tmp_path / "p.csv")])
    assert code == 0
    assert float(out.rsplit("r2 ", 1)[1]) > 0.9
    with (tmp_path / "p.csv").open() as stream:
        first = next(csv.DictReader(stream))
    assert float(first["predicted"]) == pytest.approx(float(first["label"]), rel=0.1)


def test_a_torch_module_predicts_and_leaves_as_onnx_and_state_dict(tmp_path: Path) -> None:
    """What ONNX's own evaluator says of rows is what the module does; torch reads the state_dict back."""
    torch: Any = pytest.importorskip("torch")
    spec = "tests.unit.cli.test_predict:small_network"
    learner: Any = make_learner(spec, n_features=4, n_classes=3)
    params = learner.init_params(np.random.default_rng(1))
    rows = np.random.default_rng(2).random((7, 4), dtype=np.float32)
    said = predict(learner, params, rows)
    assert said.shape == (7, 3)
    np.testing.assert_allclose(said.sum(axis=1), 1)
    save_model(tmp_path / "m.pt", params)
    module = torch.nn.Linear(4, 3)
    module.load_state_dict(torch.load(tmp_path / "m.pt", weights_only=True))
    logits = module(torch.tensor(rows)).detach().numpy()
    np.testing.assert_array_equal(said.argmax(axis=1), logits.argmax(axis=1))
    save_model(tmp_path / "m.npz", params)
    assert load_model(tmp_path / "m.npz").keys() == params.keys()
    reference: Any = pytest.importorskip("onnx.reference")
    save_model(tmp_path / "m.onnx", params, learner=spec, n_features=4, n_classes=3)
    (found,) = reference.ReferenceEvaluator(str(tmp_path / "m.onnx")).run(None, {"features": rows})
    np.testing.assert_allclose(found, logits, rtol=1e-5, atol=1e-6)


def small_network(*, n_features: int, n_classes: int) -> Any:
    """One linear layer of torch."""
    from torch import nn

    from veilwalk.learning.torch_learner import TorchLearner

    return TorchLearner(module_fn=lambda: nn.Linear(n_features, n_classes))


def test_a_model_file_must_be_of_its_learner(place: Path, run: Cli) -> None:
    """Other names or other shapes: said by name, not found out in the midst of it."""
    file, data = str(place / "run" / "model.npz"), f"csv:{place / 'train.csv'}"
    for learner in ("mlp", "mlp:hidden=3"):
        code, _, err = run(["predict", file, "--data", data, "--learner", learner])
        assert (code, len(err.splitlines())) == (2, 1)
        assert f"--learner = '{learner}': must be the one that this model is of" in err
    other = place / "other.npz"
    save_model(other, {"weight": np.zeros((2, 2), np.float32), "bias": np.zeros(3, np.float32)})
    assert (
        "must be the one that this model is of"
        in run(["predict", str(other), "--data", data, "--learner", "softmax"])[2]
    )


def test_code_that_a_folder_names_runs_only_when_allowed(
    tmp_path: Path, run: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run folder of somebody else must not execute a module by being looked at."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("theirs.py").write_text(
        "from pathlib import Path\n"
        "from veilwalk.learning import SoftmaxLearner\n"
        "Path('executed').touch()\n"
        "class Own(SoftmaxLearner):\n    pass\n"
    )
    spec = make_spec(graph="rrg:20:3:seed=1", support="2:3", updates=10, attack=0, compare="none", learner="theirs:Own")
    run_training(Scenario.from_spec(spec), out=tmp_path / "run")
    Path("executed").unlink()
    for arguments in (["predict", "run", "--data", "digits"], ["export", "run", "--to", "model.onnx"]):
        monkeypatch.delitem(sys.modules, "theirs", raising=False)
        code, out, err = run(arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "theirs:Own" in err
        assert "--allow-code" in err
    assert not Path("executed").exists()
    assert run(["export", "run", "--to", "model.npz"])[0] == 0
    assert not Path("executed").exists()
    assert run(["predict", "run", "--data", "digits", "--allow-code"])[0] == 0
    assert Path("executed").exists()


def test_models_and_predictions_are_their_owners(place: Path, run: Cli) -> None:
    """Whatever the umask; and no cell is a formula."""
    write(place / "odd.csv", [["weight", "depth", "label"], [900, -5, "=1+1"], [950, -5, "owl"]])
    before = os.umask(0o022)
    try:
        run(["predict", str(place / "run"), "--data", f"csv:{place / 'odd.csv'}", "--to", str(place / "odd-said.csv")])
        run(["export", str(place / "run"), "--to", str(place / "mine.npz")])
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    assert [(place / name).stat().st_mode & 0o777 for name in ("odd-said.csv", "mine.npz")] == [0o600, 0o600]
    assert (place / "run/checkpoints/private-walk.npz").stat().st_mode & 0o077 == 0
    assert [row["label"] for row in csv.DictReader((place / "odd-said.csv").read_text().splitlines())] == [
        "'=1+1",
        "owl",
    ]


def test_labels_that_no_class_is_called_by_say_nothing(place: Path, run: Cli) -> None:
    """A file knows its classes by number alone: that none of them is called hen is not an accuracy of 0%."""
    file, data = str(place / "run" / "model.npz"), f"csv:{place / 'train.csv'}"
    code, out, _ = run(["predict", file, "--data", data, "--learner", "softmax"])
    assert code == 0
    assert "accuracy" not in out
    assert "200 rows predicted; none of their labels (hen, owl) is a class of the model (0, 1)" in out
