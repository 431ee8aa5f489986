"""Colluders who use everything: every sighting of every ciphertext, its time, and what they drew themselves."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from veilwalk.audit._plan import Plan
from veilwalk.audit._scene import require
from veilwalk.audit.observers._filtered import Filtered, following, thinned
from veilwalk.core.arrays import FloatArray, IntArray


class Coalition(Filtered):
    """The strongest coalition: nothing that its members see is left unused."""

    name = "coalition"
    sees = "colluders share everything: sightings of all ciphertexts with their times, own draws, update counts"
    colluding = True

    @classmethod
    def updates_between(cls, plan: Plan) -> float:
        """Some colluder is chosen every so many updates, and between sightings the token does not get far."""
        colluders = plan.colluders or plan.settings.colluders or max(plan.scheme.graph.n_nodes / 10, 1)
        return float(plan.scheme.graph.n_nodes / colluders**1.5)

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
        ends = self.chosen()
        weights = self.filter(counted=True).opened(
            self.logs(ends, self.scene.member), self.scene.member, self.scene.progress
        )
        return ends[:, 1], weights
