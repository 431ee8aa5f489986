"""Exact posteriors: the joint law of return time, last hop and source, followed on the chain of the walk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilwalk.audit._plan import Plan
from veilwalk.audit._scene import Scene
from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference._base import EXACT, Evidence, Inference, Local, Posterior, for_one
from veilwalk.audit.inference.profile import DistanceProfile
from veilwalk.chains import DeliveryLaw
from veilwalk.core.arrays import FloatArray, IntArray, normalised


def last_hop_joint(delivery: DeliveryLaw, return_time: IntArray, last_hop: IntArray) -> FloatArray:
    """Return P(return time, last hop, source) for each sighting at one destination; times past the horizon pooled."""
    entry, inside = np.searchsorted(delivery.neighbours, last_hop), return_time < len(delivery.joint)
    rows = delivery.joint[np.where(inside, return_time, 0), entry]
    return np.where(inside[:, np.newaxis], rows, delivery.beyond[entry])


@dataclass(frozen=True, eq=False)
class FromLaw(Local):
    """What a delivery law says at its destination; times past its horizon are told apart only as such."""

    delivery: DeliveryLaw
    n_nodes: int
    how: str = EXACT

    def posterior(self, seen: Sightings, *, use_last_hop: bool) -> Posterior:
        """Return the law's posterior."""
        law = self.delivery
        if use_last_hop:
            weight = last_hop_joint(law, seen.return_time, seen.last_hop)
        else:
            table = np.concatenate((law.joint.sum(axis=1), law.beyond.sum(axis=0)[np.newaxis]))
            weight = table[np.minimum(seen.return_time, len(law.joint))]
        full = np.zeros((len(weight), self.n_nodes))
        full[:, law.sources] = normalised(weight)
        return Posterior(full, self.how)

    def evidence(self, seen: Sightings) -> Evidence:
        """Return the law's sources and the joint probabilities."""
        weights = last_hop_joint(self.delivery, seen.return_time, seen.last_hop)
        return Evidence(self.delivery.sources, weights, self.how)


class Exact(Inference):
    """From the chain of the walk, on nodes or on arcs."""

    name = "exact"

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._profile = DistanceProfile(scene.support, scene.plan.horizon)

    @classmethod
    def why_not(cls, plan: Plan) -> str | None:
        """Only on graphs that are not too large, to one recipient."""
        if (why := for_one(plan)) is not None:
            return why
        n_nodes, most = plan.scheme.graph.n_nodes, plan.settings.exact_nodes
        if n_nodes > most:
            return f"exact ones take up to {most} nodes, the graph has {n_nodes}"
        return None

    def at(self, nodes: IntArray) -> Iterator[Local]:
        """Yield the exact law at each destination; one is in memory at a time."""
        scene = self._scene
        for delivery in scene.chain.deliveries(scene.matrix, scene.plan.horizon, nodes):
            self._profile.add(delivery, scene.apart[delivery.destination])
            yield FromLaw(delivery, scene.graph.n_nodes)

    @property
    def profile_parts(self) -> list[Any]:
        """What each destination adds to the profile."""
        return self._profile.parts

    def profile(self, parts: Sequence[Any]) -> list[dict[str, Any]]:
        """Posterior of one node by distance and return time."""
        return self._profile.rows(parts)
