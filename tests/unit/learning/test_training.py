"""Phase two: training along a trace."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.traces import private_trace

from veilwalk.core.errors import InvalidParameterError, TrainingError
from veilwalk.core.support import DistanceSupport
from veilwalk.design import choose_scheme
from veilwalk.graphs import random_regular
from veilwalk.learning import (
    Array,
    Learner,
    Params,
    Partition,
    Partitions,
    StepContext,
    Stopping,
    TrainingTask,
    UpdateResult,
    apply_update,
    average_params,
    candidate_models,
    central_trace,
    choose_model,
    gossip_trace,
    init_generator,
    plain_trace,
    train,
    update_generator,
)

GRAPH = random_regular(20, 3, seed=3)
LAW = choose_scheme(GRAPH, "uniform-node", support=DistanceSupport(2, 3)).law.matrix


@dataclass(frozen=True)
class Chaser:
    """Moves a point towards the mean of the data, with noise and a momentum that stays at the node."""

    rate: float = 0.2
    noise: float = 0.1

    def init_params(self, rng: np.random.Generator) -> Params:
        """Far off."""
        return {"at": 9 + rng.normal(size=2), "count": np.zeros(1, dtype=np.float32)}

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """One noisy step."""
        step = data.features.mean(axis=0) - params["at"] + self.noise * ctx.rng.normal(size=2)
        velocity = 0.5 * ctx.state.get("velocity", np.zeros(2)) + step
        ctx.state["velocity"] = velocity
        moved = {"at": params["at"] + self.rate * velocity, "count": params["count"] + np.float32(1)}
        return UpdateResult(params=moved, num_examples=len(data))

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """How far off."""
        off = float(np.square(data.features - params["at"]).sum(axis=1).mean())
        return {"loss": off, "accuracy": 1 / (1 + off)}


def parts(count: int = 20) -> list[Partition]:
    """Data around a point of its own for each node."""
    rng = np.random.default_rng(0)
    return [Partition(rng.normal(size=(4, 2)) + rng.normal(size=2), np.zeros(4, dtype=np.int64)) for _ in range(count)]


def task(learner: Learner | None = None, partitions: list[Partition] | None = None, seed: int = 9) -> TrainingTask:
    """The chaser on the data above."""
    mine = partitions or parts()
    rows = Partitions.of_parts(mine).rows
    return TrainingTask(learner=learner or Chaser(), partitions=mine, held_out=rows, seed=seed)


def test_streams_are_named_by_node_and_step() -> None:
    """As the rule says, from NumPy alone."""
    rule = np.random.default_rng(np.random.SeedSequence(9, spawn_key=(0x6C656172, 4, 2)))
    assert update_generator(9, 4, 2).integers(1 << 60) == rule.integers(1 << 60)
    first = np.random.default_rng(np.random.SeedSequence(9, spawn_key=(0x696E6974,)))
    assert init_generator(9).integers(1 << 60) == first.integers(1 << 60)


def by_hand(nodes: list[int], models: list[int], seed: int, *, local_step: bool = True) -> list[Params]:
    """The same training written out, with nothing of the trainer."""
    learner, data = Chaser(), parts()
    first = learner.init_params(np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0x696E6974,))))
    held = [first] * (max(models) + 1)
    count, kept = [0] * 20, [dict[str, Array]() for _ in range(20)]
    for number, (node, model) in enumerate(zip(nodes, models, strict=True)):
        step = count[node] if local_step else number
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0x6C656172, node, step)))
        held[model] = learner.update(held[model], data[node], StepContext(rng=rng, step=step, state=kept[node])).params
        count[node] += 1
    return held


@pytest.mark.parametrize("tokens", [1, 3])
def test_training_follows_the_trace_bit_for_bit(tokens: int) -> None:
    """Momentum stays at its node, streams go by the node's own count; counting globally would differ."""
    trace = private_trace(GRAPH, LAW, updates=120, seed=4, tokens=tokens)
    run = train(task(), trace)
    nodes, models = trace.node.tolist(), trace.model.tolist()
    for mine, expected in zip(run.models, by_hand(nodes, models, 9), strict=True):
        assert mine["at"].tobytes() == expected["at"].tobytes()
    wrong = by_hand(nodes, models, 9, local_step=False)
    assert run.models[0]["at"].tobytes() != wrong[0]["at"].tobytes()
    assert sum(float(model["count"][0]) for model in run.models) == 120


class EitherSide(Chaser):
    """Goes to one of two places, both good; between them nothing is, so that a mean of models is worse than each."""

    def init_params(self, rng: np.random.Generator) -> Params:
        """Return the place between."""
        del rng
        return {"at": np.zeros(2)}

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Go to a side at the first update, and stay."""
        at = params["at"] if params["at"].any() else np.full_like(params["at"], ctx.rng.choice([-1.0, 1.0]))
        return UpdateResult(params={**params, "at": at}, num_examples=len(data))

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return how far it is from both."""
        del data
        return {"loss": float(np.square(np.square(params["at"]) - 1).mean())}


