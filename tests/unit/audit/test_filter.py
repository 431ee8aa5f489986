"""The filter against a twin that carries every possible story of a token along, one dictionary entry a story."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

from veilwalk.audit import AuditSettings, Run, play
from veilwalk.audit._member_log import MemberLog, member_log
from veilwalk.audit.inference.filter import Filter, segments
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import Walk
from veilwalk.design import DestinationLaw, Scheme
from veilwalk.graphs import Graph
from veilwalk.walks import token_paths

N_NODES = 9
EDGES = [(0, 1), (1, 2), (2, 3), (3, 1), (1, 4), (4, 5), (5, 6), (6, 7), (7, 4), (2, 6), (7, 8), (8, 3)]
GRAPH = Graph.from_edges(N_NODES, np.array(EDGES))
NEIGHBOURS: dict[int, list[int]] = {node: [a + b - node for a, b in EDGES if node in (a, b)] for node in range(N_NODES)}
SETTINGS = AuditSettings(updates=1200, replicas=8, seed=5)
WALKS = ("simple", "lazy", "metropolis", "non-backtracking")


def uneven_law() -> DestinationLaw:
    """No row is like another, and no node may choose a neighbour."""
    weights = np.random.default_rng(6).uniform(0.2, 1.0, (N_NODES, N_NODES))
    for node, near in NEIGHBOURS.items():
        weights[node, [node, *near]] = 0.0
    rows = sparse.csr_array(weights / weights.sum(axis=1, keepdims=True))
    return DestinationLaw(DistanceSupport(2, 4), GRAPH.digest, rows, "uneven")


LAW = uneven_law()
ROWS = LAW.matrix.toarray()


def members(*nodes: int) -> BoolArray:
    """Return the mask of these nodes."""
    return np.isin(np.arange(N_NODES), nodes)


def moves(kind: str, before: int, here: int) -> dict[int, float]:
    """Where a token goes next, by the words of ``core.walk.WALKS``."""
    near = NEIGHBOURS[here]
    if kind == "non-backtracking":
        onward = [node for node in near if node != before] or near
        return dict.fromkeys(onward, 1 / len(onward))
    found = dict.fromkeys(near, 1 / len(near))
    if kind == "lazy":
        return {node: share / 2 for node, share in found.items()} | {here: 0.5}
    if kind == "metropolis":
        found = {node: share * min(1.0, len(near) / len(NEIGHBOURS[node])) for node, share in found.items()}
        found[here] = 1.0 - sum(found.values())
    return found


# Where the token came from, where it is, whom its ciphertext is for, who made that, whether since the members last
# held it, and how many updates there were.
Story = tuple[int, int, int, int, bool, int]


def hop(stories: dict[Story, float], kind: str) -> dict[Story, float]:
    """Let every story go on by one hop, and on arrival by one update."""
    after: dict[Story, float] = defaultdict(float)
    for (before, here, goal, maker, fresh, count), weight in stories.items():
        for there, share in moves(kind, before, here).items():
            after[here, there, goal, maker, fresh, count] += weight * share
    return after


def sealed(stories: dict[Story, float]) -> dict[Story, float]:
    """Open what has arrived and seal it for whomever the law may choose."""
    after: dict[Story, float] = defaultdict(float)
    for (before, here, goal, maker, fresh, count), weight in stories.items():
        if here != goal:
            after[before, here, goal, maker, fresh, count] += weight
            continue
        for chosen in np.flatnonzero(ROWS[here]):
            after[before, here, int(chosen), here, True, count + 1] += weight * float(ROWS[here, chosen])
    return after


def makers(stories: dict[Story, float]) -> FloatArray:
    """Return who made the present ciphertext."""
    found = np.zeros(N_NODES)
    for story, weight in stories.items():
        found[story[3]] += weight
    return np.asarray(found / found.sum())


def twin(log: MemberLog, member: BoolArray, kind: str, *, counted: bool) -> tuple[FloatArray, list[FloatArray]]:
    """Return who made what was opened at last, and who made each new ciphertext by what was known at first sight."""
    stories: dict[Story, float] = {
        (int(log.came_from[0]), int(log.node[0]), log.drawn, int(log.node[0]), False, 0): 1.0
    }
    at_first_sight = []
    rows = {int(clock): row for row, clock in enumerate(log.clock)}
    for clock in range(int(log.clock[0]), int(log.clock[-1])):
        stories = hop(stories, kind)
        if clock in rows:
            stories = {story: weight for story, weight in stories.items() if story[1] == log.went_to[rows[clock]]}
        row = rows.get(clock + 1)
        if row is None:
            stories = sealed({story: weight for story, weight in stories.items() if not member[story[1]]})
            continue
        opened = row == len(log.clock) - 1
        stories = {
            (before, here, goal, maker, False, count): weight
            for (before, here, goal, maker, fresh, count), weight in stories.items()
            if (here, before) == (log.node[row], log.came_from[row])
            and fresh == log.new[row]
            and (here == goal) == opened
        }
        if log.new[row] and not opened:
            at_first_sight.append(makers(stories))
    if counted:
        stories = {story: weight for story, weight in stories.items() if story[5] == log.updates}
    return makers(stories), at_first_sight


def openings(run: Run, member: BoolArray, *, longest: int, most: int) -> IntArray:
    """Return pairs of openings that follow each other, not too far apart, with two updates by others between them."""
    lanes, clock = run.truth.lane, run.seen.clock
    rows = np.flatnonzero(member[run.seen.destination])
    pairs = [
        (first, last)
        for first, last in pairwise(rows)
        if lanes[first] == lanes[last] and last > first + 2 and clock[last] - clock[first] <= longest
    ]
    return np.array(pairs[:most])


def scheme(kind: str) -> Scheme:
    """Return the uneven law under one walk."""
    return Scheme(GRAPH, LAW, Walk(kind))


def watched(kind: str, member: BoolArray, *, longest: int = 40, most: int = 8) -> list[MemberLog]:
    """Return what members saw of some segments of a run."""
    run = play(scheme(kind), SETTINGS)
    ends = openings(run, member, longest=longest, most=most)
    return segments(scheme(kind), SETTINGS, seen=run.seen, lanes=run.truth.lane, ends=ends, member=member)


def make_filter(kind: str, *, counted: bool) -> Filter:
    """Return the filter of a walk."""
    chain = scheme(kind).chain
    assert chain is not None
    return Filter(chain.states, LAW.matrix, counted=counted)


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("nodes", [(2, 8), (4,)])
@pytest.mark.parametrize("kind", WALKS)
def test_the_filter_is_exact(kind: str, nodes: tuple[int, ...], counted: bool) -> None:
    """Of what is opened: with and without known counts."""
    member = members(*nodes)
    logs = watched(kind, member)
    assert any(log.updates > log.new.sum() for log in logs)
    found = make_filter(kind, counted=counted).opened(logs, member)
    for weights, log in zip(found, logs, strict=True):
        np.testing.assert_allclose(weights, twin(log, member, kind, counted=counted)[0], atol=1e-12)


@pytest.mark.parametrize("kind", WALKS)
def test_first_sights_are_exact(kind: str) -> None:
    """Of what is not opened: whom it is for is not known, but for who holds it and who held it before."""
    member = members(2, 8)
    logs = watched(kind, member)
    found, rows = make_filter(kind, counted=False).first_sights(logs, member)
    wanted = [weights for log in logs for weights in twin(log, member, kind, counted=False)[1]]
    assert len(wanted) == len(rows) > 0
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    with pytest.raises(ValueError, match="known only when a message is opened"):
        make_filter(kind, counted=True).first_sights(logs, member)


def test_members_of_their_own_for_every_segment() -> None:
    """A mask a segment gives what one mask gives for each."""
    one, other = members(2, 8), members(4)
    logs = [*watched("simple", one, most=3), *watched("simple", other, most=3)]
    filtered = make_filter("simple", counted=True)
    together = filtered.opened(logs, np.stack([one] * 3 + [other] * 3))
    apart = np.concatenate((filtered.opened(logs[:3], one), filtered.opened(logs[3:], other)))
    np.testing.assert_array_equal(together, apart)


def test_what_members_do_not_see_is_not_read() -> None:
    """Hops away from members and their hand-overs may be anything; those with members may not."""
    member, first = members(2, 8), 40
    path = token_paths(GRAPH, hops=400, lanes=1, seed=3)[0].astype(np.int64)
    clocks = np.array([first, 120, 190, 260])
    log = member_log(path[first - 1 : 262], clocks, 5, member, 0)
    near = np.zeros(len(path), dtype=np.bool_)
    for shift in (-1, 0, 1):
        near |= np.roll(member[path], shift)
    scrambled = np.where(near, path, np.random.default_rng(1).choice(np.flatnonzero(~member), len(path)))
    assert (scrambled != path).sum() > 50
    again = member_log(scrambled[first - 1 : 262], clocks, 5, member, 0)
    for name in ("clock", "node", "came_from", "went_to", "new", "row"):
        np.testing.assert_array_equal(getattr(again, name), getattr(log, name))
    moved = np.where(member[path], 2, path)
    assert (member_log(moved[first - 1 : 262], clocks, 5, member, 0).node != log.node).any()
