"""The content attack: whose data has the model that was delivered just learnt from?

Anonymous routing hides where an update came from, not what it says. The attacker is granted the data of every
candidate, as in Shatter's linkability attack, which is more than a real one will have. Its evidence is

* ``gradient``: how well the very update fits what each candidate would have made, by its residual and its direction.
  That takes the model before it, which only its predecessor holds, who chose the source and knows it anyway: what is
  left of anonymity once that model is known;
* ``step``: how far each candidate's loss fell in the very update: the same grant, less made of it;
* ``count``: how often each candidate seems to have taken part since the destination's own last model, with ``drop``;
* ``drop``: how far that loss has fallen since that model, the only earlier one that a destination holds;
* ``loss``: the loss of the received model on each candidate's data, lowest first (Shatter).

Each alone, and joined with what the route says. Evidence becomes a posterior by exp(evidence / temperature), with the
temperature fitted on one half of the deliveries and used on the other; evidence in two parts has two temperatures,
fitted one after the other.

A candidate's rows, the model before and the learner's settings say what step it would make; its random draws are not
known. A batch that is all of its rows leaves nothing to draw: the step is known to rounding. A smaller batch is a
mean of its rows' steps, so that the update lies, but for noise, in what they span: Gaussian around the whole-data
step, with the covariance of sampling without replacement. Learners that are not of this package are asked for a few
updates, and their mean is taken. Clipping is the attacker's to apply as well; noise only adds variance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from veilwalk import learning
from veilwalk.audit import SCORES, estimate_over_lanes, score_posteriors
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.progress import Progress, silent
from veilwalk.core.randomness import task_generator
from veilwalk.core.sizes import DEFAULT_MEMORY_BYTES
from veilwalk.core.units import readable_bytes
from veilwalk.graphs import distances
from veilwalk.learning import DescentLearner, Learner, Params, Partition, Partitions, Protection, TrainingTrace
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
#: Fewer deliveries than this say nothing about an attack.
FEWEST_ATTACKED = 20
_ATTACK_TASK = 0x6174746B
# Runs of consecutive deliveries, whose means the intervals are from: neighbours in time are not independent.
_BLOCKS = 20
_MEANS = ("node_entropy_nats", "inverse_rank", "ndcg")
# Draws of an update that is random; of large models, whose updates take long, fewer.
_DRAWS, _LARGE_DRAWS, _LARGE = 4, 2, 1_000_000
# Rows of padding, for each row there is, with which all updates are still computed together.
_MOST_PADDING = 8
# Numbers of a large model of somebody else's that are compared: an attacker needs no more.
_COMPARED = 16_384
# How far the deviation that no model explains may be below the largest: steps of the search.
_DEVIATIONS = 25
# Share of the variance of how often candidates took part that steps at both ends leave unexplained: nobody knows the
# models in between.
_UNEXPLAINED = 0.02
# Nobody is ruled out by an estimate of no part at all.
_NEVER = 0.05


def attacked_rows(trace: TrainingTrace, count: int) -> IntArray:
    """Return up to ``count`` deliveries, evenly spread, whose destination has updated before and whose source too.

    What comes of a meeting is a mean, and nobody's.
    """
    earlier = np.ones(len(trace), dtype=np.bool_) if not trace.meet else trace.ages % trace.meet > 0
    for column in (trace.node, trace.model):
        earlier[np.unique(column, return_index=True)[1]] = False
    rows = np.flatnonzero(earlier)
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64))]


def select_attacked_rows(scenario: Scenario, trace: TrainingTrace) -> tuple[IntArray, str | None]:
    """Return the deliveries that a run attacks, and the reason where it could attack some and attacks none."""
    checks = scenario.spec.checks
    rows = attacked_rows(trace, checks.attack)
    if checks.attack and checks.poisoning is not None:
        return rows[:0], "the content attack is left out: it attacks honest runs, and some nodes poison models here"
    if len(rows) < FEWEST_ATTACKED:
        return rows[:0], None
    needed = attack_bytes(scenario, trace, rows)
    if needed <= DEFAULT_MEMORY_BYTES:
        return rows, None
    return rows[:0], (
        f"the content attack is left out: with this model it takes about {readable_bytes(needed)} of memory, "
        f"and {readable_bytes(DEFAULT_MEMORY_BYTES)} is the most a computation takes on this machine"
    )


def attack_bytes(scenario: Scenario, trace: TrainingTrace, rows: IntArray) -> int:
    """Return about the memory that an attack on these deliveries takes."""
    model = scenario.learner.init_params(learning.init_generator(scenario.spec.seed))
    attacked = trace.first(int(rows[-1]) + 1)
    # Every destination keeps its own last model of each token, every token the model before.
    models = len(set(zip(attacked.node.tolist(), attacked.model.tolist(), strict=True))) + trace.n_models
    numbers = sum(value.size for value in model.values())
    if not isinstance(scenario.learner, DescentLearner):
        numbers = min(numbers, _COMPARED)
    # Three tables of all candidates' updates at a time.
    tables = 3 * scenario.graph.n_nodes * numbers * np.dtype(np.float64).itemsize
    return models * learning.params_bytes(model) + tables


@dataclass(frozen=True, eq=False)
class Evidence:
    """For each delivery (row) and candidate (column) how much speaks for it, by part; -inf for the destination."""

    by_name: dict[str, FloatArray]
    sources: IntArray


def gather_evidence(
    scenario: Scenario, trace: TrainingTrace, rows: IntArray, *, progress: Progress = silent
) -> Evidence:
    """Train along ``trace`` once more and attack the models delivered in ``rows``."""
    collector = EvidenceCollector(scenario, trace, rows, progress=progress)
    task = scenario.task(trace.algorithm)
    learning.train(task, trace.first(int(rows[-1]) + 1), evaluations=1, observe=collector.observe)
    return collector.evidence


class EvidenceCollector:
    """Watches a training: destinations hold their own last model, predecessors the model that they received."""

    def __init__(
        self, scenario: Scenario, trace: TrainingTrace, rows: IntArray, *, progress: Progress = silent
    ) -> None:
        self._trace, self._rows, self._progress = trace, rows, progress
        self._scheme = scenario.scheme
        self._places = {row: place for place, row in enumerate(rows.tolist())}
        self._own: dict[int, Params] = {}
        self._own_of_token: dict[tuple[int, int], tuple[Params, int]] = {}
        self._before: dict[int, Params] = {}
        self._next_row = 0
        shape, parts = (len(rows), scenario.graph.n_nodes), {part for parts, _ in EVIDENCE.values() for part in parts}
        #: The evidence on all deliveries so far.
        self.evidence = Evidence({part: np.full(shape, -np.inf) for part in parts}, trace.source[rows])
        # Its own stream: an attacker does not know the seed of the run.
        self._candidates = Candidates.from_scenario(scenario, task_generator(scenario.spec.seed, _ATTACK_TASK))

    def is_complete(self, rows: IntArray) -> bool:
        """Return whether these deliveries were attacked, in a training that was watched from its first update."""
        return np.array_equal(rows, self._rows) and self._next_row > int(rows[-1])

    def observe(self, row: int, received: Params, sent: Params) -> None:
        """Attack one update: ``received`` is what was delivered to the node that makes it."""
        if row != self._next_row:
            # A resumed training: the models before are not known.
            return
        self._next_row += 1
        node, model, age = int(self._trace.node[row]), int(self._trace.model[row]), int(self._trace.ages[row])
        if row in self._places:
            place, own_of_token = self._places[row], self._own_of_token.get((node, model))
            parts = self._candidates.weigh(
                received, self._before[model], self._own[node], own_of_token, age=age, often=self._scheme.source_prior
            )
            for number, (part, values) in enumerate(parts, start=1):
                # A candidate without data fits nothing; the destination did not send it to itself.
                line = self.evidence.by_name[part][place]
                line[:] = np.where(np.isfinite(values), values, np.nanmin(values))
                line[node] = -np.inf
                # With large models a single delivery takes long.
                done, total = place * len(self.evidence.by_name) + number, len(self._rows) * len(self.evidence.by_name)
                self._progress("content attack", done, total, f"{place} deliveries")
        self._own[node], self._before[model] = sent, received
        self._own_of_token[node, model] = sent, age + 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidates:
    """All who may have made an update, with the data of each, and the learner and protection that everybody knows.

    The attacker draws by a generator of its own, ``rng``.
    """

    learner: Learner
    partitions: Partitions
    rng: np.random.Generator
    protection: Protection = field(default_factory=Protection)

    @classmethod
    def from_scenario(cls, scenario: Scenario, rng: np.random.Generator) -> Candidates:
        """Return the candidates of a run: all its nodes."""
        learner, protection = learning.guarded(scenario.protection.learner(scenario.learner)), scenario.protection
        return cls(learner=learner, partitions=scenario.partitions, rng=rng, protection=protection)

    def weigh(
        self,
        received: Params,
        before: Params,
        own: Params,
        own_of_token: tuple[Params, int] | None,
        *,
        age: int,
        often: FloatArray,
    ) -> Iterator[tuple[str, FloatArray]]:
        """Yield each part of the evidence for every candidate, in a model of ``age`` updates that a node received.

        ``before`` is the model before its last update, ``own`` the node's own last one, and ``own_of_token`` its own
        last one of the same token, with that one's age; ``often`` says how often each candidate makes an update.
        """
        losses = candidate_losses(self.learner, received, self.partitions)
        yield "loss", -losses
        residual, direction = self.fit_updates(before, received, age - 1)
        yield "residual", residual
        yield "direction", direction
        yield "step", candidate_losses(self.learner, before, self.partitions) - losses
        if own_of_token is None:
            # It has only had other tokens: their differences are not sums of updates.
            yield "count", np.zeros(len(often))
        else:
            earlier, updates = own_of_token
            expected = max(age - updates, 1) * often
            yield "count", self.estimate_participation(earlier, received, expected, (updates, age))
        yield "drop", candidate_losses(self.learner, own, self.partitions) - losses

    @property
    def _descent(self) -> DescentLearner | None:
        """The learner where it is the package's own, whose steps can be computed."""
        return self.learner if isinstance(self.learner, DescentLearner) else None

    def updates(self, params: Params, age: int = 0) -> FloatArray:
        """Return the change that each candidate (row) is expected to make to a model of that age, flat."""
        learner, descent, parts = self.learner, self._descent, self.partitions
        steps: FloatArray | None = None
        if descent is not None and descent.local_steps == 1:
            steps = whole_steps(descent, params, parts.rows, parts.starts).astype(np.float64)
        elif descent is not None and _takes_together(descent, parts):
            steps = linear_updates(descent, params, parts)
        if steps is not None:
            steps *= self._shrink_factor(np.sqrt(np.square(steps).sum(axis=1)), age)[:, np.newaxis]
            return steps
        draws = _DRAWS if sum(value.size for value in params.values()) <= _LARGE else _LARGE_DRAWS
        if descent is not None:
            # All rows at every local step: what the batches scatter around.
            learner, draws = replace(descent, batch_size=0), 1
        return np.stack([self._draw_updates(learner, params, part, age, draws) for part in parts])

    def _draw_updates(self, learner: Learner, params: Params, part: Partition, age: int, draws: int) -> FloatArray:
        """Return the mean of a few updates, each clipped; of one, where the second is the same."""
        updates: list[FloatArray] = []
        while len(updates) < draws:
            result = learner.update(params, part, learning.StepContext(rng=self.rng, step=0, age=age))
            change = learning.subtract_params(result.params, params)
            updates.append(self._flatten(change) * self._shrink_factor(learning.params_norm(change), age))
            if len(updates) == 2 and np.array_equal(updates[0], updates[1]):
                break
        return np.asarray(np.mean(updates, axis=0))

    def _flatten(self, change: Params) -> FloatArray:
        """Return the numbers of a change that are compared."""
        whole = np.concatenate([array.ravel() for array in change.values()])
        if self._descent is not None or len(whole) <= _COMPARED:
            return whole
        return whole[np.linspace(0, len(whole) - 1, _COMPARED).astype(np.int64)]

    def _shrink_factor(self, norm: FloatArray | float, age: int) -> FloatArray:
        """Return what clipping and decay multiply an update of that norm with."""
        clip = self.protection.clip
        if not clip or self.protection.rows:
            return self.protection.share(age) * np.ones_like(norm)
        return self.protection.share(age) * (clip / np.maximum(norm, clip))

    def _variance(self, age: int) -> float:
        """Return the variance of the noise on each number of an update."""
        learner, protection = self._descent, self.protection
        if not protection.rows:
            return (protection.share(age) * protection.noise * protection.clip) ** 2
        if learner is None or learner.rows is None:
            # What becomes of noise in somebody else's optimiser is not known; it is fitted.
            return 0.0
        each = learner.learning_rate * learner.rows.deviation(learner.batch_size)
        return learner.local_steps * (protection.share(age) * each) ** 2

    def fit_updates(self, before: Params, after: Params, age: int = 0) -> tuple[FloatArray, FloatArray]:
        """Return how well the update of each candidate fits the one made: by its residual, and by its direction.

        Both are log-likelihoods (nats) up to what all have in common: the change of a model of ``age`` updates is the
        expected one, or any multiple of it, and Gaussian deviations. These are as large as the noise, or, where that
        fits better, larger: what is not known (momentum, the models between local steps) is deviation too.
        """
        change, expected = self._flatten(learning.subtract_params(after, before)), self.updates(before, age)
        size, square, along = len(change), np.square(expected).sum(axis=1), expected @ change
        own = float(change @ change)
        least = self._least(before, age)
        by_residual = _profile(np.maximum(own - 2 * along + square, 0.0), size, least)
        cosine = np.maximum(along, 0.0) / np.sqrt(np.maximum(own * square, 1e-300))
        by_direction = _profile(own * np.maximum(1 - np.square(cosine), 0.0), size, least)
        learner = self._descent
        if learner is not None:
            whole = learner.batch_size or int(self.partitions.sizes.max())
            for number in np.flatnonzero(self.partitions.sizes > whole):
                part, off = self.partitions[int(number)], change - expected[number]
                by_residual[number] = self._fit_rows(learner, before, part, off, age)
        return by_residual, by_direction

    def _least(self, params: Params, age: int) -> float:
        """Return the least variance of a number: the noise's, and what rounding leaves in a float32 model."""
        numbers = sum(value.size for value in params.values())
        mean_square = sum(float(np.vdot(value, value)) for value in params.values()) / max(numbers, 1)
        return self._variance(age) + float(np.finfo(np.float32).eps) ** 2 * (mean_square + 1e-6)

    def _fit_rows(self, learner: DescentLearner, before: Params, part: Partition, off: FloatArray, age: int) -> float:
        """Return the log-likelihood of a residual where the batch is a sample of the rows of ``part``."""
        n_rows, batch, steps = len(part), learner.batch_size, learner.local_steps
        pieces = np.split(off, np.cumsum([value.size for value in before.values()])[:-1])
        change = {name: each.reshape(value.shape) for each, (name, value) in zip(pieces, before.items(), strict=True)}
        gram, along = row_products(learner, before, part, change)
        norm = steps * math.sqrt(float(gram.sum()) / n_rows**2 + float(np.trace(gram)) / (n_rows * batch))
        # Of a mean of rows drawn without repetition, once for every local step, as clipped.
        scale = steps * (n_rows - batch) / (n_rows - 1) / (batch * n_rows) * float(self._shrink_factor(norm, age)) ** 2
        centred = gram - gram.mean(axis=0)
        centred = scale * (centred - centred.mean(axis=1, keepdims=True))
        weights, vectors = np.linalg.eigh(centred)
        large = weights > 1e-10 * weights[-1]
        spread = weights[large]
        inside = np.square(vectors[:, large].T @ (along - along.mean())) * scale / spread
        square = float(off @ off)
        outside, size = max(square - float(inside.sum()), 0.0), len(off)
        least = self._least(before, age)
        variance = np.geomspace(least, max(square / size, 2 * least), _DEVIATIONS)[:, np.newaxis]
        explained = (inside / (variance + spread) + np.log(variance + spread)).sum(axis=1)
        rest = outside / variance[:, 0] + (size - len(spread)) * np.log(variance[:, 0])
        return -0.5 * float((explained + rest).min())

    def estimate_participation(
        self, earlier: Params, now: Params, expected: FloatArray, ages: tuple[int, int] = (0, 0)
    ) -> FloatArray:
        """Return the logarithm of how often each candidate took part between two models, as far as that shows.

        The difference is taken to be the sum of the candidates' updates, at the mean of both ends; how often each
        took part is ``expected`` with the variance of a count, and the best linear estimate follows. ``ages`` are the
        updates that both models have had.
        """
        # In place: of large models even one table of all candidates' updates takes gigabytes.
        steps = self.updates(earlier, ages[0])
        steps += self.updates(now, ages[1])
        steps /= 2
        change, root = self._flatten(learning.subtract_params(now, earlier)), np.sqrt(expected)
        scaled = root[:, np.newaxis] * steps
        products = scaled @ scaled.T
        noise = float(expected.sum()) * self._variance(ages[1])
        variance = _UNEXPLAINED * float(np.trace(products)) / len(steps) + noise
        matrix = products + max(variance, 1e-300) * np.eye(len(steps))
        counts = expected + root * np.linalg.solve(matrix, scaled @ (change - expected @ steps))
        return np.asarray(np.log(np.maximum(counts, 0.0) + _NEVER))


