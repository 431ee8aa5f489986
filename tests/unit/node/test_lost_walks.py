"""When a walk is believed lost, and which of two walks gives way."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import Walk
from veilwalk.design import late_after_hops, starved_after_hops
from veilwalk.graphs import Graph, parse_graph_spec
from veilwalk.node.cluster import find_late_hops
from veilwalk.node.link import Limits
from veilwalk.node.peer import OsDraws
from veilwalk.node.peer._destination import walks_ahead
from veilwalk.node.peer._watches import AgeWatch, Pace, spread_s
from veilwalk.node.sealing._envelope import Header
from veilwalk.node.spool._tables import SeenWalk


def late_on_regular(n_nodes: int, degree: int, *, alarm_hops: float) -> float:
    """(N/c') ln(X c') on a random regular graph; c' = (c - 2)/(c - 1): a walk leaves for good, not straight back."""
    escape = (degree - 2) / (degree - 1)
    return n_nodes / escape * math.log(alarm_hops * escape)


@pytest.mark.parametrize("degree", [3, 4])
def test_the_exact_waiting_time_is_near_the_formulas(degree: int) -> None:
    graph = parse_graph_spec(f"rrg:200:{degree}:seed=1")
    exact = late_after_hops(graph, alarm_hops=1e6)
    assert exact == pytest.approx(late_on_regular(200, degree, alarm_hops=1e6), rel=0.1)


@pytest.mark.parametrize(
    ("spec", "walk"),
    [
        *((spec, "simple") for spec in ("rrg:20:3:seed=1", "ba:20:2:seed=2", "ring:8")),
        *((spec, "non-backtracking") for spec in ("rrg:20:3:seed=1", "ba:20:2:seed=2", "ba:20:1:seed=2")),
    ],
)
def test_false_alarms_are_as_rare_as_asked(spec: str, walk: str) -> None:
    """Played hop by hop: as many returns last longer than t as there may be alarms; half that t gives far more.

    The mutant: the simple walk's t for a walk that does not turn back, which then gives far fewer and waits too long.
    """
    graph = parse_graph_spec(spec)
    late = late_after_hops(graph, alarm_hops=500, walk=Walk(walk))
    hops = 400_000
    gaps = walked_gaps(graph, hops, seed=1, walk=walk)
    expected = hops / 500
    assert (gaps > late).sum() < expected + 5 * math.sqrt(expected)
    assert (gaps > late // 2).sum() > 2 * expected
    # One hop less would be one alarm too many; gaps come in few lengths, which limits how near that is.
    assert (gaps > late - 1).sum() > expected - 8 * math.sqrt(expected) or late < 4
    assert (gaps > late - 5).sum() > expected - 8 * math.sqrt(expected)
    if walk != "simple":
        assert (gaps > late_after_hops(graph, alarm_hops=500)).sum() < expected / 2


def walked_gaps(graph: Graph, hops: int, seed: int, walk: str = "simple") -> np.ndarray:
    """Hops between a walk's visits, of all nodes together, by the rules in the simplest words."""
    dice = random.Random(seed)  # noqa: S311
    neighbours = [graph.neighbours(node).tolist() for node in range(graph.n_nodes)]
    last: dict[int, int] = {}
    before, node, gaps = -1, 0, []
    for now in range(hops):
        if node in last:
            gaps.append(now - last[node])
        last[node] = now
        options = neighbours[node]
        if walk != "simple":
            options = [other for other in options if other != before] or options
        before, node = node, dice.choice(options)
    return np.array(gaps)


def test_a_rate_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidParameterError):
        late_after_hops(parse_graph_spec("ring:8"), alarm_hops=1)


