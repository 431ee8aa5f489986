"""What comes by too often waits; honest ciphertexts do not come that often."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tests.helpers.custody import Opener, deliver, relay, take

from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design import visits_per_link
from veilwalk.graphs import parse_graph_spec
from veilwalk.node.peer._custody import Custody
from veilwalk.node.peer._routing import NextHop, OsDraws
from veilwalk.node.peer._watches import Visits, allowed_visits
from veilwalk.node.spool._disk import FolderDisk
from veilwalk.node.spool._spool import Spool
from veilwalk.node.spool._tables import Verdict


def step_of(graph: Any) -> Any:
    step = np.zeros((graph.n_nodes, graph.n_nodes))
    for node in range(graph.n_nodes):
        step[node, graph.neighbours(node)] = 1 / graph.degrees[node]
    return step


def chance_of_more(step: Any, me: int, goals: set[int], allowed: int) -> float:
    """How likely a simple walk from a node comes back more often before it meets a goal: exact."""
    left = [me, *(node for node in range(len(step)) if node not in goals | {me})]
    visits = np.linalg.inv(np.eye(len(left)) - step[np.ix_(left, left)])[0, 0]
    return 0.0 if visits <= 1 + 1e-9 else float((1 - 1 / visits) ** allowed)


@pytest.mark.parametrize("spec", ["rrg:10:4:seed=1", "ring:8", "torus:4:4", "ba:12:2:seed=1"])
def test_honest_walks_seldom_come_that_often(spec: str) -> None:
    """Exact, for every node and every destination; one visit less would be too often for some."""
    graph = parse_graph_spec(spec)
    step, often = step_of(graph), visits_per_link(graph)
    chances, fewer = [], []
    for me in range(graph.n_nodes):
        allowed = allowed_visits(int(graph.degrees[me]), often)
        goals = [goal for goal in range(graph.n_nodes) if goal != me]
        chances.append(max(chance_of_more(step, me, {goal}, allowed) for goal in goals))
        fewer.append(max(chance_of_more(step, me, {goal}, allowed - 1) for goal in goals))
    assert max(chances) <= 1e-4 < max(fewer)


def test_finding_02_sealed_for_several_fewer_visits_are_honest() -> None:
    """Exact, for many sets of recipients and with half of each away: still once in 10,000; garbage rests far sooner."""
    graph = parse_graph_spec("rrg:24:3:seed=1")
    alone, allowed = (allowed_visits(3, visits_per_link(graph, recipients=count)) for count in (1, 16))
    step, rng = step_of(graph), np.random.default_rng(1)
    for count in (16, 8):
        for _ in range(300):
            goals = set(rng.choice(np.arange(1, graph.n_nodes), count, replace=False).tolist())
            assert chance_of_more(step, 0, goals, allowed) <= 1e-4
    assert allowed < alone / 1.5


@pytest.mark.parametrize(("spec", "recipients"), [("rrg:10:4:seed=1", 1), ("rrg:24:3:seed=1", 16)])
def test_finding_02_a_walk_that_does_not_turn_round_comes_by_less_often(spec: str, recipients: int) -> None:
    """Played: of walks from a neighbour of this node, hardly any comes here more often than is allowed."""
    graph, straight = parse_graph_spec(spec), Walk("non-backtracking")
    links = int(graph.degrees[0])
    allowed = allowed_visits(links, visits_per_link(graph, recipients=recipients, walk=straight))
    assert allowed < allowed_visits(links, visits_per_link(graph, recipients=recipients))
    rng = np.random.default_rng(2)
    often = 0
    for _ in range(4000):
        goals = set(rng.choice(np.arange(1, graph.n_nodes), recipients, replace=False).tolist())
        before, at, visits = int(graph.neighbours(0)[0]), 0, 1
        while at not in goals:
            onward = [int(node) for node in graph.neighbours(at) if node != before]
            before, at = at, onward[rng.integers(len(onward))]
            visits += at == 0
        often += visits > allowed
    assert often <= 3


def test_where_the_manifest_does_not_say_nothing_comes_too_often() -> None:
    assert allowed_visits(3, 0.0) == 10**9
    assert allowed_visits(1, 0.5) == 1


def test_the_wait_grows_and_is_bounded() -> None:
    visits = Visits(3, pause_s=0.5)
    waits = [visits.visit(b"garbage") for _ in range(300)]
    assert [seconds for seconds, _ in waits[:5]] == [0, 0, 0, 0.5, 2.0]
    assert waits[-1][0] == 100
    assert visits.visit(b"another") == (0, False)


def test_what_was_first_seen_too_long_ago_makes_its_last_visit() -> None:
    """By the first time it came, however often it came since; another's age is its own."""
    now = 0.0
    visits = Visits(3, pause_s=0.5, life_s=60.0, clock=lambda: now)
    assert visits.visit(b"walk") == (0, False)
    now = 59.0
    assert visits.visit(b"walk") == (0, False)
    now = 61.0
    assert visits.visit(b"another") == (0, False)
    assert visits.visit(b"walk") == (100, True)
    # Time in which nothing could come by makes nobody older: else an outage of the network would end its walk.
    visits.exclude_downtime(-1.0)
    now = 1000.0
    visits.exclude_downtime(900.0)
    assert visits.visit(b"another") == (0, False)


