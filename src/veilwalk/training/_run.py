"""Runs private learning end to end: walk, train, compare, attack; holds the result, and predicts what a run will take.

Epsilon is against everybody together, who see every model and know who made it. A smaller epsilon for an unknown sender
is not printed: one relay can be certain of a maker, and each maker draws the next one. See the page on privacy
accounting.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from veilwalk import learning
from veilwalk.audit import warn_few_members
from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.geometry import choose_suite
from veilwalk.core.progress import Progress, show_progress, silent
from veilwalk.core.records import Record
from veilwalk.core.rooms import show_options
from veilwalk.core.tables import Tabular
from veilwalk.design import Scheme
from veilwalk.engine import one_blas_thread
from veilwalk.graphs import distances
from veilwalk.learning import Array, Learner, Params, Partition, Partitions, Training, TrainingTrace
from veilwalk.training._content import (
    FEWEST_ATTACKED,
    Candidates,
    EvidenceCollector,
    content_attack,
    gather_evidence,
    select_attacked_rows,
)
from veilwalk.training._folder import MetricsLog, RunFolder, Track, list_scores
from veilwalk.training._route import predict_route_s, route_anonymity
from veilwalk.training._scenario import Scenario
from veilwalk.training._spec import PAPER, PRIVATE, TRAIN, TrainOptions

# Models evaluated by themselves, where many are in flight.
_SINGLE_MODELS = 16
# Where the leaks have what a route tells, and how a receiver knows the maker elsewhere.
_ROUTES = {PRIVATE: "route", PAPER: "paper_route"}
_HOW = {
    "plain-walk": "the neighbour it came from made the update",
    **dict.fromkeys(learning.ROUND_ALGORITHMS, "every model comes straight from its maker"),
    "central": "the data themselves were handed over",
}
_CHECKPOINT_S = 0.5
_OF_THE_SCHEME = ("graph", "choice", "scheme", "law", "support", "walk", "recipients")
# Seconds of training that are timed for each algorithm, and the updates that this is at least and at most.
_TRIAL_S, _LEAST_TRIALS, _MOST_TRIALS = 0.3, 2, 200
# A delivery that takes longer is not tried as a whole: the time of one candidate is multiplied.
_LONG_S = 5.0
# Seconds that fitting and scoring all attackers takes: about as long for any size of network up to thousands.
_SCORING_S = 0.3


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingRun(Tabular):
    """What was trained, what it cost and what leaks.

    ``trainings`` are the private walk and every comparison, by name. ``leaks`` is what route and content give away of
    the private walk, and epsilon, as plain data. ``warnings`` are what a reader should know besides.
    """

    scenario: Scenario
    trainings: Mapping[str, Training]
    leaks: Mapping[str, Any]
    warnings: tuple[str, ...] = ()

    @property
    def model(self) -> Params:
        """The model that the private walk ended with, as named arrays; of several tokens the average."""
        return self.trainings[PRIVATE].params

    def record(self) -> Record:
        """Return what was asked, by which code, and what came out."""
        return self._record

    def rows(self) -> list[dict[str, Any]]:
        """Return one row an evaluation, as ``metrics.csv`` has them."""
        spec = self.scenario.spec
        return [list_scores(spec, name, point) for name, run in self.trainings.items() for point in run.points]

    def _overview(self) -> list[dict[str, Any]]:
        spec = self.scenario.spec
        return [list_scores(spec, name, run.points[-1]) for name, run in self.trainings.items()]

    def _anonymity(self, name: str) -> Mapping[str, Any]:
        """What a receiver learns of who made what it got, from the route alone."""
        if name in _ROUTES:
            return dict(self.leaks[_ROUTES[name]])
        # Comparisons hide nothing: a receiver knows the maker, where blind it would pick one of its neighbours.
        graph = self.scenario.graph
        blind = None if name == "central" else float((graph.stationary_distribution / graph.degrees).sum())
        # The receiver is a server, and anybody may have been asked.
        blind = 1 / graph.n_nodes if name == "fedavg" else blind
        known = {"node_entropy_nats": 0.0, "node_entropy_bits": 0.0, "hit_ratio": 1.0, "blind_hit_ratio": blind}
        return {"kind": f"exact: {_HOW[name]}", **known}

    @cached_property
    def _record(self) -> Record:
        scenario, sizes = self.scenario, self.scenario.partitions.sizes
        totals = [training.points[-1].hops for training in self.trainings.values()]
        equal_hops = min((total for total in totals if total), default=0)
        algorithms = {}
        for name, training in self.trainings.items():
            algorithms[name] = _summarise(scenario, training, equal_hops) | {"anonymity": self._anonymity(name)}
        return Record(
            kind="train",
            params=scenario.spec.params(TRAIN),
            seed=scenario.spec.seed,
            result={
                "format": "veilwalk-train-1",
                "network": {
                    "nodes": scenario.graph.n_nodes,
                    "edges": scenario.graph.n_edges,
                    "graph_digest": scenario.graph.digest,
                    "support": str(scenario.scheme.law.support),
                    "recipients": scenario.scheme.recipients,
                },
                "data": {
                    "training_rows": len(scenario.partitions.rows),
                    "held_out_rows": len(scenario.data.test),
                    "rows_of_a_node": [int(sizes.min()), float(np.median(sizes)), int(sizes.max())],
                    "commonest_class_share": scenario.data.commonest_class_share,
                }
                | data_facts(scenario),
                "equal_hops": equal_hops,
                "algorithms": algorithms,
                "sites": learning.score_sites(scenario.learner, self.model, scenario.data),
                "content_attack": self.leaks["content"],
                "sample": self.leaks["sample"],
                "privacy": self.leaks["privacy"],
                "warnings": list(self.warnings),
            }
            | ({} if scenario.graph.labels is None else {"labels": list(scenario.graph.labels)}),
        )


def data_facts(scenario: Scenario) -> dict[str, Any]:
    """Return what a user of the model must know: its size, the names of classes, how numbers were scaled, notes."""
    data = scenario.data
    facts = {
        "class_names": list(data.class_names),
        **data.scaler.to_facts(),
        "target_range": data.target_range,
        "notes": list(scenario.notes),
    }
    known = {name: value for name, value in facts.items() if value}
    return {"features": data.n_features, "classes": data.n_classes} | known


def _summarise(scenario: Scenario, training: Training, equal_hops: int) -> dict[str, Any]:
    last = training.points[-1]
    within = [point for point in training.points if point.hops <= equal_hops]
    updates, spec = max(training.updates, 1), scenario.spec.timing
    return {
        "reason": training.reason,
        "updates": training.updates,
        "accuracy": last.accuracy,
        "loss": last.loss,
        "scores": dict(last.scores),
        "accuracy_at_equal_hops": within[-1].accuracy,
        "single_models": _score_single_models(scenario, training),
        "message_bytes": training.costs.message_bytes,
        "hops": last.hops,
        "bytes": last.sent_bytes,
        "seconds_modelled": last.seconds,
        "seconds_by_line": {
            line: training.costs.model_seconds(
                replace(cost, compute_s=spec.compute_s, dwell_s=spec.dwell_s), last.update
            )
            for line, cost in learning.LINES.items()
        },
        "hops_per_update": last.hops / updates,
        "bytes_per_update": last.sent_bytes / updates,
        "seconds_modelled_per_update": last.seconds / updates,
        "points": [asdict(point) for point in training.points],
        "learner_failures": training.learner_failures,
    } | ({"received": dict(training.received)} if training.received else {})


def _score_single_models(scenario: Scenario, training: Training) -> dict[str, Any] | None:
    """Return how good single models are, where what is evaluated is an average that nobody holds."""
    models = training.models
    if len(models) == 1:
        return None
    chosen = np.unique(np.linspace(0, len(models) - 1, _SINGLE_MODELS).astype(np.int64))
    scores = [scenario.learner.evaluate(models[int(number)], scenario.data.test) for number in chosen]
    known = [score["accuracy"] for score in scores if score.get("accuracy") is not None]
    if not known:
        return None
    return {"models": len(known), "mean_accuracy": float(np.mean(known)), "least_accuracy": float(min(known))}


def account_privacy(scenario: Scenario, planned: Mapping[str, TrainingTrace]) -> dict[str, Any] | None:
    """Return epsilon of every algorithm for the node that is worst off; None without noise.

    ``planned`` are the updates that each could have made. The moment at which a run ends early depends on the data, so
    counting only the updates that it made would understate what they reveal.
    """
    protection, delta = scenario.protection, scenario.spec.privacy.delta
    if not protection.noise:
        return None
    noise, releases, limit = protection.noise, protection.releases(scenario.learner), protection.most_updates
    counts = {name: int(np.bincount(trace.node).max(initial=0)) for name, trace in planned.items() if name != "central"}
    # After the limit a node hands models on as they are.
    most = {name: min(count, limit or count) for name, count in counts.items()}
    epsilons: dict[str, dict[str, Any]] = {
        name: {
            "epsilon_sender_known": learning.epsilon_of(noise, delta, updates=count * releases),
            "most_updates_of_a_node": count,
        }
        for name, count in most.items()
    }
    sentence = learning.describe_privacy(noise, delta, updates=most[PRIVATE] * releases, unit=protection.unit)
    what = "a row's gradient" if protection.rows else "an update"
    about = f"Noise of {protection.noise:.4g} times the norm {protection.clip:g} to which {what} is clipped"
    return {
        "unit": protection.unit,
        "noise_multiplier": protection.noise,
        "clip": protection.clip,
        "delta": delta,
        "against": "everybody, sender known",
        "algorithms": epsilons,
        "sentence": f"{about}; for the node with most updates.\n{sentence}",
    }


@show_options(TRAIN.options, but=(*_OF_THE_SCHEME, "app"))
def train(
    scheme: Scheme,
    *,
    data: Any,
    learner: str | Learner | None = None,
    partition: Any = None,
    scale: str | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    progress: Progress | bool = False,
    track: Track | None = None,
    **options: Unpack[TrainOptions],
) -> TrainingRun:
    """Train ``learner`` on ``data`` as ``scheme`` says, and by other algorithms for comparison.

    Args:
        scheme: How a model gets from one update to the next.
        data: A spec, data, features and labels, or such pairs by site (a dict or a list); a fifth is held out.
        learner: A spec, or any object with ``init_params``, ``update`` and ``evaluate``; without it the usual one.
        partition: How the rows are dealt out: a spec, or any partitioner; None: by the sites of the data, or else iid.
        scale: How features and real labels are scaled, ``none`` or ``range``. None: as the data say, or else by their
            range for the package's own learners, and not for others.
        out: Folder of the run, so that it can be resumed.
        resume: Continue the run in ``out``, if its data and learner are the same.
        progress: True for a bar on standard error, or a progress callback.
        track: Called with the algorithm and the :class:`~veilwalk.learning.Point` of every evaluation.
        options: Options of a run, as ``veilwalk train --help`` describes them: updates, compare, epsilon and so on.

    Example:
        >>> from veilwalk.design import design
        >>> from veilwalk.graphs import random_regular
        >>> scheme = design(random_regular(20, 3, seed=1), "uniform-node", support=(2, 3)).scheme
        >>> run = train(scheme, data="digits", learner="softmax", updates=40, compare="none", attack=0)
        >>> sorted(run.model), run.record().result["algorithms"]["private-walk"]["updates"]
        (['bias', 'weight'], 40)
    """
    need = "a Scheme: of recommend(graph).scheme, choose_scheme(graph) or design(graph).scheme"
    validate.instance(Scheme, need, scheme=scheme)
    validate.instance((str, Path, type(None)), "a folder", out=out)
    values: dict[str, Any] = {**options}
    for name in _OF_THE_SCHEME:
        if name in values:
            raise InvalidParameterError(name, values[name], "left out: the scheme says it")
    if "app" in values:
        raise InvalidParameterError("app", values["app"], "left out: give learner=from_flower(app), data='partitions'")
    validate.options(TRAIN.options, values)
    if isinstance(values.get("compare"), list | tuple):
        values["compare"] = ",".join(map(str, values["compare"]))
    spec = TRAIN.read(values)
    chosen = spec.learner if learner is None else learner
    scenario = Scenario.build(
        scheme, spec, data=data, partition=partition, learner=chosen, scale=scale, usual_partition="iid"
    )
    folder = None if out is None else Path(out)
    with show_progress(progress=progress) as listener:
        return run_training(scenario, out=folder, resume=resume, progress=listener, track=track)


def run_training(
    scenario: Scenario,
    *,
    out: Path | None = None,
    resume: bool = False,
    progress: Progress = silent,
    track: Track | None = None,
) -> TrainingRun:
    """Train privately and by every comparison; report what was gained, what it cost and what leaks.

    The other arguments are those of :func:`train`; ``progress`` receives stage, done, total and a message.
    """
    # The same bits on any number of cores; and the matrices of a peer are too small for more than one thread.
    with one_blas_thread():
        if out is None:
            return _run_algorithms(scenario, None, [], progress, track)
        with RunFolder(out) as folder:
            warnings = folder.open(scenario.spec, resume=resume)
            run = _run_algorithms(scenario, folder, warnings, progress, track)
            folder.finish(run.record(), run.rows(), run.model)
            return run


def _run_algorithms(
    scenario: Scenario, folder: RunFolder | None, warnings: list[str], progress: Progress, track: Track | None
) -> TrainingRun:
    spec, noise = scenario.spec, scenario.protection.noise
    # A checkpoint asks for it, and large data take long to hash.
    identity = "" if folder is None else scenario.digest()
    if noise:
        # Where epsilon cannot be computed, a run is refused before it starts.
        learning.epsilon_of(noise, spec.privacy.delta, updates=1)
    log = MetricsLog(None if folder is None else folder.path, spec, progress, track)
    traces = {name: scenario.trace(name, path=None if folder is None else folder.trace) for name in spec.algorithms}
    # The attack watches the private training, so that nothing is trained twice.
    rows, _ = select_attacked_rows(scenario, traces[PRIVATE])
    watcher = EvidenceCollector(scenario, traces[PRIVATE], rows, progress=progress)
    trainings = {
        name: learning.train(
            scenario.task(name),
            trace,
            stopping=spec.end,
            cost=spec.timing,
            evaluations=spec.end.evaluations,
            checkpoint=None if folder is None else folder.checkpoint(name),
            identity=identity,
            every_s=_CHECKPOINT_S,
            tell=partial(log.report, name),
            observe=watcher.observe if name == PRIVATE and len(rows) else None,
        )
        for name, trace in traces.items()
    }
    leaks = None if folder is None else folder.read_part("attribution")
    if leaks is None:
        played_traces = {name: trace.first(trainings[name].updates) for name, trace in traces.items()}
        leaks = _attack(scenario, played_traces, watcher, progress)
        if folder is not None:
            folder.write_part("attribution", leaks)
    # Never from a file: a part of an older version may promise more than holds.
    planned = {name: trace.first(trainings[name].planned) for name, trace in traces.items()}
    leaks = leaks | {"privacy": account_privacy(scenario, planned)}
    failures = [
        f"{name}: the learner failed at {training.learner_failures} of {training.updates} updates. Noise hides that, "
        "so those nodes added noise alone; check_learner shows why."
        for name, training in trainings.items()
        if training.learner_failures
    ]
    scheme = scenario.scheme
    few = None if spec.checks.audit == "none" else warn_few_members(scheme)
    notes = (*warnings, *failures, scheme.relay_warning(), few, leaks.get("left_out"))
    return TrainingRun(
        scenario=scenario, trainings=trainings, leaks=leaks, warnings=tuple(note for note in notes if note is not None)
    )


def _attack(
    scenario: Scenario, traces: Mapping[str, TrainingTrace], watcher: EvidenceCollector, progress: Progress
) -> dict[str, Any]:
    """Return what route and content reveal of the private run."""
    trace, checks = traces[PRIVATE], scenario.spec.checks
    attacked, left_out = select_attacked_rows(scenario, trace)
    # The delivery of median return time is shown, unless nothing is measured; an empty trace has none.
    order = np.argsort(trace.return_time, kind="stable")[: None if checks.audit != "none" or len(attacked) else 0]
    rows = np.append(attacked, order[len(order) // 2 :][:1]).astype(np.int64)
    route = route_anonymity(scenario.scheme, trace, rows, checks=checks, progress=progress)
    leaks: dict[str, Any] = {"route": route.summary, "content": None, "left_out": left_out, "sample": None}
    if PAPER in traces:
        paper, paper_trace = scenario.paper_scheme, traces[PAPER]
        leaks["paper_route"] = route_anonymity(paper, paper_trace, rows[:0], checks=checks, progress=progress).summary
    if len(rows):
        # With the posterior of its receiver, and the network around it.
        row, node = int(rows[-1]), int(trace.node[rows[-1]])
        leaks["sample"] = {
            "update": row + 1,
            "destination": node,
            "source": int(trace.source[row]),
            "last_hop": int(trace.last_hop[row]),
            "return_time": int(trace.return_time[row]),
            "posterior": route.posteriors[-1],
            "hops_away": distances(scenario.graph)[node],
            "edges": scenario.graph.edges(),
        }
    if len(attacked):
        evidence = watcher.evidence
        if not watcher.is_complete(attacked):
            # A run that was resumed, or that ended early.
            evidence = gather_evidence(scenario, trace, attacked, progress=progress)
        leaks["content"] = content_attack(scenario, evidence, route.posteriors[:-1])
    return leaks


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Prediction of a run; times are 0 where no trial was made.

    ``update_s`` is the mean of ``trials`` updates of the private walk here. Evaluations are part of ``training_s``, by
    algorithm; a route whose result is stored takes no time. While a checkpoint is written it takes as much again on
    disk, and in memory.
    """

    model_bytes: int
    message_bytes: int
    state_bytes: int
    update_s: float = 0.0
    trials: int = 0
    training_s: Mapping[str, float] = field(default_factory=dict)
    route_s: float = 0.0
    attack_s: float = 0.0
    checkpoint_bytes: Mapping[str, int]

    @property
    def total_bytes(self) -> int:
        """All checkpoints together."""
        return sum(self.checkpoint_bytes.values())

    @property
    def total_s(self) -> float:
        """Seconds of all algorithms, of the route and of the content attack."""
        return sum(self.training_s.values()) + self.route_s + self.attack_s


