"""The content attack: whose data has the model that was delivered just learnt from?

Anonymous routing hides where an update came from, not what it says. The attacker is granted the data of every
candidate, as in Shatter's linkability attack, which is more than a real one will have. Its evidence is

``gradient``
    how well the very update fits the one each candidate would have made, by its residual and by its direction. That
    takes the model before the update, which only the update's predecessor holds, who chose the source and knows it
    anyway: what is left of anonymity once that model is known, by a colluder or by any other way;
``step``
    how far each candidate's loss fell in the very update: the same grant, less made of it;
``count``
    how often each candidate seems to have taken part since the destination's own last model, with ``drop``: what a
    destination can do alone;
``drop``
    how far that loss has fallen since the destination's own last model, the only earlier one it holds;
``loss``
    the loss of the received model on each candidate's data, lowest first (Shatter).

Each alone, and joined with what the route says. Evidence becomes a posterior by exp(evidence / temperature), with the
temperature fitted on one half of the deliveries and used on the other; evidence in two parts has two temperatures,
fitted one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from veilwalk.audit import SCORES, estimate, score
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.progress import Progress, silent
from veilwalk.core.randomness import task_generator
from veilwalk.graphs import distances
from veilwalk.learning import (
    Candidates,
    Params,
    TrainingTask,
    TrainingTrace,
    candidate_losses,
    candidates_bytes,
    guarded,
    params_bytes,
    train,
)
from veilwalk.training._scenario import Scenario

#: Parts of the evidence, by its name, and what it takes. Data are every candidate's; its own last model and the
#: count of updates in the header a receiver has anyway.
EVIDENCE = {
    "gradient": (("residual", "direction"), "data, model before"),
    "step": (("step",), "data, model before"),
    "count": (("drop", "count"), "data, own model, count"),
    "drop": (("drop",), "data, own model"),
    "loss": (("loss",), "data"),
}
_PARTS = {part for parts, _ in EVIDENCE.values() for part in parts}
_ATTACK_TASK = 0x6174746B
# Looks at every candidate that one delivery takes: three models' losses, three models' updates.
_LOOKS = 6
# Runs of consecutive deliveries, whose means the intervals are from: neighbours in time are not independent.
_BLOCKS = 20
_MEANS = ("node_entropy_nats", "inverse_rank", "ndcg")


def attacked_rows(trace: TrainingTrace, count: int) -> IntArray:
    """Return up to ``count`` deliveries, evenly spread, whose destination has updated before and whose source too."""
    earlier = np.ones(len(trace), dtype=np.bool_)
    for column in (trace.node, trace.model):
        earlier[np.unique(column, return_index=True)[1]] = False
    found = np.flatnonzero(earlier)
    return found[np.unique(np.linspace(0, len(found) - 1, min(count, len(found))).astype(np.int64))]


@dataclass(frozen=True, eq=False)
class Evidence:
    """For each delivery (row) and candidate (column) how much speaks for it, by part; -inf for the destination."""

    by_name: dict[str, FloatArray]
    sources: IntArray


def gather_evidence(
    scenario: Scenario,
    trace: TrainingTrace,
    rows: IntArray,
    *,
    seed: int,
    progress: Progress = silent,
    task: TrainingTask | None = None,
) -> Evidence:
    """Train along ``trace`` once more and look at the models delivered in ``rows`` as an attacker would.

    ``task`` is what was trained, where it is not just the scenario's.
    """
    collector = _Collector(scenario, trace, rows, seed, progress)
    task = task or scenario.task(trace.algorithm, seed=seed)
    train(task, trace.first(int(rows[-1]) + 1), evaluations=1, observe=collector.see)
    return Evidence(collector.found, trace.source[rows])


def attack_bytes(scenario: Scenario, trace: TrainingTrace, rows: IntArray, model: Params) -> int:
    """Return about the memory that :func:`gather_evidence` takes where models are like ``model``."""
    seen = trace.first(int(rows[-1]) + 1)
    # Every destination keeps its own last model of each token, every token the one before.
    kept = len(set(zip(seen.node.tolist(), seen.model.tolist(), strict=True))) + trace.n_models
    return kept * params_bytes(model) + candidates_bytes(scenario.learner, scenario.graph.n_nodes, model)


@dataclass(frozen=True, eq=False)
class _Kept:
    """A model that a destination sent on, and which of its token's updates it was."""

    params: Params
    update: int


