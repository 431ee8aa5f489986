"""Colluders: some nodes, the destination among them, pool what they saw of identical ciphertexts."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from veilwalk.audit._plan import Plan
from veilwalk.audit._scene import Scene, require
from veilwalk.audit.inference import Posterior
from veilwalk.audit.inference.coalition import coalition_of
from veilwalk.audit.inference.rehearsed_sights import SealedSights
from veilwalk.audit.inference.sealed import opened_by
from veilwalk.audit.observers._base import Observer, Place
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.walks import recipients_of

# Sets of colluders that the mean of the best guess is over.
_SETS = 1_024


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
        return self._coalition.posterior(self.name, place.seen)


class Bridge(FirstSight):
    """Who also have a common clock."""

    name = "bridge"
    sees = "first sight, and with a common clock who last held the ciphertext before it, and where it went"

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._coalition.count_bridges()


class Predecessor(FirstSight):
    """Who also know what they chose themselves: the source, or of several recipients the set it is in."""

    name = "predecessor"
    sees = "first sight, and a colluder that made the update before knows whom it sealed it for"

    def posterior(self, place: Place) -> Posterior:
        """Return what they infer; of several recipients each is as likely as the walk from the colluder makes it."""
        found = super().posterior(place)
        drawn = np.flatnonzero(place.seen.told_by >= 0)
        if not isinstance(self._coalition, SealedSights) or not len(drawn):
            return found
        rows, opened = self._openers
        opened = opened[np.searchsorted(rows, place.rows[drawn])]
        found.weights[drawn] = self._coalition.told(place.seen.at(drawn), opened)
        return found

    def facts(self) -> dict[str, float]:
        """Return how likely the likeliest of a colluder's own recipients is to open, on average; of several only.

        Nothing, too, where no colluder drew any in the updates that were played.
        """
        scene = self.scene
        drawn = np.flatnonzero(scene.seen.told_by >= 0)
        if scene.scheme.recipients == 1 or not len(drawn):
            return {}
        best = self._opened(drawn[:: -(-len(drawn) // _SETS) or 1]).max(axis=1)
        error = float(best.std(ddof=1)) / len(best) ** 0.5 if len(best) > 1 else 1.0
        return {"best_guess_of_set": float(best.mean()), "best_guess_of_set_error": error}

    @cached_property
    def _openers(self) -> tuple[IntArray, FloatArray]:
        """The updates made by one of a set that a colluder drew, ascending, and how likely each node opened it."""
        rows = np.sort(self.rows())
        drawn = rows[self.scene.seen.told_by[rows] >= 0]
        return drawn, self._opened(drawn)

    def _opened(self, rows: IntArray) -> FloatArray:
        """How likely each node of the sets that colluders drew is to open; exact where the walk is a chain."""
        scene, seen = self.scene, self.scene.seen.at(rows)
        sets = recipients_of(
            scene.graph,
            scene.law.draws,
            scene.scheme.recipients,
            seed=scene.settings.seed,
            lane=scene.lane[rows],
            source=seen.told_by,
            clock=seen.told_clock,
        )
        return opened_by(scene.chain, seen.told_from, seen.told_by, sets)