def plan_run(scenario: Scenario, *, trial: bool = True, times: bool = True) -> Plan:
    """Return the prediction of a run; with a trial update what a learner keeps is known too.

    For ``times`` it trains by each algorithm for a moment, and attacks one delivery.
    """
    spec, learner = scenario.spec, learning.guarded(scenario.learner)
    first = learner.init_params(learning.init_generator(spec.seed))
    size, state = learning.params_bytes(first), dict[str, Array]()
    sent = learning.params_bytes(first, payload=spec.learning.payload)
    with one_blas_thread():
        if trial:
            (part,) = _typical_parts(scenario, 1)
            learning.apply_update(learner, first, part, seed=spec.seed, node=0, step=0, state=state)
        seconds = _time_run(scenario, first) if trial and times else {}
    return Plan(
        model_bytes=size,
        message_bytes=learning.sealed_bytes(
            sent, suite=choose_suite(is_overlay=scenario.scheme.graph.is_overlay), recipients=scenario.scheme.recipients
        ),
        state_bytes=learning.params_bytes(state),
        checkpoint_bytes=_checkpoint_bytes(scenario, size, learning.params_bytes(state)),
        **seconds,
    )


def _time_run(scenario: Scenario, first: Params) -> dict[str, Any]:
    """Return the times of a plan by name."""
    spec, training_s, update_s, trials = scenario.spec, dict[str, float](), 0.0, 0
    for name in spec.algorithms:
        # Where a round of gossip takes long, its updates are taken to be those of the walk.
        if name not in learning.ROUND_ALGORITHMS or scenario.count_models(name) * update_s < _LONG_S:
            seconds, evaluation_s, updates = _time_training(scenario, name)
        if name == PRIVATE:
            update_s, trials = seconds, updates
        points = spec.end.evaluations + 1
        if name in learning.ROUND_ALGORITHMS:
            # They are evaluated between rounds only.
            points = min(points, 1 + math.ceil(spec.end.updates / scenario.count_models(name)))
        training_s[name] = spec.end.updates * seconds + points * evaluation_s
    route_s = predict_route_s(scenario.scheme, checks=spec.checks)
    if PAPER in spec.algorithms:
        route_s += predict_route_s(scenario.paper_scheme, checks=spec.checks)
    times = {"update_s": update_s, "trials": trials, "route_s": route_s, "attack_s": _time_attack(scenario, first)}
    return times | {"training_s": training_s}


