"""Learners of other people: their mistakes are shown as theirs, and ours are called as they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilwalk.core.errors import InvalidParameterError, LearnerError
from veilwalk.core.randomness import task_generator
from veilwalk.learning import (
    Learner,
    LinearLearner,
    MlpLearner,
    Partition,
    SoftmaxLearner,
    StepContext,
    TrainingTask,
    apply_update,
    central_trace,
    guarded,
    make_learner,
    train,
)
from veilwalk.training import candidate_losses

OWN = '''
import numpy as np
from veilwalk.learning import UpdateResult


class Mine:
    """Does what it is told."""

    def __init__(self, *, n_features, n_classes, how="well"):
        self.how = how
        if how == "not_made":
            raise KeyError("oops")

    def init_params(self, rng):
        return [1, 2] if self.how == "list" else {"w": np.zeros(3)}

    def update(self, params, data, ctx):
        if self.how == "raises":
            return {}["oops"]
        if self.how == "deep":
            return np.linalg.inv(np.zeros((2, 2)))
        if self.how == "writes":
            params["w"] += 1
        if self.how == "writes_data":
            data.features[0] = 1
        if self.how == "dict":
            return {"w": params["w"] + 1}
        if self.how == "lists":
            return UpdateResult(params={"w": [1, 2, 3]}, num_examples=1)
        return UpdateResult(params={"w": params["w"] + 1}, num_examples=1)

    def evaluate(self, params, data):
        if self.how == "no_loss":
            return {"mse": 1.0}
        if self.how == "none":
            return None
        return {"loss": "low" if self.how == "text" else 1.0, "f1": 0.5}


class Scoring(Mine):
    def example_losses(self, params, data):
        if self.how == "one":
            return np.zeros(1)
        return np.arange(len(data), dtype=float)
'''
DATA = Partition(np.zeros((4, 2), dtype=np.float32), np.array([0, 1, 0, 1]))


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's module in the folder the command runs in."""
    (tmp_path / "my_guarded.py").write_text(OWN)
    (tmp_path / "my_torn.py").write_text("import numpy\nx = = 1\n")
    (tmp_path / "my_late.py").write_text("import numpy\nx = {}['gone']\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("my_guarded", "my_torn", "my_late"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def trained(learner: Learner) -> Any:
    task = TrainingTask(learner=learner, partitions=[DATA], held_out=DATA, seed=0)
    return train(task, central_trace(updates=3))


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(OWN.splitlines(), start=1) if text in line)


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("raises", f"in update: KeyError: 'oops' (my_guarded.py, line {line_of('{}[')})"),
        ("deep", f"in update: LinAlgError: Singular matrix (my_guarded.py, line {line_of('linalg')})"),
        ("writes", "in update: changes what it was given, which is to be copied first: ValueError: "),
        ("writes_data", "in update: changes what it was given, which is to be copied first: ValueError: "),
        ("dict", "in update: must return an UpdateResult, not a mapping with w"),
        ("lists", "in update: must return an UpdateResult whose params are named arrays, not a mapping with w"),
        ("list", "in init_params: must return named arrays, not [1, 2]"),
        ("no_loss", "in evaluate: must return scores by name, with a loss, not a mapping with mse"),
        ("none", "in evaluate: must return scores by name, with a loss, not None"),
        ("text", "in evaluate: must return a number as loss, not 'low'"),
    ],
)
def test_a_mistake_is_shown_as_the_learners(how: str, says: str) -> None:
    """The method, the error, the file and the line; exit code 1, not the one for faults of ours."""
    learner = make_learner(f"my_guarded:Mine:how={how}", n_features=2, n_classes=2)
    with pytest.raises(LearnerError) as caught:
        trained(learner)
    assert str(caught.value).startswith(f"learner my_guarded:Mine, {says}")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 1


