"""Phase two: train along a trace. The walk is fixed by then; nothing here draws but the streams of the updates.

The update that is node i's k-th (k from 0) draws from ``update_generator(seed, i, k)``, and the first model from
``init_generator(seed)``, so that a simulated run and one over real sockets give the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.core.errors import InvalidParameterError, TrainingError
from veilwalk.core.payload import as_received, check_payload
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
from veilwalk.learning._checkpoint import TrainingState, load_checkpoint, save_checkpoint
from veilwalk.learning._guard import guarded
from veilwalk.learning._ledger import CostModel, Ledger, ledger, params_bytes
from veilwalk.learning._models import average, mixed
from veilwalk.learning._stopping import Point, Stopping, evaluation_points
from veilwalk.learning._streams import init_generator, update_generator, update_generators

if TYPE_CHECKING:
    # Types only: a node, which makes single updates, starts without SciPy and compiled walks.
    from veilwalk.learning._trace import TrainingTrace

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

    Whether they are finite is left to the caller, who knows what to say of it: NumPy's warnings are off. ``state`` is
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
    result = learner.update(params, data, context)
    if mod is not None:
        result = mod(params, result, context)
    made = result.params
    if made.keys() != params.keys():
        raise InvalidParameterError("learner", sorted(made), f"one that returns {sorted(params)}")
    for name, after in made.items():
        before = params[name]
        if after.shape != before.shape or after.dtype != before.dtype:
            need = f"one that keeps {name} at shape {before.shape} and type {before.dtype}"
            raise InvalidParameterError("learner", f"{name} of shape {after.shape} and type {after.dtype}", need)
    return result


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
        secret: Where the noise of an update of that age is drawn from; None: from its own stream.
        payload: How the numbers of a model travel (:mod:`veilwalk.core.payload`): every update is rounded so.
    """

    learner: Learner
    partitions: Sequence[Partition]
    held_out: Partition
    seed: int
    mod: UpdateMod | None = None
    most_updates: int = 0
    secret: Callable[[int], NormalSource] | None = None
    payload: str = "fp32"

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
    """

    algorithm: str
    models: list[Params]
    points: list[Point]
    reason: str
    costs: Ledger
    updates: int
    planned: int

    @property
    def params(self) -> Params:
        """The model: the average of all in flight."""
        return average(self.models)


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

    Several models in flight (tokens, or gossip's) train each for itself; what is evaluated is their average, which
    nobody holds until they are brought together.

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
    keep = _Keeper(checkpoint, f"{trace.digest} {identity}", every_s)
    state = keep.read() or loop.start()
    # Overflow shows in the numbers themselves, which are looked at after every update.
    with np.errstate(all="ignore"):
        loop.run(state, keep, observe, tell)
    return Training(
        algorithm=trace.algorithm,
        models=state.models,
        points=state.points,
        reason=state.finished or "",
        costs=loop.costs,
        updates=state.done,
        planned=loop.total,
    )


class _Keeper:
    """Writes checkpoints, not too often."""

    def __init__(self, path: Path | None, identity: str, every_s: float) -> None:
        self._path, self._identity, self._every_s = path, identity, every_s
        self._next = -math.inf
        self.saved: int | None = None

    def read(self) -> TrainingState | None:
        if self._path is None or not self._path.exists():
            return None
        state = load_checkpoint(self._path, identity=self._identity)
        self.saved = state.done
        return state

    def write(self, state: TrainingState) -> None:
        began = time.monotonic()
        if self._path is None or (state.finished is None and began < self._next):
            return
        save_checkpoint(self._path, state, identity=self._identity)
        ended = time.monotonic()
        # Large states take long to write: at most a tenth of the time goes into it.
        self._next = ended + max(self._every_s, 9 * (ended - began) if self._every_s else 0.0)
        self.saved = state.done

    def where(self) -> str:
        """Say what is left when training cannot go on."""
        return "" if self.saved is None else f"; {self._path} keeps the model after update {self.saved}"


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
        # Gossip is cut between rounds.
        self._round = trace.n_models if trace.mixing is not None else 1
        self.total, self._end = stopping.budget(self.costs, every=self._round)
        points = evaluation_points(self.total, evaluations, every=self._round) if self.total else [0]
        self._points = [point for point in points if point <= self.total]

    def _received(self, params: Params, updates: int) -> Params:
        return as_received(self._task.payload, params, seed=self._task.seed, updates=updates)

    def start(self) -> TrainingState:
        return TrainingState(
            models=[self._first] * self._trace.n_models,
            kept=[{} for _ in range(self._trace.n_nodes)],
        )

    def run(self, state: TrainingState, keep: _Keeper, observe: Observe | None, tell: Tell | None) -> None:
        while state.finished is None:
            if not state.points or state.points[-1].update < state.done:
                state.points.append(self._evaluate(state, keep))
                state.finished = self._reason(state)
                keep.write(state)
                if tell is not None:
                    tell(state.done, self.total, state.points[-1])
                continue
            until = next(point for point in self._points if point > state.done)
            self._advance(state, until, keep, observe, tell)

    def _reason(self, state: TrainingState) -> str | None:
        reached = self._stopping.reached(state.points)
        return reached or (self._end if state.done == self.total else None)

    def _advance(
        self, state: TrainingState, until: int, keep: _Keeper, observe: Observe | None, tell: Tell | None
    ) -> None:
        rows = slice(state.done, until)
        nodes, steps = self._trace.node[rows], self._trace.steps[rows]
        columns = nodes.tolist(), steps.tolist(), self._trace.model[rows].tolist(), self._trace.ages[rows].tolist()
        streams = update_generators(self._task.seed, nodes, steps)
        learner, mod, mixing = self._task.learner, self._task.mod, self._trace.mixing
        partitions, kept, models, told = self._partitions, state.kept, state.models, time.monotonic()
        most = self._task.most_updates or math.inf
        for node, step, model, age, rng in zip(*columns, streams, strict=True):
            before = after = models[model]
            if step < most:
                shared = self._task.secret and self._task.secret(age)
                context = StepContext(rng=rng, step=step, age=age, state=kept[node], secret=shared)
                after = self._received(_updated(learner, before, partitions[node], context, mod).params, age + 1)
            if not _finite(after):
                raise TrainingError(
                    f"{self._trace.algorithm}: update {state.done + 1}, the {step + 1}. of node {node}, gave "
                    f"parameters that are not finite: try a smaller step{keep.where()}"
                )
            models[model] = after
            if observe is not None:
                observe(state.done, before, after)
            state.done += 1
            if tell is not None and time.monotonic() > told + _TELL_S:
                tell(state.done, self.total, state.points[-1])
                told = time.monotonic()
            if mixing is not None and state.done % self._round == 0:
                models[:] = mixed(models, mixing)

    def _evaluate(self, state: TrainingState, keep: _Keeper) -> Point:
        found = self._task.learner.evaluate(average(state.models), self._task.held_out)
        if not math.isfinite(found["loss"]):
            last = f", the last one of node {self._trace.node[state.done - 1]}," if state.done else ""
            raise TrainingError(
                f"{self._trace.algorithm}: after update {state.done}{last} the loss on held-out data is "
                f"{found['loss']}: try a smaller step{keep.where()}"
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
        )


def _finite(params: Params) -> bool:
    for array in params.values():
        # A finite sum of squares is quick proof; one that overflowed is none.
        if array.dtype.kind == "f" and not math.isfinite(np.vdot(array, array)) and not np.isfinite(array).all():
            return False
    return True
