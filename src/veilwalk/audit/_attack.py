"""Every observer's posteriors on one run, scored; destinations are taken in turn, so that one law is in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from veilwalk.audit._judge import Judge
from veilwalk.audit._plan import Plan
from veilwalk.audit._play import Run, choose_colluders, play
from veilwalk.audit._report import Scored
from veilwalk.audit._scene import Scene, require
from veilwalk.audit._scores import SCORES
from veilwalk.audit.inference import Inference, inference_of
from veilwalk.audit.inference.looked_up import LookedUp
from veilwalk.audit.inference.rehearsal import rehearse
from veilwalk.audit.observers import OBSERVERS, Observer, Place
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.core.progress import Progress

_Found = TypeVar("_Found")
Profile = list[dict[str, Any]]


class Attack:
    """A played plan and what each observer made of it.

    Attributes:
        run: What was played.
        scene: What observers may know of it.
        found: Their scored updates, in the order asked.
        profile: Posterior of one node by distance and return time, where it is exact.
        left_out: Observers of ``all`` that turned out not to be possible, with the reason.
    """

    def __init__(self, plan: Plan, progress: Progress) -> None:
        """Play and attack."""
        self._plan, self._progress = plan, progress
        graph, settings = plan.scheme.graph, plan.settings
        colluders = choose_colluders(graph, plan.colluders, settings.seed, placement=settings.placement)
        self.run: Run = play(plan.scheme, plan.settings, colluders, progress=progress)
        self.scene = Scene(plan, self.run)
        self.scene.progress = progress
        self._judge = Judge(self.scene, self.run.truth)
        self.found: dict[str, Scored] = {}
        self.profile: Profile = []
        self.left_out: dict[str, str] = {}
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
        tried = [self._tried(name, partial(OBSERVERS[name], scene)) for name in plan.observers]
        observers = [observer for observer in tried if observer is not None]
        inference = inference_of(plan)(scene) if plan.timed else None
        rehearse(scene, self._progress)
        alone = [observer for observer in observers if observer.alone]
        if alone:
            self._destinations(alone, inference)
        for observer in observers:
            if not observer.alone:
                self._progress(f"attacking: {observer.name}")
                scored = self._tried(observer.name, partial(self._one, observer))
                if scored is not None:
                    self.found[observer.name] = scored
        self.profile = [] if inference is None else inference.profile

    def _tried(self, name: str, attempt: Callable[[], _Found]) -> _Found | None:
        """Return what is attempted; of ``all`` observers, one that proves impossible is left out and named."""
        try:
            return attempt()
        except (ResourceLimitError, InvalidParameterError) as error:
            if not self._plan.settings.takes_all:
                raise
            self.left_out[name] = str(error)
            return None

    def _destinations(self, observers: Sequence[Observer], inference: Inference | None) -> None:
        """Score every update under each observer that is its destination alone."""
        scene, seen, judge = self.scene, self.scene.seen, self._judge
        rows = require(observers[0].rows(), "was left to score")
        nodes = np.unique(seen.destination[rows])
        tables = {observer.name: _Table(len(seen), observer.links) for observer in observers}
        known = inference.at(nodes) if inference is not None else iter([None] * len(nodes))
        for number, ((node, mine), local) in enumerate(zip(scene.by_destination(rows), known, strict=True), start=1):
            place = Place(node, mine, seen.at(mine), scene.prior[node], local)
            for observer in observers:
                tables[observer.name].add(observer, place, judge)
            self._progress("attacking", number, len(nodes), "destinations")
        sampled = not scene.attacked.all()
        for observer in observers:
            self.found[observer.name] = tables[observer.name].scored(observer, rows, judge, sampled=sampled)

    def _one(self, observer: Observer) -> Scored:
        """Score an observer that has updates of its own."""
        if observer.links:
            return self._joined(observer)
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

    def scored(self, observer: Observer, rows: IntArray, judge: Judge, *, sampled: bool = False) -> Scored:
        if self._groups:
            return judge.linked(self._groups, self._how)
        blind = observer.prior.max(axis=1)[observer.scene.seen.destination[rows]]
        return judge.scored(rows, self._scores[rows], self._how, blind, sampled=sampled)


def _thinned(rows: IntArray, most: int) -> IntArray:
    return rows[:: -(-len(rows) // most) or 1]
