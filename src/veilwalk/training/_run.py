"""Private learning, end to end: walk, train, compare, attribute."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES
from veilwalk.core.progress import Progress, show_progress, silent
from veilwalk.core.rooms import show_options
from veilwalk.core.units import readable_bytes
from veilwalk.design import Scheme
from veilwalk.engine import one_blas_thread
from veilwalk.graphs import distances
from veilwalk.learning import Array, Data, Learner, Params, Point, Tell, Training, TrainingTrace
from veilwalk.training._algorithms import task_of, train_by
from veilwalk.training._content import attack_bytes, attacked_rows, content_attack, gather_evidence
from veilwalk.training._folder import RunFolder
from veilwalk.training._membership import membership
from veilwalk.training._metrics import LiveMetrics
from veilwalk.training._privacy import privacy, require_accountant
from veilwalk.training._result import TrainingRun
from veilwalk.training._route import route_anonymity
from veilwalk.training._scenario import Scenario
from veilwalk.training._settings import PAPER, PRIVATE, TrainSettings
from veilwalk.training._tracking import Track

# Fewer deliveries than this say nothing about an attack.
_FEWEST_ATTACKED = 20
_OF_THE_SCHEME = ("graph", "scheme", "law", "support", "walk", "recipients")


@show_options(TrainSettings, but=_OF_THE_SCHEME)
def train(
    scheme: Scheme,
    *,
    data: str | Data | tuple[Array, Array],
    learner: str | Learner | None = None,
    partition: Any = "iid",
    scale: str | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    progress: Progress | bool = False,
    track: Track | None = None,
    **options: Any,
) -> TrainingRun:
    """Train ``learner`` on ``data`` as ``scheme`` says; and by the comparisons asked for.

    Args:
        scheme: How a model gets from one update to the next.
        data: A spec, data, or features and labels, of which a fifth is held out.
        learner: A spec, or any object with ``init_params``, ``update`` and ``evaluate``; without it the usual one.
        partition: How the rows are dealt out: a spec, or partitions.
        scale: How features and real labels are scaled, ``none``, ``range`` or ``rows``. None: as the data say, or else
            by their range for the package's own learners, and not for others.
        out: Folder to keep the run in, so that it can be resumed.
        resume: Go on with the run in ``out``, if its data and learner are the same.
        progress: True for a bar on standard error, or a function that is told how far it is.
        track: Called with the algorithm and the :class:`~veilwalk.learning.Point` of every evaluation, as it is made.
        options: Of :class:`TrainSettings`: updates, tokens, compare, protect, epsilon, clip, attack, seed and so on.

    Example:
        >>> from veilwalk.design import design
        >>> from veilwalk.graphs import random_regular
        >>> scheme = design(random_regular(20, 3, seed=1), "uniform-node", support=(2, 3)).scheme
        >>> run = train(scheme, data="digits", learner="softmax", updates=40, compare="none", attack=0)
        >>> sorted(run.model), run.record().result["algorithms"]["private-walk"]["updates"]
        (['bias', 'weight'], 40)
    """
    need = "a Scheme: of recommended_scheme(graph), choose_scheme(graph) or design(graph).scheme"
    validate.instance(Scheme, need, scheme=scheme)
    validate.instance((str, Path, type(None)), "a folder", out=out)
    for name in _OF_THE_SCHEME:
        if name in options:
            raise InvalidParameterError(name, options[name], "left out: the scheme says it")
    validate.options(TrainSettings, options)
    if isinstance(options.get("compare"), list | tuple):
        options["compare"] = ",".join(map(str, options["compare"]))
    settings = TrainSettings(**options)
    scenario = Scenario.make(
        scheme,
        data=data,
        partition=partition,
        learner=settings.chosen_learner if learner is None else learner,
        seed=settings.seed,
        protection=settings.protection,
        updates=settings.updates,
        tokens=settings.tokens,
        payload=settings.payload,
        scale=scale,
    )
    folder = None if out is None else Path(out)
    with show_progress(progress=progress) as listener:
        return run_training(scenario, settings, out=folder, resume=resume, progress=listener, track=track)


def run_training(
    scenario: Scenario,
    settings: TrainSettings,
    *,
    out: Path | None = None,
    resume: bool = False,
    progress: Progress = silent,
    track: Track | None = None,
) -> TrainingRun:
    """Train privately, and by every comparison asked for; say what was gained, what it cost and what leaks.

    Args:
        scenario: What to train, by whom, over what.
        settings: How long, beside what, from which seed; what they say of the scenario's parts gives way to these.
        out: Folder to keep the run in, so that it can be resumed and its report drawn.
        resume: Go on with the run that is in ``out``.
        progress: Told how far it is.
        track: Called with the algorithm and the :class:`~veilwalk.learning.Point` of every evaluation, as it is made.
    """
    settings = replace(settings, **scenario.words())
    # The same bits on any number of cores; and what a peer multiplies is too small for more than one thread.
    with one_blas_thread():
        return _kept(scenario, settings, out, progress, track, resume=resume)


def _kept(
    scenario: Scenario,
    settings: TrainSettings,
    out: Path | None,
    progress: Progress,
    track: Track | None,
    *,
    resume: bool,
) -> TrainingRun:
    if out is None:
        return _trained(scenario, settings, None, [], _Watch(progress, track, None))
    with RunFolder(out) as folder:
        warnings = folder.open(settings, resume=resume)
        watch = _Watch(progress, track, LiveMetrics(out, settings))
        run = _trained(scenario, settings, folder, warnings, watch)
        folder.finish(run.record(), run.rows(), run.model)
        return run


def _trained(
    scenario: Scenario, settings: TrainSettings, folder: RunFolder | None, warnings: list[str], watch: _Watch
) -> TrainingRun:
    require_accountant(scenario, settings.delta)
    identity = _identity(scenario, settings)
    made = {
        name: train_by(scenario, settings, name, folder=folder, identity=identity, tell=watch.teller(name))
        for name in (PRIVATE, *settings.comparisons)
    }
    leaks = folder.kept("attribution") if folder is not None else None
    if leaks is None:
        traces = {name: one.trace for name, one in made.items()}
        leaks = _attribution(scenario, settings, traces, made[PRIVATE].training.params, watch.progress)
        if folder is not None:
            folder.keep("attribution", leaks)
    # Never from a file: what an older version kept there may promise more than holds.
    planned = {name: one.planned for name, one in made.items()}
    leaks = leaks | {"privacy": privacy(scenario, planned, delta=settings.delta)}
    alarm = scenario.scheme.relay_warning()
    trainings = {name: one.training for name, one in made.items()}
    failed = [_failures(name, one) for name, one in trainings.items() if one.learner_failures]
    told = tuple(note for note in (*warnings, *failed, alarm, leaks.get("left_out")) if note is not None)
    return TrainingRun(scenario=scenario, settings=settings, trainings=trainings, leaks=leaks, warnings=told)


def _failures(name: str, training: Training) -> str:
    return (
        f"{name}: the learner failed at {training.learner_failures} of {training.updates} updates. Noise hides that, "
        "so those nodes added noise alone; check_learner shows why."
    )


def _identity(scenario: Scenario, settings: TrainSettings) -> str:
    """Name of the run: its settings, and what their names stood for when it began."""
    found = hashlib.sha256(settings.digest.encode())
    for array in scenario.arrays():
        found.update(np.ascontiguousarray(array).view(np.uint8).data)
    return found.hexdigest()


class _Watch:
    """Whoever wants to know how a run goes: a display, the folder's tables, a tracker. Each evaluation is told once."""

    def __init__(self, progress: Progress, track: Track | None, metrics: LiveMetrics | None) -> None:
        self.progress, self._track, self._metrics = progress, track, metrics
        self._told: set[tuple[str, int]] = set()

    def teller(self, name: str) -> Tell:
        """Return what one algorithm tells."""

        def tell(done: int, total: int, point: Point) -> None:
            accuracy = f", loss {point.loss:.4g}" if point.accuracy is None else f", accuracy {point.accuracy:.1%}"
            self.progress(name, done, total, f"{point.hops} hops{accuracy}")
            if (name, point.update) not in self._told:
                self._told.add((name, point.update))
                self._evaluated(name, point)

        return tell

    def _evaluated(self, name: str, point: Point) -> None:
        if self._metrics is not None:
            # One that is there was told before the run was stopped.
            if not self._metrics.is_new(name, point):
                return
            self._metrics(name, point)
        if self._track is not None:
            self._track(name, point)