class _Collector:
    """Keeps what each party would hold: destinations their own last model, predecessors the one they received."""

    def __init__(self, scenario: Scenario, trace: TrainingTrace, rows: IntArray, seed: int, progress: Progress) -> None:
        self._scenario, self._trace, self._progress = scenario, trace, progress
        self._place = {int(row): index for index, row in enumerate(rows)}
        self._own: dict[int, Params] = {}
        self._own_of: dict[tuple[int, int], _Kept] = {}
        self._before: dict[int, Params] = {}
        self._made = np.zeros(trace.n_models, dtype=np.int64)
        self._looked = 0
        shape = (len(rows), scenario.graph.n_nodes)
        self.found = {name: np.full(shape, -np.inf) for name in _PARTS}
        self._learner = guarded(scenario.protection.learner(scenario.learner))
        self._candidates = Candidates(
            learner=self._learner,
            partitions=scenario.partitions,
            # Its own stream: an attacker does not know the seed of the run.
            rng=task_generator(seed, _ATTACK_TASK),
            protection=scenario.protection,
            tried=self._tried,
        )

    def _tried(self, count: int) -> None:
        """Say how far it is: with large models a single delivery takes long."""
        self._looked += count
        each = _LOOKS * self._scenario.graph.n_nodes
        deliveries = len(self._place)
        self._progress("content attack", self._looked, each * deliveries, f"{self._looked // each} deliveries")

    def see(self, row: int, received: Params, sent: Params) -> None:
        """Look at one update: ``received`` is what was delivered to the node that makes it."""
        node, model = int(self._trace.node[row]), int(self._trace.model[row])
        index = self._place.get(row)
        if index is not None:
            for name, values in self._evidence(node, model, received).items():
                # A candidate without data fits nothing; the destination did not send it to itself.
                self.found[name][index] = np.where(np.isfinite(values), values, np.nanmin(values))
                self.found[name][index, node] = -np.inf
        self._made[model] += 1
        self._own[node], self._before[model] = sent, received
        self._own_of[node, model] = _Kept(sent, int(self._made[model]))

    def _evidence(self, node: int, model: int, received: Params) -> dict[str, FloatArray]:
        before, losses = self._before[model], self._losses(received)
        residual, direction = self._candidates.fits(before, received, int(self._made[model]) - 1)
        return {
            "residual": residual,
            "direction": direction,
            "step": self._losses(before) - losses,
            "count": self._counts(node, model, received),
            "drop": self._losses(self._own[node]) - losses,
            "loss": -losses,
        }

    def _counts(self, node: int, model: int, received: Params) -> FloatArray:
        """Whoever took part more often since the destination's own last update of this token is likelier its last."""
        often, own = self._scenario.scheme.source_prior, self._own_of.get((node, model))
        if own is None:
            # It has only had other tokens: their differences are not sums of updates.
            self._tried(2 * len(often))
            return np.zeros(len(often))
        made = int(self._made[model])
        since = made - own.update
        ages = own.update, made
        return self._candidates.participation(own.params, received, max(since, 1) * often, ages)

    def _losses(self, params: Params) -> FloatArray:
        return candidate_losses(self._learner, params, self._scenario.partitions, tried=self._tried)


def content_attack(scenario: Scenario, evidence: Evidence, route: FloatArray) -> list[dict[str, Any]]:
    """Score every attacker, the strongest first: the route alone, content alone, both together."""
    sources = evidence.sources
    rows = [_scored("route alone", route, sources, scenario) | {"granted": "route"}]
    flat = normalised(np.isfinite(evidence.by_name["loss"]).astype(np.float64))
    for name, (parts, granted) in EVIDENCE.items():
        for label, base in ((f"content alone: {name}", flat), (f"route and content: {name}", route)):
            posterior, temperatures = _joined([evidence.by_name[part] for part in parts], base, sources)
            row = _scored(label, posterior, sources, scenario) | {"granted": granted}
            rows.append(row | {"temperature_nats": temperatures[0], "temperatures_nats": temperatures})
    return sorted(rows, key=lambda row: (-row["hit_ratio"], row["node_entropy_nats"]))


def _joined(parts: Sequence[FloatArray], base: FloatArray, sources: IntArray) -> tuple[FloatArray, list[float]]:
    """Return base times exp(evidence / temperature) for all parts, each half of the rows with the other's fits."""
    half = np.arange(len(base)) % 2 == 0
    posterior, fits = np.empty_like(base), []
    with np.errstate(divide="ignore"):
        start = np.log(base)
    for mine, other in ((half, ~half), (~half, half)):
        found, rehearsed, temperatures = start[mine], start[other], []
        for part in parts:
            temperature = _fitted(part[other], rehearsed, sources[other])
            found = _log_posterior(part[mine], found, temperature)
            rehearsed = _log_posterior(part[other], rehearsed, temperature)
            temperatures.append(temperature)
        posterior[mine] = np.exp(found)
        fits.append(temperatures)
    return posterior, [float(value) for value in np.mean(fits, axis=0)]


def _log_posterior(evidence: FloatArray, log_base: FloatArray, temperature: float) -> FloatArray:
    total = log_base + evidence / temperature
    return np.asarray(total - special.logsumexp(total, axis=1, keepdims=True))


def _fitted(evidence: FloatArray, log_base: FloatArray, sources: IntArray) -> float:
    """Return the temperature that makes the true sources likeliest."""
    rows = np.arange(len(sources))

    def surprise(log_temperature: float) -> float:
        return -float(_log_posterior(evidence, log_base, float(np.exp(log_temperature)))[rows, sources].mean())

    # From a thousandth to ten thousand nats: at either end content says all, or nothing.
    best = optimize.minimize_scalar(surprise, bounds=(np.log(1e-3), np.log(1e4)), method="bounded")
    return float(np.exp(best.x))


def _scored(label: str, posterior: FloatArray, sources: IntArray, scenario: Scenario) -> dict[str, Any]:
    apart = distances(scenario.graph)[0]
    # Distances play no part in the scores that are shown.
    values = score(posterior, sources, apart, scenario.scheme.law.support)
    lanes = np.arange(len(sources)) * min(_BLOCKS, len(sources)) // len(sources)
    hits = values[:, SCORES.index("hit_ratio")]
    # Exact for counts: no hit at all still leaves room for some.
    range_ = stats.binomtest(round(float(hits.sum())), len(hits)).proportion_ci(0.95)
    row: dict[str, Any] = {"attacker": label, "deliveries": len(sources), "hit_ratio": float(hits.mean())}
    row["hit_ratio_interval"] = [float(range_.low), float(range_.high)]
    for name in _MEANS:
        found = estimate(values[:, SCORES.index(name)], lanes, share=not name.endswith("_nats"))
        row |= {name: found.mean, f"{name}_interval": [found.low, found.high]}
    # What the posteriors themselves promise: beside the hit ratio it shows how well they are calibrated.
    return row | {"mean_top_posterior": float(posterior.max(axis=1).mean())}
