"""Colluders: some nodes, the destination among them, pool what they saw of identical ciphertexts."""

from __future__ import annotations

import numpy as np

from veilwalk.audit._plan import Plan
from veilwalk.audit._scene import Scene, require
from veilwalk.audit.inference import Posterior
from veilwalk.audit.inference.coalition import coalition_of
from veilwalk.audit.observers._base import Observer, Place
from veilwalk.core.arrays import FloatArray, IntArray


class FirstSight(Observer):
    """Who know which of them first held the ciphertext."""

    name, sees = "first-sight", "colluders share which of them first held the ciphertext, and from whom"
    colluding, alone = True, False

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._coalition = coalition_of(scene)

    @classmethod
    def rehearses(cls, plan: Plan) -> bool:
        """Where no chain on the nodes tells, of several recipients none does, or where all is to be rehearsed."""
        return plan.without_node_chain or plan.posterior == "rehearsed" or plan.scheme.recipients > 1

    @property
    def prior(self) -> FloatArray:
        """None of themselves: their own updates they know."""
        return self.scene.honest_prior

    def rows(self) -> IntArray:
        """Return updates that went to a colluder and came from somebody else."""
        scene = self.scene
        rows = np.flatnonzero(scene.member[scene.seen.destination] & ~scene.own)
        rows = rows[:: -(-len(rows) // scene.settings.scored_by_few) or 1]
        return require(rows, "went to a colluder from somebody else")

    def posterior(self, place: Place) -> Posterior:
        """Return what they infer together."""
        return self._coalition.posterior(place.seen)
