"""One suite for every learner: ours pass the public check, and broken ones are told what they broke."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from veilwalk.core.errors import InvalidParameterError, LearnerError
from veilwalk.core.randomness import task_generator
from veilwalk.learning import (
    Array,
    Learner,
    LinearLearner,
    MlpLearner,
    Params,
    Partition,
    Partitions,
    SoftmaxLearner,
    StepContext,
    UpdateResult,
    check_learner,
)
from veilwalk.training import candidate_losses


def _torch(*, adam: bool, outputs: int = 3) -> Learner:
    torch = pytest.importorskip("torch")
    from veilwalk.learning.torch_learner import TorchLearner

    def module() -> object:
        nn = torch.nn
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, outputs))

    def optimizer(params: object) -> object:
        return torch.optim.Adam(params, lr=0.01) if adam else torch.optim.SGD(params, lr=0.1)

    return TorchLearner(module_fn=module, optimizer_fn=optimizer, batch_size=8, local_steps=2)  # type: ignore[arg-type]


def _sklearn(n_classes: int = 3) -> Learner:
    pytest.importorskip("sklearn")
    from examples.sklearn_learner import SklearnLearner

    return SklearnLearner(n_features=6, n_classes=n_classes)


LEARNERS: dict[str, Callable[[], Learner]] = {
    "softmax": lambda: SoftmaxLearner(n_features=6, n_classes=3, batch_size=8),
    "softmax with momentum": lambda: SoftmaxLearner(n_features=6, n_classes=3, momentum=0.9, local_steps=3),
    "mlp": lambda: MlpLearner(n_features=6, n_classes=3, batch_size=8),
    "mlp with momentum": lambda: MlpLearner(n_features=6, n_classes=3, momentum=0.9),
    "torch": lambda: _torch(adam=False),
    "torch with adam": lambda: _torch(adam=True),
    "sklearn": _sklearn,
}


FITTERS: dict[str, Callable[[], Learner]] = {
    "linear": lambda: LinearLearner(n_features=6, batch_size=8),
    "linear with momentum": lambda: LinearLearner(n_features=6, momentum=0.5, local_steps=3),
    "mlp": lambda: MlpLearner(n_features=6, n_classes=0, batch_size=8),
    "torch": lambda: _torch(adam=True, outputs=1),
    "sklearn": lambda: _sklearn(0),
}


def some_data(n_rows: int = 30) -> Partition:
    """Three classes that can be told apart."""
    rng = task_generator(0, 99)
    labels = rng.permutation(np.arange(n_rows) % 3)
    features = np.eye(3)[labels].repeat(2, axis=1) * 0.6 + 0.4 * rng.random((n_rows, 6))
    return Partition(features.astype(np.float32), labels)


def some_amounts(n_rows: int = 60) -> Partition:
    """A number that the features tell, but for a little noise."""
    rng = task_generator(0, 98)
    features = rng.random((n_rows, 6), dtype=np.float32)
    labels = features @ np.array([0.5, -0.3, 0.2, 0, 0.4, 0.1]) + 0.01 * rng.standard_normal(n_rows)
    return Partition(features, labels.astype(np.float32))


@pytest.fixture(params=FITTERS)
def fitter(request: pytest.FixtureRequest) -> Learner:
    """Each learner of real labels in turn."""
    return FITTERS[request.param]()


def test_ours_for_real_labels_keep_the_contract(fitter: Learner) -> None:
    """The same check."""
    check_learner(fitter, some_amounts())


def test_ours_fit(fitter: Learner) -> None:
    """Loss falls, r2 comes near one and is what it says it is; there is no accuracy."""
    data, state = some_amounts(), dict[str, Array]()
    params = fitter.init_params(task_generator(0))
    start = fitter.evaluate(params, data)
    for step in range(400):
        params = fitter.update(params, data, StepContext(rng=task_generator(1, step), step=step, state=state)).params
    end = fitter.evaluate(params, data)
    assert set(end) == {"loss", "r2"}
    assert end["loss"] < 0.5 * start["loss"]
    unexplained = end["loss"] / float(data.labels.var(dtype=np.float64))
    # torch rounds its mean loss to float32; the others sum in double precision.
    rounding = float(np.finfo(np.float32).eps) * unexplained if "Torch" in type(fitter).__name__ else 1e-9
    assert end["r2"] == pytest.approx(1 - unexplained, abs=rounding)
    assert end["r2"] > (0.3 if "Torch" in type(fitter).__name__ else 0.8)


@pytest.fixture(params=LEARNERS)
def learner(request: pytest.FixtureRequest) -> Learner:
    """Each in turn."""
    return LEARNERS[request.param]()


def test_ours_keep_the_contract(learner: Learner) -> None:
    """The check anybody can run."""
    check_learner(learner, some_data())


def test_ours_learn(learner: Learner) -> None:
    """Sixty updates bring the loss down and the accuracy up."""
    data = some_data()
    params = learner.init_params(task_generator(0))
    start = learner.evaluate(params, data)
    state: dict[str, np.ndarray] = {}
    for step in range(60):
        params = learner.update(params, data, StepContext(rng=task_generator(1, step), step=step, state=state)).params
    end = learner.evaluate(params, data)
    assert end["loss"] < 0.8 * start["loss"]
    assert end["accuracy"] > 0.9


def test_every_stream_counts(learner: Learner) -> None:
    """Another stream, another batch or draw: an update on fewer rows than there are differs."""
    params, data = learner.init_params(task_generator(0)), some_data(90)
    one, two = (learner.update(params, data, StepContext(rng=task_generator(s), step=0)).params for s in (1, 2))
    assert any(not np.array_equal(one[name], two[name]) for name in one)


def test_candidates_are_scored_as_one_by_one(learner: Learner) -> None:
    """The loss on each candidate's data, whether the learner scores rows or not; none for one without data."""
    data = some_data()
    params = learner.update(
        learner.init_params(task_generator(0)), data, StepContext(rng=task_generator(0), step=0)
    ).params
    parts = Partitions(data, [7, 0, 13, 10])
    found = candidate_losses(learner, params, parts)
    expected = [learner.evaluate(params, part)["loss"] if len(part) else np.nan for part in parts]
    assert found == pytest.approx(expected, nan_ok=True, abs=1e-6)
    assert candidate_losses(learner, params, list(parts)) == pytest.approx(expected, nan_ok=True, abs=1e-6)


