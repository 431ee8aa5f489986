"""Drift correction, tried: does it learn sooner together with linear decay, and from whom does it hide?

A node keeps its last model, that model's age, and the mean gradient of its own last update. The model's movement since,
divided by what counted of the updates between, is the mean gradient of all others; the node's own last gradient is
taken out of each of its steps, and that mean is put in. Nothing more travels. It is not in the package: this is why.

Run ``python -m tools.pages.drift`` from the checkout, with MNIST's four files in ``../shared/data/mnist`` or where
``--data`` says: a quarter of an hour. It prints the tables of a section of ``docs/measured/learning.md``. Jobs are
kept under ``--work``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from tools.pages.campaign import add_engine, engine
from tools.pages.clock import GRAPH, MLP, RECIPIENTS, SOFTMAX, reach, read_rows
from tools.pages.markdown import markdown_table, mean_share, share_between
from veilwalk.core.arrays import FloatArray
from veilwalk.core.randomness import task_generator
from veilwalk.design import choose_scheme
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import DescentLearner, Params, Partition, Protection, StepContext, UpdateResult, train
from veilwalk.training import PRIVATE, Candidates, Scenario, attacked_rows, make_spec

SEEDS = (1, 2, 3)
#: Fewer updates between than this count for less: they are no mean of all.
DAMPING = 30.0
#: What is trained: model, step size, local steps, rows, and the accuracies of which hops are told.
TRAINED = (
    (SOFTMAX, 1, 10, "dirichlet:0.3", (0.8, 0.9, 0.91)),
    (SOFTMAX, 1, 10, "dirichlet:0.1", (0.8, 0.88, 0.9)),
    (SOFTMAX, 0.3, 50, "dirichlet:0.1", (0.8, 0.88, 0.9)),
    (MLP, 0.3, 10, "dirichlet:0.1", (0.9, 0.93, 0.95)),
)
UPDATES = 1000
ATTACKED, ARCHIVED_EVERY = 60, 100
ATTACKERS = {
    "plain": "knows nothing of a correction",
    "own": "corrects every candidate by the receiver's own last model",
    "archive": f"has every {ARCHIVED_EVERY}th model, and takes of each candidate what fits best",
    "memories": "knows when each candidate was there last",
}
Job = dict[str, Any]
Flat = npt.NDArray[np.float32]


class Drift:
    """A learner of the package, corrected."""

    def __init__(self, learner: DescentLearner, protection: Protection, updates: int) -> None:
        self.learner, self._protection = learner, protection
        self._one = replace(learner, local_steps=1)
        self._counted = np.concatenate(([0.0], np.cumsum([protection.share(age) for age in range(updates)])))
        self.init_params, self.evaluate = learner.init_params, learner.evaluate

    def weigh(self, earlier: int, age: int) -> tuple[float, float]:
        """Return what counted of the updates between two ages, and how far the correction is trusted."""
        weight = float(self._counted[age] - self._counted[earlier])
        return weight, weight / (weight + DAMPING)

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Make the steps of the learner, each corrected; nothing is corrected at a node's first visit."""
        if not len(data):
            return UpdateResult(params=params, num_examples=0)
        rate, steps, kept = self.learner.learning_rate, self.learner.local_steps, ctx.state
        correction = dict[str, Any]()
        if "age" in kept:
            weight, trust = self.weigh(int(kept["age"]), ctx.age)
            for name in params if weight > 0 else ():
                others = (kept[f"model/{name}"] - params[name]) / np.float32(rate * steps * weight)
                correction[name] = np.float32(trust * rate) * (others - kept[f"gradient/{name}"])
        moved, total = dict(params), {name: np.zeros_like(value) for name, value in params.items()}
        for _ in range(steps):
            after = self._one.update(moved, data, ctx).params
            for name, value in after.items():
                total[name] += moved[name] - value
                moved[name] = value - correction[name] if correction else value
        share = self._protection.share(ctx.age)
        for name, value in params.items():
            kept[f"gradient/{name}"] = total[name] / np.float32(rate * steps)
            kept[f"model/{name}"] = (value + share * (moved[name] - value)).astype(value.dtype)
        kept["age"] = np.array(ctx.age + 1)
        return UpdateResult(params=moved, num_examples=steps)


def run(data: str, job: Job, *, observe: Any = None, evaluations: int = 60) -> tuple[Scenario, Any, Drift, Any]:
    """Train with linear decay, corrected or not."""
    scheme = choose_scheme(parse_graph_spec(GRAPH), "far:4", walk="non-backtracking", recipients=RECIPIENTS)
    parts: Job = {"data": read_rows(data), "partition": job["part"], "learner": job["learner"]}
    scenario = Scenario.build(scheme, make_spec(seed=job["seed"], updates=job["U"]), **parts)
    trace, protection = scenario.trace(PRIVATE), Protection(decay=job["U"])
    drift = Drift(scenario.learner, protection, job["U"])  # type: ignore[arg-type]
    task = replace(scenario.task(PRIVATE), mod=protection.mod())
    task = replace(task, learner=drift) if job["drift"] else task
    return scenario, trace, drift, train(task, trace, evaluations=evaluations, observe=observe)


def do(data: str, job: Job) -> Job:
    """Train once, or attack one training."""
    if job["do"] == "attack":
        return attack(data, job)
    points = [(point.update, point.clock, point.hops, point.accuracy) for point in run(data, job)[3].points]
    return job | {"final": points[-1][3], "hops": [reach({"points": points}, target, 2) for target in job["targets"]]}