def _profile(squares: FloatArray, size: int, least: float) -> FloatArray:
    """Return the Gaussian log-likelihood of residuals at the likeliest variance that is at least ``least``."""
    variance = np.maximum(squares / size, least)
    return np.asarray(-0.5 * (squares / variance + size * np.log(variance)))


def candidate_losses(learner: Learner, params: Params, partitions: Sequence[Partition]) -> FloatArray:
    """Return the mean loss (nats) of ``params`` on the data of each candidate; NaN for one without data.

    A learner with ``example_losses`` scores all rows in one pass; any other is asked candidate by candidate.
    """
    if not callable(ask := getattr(learner, "example_losses", None)):
        return np.array([learner.evaluate(params, part)["loss"] if len(part) else np.nan for part in partitions])
    stacked = partitions if isinstance(partitions, Partitions) else Partitions.of_parts(partitions)
    sums = np.concatenate(([0.0], np.cumsum(ask(params, stacked.rows))))
    totals, sizes = np.diff(sums[stacked.starts]), stacked.sizes
    losses = np.full(len(sizes), np.nan)
    np.divide(totals, sizes, out=losses, where=sizes > 0)
    return losses


def whole_steps(learner: DescentLearner, params: Params, data: Partition, starts: IntArray) -> learning.Array:
    """Return the step that each part of ``data`` would make with all its rows: one line a part, flat."""
    steps = np.zeros((len(starts) - 1, sum(value.size for value in params.values())), dtype=np.float32)
    layers = learner.bounded_layers(params, data.features, data.labels)
    for part, (start, end) in enumerate(itertools.pairwise(starts.tolist())):
        if start == end:
            continue
        # A mean of the part's own rows; what is bounded has its divisor already.
        share = np.float32(-1 if learner.rows else -len(data) / (end - start))
        scaled = [(slope[:, start:end] * share, inputs[start:end]) for _, _, slope, inputs in layers]
        numbers = [step.ravel() for rows, inputs in scaled for step in (rows @ inputs, np.add.reduce(rows, axis=1))]
        steps[part] = np.concatenate(numbers)
    return steps


