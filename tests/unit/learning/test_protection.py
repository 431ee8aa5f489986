"""What is asked for and what it settles to: units, noise for an epsilon, shares of updates, step and clip."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dp_accounting")

from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning import (
    NOISE_BUDGET,
    Partition,
    Protection,
    ProtectionRequest,
    RunSize,
    SoftmaxLearner,
    TrainingTask,
    UpdateResult,
    central_trace,
    describe_privacy,
    epsilon_of,
    make_learner,
    train,
)

SOFTMAX = SoftmaxLearner(n_features=4, n_classes=2, learning_rate=0.5, batch_size=0)
SIZE = RunSize(updates=3000, nodes=300, rows=60_000)


@pytest.mark.parametrize("unit", ["record", "node"])
def test_an_epsilon_settles_to_the_least_noise_for_an_even_share(unit: str) -> None:
    """Counted again it is just reached; local steps count for records alone."""
    found = ProtectionRequest(protect=unit, epsilon=2.0).settle(SOFTMAX, SIZE)
    assert (found.unit, found.most_updates, found.decay) == (unit, 10, 3000)
    assert 1.99 < epsilon_of(found.noise, 1e-5, updates=10) <= 2.0
    several = make_learner("softmax:local_steps=4", n_features=4, n_classes=2)
    more = ProtectionRequest(protect=unit, epsilon=2.0).settle(several, SIZE)
    assert more.noise == pytest.approx(found.noise * (2 if unit == "record" else 1), rel=1e-3)
    assert "row" in describe_privacy(found.noise, 1e-5, updates=10, unit=unit) or unit == "node"


@pytest.mark.parametrize("unit", ["record", "node"])
@pytest.mark.parametrize("epsilon", [8.0, 1.0])
def test_step_and_clip_keep_the_noise_of_a_run_to_its_budget(unit: str, epsilon: float) -> None:
    """All updates together, decaying, move each number by the budget."""
    asked = ProtectionRequest(protect=unit, epsilon=epsilon)
    learner: Any = make_learner(asked.usual_learner(SIZE), n_features=4, n_classes=2)
    found = asked.settle(learner, SIZE)
    scale = learner.learning_rate / found.rows if found.rows else 1.0
    each = scale * found.noise * found.clip
    total = math.sqrt(sum((Protection(decay=3000).share(age) * each) ** 2 for age in range(3000)))
    assert total == pytest.approx(NOISE_BUDGET[unit], rel=0.01)
    assert (found.rows, learner.batch_size) == (200 if unit == "record" else 0, 0)


def test_a_node_stops_after_its_share_and_old_models_hardly_change() -> None:
    """The cap counts a node's own updates; decay is a share of whatever was made."""
    data = Partition(np.ones((3, 4), dtype=np.float32), np.array([0, 1, 1]))
    task = TrainingTask(learner=SOFTMAX, partitions=[data], held_out=data, seed=1, most_updates=2)
    few, many = (train(task, central_trace(updates=count), evaluations=1).params for count in (2, 6))
    assert all(np.array_equal(few[name], many[name]) for name in few)
    free = TrainingTask(learner=SOFTMAX, partitions=[data], held_out=data, seed=1)
    assert not np.array_equal(train(free, central_trace(updates=6), evaluations=1).params["weight"], few["weight"])
    mod = Protection(clip=1.0, decay=4).mod()
    assert mod is not None
    before, after = {"a": np.zeros(1)}, UpdateResult(params={"a": np.full(1, 0.8)}, num_examples=1)
    made = [mod(before, after, _aged(age)).params["a"][0] for age in (0, 1, 4, 9)]
    assert made == pytest.approx([0.8, 0.6, 0.0, 0.0])


def _aged(age: int) -> Any:
    from veilwalk.learning import StepContext

    return StepContext(rng=np.random.default_rng(1), step=0, age=age)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"protect": "row"}, "^protect = 'row'.*record, node"),
        ({"protect": "record"}, "^protect = 'record'.*epsilon or noise"),
        ({"epsilon": 8.0, "noise": 1.0, "clip": 1.0}, "^epsilon = 8.0.*without noise"),
        ({"epsilon": -1.0}, "^epsilon = -1"),
        ({"noise": 1.0}, "^noise = 1.0.*clip"),
        ({"delta": 0.0}, "^delta = 0"),
        ({"most_updates": -1}, "^most_updates = -1"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(asked: dict[str, Any], line: str) -> None:
    """By name, before anything is walked."""
    with pytest.raises(InvalidParameterError, match=line):
        ProtectionRequest(**asked)


def test_a_learner_that_cannot_clip_rows_is_refused_for_records() -> None:
    """And welcome for nodes."""
    inner = make_learner("softmax", n_features=4, n_classes=2)

    class Plain:
        init_params, update, evaluate = inner.init_params, inner.update, inner.evaluate

    learner = Plain()
    with pytest.raises(InvalidParameterError, match=r"^protect = 'record'.*cannot clip row by row"):
        ProtectionRequest(protect="record", epsilon=8.0).settle(learner, SIZE)
    assert ProtectionRequest(epsilon=8.0).settle(learner, SIZE).unit == "node"
