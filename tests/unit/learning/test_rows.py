"""Rows protected one by one: clipping by a closed form, by torch.func, and written out row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning import (
    LinearLearner,
    MlpLearner,
    Params,
    Partition,
    Protection,
    SoftmaxLearner,
    StepContext,
    init_generator,
)

SIZES: dict[str, Any] = {"n_features": 5, "learning_rate": 0.3, "batch_size": 0}
LEARNERS = {
    "softmax": SoftmaxLearner(n_classes=3, **SIZES),
    "mlp": MlpLearner(n_classes=3, hidden=4, **SIZES),
    "linear": LinearLearner(**SIZES),
}
QUIET = Protection(clip=0.4, noise=0.0, rows=10)


def rows_of(learner: Any, count: int = 7) -> Partition:
    rng = np.random.default_rng(5)
    labels = rng.integers(3, size=count) if learner.n_classes else rng.random(count, dtype=np.float32)
    return Partition(rng.random((count, 5), dtype=np.float32), labels)


def context(seed: int = 1) -> StepContext:
    return StepContext(rng=np.random.default_rng(seed), step=0)


def step_of(learner: Any, params: Params, data: Partition) -> FloatArray:
    made = learner.update(params, data, context()).params
    return np.concatenate([(made[name].astype(np.float64) - params[name]).ravel() for name in params])


def started(learner: Any) -> Params:
    rng = np.random.default_rng(2)
    first = learner.init_params(init_generator(1))
    return {name: value + 0.3 * rng.standard_normal(value.shape).astype(np.float32) for name, value in first.items()}


@pytest.mark.parametrize("name", LEARNERS)
def test_every_row_is_clipped_for_itself(name: str) -> None:
    """The sum of single rows' steps, each written out and clipped, over the public number; one row bounds the rest."""
    learner = LEARNERS[name]
    params, data = started(learner), rows_of(learner)
    single = [Partition(data.features[i : i + 1], data.labels[i : i + 1]) for i in range(len(data))]
    gradients = np.array([step_of(learner, params, row) / learner.learning_rate for row in single])
    norms = np.linalg.norm(gradients, axis=1)
    # Some are clipped and some are not, or nothing would be shown.
    clip = float(np.median(norms))
    protected = learner.protect_rows(replace(QUIET, clip=clip))
    expected = learner.learning_rate * (gradients * np.minimum(1, clip / norms)[:, np.newaxis]).sum(axis=0) / QUIET.rows
    assert step_of(protected, params, data) == pytest.approx(expected, abs=1e-6)
    # Named mutant: to clip the mean, as a node's update is, gives another step.
    mean = gradients.mean(axis=0)
    assert not np.allclose(expected, learner.learning_rate * mean * min(1, clip / np.linalg.norm(mean)), atol=1e-3)


@pytest.mark.parametrize("name", LEARNERS)
def test_one_row_moves_an_update_by_no_more_than_its_share(name: str) -> None:
    """With and without it, for rows of any size; an unprotected learner moves further."""
    learner = LEARNERS[name]
    params, data = started(learner), rows_of(learner)
    large = Partition(data.features * np.float32(50), data.labels)
    without = Partition(large.features[1:], large.labels[1:])
    bound = learner.learning_rate * QUIET.clip / QUIET.rows
    with_it, without_it = (step_of(learner.protect_rows(QUIET), params, part) for part in (large, without))
    # Rounding of a float32 model.
    assert np.linalg.norm(with_it - without_it) <= bound * (1 + 1e-4) + 1e-6
    assert np.linalg.norm(step_of(learner, params, large) - step_of(learner, params, without)) > 2 * bound


def test_noise_is_that_of_the_sum_and_a_node_without_rows_adds_it_too() -> None:
    """Standard deviation step size x noise x clip / rows, from the secret source where there is one."""
    learner = SoftmaxLearner(n_features=400, n_classes=10, learning_rate=0.3, batch_size=0)
    params, empty = learner.init_params(init_generator(1)), Partition(np.zeros((0, 400), np.float32), np.zeros(0, int))
    noisy = learner.protect_rows(Protection(clip=2.0, noise=5.0, rows=10))
    assert step_of(noisy, params, empty).std() == pytest.approx(0.3 * 5 * 2 / 10, rel=0.05)
    assert not step_of(learner, params, empty).any()

    made = noisy.update(params, empty, replace(context(), secret=np.zeros)).params
    assert all(np.array_equal(made[name], params[name]) for name in params)


def test_a_drawn_batch_is_divided_by_its_size_and_never_by_the_rows_there_are() -> None:
    """A node with many rows draws; one with few is divided by the same public number."""
    protection = Protection(clip=1.0, noise=3.0, rows=20)
    assert [protection.divisor(size) for size in (0, 8, 50)] == [20, 8, 20]
    assert protection.deviation(8) == pytest.approx(3 / 8)


def test_torch_clips_the_same_rows() -> None:
    """A linear layer is the softmax; steps agree to rounding, momentum sees what is noised."""
    torch = pytest.importorskip("torch")
    from veilwalk.learning.torch_learner import TorchLearner

    softmax = LEARNERS["softmax"]
    data, params = rows_of(softmax, 150), started(softmax)
    other = TorchLearner(
        module_fn=lambda: torch.nn.Linear(5, 3),
        optimizer_fn=lambda tensors: torch.optim.SGD(tensors, lr=0.3),
        batch_size=0,
    )
    protected = [one.protect_rows(QUIET) for one in (softmax, other)]
    assert step_of(protected[0], params, data) == pytest.approx(step_of(protected[1], params, data), abs=1e-6)
    loud = other.protect_rows(replace(QUIET, noise=1e4))
    assert step_of(loud, params, data).std() == pytest.approx(0.3 * 1e4 * 0.4 / 10, rel=0.5)
    mixed = TorchLearner(module_fn=lambda: torch.nn.Sequential(torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3)))
    with pytest.raises(InvalidParameterError, match=r"^protect = .record.*batch normalisation"):
        mixed.protect_rows(QUIET)