def _takes_together(learner: DescentLearner, parts: Partitions) -> bool:
    """Return whether :func:`linear_updates` computes the steps of a learner, in a table that is not mostly empty."""
    is_plain = learner.rows is None and not learner.momentum and not hasattr(learner, "hidden")
    return is_plain and int(parts.sizes.max()) * len(parts.sizes) <= _MOST_PADDING * len(parts.rows)


def linear_updates(learner: DescentLearner, params: Params, parts: Partitions) -> FloatArray:
    """Return the change that each part would make with all its rows at every local step: one line a part, flat.

    It is the learner's own update of a linear model, for all parts at once: rows are padded to the largest part.
    """
    sizes, places = parts.sizes, np.arange(int(parts.sizes.max()))
    is_row = places < sizes[:, np.newaxis]
    rows = np.where(is_row, parts.starts[:-1, np.newaxis] + places, 0)
    features, labels = parts.rows.features[rows], parts.rows.labels[rows]
    share = (is_row * (learner.learning_rate / np.maximum(sizes, 1))[:, np.newaxis]).astype(np.float32)[..., np.newaxis]
    targets = labels[..., np.newaxis] == np.arange(learner.n_classes) if learner.n_classes else labels[..., np.newaxis]
    weight = np.repeat(params["weight"][np.newaxis], len(sizes), axis=0)
    bias = np.repeat(params["bias"][np.newaxis], len(sizes), axis=0)
    # A model may have diverged: then nothing fits.
    with np.errstate(all="ignore"):
        for _ in range(learner.local_steps):
            outputs = features @ weight.transpose(0, 2, 1) + bias[:, np.newaxis]
            if learner.n_classes:
                outputs -= outputs.max(axis=2, keepdims=True)
                np.exp(outputs, out=outputs)
                outputs /= outputs.sum(axis=2, keepdims=True)
            slope = (outputs - targets) * (share if learner.n_classes else 2 * share)
            weight -= slope.transpose(0, 2, 1) @ features
            bias -= slope.sum(axis=1)
        change = {"weight": weight - params["weight"], "bias": bias - params["bias"]}
    return np.concatenate([change[name].reshape(len(sizes), -1) for name in params], axis=1).astype(np.float64)


