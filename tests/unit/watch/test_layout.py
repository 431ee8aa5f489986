"""Where nodes are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from veilwalk.graphs import Graph, parse_graph_spec
from veilwalk.watch import layout


@pytest.mark.parametrize("spec", ["rrg:60:3:seed=1", "ba:80:2:seed=1", "torus:6:7", "complete:5", "ring:12"])
def test_neighbours_are_drawn_nearer_than_others(spec: str) -> None:
    """Every node has a place of its own; edges are shorter than pairs at large, unless all pairs are edges."""
    graph = parse_graph_spec(spec)
    places = layout(graph)
    assert places.shape == (graph.n_nodes, 2)
    assert places.min() >= 0
    assert places.max() == 1000
    assert len({tuple(place) for place in places.tolist()}) == graph.n_nodes
    edges = graph.edges()
    long = np.hypot(*(places[edges[:, 0]] - places[edges[:, 1]]).T).mean()
    pairs = np.hypot(*(places[:, np.newaxis] - places).reshape(-1, 2).T).sum() / graph.n_nodes / (graph.n_nodes - 1)
    assert long < (1.01 if spec.startswith("complete") else 0.75) * pairs
    # A permuted picture has edges as long as any pair: that is what would be drawn if places were of other nodes.
    mixed = np.random.default_rng(1).permutation(places)
    if not spec.startswith("complete"):
        assert np.hypot(*(mixed[edges[:, 0]] - mixed[edges[:, 1]]).T).mean() > 0.75 * pairs


def test_a_graph_is_always_drawn_alike() -> None:
    """Nothing is drawn by lot; one edge and one node can be drawn too."""
    graph = parse_graph_spec("ws:40:4:0.1:seed=2")
    assert (layout(graph) == layout(graph)).all()
    assert layout(Graph.from_edges(2, [(0, 1)])).shape == (2, 2)
