"""Builds the small graphs that tests of several rooms use: as lists of edges, and as graphs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np

from veilwalk.graphs import Graph

Edges = list[tuple[int, int]]

#: The Petersen graph: a ring 0..4, a star of five points 5..9, and a spoke between each two.
PETERSEN_EDGES: Edges = [
    *((node, (node + 1) % 5) for node in range(5)),
    *((5 + node, 5 + (node + 2) % 5) for node in range(5)),
    *((node, node + 5) for node in range(5)),
]


def path_edges(nodes: Sequence[int]) -> Edges:
    """Return the edges from each node to the next."""
    return list(pairwise(nodes))


def cycle_edges(n_nodes: int) -> Edges:
    """Return the edges of a ring."""
    return path_edges([*range(n_nodes), 0])


def star_edges(n_leaves: int) -> Edges:
    """Return the edges from node 0 to each leaf."""
    return [(0, leaf) for leaf in range(1, n_leaves + 1)]


def clique_edges(nodes: Sequence[int]) -> Edges:
    """Return all pairs of nodes."""
    return list(combinations(nodes, 2))


def cube_edges(dimension: int) -> Edges:
    """Return the pairs of words of ``dimension`` bits that differ in one bit."""
    return [(node, node | 1 << bit) for node in range(2**dimension) for bit in range(dimension) if not node & 1 << bit]


def build_graph(edges: Edges) -> Graph:
    """Return the graph of ``edges`` on the nodes 0, 1, ... that they name."""
    return Graph.from_edges(max(map(max, edges)) + 1, np.array(edges))


def petersen() -> Graph:
    """Return the Petersen graph: 10 nodes of degree 3, no two more than two hops apart."""
    return build_graph(PETERSEN_EDGES)


def path(n_nodes: int) -> Graph:
    """Return the path 0, 1, ..., bipartite and with two leaves."""
    return build_graph(path_edges(range(n_nodes)))


def cycle(n_nodes: int) -> Graph:
    """Return the ring 0, 1, ..., 0."""
    return build_graph(cycle_edges(n_nodes))


def star(n_leaves: int) -> Graph:
    """Return a hub, node 0, with leaves."""
    return build_graph(star_edges(n_leaves))


def wheel(n_spokes: int) -> Graph:
    """Return a hub, node 0, joined to every node of a ring: degrees 3 and ``n_spokes``."""
    rim = [(one + 1, other + 1) for one, other in cycle_edges(n_spokes)]
    return build_graph(star_edges(n_spokes) + rim)


def bushy_tree(n_nodes: int, n_edges: int) -> Graph:
    """Return a random tree with some more edges: leaves, hubs and cycles."""
    rng = np.random.default_rng(4)
    edges = {(int(rng.integers(0, node)), node) for node in range(1, n_nodes)}
    while len(edges) < n_edges:
        low, high = sorted(rng.choice(n_nodes, size=2, replace=False).tolist())
        edges.add((low, high))
    return build_graph(sorted(edges))
