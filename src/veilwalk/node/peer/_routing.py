"""Where a message goes next, for whom a model is sealed, and where the chance in both comes from.

Chance is the operating system's, and cannot be seeded: the generators of :mod:`veilwalk.core.randomness` are another
type on purpose, so a node cannot be given one by mistake.

The walks are those of :mod:`veilwalk.walks`, as one node plays them: it knows its own neighbours, and which of them
brought the message.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

import numpy as np

from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.core.walk import Walk
from veilwalk.node.members import LawRule, node_walk

if TYPE_CHECKING:
    from veilwalk.node.members import Roster
import math
import secrets


class Draws(Protocol):
    """A source of the two kinds of draws a node makes."""

    def below(self, count: int) -> int:
        """Return a whole number from 0 to ``count`` - 1, each as likely."""
        ...

    def unit(self) -> float:
        """Return a number from 0 to 1, 1 excluded, with 53 random bits."""
        ...


class OsDraws:
    """Draws from the operating system's source."""

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

    def choose(self, draws: Draws, *, came_from: str | None, avoid: frozenset[str] = frozenset()) -> str:
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


@dataclass(frozen=True, slots=True)
class DestinationRow:
    """For whom this node seals: one row of the destination law."""

    members: tuple[str, ...]
    cumulative: tuple[float, ...]

    @classmethod
    def of(cls, shares: Mapping[str, float]) -> DestinationRow:
        """Return the row with the given probabilities.

        Raises:
            InvalidParameterError: They are no probabilities.
        """
        kept = {member: share for member, share in shares.items() if share != 0}
        if not kept or not all(share > 0 for share in kept.values()) or abs(sum(kept.values()) - 1) > 1e-9:
            raise InvalidParameterError("law", f"row of {len(kept)} members", "probabilities that sum to 1")
        return cls(tuple(kept), tuple(accumulate(kept.values())))

    @property
    def shares(self) -> dict[str, float]:
        """The probability of each member."""
        before = (0.0, *self.cumulative)
        return {member: self.cumulative[i] - before[i] for i, member in enumerate(self.members)}

    def on(self, roster: Roster, node: str) -> DestinationRow:
        """Return the row under a roster that some have left: those that stay, in the same proportion."""
        members = set(roster.ids)
        if set(self.members) <= members:
            return self
        left = {member: share for member, share in self.shares.items() if member in members}
        if not left:
            raise ConfigError(f"of those that {node} may seal for, roster version {roster.version} has none: a new law")
        total = sum(left.values())
        return DestinationRow.of({member: share / total for member, share in left.items()})

    def left_out(self, roster: Roster) -> tuple[str, ...]:
        """Return nobody: what a bare row does not name it may have been meant not to."""
        del roster
        return ()

    def choose(self, draws: Draws, count: int = 1) -> tuple[str, ...]:
        """Return the members to seal for: so many different ones, or all there are, drawn one after the other.

        Each draw is in the proportions of those not drawn yet (successive sampling).
        """
        if count == 1:
            # Sums of probabilities may end a rounding error below 1.
            return (self.members[min(bisect_right(self.cumulative, draws.unit()), len(self.members) - 1)],)
        if count >= len(self.members):
            return self.members
        weights = np.diff(self.cumulative, prepend=0.0)
        chosen = []
        for _ in range(count):
            sums = weights.cumsum()
            left = np.flatnonzero(weights)
            place = min(int(np.searchsorted(sums, draws.unit() * sums[-1], side="right")), int(left[-1]))
            weights[place] = 0.0
            chosen.append(self.members[place])
        return tuple(chosen)


class Law(Protocol):
    """For whom a node seals, under whatever roster."""

    def on(self, roster: Roster, node: str) -> DestinationRow:
        """Return the row of ``node`` under ``roster``.

        Raises:
            ConfigError: There is nobody that it may seal for.
        """
        ...

    def left_out(self, roster: Roster) -> tuple[str, ...]:
        """Return the members that nobody seals for, because the law does not know them."""
        ...


@dataclass(frozen=True, slots=True)
class RuleLaw:
    """A law that every node works out for itself, under every roster anew."""

    rule: LawRule

    def on(self, roster: Roster, node: str) -> DestinationRow:
        """Return the row of ``node`` under ``roster``."""
        return DestinationRow.of(self.rule.shares(roster, node))

    def left_out(self, roster: Roster) -> tuple[str, ...]:
        """Return nobody: a rule knows every member."""
        del roster
        return ()


@dataclass(frozen=True, slots=True)
class FileLaw:
    """One row of a law in a file, by names, and all the names that the file has."""

    row: DestinationRow
    names: tuple[str, ...]

    def on(self, roster: Roster, node: str) -> DestinationRow:
        """Return the row with those that are in ``roster``."""
        return self.row.on(roster, node)

    def left_out(self, roster: Roster) -> tuple[str, ...]:
        """Return the members that the file does not name."""
        return tuple(sorted(set(roster.ids) - set(self.names)))
