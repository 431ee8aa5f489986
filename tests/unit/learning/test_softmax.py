"""Softmax regression: its gradient, its steps, its scores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.learning import Array, Params, Partition, SoftmaxLearner, StepContext, apply_update


def some_data(n_rows: int = 12, n_features: int = 5, n_classes: int = 3, *, seed: int = 0) -> Partition:
    rng = task_generator(seed, 99)
    features = rng.random((n_rows, n_features), dtype=np.float32)
    return Partition(features, rng.integers(0, n_classes, n_rows))


def some_params(n_features: int = 5, n_classes: int = 3) -> Params:
    rng = task_generator(1, 98)
    return {
        "weight": rng.normal(size=(n_classes, n_features)).astype(np.float32),
        "bias": rng.normal(size=n_classes).astype(np.float32),
    }


def context(step: int = 0) -> StepContext:
    return StepContext(rng=task_generator(5, step), step=step)


def loss_oracle(params: Params, data: Partition) -> float:
    """The mean loss in double precision, by SciPy."""
    logits = data.features.astype(np.float64) @ params["weight"].astype(np.float64).T + params["bias"]
    return float(-log_softmax(logits, axis=1)[np.arange(len(data)), data.labels].mean())


def slope_oracle(params: Params, data: Partition, name: str) -> Array:
    """Central differences of the oracle's loss."""
    slope = np.zeros(params[name].shape)
    for index in np.ndindex(slope.shape):
        moved = {key: value.astype(np.float64) for key, value in params.items()}
        ends = []
        for change in (1e-5, -1e-5):
            there = {key: value.copy() for key, value in moved.items()}
            there[name][index] += change
            ends.append(loss_oracle(there, data))
        slope[index] = (ends[0] - ends[1]) / 2e-5
    return slope


LEARNER = SoftmaxLearner(n_features=5, n_classes=3, learning_rate=0.5, batch_size=100)


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_step_goes_down_the_gradient_of_the_mean_loss(name: str) -> None:
    """Central differences agree; a gradient of the summed loss, the classic slip, would not."""
    data, params = some_data(), some_params()
    moved = LEARNER.update(params, data, context()).params
    slope = slope_oracle(params, data, name)
    assert params[name] - moved[name] == pytest.approx(0.5 * slope, abs=2e-6)
    assert np.abs(params[name] - moved[name] - 0.5 * slope * len(data)).max() > 1e-2


def test_scores_are_those_of_scipy() -> None:
    """Mean loss in nats, accuracy, and the loss of every row; on more rows than one block holds."""
    data, params = some_data(20_001), some_params()
    scores = LEARNER.evaluate(params, data)
    logits = data.features @ params["weight"].T + params["bias"]
    assert scores["loss"] == pytest.approx(loss_oracle(params, data), abs=1e-6)
    assert scores["accuracy"] == pytest.approx((logits.argmax(axis=1) == data.labels).mean())
    rows = -log_softmax(logits.astype(np.float64), axis=1)[np.arange(len(data)), data.labels]
    assert LEARNER.example_losses(params, data) == pytest.approx(rows, abs=1e-5)


def test_a_model_that_knows_nothing_scores_log_of_classes() -> None:
    """Zeros are the start, and ties are no hits: accuracy is that of one class."""
    data = some_data(300)
    scores = LEARNER.evaluate(LEARNER.init_params(task_generator(0)), data)
    assert scores["loss"] == pytest.approx(np.log(3), abs=1e-6)
    assert scores["accuracy"] == pytest.approx((data.labels == 0).mean())


def test_batches_are_different_rows_of_the_node_drawn_by_its_stream() -> None:
    """With one-hot rows the gradient shows which rows a step used: all different, and others another time."""
    data = Partition(np.eye(40, dtype=np.float32), np.zeros(40, dtype=np.int64))
    learner = SoftmaxLearner(n_features=40, n_classes=2, batch_size=8)
    used = []
    for step in range(20):
        result = learner.update(learner.init_params(task_generator(0)), data, context(step))
        used.append(frozenset(np.flatnonzero(result.params["weight"][0])))
        assert result.num_examples == 8
    assert {len(rows) for rows in used} == {8}
    assert len(set(used)) == 20
    assert len(frozenset.union(*used)) > 35


