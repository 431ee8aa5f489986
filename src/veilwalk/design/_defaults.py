"""What fits a graph when nothing is said: its distances, its law."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csgraph

from veilwalk.core.errors import GraphError
from veilwalk.core.support import DistanceSupport
from veilwalk.design._law import law_by_distance
from veilwalk.design._sampled import LARGE_NODES
from veilwalk.graphs import Graph, iter_distances

_WIDEST = 6
_WAY_OUT = "take a sparser graph, or a law that admits neighbours (design --allow-neighbours --support 1:1)"


def default_support(graph: Graph) -> DistanceSupport:
    """Return the distances from 2 to the largest that every node has somebody at, at most 6.

    Where steps of two hops alone do not lead everywhere, as between the two sides of a bipartite graph, 3 is added.

    Raises:
        GraphError: Some node is next to all others, or two hops lead nowhere and nobody is farther.
    """
    reach, farthest = _WIDEST, 0
    large = graph.n_nodes >= LARGE_NODES
    for _, apart in iter_distances(graph):
        reach, farthest = min(reach, int(apart.max(axis=1).min())), max(farthest, int(apart.max()))
        if reach < 2:
            raise GraphError(f"some node is next to all others: no destination is two hops away; {_WAY_OUT}")
        if large:
            break
    if reach == 2 and not large and not _leads_everywhere(graph, DistanceSupport(2, 2)):
        if farthest == 2:
            raise GraphError(f"steps of two hops do not lead to all nodes, and none is farther; {_WAY_OUT}")
        reach = 3
    return DistanceSupport(2, reach)


def _leads_everywhere(graph: Graph, support: DistanceSupport) -> bool:
    law = law_by_distance(graph, support, np.ones(support.hi + 1))
    groups, _ = csgraph.connected_components(law.matrix, directed=True, connection="strong")
    return bool(groups == 1)


def default_law(graph: Graph) -> str:
    """Return the paper's law on regular graphs, which it was made for, and uniform-node on all others."""
    return "paper" if graph.is_regular and graph.degrees[0] >= 3 else "uniform-node"
