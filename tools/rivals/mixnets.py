"""A mix network of peers whose relays are drawn 0 to K: how often the last hop is the maker itself.

The routing rule that UnlinkableDFL (2026) publishes: each fragment of a model goes through a number of relays drawn
evenly from none to K, each relay drawn among the peers that are neither maker nor receiver, none twice. Layers change
the bits at every hop, so that all a receiver knows is who handed it the fragment. Makers are taken as equally likely.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb, factorial

import numpy as np
from scipy import special

from veilwalk.core import validate
from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator

_MIX = 0x6D69786E


@dataclass(frozen=True, kw_only=True)
class Mixnet:
    """Everybody reaches everybody; a fragment takes 0 to ``relays`` relays, all numbers as likely.

    Attributes:
        nodes: Peers, at least 3: a maker, a receiver and somebody else.
        relays: K, the most relays there may be.
    """

    nodes: int
    relays: int

    def __post_init__(self) -> None:
        validate.integer(nodes=self.nodes, relays=self.relays)
        validate.at_least(3, nodes=self.nodes)
        validate.at_least(0, relays=self.relays)

    @property
    def most(self) -> int:
        """The most relays that there are peers for."""
        return min(self.relays, self.nodes - 2)

    @property
    def hops(self) -> float:
        """Mean hops of a fragment, exact."""
        return 1 + self.most / 2

    @cached_property
    def _shares(self) -> tuple[float, float]:
        """How likely the last hop is the maker, and how likely any one of the other peers is it instead."""
        direct = 1 / (self.most + 1)
        return direct, (1 - direct) / (self.nodes - 2)

    @property
    def hit_ratio(self) -> float:
        """How often the receiver's best guess is the maker, exact: the last hop, or where that is worse another."""
        return max(self._shares)

    @property
    def node_entropy_nats(self) -> float:
        """Entropy of the receiver's posterior over makers, exact and the same for every last hop."""
        direct, other = self._shares
        return float(special.entr(direct) + (self.nodes - 2) * special.entr(other))

    def linked_hit_ratio(self, fragments: int) -> float:
        """Return how often the commonest last hop of so many fragments of one maker is that maker, exact.

        That they are of one maker is granted; the commonest last hop is then the best guess. Ties are broken evenly.
        """
        validate.integer(linked=fragments)
        validate.at_least(1, linked=fragments)
        direct, other = self._shares
        if other > direct:
            raise InvalidParameterError("linked", fragments, "1 where the last hop is seldom the maker")
        return sum(
            comb(fragments, own) * direct**own * (1 - direct) ** (fragments - own) * self._stands_out(own, fragments)
            for own in range(fragments + 1)
        )

    def _stands_out(self, own: int, fragments: int) -> float:
        """Return how often a peer with ``own`` last hops is the guess, the rest falling evenly on the others."""
        rest, others, found = fragments - own, self.nodes - 2, 0.0
        if not rest:
            return 1.0
        # Ways to throw the rest so that ``tied`` others have as many and all else fewer, by generating functions.
        below = np.array([1 / factorial(count) for count in range(min(own, rest + 1))])
        for tied in range(min(others, rest // own) + 1 if own else 1):
            ways = np.ones(1)
            for _ in range(others - tied):
                ways = np.convolve(ways, below)[: rest + 1] if len(below) else np.zeros(1)
            place = rest - tied * own
            if place < len(ways):
                found += comb(others, tied) * ways[place] / factorial(own) ** tied / (tied + 1)
        return float(found * factorial(rest) / others**rest)

    def drawn(self, fragments: int, *, seed: int) -> tuple[IntArray, IntArray, IntArray]:
        """Draw paths by the rule itself: makers, last hops and hops of fragments for peer 0; no formula is used."""
        rng = task_generator(seed, _MIX, self.nodes, self.relays)
        makers = rng.integers(1, self.nodes, size=fragments)
        rows = np.arange(fragments)
        # A shuffle of all peers with maker and receiver put last: its beginning is a path without repetition.
        keys = rng.random((fragments, self.nodes))
        keys[:, 0] = keys[rows, makers] = np.inf
        shuffled = np.argsort(keys, axis=1)
        relays = rng.integers(min(self.relays, self.nodes - 2) + 1, size=fragments)
        last = np.where(relays == 0, makers, shuffled[rows, relays - 1])
        return makers, last, 1 + relays
