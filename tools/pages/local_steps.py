"""Local steps an update, and what makes a model settle: how soon the private walk that is sealed for several learns.

Part of :mod:`tools.pages.learning`. Every number of local steps, and a whole pass over a node's rows, as it is,
with fading, and with an average of models that travels beside the model; for each the step size that is soonest at the
target. All on rows held back from training, as in :mod:`tools.pages.tuning`. The average would double the body of
a message, and its receiver can take the last model out of it again: how much of the maker that shows is measured too.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import stats

from tools.pages.markdown import markdown_table, share_between
from tools.pages.tuning import FADES, LOCAL_STEPS, without_test_rows
from veilwalk.core.randomness import task_generator
from veilwalk.core.units import readable_bytes
from veilwalk.design import Scheme
from veilwalk.learning import (
    Data,
    Params,
    Partition,
    Protection,
    SoftmaxLearner,
    StepContext,
    TrainingTrace,
    UpdateResult,
    params_bytes,
    sealed_bytes,
    train,
)
from veilwalk.training import Candidates, Scenario, attacked_rows, make_spec

TARGET, PARTITION = 0.8, "dirichlet:0.3"
RATES = (0.1, 0.3, 1.0)
WHOLE_PASS = 0
AVERAGE = "average travels"
# Whose weight in the average falls as 4 / (age + 3): mostly the last quarter of all models.
_WEIGHT = 4
_HELD_BACK = 2500
#: Rows dealt, and the walk over them, for each seed.
Walked = list[tuple[Scenario, TrainingTrace]]
# With which the leak of the average is measured.
_ATTACKED = SoftmaxLearner(n_features=1, n_classes=2, learning_rate=0.3, local_steps=10)


@dataclass(frozen=True, slots=True)
class Passing:
    """A learner that makes as many steps of one visit as fill a pass over the node's rows."""

    learner: SoftmaxLearner

    def init_params(self, rng: np.random.Generator) -> Params:
        """Return zeros."""
        return self.learner.init_params(rng)

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Return ``params`` after a step for every batch that the rows fill."""
        steps = max(-(-len(data) // self.learner.batch_size), 1)
        return replace(self.learner, local_steps=steps).update(params, data, ctx)

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return loss and accuracy."""
        return self.learner.evaluate(params, data)


@dataclass
class Travelling:
    """The average that would travel with the model."""

    params: Params = field(default_factory=dict)
    before: Params = field(default_factory=dict)

    def add(self, update: int, model: Params) -> None:
        """Take in the model after an update (from 0)."""
        weight = np.float32(min(1.0, _WEIGHT / (update + _WEIGHT)))
        self.before = self.params or model
        self.params = {name: kept + weight * (model[name] - kept) for name, kept in self.before.items()}


def jobs(data: Sequence[str]) -> list[dict[str, Any]]:
    """Return what is tried on each of the data, the step sizes of one row of the table one after the other."""
    points = itertools.product(data, (*LOCAL_STEPS, WHOLE_PASS), FADES, RATES)
    return [{"data": name, "steps": steps, "fade": fade, "rate": rate} for name, steps, fade, rate in points]