def _time_training(scenario: Scenario, name: str) -> tuple[float, float, int]:
    """Return the seconds of an update and of an evaluation of an algorithm, and how many updates were timed.

    It trains as a run does: for its shortest part, and for some more of them. Gossip trains in rounds of all nodes.
    """
    step = scenario.count_models(name) if name in learning.ROUND_ALGORITHMS else 1
    least = max(_MOST_TRIALS, (1 + _LEAST_TRIALS) * step, scenario.spec.end.walks)
    task, trace = scenario.task(name), scenario.change(updates=least).trace(name)

    def measure(steps: int) -> float:
        began = time.perf_counter()
        learning.train(task, trace.first(steps * step), evaluations=1)
        return time.perf_counter() - began

    # The first update also loads libraries.
    measure(1)
    single_s = measure(1)
    more = min(max(int(_TRIAL_S / max(single_s, 1e-9)), _LEAST_TRIALS), len(trace) // step - 1)
    update_s = max(measure(1 + more) - single_s, 0.0) / (more * step)
    # Each of these evaluates twice: before the first update, and after the last.
    return update_s, max(single_s - step * update_s, 0.0) / 2, more


def _time_attack(scenario: Scenario, first: Params) -> float:
    """Predict the content attack from one delivery; where that takes long, from one candidate of it."""
    spec, nodes = scenario.spec, scenario.graph.n_nodes
    count = 0 if spec.checks.poisoning is not None else min(spec.checks.attack, spec.end.updates)
    if count < FEWEST_ATTACKED:
        return 0.0

    def measure(candidates: int) -> float:
        parts = Partitions.of_parts(_typical_parts(scenario, candidates))
        attacker = replace(Candidates.from_scenario(scenario, learning.init_generator(spec.seed)), partitions=parts)
        often = np.full(candidates, 1 / candidates)
        began = time.perf_counter()
        list(attacker.weigh(first, first, first, (first, 0), age=1, often=often))
        return time.perf_counter() - began

    # The first time also loads libraries.
    measure(1)
    delivery_s = nodes * measure(1)
    return count * (measure(nodes) if delivery_s < _LONG_S else delivery_s) + _SCORING_S


def _typical_parts(scenario: Scenario, count: int) -> list[Partition]:
    """Return the rows of as many nodes, those with about the mean number of them first."""
    sizes = scenario.partitions.sizes
    nearest = np.argsort(abs(sizes - sizes.mean()), kind="stable")[:count]
    return [scenario.partitions[int(node)] for node in nearest]


def _checkpoint_bytes(scenario: Scenario, size: int, state: int) -> dict[str, int]:
    """Return the largest checkpoint of each algorithm: models of ``size``, and ``state`` for each node that trained."""
    spec, nodes = scenario.spec, scenario.graph.n_nodes
    visited, walks = min(nodes, spec.end.updates), spec.end.walks
    tests = spec.learning.acceptance is not None
    # Nodes that test what they receive keep their own last model of each walk.
    held = min(visited * walks, spec.end.updates) if tests else 0
    honest = walks if tests or spec.checks.poisoning is not None else 0
    walk = (walks + honest + held) * size + visited * state
    rounds = {name: scenario.count_models(name) * size + visited * state for name in learning.ROUND_ALGORITHMS}
    sizes = rounds | {"central": size + state}
    return {name: sizes.get(name, walk) for name in spec.algorithms}
