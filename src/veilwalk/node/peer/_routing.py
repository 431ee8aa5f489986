"""Where a message goes next, and for whom a model is sealed.

The walks are those of :mod:`veilwalk.walks`, as one node plays them: it knows its own neighbours, which of them
brought the message, and in which order its own edges were used.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError
from veilwalk.core.labels import places_by_label
from veilwalk.core.walk import Walk
from veilwalk.node.members import node_walk
from veilwalk.node.peer._draws import Draws

_WORD = 1 << 32


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

    def choose(
        self,
        draws: Draws,
        *,
        came_from: str | None,
        clocks: Mapping[str, int],
        avoid: frozenset[str] = frozenset(),
    ) -> str:
        """Return the neighbour a message goes to.

        Args:
            draws: Where chance comes from.
            came_from: The neighbour that brought it; None for a walk made here.
            clocks: When each edge was last used, for the least-recent walk.
            avoid: Neighbours that do not answer; ignored when there is no other.
        """
        options = [peer for peer in self.neighbours if peer not in avoid] or list(self.neighbours)
        if self.walk.kind == "simple":
            return options[draws.below(len(options))]
        if self.walk.remembers and not self._mixes(draws):
            return _oldest(draws, options, clocks)
        onward = [peer for peer in options if peer != came_from] or options
        return onward[draws.below(len(onward))]

    def _mixes(self, draws: Draws) -> bool:
        # The coin of the simulator is a 32-bit word; with no or full mixing neither tosses one.
        threshold = int(self.walk.mix * _WORD + 0.5)
        return threshold == _WORD or (threshold > 0 and draws.below(_WORD) < threshold)


def _oldest(draws: Draws, options: Sequence[str], clocks: Mapping[str, int]) -> str:
    """Return the edge used longest ago; among those never used, any.

    The edge the message came along was used last, so it is chosen only where there is no other.
    """
    unused = [peer for peer in options if peer not in clocks]
    if unused:
        return unused[draws.below(len(unused))]
    return min(options, key=lambda peer: clocks[peer])


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

    def among(self, members: Sequence[str]) -> DestinationRow:
        """Return the row for a roster that some have left: those that stay, in the same proportion."""
        if set(self.members) <= set(members):
            return self
        left = {member: share for member, share in self.shares.items() if member in set(members)}
        total = sum(left.values())
        return DestinationRow.of({member: share / total for member, share in left.items()})

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


def read_law_row(path: Path, members: Sequence[str], node: str) -> DestinationRow:
    """Return the row of ``node`` in a destination law written by ``veilwalk design --graph ... --out law.npz``.

    Its nodes are found by name where it has names, else by their place among the members. Reads with NumPy alone: a
    node must start quickly, and needs no more of a law than its row.
    """
    try:
        with np.load(path, allow_pickle=False) as law:
            if str(law["format"]) != "veilwalk-law-1" or str(law["kind"]) != "destination":
                raise InputFileError(f"law {path}: not a destination law; make one with design --graph")
            indptr, indices, data = law["indptr"], law["indices"], law["data"]
            labels = tuple(map(str, law["labels"])) if "labels" in law.files else None
    except (OSError, KeyError, ValueError) as error:
        if isinstance(error, InputFileError):
            raise
        raise InputFileError(f"law {path}: not a law file ({error})") from error
    if len(indptr) != len(members) + 1:
        raise ConfigError(f"law {path} is for {len(indptr) - 1} nodes: the roster has {len(members)}")
    places = places_by_label(labels, members, len(members)) or range(len(members))
    index, name = places[members.index(node)], dict(zip(places, members, strict=True))
    row = slice(indptr[index], indptr[index + 1])
    shares = {name[int(column)]: float(share) for column, share in zip(indices[row], data[row], strict=True)}
    if shares.get(node, 0.0) != 0.0:
        raise InputFileError(f"law {path}: {node} may choose itself")
    return DestinationRow.of(shares)