def test_several_tokens_hand_out_the_best_of_their_mean_and_their_ends() -> None:
    """By the loss on the held-out rows; the mean alone, a named mutant, is far from both good places."""
    run = train(task(EitherSide()), private_trace(GRAPH, LAW, updates=30, seed=4, tokens=3))
    sides = {float(model["at"].mean()) for model in run.models}
    assert sides == {-1.0, 1.0}
    assert run.points[-1].chosen.startswith("walk ")
    assert run.points[-1].loss == 0.0
    assert abs(float(run.params["at"].mean())) == 1.0
    assert EitherSide().evaluate(average_params(run.models), task().held_out)["loss"] > 0.5
    run = train(task(), private_trace(GRAPH, LAW, updates=30, seed=4, tokens=3))
    losses = {
        name: Chaser().evaluate(params, task().held_out)["loss"]
        for name, params in candidate_models(run.models).items()
    }
    assert run.points[-1].loss == min(losses.values()) == losses[run.points[-1].chosen]
    assert run.params["count"].dtype == np.float32


def test_the_mean_of_models_has_their_types() -> None:
    """Whole numbers are rounded; one model alone is itself."""
    models = [{"n": np.array([1, 2, 3])}, {"n": np.array([2, 2, 4])}]
    assert average_params(models)["n"].tolist() == [2, 2, 4]
    assert average_params(models[:1]) is models[0]


def test_without_rows_to_compare_by_one_end_is_handed_out() -> None:
    """Not the mean, which may be worse than all of them."""
    models = [{"at": np.full(2, side)} for side in (1.0, -1.0)]
    assert choose_model(models, None) == ("walk 1", models[0])
    assert choose_model(models[:1], None) == ("mean", models[0])
    assert choose_model(models, lambda params: {"loss": float(np.square(params["at"]).sum())})[0] == "mean"
    assert choose_model(models, lambda params: {"loss": float(np.nan if params["at"].any() else 9)})[0] == "mean"


def test_gossip_updates_then_averages_with_neighbours() -> None:
    """Two rounds by hand: dense weights, no trainer."""
    run = train(task(), gossip_trace(GRAPH, rounds=2))
    weights = np.zeros((20, 20))
    for node in range(20):
        weights[node, GRAPH.neighbours(node)] = 0.25
        weights[node, node] = 0.25
    learner, data = Chaser(), parts()
    held = [learner.init_params(init_generator(9))] * 20
    kept = [dict[str, Array]() for _ in range(20)]
    for step in range(2):
        for node in range(20):
            context = StepContext(rng=update_generator(9, node, step), step=step, state=kept[node])
            held[node] = learner.update(held[node], data[node], context).params
        rows = weights @ np.stack([model["at"] for model in held])
        held = [{"at": row, "count": np.zeros(1)} for row in rows]
    assert np.stack([model["at"] for model in run.models]) == pytest.approx(np.stack([m["at"] for m in held]))
    assert run.points[-1].hops == 2 * 60
    assert len(run.points) == 3


def test_every_algorithm_learns_and_the_ceiling_is_central() -> None:
    """All come close to the middle of the data; losses start equal."""
    quiet = Chaser(rate=0.05, noise=0.0)
    pool = [Partitions.of_parts(parts()).rows]
    runs = [
        train(task(quiet), private_trace(GRAPH, LAW, updates=400, seed=4)),
        train(task(quiet), plain_trace(GRAPH, updates=400, seed=4)),
        train(task(quiet), gossip_trace(GRAPH, rounds=20)),
        train(task(quiet, pool), central_trace(updates=400)),
    ]
    starts = {round(run.points[0].loss, 9) for run in runs}
    assert len(starts) == 1
    best = min(run.points[-1].loss for run in runs)
    assert runs[3].points[-1].loss == pytest.approx(best, rel=1e-6)
    for run in runs:
        assert run.points[-1].loss < run.points[0].loss - 1.0
        assert run.updates == 400


def test_a_run_ends_where_it_is_told_to() -> None:
    """By hops, by accuracy, by plateau; the reason is said."""
    trace = plain_trace(GRAPH, updates=200, seed=4)
    spent = train(task(), trace, stopping=Stopping(max_hops=50))
    assert (spent.updates, spent.reason) == (50, "budget of hops spent")
    there = train(task(), trace, stopping=Stopping(target_accuracy=0.1), evaluations=20)
    assert there.reason == "accuracy 0.1 reached"
    assert there.updates == there.points[-1].update < 200
    flat = train(task(Chaser(rate=0.0)), trace, stopping=Stopping(patience=3), evaluations=20)
    assert flat.reason.startswith("no better loss in 3 evaluations, the best was")
    nothing = train(task(), trace, stopping=Stopping(max_bytes=1))
    assert (nothing.updates, len(nothing.points)) == (0, 1)


