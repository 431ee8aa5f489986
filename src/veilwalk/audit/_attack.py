"""Every observer's posteriors on one run, scored by the judge, who alone holds what was inferred against the truth.

Scores are computed in parts that can be done anywhere: some destinations, or one observer. A part depends on the scene
and on its own name only, so that the same scores come of one process and of many machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from veilwalk.audit._play import Run, Truth, choose_colluders, play
from veilwalk.audit._scene import Scene, require
from veilwalk.audit._scores import SCORES, Linked, Scored, score
from veilwalk.audit._settings import Plan
from veilwalk.audit.inference import Inference, Posterior, inference_of
from veilwalk.audit.inference.by_class import LookedUp
from veilwalk.audit.inference.rehearsed import rehearse
from veilwalk.audit.observers import OBSERVERS, Observer, Place
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.core.progress import Progress, silent
from veilwalk.engine import JobStore, one_blas_thread, run_jobs

# Destinations of a job.
_DESTINATIONS = 16
_LEFT_OUT = "left out"
#: Where destinations are scored: for each observer its rows with their scores, or its groups of linked updates.
_Part = dict[str, Any]
Profile = list[dict[str, Any]]


class Judge:
    """Scores posteriors of one scene, and says which updates have one source where that is granted."""

    def __init__(self, scene: Scene, truth: Truth) -> None:
        self._scene, self._truth = scene, truth

    def score(self, posterior: Posterior, rows: IntArray, node: int) -> FloatArray:
        """Score posteriors of the given updates, all at one destination."""
        scene = self._scene
        return score(posterior.weights, self._truth.source[rows], scene.apart[node], scene.support)

    def score_each(self, posterior: Posterior, rows: IntArray) -> FloatArray:
        """Score posteriors of the given updates, wherever they went."""
        scores, to = np.zeros((len(rows), len(SCORES))), self._scene.seen.destination[rows]
        for node in np.unique(to):
            mine = np.flatnonzero(to == node)
            scores[mine] = self.score(Posterior(posterior.weights[mine], posterior.how), rows[mine], int(node))
        return scores

    def score_candidates(self, posterior: Posterior, row: int, candidates: IntArray, away: IntArray) -> FloatArray:
        """Score a posterior over ``candidates``, ascending and so far ``away``, of one update."""
        true = np.searchsorted(candidates, self._truth.source[[row]])
        return score(posterior.weights, true, away, self._scene.support)

    def groups(self, rows: IntArray, count: int) -> IntArray:
        """Return places in ``rows`` in groups of so many updates of one source each; what is left over is dropped."""
        source = self._truth.source[rows]
        order = np.argsort(source, kind="stable")
        _, begins, sizes = np.unique(source[order], return_index=True, return_counts=True)
        place = np.arange(len(order)) - np.repeat(begins, sizes)
        return order[place < np.repeat(sizes // count * count, sizes)].reshape(-1, count)

    def scored(
        self, rows: IntArray, scores: FloatArray, how: str, blind: FloatArray, *, sampled: bool = False
    ) -> Scored:
        """Return scored updates with what a blind guess hits."""
        seen = self._scene.seen
        timed = not self._scene.scheme.is_direct
        return Scored(
            how=how,
            sampled=sampled,
            scores=scores,
            blind=blind,
            lanes=self._truth.lane[rows],
            return_time=seen.return_time[rows] if timed else np.zeros(0, dtype=np.int64),
            destination=seen.destination[rows],
            last_hop=seen.last_hop[rows],
        )

    def linked(self, tables: dict[int, list[tuple[FloatArray, IntArray]]], how: str) -> Scored:
        """Return the scores of groups, given for each size as tables of scores and of the first update of each."""
        joined: dict[int, Linked] = {
            count: (np.concatenate([scores for scores, _ in parts]), self._truth.lane[_first(parts)])
            for count, parts in tables.items()
            if parts
        }
        return Scored(how=how, scores=np.zeros((0, len(SCORES))), linked=joined)


def _first(parts: list[tuple[FloatArray, IntArray]]) -> IntArray:
    return np.concatenate([rows for _, rows in parts])


@dataclass(frozen=True)
class Work:
    """Where the parts of an audit are done, and where finished ones are kept under the name of the audit."""

    executor: Executor | None = None
    store: JobStore | None = None
    what: Mapping[str, Any] | None = None
    #: Where the protocol is played; what is scored is scored by the executor all the same.
    device: str = "cpu"

    @property
    def divided(self) -> bool:
        """Whether there are jobs at all; else everything is done here, with all threads."""
        return self.executor is not None or self.store is not None

    def run(self, function: Any, jobs: list[Any], common: tuple[Any, ...], progress: Progress, stage: str) -> list[Any]:
        """Do the jobs."""
        return run_jobs(
            function,
            jobs,
            common=common,
            executor=self.executor,
            store=self.store,
            what=self.what,
            stage=stage,
            progress=progress,
        )


class Scorer:
    """Observers of one scene, what they infer with, and the judge."""

    def __init__(self, scene: Scene, judge: Judge, observers: list[Observer], inference: Inference | None) -> None:
        self.scene, self._judge, self._inference = scene, judge, inference
        self._observers = {observer.name: observer for observer in observers}

    @property
    def _alone(self) -> list[Observer]:
        return [observer for observer in self._observers.values() if observer.alone]

    def destinations(self, work: Work, progress: Progress) -> tuple[dict[str, Scored], list[Any]]:
        """Score every update under each observer that is its destination alone; return that, and the profile."""
        scene, judge, alone = self.scene, self._judge, self._alone
        if not alone:
            return {}, self._profile()
        rows = require(alone[0].rows(), "was left to score")
        nodes = np.unique(scene.seen.destination[rows]).tolist()
        if work.divided:
            blocks = [nodes[first : first + _DESTINATIONS] for first in range(0, len(nodes), _DESTINATIONS)]
            parts = work.run(_score_places, [["places", *block] for block in blocks], (self,), progress, "attacking")
        else:
            with one_blas_thread():
                parts = [self.places(nodes, progress)]
        tables = {observer.name: _Table(len(scene.seen), observer.links) for observer in alone}
        for part in parts:
            for name, table in tables.items():
                table.join(part[name])
        sampled = not scene.attacked.all()
        found = {one.name: tables[one.name].scored(one, rows, judge, sampled=sampled) for one in alone}
        return found, [row for part in parts for row in part["profile"]]

    def places(self, nodes: list[int], progress: Progress = silent) -> _Part:
        """Score the updates of some destinations."""
        scene, alone = self.scene, self._alone
        rows = alone[0].rows()
        mine = rows[np.isin(scene.seen.destination[rows], nodes)]
        tables = {observer.name: _Table(len(scene.seen), observer.links) for observer in alone}
        before = len(self._profile())
        known = self._inference.at(np.array(nodes)) if self._inference is not None else iter([None] * len(nodes))
        for number, ((node, here), local) in enumerate(zip(scene.by_destination(mine), known, strict=True), start=1):
            place = Place(node, here, scene.seen.at(here), scene.prior[node], local)
            for observer in alone:
                tables[observer.name].add(observer, place, self._judge)
            progress("attacking", number, len(nodes), "destinations")
        return {name: table.part(mine) for name, table in tables.items()} | {"profile": self._profile()[before:]}

    def _profile(self) -> list[Any]:
        return [] if self._inference is None else self._inference.profile_parts

    def others(self, names: list[str], work: Work, progress: Progress) -> dict[str, Scored | str]:
        """Score the observers that have updates of their own, or say why one is left out."""
        if work.divided:
            jobs = [["observer", name] for name in names]
            return dict(zip(names, map(_read, work.run(_score_one, jobs, (self,), progress, "observers")), strict=True))
        found: dict[str, Scored | str] = {}
        for name in names:
            progress(f"attacking: {name}")
            with one_blas_thread():
                found[name] = self.one(name)
        return found

    def one(self, name: str) -> Scored | str:
        """Score an observer that has updates of its own; of ``all``, one that proves impossible is left out."""
        try:
            observer = self._observers[name]
            return self._joined(observer) if observer.links else self._single(observer)
        except (ResourceLimitError, InvalidParameterError) as error:
            if not self.scene.settings.takes_all:
                raise
            return str(error)

    def _single(self, observer: Observer) -> Scored:
        scene, prior = self.scene, observer.prior
        rows = require(observer.rows(), f"is left for {observer.name} to be asked about")
        table = _Table(len(scene.seen), ())
        for node, mine in scene.by_destination(rows):
            place = Place(node, mine, scene.seen.at(mine), prior[node], None)
            table.add(observer, place, self._judge)
        return replace(table.scored(observer, rows, self._judge), facts=observer.facts())

    def _joined(self, observer: Observer) -> Scored:
        """Score an observer that joins updates wherever they went."""
        judge, how = self._judge, ""
        tables: dict[int, list[tuple[FloatArray, IntArray]]] = {count: [] for count in observer.links}
        for place in observer.places():
            groups = [found for count in tables if len(found := judge.groups(place.rows, count))]
            for found, guess in zip(groups, observer.joined(place, groups), strict=True):
                first = place.rows[found[:, 0]]
                tables[found.shape[1]].append((judge.score_each(guess, first), first))
                how = guess.how
        joined = [first for parts in tables.values() for _, first in parts]
        require(np.concatenate([np.zeros(0, dtype=np.int64), *joined]), f"is left for {observer.name} to join")
        return judge.linked(tables, how)


def _score_places(scorer: Scorer, job: list[Any]) -> _Part:
    return scorer.places(job[1:])


def _score_one(scorer: Scorer, job: list[Any]) -> dict[str, Any]:
    """Score one observer; the result is plain data."""
    found = scorer.one(job[1])
    if isinstance(found, str):
        return {_LEFT_OUT: found}
    data = {field.name: getattr(found, field.name) for field in fields(Scored)}
    return data | {"linked": [(count, *table) for count, table in found.linked.items()]}


def _read(data: dict[str, Any]) -> Scored | str:
    if _LEFT_OUT in data:
        return str(data[_LEFT_OUT])
    return Scored(**data | {"linked": {count: (scores, lanes) for count, scores, lanes in data["linked"]}})


class _Table:
    """Scores of one observer, filled place by place: of single updates, or of groups of them."""

    def __init__(self, n_updates: int, links: tuple[int, ...]) -> None:
        self._scores = np.zeros((0 if links else n_updates, len(SCORES)))
        self._groups: dict[int, list[tuple[FloatArray, IntArray]]] = {count: [] for count in links}
        self._how = ""

    def add(self, observer: Observer, place: Place, judge: Judge) -> None:
        if not self._groups:
            guess = observer.posterior(place)
            self._scores[place.rows], self._how = judge.score(guess, place.rows, place.node), guess.how
            return
        groups = [found for count in self._groups if len(found := judge.groups(place.rows, count))]
        for found, guess in zip(groups, observer.joined(place, groups), strict=True):
            first = place.rows[found[:, 0]]
            self._groups[found.shape[1]].append((judge.score(guess, first, place.node), first))
            self._how = guess.how

    def part(self, rows: IntArray) -> _Part:
        """Return what was filled in, as plain data."""
        if self._groups:
            return {"how": self._how, "groups": list(self._groups.items())}
        return {"how": self._how, "rows": rows, "scores": self._scores[rows]}

    def join(self, part: _Part) -> None:
        """Take over what another table was filled with."""
        self._how = part["how"] or self._how
        for count, tables in part.get("groups", ()):
            self._groups[count].extend(tables)
        if "rows" in part:
            self._scores[part["rows"]] = part["scores"]

    def scored(self, observer: Observer, rows: IntArray, judge: Judge, *, sampled: bool = False) -> Scored:
        if self._groups:
            return judge.linked(self._groups, self._how)
        blind = observer.prior.max(axis=1)[observer.scene.seen.destination[rows]]
        return judge.scored(rows, self._scores[rows], self._how, blind, sampled=sampled)


class Attack:
    """A played plan and what each observer made of it.

    Attributes:
        run: What was played.
        scene: What observers may know of it.
        found: Their scored updates, in the order asked.
        profile: Posterior of one node by distance and return time, where it is exact.
        left_out: Observers of ``all`` that were not asked or turned out not to be possible, with the reason.
    """

    def __init__(self, plan: Plan, progress: Progress, work: Work | None = None) -> None:
        """Play and attack."""
        work = work or Work()
        self._plan, self._progress, self._work = plan, progress, work
        graph, settings = plan.scheme.graph, plan.settings
        colluders = choose_colluders(graph, plan.colluders, settings.seed, placement=settings.placement)
        self.run: Run = play(
            plan.scheme,
            plan.settings,
            colluders,
            executor=work.executor,
            store=work.store,
            device=work.device,
            progress=progress,
        )
        self.scene = Scene(plan, self.run)
        self.scene.progress = progress
        self._judge = Judge(self.scene, self.run.truth)
        self.found: dict[str, Scored] = {}
        self.profile: Profile = []
        self.left_out: dict[str, str] = dict(plan.left_out)
        if plan.looked_up:
            self._look_up()
        else:
            self._with_tables()
        floor = len(self.run.colluders) / graph.n_nodes
        self.found = {
            name: replace(self.found[name], floor=floor if OBSERVERS[name].colluding else 0.0)
            for name in plan.observers
            if name in self.found
        }

    def _with_tables(self) -> None:
        """Attack with tables of all pairs: destinations by themselves, then the others one by one."""
        scene, plan = self.scene, self._plan
        tried = [self._tried(name) for name in plan.observers]
        observers = [observer for observer in tried if observer is not None]
        inference = inference_of(plan)(scene) if plan.timed else None
        rehearse(scene, self._progress, self._work.executor)
        scorer = Scorer(scene, self._judge, observers, inference)
        self.found, parts = scorer.destinations(self._work, self._progress)
        others = [observer.name for observer in observers if not observer.alone]
        for name, scored in scorer.others(others, self._work, self._progress).items():
            if isinstance(scored, str):
                self.left_out[name] = scored
            else:
                self.found[name] = scored
        self.profile = [] if inference is None else inference.profile(parts)

    def _tried(self, name: str) -> Observer | None:
        """Return an observer; of ``all``, one that proves impossible is left out and named."""
        try:
            return OBSERVERS[name](self.scene)
        except (ResourceLimitError, InvalidParameterError) as error:
            if not self._plan.settings.takes_all:
                raise
            self.left_out[name] = str(error)
            return None

    def _look_up(self) -> None:
        """Attack on a graph of any size: each update has candidates of its own."""
        scene, judge, search = self.scene, self._judge, LookedUp(self.scene)
        observers = [OBSERVERS[name](scene) for name in self._plan.observers]
        training, scoring = (_thinned(np.flatnonzero(scene.training == part), search.most()) for part in (True, False))
        if self._plan.calibrates:
            require(training, "was left to calibrate on")
            uses = [observer.use_last_hop for observer in observers if observer.timed]
            search.learn(training, uses, self._progress)
        require(scoring, "was left to score")
        scores = {observer.name: np.zeros((len(scoring), len(SCORES))) for observer in observers}
        blind, hows = np.zeros(len(scoring)), dict.fromkeys(scores, "")
        for number, found in enumerate(search.candidates(scoring, "attacking", self._progress)):
            row = np.array([found.row])
            node = int(scene.seen.destination[found.row])
            place = Place(node, row, scene.seen.at(row), found.prior, search.local(found))
            blind[number] = found.prior.max()
            for observer in observers:
                guess = observer.posterior(place)
                hows[observer.name] = guess.how
                scores[observer.name][number] = judge.score_candidates(guess, found.row, found.nodes, found.away)
        self.found = {name: judge.scored(scoring, table, hows[name], blind) for name, table in scores.items()}


def _thinned(rows: IntArray, most: int) -> IntArray:
    return rows[:: -(-len(rows) // most) or 1]
