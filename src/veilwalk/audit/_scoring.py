"""Observers scored on one run, in parts that can be done anywhere: some destinations, or one observer.

A part depends on the scene and on its own name only, so that the same scores come of one process and of many machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from veilwalk.audit._judge import Judge
from veilwalk.audit._report import Scored
from veilwalk.audit._scene import Scene, require
from veilwalk.audit._scores import SCORES
from veilwalk.audit.inference import Inference
from veilwalk.audit.observers import Observer, Place
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.core.progress import Progress, silent
from veilwalk.engine import JobStore, one_blas_thread, run_jobs

# Destinations of a job.
_DESTINATIONS = 16
_LEFT_OUT = "left out"
#: Where destinations are scored: for each observer its rows with their scores, or its groups of linked updates.
_Part = dict[str, Any]


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
