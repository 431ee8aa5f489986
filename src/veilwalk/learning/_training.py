"""Trains along a trace. The walk is fixed by then; only the streams of the updates draw here.

The update that is node i's k-th (k from 0) draws from ``update_generator(seed, i, k)``, and the first model from
``init_generator(seed)``, so that a simulated run and one over real sockets give the same bits. A checkpoint keeps
everything that a run needs to go on, in one file.
"""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from veilwalk.core import validate
from veilwalk.core.archives import read_archive
from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError, TrainingError
from veilwalk.core.options import Specification, option
from veilwalk.core.payload import as_received, check_payload
from veilwalk.core.records import write_atomically
from veilwalk.learning._acceptance import Acceptance, Poison, Receivers
from veilwalk.learning._contract import (
    MEAN,
    Array,
    DrawNormal,
    Learner,
    Params,
    Partition,
    StepContext,
    UpdateMod,
    UpdateResult,
    average_params,
    candidate_models,
    init_generator,
    is_finite,
    least_loss,
    mix_params,
    split_models,
    stack_models,
    update_generator,
)
from veilwalk.learning._learners import guarded
from veilwalk.learning._mechanism import Protection
from veilwalk.learning._trace import CostModel, Ledger, TrainingTrace, make_ledger, params_bytes

#: Metric of an update whose learner failed where noise had to hide it.
LEARNER_FAILED = "learner_failed"
# News no seldomer than this many seconds where updates are slow, and no more often where they are not.
_TELL_S = 0.5
_FORMAT = "veilwalk-checkpoint-3"
# A loss is better where it is lower than the best by this share of it.
_BETTER = 0.001


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
    secret: DrawNormal | None = None,
) -> UpdateResult:
    """Make one update of one node, and refuse parameters of another shape or type than were given.

    Where noise protects the node, a learner that fails is not refused: its update counts as one without data. The
    caller checks whether parameters are finite. After ``most_updates`` of a node nothing changes (0: no such limit).
    The other arguments are those of :class:`StepContext`; ``mod`` draws from the stream of the learner.
    """
    if most_updates and step >= most_updates:
        return UpdateResult(params=params, num_examples=0)
    context = StepContext(rng=update_generator(seed, node, step), step=step, age=age, state=state, secret=secret)
    rows, result, metrics = getattr(learner, "rows", None), None, {}
    # The learner itself adds noise to the sums over its rows, or the middleware adds it to the update.
    is_row_noise = isinstance(rows, Protection) and rows.noise > 0
    is_hidden = is_row_noise or (isinstance(mod, Protection) and mod.noise > 0 and not mod.rows)
    with np.errstate(all="ignore"):
        try:
            if len(data) or not is_hidden:
                result = _update_checked(learner, params, data, context)
        except (Exception, SystemExit):
            # Noise hides what the data are only if nothing shows before it: not that the learner fails with them.
            if not is_hidden:
                raise
            metrics = {LEARNER_FAILED: 1.0}
        if result is None and is_row_noise:
            result = replace(_update_checked(learner, params, data.take(slice(0)), context), metrics=metrics)
        elif result is None:
            # Exactly nothing: the noise covers a change of at most the clip norm against none.
            result = UpdateResult(params=params, num_examples=0, metrics=metrics)
        return result if mod is None else mod(params, result, context)