def table(asked: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the table: of every way to do it the step size that is soonest at the target."""
    rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for job, result in zip(asked, found, strict=True):
        for how, one in result.items():
            about = {"data": job["data"], "steps": job["steps"], "how": how, "learning_rate": job["rate"]}
            rows.setdefault((job["data"], job["steps"], job["fade"], how), []).append(about | one)
    return [min(every, key=lambda one: one["hops"]) for every in rows.values()]


def walked(scheme: Scheme, whole: Data, updates: int, seeds: Sequence[int]) -> Walked:
    """Deal rows of which some are held back, and walk, once for each seed."""
    held = without_test_rows(whole)
    data = replace(held, test=Partition(held.test.features[:_HELD_BACK], held.test.labels[:_HELD_BACK]))
    specs = [make_spec(seed=seed, updates=updates) for seed in seeds]
    dealt = [Scenario.build(scheme, spec, data=data, partition=PARTITION, learner="softmax") for spec in specs]
    return [(scenario, scenario.trace("private-walk")) for scenario in dealt]


def tried(walked: Walked, *, rate: float, steps: int, fade: int) -> dict[str, dict[str, float]]:
    """Return for the model, and where nothing fades for the average, the means over the seeds, and bytes of a hop."""
    found: dict[str, list[dict[str, float]]] = {}
    for seed, (scenario, trace) in enumerate(walked):
        sizes: dict[str, Any] = {"n_features": scenario.data.n_features, "n_classes": scenario.data.n_classes}
        softmax = SoftmaxLearner(**sizes, learning_rate=rate, local_steps=steps or 1)
        learner = softmax if steps else Passing(softmax)
        mean, scores = Travelling(), [0.0]

        def see(update: int, before: Params, after: Params) -> None:  # noqa: ARG001 - what is made, not what it was made of
            mean.add(update, after)  # noqa: B023 - called in this turn only
            scores.append(softmax.evaluate(mean.params, scenario.data.test)["accuracy"])  # noqa: B023

        whole = replace(scenario, learner=learner, protection=Protection(fade=fade))
        task = whole.change(seed=seed).task("private-walk")
        run = train(task, trace, evaluations=2 * len(trace), observe=None if fade else see)
        hops = run.costs.hops
        of_model = np.array([point.accuracy or 0.0 for point in run.points])
        found.setdefault(f"fade {fade}" if fade else "as it is", []).append(reached(of_model, hops))
        if not fade:
            found.setdefault(AVERAGE, []).append(reached(np.array(scores), hops))
    first = walked[0][0]
    body, recipients = params_bytes(first.learner.init_params(task_generator(0))), first.scheme.recipients
    return {
        how: {key: float(np.mean([one[key] for one in every])) for key in every[0]}
        | {"message_bytes": sealed_bytes(body * (1 + (how == AVERAGE)), recipients=recipients)}
        for how, every in found.items()
    }


def reached(accuracy: np.ndarray[Any, Any], hops: np.ndarray[Any, Any]) -> dict[str, float]:
    """Return updates and hops to the target, and from which update on it stays there; infinite where it does not."""
    over, under = np.flatnonzero(accuracy >= TARGET), np.flatnonzero(accuracy < TARGET)
    stays = float(under[-1] + 1) if under[-1] + 1 < len(accuracy) else np.inf
    if not len(over):
        return {"updates": np.inf, "hops": np.inf, "stays": np.inf}
    return {"updates": float(over[0]), "hops": float(hops[over[0]]), "stays": stays}


def leak(scheme: Scheme, data: Data, *, seed: int, updates: int = 800, count: int = 200) -> list[dict[str, Any]]:
    """Return how often content alone, held against a reference that somebody has, names the maker first."""
    learner = replace(_ATTACKED, n_features=data.n_features, n_classes=data.n_classes)
    spec = make_spec(seed=seed, updates=updates)
    scenario = Scenario.build(scheme, spec, data=data, partition=PARTITION, learner=learner)
    trace = scenario.trace("private-walk")
    candidates = Candidates(learner=learner, partitions=scenario.partitions, rng=task_generator(seed, 1))
    looked_at = set(attacked_rows(trace, count).tolist())
    own: dict[int, Params] = {}
    hits: dict[str, int] = {}
    mean, last = Travelling(), Travelling()

    def see(update: int, received: Params, sent: Params) -> None:
        node = int(trace.node[update])
        if update in looked_at:
            held = {"the receiver's own last model": own[node], AVERAGE: mean.before, "the model before": last.before}
            for name, reference in held.items():
                fit = candidates.fit_updates(reference, received, int(trace.ages[update]) - 1)[0]
                fit[node] = -np.inf
                hits[name] = hits.get(name, 0) + int(fit.argmax() == trace.source[update])
        own[node] = sent
        last.before = received
        mean.add(update, sent)

    train(scenario.task("private-walk"), trace, evaluations=1, observe=see)
    return [{"reference": name, "deliveries": len(looked_at), "hits": found} for name, found in hits.items()]


def section(found: Mapping[str, Any], seeds: int) -> list[str]:
    """Return the lines of the page: a table, and the sentence on what the average gives away."""
    head = ("data", "local steps", "model", "step size", "updates to 80%", "stays from", "hops to 80%", "bytes to 80%")
    rows = []
    for row in found["rows"]:
        reached = [_number(row[key]) for key in ("updates", "stays", "hops")]
        sent = readable_bytes(row["hops"] * row["message_bytes"]) if np.isfinite(row["hops"]) else "not reached"
        steps = str(row["steps"] or "a pass")
        rows.append((row["data"], steps, row["how"], f"{row['learning_rate']:g}", *reached, sent))
    named = []
    for one in found["leak"]:
        low, high = stats.binomtest(one["hits"], one["deliveries"]).proportion_ci(0.95)
        named.append(f"{share_between(one['hits'] / one['deliveries'], low, high)} by {one['reference']}")
    about = (
        "The private walk that is sealed for several, Dirichlet 0.3, on rows held back from training, means over "
        f"{seeds} seeds, evaluated after every update; of the step sizes {', '.join(map(str, RATES))} the one that is "
        f"soonest at {TARGET:.0%}. *Stays from*: the update after which it was never below again while watched. *Fade "
        "10*: what a node changes counts 10 / (10 + age of the model). *Average travels*: an average of all models, "
        f"weight {_WEIGHT} / (age + {_WEIGHT}), is carried beside the model and evaluated; the message has two bodies. "
        "Its receiver can compute the average before the update, and hold what it got against the update that each "
        "candidate would have made. So it names the maker first (digits, every candidate's data granted, no route) in "
        f"{'; '.join(named)}. Nothing but the model travels, therefore, and fading is what we use."
    )
    return [about, "", *markdown_table(head, rows)]


def _number(value: float | None) -> str:
    return "not reached" if value is None or not np.isfinite(value) else f"{value:,.0f}"
