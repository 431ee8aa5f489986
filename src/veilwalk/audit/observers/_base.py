"""What an observer is: what it sees, where it can be, and what it infers at a destination."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from veilwalk.audit._scene import Scene
from veilwalk.audit._settings import Plan
from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference import Local, Posterior
from veilwalk.core.arrays import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Place:
    """Some updates at one destination, as they were seen there.

    ``prior`` is over the candidates that posteriors are asked for; ``local`` says what return times tell there, and is
    None where no observer of the audit reads them.
    """

    node: int
    rows: IntArray
    seen: Sightings
    prior: FloatArray
    local: Local | None

    @property
    def timing(self) -> Local:
        """What return times tell, for those who said that they read them."""
        if self.local is None:
            raise TypeError("this observer did not say that it reads return times")
        return self.local


class Observer(ABC):
    """One kind of observer; an instance attacks one scene.

    Attributes:
        name: What it is called.
        sees: What it sees, in a line for help and documentation.
        timed: It reads return times, and so needs an inference; ``use_last_hop``: and the neighbour it came from.
        colluding: It is a coalition.
        alone: It is a destination by itself, and takes its turn with the others at every destination.
        of_plain: It can be asked about a plain walk.
        looks_up: It can be asked about candidates that are looked up, on graphs of any size.
        missed_by_readers: Where ``all`` does not ask it, the report says why.
        links: In groups of how many updates of one source it is asked; empty where in none.
    """

    name: ClassVar[str]
    sees: ClassVar[str]
    timed: ClassVar[bool] = False
    use_last_hop: ClassVar[bool] = False
    colluding: ClassVar[bool] = False
    alone: ClassVar[bool] = True
    of_plain: ClassVar[bool] = False
    looks_up: ClassVar[bool] = False
    missed_by_readers: ClassVar[bool] = False
    links: ClassVar[tuple[int, ...]] = ()

    def __init__(self, scene: Scene) -> None:
        """Prepare for a scene; who rehearses says so here."""
        self.scene = scene

    @classmethod
    def why_not(cls, plan: Plan) -> str | None:
        """Return why it cannot be asked there, None where it can."""
        if plan.scheme.is_direct and not cls.of_plain:
            return "the receiver of a plain walk knows the source by its last hop"
        if plan.looked_up and not cls.looks_up:
            most = plan.settings.large_nodes
            return f"it needs tables of all pairs: not by-class, fewer than {most} nodes, and memory for them"
        return cls.unsuited(plan)

    @classmethod
    def unsuited(cls, plan: Plan) -> str | None:
        """Return why this very kind of observer cannot be asked there."""
        del plan
        return None

    @classmethod
    def reason_to_skip(cls, plan: Plan) -> str | None:
        """Return why ``all`` leaves it out where it can be asked by name; None where ``all`` asks it."""
        del plan
        return None

    @classmethod
    def rehearses(cls, plan: Plan) -> bool:
        """Return whether it plays walks of its own, besides those of the inference."""
        del plan
        return False

    @classmethod
    def own_bytes(cls, plan: Plan) -> int:
        """Return the memory it takes besides a row of scores for each update."""
        del plan
        return 0

    @property
    def prior(self) -> FloatArray:
        """What it would guess from blindly, a row a destination."""
        return self.scene.prior

    def rows(self) -> IntArray:
        """Return the updates it is asked about: all that are scored, unless it says otherwise."""
        scene = self.scene
        return np.flatnonzero(scene.attacked[scene.seen.destination])

    @abstractmethod
    def posterior(self, place: Place) -> Posterior:
        """Return what it infers of each update at a place."""

    def facts(self) -> dict[str, float]:
        """Return what it has to say beside its scores."""
        return {}

    def places(self) -> list[Place]:
        """Return where it joins updates, if it does so elsewhere than at their destinations."""
        raise TypeError(f"{self.name} joins updates at their destinations")

    def joined(self, place: Place, groups: Sequence[IntArray]) -> list[Posterior]:
        """Return what it infers of groups (rows) of updates known to have one source each, for each size of groups."""
        raise TypeError(f"{self.name} joins no updates ({len(groups)} sizes of groups at node {place.node})")