STARTS: dict[str, Callable[[dict[str, Array]], dict[str, Array]]] = {
    "random start": lambda params: params | {"bias": np.random.default_rng().random(3)},
    "object arrays": lambda params: params | {"extra": np.array([None])},
    "infinite start": lambda params: params | {"bias": np.full(3, np.inf)},
    "no arrays": lambda _: {},
}
MOVES: dict[str, Callable[[dict[str, Array], Params], dict[str, Array]]] = {
    "other shape": lambda moved, _: moved | {"bias": moved["bias"][:2]},
    "other type": lambda moved, _: moved | {"bias": moved["bias"].astype(np.float64)},
    "other order": lambda moved, _: dict(reversed(moved.items())),
    "shares memory": lambda moved, params: moved | {"bias": params["bias"]},
    "not a number": lambda moved, _: moved | {"bias": moved["bias"] * np.float32(np.nan)},
}


class Broken:
    """Softmax regression that breaks one rule, by name."""

    def __init__(self, rule: str) -> None:
        self._right = SoftmaxLearner(n_features=6, n_classes=3, batch_size=8)
        self._rule, self._calls, self._last = rule, 0, 0

    def init_params(self, rng: np.random.Generator) -> Params:
        """Start wrongly."""
        params = dict(self._right.init_params(rng))
        return STARTS[self._rule](params) if self._rule in STARTS else params

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Update wrongly."""
        self._calls, last, self._last = self._calls + 1, self._last, len(data)
        made = self._right.update(params, data, ctx)
        moved = dict(made.params)
        if self._rule in MOVES:
            moved = MOVES[self._rule](moved, params)
        match self._rule:
            case "hidden state":
                moved["bias"] = moved["bias"] + np.float32(self._calls)
            case "remembers the last node":
                moved["bias"] = moved["bias"] + np.float32(ctx.step == 1 and last != len(data))
            case "writes to its data":
                data.features[0] = 0
            case "writes through another library":
                # As torch.from_numpy does: by address, past NumPy's lock.
                ctypes.memset(data.features.ctypes.data, 1, 4)
            case "momentum in the token":
                ctx.state["velocity"] = moved["weight"]
            case "state of other things":
                ctx.state["count"] = 3  # type: ignore[assignment]
            case "counts nothing":
                return UpdateResult(params=moved, num_examples=0)
            case "odd metrics":
                return UpdateResult(params=moved, num_examples=1, metrics={"node": "me"})  # type: ignore[dict-item]
        return UpdateResult(params=moved, num_examples=made.num_examples)

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Evaluate wrongly."""
        scores = dict(self._right.evaluate(params, data))
        if self._rule == "no loss":
            del scores["loss"]
        if self._rule == "infinite loss":
            scores["loss"] = np.inf
        return scores | ({"accuracy": 90.0} if self._rule == "percent" else {})


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("random start", "init_params with the same stream"),
        ("object arrays", "array of numbers"),
        ("infinite start", "finite"),
        ("no arrays", "named arrays"),
        ("other shape", "shape and type of 'bias'"),
        ("other type", "shape and type of 'bias'"),
        ("other order", "names and order"),
        ("hidden state", "update with the same arguments gives the same 'bias'"),
        ("remembers the last node", "another node's update in between"),
        ("shares memory", "shares no memory"),
        ("momentum in the token", "shares no memory"),
        ("state of other things", "only arrays in state"),
        ("not a number", "leaves 'bias' finite"),
        ("counts nothing", "num_examples"),
        ("odd metrics", "metrics are floats"),
        ("infinite loss", "finite loss"),
        ("percent", "accuracy"),
    ],
)
def test_broken_learners_are_told_what_they_broke(rule: str, says: str) -> None:
    """Each mutant by its own line."""
    with pytest.raises(InvalidParameterError, match=f"^learner = 'Broken': must be .*{says}"):
        check_learner(Broken(rule), some_data())


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("writes to its data", r"in update: changes what it was given.*read-only \(test_learners.py, line \d+\)$"),
        ("writes through another library", r"in update: changes the features, which it was given: copy first"),
        ("no loss", r"in evaluate: must return scores by name, with a loss, not a mapping with accuracy$"),
    ],
)
def test_mistakes_are_shown_as_the_learners(rule: str, says: str) -> None:
    """By the method and, where it raised, the line of its own code."""
    with pytest.raises(LearnerError, match=f"^learner Broken, {says}"):
        check_learner(Broken(rule), some_data())


def test_one_row_is_too_few() -> None:
    """Half of it would be none."""
    with pytest.raises(InvalidParameterError, match="at least two rows"):
        check_learner(SoftmaxLearner(n_features=6, n_classes=3), some_data(1))
