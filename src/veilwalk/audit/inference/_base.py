"""What an inference is: from what was seen to weights over nodes, and how it came to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from veilwalk.audit._scene import Scene
from veilwalk.audit._settings import Plan
from veilwalk.audit._sightings import Sightings
from veilwalk.core.arrays import FloatArray, IntArray

EXACT = "exact"


def for_one(plan: Plan) -> str | None:
    """Return why what needs a chain of token and destination cannot be had; None where there is one recipient."""
    several = plan.scheme.recipients
    return f"it is for one recipient, the scheme seals for {several}" if several > 1 else None


@dataclass(frozen=True, eq=False)
class Posterior:
    """Weights over candidates, a row a sighting; rows sum to one, impossible candidates have exactly zero.

    ``how`` says where they come from, in the words of the record.
    """

    weights: FloatArray
    how: str


@dataclass(frozen=True, eq=False)
class Evidence:
    """Joint weights of candidates, a row a sighting, not scaled: what several sightings can be joined by.

    ``prior`` is what they come to without any sighting, None where that is the scene's prior.
    """

    candidates: IntArray
    weights: FloatArray
    how: str
    prior: FloatArray | None = None


class Local(ABC):
    """What is known, at one destination, of who may have sealed what arrives there and when."""

    @abstractmethod
    def posterior(self, seen: Sightings, *, use_last_hop: bool) -> Posterior:
        """Return the posterior given the return time, and the neighbour the token came from if that is used."""

    def evidence(self, seen: Sightings) -> Evidence:
        """Return who may be the source, weighed by return time and last hop, where sightings can be joined."""
        raise TypeError(f"{type(self).__name__} joins no sightings ({len(seen)} given)")


class Inference(ABC):
    """One way to read return times, called ``name`` in settings; an instance serves one scene."""

    name: ClassVar[str]

    @abstractmethod
    def __init__(self, scene: Scene) -> None:
        """Prepare for a scene; who rehearses says so here."""

    @classmethod
    def why_not(cls, plan: Plan) -> str | None:
        """Return why it cannot be had there, None where it can: with any walk, unless it says otherwise."""
        del plan
        return None

    @abstractmethod
    def at(self, nodes: IntArray) -> Iterator[Local]:
        """Yield what is known at each of these destinations."""

    @property
    def profile_parts(self) -> list[Any]:
        """What each destination so far adds to the profile, as plain data."""
        return []

    def profile(self, parts: Sequence[Any]) -> list[dict[str, Any]]:
        """Posterior of one node by distance and return time, from the parts of all destinations, where it is exact."""
        del parts
        return []
