"""One relay by itself: what it knows of ciphertexts that it only passes on."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from veilwalk.audit._plan import Plan
from veilwalk.audit._scene import require
from veilwalk.audit.inference.filter import straight_back
from veilwalk.audit.observers._filtered import CERTAIN, FilteredAlone, thinned
from veilwalk.core.arrays import FloatArray, IntArray


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

    @classmethod
    def hops_between(cls, plan: Plan) -> float:
        """From one sight of a new ciphertext to the next."""
        return max(plan.scheme.graph.n_nodes, plan.scheme.price.hops)

    @property
    def prior(self) -> FloatArray:
        """How often each node makes updates: whom they are for, a relay does not know."""
        return np.tile(self.scene.scheme.source_prior, (self.scene.graph.n_nodes, 1))

    @cached_property
    def answers(self) -> tuple[IntArray, FloatArray]:
        """Updates that relays saw between two openings of their own, each scored for one relay."""
        # Between two openings of its own so many ciphertexts pass a relay: it is passed once in as many hops as nodes.
        passed = min(self.scene.graph.n_nodes / 2, self.scene.scheme.price.hops)
        most = math.ceil(self.most / passed)
        ends = thinned(require(self.visits, "came to a destination for the second time"), max(most, 4))
        masks = self.watching(ends)
        weights, rows = self.filtered.first_sights(self.logs(ends, masks), masks, self.scene.progress)
        rows, first = np.unique(rows, return_index=True)
        return rows, weights[first]

    def facts(self) -> dict[str, float]:
        """Return how often a maker is known for certain: to some relay, and to one relay of what it sees."""
        scene = self.scene
        back = straight_back(scene.scheme, scene.settings, seen=scene.seen, lanes=scene.lane)
        predicted = scene.scheme.certain_to_a_relay()
        facts = super().facts() | {
            "certain_to_a_relay": back,
            "certain_at_first_sight": float((self.answers[1] > CERTAIN).any(1).mean()),
        }
        return facts if predicted is None else facts | {"certain_to_a_relay_predicted": predicted}
