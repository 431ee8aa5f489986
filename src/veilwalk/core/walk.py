"""The walk as a value: how a ciphertext chooses its next hop.

Vocabulary only. What a walk does is said three times over, by ``theory``, ``chains`` and ``walks``, which share no
code, and once more by a node that routes by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.removed import refuse_removed

#: Every kind of walk, with what it does at a hop.
WALKS: dict[str, str] = {
    "simple": "to any neighbour alike",
    "lazy": "half the time it stays, else to any neighbour alike",
    "metropolis": "to any neighbour, refused so often that all nodes are visited alike",
    "non-backtracking": "to any neighbour but the one it came from",
}


@dataclass(frozen=True, slots=True)
class Walk:
    """A kind of walk."""

    kind: str = "simple"

    def __post_init__(self) -> None:
        # Version 0.2 wrote a share behind a kind that is gone: least-recent:0.2.
        refuse_removed("walk", str(self.kind).partition(":")[0])
        if self.kind not in WALKS:
            raise InvalidParameterError("walk", self.kind, f"one of {', '.join(WALKS)}")

    @classmethod
    def of(cls, given: Walk | str) -> Walk:
        """Return a walk given as such or by the name of its kind."""
        return given if isinstance(given, Walk) else cls(str(given).strip())

    def __str__(self) -> str:
        return self.kind


SIMPLE = Walk()