def row_products(
    learner: DescentLearner, params: Params, data: Partition, change: Params
) -> tuple[FloatArray, FloatArray]:
    """Return the products of the steps that single rows would make: each with each, and each with ``change``.

    A row's step at a layer is an outer product: none is ever written out.
    """
    n_rows = len(data)
    # What a row does to the mean of a batch, times the rows that are in it.
    times = np.float64(-learner.batch_size if learner.rows else -n_rows)
    gram, along = np.zeros((n_rows, n_rows)), np.zeros(n_rows)
    for weight, bias, slope, inputs in learner.bounded_layers(params, data.features, data.labels):
        scaled, exact = times * slope, inputs.astype(np.float64)
        gram += (scaled.T @ scaled) * (exact @ exact.T + 1)
        along += ((scaled.T @ change[weight]) * exact).sum(axis=1) + scaled.T @ change[bias]
    return gram, along


def content_attack(scenario: Scenario, evidence: Evidence, route: FloatArray) -> list[dict[str, Any]]:
    """Score every attacker, the strongest first: the route alone, content alone, both together."""
    sources = evidence.sources
    rows = [_score_attacker("route alone", route, sources, scenario) | {"granted": "route"}]
    flat = normalised(np.isfinite(evidence.by_name["loss"]).astype(np.float64))
    for name, (parts, granted) in EVIDENCE.items():
        for label, base in ((f"content alone: {name}", flat), (f"route and content: {name}", route)):
            posterior, temperatures = _join_evidence([evidence.by_name[part] for part in parts], base, sources)
            row = _score_attacker(label, posterior, sources, scenario) | {"granted": granted}
            rows.append(row | {"temperature_nats": temperatures[0], "temperatures_nats": temperatures})
    return sorted(rows, key=lambda row: (-row["hit_ratio"], row["node_entropy_nats"]))


