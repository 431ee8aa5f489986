"""Runs every observer of a plan on one run, and scores them; only the scorer compares posteriors with the truth.

Scores are computed in jobs: some destinations, or one observer. A job depends on the knowledge and on its own name
only, so that one process and many machines compute the same scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from veilwalk.audit._coalitions import average_unnamed, named_nodes
from veilwalk.audit._knowledge import Grants, Inference, Knowledge, Posterior, Timing, group_equal, require_rows
from veilwalk.audit._observers import Observer
from veilwalk.audit._plan import choose_inference, make_plan
from veilwalk.audit._play import Run, Truth, choose_colluders
from veilwalk.audit._sampled import simulate_rehearsal
from veilwalk.audit._score import SCORES, Exposed, Scored, score_posteriors
from veilwalk.audit._settings import BY_CLASS, REHEARSED, AuditSettings, Plan
from veilwalk.audit._timings import CandidateSearch
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.randomness import task_generator
from veilwalk.design import Scheme
from veilwalk.engine import one_blas_thread, run_jobs
from veilwalk.graphs import distances

# Destinations of a job.
_DESTINATIONS = 16
# A stream of its own for pseudonyms.
_PSEUDONYM_TASK = 0x616C696B
# Largest deviation of a row of a posterior from one.
_ROUNDING = 1e-6
# Scores of some answers, as plain data: how many linked updates each is about (0: a single one) and of which part, the
# first of them, their scores, and how the posterior was obtained.
_Scores = tuple[tuple[int, str], IntArray, FloatArray, str]
_SINGLE = (0, "")


def grant_knowledge(plan: Plan, run: Run, progress: Progress = silent) -> Knowledge:
    """Return what observers may know of a run: everything but the truth."""
    lane, source, n_nodes = run.truth.lane, run.truth.source, plan.scheme.graph.n_nodes
    training = (lane % 2 == 0) & plan.reads_by(BY_CLASS)
    names = task_generator(plan.settings.seed, _PSEUDONYM_TASK).permutation(n_nodes)
    grants = Grants(
        lane=lane,
        calibration_sources=np.where(training, source, -1),
        by_colluder=np.isin(source, run.colluders),
        pseudonyms=names[source],
    )
    return Knowledge(plan, run.sightings, run.colluders, grants, progress)


class Scorer:
    """Asks observers, and scores their posteriors against the truth.

    It also groups updates of one source for observers that are granted it. ``left_out`` holds the observers of ``all``
    that prove impossible, with the reason.
    """

    def __init__(self, knowledge: Knowledge, truth: Truth) -> None:
        self._knowledge, self._truth = knowledge, truth
        self._observers: dict[str, Observer] = {}
        self._inference: Inference | None = None
        self.left_out = dict(knowledge.plan.left_out)

    @contextmanager
    def _leave_out(self, observer: Observer) -> Iterator[None]:
        """Leave out an observer that proves impossible, if it was not asked for by name."""
        try:
            yield
        except (ResourceLimitError, InvalidParameterError) as error:
            if not self._knowledge.settings.takes_all:
                raise
            self.left_out[observer.name] = str(error)

    def fit(self, progress: Progress, executor: Executor | None) -> None:
        """Fit the observers that are a destination alone, and the inference; others are fitted in their own jobs."""
        for observer in self._knowledge.plan.observers:
            with self._leave_out(observer):
                if observer.by_destination:
                    observer.fit(self._knowledge)
                self._observers[observer.name] = observer
        self._inference = fit_inference(self._knowledge, list(self._observers.values()), progress, executor)

    def score_all(self, where: Mapping[str, Any], progress: Progress) -> dict[str, Scored]:
        """Return the scores of every observer; ``where`` is as in ``attack_run``."""
        others = [name for name, observer in self._observers.items() if not observer.by_destination]
        nodes = self._select_destinations()
        if where:
            places = [["places", *nodes[at : at + _DESTINATIONS]] for at in range(0, len(nodes), _DESTINATIONS)]
            options: dict[str, Any] = {"common": (self,), "progress": progress, **where}
            blocks = run_jobs(_score_job, places, stage="attacking", **options)
            answers = run_jobs(_score_job, [["observer", name] for name in others], stage="observers", **options)
        else:
            with one_blas_thread():
                blocks, answers = [self.score_destinations(nodes, progress)], []
                for name in others:
                    progress(f"attacking: {name}")
                    answers.append(self.score_observer(name))
        scored = {}
        for name, observer in self._observers.items():
            if observer.by_destination:
                scored[name] = self._join_scores(observer, [part for block in blocks for part in block[name]])
        for name, answer in zip(others, answers, strict=True):
            if answer["left_out"] is None:
                observer = self._observers[name]
                scored[name] = self._join_scores(observer, answer["scores"], answer["facts"], subsets=answer["subsets"])
            else:
                self.left_out[name] = answer["left_out"]
        return scored

    def _select_destinations(self) -> list[int]:
        """Return the destinations at which an observer that is a destination alone answers."""
        knowledge, observers = self._knowledge, self._observers.values()
        selected = [observer.select_rows(knowledge) for observer in observers if observer.by_destination]
        if not selected:
            return []
        rows = require_rows(np.concatenate(selected), "was left to score")
        nodes: list[int] = np.unique(knowledge.sightings.destination[rows]).tolist()
        return nodes

    def score_destinations(self, nodes: list[int], progress: Progress = silent) -> dict[str, list[_Scores]]:
        """Score the updates of some destinations under each observer that is one of them alone."""
        knowledge, destination = self._knowledge, self._knowledge.sightings.destination
        observers = [observer for observer in self._observers.values() if observer.by_destination]
        selected = {observer.name: observer.select_rows(knowledge) for observer in observers}
        scores: dict[str, list[_Scores]] = {name: [] for name in selected}
        for number, (node, timing) in enumerate(
            zip(nodes, _iter_timings(self._inference, nodes), strict=True), start=1
        ):
            local = knowledge.with_timing(timing)
            for observer in observers:
                rows = selected[observer.name]
                rows = rows[destination[rows] == node]
                if len(rows):
                    scores[observer.name] += self._iter_scores(observer, local, rows)
            progress("attacking", number, len(nodes), "destinations")
        return scores

    def score_observer(self, name: str) -> dict[str, Any]:
        """Score an observer that selects its own updates; of ``all``, one that proves impossible is left out."""
        observer, knowledge = self._observers[name], self._knowledge
        scores: list[_Scores] = []
        facts: dict[str, float] = {}
        subsets: dict[str, IntArray] = {}
        with self._leave_out(observer):
            observer.fit(knowledge)
            purpose = f"is left for {name} to {'join' if observer.links else 'answer for'}"
            rows = require_rows(observer.select_rows(knowledge), purpose)
            parts = observer.split_rows(knowledge, rows)
            for part, of in zip(parts, observer.part_names or repeat(""), strict=False):
                scores += self._iter_scores(observer, knowledge, part, of)
            if not observer.links:
                facts, subsets = observer.facts(knowledge), observer.subsets(knowledge)
        return {"scores": scores, "facts": facts, "subsets": subsets, "left_out": self.left_out.get(name)}

    def score_candidates(self, progress: Progress) -> dict[str, Scored]:
        """Score every observer on a graph of any size: each update has candidates of its own."""
        knowledge, observers = self._knowledge, self._knowledge.plan.observers
        if knowledge.scheme.hides_names:
            return {observer.name: self._score_by_symmetry(observer) for observer in observers}
        search = CandidateSearch(knowledge)
        training = knowledge.grants.calibration_sources >= 0
        for observer in observers:
            observer.fit(knowledge)
        rows = [np.flatnonzero(training), np.flatnonzero(~training)]
        calibration, scoring = (subset[:: -(-len(subset) // search.most_updates) or 1] for subset in rows)
        if knowledge.plan.reads_by(BY_CLASS):
            require_rows(calibration, "was left to calibrate on")
            search.calibrate(calibration, [observer.use_last_hop for observer in observers if observer.timed], progress)
        require_rows(scoring, "was left to score")
        blind: list[float] = []
        scores: dict[str, list[_Scores]] = {observer.name: [] for observer in observers}
        for candidates in search.iter_candidates(scoring, "attacking", progress):
            local, row = knowledge.with_timing(search.timing(candidates), candidates.prior), np.array([candidates.row])
            blind.append(candidates.prior.max())
            true = np.searchsorted(candidates.nodes, self._truth.source[row])
            for observer in observers:
                posterior = check_posterior(observer, observer.posterior(local, row), (1, len(candidates.nodes)))
                table = score_posteriors(posterior.weights, true, candidates.away, knowledge.support)
                scores[observer.name].append((_SINGLE, row, table, posterior.how))
        return {
            observer.name: self._join_scores(observer, scores[observer.name], blind=np.array(blind))
            for observer in observers
        }

    def _score_by_symmetry(self, observer: Observer) -> Scored:
        """Score a destination to which all are exchangeable but its neighbours, who do not seal for it: one is as all.

        It is scored on one update of each lane.
        """
        knowledge = self._knowledge
        _, rows = np.unique(self._truth.lane, return_index=True)
        node, source = int(knowledge.sightings.destination[rows[0]]), int(self._truth.source[rows[0]])
        away = distances(knowledge.graph, np.array([node]))[0]
        others = np.flatnonzero(away > 1)
        weights, place = np.full((1, len(others)), 1.0 / len(others)), np.searchsorted(others, [source])
        table = score_posteriors(weights, place, away[others], knowledge.support)
        parts = [(_SINGLE, rows, np.tile(table, (len(rows), 1)), "exact: by symmetry")]
        return self._join_scores(observer, parts, blind=np.full(len(rows), 1.0 / len(others)))

    def _iter_scores(self, observer: Observer, knowledge: Knowledge, rows: IntArray, of: str = "") -> Iterator[_Scores]:
        """Yield the scores of an observer for these updates, or for groups of them that have one source."""
        if not observer.links:
            posterior = observer.posterior(knowledge, rows)
            posterior = check_posterior(observer, posterior, (len(rows), knowledge.graph.n_nodes))
            posterior = hide_names(observer, knowledge, posterior, rows)
            yield _SINGLE, rows, self._score_posterior(posterior, rows), posterior.how
            return
        source = self._truth.source[rows]
        groups = [places for count in observer.links if len(places := group_equal(source, count))]
        for places, posterior in zip(groups, observer.join(knowledge, rows, groups), strict=True):
            first = rows[places[:, 0]]
            hidden = hide_names(observer, knowledge, posterior, first)
            yield (places.shape[1], of), first, self._score_posterior(hidden, first), hidden.how

    def _score_posterior(self, posterior: Posterior, rows: IntArray) -> FloatArray:
        """Score the posteriors of the given updates."""
        knowledge, scores = self._knowledge, np.zeros((len(rows), len(SCORES)))
        destination, source = knowledge.sightings.destination[rows], self._truth.source[rows]
        for node in np.unique(destination):
            places = np.flatnonzero(destination == node)
            away = knowledge.pair_distances[node]
            scores[places] = score_posteriors(posterior.weights[places], source[places], away, knowledge.support)
        return scores

    def _join_scores(
        self,
        observer: Observer,
        parts: Sequence[_Scores],
        facts: Mapping[str, float] | None = None,
        blind: FloatArray | None = None,
        *,
        subsets: Mapping[str, IntArray] | None = None,
    ) -> Scored:
        """Join the scores of all jobs; ``blind`` are the hits of a blind guess where candidates are looked up."""
        knowledge, sightings = self._knowledge, self._knowledge.sightings
        floor = len(knowledge.colluders) / knowledge.graph.n_nodes if observer.colluding else 0.0
        how = next((how for *_, how in parts), "")
        if observer.links:
            linked = {}
            for key in dict.fromkeys(size for size, *_ in parts):
                tables = [(scores, rows) for size, rows, scores, _ in parts if size == key]
                scores, rows = (np.concatenate(column) for column in zip(*tables, strict=True))
                linked[key] = (scores, self._truth.lane[rows])
            return Scored(how=how, floor=floor, linked=linked)
        rows = np.concatenate([part[1] for part in parts])
        order = np.argsort(rows)
        rows = rows[order]
        if blind is None:
            blind = _measure_blind_guess(observer, knowledge, rows)
        return Scored(
            how=how,
            sampled=observer.by_destination and not knowledge.attacked.all(),
            scores=np.concatenate([part[2] for part in parts])[order],
            blind=blind,
            lanes=self._truth.lane[rows],
            return_time=sightings.return_time[[] if knowledge.scheme.is_direct else rows],
            destination=sightings.destination[rows],
            last_hop=sightings.last_hop[rows],
            floor=floor,
            facts=dict(facts or {}),
            subsets={name: np.searchsorted(rows, subset) for name, subset in (subsets or {}).items()},
            exposure=self._group_makers(rows) if observer.colluding else None,
        )

    def _group_makers(self, rows: IntArray) -> Exposed:
        """Return the maker of each update, and how many neighbours of each node collude."""
        is_colluder = self._knowledge.is_colluder
        watched = self._knowledge.graph.adjacency @ is_colluder.astype(np.float64)
        return Exposed(
            makers=self._truth.source[rows], watched=np.asarray(watched).astype(np.int64), honest=~is_colluder
        )


def _score_job(scorer: Scorer, job: list[Any]) -> dict[str, Any]:
    return scorer.score_destinations(job[1:]) if job[0] == "places" else scorer.score_observer(job[1])


def _iter_timings(inference: Inference | None, nodes: Sequence[int] | IntArray) -> Iterator[Timing | None]:
    """Yield what return times say at each of these destinations; nothing without an inference."""
    return repeat(None, len(nodes)) if inference is None else inference.iter_timings(np.asarray(nodes))


def check_posterior(observer: Observer, posterior: object, shape: tuple[int, int]) -> Posterior:
    """Return the posterior of an observer, or refuse one that is no posterior; a bare array is one too."""
    if not isinstance(posterior, Posterior):
        posterior = Posterior(np.asarray(posterior, dtype=np.float64), "as the observer states")
    weights = posterior.weights
    is_valid = weights.shape == shape and bool((weights >= 0.0).all())
    if not is_valid or not np.allclose(weights.sum(axis=1), 1.0, rtol=0.0, atol=_ROUNDING):
        need = f"a posterior of shape {shape}: weights of 0 or more, each row with the sum 1"
        raise InvalidParameterError("observers", observer.name, need)
    return posterior


def hide_names(observer: Observer, knowledge: Knowledge, posterior: Posterior, rows: IntArray) -> Posterior:
    """Return what a posterior over places of the map says of names, where the scheme hides them.

    The observer is granted the map and the place of each key, which is more than it can learn; names it knows next to
    those who watch. To it all others are exchangeable, so that the average is its posterior.
    """
    if not knowledge.scheme.hides_names or (watching := observer.watchers(knowledge, rows)) is None:
        return posterior
    weights = average_unnamed(posterior.weights, named_nodes(knowledge.graph, watching))
    return Posterior(weights, f"{posterior.how}; knows the map, and names next to itself")


def _measure_blind_guess(observer: Observer, knowledge: Knowledge, rows: IntArray) -> FloatArray:
    """Return the largest weight of the prior of each update."""
    prior, destination = observer.prior(knowledge), knowledge.sightings.destination[rows]
    if not knowledge.scheme.hides_names:
        return np.asarray(prior.max(axis=1)[destination])
    nodes, first, places = np.unique(destination, return_index=True, return_inverse=True)
    hidden = hide_names(observer, knowledge, Posterior(prior[nodes], ""), rows[first])
    return np.asarray(hidden.weights.max(axis=1)[places])


def attack_run(
    plan: Plan, run: Run, where: Mapping[str, Any], progress: Progress = silent
) -> tuple[dict[str, Scored], dict[str, str]]:
    """Attack a run with every observer of the plan; ``where`` holds arguments of ``run_jobs``, or none to run it here.

    Returns:
        Scored updates of each observer; and observers of ``all`` that did not run, with the reason.
    """
    scorer = Scorer(grant_knowledge(plan, run, progress), run.truth)
    if plan.looked_up:
        return scorer.score_candidates(progress), scorer.left_out
    scorer.fit(progress, where.get("executor"))
    scored = scorer.score_all(where, progress)
    return {name: scored[name] for name in plan.names if name in scored}, scorer.left_out


def fit_inference(
    knowledge: Knowledge, observers: Sequence[Observer], progress: Progress, executor: Executor | None = None
) -> Inference | None:
    """Simulate the rehearsal that the inference or an observer needs, and fit the inference."""
    plan = knowledge.plan
    deliveries, sights = plan.reads_by(REHEARSED), any(observer.rehearses(plan) for observer in observers)
    if deliveries or sights:
        knowledge.rehearsal = simulate_rehearsal(
            knowledge, deliveries=deliveries, sights=sights, progress=progress, executor=executor
        )
    if not plan.timed:
        return None
    inference = choose_inference(plan)
    inference.fit(knowledge)
    return inference


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """The answer of one observer for one update (its ``row``): posterior over all nodes, blind guess, and how."""

    row: int
    weights: FloatArray
    prior: FloatArray
    how: str


def iter_answers(
    scheme: Scheme,
    records: npt.NDArray[np.void],
    names: Sequence[str],
    rows: IntArray,
    *,
    settings: AuditSettings | None = None,
) -> Iterator[tuple[str, list[Answer]]]:
    """Yield the answers of each observer for the updates ``rows`` of a walk that was played elsewhere.

    An observer that selects its own updates answers for the last one up to each of ``rows``. The records are in the
    order of their lanes, and were played with ``settings``: its seed, and for a coalition its colluders.
    """
    plan = make_plan(scheme, replace(settings or AuditSettings(), observers=tuple(names)))
    linking = [observer.name for observer in plan.observers if observer.links]
    if plan.looked_up or linking:
        refused = ",".join(linking or names)
        raise InvalidParameterError("observers", refused, "such as answer for single updates, with tables of all pairs")
    colluders = choose_colluders(scheme.graph, plan.colluders, plan.settings.seed, placement=plan.settings.placement)
    knowledge = grant_knowledge(plan, Run.from_records(records, colluders, complete=True))
    # Other destinations need no tables.
    knowledge.attacked = np.isin(np.arange(scheme.graph.n_nodes), knowledge.sightings.destination[rows])
    inference = fit_inference(knowledge, plan.observers, silent)
    for observer in plan.observers:
        observer.fit(knowledge)
        subset = np.unique(rows)
        if not observer.by_destination:
            possible = np.sort(observer.select_rows(knowledge))
            places = np.searchsorted(possible, rows, side="right") - 1
            subset = np.unique(possible[places[places >= 0]])
        with one_blas_thread():
            answers = _answer_rows(observer, knowledge, inference if observer.timed else None, subset)
        yield observer.name, answers


def _answer_rows(observer: Observer, knowledge: Knowledge, inference: Inference | None, rows: IntArray) -> list[Answer]:
    nodes = np.unique(knowledge.sightings.destination[rows])
    timings = _iter_timings(inference, nodes)
    prior, answers = observer.prior(knowledge), []
    for (node, subset), timing in zip(knowledge.iter_destinations(rows), timings, strict=True):
        posterior = observer.posterior(knowledge.with_timing(timing), subset)
        posterior = hide_names(observer, knowledge, posterior, subset)
        answers += [
            Answer(row=int(row), weights=weights, prior=prior[node], how=posterior.how)
            for row, weights in zip(subset, posterior.weights, strict=True)
        ]
    return sorted(answers, key=lambda answer: answer.row)
