"""Computes exact posteriors from laws; they are certain where nothing is sealed.

The joint law of return time, last hop and source is followed on the chain of the walk. On larger graphs a sample of
destinations is followed, and only to a horizon that takes a few minutes; longer return times are pooled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilwalk.audit._scene import Scene
from veilwalk.audit._settings import Plan
from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference._base import EXACT, Evidence, Inference, Local, Posterior, for_one
from veilwalk.chains import DeliveryLaw
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.sizes import SAMPLED_EXACT_NODES
from veilwalk.core.stats import geometric_starts
from veilwalk.core.support import DistanceSupport

_BINS = 28


class DistanceProfile:
    """Sums of exact delivery laws by return-time bin and distance of the source."""

    def __init__(self, support: DistanceSupport, horizon: int) -> None:
        self._support = support
        # No delivery is quicker than twice the shortest distance; a horizon below that leaves nothing to show.
        self._edges = geometric_starts(2 * support.lo, max(horizon + 1, 2 * support.lo), _BINS + 1)
        #: Of each destination: mass by bin and distance, and nodes by distance.
        self.parts: list[tuple[FloatArray, IntArray]] = []

    def add(self, delivery: DeliveryLaw, hops_away: IntArray) -> None:
        """Add the law of one destination; ``hops_away`` holds the distance of every node from it."""
        if len(self._edges) < 2:
            return
        shells = hops_away[delivery.sources] == self._support.distances[:, np.newaxis]
        by_source: FloatArray = np.add.reduceat(delivery.joint.sum(axis=1), self._edges[:-1], axis=0)
        self.parts.append((by_source @ shells.T, shells.sum(axis=1)))

    def rows(self, parts: Sequence[tuple[FloatArray, IntArray]]) -> list[dict[str, Any]]:
        """Return, for each bin that can happen, the posterior weight of ONE node at each distance.

        Parts are those of all destinations, in their order, whoever followed them.
        """
        masses, nodes = np.zeros((len(self._edges) - 1, self._support.size)), np.zeros(self._support.size)
        for mass, shells in parts:
            masses += mass
            nodes += shells
        shell = np.maximum(nodes / max(len(parts), 1), 1e-300)
        return [
            {
                "return_time": float(np.sqrt(begin * (end - 1.0))),
                "distances": self._support.distances.tolist(),
                "weight_of_one_node": (mass / mass.sum() / shell).tolist(),
            }
            for begin, end, mass in zip(self._edges[:-1], self._edges[1:], masses, strict=True)
            if mass.sum() > 0
        ]


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
        self._how = EXACT
        if scene.plan.samples_destinations:
            destinations, horizon = scene.settings.sampled_destinations, scene.plan.horizon
            self._how = f"exact at up to {destinations} destinations, return times above {horizon} hops pooled"

    @classmethod
    def why_not(cls, plan: Plan) -> str | None:
        """Only on graphs that are not too large, to one recipient."""
        if (why := for_one(plan)) is not None:
            return why
        n_nodes, most = plan.scheme.graph.n_nodes, plan.settings.exact_nodes
        if not plan.without_node_chain:
            most = max(most, SAMPLED_EXACT_NODES)
        if n_nodes > most:
            return f"exact ones take up to {most} nodes with the {plan.scheme.walk.kind} walk, the graph has {n_nodes}"
        return None

    def at(self, nodes: IntArray) -> Iterator[Local]:
        """Yield the exact law at each destination; one is in memory at a time."""
        scene = self._scene
        for delivery in scene.chain.deliveries(scene.matrix, scene.plan.horizon, nodes):
            self._profile.add(delivery, scene.apart[delivery.destination])
            yield FromLaw(delivery, scene.graph.n_nodes, self._how)

    @property
    def profile_parts(self) -> list[Any]:
        """What each destination adds to the profile."""
        return self._profile.parts

    def profile(self, parts: Sequence[Any]) -> list[dict[str, Any]]:
        """Posterior of one node by distance and return time."""
        return self._profile.rows(parts)


@dataclass(frozen=True, eq=False)
class HandedOver(Local):
    """Certainty by the last hop, over the candidates given."""

    candidates: IntArray

    def posterior(self, seen: Sightings, *, use_last_hop: bool) -> Posterior:
        """Return the last hop for certain; there is no return time to read without it."""
        del use_last_hop
        weights = (self.candidates == seen.last_hop[:, np.newaxis]).astype(np.float64)
        return Posterior(weights, "exact: the neighbour it came from is the source")


class Direct(Inference):
    """No law of return times is needed: nothing is sealed."""

    name = "exact"

    def __init__(self, scene: Scene) -> None:
        self._nodes = np.arange(scene.graph.n_nodes)

    @classmethod
    def why_not(cls, plan: Plan) -> str | None:
        """Only where nothing is sealed, and then nothing else."""
        return None if plan.posterior == cls.name else "the receiver of a plain walk knows whence it came"

    def at(self, nodes: IntArray) -> Iterator[Local]:
        """Yield the same everywhere."""
        return (HandedOver(self._nodes) for _ in nodes)