def _attribution(
    scenario: Scenario,
    settings: TrainSettings,
    traces: Mapping[str, TrainingTrace],
    model: Params,
    progress: Progress,
) -> dict[str, Any]:
    """What route and content give away of the private run."""
    trace = traces[PRIVATE]
    attacked, left_out = _attacked(scenario, settings, trace, model)
    rows = np.append(attacked, _typical(trace)).astype(np.int64)
    route = route_anonymity(
        scenario.scheme, trace, rows, seed=settings.seed, exact_nodes=settings.exact_nodes, progress=progress
    )
    found: dict[str, Any] = {"route": route.summary, "content": None, "left_out": left_out, "sample": None}
    if PAPER in traces:
        paper = route_anonymity(
            scenario.paper_scheme,
            traces[PAPER],
            rows[:0],
            seed=settings.seed,
            exact_nodes=settings.exact_nodes,
            progress=progress,
        )
        found["paper_route"] = paper.summary
    if len(rows):
        found["sample"] = _sample(scenario, trace, int(rows[-1]), route.posteriors[-1])
    if settings.membership:
        found["membership"] = {
            name: membership(
                scenario, one, settings.membership, task=task_of(scenario, settings, name), progress=progress
            )
            for name, one in traces.items()
        }
    if len(attacked):
        task = task_of(scenario, settings, PRIVATE)
        evidence = gather_evidence(scenario, trace, attacked, seed=settings.seed, progress=progress, task=task)
        found["content"] = content_attack(scenario, evidence, route.posteriors[:-1])
    return found