@pytest.mark.usefixtures("own_module")
def test_an_object_in_a_task_is_guarded_too() -> None:
    """Under the name of its class, with the line of its module."""
    make_learner("my_guarded:Mine", n_features=2, n_classes=2)
    mine = sys.modules["my_guarded"].Mine(n_features=2, n_classes=2, how="raises")
    with pytest.raises(LearnerError, match=r"^learner Mine, in update: KeyError: 'oops' \(my_guarded.py, line \d+\)$"):
        trained(mine)


@pytest.mark.usefixtures("own_module")
def test_single_updates_are_guarded() -> None:
    """As a node makes them."""
    learner = make_learner("my_guarded:Mine:how=raises", n_features=2, n_classes=2)
    with pytest.raises(LearnerError, match="in update: KeyError"):
        apply_update(learner, learner.init_params(task_generator(0)), DATA, seed=0, node=0, step=0, state={})


@pytest.mark.usefixtures("own_module")
def test_a_good_one_trains_as_it_would_alone() -> None:
    """Further scores are kept; what it is given may be given to others afterwards."""
    run = trained(make_learner("my_guarded:Mine", n_features=2, n_classes=2))
    assert run.params["w"].tolist() == [3, 3, 3]
    assert run.points[-1].scores == {"f1": 0.5}
    assert DATA.features.flags.writeable


@pytest.mark.usefixtures("own_module")
def test_rows_are_scored_by_those_who_can() -> None:
    """The guard looks as if it scored rows only where its learner does, and checks what comes back."""
    plain, scoring, one = (
        make_learner(f"my_guarded:{spec}", n_features=2, n_classes=2) for spec in ("Mine", "Scoring", "Scoring:how=one")
    )
    assert not hasattr(plain, "example_losses")
    params = plain.init_params(task_generator(0))
    assert candidate_losses(plain, params, [DATA, DATA]).tolist() == [1, 1]
    assert candidate_losses(scoring, params, [DATA, DATA]).tolist() == [1.5, 5.5]
    with pytest.raises(LearnerError, match="in example_losses: must return one number for each of 8 rows"):
        candidate_losses(one, params, [DATA, DATA])


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            "my_guarded:Mine:how=not_made",
            r"^learner my_guarded:Mine, when made: KeyError: 'oops' \(my_guarded.py, line 12\)",
        ),
        ("my_torn:Mine", r"^learner my_torn:Mine, when imported: SyntaxError: .* \(my_torn.py, line 2\)$"),
        ("my_late:Mine", r"^learner my_late:Mine, when imported: KeyError: 'gone' \(my_late.py, line 2\)$"),
    ],
)
def test_one_that_cannot_be_made(spec: str, says: str) -> None:
    """On import, and in its own constructor."""
    with pytest.raises(LearnerError, match=says):
        make_learner(spec, n_features=2, n_classes=2)


def test_ours_are_called_as_they_are() -> None:
    """They pay nothing; and nobody is guarded twice."""
    for learner in (
        SoftmaxLearner(n_features=2, n_classes=2),
        LinearLearner(n_features=2),
        MlpLearner(n_features=2, n_classes=2),
    ):
        assert guarded(learner) is learner


def test_errors_that_say_enough_are_left_alone() -> None:
    """One line of ours, raised inside somebody's learner, needs no other around it; and no guard gets another."""

    class Wrapping:
        def __init__(self) -> None:
            self._inner = SoftmaxLearner(n_features=3, n_classes=2)

        def init_params(self, rng: np.random.Generator) -> Any:
            return self._inner.init_params(rng)

        def update(self, params: Any, data: Partition, ctx: StepContext) -> Any:
            return self._inner.update(params, data, ctx)

        def evaluate(self, params: Any, data: Partition) -> Any:
            return self._inner.evaluate(params, data)

    learner = guarded(Wrapping())
    assert guarded(learner) is learner
    with pytest.raises(InvalidParameterError, match="rows of 3 numbers"):
        learner.evaluate(learner.init_params(task_generator(0)), DATA)
