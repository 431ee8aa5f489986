"""Phase two: train along a trace. The walk is fixed by then; nothing here draws but the streams of the updates.

The update that is node i's k-th (k from 0) draws from ``update_generator(seed, i, k)``, and the first model from
``init_generator(seed)``, so that a simulated run and one over real sockets give the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.core.errors import InvalidParameterError, TrainingError
from veilwalk.core.payload import as_received, check_payload
from veilwalk.learning._acceptance import Acceptance, is_finite
from veilwalk.learning._api import (
    Array,
    Learner,
    NormalSource,
    Params,
    Partition,
    StepContext,
    UpdateMod,
    UpdateResult,
)
from veilwalk.learning._checkpoint import Keeper, TrainingState
from veilwalk.learning._guard import guarded
from veilwalk.learning._ledger import CostModel, Ledger, ledger, params_bytes
from veilwalk.learning._models import MEAN, average, candidate_models, least_loss, mixed
from veilwalk.learning._mods import adds_noise
from veilwalk.learning._poison import Poison
from veilwalk.learning._receiving import Receivers
from veilwalk.learning._rows import RowProtection
from veilwalk.learning._stopping import Point, Stopping, evaluation_points
from veilwalk.learning._streams import init_generator, update_generator

if TYPE_CHECKING:
    # Types only: a node, which makes single updates, starts without SciPy and compiled walks.
    from veilwalk.learning._trace import TrainingTrace

#: Metric of an update whose learner failed where noise had to hide it.
LEARNER_FAILED = "learner_failed"
# News no seldomer than this many seconds where updates are slow, and no more often where they are not.
_TELL_S = 0.5


def apply_update(
    learner: Learner,
    params: Params,
    data: Partition,
    *,
    seed: int,
    node: int,
    step: int,
    state: MutableMapping[str, Array],
    age: int = 0,
    mod: UpdateMod | None = None,
    most_updates: int = 0,
    secret: NormalSource | None = None,
) -> UpdateResult:
    """Make one update of one node, and refuse parameters of another shape or type than were given.

    Where noise protects the node, a learner that fails is not refused: its update counts as one without data. Whether
    parameters are finite is left to the caller, who knows what to say of it: NumPy's warnings are off. ``state`` is
    what the node keeps; ``age`` is how many updates the model has had; ``mod`` is middleware, with the same stream as
    the learner; after ``most_updates`` of a node it changes nothing (0: no such limit); ``secret`` is where noise is
    drawn from, unless from that stream.
    """
    if most_updates and step >= most_updates:
        return UpdateResult(params=params, num_examples=0)
    context = StepContext(rng=update_generator(seed, node, step), step=step, age=age, state=state, secret=secret)
    with np.errstate(all="ignore"):
        return _updated(learner, params, data, context, mod)


def _updated(
    learner: Learner, params: Params, data: Partition, context: StepContext, mod: UpdateMod | None
) -> UpdateResult:
    protected = adds_noise(mod) or _protects_rows(learner)
    update = _update_unfailingly if protected else _update_checked
    result = update(learner, params, data, context)
    return result if mod is None else mod(params, result, context)


def _update_checked(learner: Learner, params: Params, data: Partition, context: StepContext) -> UpdateResult:
    """Return the learner's update, or refuse parameters of another shape or type than were given."""
    result = learner.update(params, data, context)
    made = result.params
    if made.keys() != params.keys():
        raise InvalidParameterError("learner", sorted(made), f"one that returns {sorted(params)}")
    for name, after in made.items():
        before = params[name]
        if after.shape != before.shape or after.dtype != before.dtype:
            need = f"one that keeps {name} at shape {before.shape} and type {before.dtype}"
            raise InvalidParameterError("learner", f"{name} of shape {after.shape} and type {after.dtype}", need)
    return result


def _update_unfailingly(learner: Learner, params: Params, data: Partition, context: StepContext) -> UpdateResult:
    """Return the learner's update, or, where it fails, what a node without data returns.

    Noise comes after this, and hides what the data are only if nothing shows before it. A failure that showed would
    tell that there are data which make the learner fail. ``metrics`` say it, and stay at the node.
    """
    if len(data):
        try:
            return _update_checked(learner, params, data, context)
        except (Exception, SystemExit):  # noqa: BLE001  a learner may be anybody's code
            metrics = {LEARNER_FAILED: 1.0}
    else:
        metrics = {}
    if not _protects_rows(learner):
        # Exactly nothing: the noise covers a change of at most the clip norm against none.
        return UpdateResult(params=params, num_examples=0, metrics=metrics)
    empty = Partition(data.features[:0], data.labels[:0])
    return replace(_update_checked(learner, params, empty, context), metrics=metrics)


