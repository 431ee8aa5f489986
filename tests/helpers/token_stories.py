"""A twin of the filters that carries every possible story of a token along, one dictionary entry a story."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from itertools import combinations, permutations

import numpy as np
from scipy import sparse

from veilwalk.audit._filter import EVERY, MemberLog
from veilwalk.core.arrays import BoolArray, FloatArray
from veilwalk.core.support import DistanceSupport
from veilwalk.design import DestinationLaw
from veilwalk.graphs import Graph

N_NODES = 9
EDGES = [(0, 1), (1, 2), (2, 3), (3, 1), (1, 4), (4, 5), (5, 6), (6, 7), (7, 4), (2, 6), (7, 8), (8, 3)]
GRAPH = Graph.from_edges(N_NODES, np.array(EDGES))
NEIGHBOURS: dict[int, list[int]] = {node: [a + b - node for a, b in EDGES if node in (a, b)] for node in range(N_NODES)}


def uneven_law() -> DestinationLaw:
    """No row is like another, and no node may choose a neighbour."""
    weights = np.random.default_rng(6).uniform(0.2, 1.0, (N_NODES, N_NODES))
    for node, near in NEIGHBOURS.items():
        weights[node, [node, *near]] = 0.0
    rows = sparse.csr_array(weights / weights.sum(axis=1, keepdims=True))
    return DestinationLaw(DistanceSupport(2, 4), GRAPH.digest, rows, "uneven")


LAW = uneven_law()


def members(*nodes: int) -> BoolArray:
    """Return the mask of these nodes."""
    return np.isin(np.arange(N_NODES), nodes)


@cache
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


@cache
def sets(law: DestinationLaw, maker: int, recipients: int) -> dict[frozenset[int], float]:
    """Return for whom a maker seals, with what probability: one drawn after the other, without replacement."""
    row = law.matrix.toarray()[maker]
    found = {}
    for chosen in combinations([int(node) for node in np.flatnonzero(row)], recipients):
        total = 0.0
        for order in permutations(chosen):
            share, left = 1.0, 1.0
            for node in order:
                share *= row[node] / left
                left -= row[node]
            total += share
        found[frozenset(chosen)] = total
    return found


# Where the token came from, where it is, whom its ciphertext is for, who made that, whether since the members last
# held it, and how many updates there were.
Story = tuple[int, int, frozenset[int], int, bool, int]


class Twin:
    """Who made what members saw, by all stories; ``redrawn``: a mutant that seals for others at every hop."""

    def __init__(
        self,
        kind: str,
        law: DestinationLaw,
        recipients: int = 1,
        *,
        counted: bool = False,
        distinct_counts: int = EVERY,
        redrawn: bool = False,
    ) -> None:
        self._kind, self._law, self._recipients = kind, law, recipients
        self._told_apart, self._redrawn = distinct_counts if counted else 0, redrawn

    def _hop(self, stories: dict[Story, float]) -> dict[Story, float]:
        """Let every story go on by one hop."""
        after: dict[Story, float] = defaultdict(float)
        for (before, here, goal, maker, fresh, count), weight in stories.items():
            for there, share in moves(self._kind, before, here).items():
                after[here, there, goal, maker, fresh, count] += weight * share
        return after

    def _sealed(self, stories: dict[Story, float]) -> dict[Story, float]:
        """Open what has arrived and seal it for whomever the law may choose."""
        after: dict[Story, float] = defaultdict(float)
        for (before, here, goal, maker, fresh, count), weight in stories.items():
            if here in goal:
                for chosen, share in sets(self._law, here, self._recipients).items():
                    after[before, here, chosen, here, True, count + 1] += weight * share
            elif self._redrawn:
                for chosen, share in sets(self._law, maker, self._recipients).items():
                    after[before, here, chosen, maker, fresh, count] += weight * share
            else:
                after[before, here, goal, maker, fresh, count] += weight
        return after

    def answers(self, log: MemberLog, member: BoolArray) -> tuple[FloatArray, list[FloatArray]]:
        """Return who made what was opened at last, and who made each new ciphertext as of its first sight."""
        start, drawn = int(log.node[0]), frozenset(log.recipients.tolist())
        stories: dict[Story, float] = {(int(log.came_from[0]), start, drawn, start, False, 0): 1.0}
        at_first_sight = []
        rows = {int(clock): row for row, clock in enumerate(log.clock)}
        for clock in range(int(log.clock[0]), int(log.clock[-1])):
            stories = self._hop(stories)
            if clock in rows:
                stories = {story: weight for story, weight in stories.items() if story[1] == log.went_to[rows[clock]]}
            row = rows.get(clock + 1)
            if row is None:
                stories = self._sealed({story: weight for story, weight in stories.items() if not member[story[1]]})
                continue
            opened = row == len(log.clock) - 1
            stories = {
                (before, here, goal, maker, False, count): weight
                for (before, here, goal, maker, fresh, count), weight in stories.items()
                if (here, before) == (log.node[row], log.came_from[row])
                and fresh == log.new[row]
                and (here in goal) == opened
            }
            if log.new[row] and not opened:
                at_first_sight.append(makers(stories))
        seen, most = int(log.new.sum()), self._told_apart
        known = min(log.updates - seen, most)
        stories = {story: weight for story, weight in stories.items() if min(story[5] - seen, most) == known}
        return makers(stories), at_first_sight


def makers(stories: dict[Story, float]) -> FloatArray:
    """Return who made the present ciphertext."""
    found = np.zeros(N_NODES)
    for story, weight in stories.items():
        found[story[3]] += weight
    return np.asarray(found / found.sum())
