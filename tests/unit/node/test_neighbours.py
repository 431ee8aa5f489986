"""Neighbours are weighed by what they do: slow, swallowing and flooding ones get less, honest ones their share."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import networkx as nx
import numpy as np
from tests.helpers.custody import open_custody, relay

from veilwalk.node.peer._watches import NeighbourWeights, Visits

BAD = 0
LATE_S, HOP_S = 60.0, 0.05
LINK_S = 40 * HOP_S


class Clock:
    """The time of a played network."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return it."""
        return self.now


def avoided(weights: NeighbourWeights) -> frozenset[str]:
    """The neighbours that are avoided, where one more is not."""
    return weights.select_avoided(["last", "slow", "other", "one more"])


class World:
    """A token on a graph of ten members of degree 4; each draws its next hop by its own weights."""

    def __init__(self, seed: int, *, weighs: bool = True, slow_s: float = 0.03) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = nx.random_regular_graph(4, 10, seed=seed)
        self.clock = Clock()
        self.weights: defaultdict[int, NeighbourWeights] = defaultdict(
            lambda: NeighbourWeights(patience_s=LATE_S / 2, link_s=LINK_S, clock=self.clock)
        )
        self.weighs, self.slow_s = weighs, slow_s
        self.draws = self.restricted = self.refused = 0

    def choose(self, at: int, came_from: int | None) -> int:
        """Draw as a node does: those that are avoided are left out, if there are others."""
        near = sorted(self.graph[at])
        avoided = set(map(int, self.weights[at].select_avoided(map(str, near)))) if self.weighs else set()
        self.draws += 1
        self.restricted += bool(avoided)
        options = [peer for peer in near if peer not in avoided]
        onward = [peer for peer in options if peer != came_from] or options
        return int(self.rng.choice(onward))

    def walk(self, hops: int, *, swallows: bool = False) -> int:
        """Walk; return how often the token was swallowed."""
        at, came_from, lost = 1, None, 0
        for _ in range(hops):
            to = self.choose(at, came_from)
            seconds = self.slow_s if to == BAD else 0.03
            self.clock.now += HOP_S + seconds
            self.refused += not self.weights[to].may_bring(str(at))
            self.weights[at].on_handed(str(to), seconds)
            self.weights[to].on_brought(str(at), is_junk=False)
            at, came_from = to, at
            if swallows and at == BAD:
                # Another member makes a walk when none came for long.
                self.clock.now += LATE_S
                lost, at, came_from = lost + 1, int(self.rng.integers(1, 10)), None
                self.weights[at].on_silence_over()
        return lost


def test_honest_neighbours_are_never_avoided_and_hardly_slowed() -> None:
    """The walk stays that of the simulator, and chance alone makes few wait at the door."""
    for seed in range(4):
        world = World(seed)
        world.walk(8_000)
        assert world.restricted == 0
        assert world.refused <= 0.002 * world.draws


def test_a_tarpit_costs_less_than_two_thirds_of_the_rate() -> None:
    """Finding 5: 14 s for a hand-over of 0.03 s. Without weights it costs 97 %."""
    for seed in range(4):
        seconds = {}
        for name, options in (("clean", {}), ("weighed", {"slow_s": 14.0}), ("not", {"slow_s": 14.0, "weighs": False})):
            world = World(seed, **options)  # type: ignore[arg-type]
            world.walk(8_000)
            seconds[name] = world.clock.now
        assert seconds["weighed"] < 2 * seconds["clean"]
        assert seconds["not"] > 10 * seconds["clean"]


def test_a_swallower_gets_a_walk_from_each_neighbour_in_twenty_silences() -> None:
    """Finding 6: each of its four neighbours loses one before it knows; without weights it gets one in ten hops."""
    for seed in range(4):
        world = World(seed)
        assert world.walk(4000, swallows=True) <= 4
        assert World(seed, weighs=False).walk(4000, swallows=True) > 250


def test_an_honest_neighbour_that_was_handed_the_last_walk_is_cleared_by_what_it_brings() -> None:
    """Another one behind it lost the walk; a swallower brings at most the few walks that it makes itself."""
    clock = Clock()
    weights = NeighbourWeights(patience_s=30.0, clock=clock)
    weights.on_handed("last", 0.03)
    clock.now = 31.0
    weights.on_brought("other", is_junk=False)
    assert "last" in avoided(weights)
    assert "other" not in avoided(weights)
    for _ in range(10):
        weights.on_brought("last", is_junk=True)
    for _ in range(5):
        assert "last" in avoided(weights)
        weights.on_brought("last", is_junk=False)
    assert "last" not in avoided(weights)


def test_a_node_that_stood_still_blames_nobody() -> None:
    """Nothing could come meanwhile, so the silence says nothing."""
    clock = Clock()
    weights = NeighbourWeights(patience_s=30.0, clock=clock)
    weights.on_handed("last", 0.03)
    clock.now = 100.0
    weights.exclude_downtime(90.0)
    weights.on_brought("other", is_junk=False)
    assert "last" not in avoided(weights)


def test_a_flooder_brings_a_few_messages_and_then_one_in_ten_of_a_link() -> None:
    """Finding 12: what it brings beyond what it is handed comes slowly; what walks there and back does not."""
    clock = Clock()
    weights = NeighbourWeights(link_s=2.0, clock=clock)
    taken = 0
    for _ in range(6000):
        clock.now += 0.1
        if weights.may_bring("flooder"):
            weights.on_brought("flooder", is_junk=False)
            taken += 1
    assert 12 <= taken <= 12 + 600 / 20 + 1
    for _ in range(1000):
        clock.now += 0.1
        weights.on_handed("honest", 0.03)
        assert weights.may_bring("honest")
        weights.on_brought("honest", is_junk=False)


def test_a_neighbour_that_mends_is_noticed() -> None:
    """It is avoided for twenty times as long as it took, and then tried again."""
    clock = Clock()
    weights = NeighbourWeights(clock=clock)
    weights.on_handed("other", 0.03)
    weights.on_handed("slow", 9.0)
    assert "slow" in avoided(weights)
    clock.now = 181.0
    assert "slow" not in avoided(weights)
    weights.on_handed("slow", 0.03)
    assert "slow" not in avoided(weights)


def test_what_comes_too_often_goes_to_anybody_who_answers(tmp_path: Path) -> None:
    """Its recipient may be behind a neighbour that everybody avoids; before that it goes to others alone."""
    custody = open_custody(tmp_path, quota=100)
    custody.visits = Visits(1, pause_s=0.0)
    custody._avoided = lambda weighs: frozenset({"b", "c"} if weighs else ())
    handed = [relay(custody, number, b"the same bytes").peer for number in range(40)]
    assert handed[0] == "a"
    assert {"b", "c"} <= set(handed[1:])
