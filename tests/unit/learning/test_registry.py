"""Learners by a line of text."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.learning import LEARNERS, MlpLearner, SoftmaxLearner, list_options, make_learner

OWN = '''
import numpy as np
from veilwalk.learning import SoftmaxLearner, UpdateResult


class Mean:
    """Predicts the commonest class."""

    def __init__(self, *, n_features, n_classes, weight=1.0):
        self.n_classes, self.weight = n_classes, weight

    def init_params(self, rng):
        return {"counts": np.ones(self.n_classes)}

    def update(self, params, data, ctx):
        seen = np.bincount(data.labels, minlength=self.n_classes)
        return UpdateResult(params={"counts": params["counts"] + self.weight * seen}, num_examples=len(data))

    def evaluate(self, params, data):
        share = params["counts"] / params["counts"].sum()
        return {"loss": float(-np.log(share[data.labels]).mean())}


def small(n_features, n_classes):
    return SoftmaxLearner(n_features=n_features, n_classes=n_classes, batch_size=4)


nothing = 3
def broken(n_features, n_classes):
    return object()
'''


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's module in the folder the command runs in."""
    (tmp_path / "my_own_learner.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_own_learner", raising=False)


def test_names_and_options() -> None:
    """Numbers are numbers."""
    assert make_learner("softmax", n_features=4, n_classes=2) == SoftmaxLearner(n_features=4, n_classes=2)
    made = make_learner("mlp:hidden=7:learning_rate=0.25", n_features=4, n_classes=2)
    assert made == MlpLearner(n_features=4, n_classes=2, hidden=7, learning_rate=0.25)


#: Rows that a learner can be made for.
USUAL = {"n_features": 4, "n_classes": 3}
SIZES = {"linear": {"n_features": 4, "n_classes": 0}}


def test_every_name_makes_a_learner_that_starts() -> None:
    """What is listed works."""
    for name in LEARNERS:
        params = make_learner(name, **SIZES.get(name, USUAL)).init_params(task_generator(0))
        assert all(isinstance(array, np.ndarray) for array in params.values())


@pytest.mark.usefixtures("own_module")
def test_a_users_own_class_or_function_is_found_where_the_command_runs() -> None:
    """With options, and after Python's own places."""
    made = make_learner("my_own_learner:Mean:weight=2", n_features=4, n_classes=3)
    assert made.weight == 2  # type: ignore[attr-defined]
    assert make_learner("my_own_learner:small", n_features=4, n_classes=3).batch_size == 4  # type: ignore[attr-defined]
    assert sys.path[-1] == str(Path.cwd())


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("perceptron", "softmax, linear, mlp or module:Class"),
        ("", "softmax, linear, mlp or module:Class"),
        ("no_such_module:Class", "cannot be imported"),
        ("my_own_learner:Absent", "has no Absent"),
        ("my_own_learner:nothing", "not a class or function"),
        ("my_own_learner:broken", "init_params, update and evaluate"),
        ("../evil:Class", "module:Class"),
        ("softmax:lr=1", r"options among learning_rate, batch_size, local_steps, momentum \(not lr\)"),
        ("mlp:depth=3", r"options among learning_rate, batch_size, local_steps, momentum, hidden \(not depth\)"),
        ("softmax:n_classes=3", "not n_classes"),
        ("sklearn", "examples.sklearn_learner:SklearnLearner"),
        ("factorisation:users=3", "examples.comparisons.factorisation:FactorisationLearner"),
        ("softmax:learning_rate=abc", "^learning_rate = 'abc': must be a number$"),
        ("softmax:batch_size=1.5", "^batch_size = 1.5: must be a whole number$"),
        ("linear", "^learner = 'linear': must be softmax or mlp where labels are classes"),
        ("my_own_learner:Mean:height=2", r"one that takes n_features, n_classes, height \(.*'height'"),
        ("softmax:batch_size=", "followed by name=value"),
    ],
)
def test_what_is_no_learner_is_refused_in_one_line(spec: str, says: str) -> None:
    """By name, with what there is."""
    with pytest.raises(InvalidParameterError, match=says) as caught:
        make_learner(spec, n_features=4, n_classes=3)
    assert "\n" not in str(caught.value)


def test_real_labels_take_a_learner_for_them() -> None:
    """The one for classes says which."""
    with pytest.raises(InvalidParameterError, match="must be linear or mlp where labels are real"):
        make_learner("softmax", n_features=4, n_classes=0)


def test_the_options_listed_are_those_the_learners_have() -> None:
    """And the reference lists each of them, with its default."""
    text = (Path(__file__).parents[3] / "docs" / "reference" / "training.md").read_text()
    for name in LEARNERS:
        options = list_options(name)
        made = make_learner(name, **SIZES.get(name, USUAL))
        has = {field.name: field.default for field in dataclasses.fields(made)}  # type: ignore[arg-type]
        assert {*options} == {*has} - {"n_features", "n_classes", "rows"}
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        assert [f"`{option}` [{has[option]:g}]" in row for option in options] == [True] * len(options)
        assert row.count("[") == len(options)


def test_a_learner_that_lacks_a_package_is_told_what_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an extra does; the names of others mean nothing to us."""
    (tmp_path / "with_torch.py").write_text("raise ModuleNotFoundError('No module named torch', name='torch.nn')")
    (tmp_path / "with_other.py").write_text("raise ModuleNotFoundError('No module named other', name='other')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidParameterError, match=r"pip install 'veilwalk\[torch\]' brings it"):
        make_learner("with_torch:Net", n_features=2, n_classes=2)
    with pytest.raises(InvalidParameterError, match=r"cannot be imported \(No module named other\)$"):
        make_learner("with_other:Net", n_features=2, n_classes=2)
