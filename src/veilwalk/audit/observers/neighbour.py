"""One relay by itself: what it knows of ciphertexts that it only passes on."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from veilwalk.audit._plan import Plan
from veilwalk.audit._scene import require
from veilwalk.audit.inference.filter import straight_back
from veilwalk.audit.observers._filtered import FilteredAlone, thinned
from veilwalk.core.arrays import FloatArray, IntArray

# Weights this close to one are certain.
_CERTAIN = 1.0 - 1e-9


class Neighbour(FilteredAlone):
    """A relay that hands on a ciphertext and gets another one back: straight back, and it knows the maker for certain.

    It is asked about every ciphertext when it first holds it, by all that it knows then.
    """

    name = "neighbour"
    sees = "one relay: every ciphertext it passes on, with times; the first sight of each is scored"

    @classmethod
    def updates_between(cls, plan: Plan) -> float:
        """Every other ciphertext passes a relay, and is followed there and back."""
        del plan
        return 4.0

    @property
    def prior(self) -> FloatArray:
        """How often each node makes updates: whom they are for, a relay does not know."""
        return np.tile(self.scene.law.source_prior, (self.scene.graph.n_nodes, 1))

    @cached_property
    def answers(self) -> tuple[IntArray, FloatArray]:
        """Updates that relays saw between two openings of their own, each scored for one relay."""
        most = -(-2 * self.most // self.scene.graph.n_nodes)
        ends = thinned(require(self.visits, "came to a destination for the second time"), max(most, 4))
        masks = self.watching(ends)
        weights, rows = self.filter(counted=False).first_sights(self.logs(ends, masks), masks, self.scene.progress)
        rows, first = np.unique(rows, return_index=True)
        return rows, weights[first]

    def facts(self) -> dict[str, float]:
        """Return how often a maker is known for certain: to some relay, and to one relay of what it sees."""
        scene = self.scene
        back = straight_back(scene.scheme, scene.settings, seen=scene.seen, lanes=scene.lane)
        predicted = scene.scheme.certain_to_a_relay()
        facts = {
            "certain_to_a_relay": back,
            "certain_at_first_sight": float((self.answers[1] > _CERTAIN).any(1).mean()),
        }
        return facts if predicted is None else facts | {"certain_to_a_relay_predicted": predicted}