def _update_checked(learner: Learner, params: Params, data: Partition, context: StepContext) -> UpdateResult:
    """Return the learner's update, or refuse parameters of another shape or type than were given."""
    result = learner.update(params, data, context)
    if result.params.keys() != params.keys():
        raise InvalidParameterError("learner", sorted(result.params), f"one that returns {sorted(params)}")
    for name, after in result.params.items():
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One evaluation on held-out data, and what had been spent by then.

    Accuracy is None where there is none; ``scores`` are all others that the learner gives. ``chosen`` is the model that
    was evaluated and would be handed out: the mean of all in flight, or the one walk that is better than it.
    """

    update: int
    clock: int
    hops: int
    sent_bytes: int
    seconds: float
    loss: float
    accuracy: float | None
    scores: Mapping[str, float] = field(default_factory=dict)
    chosen: str = MEAN


@dataclass(frozen=True, kw_only=True)
class Stopping(Specification):
    """Budgets and goals; whatever comes first ends the run.

    Of evaluations that lie closer together than evenly spread ones, as the first do, only some count for ``patience``.
    """

    target_accuracy: float | None = option(None, "Stop once it is reached.", "SHARE", usual="never")
    patience: int = option(
        0, "Stop after so many evaluations, evenly apart, without a better loss; 0: never.", "COUNT", rare=True, least=0
    )
    max_hops: int | None = option(None, "Stop before more hops; 0: never.", "HOPS", usual="never", rare=True)
    max_bytes: int | None = option(None, "Stop before more bytes; 0: never.", "BYTES", usual="never", rare=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.at_least(0, max_hops=self.max_hops or 0, max_bytes=self.max_bytes or 0)
        if self.target_accuracy is not None and not 0.0 < self.target_accuracy <= 1.0:
            raise InvalidParameterError("target_accuracy", self.target_accuracy, "above 0 and at most 1")

    def budget(self, ledger: Ledger, *, every: int = 1) -> tuple[int, str]:
        """Return how many updates of the trace may be made, in whole multiples of ``every``, and what ends it there."""
        hops, sent_bytes = self.max_hops or math.inf, self.max_bytes or math.inf
        allowed = int(((ledger.hops <= hops) & (ledger.sent_bytes <= sent_bytes)).sum()) - 1
        whole = len(ledger.hops) - 1
        if allowed >= whole:
            return whole, "all updates made"
        # The next update is the one that would not fit.
        out_of = "hops" if ledger.hops[allowed + 1] > hops else "bytes"
        return allowed - allowed % every, f"budget of {out_of} spent"

    def find_reason(self, points: Sequence[Point], *, every: int = 1) -> str | None:
        """Return why to stop after these evaluations, or None; they count where they are ``every`` updates apart.

        The first model is no best one: a loss that rises at first, as with few classes at a node, ends nothing.
        """
        last, best, stale, counted = points[-1], points[0], 0, 0
        if self.target_accuracy is not None and last.accuracy is not None and last.accuracy >= self.target_accuracy:
            return f"accuracy {self.target_accuracy:g} reached"
        for point in points[1:]:
            if best.update == 0 or point.loss < best.loss - _BETTER * abs(best.loss):
                best, stale, counted = point, 0, point.update
            elif point.update - counted >= every:
                stale, counted = stale + 1, point.update
        if not self.patience or stale < self.patience:
            return None
        what = f"no better loss in {self.patience} evaluations"
        return f"{what}, the best was {best.loss:.4g} after update {best.update}"


def evaluation_points(updates: int, count: int, *, every: int = 1) -> list[int]:
    """Return the updates after which to evaluate: the start, about ``count`` more, early ones closely, and the end.

    They are whole multiples of ``every``; the last is rounded up.
    """
    validate.integer(1, updates=updates, count=count, every=every)
    # Half of them on a logarithmic scale, where curves against hops are read; half on an even one.
    early = np.geomspace(1, updates, max(count // 2, 2))
    even = np.linspace(0, updates, max(count - count // 2, 1) + 1)
    rounded = np.ceil(np.concatenate((early, even)) / every - 1e-9).astype(np.int64) * every
    return [int(point) for point in np.unique(rounded)]


@dataclass(eq=False, kw_only=True)
class TrainingState:
    """Where a run stands. Random streams are named by node and step, which the trace says, so none needs to be kept.

    Attributes:
        done: Updates made.
        points: Evaluations so far.
        finished: Why the run ended, once it has.
        models: Parameters of every model in flight.
        node_states: What each node keeps for itself.
        acceptance_state: What nodes keep that test what they receive (:class:`.Receivers`), flat; empty where none do.
        learner_failures: Updates so far at which the learner failed and noise hid it.
    """

    models: list[Params]
    node_states: list[dict[str, Array]]
    done: int = 0
    points: list[Point] = field(default_factory=list)
    finished: str | None = None
    acceptance_state: dict[str, Array] = field(default_factory=dict)
    learner_failures: int = 0

    @property
    def honest_models(self) -> list[Params]:
        """What honest nodes made last of each model; all models in flight where nobody spoils any."""
        return split_models(self.acceptance_state, "honest/") or self.models


def save_checkpoint(path: Path, state: TrainingState, *, identity: str) -> None:
    """Write ``state`` to ``path``; a reader finds the old file or the new one, never half of it.

    ``identity`` names the run; a checkpoint of another run is refused when read. The file is an ``.npz`` archive of
    plain arrays and a JSON header. The name of an array is a path: ``model/NAME`` holds all models in flight,
    ``node/NUMBER/KEY`` what a node keeps for itself, ``acceptance/NAME`` what nodes keep that test what they receive.
    """
    header = {
        "format": _FORMAT,
        "identity": identity,
        "nodes": len(state.node_states),
        "done": state.done,
        "points": [asdict(point) for point in state.points],
        "finished": state.finished,
        "learner_failures": state.learner_failures,
    }
    arrays: dict[str, Any] = {"header": np.array(json.dumps(header)), **stack_models(state.models, "model/")}
    for node, own in enumerate(state.node_states):
        arrays |= {f"node/{node}/{key}": array for key, array in own.items()}
    arrays |= {f"acceptance/{name}": array for name, array in state.acceptance_state.items()}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    # A model may hold training rows.
    write_atomically(path, buffer.getbuffer(), mode=0o600)


def load_checkpoint(path: Path, *, identity: str | None) -> TrainingState:
    """Read a checkpoint of the run called ``identity``; of any run where that is None, to look at and not to go on."""
    owner, state = _read_checkpoint(path)
    if identity is not None and owner != identity:
        raise ConfigError(f"checkpoint {path} is of another run: choose another folder, or the same settings")
    return state


def read_progress(path: Path) -> TrainingState | None:
    """Return how far the run with this checkpoint is, without its models; None where there is none yet."""
    return _read_checkpoint(path, only="header")[1] if path.exists() else None


def _read_checkpoint(path: Path, *, only: str = "") -> tuple[str, TrainingState]:
    """Return the name of a run and where it stands, or what ``only`` one array says of it."""
    try:
        return _parse_checkpoint(read_archive(path, only=only), is_whole=not only)
    except (InputFileError, ValueError, KeyError, TypeError, IndexError) as error:
        need = "remove it to train from the start"
        raise InputFileError(f"checkpoint {path} cannot be read ({error}): {need}") from error


def _parse_checkpoint(arrays: dict[str, Array], *, is_whole: bool) -> tuple[str, TrainingState]:
    header = json.loads(str(arrays.pop("header")))
    if header["format"] != _FORMAT:
        raise InputFileError(f"format {header['format']} is not {_FORMAT}")
    node_states: list[dict[str, Array]] = [{} for _ in range(int(header["nodes"]))]
    for place, array in arrays.items():
        if place.startswith("node/"):
            _, node, key = place.split("/", 2)
            node_states[int(node)][key] = array
    start = "acceptance/"
    state = TrainingState(
        models=split_models(arrays, "model/"),
        node_states=node_states,
        done=int(header["done"]),
        points=[Point(**point) for point in header["points"]],
        finished=header["finished"],
        acceptance_state={
            place.removeprefix(start): array for place, array in arrays.items() if place.startswith(start)
        },
        learner_failures=int(header["learner_failures"]),
    )
    if is_whole and not state.models:
        raise InputFileError("has no model")
    return header["identity"], state


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
    # Overflow shows in the numbers themselves, which are checked after every update.
    with np.errstate(all="ignore"):
        return loop.run(checkpoint, f"{trace.digest} {identity}", every_s, observe, tell)


class _Loop:
    """One algorithm's updates, evaluations and rounds."""

    def __init__(
        self, task: TrainingTask, trace: TrainingTrace, stopping: Stopping, cost: CostModel, evaluations: int
    ) -> None:
        if len(task.partitions) != trace.n_nodes:
            raise InvalidParameterError("partitions", len(task.partitions), f"{trace.n_nodes}, one for each node")
        self._task, self._trace, self._stopping = task, trace, stopping
        self._first = self._encode(task.learner.init_params(init_generator(task.seed)), 0)
        self._costs = make_ledger(trace, cost, params_bytes=params_bytes(self._first, payload=task.payload))
        self._receivers: Receivers | None = None
        if task.acceptance is not None or task.poison is not None:
            if trace.mixing is not None:
                need = "a walk: gossip neither tests nor spoils models here"
                raise InvalidParameterError("trace", trace.algorithm, need)
            self._receivers = Receivers(task, self._first, n_nodes=trace.n_nodes, n_models=trace.n_models)
        # Gossip and FedAvg are cut between rounds.
        self._round = trace.n_models if trace.mixing is not None else 1
        self._meetings = {rows.stop for rows in trace.rounds()} - {len(trace)}
        self._total, self._end = stopping.budget(self._costs, every=self._round)
        # Early evaluations lie close together, and say nothing about whether the loss still falls.
        self._evenly = max(self._total // max(evaluations, 1), 1)
        points = evaluation_points(self._total, evaluations, every=self._round) if self._total else [0]
        self._points = [point for point in points if point <= self._total]
        # Updates in the checkpoint, if there is one, and when it may be written again.
        self._saved, self._next_save = -1, -math.inf

    def _encode(self, params: Params, updates: int | None) -> Params:
        """Return a model of that many updates as a receiver decodes it; None is of a mean."""
        return as_received(self._task.payload, params, seed=self._task.seed, updates=updates)

    def run(
        self, path: Path | None, identity: str, every_s: float, observe: Observe | None, tell: Tell | None
    ) -> Training:
        """Train to the end, from where the checkpoint stands."""
        self._path, self._identity, self._every_s = path, identity, every_s
        receivers, trace = self._receivers, self._trace
        if path is not None and path.exists():
            state = load_checkpoint(path, identity=identity)
            self._saved = state.done
        else:
            state = TrainingState(models=[self._first] * trace.n_models, node_states=[{} for _ in range(trace.n_nodes)])
        if receivers is not None and state.acceptance_state:
            receivers.restore(state.acceptance_state)
        while state.finished is None:
            if not state.points or state.points[-1].update < state.done:
                state.points.append(self._evaluate(state))
                reached = self._stopping.find_reason(state.points, every=self._evenly)
                state.finished = reached or (self._end if state.done == self._total else None)
                self._save(state)
                if tell is not None:
                    tell(state.done, self._total, state.points[-1])
                continue
            self._advance(state, next(point for point in self._points if point > state.done), observe, tell)
        return Training(
            algorithm=trace.algorithm,
            models=state.models if receivers is None else receivers.honest_models,
            points=state.points,
            reason=state.finished,
            costs=self._costs,
            updates=state.done,
            planned=self._total,
            received={} if receivers is None else {**receivers.tallies, "age": receivers.age},
            learner_failures=state.learner_failures,
        )

    def _advance(self, state: TrainingState, until: int, observe: Observe | None, tell: Tell | None) -> None:
        """Make the updates up to ``until``."""
        rows, trace, task, receivers = slice(state.done, until), self._trace, self._task, self._receivers
        columns = (column[rows].tolist() for column in (trace.node, trace.steps, trace.model, trace.ages))
        models, last_news = state.models, time.monotonic()
        for node, step, model, age in zip(*columns, strict=True):
            before = models[model]
            if receivers is not None:
                before, age = receivers.take(node, model, before)  # noqa: PLW2901 - what it goes on with may be older
            result = apply_update(
                task.learner,
                before,
                task.partitions[node],
                seed=task.seed,
                node=node,
                step=step,
                state=state.node_states[node],
                age=age,
                mod=task.mod,
                most_updates=task.most_updates,
            )
            state.learner_failures += LEARNER_FAILED in result.metrics
            # To encode what was decoded loses nothing more.
            after = self._encode(result.params, age + 1)
            if not is_finite(after):
                what = f"update {state.done + 1}, the {step + 1}. of node {node}, gave parameters that are not finite"
                raise self._failure(what)
            if receivers is not None:
                after = receivers.send(node, model, before, after, age=age, step=step)
            models[model] = after
            if observe is not None:
                observe(state.done, before, after)
            state.done += 1
            if tell is not None and time.monotonic() > last_news + _TELL_S:
                tell(state.done, self._total, state.points[-1])
                last_news = time.monotonic()
            if trace.mixing is not None and state.done % self._round == 0:
                models[:] = mix_params(models, trace.mixing(state.done // self._round - 1))
            elif state.done in self._meetings:
                models[:] = [self._encode(average_params(models), None)] * len(models)

    def _failure(self, what: str) -> TrainingError:
        poisoned = self._task.poison is not None and self._task.acceptance is None
        remedy = "some nodes spoil them; accept finite refuses that" if poisoned else "try a smaller step"
        hint = f"; {self._path} keeps the model after update {self._saved}" if self._saved >= 0 else ""
        return TrainingError(f"{self._trace.algorithm}: {what}: {remedy}{hint}")

    def _save(self, state: TrainingState) -> None:
        """Write a checkpoint, unless one was written a moment ago."""
        began = time.monotonic()
        if self._path is None or (state.finished is None and began < self._next_save):
            return
        if self._receivers is not None:
            state.acceptance_state = self._receivers.to_arrays()
        save_checkpoint(self._path, state, identity=self._identity)
        ended = time.monotonic()
        # Large states take long to write: at most a tenth of the time goes into it.
        self._next_save = ended + max(self._every_s, 9 * (ended - began) if self._every_s else 0.0)
        self._saved = state.done

    def _evaluate(self, state: TrainingState) -> Point:
        done, trace, costs = state.done, self._trace, self._costs
        models = state.models if self._receivers is None else self._receivers.honest_models
        candidates = candidate_models(models) if trace.mixing is None else {MEAN: average_params(models)}
        by_name = {
            name: self._task.learner.evaluate(params, self._task.held_out) for name, params in candidates.items()
        }
        chosen = least_loss(by_name)
        scores = dict(by_name[chosen])
        loss, accuracy = float(scores.pop("loss")), scores.pop("accuracy", None)
        if not math.isfinite(loss):
            last = f", the last one of node {trace.node[done - 1]}," if done else ""
            raise self._failure(f"after update {done}{last} the loss on held-out data is {loss}")
        return Point(
            update=done,
            clock=int(trace.clock[done - 1]) if done else 0,
            hops=int(costs.hops[done]),
            sent_bytes=int(costs.sent_bytes[done]),
            seconds=float(costs.seconds[done]),
            loss=loss,
            accuracy=None if accuracy is None else float(accuracy),
            scores={name: float(score) for name, score in scores.items()},
            chosen=chosen,
        )
