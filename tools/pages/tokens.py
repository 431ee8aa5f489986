"""Several tokens side by side: how much sooner they are there, and what merging two that meet would do.

Run ``python -m tools.pages.tokens``; a minute. Digits over 300 peers, sealed for 16. *Merged*: who opens a
token, having last opened another, averages it with the model that it made then. The product does not do that: this is
why. Runs are jobs, kept in ``--work``; ``--engine`` does them elsewhere.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tools.pages.campaign import add_engine, engine
from veilwalk.learning import Params, TrainingTrace, apply_update, init_generator
from veilwalk.learning import average_params as mean_model
from veilwalk.training import Scenario, make_spec

SEEDS = (7, 8, 9)
TOKENS = (1, 4, 16)
UPDATES, WATCHED, TARGET = 1_000, 250, 0.8
PRIVATE = "private-walk"
SCHEME: dict[str, Any] = {"law": "far:4", "walk": "non-backtracking", "recipients": 16}


def jobs(updates: int) -> list[dict[str, Any]]:
    """Return the runs, those of one row of the table one after the other."""
    rows = [(tokens, merged) for tokens, merged in itertools.product(TOKENS, (False, True)) if tokens > 1 or not merged]
    return [
        {"tokens": tokens, "merged": merged, "seed": seed, "updates": updates}
        for (tokens, merged), seed in itertools.product(rows, SEEDS)
    ]


def measured(job: Mapping[str, Any]) -> dict[str, float]:
    """Return what one run came to: hops, and of one token, to the target; accuracy of the average and of the single."""
    spec = make_spec(seed=job["seed"], updates=job["updates"], walks=job["tokens"], **SCHEME)
    scenario = Scenario.from_spec(spec)
    return trained(scenario, scenario.trace(PRIVATE), job["seed"], merged=job["merged"])


def trained(scenario: Scenario, trace: TrainingTrace, seed: int, *, merged: bool) -> dict[str, float]:
    """Train along a trace, merging where asked."""
    task = scenario.task(PRIVATE)
    models: list[Params] = [task.learner.init_params(init_generator(seed))] * trace.n_models
    held: dict[int, tuple[Params, int]] = {}
    kept: list[dict[str, Any]] = [{} for _ in range(trace.n_nodes)]
    hops, clock, total = np.inf, np.inf, np.cumsum(trace.hops)
    columns = (trace.node.tolist(), trace.steps.tolist(), trace.model.tolist(), trace.ages.tolist())
    for row, (node, step, model, age) in enumerate(zip(*columns, strict=True)):
        before = models[model]
        if merged and node in held and held[node][1] != model:
            before = mean_model([before, held[node][0]])
        place: dict[str, Any] = {"seed": seed, "node": node, "step": step, "age": age, "state": kept[node]}
        models[model] = apply_update(task.learner, before, task.partitions[node], **place, mod=task.mod).params
        held[node] = (models[model], model)
        if row < WATCHED and np.isinf(hops) and _accuracy(scenario, mean_model(models)) >= TARGET:
            hops, clock = float(total[row]), float(trace.clock[row])
    single = float(np.mean([_accuracy(scenario, model) for model in models]))
    return {"hops": hops, "clock": clock, "average": _accuracy(scenario, mean_model(models)), "single": single}


def _accuracy(scenario: Scenario, model: Params) -> float:
    return float(scenario.learner.evaluate(model, scenario.data.test)["accuracy"])


def main() -> None:
    """Print a row for each number of tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=UPDATES)
    add_engine(parser, Path("out") / "tokens")
    options = parser.parse_args()
    asked = jobs(options.updates)
    with engine(options.engine, options.work) as run:
        found = run(measured, asked, what={"kind": "tokens", **SCHEME}, stage="tokens")
    print("| tokens | merged | hops to 80% | hops of one token | accuracy, average | accuracy, single |")
    print("|---|---|---|---|---|---|")
    for first in range(0, len(asked), len(SEEDS)):
        of_row = found[first : first + len(SEEDS)]
        hops, clock, average, single = (
            np.mean([one[name] for one in of_row]) for name in ("hops", "clock", "average", "single")
        )
        how = "yes" if asked[first]["merged"] else "no"
        print(f"| {asked[first]['tokens']} | {how} | {hops:,.0f} | {clock:,.0f} | {average:.1%} | {single:.1%} |")


if __name__ == "__main__":
    main()