def _attacked(
    scenario: Scenario, settings: TrainSettings, trace: TrainingTrace, model: Params
) -> tuple[IntArray, str | None]:
    """The deliveries on which to try the content attack, and why there are none where that is worth a word."""
    rows = attacked_rows(trace, settings.attack)
    none = rows[:0]
    if settings.attack and settings.poisoning is not None:
        return none, "the content attack is left out: it is of honest runs, and some nodes spoil models here"
    if len(rows) < _FEWEST_ATTACKED:
        return none, None
    needed = attack_bytes(scenario, trace, rows, model)
    if needed > DEFAULT_MEMORY_BYTES:
        return none, (
            f"the content attack is left out: with this model it takes about {readable_bytes(needed)} of memory, "
            f"and {readable_bytes(DEFAULT_MEMORY_BYTES)} is the most a computation takes on this machine"
        )
    return rows, None


def _typical(trace: TrainingTrace) -> IntArray:
    """The delivery of median return time, to be shown; none of an empty trace."""
    order = np.argsort(trace.return_time, kind="stable")
    return order[len(order) // 2 : len(order) // 2 + 1]


def _sample(scenario: Scenario, trace: TrainingTrace, row: int, posterior: Any) -> dict[str, Any]:
    """One delivery with the posterior of its receiver and the network around it."""
    graph, node = scenario.graph, int(trace.node[row])
    starts = np.repeat(np.arange(graph.n_nodes), graph.degrees)
    once = starts < graph.indices
    return {
        "update": row + 1,
        "destination": node,
        "source": int(trace.source[row]),
        "last_hop": int(trace.last_hop[row]),
        "return_time": int(trace.return_time[row]),
        "posterior": posterior,
        "hops_away": distances(graph)[node],
        "edges": np.stack((starts[once], graph.indices[once]), axis=1),
    }
