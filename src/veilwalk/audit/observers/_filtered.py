"""What observers share who follow the token through all that they saw of it."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

import numpy as np

from veilwalk.audit._member_log import MemberLog
from veilwalk.audit._plan import Plan
from veilwalk.audit.inference import Posterior
from veilwalk.audit.inference.filter import Filter, segments
from veilwalk.audit.observers._base import Observer, Place
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray

# Products that take about a minute on two cores; the most answers unless more are asked for, the fewest for ``all``.
_WORK, _MOST, FEWEST = 1e11, 1_000, 256
_LAYERS = 64
_HOW = "exact: all that they saw"

# Pairs of rows: an opening by somebody, and the next opening by the same.
Ends = IntArray


class Filtered(Observer):
    """Who pool every sighting with its time, what they drew themselves, and which ciphertexts are the same."""

    alone = False

    @classmethod
    def unsuited(cls, plan: Plan) -> str | None:
        """Only walks that are chains, on graphs that are not too large."""
        n_nodes, most = plan.scheme.graph.n_nodes, plan.settings.exact_nodes
        if n_nodes > most:
            return f"it takes up to {most} nodes, the graph has {n_nodes}"
        return f"the {plan.scheme.walk.kind} walk is no chain" if plan.scheme.chain is None else None

    @classmethod
    def in_all(cls, plan: Plan) -> bool:
        """Where enough answers are had in about a minute."""
        return cls.affordable(plan) >= FEWEST

    @classmethod
    def own_bytes(cls, plan: Plan) -> int:
        """Return what the filter holds: layers of positions by destinations, and its answers."""
        n_nodes, arcs = plan.scheme.graph.n_nodes, len(plan.scheme.graph.indices)
        states = arcs if plan.without_node_chain else n_nodes
        return 8 * n_nodes * (_LAYERS * states + (plan.settings.scored_by_filter or _MOST))

    @classmethod
    def affordable(cls, plan: Plan) -> int:
        """Return how many answers were asked for, or else take about a minute."""
        if plan.settings.scored_by_filter:
            return plan.settings.scored_by_filter
        hops = plan.scheme.price.hops * cls.updates_between(plan)
        states = len(plan.scheme.graph.indices) if plan.without_node_chain else plan.scheme.graph.n_nodes
        degree = len(plan.scheme.graph.indices) / plan.scheme.graph.n_nodes
        return int(min(_WORK / (hops * states * degree * plan.scheme.graph.n_nodes), _MOST))

    @classmethod
    @abstractmethod
    def updates_between(cls, plan: Plan) -> float:
        """Return how many updates have to be followed for one answer, about."""

    @property
    def most(self) -> int:
        """How many answers are asked for."""
        return max(self.affordable(self.scene.plan), 1)

    def filter(self, *, counted: bool) -> Filter:
        """Return the filter of this scene."""
        return self.scene.once(
            (Filter, counted), lambda: Filter(self.scene.chain.states, self.scene.law.matrix, counted=counted)
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
        return Posterior(weights[np.searchsorted(rows, place.rows)], _HOW)


class FilteredAlone(Filtered):
    """One node that watches by itself."""

    @classmethod
    def updates_between(cls, plan: Plan) -> float:
        """Each node is chosen every so many updates."""
        return float(plan.scheme.graph.n_nodes)

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
