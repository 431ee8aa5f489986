"""Training with models that travel in fewer bytes: what is counted, what is learnt, and going on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veilwalk.core.payload import encoded, rounding
from veilwalk.design import choose_scheme
from veilwalk.graphs import random_regular
from veilwalk.learning import (
    Params,
    Partition,
    Partitions,
    SoftmaxLearner,
    StepContext,
    Training,
    TrainingTask,
    UpdateResult,
    gossip_trace,
    params_bytes,
    plain_trace,
    sealed_bytes,
    trace_of,
    train,
)

GRAPH = random_regular(12, 3, seed=3)


def task(payload: str, learning_rate: float = 0.1) -> TrainingTask:
    rng = np.random.default_rng(0)
    parts = [Partition(rng.random((20, 40), dtype=np.float32), rng.integers(3, size=20)) for _ in range(12)]
    learner = SoftmaxLearner(n_features=40, n_classes=3, batch_size=5, momentum=0.9, learning_rate=learning_rate)
    rows = Partitions.of_parts(parts).rows
    return TrainingTask(learner=learner, partitions=parts, held_out=rows, seed=2, payload=payload)


def same(one: Training, two: Training) -> bool:
    pairs = zip(one.models, two.models, strict=True)
    return all(np.array_equal(a[name], b[name]) for a, b in pairs for name in a)


@pytest.mark.parametrize("payload", ["fp32", "fp16", "int8"])
def test_the_ledger_counts_the_bytes_that_a_message_has(payload: str) -> None:
    """Those of the encoded arrays, sealed; by gossip as they are."""
    (played,) = choose_scheme(GRAPH, "far:2", recipients=4).iter_updates(updates=8, seed=1, replicas=1)
    run = train(task(payload), trace_of(GRAPH, played, recipients=4))
    draws = rounding(payload, seed=2, updates=8)
    body = sum(encoded(payload, array, draws).size for array in run.params.values())
    assert body == params_bytes(run.params, payload=payload)
    assert run.costs.message_bytes == sealed_bytes(body, recipients=4)
    plain = train(task(payload), gossip_trace(GRAPH, rounds=1))
    assert plain.costs.message_bytes == body


def test_every_model_on_its_way_is_one_that_can_be_written(tmp_path: Path) -> None:
    """Also the first; and a run that was stopped ends with the same bits."""
    trace = plain_trace(GRAPH, updates=40, seed=1)
    seen: list[Params] = []
    whole = train(task("int8"), trace, evaluations=8, observe=lambda _, before, after: seen.extend((before, after)))
    for model in seen:
        again = encoded("int8", model["weight"], np.random.default_rng(0))
        assert encoded("int8-nearest", model["weight"]).tobytes() == again.tobytes()

    def stop(done: int, total: int, point: object) -> None:
        if done >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(task("int8"), trace, evaluations=8, checkpoint=tmp_path / "c.npz", tell=stop)
    assert same(train(task("int8"), trace, evaluations=8, checkpoint=tmp_path / "c.npz"), whole)
    assert not same(train(task("fp32"), trace, evaluations=8), whole)


class Towards:
    """Moves a hundredth of the way to a half each time, beside a one that stays and sets the step of the block."""

    def init_params(self, rng: np.random.Generator) -> Params:  # noqa: ARG002
        """Return a one among zeros."""
        return {"w": np.eye(1, 32, dtype=np.float32)}

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:  # noqa: ARG002
        """Return them a little further."""
        goal = np.full((1, 32), 0.5, np.float32)
        goal[0, 0] = 1
        return UpdateResult(params={"w": params["w"] + np.float32(0.01) * (goal - params["w"])}, num_examples=1)

    def evaluate(self, params: Params, data: Partition) -> dict[str, float]:  # noqa: ARG002
        """Return how far they are on average."""
        return {"loss": float(params["w"][0, 1:].mean())}


def test_small_steps_are_lost_to_the_nearest_and_not_at_random() -> None:
    """A third of a step each time: the nearest never leaves zero, chance arrives where whole numbers do."""
    reached = {}
    for payload in ("fp32", "int8", "int8-nearest"):
        made = replace(task(payload), learner=Towards())
        reached[payload] = train(made, plain_trace(GRAPH, updates=300, seed=1), evaluations=1).points[-1].loss
    assert reached["fp32"] == pytest.approx(0.5 * (1 - 0.99**300), rel=1e-3)
    # Its spread over 31 numbers is about 0.009: the walk of rounding, pulled back by a hundredth a step.
    assert reached["int8"] == pytest.approx(reached["fp32"], abs=0.04)
    assert reached["int8-nearest"] == 0
