"""The plain walk: whoever receives the model sees its neighbour hand it over, and that neighbour made it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from veilwalk.audit._plan import Plan
from veilwalk.audit._scene import Scene
from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference._base import Inference, Local, Posterior
from veilwalk.core.arrays import IntArray


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
