"""A destination law as a rule: every member works out for whom it may seal from the roster alone.

    far:4               everybody at distance 4 or more, evenly
    uniform-node:2:6    everybody at distances 2 to 6, evenly

So when members join, leave or are wired otherwise, no new law is needed and nobody is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veilwalk.core.errors import ConfigError, InvalidParameterError

if TYPE_CHECKING:
    from veilwalk.node.members._roster import Roster

_FAR = re.compile(r"far:([1-9][0-9]{0,3})", re.ASCII)
_UNIFORM = re.compile(r"uniform-node:([1-9][0-9]{0,3}):([1-9][0-9]{0,3})", re.ASCII)


@dataclass(frozen=True, slots=True)
class LawRule:
    """Evenly over everybody at distances ``nearest`` to ``farthest``; None for any farther one."""

    nearest: int
    farthest: int | None = None

    def __post_init__(self) -> None:
        if self.nearest < 2:
            raise InvalidParameterError("law", str(self), "of distance 2 or more: a neighbour would know the source")
        if self.farthest is not None and self.farthest < self.nearest:
            raise InvalidParameterError("law", str(self), "of a farthest distance not below the nearest")

    @classmethod
    def of(cls, text: str) -> LawRule:
        """Read a rule from its text.

        Raises:
            InvalidParameterError: It is none.
        """
        if found := _FAR.fullmatch(text):
            return cls(int(found[1]))
        if found := _UNIFORM.fullmatch(text):
            return cls(int(found[1]), int(found[2]))
        raise InvalidParameterError("law", text[:80], "a rule, far:R or uniform-node:LO:HI, such as far:4")

    def __str__(self) -> str:
        return f"far:{self.nearest}" if self.farthest is None else f"uniform-node:{self.nearest}:{self.farthest}"

    def shares(self, roster: Roster, node: str) -> Mapping[str, float]:
        """Return how likely ``node`` seals for each other member.

        Where nobody is so far, or so near, it is whoever is farthest: a change of the network must not stop a run.

        Raises:
            ConfigError: The node is next to all others, who would know whom an update came from.
        """
        apart = roster.distances(node)
        most = self.farthest or max(apart.values())
        chosen = [member for member, hops in apart.items() if self.nearest <= hops <= most]
        if not chosen:
            reach = max(apart.values())
            if reach < 2:
                raise ConfigError(f"{node} is next to all other members: the law {self} needs one two hops away")
            chosen = [member for member, hops in apart.items() if hops == reach]
        return {member: 1 / len(chosen) for member in sorted(chosen)}
