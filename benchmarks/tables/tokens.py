"""Several tokens side by side: how much sooner they are there, and what merging two that meet would do.

Run ``python -m benchmarks.tables.tokens``; a minute. Digits over 300 peers, sealed for 16. *Merged*: who opens a
token, having last opened another, averages it with the model that it made then. The product does not do that: this is
why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from veilwalk.learning import Params, StepContext, TrainingTrace, init_generator, update_generators
from veilwalk.learning import average as mean_model
from veilwalk.training import Scenario, TrainSettings

SEEDS = (7, 8, 9)
TOKENS = (1, 4, 16)
UPDATES, WATCHED, TARGET = 1_000, 250, 0.8
PRIVATE = "private-walk"
SCHEME: dict[str, Any] = {"law": "far:4", "walk": "non-backtracking", "recipients": 16}


@dataclass(frozen=True)
class Outcome:
    """What one run came to: hops and a token's own hops to the target, accuracy of the average and of single models."""

    hops: float
    clock: float
    average: float
    single: float


def trained(scenario: Scenario, trace: TrainingTrace, seed: int, *, merged: bool) -> Outcome:
    """Train along a trace, merging where asked."""
    task = scenario.task(PRIVATE, seed=seed)
    models: list[Params] = [task.learner.init_params(init_generator(seed))] * trace.n_models
    held: dict[int, tuple[Params, int]] = {}
    kept: list[dict[str, Any]] = [{} for _ in range(trace.n_nodes)]
    hops, clock, total = np.inf, np.inf, np.cumsum(trace.hops)
    streams = update_generators(seed, trace.node, trace.steps)
    columns = (trace.node.tolist(), trace.steps.tolist(), trace.model.tolist(), trace.ages.tolist())
    for row, (node, step, model, age, rng) in enumerate(zip(*columns, streams, strict=True)):
        before = models[model]
        if merged and node in held and held[node][1] != model:
            before = mean_model([before, held[node][0]])
        context = StepContext(rng=rng, step=step, age=age, state=kept[node])
        models[model] = task.learner.update(before, task.partitions[node], context).params
        held[node] = (models[model], model)
        if row < WATCHED and np.isinf(hops) and _accuracy(scenario, mean_model(models)) >= TARGET:
            hops, clock = float(total[row]), float(trace.clock[row])
    single = float(np.mean([_accuracy(scenario, model) for model in models]))
    return Outcome(hops, clock, _accuracy(scenario, mean_model(models)), single)


def _accuracy(scenario: Scenario, model: Params) -> float:
    return float(scenario.learner.evaluate(model, scenario.data.test)["accuracy"])


def main() -> None:
    """Print a row for each number of tokens."""
    print("| tokens | merged | hops to 80% | hops of one token | accuracy, average | accuracy, single |")
    print("|---|---|---|---|---|---|")
    for tokens in TOKENS:
        for merged in (False, True)[: 1 if tokens == 1 else 2]:
            found = []
            for seed in SEEDS:
                scenario = Scenario.of(TrainSettings(seed=seed, **SCHEME))
                trace = scenario.trace(PRIVATE, updates=UPDATES, seed=seed, tokens=tokens)
                found.append(trained(scenario, trace, seed, merged=merged))
            hops, clock = (np.mean([getattr(one, name) for one in found]) for name in ("hops", "clock"))
            average, single = (np.mean([getattr(one, name) for one in found]) for name in ("average", "single"))
            how = "yes" if merged else "no"
            print(f"| {tokens} | {how} | {hops:,.0f} | {clock:,.0f} | {average:.1%} | {single:.1%} |")


if __name__ == "__main__":
    main()
