"""Graphs that tests of several rooms walk on."""

from __future__ import annotations

import numpy as np

from veilwalk.graphs import Graph


def bushy_tree(n_nodes: int, n_edges: int) -> Graph:
    """Return a random tree with some more edges: leaves, hubs and cycles."""
    rng = np.random.default_rng(4)
    edges = {(int(rng.integers(0, node)), node) for node in range(1, n_nodes)}
    while len(edges) < n_edges:
        low, high = sorted(rng.choice(n_nodes, size=2, replace=False).tolist())
        edges.add((low, high))
    return Graph.from_edges(n_nodes, np.array(sorted(edges)))