def test_labels_of_any_whole_type_give_the_same_step() -> None:
    """Bytes too, whose products with a row number would overflow."""
    data, params = some_data(200), some_params()
    narrow = Partition(data.features, data.labels.astype(np.uint8))
    one, two = (LEARNER.update(params, part, context()).params["weight"] for part in (data, narrow))
    assert np.array_equal(one, two)
    assert LEARNER.evaluate(params, data) == LEARNER.evaluate(params, narrow)


def test_local_steps_are_steps_in_a_row() -> None:
    """Two local steps on all rows are two updates."""
    data, params = some_data(), some_params()
    twice = SoftmaxLearner(n_features=5, n_classes=3, learning_rate=0.5, batch_size=100, local_steps=2)
    once = LEARNER.update(params, data, context()).params
    again = LEARNER.update(once, data, context()).params
    result = twice.update(params, data, context())
    assert np.array_equal(result.params["weight"], again["weight"])
    assert result.num_examples == 2 * len(data)


def test_momentum_stays_at_the_node() -> None:
    """The second step is gradient plus 0.9 of the first, kept in ctx.state; the token's arrays are the same two."""
    data, params = some_data(), some_params()
    learner = SoftmaxLearner(n_features=5, n_classes=3, learning_rate=0.5, batch_size=100, momentum=0.9)
    state: dict[str, Array] = {}
    first = learner.update(params, data, StepContext(rng=task_generator(0), step=0, state=state)).params
    velocity = state["velocity/weight"].copy()
    second = learner.update(first, data, StepContext(rng=task_generator(0), step=1, state=state)).params
    plain = LEARNER.update(first, data, context()).params
    assert list(second) == ["weight", "bias"]
    assert second["weight"] == pytest.approx(plain["weight"] - 0.9 * velocity, abs=1e-6)


def test_a_node_without_data_changes_nothing() -> None:
    """It hands the model on."""
    params = some_params()
    result = LEARNER.update(params, some_data(0), context())
    assert result.num_examples == 0
    assert all(np.array_equal(result.params[name], params[name]) for name in params)


def test_a_diverged_model_shows_in_its_numbers() -> None:
    """No warning (they are errors here): the caller looks at parameters and loss."""
    params = {name: np.full_like(value, np.inf) for name, value in some_params().items()}
    result = apply_update(LEARNER, params, some_data(), seed=1, node=0, step=0, state={})
    assert not np.isfinite(result.params["weight"]).any()
    assert not np.isfinite(LEARNER.evaluate(params, some_data())["loss"])


def test_loss_survives_huge_logits() -> None:
    """A confident mistake costs the difference of the logits, not infinity."""
    learner = SoftmaxLearner(n_features=1, n_classes=2)
    params = {"weight": np.array([[0], [5000]], dtype=np.float32), "bias": np.zeros(2, dtype=np.float32)}
    data = Partition(np.ones((1, 1), dtype=np.float32), np.array([0]))
    assert learner.evaluate(params, data)["loss"] == pytest.approx(5000)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"learning_rate": 0}, "learning_rate"),
        ({"learning_rate": np.inf}, "learning_rate"),
        ({"batch_size": -1}, "batch_size"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"local_steps": 0}, "local_steps"),
        ({"momentum": 1.0}, "momentum"),
        ({"n_classes": -1}, "n_classes"),
    ],
)
def test_bad_parameters_are_refused_by_name(options: dict[str, float], name: str) -> None:
    """One line that names the parameter."""
    with pytest.raises(InvalidParameterError, match=f"^{name} = "):
        SoftmaxLearner(**({"n_features": 5, "n_classes": 3} | options))  # type: ignore[arg-type]


def test_rows_of_another_width_are_refused() -> None:
    """In training and in evaluation."""
    params = LEARNER.init_params(task_generator(0))
    with pytest.raises(InvalidParameterError, match="rows of 5 numbers"):
        LEARNER.update(params, some_data(n_features=6), context())
    with pytest.raises(InvalidParameterError, match="rows of 5 numbers"):
        LEARNER.evaluate(params, some_data(n_features=6))
    with pytest.raises(InvalidParameterError, match="at least one row"):
        LEARNER.evaluate(params, some_data(0))