def _protects_rows(learner: Learner) -> bool:
    """Return whether the learner itself adds noise, to the sums over its rows."""
    rows = getattr(learner, "rows", None)
    return isinstance(rows, RowProtection) and rows.noise > 0


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingTask:
    """What is learnt: the same for every algorithm.

    Attributes:
        learner: The model and how it is updated.
        partitions: The data of each node; one for all of them together when trained in one place.
        held_out: Data that nobody trains on, to evaluate with.
        seed: Seed of first parameters and updates.
        mod: Clipping, noise and the like, between learner and token.
        most_updates: A node that has made so many hands models on as they are; 0: no such limit.
        payload: How the numbers of a model travel (:mod:`veilwalk.core.payload`): every update is rounded so.
        acceptance: What nodes ask of a model that they receive; None: nothing.
        poison: What some nodes do to it.
    """

    learner: Learner
    partitions: Sequence[Partition]
    held_out: Partition
    seed: int
    mod: UpdateMod | None = None
    most_updates: int = 0
    payload: str = "fp32"
    acceptance: Acceptance | None = None
    poison: Poison | None = None

    def __post_init__(self) -> None:
        check_payload(self.payload)
        object.__setattr__(self, "learner", guarded(self.learner))


@dataclass(frozen=True, eq=False, kw_only=True)
class Training:
    """A run that has ended.

    Attributes:
        algorithm: Its name.
        models: Parameters of every model in flight.
        points: Evaluations, the first before any update.
        reason: Why it ended.
        costs: Running costs of the whole trace.
        updates: Updates made.
        planned: Updates that the trace and the budgets allowed, which data have no part in.
        received: Where models are tested or spoilt: what was refused, and the ``age`` that the model has come to.
        learner_failures: Updates at which the learner failed and noise hid it: those nodes added noise alone.
    """

    algorithm: str
    models: list[Params]
    points: list[Point]
    reason: str
    costs: Ledger
    updates: int
    planned: int
    received: Mapping[str, int] = field(default_factory=dict)
    learner_failures: int = 0

    @property
    def params(self) -> Params:
        """The model that the run hands out: the mean of all in flight, or the walk whose loss was less."""
        return candidate_models(self.models)[self.points[-1].chosen]


#: Called with the number of the update (from 0), the model as received and the model as sent on.
Observe = Callable[[int, Params, Params], None]
#: Called with updates made, updates in all, and the last evaluation.
Tell = Callable[[int, int, Point], None]


def train(
    task: TrainingTask,
    trace: TrainingTrace,
    *,
    stopping: Stopping | None = None,
    cost: CostModel | None = None,
    evaluations: int = 40,
    checkpoint: Path | None = None,
    identity: str = "",
    every_s: float = 0.0,
    observe: Observe | None = None,
    tell: Tell | None = None,
) -> Training:
    """Train along ``trace`` and return the run.

    Several models in flight (tokens, or gossip's) train each for itself. What is evaluated of gossip is their mean,
    which nobody holds until they are brought together. Of several walks it is the mean or the best of them, by the
    loss on the held-out rows: the mean of networks may be worse than each.

    Args:
        task: Learner, data and seed.
        trace: Who updates when.
        stopping: Budgets and goals besides the end of the trace.
        cost: How large messages are and how long they take.
        evaluations: About how many, the first model not counted.
        checkpoint: Where to keep the state at evaluations. Where there is one already, the run goes on from it.
        identity: Name of the run; a checkpoint of another is refused.
        every_s: Least time between two checkpoints; the last is always written.
        observe: Shown every update.
        tell: Told how far it is.
    """
    loop = _Loop(task, trace, stopping or Stopping(), cost or CostModel(), evaluations)
    keep = Keeper(checkpoint, f"{trace.digest} {identity}", every_s)
    state = keep.read() or loop.start()
    # Overflow shows in the numbers themselves, which are looked at after every update.
    with np.errstate(all="ignore"):
        loop.run(state, keep, observe, tell)
    return Training(
        algorithm=trace.algorithm,
        models=state.models if loop.doors is None else loop.doors.sound,
        points=state.points,
        reason=state.finished or "",
        costs=loop.costs,
        updates=state.done,
        planned=loop.total,
        received={} if loop.doors is None else {**loop.doors.tallies, "age": loop.doors.age},
        learner_failures=state.learner_failures,
    )