def attack(data: str, job: Job) -> Job:
    """Return how many of some deliveries each attacker names the maker of, by the direction of the very update.

    All are granted every candidate's rows and the model before. What a corrected update is expected to be is computed
    to first order: the candidate's plain update here, less its plain update at its last visit, plus the mean of all.
    """
    received, sent = dict[int, Flat](), dict[int, Flat]()
    models = dict[int, Params]()

    def observe(row: int, before: Params, after: Params) -> None:
        models[row], received[row], sent[row] = before, _flatten(before), _flatten(after)

    scenario, trace, drift, _ = run(data, job, observe=observe, evaluations=1)
    candidates = Candidates(learner=drift.learner, partitions=scenario.partitions, rng=task_generator(job["seed"], 77))
    nodes, archive = trace.node, range(0, job["U"], ARCHIVED_EVERY)
    plain = {row: candidates.updates(models[row]).astype(np.float32) for row in archive}
    hits = dict.fromkeys(ATTACKERS, 0)
    rows = attacked_rows(trace, ATTACKED)
    for row in rows.tolist():
        made, here = row - 1, candidates.updates(models[row - 1]).astype(np.float32)
        change = sent[made] - received[made]

        def correct(visit: int, whose: Any, table: Flat, *, made: int = made, here: Flat = here) -> Flat:
            """Return what candidates would send who were here last at an update of the archive, or at their own."""
            weight, trust = drift.weigh(visit + 1, made)
            if weight <= 0:
                return np.asarray(here[whose])
            return np.asarray(
                here[whose] - np.float32(trust) * ((sent[visit] - received[made]) / np.float32(weight) + table)
            )

        visits = [np.flatnonzero(nodes[:made] == node) for node in range(len(here))]
        mine, near = visits[nodes[row]], min(archive, key=lambda at: abs(at - made))
        everybody = slice(None)
        guesses = {"plain": _fit(here, change)}
        before = int(mine[-1]) if len(mine) else made
        guesses["own"] = _fit(correct(before, everybody, candidates.updates(models[before]).astype(np.float32)), change)
        fits = [_fit(correct(at, everybody, plain[at]), change) for at in archive if at < made]
        # Who was never here before corrects nothing.
        guesses["archive"] = np.max([guesses["plain"], *fits], axis=0)
        known = here.copy()
        for node, own in enumerate(visits):
            if len(own) and job["drift"]:
                near = min(archive, key=lambda at, last=int(own[-1]): abs(at - last))  # type: ignore[misc]
                known[node] = correct(int(own[-1]), node, plain[near][node])
        guesses["memories"] = _fit(known, change)
        for name, fit in guesses.items():
            fit[nodes[row]] = -np.inf
            hits[name] += int(fit.argmax() == trace.source[row])
    return job | {"deliveries": len(rows), "hits": hits}


def _flatten(params: Params) -> Flat:
    return np.concatenate([np.asarray(value, dtype=np.float32).ravel() for value in params.values()])


def _fit(expected: Flat, change: Flat) -> FloatArray:
    """Return the cosine of what each candidate (row) would have changed and what was changed."""
    along = (expected @ change).astype(np.float64)
    return np.asarray(along / np.maximum(np.linalg.norm(expected, axis=1) * np.linalg.norm(change), 1e-30))


def list_jobs() -> list[Job]:
    """Return every job."""
    jobs: list[Job] = []
    for model, rate, steps, part, targets in TRAINED:
        about = {"learner": f"{model}:learning_rate={rate}:local_steps={steps}", "part": part, "U": UPDATES}
        named = about | {"do": "train", "targets": list(targets)}
        seeds = SEEDS if model == SOFTMAX else SEEDS[:2]
        jobs += [named | {"drift": drift, "seed": seed} for drift in (False, True) for seed in seeds]
    about = {"learner": f"{SOFTMAX}:learning_rate=1:local_steps=10", "part": "dirichlet:0.3", "U": UPDATES}
    return jobs + [about | {"do": "attack", "drift": drift, "seed": SEEDS[0]} for drift in (False, True)]


def write_lines(found: Sequence[Job]) -> list[str]:
    """Return both tables."""
    trained = []
    for model, rate, steps, part, targets in TRAINED:
        learner = f"{model}:learning_rate={rate}:local_steps={steps}"
        for drift in (False, True):
            wanted = {"do": "train", "learner": learner, "part": part, "drift": drift}
            group = [job for job in found if wanted.items() <= job.items()]
            means = np.mean([job["hops"] for job in group], axis=0)
            hops = "; ".join(f"{mean:,.0f}" if np.isfinite(mean) else "not by all" for mean in means)
            named = (model.partition(":")[0], f"{rate:g}, {steps}", part, "yes" if drift else "no")
            at = ", ".join(f"{target:.0%}" for target in targets)
            trained.append((*named, mean_share([job["final"] for job in group]), f"{hops} ({at})"))
    attacked = []
    for name, what in ATTACKERS.items():
        cells = []
        for job in (job for job in found if job["do"] == "attack"):
            share = stats.binomtest(job["hits"][name], job["deliveries"]).proportion_ci(0.95)
            cells.append(share_between(job["hits"][name] / job["deliveries"], share.low, share.high))
        attacked.append((what, *cells))
    head = ("learner", "step, local steps", "rows", "corrected", "accuracy", "hops to")
    return [
        *markdown_table(head, trained),
        "",
        *markdown_table(("the attacker", "not corrected", "corrected"), attacked),
    ]


def main() -> None:
    """Do the jobs and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", default="mnist:../shared/data/mnist")
    add_engine(parser, Path("out/drift"))
    options = parser.parse_args()
    with engine(options.engine, options.work) as done:
        what = {"kind": "drift", "data": options.data}
        found = done(partial(do, options.data), list_jobs(), what=what, stage="drift")
    print("\n".join(write_lines(found)))


if __name__ == "__main__":
    main()
