"""The non-backtracking walk as a chain on arcs, edges with a direction: where it is and where it came from.

From node y, reached from x, the walk goes to a uniform neighbour of y other than x; at a leaf it goes back. Every arc
is entered with total probability one, so on any graph all arcs are equally likely in the long run, and a node's share
is its degree over the number of arcs, as for the simple walk. A walk that starts at a node without a past goes to a
uniform neighbour; so does one that came there by a uniform arc.

In the protocol the token keeps its past when it is opened and sealed again: after an update too it does not go
straight back. That is what ``walks.run_protocol(walk="non-backtracking")`` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from veilwalk.core.arrays import FloatArray, IntArray, frozen
from veilwalk.core.errors import InvalidParameterError
from veilwalk.graphs import Graph


@dataclass(frozen=True, eq=False)
class ArcChain:
    """The non-backtracking walk on a connected graph: a Markov chain on its arcs.

    Arc ``s`` leads from node ``graph.indices[s]`` into node ``heads[s]``: the arcs into node i are
    ``graph.indptr[i]:graph.indptr[i+1]``, in the order of the neighbours they come from.
    """

    graph: Graph

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.graph.n_nodes

    @property
    def n_arcs(self) -> int:
        """Number of arcs, two for each edge."""
        return len(self.graph.indices)

    @cached_property
    def heads(self) -> IntArray:
        """The node that each arc leads into."""
        return frozen(np.repeat(np.arange(self.n_nodes), self.graph.degrees))

    @cached_property
    def reverse(self) -> IntArray:
        """The arc of the same edge the other way."""
        # Sorted by where they come from, ties by where they lead to, arcs stand in the order of their reverses.
        return frozen(np.argsort(self.graph.indices, kind="stable"))

    @cached_property
    def stationary(self) -> FloatArray:
        """Share of time on each arc: the same for all."""
        return frozen(np.full(self.n_arcs, 1.0 / self.n_arcs))

    @cached_property
    def transition_matrix(self) -> sparse.csr_array:
        """The transition probabilities between arcs."""
        degrees, starts = self.graph.degrees[self.heads], self.graph.indptr[self.heads]
        before = np.repeat(np.arange(self.n_arcs), degrees)
        along = np.arange(len(before)) - np.repeat(np.cumsum(degrees) - degrees, degrees) + np.repeat(starts, degrees)
        allowed = (along != before) | (degrees[before] == 1)
        before, along = before[allowed], along[allowed]
        chances = 1.0 / np.maximum(degrees[before] - 1, 1)
        return sparse.csr_array((chances, (before, self.reverse[along])), shape=(self.n_arcs, self.n_arcs))

    @property
    def is_ring(self) -> bool:
        """Whether the graph is one cycle, on which the walk never turns: the two ways round never mix."""
        return bool(np.all(self.graph.degrees == 2))

    @cached_property
    def uniform_arrivals(self) -> FloatArray:
        """Arrivals by a uniform arc: the law in the long run, and that of a walk without a past."""
        return frozen(1.0 / self.graph.degrees[self.heads])

    def by_node(self, values: FloatArray, arrivals: FloatArray) -> FloatArray:
        """Return the mean of ``values``, one row an arc, over the arcs into each node.

        ``arrivals[s]`` is the probability that a walk at ``heads[s]`` came by arc s: one at each node in all.
        """
        sums = np.add.reduceat(arrivals, self.graph.indptr[:-1]) if arrivals.shape == (self.n_arcs,) else np.empty(0)
        if not sums.size or arrivals.min() < 0.0 or np.abs(sums - 1.0).max() > 1e-9:
            raise InvalidParameterError(
                "arrivals",
                f"array of shape {arrivals.shape}",
                f"{self.n_arcs} probabilities that sum to 1 at each node",
            )
        weights = arrivals.reshape(-1, *[1] * (values.ndim - 1))
        return np.asarray(np.add.reduceat(weights * values, self.graph.indptr[:-1], axis=0))

    def __repr__(self) -> str:
        return f"ArcChain(n_nodes={self.n_nodes}, n_arcs={self.n_arcs})"
