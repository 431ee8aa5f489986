"""Candidates' updates held against the one that was made: each number against a slow twin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from veilwalk.core.arrays import FloatArray
from veilwalk.learning import (
    LinearLearner,
    MlpLearner,
    Params,
    Partition,
    Partitions,
    Protection,
    SoftmaxLearner,
    StepContext,
    UpdateResult,
    apply_update,
)
from veilwalk.training import Candidates, row_products

SOFTMAX = SoftmaxLearner(n_features=5, n_classes=3, learning_rate=0.4, batch_size=100)
MLP = MlpLearner(n_features=5, n_classes=3, hidden=4, learning_rate=0.4, batch_size=100)
LINEAR = LinearLearner(n_features=5, learning_rate=0.1, batch_size=100)
LEARNERS = [SOFTMAX, MLP, LINEAR]


class Foreign:
    """Somebody else's learner: only what the protocol asks for."""

    def __init__(self, own: Any) -> None:
        self.init_params, self.update, self.evaluate = own.init_params, own.update, own.evaluate


def dealt(learner: Any, sizes: tuple[int, ...] = (6, 9, 0, 1, 7)) -> Partitions:
    rng = np.random.default_rng(5)
    total = sum(sizes)
    labels = rng.integers(3, size=total) if learner.n_classes else rng.random(total).astype(np.float32)
    return Partitions(Partition(rng.random((total, 5), dtype=np.float32), labels), sizes)


def somewhere(learner: Any) -> dict[str, Any]:
    rng = np.random.default_rng(8)
    start = learner.init_params(rng)
    return {name: rng.normal(0, 0.3, value.shape).astype(np.float32) for name, value in start.items()}


def candidates(learner: Any, parts: Partitions, *, clip: float = 0.0, noise: float = 0.0, **others: Any) -> Candidates:
    """Those that know clip and noise, the latter by its standard deviation."""
    bound = clip or (1e9 if noise else 0.0)
    mechanism = Protection(clip=bound, noise=noise / bound if noise else 0.0)
    return Candidates(learner=learner, partitions=parts, rng=np.random.default_rng(1), protection=mechanism, **others)


def flat(before: Params, after: Params) -> FloatArray:
    return np.concatenate([(after[name].astype(np.float64) - before[name]).ravel() for name in before])


def made(learner: Any, params: Params, part: Partition, mod: Any = None, *, seed: int = 3, age: int = 0) -> Params:
    return apply_update(learner, params, part, seed=seed, node=0, step=0, age=age, state={}, mod=mod).params


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_the_expected_updates_are_what_the_learner_would_make(learner: Any, clip: float) -> None:
    """All candidates in one pass, one by one, and one by one through the protocol alone."""
    parts, params = dealt(learner), somewhere(learner)
    mod = Protection(clip=clip) if clip else None
    slow = np.array([flat(params, made(learner, params, part, mod)) for part in parts])
    assert candidates(learner, parts, clip=clip).updates(params) == pytest.approx(slow, abs=2e-7)
    assert candidates(Foreign(learner), parts, clip=clip).updates(params) == pytest.approx(slow, abs=2e-7)
    assert not slow[2].any()
    assert np.linalg.norm(slow, axis=1)[[0, 1, 3, 4]].min() > 1e-3


