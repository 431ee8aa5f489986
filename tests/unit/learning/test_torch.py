"""Torch modules as learners."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from veilwalk.core.randomness import task_generator  # noqa: E402
from veilwalk.learning import Array, Partition, SoftmaxLearner, StepContext  # noqa: E402
from veilwalk.learning.torch_learner import TorchLearner  # noqa: E402


def some_data(n_rows: int = 20) -> Partition:
    rng = task_generator(0, 99)
    return Partition(rng.random((n_rows, 6), dtype=np.float32), rng.integers(0, 3, n_rows))


def context(step: int = 0, state: dict[str, Array] | None = None) -> StepContext:
    return StepContext(rng=task_generator(7, step), step=step, state={} if state is None else state)


def linear() -> nn.Module:
    return nn.Linear(6, 3)


def with_memory() -> nn.Module:
    """Layers that change buffers and draw numbers."""
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def test_a_linear_module_takes_the_same_step_as_our_softmax() -> None:
    """Two implementations that share no code."""
    ours = SoftmaxLearner(n_features=6, n_classes=3, learning_rate=0.1, batch_size=100)
    theirs = TorchLearner(module_fn=linear, batch_size=100)
    params, data = theirs.init_params(task_generator(0)), some_data()
    one, two = ours.update(params, data, context()), theirs.update(params, data, context())
    for name in params:
        assert one.params[name] == pytest.approx(two.params[name], abs=1e-6)
    assert two.metrics["loss"] == pytest.approx(ours.evaluate(params, data)["loss"], abs=1e-5)
    assert ours.evaluate(params, data) == pytest.approx(theirs.evaluate(params, data), abs=1e-5)


@pytest.mark.parametrize("loss", [None, nn.functional.multi_margin_loss])
def test_losses_of_rows_are_those_of_single_rows(loss: Any) -> None:
    """However many blocks they come in; their mean is what is evaluated."""
    learner = TorchLearner(module_fn=with_memory, loss=loss)
    params, data = learner.init_params(task_generator(0)), some_data(1030)
    found = learner.example_losses(params, data)
    for row in (0, 1023, 1024, 1029):
        one = Partition(data.features[row : row + 1], data.labels[row : row + 1])
        assert found[row] == pytest.approx(learner.evaluate(params, one)["loss"], rel=1e-5)
    assert found.mean() == pytest.approx(learner.evaluate(params, data)["loss"], rel=1e-5)
    assert found.std() > 0


@pytest.mark.parametrize(
    "optimizer_fn",
    [lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.Adam(p, lr=0.01)],
    ids=["momentum", "adam"],
)
def test_optimiser_state_stays_at_the_node_and_is_taken_up_again(optimizer_fn: object) -> None:
    """Two visits with kept state are two steps of one optimiser; without it they are not."""
    one_step = TorchLearner(module_fn=linear, optimizer_fn=optimizer_fn, batch_size=100)  # type: ignore[arg-type]
    two_steps = TorchLearner(
        module_fn=linear,
        optimizer_fn=optimizer_fn,  # type: ignore[arg-type]
        batch_size=100,
        local_steps=2,
    )
    params, data = one_step.init_params(task_generator(0)), some_data()
    state: dict[str, Array] = {}
    first = one_step.update(params, data, context(0, state)).params
    # As a checkpoint would give it back.
    state = {key: np.array(value) for key, value in state.items()}
    kept = one_step.update(first, data, context(1, state)).params
    forgotten = one_step.update(first, data, context(1)).params
    together = two_steps.update(params, data, context()).params
    assert kept["weight"] == pytest.approx(together["weight"], abs=1e-7)
    assert np.abs(forgotten["weight"] - together["weight"]).max() > 1e-4
    assert list(kept) == list(params)


def test_buffers_travel_and_the_module_keeps_nothing() -> None:
    """Running means are arrays of the token; the module's own stay as they were made."""
    learner = TorchLearner(module_fn=with_memory)
    params = learner.init_params(task_generator(0))
    assert params["1.num_batches_tracked"].dtype == np.int64
    moved = learner.update(params, some_data(), context()).params
    assert moved["1.num_batches_tracked"] == 1
    assert np.abs(moved["1.running_mean"]).max() > 0
    assert params["1.num_batches_tracked"] == 0
    assert int(learner._module[1].num_batches_tracked) == 0  # type: ignore[index]
    before = learner.evaluate(moved, some_data())
    assert learner.evaluate(moved, some_data()) == before


def test_it_leaves_torch_as_it_found_it() -> None:
    """Neither the global stream nor the number of threads changes, and the stream changes nothing here."""
    learner = TorchLearner(module_fn=with_memory)
    params = learner.init_params(task_generator(0))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.manual_seed(1)
        one = learner.update(params, some_data(), context()).params
        drawn = torch.rand(1)
        torch.manual_seed(1)
        assert torch.equal(torch.rand(1), drawn)
        assert torch.get_num_threads() == 2
        two = learner.update(params, some_data(), context()).params
        assert all(np.array_equal(one[name], two[name]) for name in one)
    finally:
        torch.set_num_threads(threads)


def test_a_node_without_data_changes_nothing() -> None:
    """It hands the model on."""
    learner = TorchLearner(module_fn=linear)
    params = learner.init_params(task_generator(0))
    assert learner.update(params, some_data(0), context()).num_examples == 0


def test_torch_is_imported_only_where_it_is_asked_for() -> None:
    """A run without torch neither needs it nor waits for it."""
    code = "import sys, veilwalk.learning; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
