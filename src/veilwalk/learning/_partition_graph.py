"""Data that resembles the neighbours' data."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.graphs import Graph
from veilwalk.learning._api import Array
from veilwalk.learning._labels import is_real
from veilwalk.learning._partition import LABEL, Partitioner, check_feasible

_CLASSES = 10


@dataclass(frozen=True, eq=False)
class GraphCorrelatedPartitioner(Partitioner):
    """Neighbours hold the same classes: each class has its own region of the graph.

    Regions grow from random nodes, one node at a time, in proportion to the rows of each class. Then a share
    1 - ``correlation`` of the rows, drawn at random, change places: 0 is even at random, 1 leaves regions pure but
    for their borders. Sizes differ by at most one row. Real labels are sorted into ten classes of as many rows each.
    """

    graph: Graph
    correlation: float
    partition_by: str = LABEL
    seed: int = 42

    @property
    def num_partitions(self) -> int:
        """One for each node of the graph."""
        return self.graph.n_nodes

    def deal(self, keys: Array) -> list[IntArray]:
        """Return the row numbers of each node."""
        check_feasible(self.num_partitions, len(keys))
        if not 0.0 <= self.correlation <= 1.0:
            raise InvalidParameterError("correlation", self.correlation, "between 0 and 1")
        if is_real(keys):
            keys = np.argsort(np.argsort(keys, kind="stable")) * _CLASSES // len(keys)
        rng = task_generator(self.seed)
        # Random order within a class, so that no row is bound to a node by its place in the file.
        shuffled = rng.permutation(len(keys))
        rows = shuffled[np.argsort(keys[shuffled], kind="stable")]
        nodes = _regions(self.graph, np.unique(keys, return_counts=True)[1], rng)
        movers = np.flatnonzero(rng.random(len(rows)) >= self.correlation)
        rows[movers] = rows[rng.permutation(movers)]
        parts: list[IntArray] = [rows[:0]] * len(nodes)
        for node, mine in zip(nodes, np.array_split(rows, len(nodes)), strict=True):
            parts[node] = mine
        return parts


def _regions(graph: Graph, weights: IntArray, rng: np.random.Generator) -> IntArray:
    """Return all nodes, region by region, sizes in proportion to ``weights``; each region grows breadth first."""
    ends = np.floor(np.cumsum(weights) / weights.sum() * graph.n_nodes + 0.5).astype(np.int64)
    room = np.diff(ends, prepend=0)
    start = deque(rng.permutation(graph.n_nodes).tolist())
    taken = np.zeros(graph.n_nodes, dtype=np.bool_)
    regions: list[list[int]] = [[] for _ in room]
    frontiers: list[deque[int]] = [deque() for _ in room]
    while any(len(region) < size for region, size in zip(regions, room, strict=True)):
        for region, frontier, size in zip(regions, frontiers, room, strict=True):
            if len(region) >= size:
                continue
            while frontier and taken[frontier[0]]:
                frontier.popleft()
            if not frontier:
                # First node of a region, or one shut in by others: go on from any free node.
                while taken[start[0]]:
                    start.popleft()
                frontier.append(start[0])
            node = frontier.popleft()
            taken[node] = True
            region.append(node)
            frontier.extend(int(near) for near in graph.neighbours(node) if not taken[near])
    return np.array([node for region in regions for node in region], dtype=np.int64)
