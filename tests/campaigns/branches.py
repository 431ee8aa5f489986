"""How many branches a walk has while one member copies everything, and how long they last when it stops: simulated.

    python -m tests.campaigns.branches --graph rrg:300:3:seed=1 --law far:4 --recipients 16

Every branch makes a hop at a time. A copier sends each ciphertext that it sees for the first time three times, each
copy its own way, as the hostile member of the campaign does. Whoever opens follows the node's own rule
(:func:`veilwalk.node.peer._destination.is_fork`); nothing else of a node is played.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass, replace

import numpy as np

from veilwalk.core.arrays import FloatArray
from veilwalk.design import choose_scheme
from veilwalk.graphs import Graph, parse_graph_spec
from veilwalk.node.peer._destination import is_fork
from veilwalk.node.sealing import Header
from veilwalk.node.spool import SeenWalk

_TAG = bytes(8)


@dataclass(frozen=True, slots=True)
class Branch:
    """One ciphertext on its way."""

    number: int
    iteration: int
    goals: frozenset[int]
    node: int
    came_from: int | None


class Branches:
    """A network in which one walk may have become several."""

    def __init__(self, graph: Graph, law: FloatArray, *, recipients: int, copier: int, seed: int) -> None:
        self._near = [graph.neighbours(node).tolist() for node in range(graph.n_nodes)]
        self._far = [np.flatnonzero(row).tolist() for row in law]
        self._recipients, self._dice = recipients, random.Random(seed)  # noqa: S311  a simulation
        self.copier: int | None = copier
        self._copied: set[int] = set()
        self._opened: set[tuple[int, int]] = set()
        self._seen: dict[int, int] = {}
        self._made = 0
        self.given_up = 0
        self.live = [self._sealed(0, 0, None)]

    def hop(self) -> None:
        """Let every branch make one hop, and whoever it is for open it."""
        moved = [one for branch in self.live for one in self._sent(branch)]
        self.live = [after for branch in moved if (after := self._arrived(branch)) is not None]

    def _sent(self, branch: Branch) -> list[Branch]:
        copies = 1
        if branch.node == self.copier and branch.number not in self._copied:
            self._copied.add(branch.number)
            copies = 3
        # A copy is sent as if it had been made there: anywhere.
        ways = [branch.came_from] + [None] * (copies - 1)
        return [self._moved(branch, came_from) for came_from in ways]

    def _moved(self, branch: Branch, came_from: int | None) -> Branch:
        onward = [peer for peer in self._near[branch.node] if peer != came_from] or self._near[branch.node]
        return replace(branch, node=self._dice.choice(onward), came_from=branch.node)

    def _arrived(self, branch: Branch) -> Branch | None:
        node = branch.node
        if node not in branch.goals:
            return branch
        if (node, branch.number) in self._opened:
            return None
        seen = {_TAG: SeenWalk(iteration=self._seen[node], first_turn=0, last_turn=0)} if node in self._seen else {}
        header = Header(update_id=b"", walk_tag=_TAG, iteration=branch.iteration, body_length=0)
        if is_fork(header, seen):
            self.given_up += 1
            return None
        self._opened.add((node, branch.number))
        self._seen[node] = branch.iteration + 1
        return self._sealed(node, branch.iteration + 1, branch.came_from)

    def _sealed(self, node: int, iteration: int, came_from: int | None) -> Branch:
        self._made += 1
        goals = frozenset(self._dice.sample(self._far[node], self._recipients))
        return Branch(self._made, iteration, goals, node, came_from)


def measure(graph: Graph, law: FloatArray, *, recipients: int, hops: int, seed: int) -> tuple[list[int], int]:
    """Return how many branches lived at each hop while one member copied, and in how many hops they became one."""
    world = Branches(graph, law, recipients=recipients, copier=3, seed=seed)
    live = []
    for _ in range(hops):
        world.hop()
        live.append(len(world.live))
    world.copier, after = None, 0
    while len(world.live) > 1:
        world.hop()
        after += 1
    return live, after if world.live else -1


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graph", default="rrg:24:3:seed=1")
    parser.add_argument("--law", default="far:2")
    parser.add_argument("--recipients", type=int, default=16)
    parser.add_argument("--hops", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    graph = parse_graph_spec(options.graph)
    law = choose_scheme(graph, options.law, recipients=options.recipients).law.matrix.toarray()
    found = [
        measure(graph, law, recipients=options.recipients, hops=options.hops, seed=seed)
        for seed in range(options.rounds)
    ]
    live = np.array([counts for counts, _ in found])
    after = np.array([hops for _, hops in found])
    runs = f"{options.rounds} runs of {options.hops} hops"
    most = f"99% of hops at most {np.quantile(live, 0.99):.0f}, most {live.max()}"
    late = live[:, -options.hops // 10 :].mean()
    print(f"{options.graph}, {options.law}, {options.recipients} recipients, {runs}:")
    print(f"  branches while one copies: mean {live.mean():.2f}, {most}; in the last tenth mean {late:.2f}")
    print(
        f"  hops until one is left: mean {after.mean():.0f}, most {after.max()}; none was in {(after < 0).sum()} runs"
    )


if __name__ == "__main__":
    main()
