"""The walk as a value: how a ciphertext chooses its next hop.

Vocabulary only. What a walk does is said three times over, by ``theory``, ``chains`` and ``walks``, which share no
code, and once more by a node that routes by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.validate import refuse_removed

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
    def parse(cls, walk: Walk | str) -> Walk:
        """Read a walk from the name of its kind; return a walk as it is."""
        return walk if isinstance(walk, Walk) else cls(str(walk).strip())

    def __str__(self) -> str:
        return self.kind


SIMPLE = Walk()