@pytest.mark.parametrize("recipients", [1, 5])
def test_hunger_waits_for_what_a_node_should_have_opened(recipients: int) -> None:
    """Played with the simulator: about as many gaps between two openings are longer than t as there may be alarms."""
    from veilwalk.core.support import DistanceSupport
    from veilwalk.design import DistanceLaw, Scheme, choose_scheme

    graph = parse_graph_spec("rrg:20:3:seed=1")
    law = DistanceLaw(DistanceSupport(2, 3), np.array([0.5, 0.5])).place_on(graph)
    scheme = Scheme(graph, law) if recipients == 1 else choose_scheme(graph, "far:2", recipients=recipients)
    played = np.concatenate(list(scheme.iter_updates(updates=200_000, seed=7, replicas=1)))
    hops = int(played["clock"][-1] - played["clock"][0])
    alarm_hops = 20_000.0
    starved = starved_after_hops(scheme, alarm_hops=alarm_hops)
    last: dict[int, int] = {}
    gaps = []
    for node, clock in zip(played["destination"].tolist(), played["clock"].tolist(), strict=True):
        if node in last:
            gaps.append(clock - last[node])
        last[node] = clock
    seen, allowed = int((np.array(gaps) > starved).sum()), hops / alarm_hops
    # Waits are not quite exponential: within a factor of two, and half that wait would be far outside.
    assert allowed / 2 < seen < 2 * allowed
    assert (np.array(gaps) > starved / 2).sum() > 4 * allowed
    # The mutant takes the waits of one recipient for those of several.
    assert recipients == 1 or starved < starved_after_hops(Scheme(graph, law), alarm_hops=alarm_hops) / 2


