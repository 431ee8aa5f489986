"""What observers share who follow the token through all that they saw of it."""

from __future__ import annotations

import os
from abc import abstractmethod
from functools import cached_property

import numpy as np

from veilwalk.audit._settings import Plan
from veilwalk.audit.inference import Posterior
from veilwalk.audit.inference.filter import EVERY, Filter, MemberLog, segments
from veilwalk.audit.inference.sampled_filter import LEGS, LEVEL_BYTES, SampledFilter
from veilwalk.audit.observers._base import Observer, Place
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray

# Products that take about a minute on two cores; the most answers unless more are asked for.
_WORK, _MOST_ANSWERS = 1e11, 1_000
# What takes longer is refused, unless the settings say how many answers.
_LONGEST_MINUTES = 60.0
_LAYERS = 64
_HOW = "exact: all that they saw"
#: Weights above this are certain.
CERTAIN = 1.0 - 1e-9
# Where paths are sampled: nanoseconds for a hop of one, and for each sealing that it may carry; how long a minute is.
_HOP_NS, _SEALING_NS, _MINUTE_NS = 250.0, 3.0, 1.0e11
# Sealings that are followed at a time: of so many legs, or of so many gaps.
_LEGS, _GAPS, _MOST_SEALINGS = 6.0, 2.0, 1_024

# Pairs of rows: an opening by somebody, and the next opening by the same.
Ends = IntArray


class Filtered(Observer):
    """Who pool every sighting with its time, what they drew themselves, and which ciphertexts are the same."""

    alone, missed_by_readers = False, True
    #: The fewest answers that are worth a row, however long one takes; and the minutes that ``all`` grants to all.
    least_answers = 64
    default_minutes = 1.0
    #: Numbers of updates behind its back that it tells apart by counts it reads; none where it reads none. Some, but
    #: not every one, only where the filter is exact.
    told_apart = 0
    #: Paths that are sampled at a time where they are.
    particles = 400
    #: Whether they remember for whom they sealed; benchmarks ask what that adds, where paths are sampled.
    own_draws = True

    @classmethod
    def sampled(cls, plan: Plan) -> bool:
        """Whether paths are sampled: for several recipients, and on graphs too large for the exact filter."""
        return plan.scheme.recipients > 1 or plan.scheme.graph.n_nodes > plan.settings.exact_nodes

    @classmethod
    def unsuited(cls, plan: Plan) -> str | None:
        """Only what does not take hours."""
        return cls._reason_of_time(plan, _LONGEST_MINUTES)

    @classmethod
    def reason_to_skip(cls, plan: Plan) -> str | None:
        """Only where its fewest answers take no longer than ``all`` grants."""
        return cls._reason_of_time(plan, cls.default_minutes)

    @classmethod
    def _reason_of_time(cls, plan: Plan, most_minutes: float) -> str | None:
        """Return that its answers would take longer than so many minutes; None where they do not, or were asked for."""
        answers = cls.answer_count(plan)
        minutes = answers / max(cls._per_minute(plan), 1e-9)
        if plan.settings.scored_by_filter or minutes <= most_minutes:
            return None
        time = f"{minutes:.0f} minutes" if minutes < 2 * _LONGEST_MINUTES else f"{minutes / 60:.0f} hours"
        return f"{answers} answers would take about {time}"

    @classmethod
    def own_bytes(cls, plan: Plan) -> int:
        """Return what the filter holds: layers of positions by destinations or paths, and its answers."""
        n_nodes, arcs = plan.scheme.graph.n_nodes, len(plan.scheme.graph.indices)
        states = arcs if plan.without_node_chain else n_nodes
        answers = 8 * n_nodes * (plan.settings.scored_by_filter or _MOST_ANSWERS)
        if not cls.sampled(plan):
            return 8 * n_nodes * _LAYERS * states + answers
        each = cls.particles * (4 * n_nodes + 12 * 8 * min(int(2 * cls._gap(plan)), _MOST_SEALINGS))
        return (os.cpu_count() or 1) * (each + LEVEL_BYTES) + answers

    @classmethod
    def answer_count(cls, plan: Plan) -> int:
        """Return how many answers were asked for, or else take about a minute: from the fewest to the most."""
        most = min(cls._per_minute(plan), _MOST_ANSWERS)
        return plan.settings.scored_by_filter or max(int(most), cls.least_answers)

    @classmethod
    def _per_minute(cls, plan: Plan) -> float:
        """Return how many answers take about a minute."""
        hops = plan.scheme.price.hops * cls.updates_between(plan)
        if cls.sampled(plan):
            sealings = min(_LEGS * plan.scheme.price.hops, _GAPS * cls._gap(plan))
            return _MINUTE_NS / (cls.hops_between(plan) * cls.particles * (_HOP_NS + _SEALING_NS * sealings))
        states = len(plan.scheme.graph.indices) if plan.without_node_chain else plan.scheme.graph.n_nodes
        degree = len(plan.scheme.graph.indices) / plan.scheme.graph.n_nodes
        return _WORK / (hops * states * degree * plan.scheme.graph.n_nodes)

    @classmethod
    def _gap(cls, plan: Plan) -> float:
        """Return the mean hops from one sighting to the next."""
        return plan.scheme.graph.n_nodes / cls.watchers(plan)

    @classmethod
    def watchers(cls, plan: Plan) -> int:
        """Return how many nodes watch together: one, unless it says otherwise."""
        del plan
        return 1

    @classmethod
    @abstractmethod
    def hops_between(cls, plan: Plan) -> float:
        """Return how many hops paths are sampled on for one answer, about."""

    @classmethod
    @abstractmethod
    def updates_between(cls, plan: Plan) -> float:
        """Return how many updates have to be followed for one answer, about."""

    @property
    def most(self) -> int:
        """How many answers are asked for."""
        return self.answer_count(self.scene.plan)

    @cached_property
    def filtered(self) -> Filter | SampledFilter:
        """The filter of this observer; an exact one is shared."""
        scene, told_apart = self.scene, self.told_apart
        states, counted = scene.chain.states, told_apart > 0
        if self.sampled(scene.plan):
            return SampledFilter(
                scene.scheme,
                states,
                counted=told_apart == EVERY,
                particles=self.particles,
                seed=scene.settings.seed,
                own_draws=self.own_draws,
            )
        return scene.once(
            (Filter, told_apart),
            lambda: Filter(states, scene.law.matrix, counted=counted, told_apart=told_apart or EVERY),
        )

    def logs(self, ends: Ends, member: BoolArray) -> list[MemberLog]:
        """Return what ``member`` saw between these openings."""
        scene = self.scene
        return segments(scene.scheme, scene.settings, seen=scene.seen, lanes=scene.lane, ends=ends, member=member)

    @property
    @abstractmethod
    def answers(self) -> tuple[IntArray, FloatArray]:
        """The rows it is asked about, ascending, and who made each."""

    def rows(self) -> IntArray:
        """Return the updates it is asked about."""
        return self.answers[0]

    def posterior(self, place: Place) -> Posterior:
        """Return what it infers; all updates are worked out when the first is asked for."""
        rows, weights = self.answers
        return Posterior(weights[np.searchsorted(rows, place.rows)], self.how)

    def softened(self, weights: FloatArray, prior: FloatArray) -> FloatArray:
        """Return posteriors that can be joined: what no sampled path came by is unlikely, but not impossible.

        The prior is given the weight of one path.
        """
        return (self.particles * weights + prior) / (self.particles + 1) if self.sampled(self.scene.plan) else weights

    @property
    def how(self) -> str:
        """How it infers, in the words of the record."""
        return f"estimated: sampled paths, {self.particles} at a time" if self.sampled(self.scene.plan) else _HOW

    def facts(self) -> dict[str, float]:
        """Return how many paths were sampled, and of which share of answers none could tell anything."""
        found = self.filtered
        return {"particles": found.particles, "untold": found.lost} if isinstance(found, SampledFilter) else {}