def _join_evidence(parts: Sequence[FloatArray], base: FloatArray, sources: IntArray) -> tuple[FloatArray, list[float]]:
    """Return base times exp(evidence / temperature) for all parts, each half of the rows with the other's fits."""
    half = np.arange(len(base)) % 2 == 0
    posterior, fits = np.empty_like(base), []
    with np.errstate(divide="ignore"):
        start = np.log(base)
    for rows, other in ((half, ~half), (~half, half)):
        log_posterior, rehearsed, temperatures = start[rows], start[other], []
        for part in parts:
            temperature = _fit_temperature(part[other], rehearsed, sources[other])
            log_posterior = _log_posterior(part[rows], log_posterior, temperature)
            rehearsed = _log_posterior(part[other], rehearsed, temperature)
            temperatures.append(temperature)
        posterior[rows] = np.exp(log_posterior)
        fits.append(temperatures)
    return posterior, [float(value) for value in np.mean(fits, axis=0)]


def _log_posterior(evidence: FloatArray, log_base: FloatArray, temperature: float) -> FloatArray:
    total = log_base + evidence / temperature
    return np.asarray(total - special.logsumexp(total, axis=1, keepdims=True))


def _fit_temperature(evidence: FloatArray, log_base: FloatArray, sources: IntArray) -> float:
    """Return the temperature that makes the true sources likeliest."""
    rows = np.arange(len(sources))

    def surprise(log_temperature: float) -> float:
        return -float(_log_posterior(evidence, log_base, float(np.exp(log_temperature)))[rows, sources].mean())

    # From a thousandth to ten thousand nats: at either end content says all, or nothing.
    best = optimize.minimize_scalar(surprise, bounds=(np.log(1e-3), np.log(1e4)), method="bounded")
    return float(np.exp(best.x))


def _score_attacker(label: str, posterior: FloatArray, sources: IntArray, scenario: Scenario) -> dict[str, Any]:
    hops = distances(scenario.graph)[0]
    # Distances play no part in the scores that are shown.
    values = score_posteriors(posterior, sources, hops, scenario.scheme.law.support)
    lanes = np.arange(len(sources)) * min(_BLOCKS, len(sources)) // len(sources)
    hits = values[:, SCORES.index("hit_ratio")]
    # Exact for counts: no hit at all still leaves room for some.
    range_ = stats.binomtest(round(float(hits.sum())), len(hits)).proportion_ci(0.95)
    row: dict[str, Any] = {"attacker": label, "deliveries": len(sources), "hit_ratio": float(hits.mean())}
    row["hit_ratio_interval"] = [float(range_.low), float(range_.high)]
    for name in _MEANS:
        mean = estimate_over_lanes(values[:, SCORES.index(name)], lanes, share=not name.endswith("_nats"))
        row |= {name: mean.mean, f"{name}_interval": [mean.low, mean.high]}
    # What the posteriors themselves promise: beside the hit ratio it shows how well they are calibrated.
    return row | {"mean_top_posterior": float(posterior.max(axis=1).mean())}