class Clock:
    """Time by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class Fixed(OsDraws):
    """Draws that are known."""

    def __init__(self, value: float) -> None:
        self.value = value

    def below(self, count: int) -> int:
        """Return the last."""
        return count - 1

    def unit(self) -> float:
        """Return the value."""
        return self.value


def test_a_node_is_late_after_the_time_and_a_random_while() -> None:
    """The while is exponential with the given mean; any visit begins anew."""
    clock = Clock()
    watch = AgeWatch(10.0, spread=1.0, draws=Fixed(1 - math.exp(-2)), clock=clock)
    late = []
    for seconds in (11.99, 0.02, 0.0, 12.1):
        clock.now += seconds
        late.append(watch.is_late)
        if seconds == 0.02:
            watch.reset()
    assert late == [False, True, False, True]


def test_finding_04_time_asleep_is_no_time_waited() -> None:
    """A short pause is not counted, and after a long one, or without any link, the waiting begins anew."""
    clock = Clock()
    watch = AgeWatch(10.0, spread=1.0, draws=Fixed(0.0), clock=clock)
    clock.now += 9.0 + 2.0
    watch.exclude_downtime(2.0)
    late = [watch.is_late]
    clock.now += 1.1
    late.append(watch.is_late)
    assert late == [False, True]
    for seconds in (300.0, math.inf):
        clock.now += 300.0
        watch.exclude_downtime(seconds)
        clock.now += 9.9
        assert not watch.is_late


def test_finding_04_where_hops_are_slow_lateness_is_longer() -> None:
    """By the middle of the last hops: a few that take for ever change nothing, nor do quick ones; at most fourfold."""
    clock = Clock()
    for took, factor in ((0.01, 1.0), (0.15, 3.0), (9.0, 4.0)):
        pace = Pace(0.05, clock=clock)
        watch = AgeWatch(10.0, spread=1.0, pace=pace, draws=Fixed(0.0), clock=clock)
        for hop in range(32):
            pace.on_arrival(hop)
            clock.now += 1000.0 if hop % 3 == 0 else took
            pace.on_departure(hop)
        watch.reset()
        late = []
        for seconds in (10.0 * factor - 0.1, 0.2):
            clock.now += seconds
            late.append(watch.is_late)
        assert late == [False, True]


@pytest.mark.parametrize("n_nodes", [10, 60])
def test_finding_04_one_node_makes_a_walk_and_not_all(n_nodes: int) -> None:
    """All nodes become late together; each sees a new walk a hitting time after it is made, or makes one of its own."""
    rng = np.random.default_rng(1)
    hit_s, waits, walks = 1.0 * n_nodes, [], []
    for _ in range(400):
        alarms = np.sort(rng.exponential(spread_s(n_nodes, hit_s), n_nodes))
        seen = alarms[0] + rng.exponential(hit_s, n_nodes - 1)
        walks.append(1 + int((alarms[1:] < seen).sum()))
        waits.append(alarms[0])
    assert np.mean(walks) < 1.35
    assert np.mean(waits) == pytest.approx(4 * hit_s, rel=0.2)


def test_finding_04_patience_and_lateness_fit_each_other() -> None:
    """A stalled neighbour is given up, twice over, and a short outage is over, before anybody makes a walk."""
    from veilwalk.design import choose_scheme

    graph = parse_graph_spec("rrg:10:4:seed=1")
    scheme = choose_scheme(graph, "far:2", recipients=4)
    for step_s, model_bytes in ((0.05, 10_000), (0.5, 10_000), (0.05, 10 << 20)):
        late_hops, starve_hops = find_late_hops(scheme, alarm_hops=1e7, step_s=step_s, model_bytes=model_bytes)
        limits = Limits()
        assert late_hops * step_s >= 60.0
        assert late_hops * step_s >= 2 * (limits.pin_s + limits.transfer_s(model_bytes))
        assert late_hops >= late_after_hops(graph, alarm_hops=1e7, walk=scheme.walk)
        assert starve_hops > late_hops
    assert Limits(pin_s=60.0).within(8.0).pin_s == 2.0
    assert Limits(pin_s=5.0).within(60.0).pin_s == 5.0


def test_finding_02_quotas_are_bounded_in_bytes() -> None:
    limits = Limits()
    assert limits.messages_of_one(20_000) == limits.quota
    assert limits.messages_of_one(100 << 20) == 2
    assert limits.messages_of_one(10 << 30) == 2


def header(tag: bytes, iteration: int) -> Header:
    return Header(update_id=bytes(16), walk_tag=tag, iteration=iteration, body_length=0)


def test_a_walk_gives_way_only_to_one_that_is_alive_and_further_on() -> None:
    behind = SeenWalk(iteration=10, first_turn=1, last_turn=1)
    before = SeenWalk(iteration=50, first_turn=0, last_turn=0)
    alive = SeenWalk(iteration=50, first_turn=0, last_turn=2)
    assert not walks_ahead(header(b"new", 1), {b"other": alive})
    assert not walks_ahead(header(b"w", 12), {b"w": behind, b"other": before})
    assert walks_ahead(header(b"w", 12), {b"w": behind, b"other": alive})
    assert not walks_ahead(header(b"w", 60), {b"w": behind, b"other": alive})
    assert not walks_ahead(header(b"w", 12), {b"w": behind})


@pytest.mark.parametrize("seed", range(40))
def test_several_walks_become_one_and_never_none(seed: int) -> None:
    """Walks at random paces meet at random nodes; each node knows only what it opened itself."""
    dice = random.Random(seed)  # noqa: S311
    iterations = {bytes([tag]): dice.randrange(30) for tag in range(4)}
    known: list[dict[bytes, SeenWalk]] = [{} for _ in range(6)]
    turns = [0] * 6
    for _ in range(4000):
        tag = dice.choice(sorted(iterations))
        node = dice.randrange(6)
        if walks_ahead(header(tag, iterations[tag]), known[node]):
            del iterations[tag]
            assert iterations
            continue
        iterations[tag] += 1
        turns[node] += 1
        first = known[node].get(tag, SeenWalk(iteration=0, first_turn=turns[node], last_turn=0)).first_turn
        known[node][tag] = SeenWalk(iteration=iterations[tag], first_turn=first, last_turn=turns[node])
    assert len(iterations) == 1
