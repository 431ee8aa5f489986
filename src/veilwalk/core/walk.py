"""The walk as a value: how a ciphertext chooses its next hop.

Vocabulary only. What a walk does is said three times over, by ``theory``, ``chains`` and ``walks``, which share no
code, and once more by a node that routes by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from veilwalk.core.errors import InvalidParameterError

#: Every kind of walk, with what it does at a hop.
WALKS: dict[str, str] = {
    "simple": "to any neighbour alike",
    "lazy": "half the time it stays, else to any neighbour alike",
    "metropolis": "to any neighbour, refused so often that all nodes are visited alike",
    "non-backtracking": "to any neighbour but the one it came from",
    "least-recent": "along the edge that its node used longest ago",
}
_MIXING = "least-recent"


@dataclass(frozen=True, slots=True)
class Walk:
    """A kind of walk; ``mix`` is the share of plain non-backtracking steps of a least-recent one."""

    kind: str = "simple"
    mix: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in WALKS:
            raise InvalidParameterError("walk", self.kind, f"one of {', '.join(WALKS)}")
        given: object = self.mix
        if isinstance(given, bool) or not isinstance(given, Real) or not 0.0 <= float(given) <= 1.0:
            raise InvalidParameterError("mix", self.mix, "a number from 0 to 1")
        if self.mix and self.kind != _MIXING:
            raise InvalidParameterError("mix", self.mix, f"0 for the {self.kind} walk: only {_MIXING} mixes")

    @classmethod
    def of(cls, given: Walk | str) -> Walk:
        """Return a walk given as such or as text: its kind, and after a colon its mix (``least-recent:0.2``)."""
        if isinstance(given, Walk):
            return given
        kind, colon, mix = str(given).strip().partition(":")
        try:
            return cls(kind, float(mix) if colon else 0.0)
        except ValueError as error:
            if isinstance(error, InvalidParameterError):
                raise
            raise InvalidParameterError(
                "walk", given, "KIND or least-recent:MIX, for example least-recent:0.2"
            ) from None

    @property
    def remembers(self) -> bool:
        """Whether nodes remember which edge they used when: then it is a chain neither on nodes nor on arcs."""
        return self.kind == _MIXING

    def __str__(self) -> str:
        return f"{self.kind}:{self.mix:g}" if self.mix else self.kind


SIMPLE = Walk()