def test_random_updates_are_drawn_several_times_and_certain_ones_twice() -> None:
    """Fresh draws: neither the run's seed nor a single batch is taken for the whole."""
    parts, small = dealt(SOFTMAX), replace(SOFTMAX, batch_size=2)
    calls: list[int] = []

    def update(params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        calls.append(len(data))
        return small.update(params, data, ctx)

    foreign = Foreign(small)
    foreign.update = update
    mean = candidates(foreign, parts).updates(somewhere(SOFTMAX))
    assert calls == [6] * 4 + [9] * 4 + [0] * 2 + [1] * 2 + [7] * 4
    whole = candidates(SOFTMAX, parts).updates(somewhere(SOFTMAX))
    assert np.linalg.norm(mean - whole) < np.linalg.norm(whole)


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
def test_products_of_rows_are_those_of_their_steps(learner: Any) -> None:
    """Steps written out, one row at a time."""
    part, params = dealt(learner)[1], somewhere(learner)
    rows = [Partition(part.features[i : i + 1], part.labels[i : i + 1]) for i in range(len(part))]
    steps = np.array([flat(params, made(learner, params, row)) for row in rows])
    change = {name: np.random.default_rng(2).normal(size=value.shape) for name, value in params.items()}
    gram, along = row_products(learner, params, part, change)
    assert gram == pytest.approx(steps @ steps.T, abs=1e-6)
    assert along == pytest.approx(steps @ np.concatenate([change[name].ravel() for name in params]), abs=1e-5)


@pytest.mark.parametrize("noise", [0.0, 0.01, 3.0])
def test_a_whole_batch_is_judged_by_its_residual(noise: float) -> None:
    """The normal density of scipy, at the likeliest deviation that is at least the noise's."""
    parts, params = dealt(SOFTMAX), somewhere(SOFTMAX)
    after = made(SOFTMAX, params, parts[1], Protection(clip=0.1, noise=0.5))
    change = flat(params, after)
    residual, direction = candidates(SOFTMAX, parts, clip=0.1, noise=noise).fit_updates(params, after)
    common = 0.5 * len(change) * np.log(2 * np.pi)
    for number, part in enumerate(parts):
        expected = flat(params, made(SOFTMAX, params, part, Protection(clip=0.1)))
        scale = max(np.sqrt(np.square(change - expected).mean()), noise)
        assert residual[number] - common == pytest.approx(np.sum(stats.norm.logpdf(change, expected, scale)), rel=1e-6)
        tries = np.linspace(0, 20, 4001)[:, np.newaxis] * expected
        best = max(float(np.sqrt(np.square(change - tries).mean(axis=1).min())), noise)
        nearest = tries[np.square(change - tries).sum(axis=1).argmin()]
        assert direction[number] - common == pytest.approx(
            np.sum(stats.norm.logpdf(change, nearest, best)), rel=1e-4, abs=1e-3
        )


def test_a_sampled_batch_is_judged_by_what_its_rows_span() -> None:
    """The covariance of sampling without replacement written out; the likeliest of the same deviations."""
    learner = replace(SOFTMAX, batch_size=3)
    parts, params = dealt(SOFTMAX, (6, 7)), somewhere(SOFTMAX)
    after = made(learner, params, parts[1])
    change, noise = flat(params, after), 1e-3
    residual, _ = candidates(learner, parts, noise=noise).fit_updates(params, after)
    for number, part in enumerate(parts):
        rows = [Partition(part.features[i : i + 1], part.labels[i : i + 1]) for i in range(len(part))]
        steps = np.array([flat(params, made(SOFTMAX, params, row)) for row in rows])
        off, n_rows = change - steps.mean(axis=0), len(part)
        spread = np.cov(steps.T, ddof=1) / 3 * (1 - 3 / n_rows)
        slow = max(
            stats.multivariate_normal.logpdf(off, cov=spread + variance * np.eye(len(off)), allow_singular=True)
            for variance in np.geomspace(noise**2, np.square(off).mean(), 25)
        )
        assert residual[number] - 0.5 * len(off) * np.log(2 * np.pi) == pytest.approx(slow, rel=1e-3)
    assert residual[1] > residual[0] + 5


@pytest.mark.parametrize(
    ("learner", "mod"),
    [
        (SOFTMAX, None),
        (replace(SOFTMAX, batch_size=3), None),
        (replace(SOFTMAX, batch_size=3, local_steps=3, learning_rate=0.1), None),
        (replace(SOFTMAX, local_steps=3), None),
        (replace(MLP, batch_size=3), None),
        (SOFTMAX, Protection(clip=0.02)),
        (Foreign(replace(SOFTMAX, local_steps=3)), None),
    ],
    ids=["whole", "sampled", "sampled, local steps", "local steps", "network", "clipped", "foreign"],
)
def test_the_maker_is_named(learner: Any, mod: Any) -> None:
    """Every candidate in turn, by its residual; shuffled scores would not do."""
    parts = dealt(SOFTMAX, (6, 7, 8, 9, 10))
    params = somewhere(MLP if isinstance(learner, MlpLearner) else SOFTMAX)
    judge = candidates(learner, parts, clip=mod.clip if mod else 0.0)
    named = [
        int(judge.fit_updates(params, made(learner, params, part, mod, seed=s))[0].argmax())
        for s, part in enumerate(parts)
    ]
    assert named == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("local_steps", [1, 3])
def test_a_faded_update_is_expected_as_faded(local_steps: int) -> None:
    """At any age what the learner would make; a judge who takes the model for a new one expects four times as much."""
    learner, fading = replace(SOFTMAX, local_steps=local_steps), Protection(fade=10)
    parts, params = dealt(learner), somewhere(learner)
    slow = np.array([flat(params, made(learner, params, part, fading, age=30)) for part in parts])
    judge = replace(candidates(learner, parts), protection=fading)
    assert judge.updates(params, 30) == pytest.approx(slow, abs=2e-7)
    assert judge.updates(params) == pytest.approx(4 * slow, abs=1e-6)


def test_a_faded_batch_is_judged_as_one_of_a_smaller_step() -> None:
    """A quarter of the change is the change by a quarter of the step size: the same numbers, sampled rows and all."""
    smaller = replace(SOFTMAX, batch_size=3, learning_rate=SOFTMAX.learning_rate / 4)
    sampled, fading = replace(SOFTMAX, batch_size=3), Protection(fade=10)
    parts, params = dealt(SOFTMAX, (6, 7)), somewhere(SOFTMAX)
    after = made(sampled, params, parts[1], fading, age=30)
    for found, known in zip(
        replace(candidates(sampled, parts), protection=fading).fit_updates(params, after, 30),
        candidates(smaller, parts).fit_updates(params, after),
        strict=True,
    ):
        assert found == pytest.approx(known, rel=1e-6)


def test_participation_is_the_best_linear_estimate() -> None:
    """Counts with the variance of a count, a sum of steps and what is unexplained: the posterior mean, written out."""
    parts, earlier = dealt(SOFTMAX), somewhere(SOFTMAX)
    now: Params = earlier
    for step, node in enumerate([1, 4, 1, 0, 1]):
        now = made(SOFTMAX, now, parts[node], seed=step)
    judge, expected = candidates(SOFTMAX, parts, noise=1e-3), np.array([1.0, 0.5, 1.0, 1.5, 1.0])
    steps = (judge.updates(earlier) + judge.updates(now)) / 2
    variance = 0.02 * np.mean(expected * np.square(steps).sum(axis=1)) + 5 * 1e-6
    precision = np.diag(1 / expected) + steps @ steps.T / variance
    counts = expected + np.linalg.solve(precision, steps @ (flat(earlier, now) - expected @ steps) / variance)
    found = judge.estimate_participation(earlier, now, expected)
    assert found == pytest.approx(np.log(np.maximum(counts, 0) + 0.05))
    assert found.argmax() == 1


def test_large_models_of_others_are_looked_at_in_part() -> None:
    """A sixteenth of a quarter of a million numbers names its maker just as well."""

    class Large:
        def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:  # noqa: ARG002
            step = np.random.default_rng(len(data)).normal(size=params["weight"].shape)
            return UpdateResult(params={"weight": params["weight"] + step}, num_examples=len(data))

    parts, params = dealt(SOFTMAX), {"weight": np.zeros(250_000)}
    judge = candidates(Large(), parts)
    assert judge.updates(params).shape == (5, 16_384)
    assert judge.fit_updates(params, made(Large(), params, parts[3]))[0].argmax() == 3
