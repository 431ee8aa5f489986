"""Every observer's posteriors on one run, scored; destinations are taken in turn, so that one law is in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from veilwalk.audit._judge import Judge
from veilwalk.audit._plan import Plan
from veilwalk.audit._play import Run, choose_colluders, play
from veilwalk.audit._report import Scored
from veilwalk.audit._scene import Scene, require
from veilwalk.audit._scores import SCORES
from veilwalk.audit._scoring import Scorer, Work
from veilwalk.audit.inference import inference_of
from veilwalk.audit.inference.looked_up import LookedUp
from veilwalk.audit.inference.rehearsal import rehearse
from veilwalk.audit.observers import OBSERVERS, Observer, Place
from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.core.progress import Progress

Profile = list[dict[str, Any]]


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