def test_finding_02_what_came_too_often_waits_and_goes_first_when_it_is_crowded(tmp_path: Path) -> None:
    """It is not pinned, and goes on when its time has come; more than the quota and it makes room."""
    custody = Custody(
        Spool(FolderDisk(tmp_path)),
        opener=cast("Any", Opener()),
        next_hop=NextHop(walk=SIMPLE, neighbours=("a", "b")),
        draws=OsDraws(),
        quota=2,
        visits=Visits(1, pause_s=1.0),
    )
    garbage = b"garbage"
    deliver(custody, relay(custody, 1, garbage))
    resting = [take(custody, seq, garbage) for seq in (2, 3)]
    assert [taken.wait_s for taken in resting] == [1.0, 4.0]
    assert all(taken.row is not None and taken.row.peer is None for taken in resting)
    assert not custody.has_a_walk(1.0)
    assert resting[0].row is not None
    moved = custody.pin(resting[0].row.id)
    assert moved is not None
    assert moved.peer is not None
    for seq, body in ((4, b"honest"), (5, b"too")):
        assert take(custody, seq, body).verdict is Verdict.TAKEN
    tallies, held = custody.statistics()
    assert tallies["rested"] == 2
    assert tallies["crowded_out"] == 2
    assert held == 2
    left = {row.digest for row in custody.spool.tables.messages()}
    assert hashlib.sha256(b"too").digest() in left
    assert resting[1].row is not None
    assert resting[1].row.id not in {row.id for row in custody.spool.tables.messages()}
    custody.spool.close()


def test_a_node_that_is_cut_off_lets_nothing_grow_old(network: Any) -> None:
    """An outage of the whole network, however long, must not end the walk that waits in it."""

    async def main() -> dict[str, float]:
        net = network(4, starts=False)
        await net.start("n1")
        await net.until(lambda: net.nodes["n1"].scheduler.custody.visits._asleep_s > 1.0)
        await net.start("n0", "n2", "n3")
        await net.until(lambda: net.nodes["n1"].links_up == 2)
        before = {name: net.nodes[name].scheduler.custody.visits._asleep_s for name in net.names}
        await asyncio.sleep(3.0)
        after = {name: net.nodes[name].scheduler.custody.visits._asleep_s for name in net.names}
        await net.stop()
        return {name: after[name] - before[name] for name in net.names}

    # A beat may have begun while it was alone, and a busy machine stands still for a while.
    assert asyncio.run(main())["n1"] < 2.0