class FilteredAlone(Filtered):
    """One node that watches by itself. What it knows is vague, and takes more paths to tell."""

    particles = 1_000

    @classmethod
    def updates_between(cls, plan: Plan) -> float:
        """Each node is chosen every so many updates."""
        return float(plan.scheme.graph.n_nodes)

    @classmethod
    def hops_between(cls, plan: Plan) -> float:
        """What went before some legs is forgotten."""
        return LEGS * plan.scheme.price.hops + plan.scheme.graph.n_nodes

    @cached_property
    def visits(self) -> Ends:
        """Openings by one node that follow each other in one lane."""
        scene = self.scene
        return following(np.arange(len(scene.lane)), scene.lane * scene.graph.n_nodes + scene.seen.destination)

    def watching(self, ends: Ends) -> BoolArray:
        """Return masks of the one node that opened at both ends, a row a pair."""
        return np.asarray(self.scene.seen.destination[ends[:, 1], np.newaxis] == np.arange(self.scene.graph.n_nodes))


def following(rows: IntArray, who: IntArray) -> Ends:
    """Return pairs of ``rows`` that follow each other with the same ``who``, in the order of the second."""
    order = np.argsort(who, kind="stable")
    same = who[order[1:]] == who[order[:-1]]
    pairs = np.stack((rows[order[:-1][same]], rows[order[1:][same]]), axis=1)
    return np.asarray(pairs[np.argsort(pairs[:, 1])])


def thinned(rows: IntArray, most: int) -> IntArray:
    """Return at most so many of the rows, evenly spread."""
    return rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.int64)]