class _Loop:
    """One algorithm's updates, evaluations and rounds."""

    def __init__(
        self, task: TrainingTask, trace: TrainingTrace, stopping: Stopping, cost: CostModel, evaluations: int
    ) -> None:
        if len(task.partitions) != trace.n_nodes:
            raise InvalidParameterError("partitions", len(task.partitions), f"{trace.n_nodes}, one for each node")
        self._task, self._trace, self._stopping = task, trace, stopping
        self._partitions = list(task.partitions)
        self._first = self._received(task.learner.init_params(init_generator(task.seed)), 0)
        self.costs = ledger(trace, cost, params_bytes=params_bytes(self._first, payload=task.payload))
        tested = task.acceptance is not None or task.poison is not None
        if tested and trace.mixing is not None:
            raise InvalidParameterError("trace", trace.algorithm, "a walk: gossip neither tests nor spoils models here")
        self.doors = Receivers(task, self._first, n_nodes=trace.n_nodes, n_models=trace.n_models) if tested else None
        # Gossip is cut between rounds.
        self._round = trace.n_models if trace.mixing is not None else 1
        self.total, self._end = stopping.budget(self.costs, every=self._round)
        # Early evaluations lie close together, and say nothing about whether the loss still falls.
        self._evenly = max(self.total // max(evaluations, 1), 1)
        points = evaluation_points(self.total, evaluations, every=self._round) if self.total else [0]
        self._points = [point for point in points if point <= self.total]

    def _received(self, params: Params, updates: int) -> Params:
        return as_received(self._task.payload, params, seed=self._task.seed, updates=updates)

    def start(self) -> TrainingState:
        return TrainingState(
            models=[self._first] * self._trace.n_models,
            kept=[{} for _ in range(self._trace.n_nodes)],
        )

    def run(self, state: TrainingState, keep: Keeper, observe: Observe | None, tell: Tell | None) -> None:
        if self.doors is not None and state.doors:
            self.doors.restore(state.doors)
        while state.finished is None:
            if not state.points or state.points[-1].update < state.done:
                state.points.append(self._evaluate(state, keep))
                state.finished = self._reason(state)
                keep.write(state, None if self.doors is None else self.doors.to_arrays)
                if tell is not None:
                    tell(state.done, self.total, state.points[-1])
                continue
            until = next(point for point in self._points if point > state.done)
            self._advance(state, until, keep, observe, tell)

    def _reason(self, state: TrainingState) -> str | None:
        reached = self._stopping.reached(state.points, every=self._evenly)
        return reached or (self._end if state.done == self.total else None)

    def _advance(
        self, state: TrainingState, until: int, keep: Keeper, observe: Observe | None, tell: Tell | None
    ) -> None:
        rows = slice(state.done, until)
        nodes, steps = self._trace.node[rows], self._trace.steps[rows]
        columns = nodes.tolist(), steps.tolist(), self._trace.model[rows].tolist(), self._trace.ages[rows].tolist()
        learner, mod, mixing = self._task.learner, self._task.mod, self._trace.mixing
        partitions, kept, models, told = self._partitions, state.kept, state.models, time.monotonic()
        doors, most = self.doors, self._task.most_updates or math.inf
        for node, step, model, age in zip(*columns, strict=True):
            before = models[model]
            if doors is not None:
                before, age = doors.take(node, model, before)  # noqa: PLW2901 - what it goes on with may be older
            after = before
            if step < most:
                rng = update_generator(self._task.seed, node, step)
                context = StepContext(rng=rng, step=step, age=age, state=kept[node])
                result = _updated(learner, before, partitions[node], context, mod)
                state.learner_failures += LEARNER_FAILED in result.metrics
                after = self._received(result.params, age + 1)
            if not is_finite(after):
                raise TrainingError(
                    f"{self._trace.algorithm}: update {state.done + 1}, the {step + 1}. of node {node}, gave "
                    f"parameters that are not finite: {self._remedy}{keep.where()}"
                )
            if doors is not None:
                after = doors.send(node, model, before, after, age=age, step=step)
            models[model] = after
            if observe is not None:
                observe(state.done, before, after)
            state.done += 1
            if tell is not None and time.monotonic() > told + _TELL_S:
                tell(state.done, self.total, state.points[-1])
                told = time.monotonic()
            if mixing is not None and state.done % self._round == 0:
                models[:] = mixed(models, mixing)

    @property
    def _remedy(self) -> str:
        poisoned = self._task.poison is not None and self._task.acceptance is None
        return "some nodes spoil them; accept finite refuses that" if poisoned else "try a smaller step"

    def _evaluate(self, state: TrainingState, keep: Keeper) -> Point:
        models = state.models if self.doors is None else self.doors.sound
        candidates = candidate_models(models) if self._trace.mixing is None else {MEAN: average(models)}
        scores = {name: self._task.learner.evaluate(one, self._task.held_out) for name, one in candidates.items()}
        chosen = least_loss(scores)
        found = scores[chosen]
        if not math.isfinite(found["loss"]):
            last = f", the last one of node {self._trace.node[state.done - 1]}," if state.done else ""
            raise TrainingError(
                f"{self._trace.algorithm}: after update {state.done}{last} the loss on held-out data is "
                f"{found['loss']}: {self._remedy}{keep.where()}"
            )
        accuracy = found.get("accuracy")
        return Point(
            update=state.done,
            clock=int(self._trace.clock[state.done - 1]) if state.done else 0,
            hops=int(self.costs.hops[state.done]),
            sent_bytes=int(self.costs.sent_bytes[state.done]),
            seconds=float(self.costs.seconds[state.done]),
            loss=float(found["loss"]),
            accuracy=None if accuracy is None else float(accuracy),
            scores={name: float(score) for name, score in found.items() if name not in {"loss", "accuracy"}},
            chosen=chosen,
        )