def test_an_observer_sees_what_was_received_and_what_was_sent_on() -> None:
    """One call an update, in order, chained along the token."""
    seen: list[tuple[int, bytes, bytes]] = []
    run = train(
        task(),
        private_trace(GRAPH, LAW, updates=25, seed=4),
        observe=lambda row, before, after: seen.append((row, before["at"].tobytes(), after["at"].tobytes())),
    )
    assert [row for row, _, _ in seen] == list(range(25))
    assert all(one[2] == two[1] for one, two in itertools.pairwise(seen))
    assert seen[-1][2] == run.models[0]["at"].tobytes()


@dataclass(frozen=True)
class Diverging(Chaser):
    """Gives infinities from its node's third update on."""

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """As before, until it is not."""
        result = super().update(params, data, ctx)
        if ctx.step == 2:
            return UpdateResult(params=dict(result.params) | {"at": np.full(2, np.inf)}, num_examples=4)
        return result


def test_a_model_that_is_no_longer_finite_stops_the_run(tmp_path: Path) -> None:
    """The message says which node and update; the last good checkpoint is kept and readable."""
    trace = private_trace(GRAPH, LAW, updates=120, seed=4)
    third = next(i for i in range(120) if np.sum(trace.node[: i + 1] == trace.node[i]) == 3)
    place = tmp_path / "private-walk.npz"
    with pytest.raises(TrainingError) as caught:
        train(task(Diverging()), trace, checkpoint=place, evaluations=60)
    message = str(caught.value)
    assert f"update {third + 1}, the 3. of node {trace.node[third]}" in message
    assert str(place) in message
    good = train(task(), trace.first(third), evaluations=60)
    with pytest.raises(TrainingError, match="keeps the model after update"):
        train(task(Diverging()), trace, checkpoint=place, evaluations=60)
    assert np.isfinite(good.params["at"]).all()


@dataclass(frozen=True)
class Blind(Chaser):
    """Says NaN when evaluated."""

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:  # noqa: ARG002
        """Nothing."""
        return {"loss": float("nan")}


def test_a_loss_that_is_no_number_stops_the_run() -> None:
    """Even when the parameters are finite."""
    with pytest.raises(TrainingError, match="after update 0 the loss on held-out data is nan"):
        train(task(Blind()), private_trace(GRAPH, LAW, updates=5, seed=1))


@dataclass(frozen=True)
class Reshaping(Chaser):
    """Returns what it was not given."""

    how: str = "shape"

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:  # noqa: ARG002
        """Wrong in one way."""
        wrong = {
            "shape": {"at": np.zeros(3), "count": params["count"]},
            "type": {"at": np.zeros(2, dtype=np.float32), "count": params["count"]},
            "name": {"at": params["at"]},
        }
        return UpdateResult(params=wrong[self.how], num_examples=4)


@pytest.mark.parametrize(
    ("how", "match"), [("shape", r"at of shape \(3,\)"), ("type", "type float32"), ("name", r"learner = \['at'\]")]
)
def test_wrong_shapes_types_and_names_are_refused(how: str, match: str) -> None:
    """Before they reach a token."""
    data = parts()[0]
    start = Chaser().init_params(init_generator(1))
    with pytest.raises(InvalidParameterError, match=match):
        apply_update(Reshaping(how=how), start, data, seed=1, node=0, step=0, state={})


def test_partitions_must_fit_the_network() -> None:
    """One for each node."""
    with pytest.raises(InvalidParameterError, match="partitions = 19: must be 20"):
        train(task(partitions=parts(19)), plain_trace(GRAPH, updates=5, seed=1))


def test_middleware_comes_between_learner_and_token() -> None:
    """It sees what was received and what was made, and draws on from the learner's stream."""
    drawn: list[float] = []

    def halve(before: Params, result: UpdateResult, ctx: StepContext) -> UpdateResult:
        drawn.append(float(ctx.rng.random()))
        params = dict(result.params) | {"at": (before["at"] + result.params["at"]) / 2}
        return UpdateResult(params=params, num_examples=result.num_examples)

    start = Chaser().init_params(init_generator(9))
    bare = apply_update(Chaser(), start, parts()[0], seed=9, node=0, step=0, state={})
    half = apply_update(Chaser(), start, parts()[0], seed=9, node=0, step=0, state={}, mod=halve)
    assert half.params["at"] == pytest.approx((start["at"] + bare.params["at"]) / 2)
    stream = update_generator(9, 0, 0)
    stream.normal(size=2)
    assert drawn == [stream.random()]
