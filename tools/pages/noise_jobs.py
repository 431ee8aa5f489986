"""The jobs of :mod:`tools.pages.noise`: a budget tried on public data, a private run, what a noisy run leaks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from scipy import ndimage

from tools.accounting.correlated_noise import SharedNoise, sqrt_series, walk_sensitivity
from tools.pages.content import measured
from veilwalk.core.randomness import task_generator
from veilwalk.core.records import plain
from veilwalk.learning import (
    NOISE_BUDGET,
    USUAL_GRADIENT,
    Data,
    Learner,
    Params,
    Partition,
    Protection,
    ProtectionRequest,
    RunSize,
    StepContext,
    UpdateMod,
    UpdateResult,
    epsilon_of,
    load_data,
    make_learner,
    noise_for,
    train,
)
from veilwalk.training import Scenario, make_spec

#: Seed of stand-in, partition, walk and noise of what is tried.
TUNING_SEED = 0
GRAPH, DELTA = "rrg:300:3:seed=1", 1e-5
#: Updates, the last ones, whose models are asked which rows their makers trained on.
WATCHED = 300
# The stand-in: images of so many pixels a side, the digit enlarged to the larger part of it and moved about.
_SIDE, _DIGIT, _MARGIN = 28, 20, 2
_ORIGINALS_HELD_OUT = 400


@cache
def public_digits(rows: int = 60_000, held_out: int = 4000) -> Data:
    """Return a public stand-in for MNIST: the bundled digits, enlarged, moved about, as many rows, others held out."""
    bundled = load_data("digits", seed=TUNING_SEED)
    images = np.concatenate((bundled.train.features, bundled.test.features)).reshape(-1, 8, 8)
    labels = np.concatenate((bundled.train.labels, bundled.test.labels))
    large = np.clip(ndimage.zoom(images, (1, _DIGIT / 8, _DIGIT / 8), order=1), 0, 1).astype(np.float32)
    rng = task_generator(TUNING_SEED)
    order = rng.permutation(len(labels))
    parts = []
    for chosen, count in ((order[_ORIGINALS_HELD_OUT:], rows), (order[:_ORIGINALS_HELD_OUT], held_out)):
        which = rng.choice(chosen, count)
        places = rng.integers(_MARGIN, _SIDE - _DIGIT - _MARGIN + 1, (count, 2))
        made = np.zeros((count, _SIDE, _SIDE), dtype=np.float32)
        for row, (number, (down, right)) in enumerate(zip(which, places, strict=True)):
            made[row, down : down + _DIGIT, right : right + _DIGIT] = large[number]
        parts.append(Partition(made.reshape(count, -1), labels[which]))
    return Data(name="public digits", train=parts[0], test=parts[1])


@cache
def _scheme(graph: str) -> Any:
    return Scenario.from_spec(make_spec(graph=graph, data="digits", partition="iid", seed=0)).scheme


@cache
def _private(data: str) -> Data:
    return load_data(data, seed=0)


def tried(
    *, unit: str, epsilon: float, updates: int, budget: float, gradient: float, graph: str = GRAPH, rows: int = 60_000
) -> float:
    """Return the accuracy on held-out public rows with a noise budget and a gradient norm."""
    data, scheme = public_digits(rows), _scheme(graph)
    size = RunSize(updates=updates, nodes=scheme.graph.n_nodes, rows=rows)
    noise = ProtectionRequest(protect=unit, epsilon=epsilon, clip=1.0).settle_noise(size)
    deviation = budget / math.sqrt(size.age / 3)
    record = unit == "record"
    clip = gradient if record else deviation / noise
    rate = deviation * size.rows_each / (noise * clip) if record else clip / gradient
    spec = make_spec(seed=TUNING_SEED, updates=updates, protect=unit, epsilon=epsilon, clip=clip, delta=DELTA)
    learner = f"softmax:learning_rate={rate:.3g}:batch_size=0"
    scenario = Scenario.build(scheme, spec, data=data, partition="iid", learner=learner)
    run = train(scenario.task("private-walk"), scenario.trace("private-walk"), evaluations=1)
    return float(run.points[-1].accuracy or 0.0)


def trained(
    data: str, *, unit: str, epsilon: float, partition: str, updates: int, seed: int, graph: str = GRAPH
) -> dict[str, Any]:
    """Train privately as ``train --protect --epsilon`` does, and say what it reached; epsilon is counted again."""
    scheme = _scheme(graph)
    spec = make_spec(seed=seed, updates=updates, protect=unit, epsilon=epsilon, delta=DELTA)
    # What such a run takes by itself; computed once for all of them.
    rows = _private(f"{data}:features=scatter" if unit == "record" else data)
    scenario = Scenario.build(scheme, spec, data=rows, partition=partition, learner=None)
    trace = scenario.trace("private-walk")
    run = train(scenario.task("private-walk"), trace, evaluations=1)
    protection = scenario.protection
    counts = np.minimum(np.bincount(trace.node), protection.most_updates)
    return {
        "accuracy": float(run.points[-1].accuracy or 0.0),
        "epsilon": epsilon_of(protection.noise, DELTA, updates=int(counts.max())),
        "noise": protection.noise,
        "clip": protection.clip,
        "learner": scenario.spec.learning.learner,
        "most_updates": protection.most_updates,
        "updates_used": int(counts.sum()),
    }


def correlated(data: str, *, unit: str, epsilon: float, updates: int, seed: int, band: int) -> dict[str, Any]:
    """Train with noise correlated along the walk: against whoever is no member. Step and clip are by the usual rule."""
    rows, scheme = _private(data), _scheme(GRAPH)
    size = RunSize(updates=updates, nodes=scheme.graph.n_nodes, rows=len(rows.train))
    spec = make_spec(seed=seed, updates=updates)
    base = Scenario.build(scheme, spec, data=rows, partition="iid", learner="softmax")
    trace = base.trace("private-walk")
    noise = noise_for(epsilon, DELTA, updates=1) * walk_sensitivity(trace, band=band, most_updates=size.share)
    # The rule is for independent noise: of correlated noise this share adds up.
    adds_up = noise * float(sqrt_series(band).sum())
    deviation, record = NOISE_BUDGET[unit] / math.sqrt(size.age / 3), unit == "record"
    clip = USUAL_GRADIENT[unit] if record else deviation / adds_up
    rate = deviation * size.rows_each / (adds_up * clip) if record else clip / USUAL_GRADIENT[unit]
    protection = Protection(
        clip=clip,
        noise=noise,
        rows=size.rows_each if record else 0,
        most_updates=size.share,
        decay=size.age,
    )
    named = f"softmax:learning_rate={rate}:batch_size=0"
    learner = make_learner(named, n_features=rows.n_features, n_classes=rows.n_classes)
    task = replace(base, learner=learner, protection=protection).task("private-walk")
    share = partial(_with_shared_noise, secret=seed, band=band)
    shared = replace(task, learner=_SharedNoiseLearner(task.learner, share), mod=_SharedNoiseMod(task.mod, share))
    run = train(shared, trace, evaluations=1)
    return {"accuracy": float(run.points[-1].accuracy or 0.0), "noise": noise}


def _with_shared_noise(ctx: StepContext, *, secret: int, band: int) -> StepContext:
    return replace(ctx, secret=SharedNoise(secret, ctx.age, band=band).standard_normal)


class _SharedNoiseLearner:
    """A learner whose noise on rows comes from what all members share."""

    def __init__(self, learner: Learner, share: Callable[[StepContext], StepContext]) -> None:
        self._learner, self._share = learner, share

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        return self._learner.update(params, data, self._share(ctx))


class _SharedNoiseMod:
    """A mod whose noise on updates comes from there."""

    def __init__(self, mod: UpdateMod | None, share: Callable[[StepContext], StepContext]) -> None:
        self._mod, self._share = mod, share

    def __call__(self, before: Params, result: UpdateResult, ctx: StepContext) -> UpdateResult:
        return result if self._mod is None else self._mod(before, result, self._share(ctx))


def leaked(*, unit: str, epsilon: float, learner: str | None, base: Mapping[str, Any]) -> dict[str, Any]:
    """Attack one run over a small network: who made an update, and which rows were trained on."""
    from examples.comparisons.membership import infer_membership

    noisy = {"protect": unit, "epsilon": epsilon} if epsilon else {}
    asked: dict[str, Any] = {**base, "data": "digits:features=none", "learner": learner, **noisy}
    found, scenario = measured(asked), Scenario.from_spec(make_spec(**asked))
    trace, task = scenario.trace("private-walk"), scenario.task("private-walk")
    rows = infer_membership(scenario, trace, WATCHED, task=task) or {}
    run = train(task, trace, evaluations=1)
    return dict(
        plain(
            {
                "attackers": found,
                "membership": [rows["auc"], *rows["auc_interval"]],
                "accuracy": run.points[-1].accuracy,
                "noise": scenario.protection.noise,
            }
        )
    )


def do(job: Mapping[str, Any]) -> Any:
    """Do one job: ``do`` names it, the rest says which."""
    asked = dict(job)
    known: dict[str, Callable[..., Any]] = {
        "tried": tried,
        "trained": trained,
        "leaked": leaked,
        "correlated": correlated,
    }
    return known[asked.pop("do")](**asked)
