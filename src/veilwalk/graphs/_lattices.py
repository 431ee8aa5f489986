"""Graphs without chance: ring, torus, hypercube, complete graph."""

from __future__ import annotations

import math

import numpy as np

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.graphs._graph import Graph

# Neighbour lists, the edge list they are sorted from, and one copy in between.
_BYTES_PER_EDGE = 32
_BYTES_LIMIT = 32 * 2**30
_MOST_BITS = 63


def refuse_huge(n_edges: int, *, n_nodes: int = 0) -> None:
    """Refuse a graph whose construction would need more memory than a workstation has.

    Where nodes may outnumber edges, they count too: each takes about as much.
    """
    needed = max(n_edges, n_nodes) * _BYTES_PER_EDGE
    if needed > _BYTES_LIMIT:
        what = f"{n_nodes} nodes" if n_nodes > n_edges else f"{n_edges} edges"
        raise ResourceLimitError(f"a graph of {what} needs about {needed} bytes: must be at most {_BYTES_LIMIT}")


def ring(n_nodes: int) -> Graph:
    """Return the cycle of ``n_nodes`` nodes, at least 3."""
    validate.integer(nodes=n_nodes)
    validate.at_least(3, nodes=n_nodes)
    return torus(n_nodes).named(f"ring:{n_nodes}")


def torus(*sides: int) -> Graph:
    """Return the periodic lattice with these side lengths, each at least 3; nodes are numbered row by row."""
    if not sides:
        raise InvalidParameterError("sides", sides, "at least one side length")
    for side in sides:
        validate.integer(side=side)
        validate.at_least(3, side=side)
    n_nodes = math.prod(sides)
    refuse_huge(len(sides) * n_nodes)
    grid = np.arange(n_nodes).reshape(sides)
    edges = [np.column_stack((grid.ravel(), np.roll(grid, -1, axis).ravel())) for axis in range(len(sides))]
    return Graph.from_edges(n_nodes, np.concatenate(edges)).named(":".join(["torus", *map(str, sides)]))


def hypercube(dimension: int) -> Graph:
    """Return the graph on the words of ``dimension`` bits; neighbours differ in one bit."""
    validate.integer(dimension=dimension)
    validate.at_least(1, dimension=dimension)
    if dimension > _MOST_BITS:
        raise InvalidParameterError("dimension", dimension, f"<= {_MOST_BITS}: a node's number has so many bits")
    refuse_huge(dimension * 2 ** (dimension - 1))
    nodes = np.arange(2**dimension)
    edges = [np.column_stack((nodes, nodes | 1 << bit))[nodes & 1 << bit == 0] for bit in range(dimension)]
    return Graph.from_edges(len(nodes), np.concatenate(edges)).named(f"hypercube:{dimension}")


def complete(n_nodes: int) -> Graph:
    """Return the graph in which each of the ``n_nodes`` nodes, at least 2, neighbours every other."""
    validate.integer(nodes=n_nodes)
    validate.at_least(2, nodes=n_nodes)
    refuse_huge(n_nodes * (n_nodes - 1) // 2)
    return Graph.from_edges(n_nodes, np.column_stack(np.triu_indices(n_nodes, 1))).named(f"complete:{n_nodes}")
