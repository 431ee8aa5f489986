"""Where a message goes next, and where chance comes from.

Chance is the operating system's, and cannot be seeded: the generators of :mod:`veilwalk.core.randomness` are another
type on purpose, so a node cannot be given one by mistake.

The walks are those of :mod:`veilwalk.walks`, as one node plays them: it knows its own neighbours, and which of them
brought the message.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import Walk
from veilwalk.node.members import node_walk


class OsDraws:
    """Draws from the operating system's source: of the two kinds that a node makes."""

    def below(self, count: int) -> int:
        """Return a whole number from 0 to ``count`` - 1, each as likely."""
        return secrets.randbelow(count)

    def unit(self) -> float:
        """Return a number from 0 to 1, 1 excluded, with 53 random bits."""
        return math.ldexp(secrets.randbits(53), -53)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextHop:
    """The rule of the walk at one node.

    Attributes:
        walk: How messages walk.
        neighbours: This node's neighbours, sorted as in the graph.
    """

    walk: Walk
    neighbours: tuple[str, ...]

    def __post_init__(self) -> None:
        node_walk(self.walk)
        if not self.neighbours:
            raise InvalidParameterError("neighbours", self.neighbours, "at least one")

    def choose(self, draws: OsDraws, *, came_from: str | None, avoid: frozenset[str] = frozenset()) -> str:
        """Return the neighbour a message goes to.

        Args:
            draws: Where chance comes from.
            came_from: The neighbour that brought it; None for a walk made here.
            avoid: Neighbours that do not answer; ignored when there is no other.
        """
        options = [peer for peer in self.neighbours if peer not in avoid] or list(self.neighbours)
        if self.walk.kind == "simple":
            return options[draws.below(len(options))]
        onward = [peer for peer in options if peer != came_from] or options
        return onward[draws.below(len(onward))]
