"""Colluders who use everything: every sighting of every ciphertext, its time, and what they drew themselves."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from veilwalk.audit._plan import Plan
from veilwalk.audit._scene import require
from veilwalk.audit.inference.filter import EVERY, Filter
from veilwalk.audit.observers._filtered import Filtered, following, thinned
from veilwalk.core.arrays import FloatArray, IntArray, normalised


class Coalition(Filtered):
    """The strongest coalition: nothing that its members see is left unused."""

    name = "coalition"
    sees = "colluders share everything: sightings of all ciphertexts with their times, own draws, update counts"
    colluding = True
    told_apart = EVERY
    # It is the strongest: without it an audit says little of colluders.
    default_minutes = 20.0

    @classmethod
    def updates_between(cls, plan: Plan) -> float:
        """Some colluder is chosen every so many updates, and between sightings the token does not get far."""
        return float(plan.scheme.graph.n_nodes / cls.watchers(plan) ** 1.5)

    @classmethod
    def watchers(cls, plan: Plan) -> int:
        """All of them."""
        return plan.colluders or plan.settings.colluders or max(round(plan.scheme.graph.n_nodes / 10), 1)

    @classmethod
    def hops_between(cls, plan: Plan) -> float:
        """From one opening by a colluder to the next."""
        return plan.scheme.price.hops * plan.scheme.graph.n_nodes / cls.watchers(plan)

    @property
    def prior(self) -> FloatArray:
        """None of themselves: their own updates they know."""
        return self.scene.honest_prior

    @cached_property
    def openings(self) -> IntArray:
        """Pairs of openings by colluders that follow each other, where somebody else made what was opened last."""
        scene = self.scene
        rows = np.flatnonzero(scene.member[scene.seen.destination])
        ends = following(rows, scene.lane[rows])
        return require(ends[~scene.own[ends[:, 1]]], "went to a colluder from somebody else")

    def chosen(self) -> IntArray:
        """Return the openings it is asked about."""
        return thinned(self.openings, self.most)

    @cached_property
    def answers(self) -> tuple[IntArray, FloatArray]:
        """The updates that went to a colluder from somebody else, and who made them."""
        ends, scene, filtered = self.chosen(), self.scene, self.filtered
        if isinstance(filtered, Filter):
            return ends[:, 1], filtered.opened(self.logs(ends, scene.member), scene.member, scene.progress)
        rows, weights = self.held
        return ends[:, 1], weights[np.searchsorted(rows, ends[:, 1])]

    @cached_property
    def held(self) -> tuple[IntArray, FloatArray]:
        """All updates that a colluder held between these openings, ascending, and who made them."""
        scene, filtered = self.scene, self.filtered
        if isinstance(filtered, Filter):
            raise TypeError("the exact filter answers for what is opened")
        logs = self.logs(self.chosen(), scene.member)
        weights, rows = filtered.held(logs, scene.member, scene.progress)
        order = np.argsort(rows)
        return rows[order], weights[order]

    def facts(self) -> dict[str, float]:
        """Return also, of all updates by others, how many they held, and how many they expect to name.

        Those are the means of their best guesses; of what none of them ever held it is a blind one.
        """
        facts = super().facts()
        if facts:
            rows, weights = self.held
            made = int((self.chosen() @ np.array([-1, 1]) - 1).sum())
            outside = normalised(np.where(self.scene.member, 0.0, self.scene.scheme.source_prior))
            named = weights.max(axis=1).sum() + (made - len(rows)) * outside.max()
            facts |= {"held_of_all": len(rows) / made, "expected_hits_of_all": float(named / made)}
        return facts
