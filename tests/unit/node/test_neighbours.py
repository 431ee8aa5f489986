"""Neighbours are weighed by what they do: slow, swallowing and flooding ones get less, honest ones their share."""

from __future__ import annotations

import os
from collections import defaultdict

import networkx as nx
import numpy as np
import pytest

from veilwalk.node.peer._neighbours import NeighbourWeights

BAD = 0


class World:
    """A token on a graph of ten members of degree 4; each draws its next hop by its own weights."""

    def __init__(self, seed: int, *, weighs: bool = True, slow_s: float = 0.03) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = nx.random_regular_graph(4, 10, seed=seed)
        self.weights: defaultdict[int, NeighbourWeights] = defaultdict(NeighbourWeights)
        self.weighs, self.slow_s = weighs, slow_s
        self.shares: list[float] = []

    def choose(self, at: int, came_from: int | None) -> int:
        """Draw as a node does: those passed by are left out, if there are others."""
        near = sorted(self.graph[at])
        shares = {peer: self.weights[at].share(str(peer)) if self.weighs else 1.0 for peer in near}
        self.shares += shares.values()
        bad = {peer for peer in near if self.rng.random() >= shares[peer]}
        bad = bad if len(bad) < len(near) else bad - {max(near, key=lambda peer: shares[peer])}
        options = [peer for peer in near if peer not in bad]
        onward = [peer for peer in options if peer != came_from] or options
        return int(self.rng.choice(onward))

    def hand(self, at: int, to: int, digest: bytes) -> float:
        """Hand a message over; return how long it took."""
        seconds = self.slow_s if to == BAD else 0.03
        self.weights[at].on_handed(str(to), seconds)
        self.weights[to].on_brought(str(at), digest)
        return seconds

    def walk(self, hops: int, *, swallows: bool = False) -> tuple[int, float]:
        """Walk; return how often the token was swallowed, and the seconds of all hops."""
        at, came_from, lost, seconds, digest = 1, None, 0, 0.0, b""
        for hop in range(hops):
            if hop % 3 == 0:
                digest = os.urandom(8)
            to = self.choose(at, came_from)
            seconds += self.hand(at, to, digest)
            at, came_from = to, at
            if swallows and at == BAD:
                # Somebody else makes a walk.
                lost, at, came_from = lost + 1, int(self.rng.integers(1, 10)), None
        return lost, seconds


def test_honest_neighbours_keep_their_share() -> None:
    """By chance alone hardly anybody is passed by: the walk stays that of the simulator."""
    shares = np.concatenate([_shares(seed) for seed in range(6)])
    assert np.mean(shares < 1) < 0.002


def _shares(seed: int) -> np.ndarray:
    world = World(seed)
    world.walk(3000)
    return np.array(world.shares)


def test_a_tarpit_costs_less_than_two_thirds_of_the_rate() -> None:
    """Finding 5: 14 s for a hand-over of 0.03 s. Without weights it costs 97 %."""
    for seed in range(4):
        clean = World(seed).walk(4000)[1]
        assert World(seed, slow_s=14.0).walk(4000)[1] < 3 * clean
        assert World(seed, slow_s=14.0, weighs=False).walk(4000)[1] > 20 * clean


def test_a_swallower_gets_a_few_walks_and_then_hardly_any() -> None:
    """Finding 6: each of its four neighbours loses some before it knows; without weights it gets one in ten hops."""
    for seed in range(4):
        world = World(seed)
        first, _ = world.walk(4000, swallows=True)
        later, _ = world.walk(4000, swallows=True)
        assert first <= 120
        assert later <= 40
        assert World(seed, weighs=False).walk(4000, swallows=True)[0] > 250


def test_who_brings_junk_first_gets_less() -> None:
    """A decoy sends garbage on in the place of what it swallows: the balance looks well, and that comes again."""
    weights = NeighbourWeights()
    for number in range(40):
        for peer in ("good", "decoy"):
            weights.on_handed(peer, 0.03)
            weights.on_brought(peer, b"%d %s" % (number, peer.encode()))
        # Others carry it round: they are not blamed.
        weights.on_brought("good", b"%d decoy" % number)
        if number % 2:
            weights.on_junk(b"%d decoy" % number)
            weights.on_junk(b"%d decoy" % number)
    assert (weights.share("good"), weights.pause_s("good")) == (1.0, 0.0)
    assert weights.share("decoy") < 0.2
    # Finding 12: who floods is slowed at the door.
    assert weights.pause_s("decoy") == 1.0


@pytest.mark.parametrize("times", [1, 50])
def test_one_that_mends_is_weighed_anew(times: int) -> None:
    """It gets a few messages all the same; when it brings as many as it gets, and in time, it has its share again."""
    weights = NeighbourWeights()
    weights.on_handed("other", 0.03)
    weights.on_handed("other", 0.03)
    for _ in range(times):
        weights.on_handed("slow", 9.0)
    for number in range(60):
        weights.on_brought("slow", b"%d" % number)
        weights.on_handed("slow", 0.03)
    assert weights.share("slow") == 1.0
    assert weights.typical_s("slow") == 0.03
