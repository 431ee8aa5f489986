"""The network with one hidden layer: its gradient against central differences, and that it learns."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.learning import MlpLearner, Params, Partition, StepContext, load_data

LEARNER = MlpLearner(n_features=4, n_classes=3, hidden=6, learning_rate=0.5, batch_size=100)


def some_data() -> Partition:
    rng = task_generator(0, 99)
    return Partition(rng.random((11, 4), dtype=np.float32), rng.integers(0, 3, 11))


def some_params() -> Params:
    """Not the start, whose last layer is zero and passes nothing back."""
    rng = task_generator(1, 98)
    start = LEARNER.init_params(rng)
    return {name: value + rng.normal(scale=0.3, size=value.shape).astype(np.float32) for name, value in start.items()}


def loss_oracle(params: Params, data: Partition) -> float:
    """The mean loss in double precision, example by example."""
    total = 0.0
    for row, label in zip(data.features.astype(np.float64), data.labels, strict=True):
        hidden = np.maximum(params["hidden_weight"] @ row + params["hidden_bias"], 0)
        total -= log_softmax(params["weight"] @ hidden + params["bias"])[label]
    return float(total / len(data))


@pytest.mark.parametrize("name", ["hidden_weight", "hidden_bias", "weight", "bias"])
def test_a_step_goes_down_the_gradient(name: str) -> None:
    """Central differences agree; the other sign, a named mutant, does not."""
    data, params = some_data(), some_params()
    moved = LEARNER.update(params, data, StepContext(rng=task_generator(0), step=0)).params
    slope = np.zeros(params[name].shape)
    exact = {key: value.astype(np.float64) for key, value in params.items()}
    for index in np.ndindex(slope.shape):
        ends = []
        for change in (1e-5, -1e-5):
            there = {key: value.copy() for key, value in exact.items()}
            there[name][index] += change
            ends.append(loss_oracle(there, data))
        slope[index] = (ends[0] - ends[1]) / 2e-5
    step = params[name] - moved[name]
    assert step == pytest.approx(0.5 * slope, abs=3e-6)
    assert np.abs(step + 0.5 * slope).max() > 1e-2


def test_scores_are_those_of_the_oracle() -> None:
    """Loss and accuracy."""
    data, params = some_data(), some_params()
    assert LEARNER.evaluate(params, data)["loss"] == pytest.approx(loss_oracle(params, data), abs=1e-6)
    assert LEARNER.example_losses(params, data).mean() == pytest.approx(loss_oracle(params, data), abs=1e-6)


def test_it_learns_what_a_line_cannot() -> None:
    """Exclusive or, on which softmax regression stays at chance."""
    corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=np.float32)
    data = Partition(corners, np.array([0, 1, 1, 0]))
    learner = MlpLearner(n_features=2, n_classes=2, hidden=16, learning_rate=0.5, momentum=0.9)
    params, state = learner.init_params(task_generator(3)), dict[str, np.ndarray]()
    for step in range(300):
        params = learner.update(params, data, StepContext(rng=task_generator(3, step), step=step, state=state)).params
    assert learner.evaluate(params, data)["accuracy"] == 1.0


def test_it_beats_chance_on_digits_soon() -> None:
    """A few hundred steps, in one place."""
    data = load_data("digits")
    learner = MlpLearner(n_features=64, n_classes=10, learning_rate=0.2)
    params = learner.init_params(task_generator(0))
    for step in range(400):
        params = learner.update(params, data.train, StepContext(rng=task_generator(0, step), step=step)).params
    assert learner.evaluate(params, data.test)["accuracy"] > 0.9


def test_the_start_depends_on_the_stream_alone() -> None:
    """Same seed, same weights; another seed, others."""
    one, two, other = (LEARNER.init_params(task_generator(seed))["hidden_weight"] for seed in (0, 0, 1))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_bad_parameters_are_refused_by_name() -> None:
    """Width and rows."""
    with pytest.raises(InvalidParameterError, match=r"^hidden = 0"):
        MlpLearner(n_features=2, n_classes=2, hidden=0)
    with pytest.raises(InvalidParameterError, match="rows of 4 numbers"):
        LEARNER.evaluate(some_params(), Partition(np.zeros((1, 3), dtype=np.float32), np.zeros(1, dtype=np.int64)))
