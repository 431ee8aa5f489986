r"""Sealed for one by a non-backtracking walk: exact on dense networks, by one system over the nodes per destination.

Let v(x, y) be what a token that has gone from x to y expects: how long until it comes to j, or whether by a given arc.
With S_y the sum of v(y, z) over the neighbours z of y, and f(x, y) what the hop itself adds,

    v(x, y) = f(x, y) + (S_y - v(y, x)) / (degree of y - 1)      and the same with x and y exchanged,

two equations for the two arcs of a link. They leave v as a sum of S_x and S_y, unless both ends have two neighbours;
summed over the links of x, they leave one equation a node. At j and at leaves the first term, or the second, is
missing. So 39,800 arcs of 200 nodes need no matrix over the arcs. Where the token is sealed again the arc it came by
counts. How often each node seals is known from the law; only how that is shared among the arcs into it changes from one
update to the next, and settles after a few.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from veilwalk.chains._deliveries import stationary_law
from veilwalk.chains._openings import MeanOpenings, find_makers
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import NumericalError
from veilwalk.graphs import Graph

_TOLERANCE, _MOST_UPDATES = 1e-14, 1_000


def is_reducible(graph: Graph) -> bool:
    """Whether no two neighbours have two neighbours each."""
    heads = np.repeat(np.arange(graph.n_nodes), graph.degrees)
    return not np.any((graph.degrees[heads] == 2) & (graph.degrees[graph.indices] == 2))


class ArcDeliveries:
    """What comes of every arc under one law, for each destination. Cost: n^4 multiplications, n^2 degree numbers."""

    def __init__(self, graph: Graph, law: sparse.csr_array) -> None:
        self._graph, self._law = graph, np.asarray(law.toarray())
        self._arcs = graph.indices, np.repeat(np.arange(graph.n_nodes), graph.degrees)
        self._links = np.zeros(self._law.shape)
        self._links[self._arcs] = 1.0
        self._on = 1.0 / np.maximum(graph.degrees - 1.0, 1.0)
        self._back = np.where(graph.degrees > 1, self._on, 0.0)
        self._solved = [self._solve(node) for node in range(graph.n_nodes)]

    def _factors(self, node: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the shares of S_y and of v(y, x), and what the pair of equations of a link is multiplied by."""
        on, back = self._on.copy(), self._back.copy()
        on[node] = back[node] = 0.0
        return on, back, self._links / (1.0 - self._links * np.outer(back, back))

    def _solve(self, node: int) -> FloatArray:
        """Return S: a column for each arc into ``node``, whether it is the one, and one for the hops left."""
        on, back, factor = self._factors(node)
        system = np.diag(1.0 + on * (factor @ back)) - factor * on
        right = np.zeros((len(on), self._graph.degrees[node] + 1))
        near = self._graph.neighbours(node)
        right[near, np.arange(len(near))] = 1.0
        hop = np.ones(self._links.shape)
        hop[:, node] = 0.0
        right[:, -1] = (factor * (hop - back * hop.T)).sum(axis=1)
        return np.asarray(np.linalg.solve(system, right))

    def weigh(self, node: int, came: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return P(sealed at i, opened by ``node``), a column an arc into ``node``, and the mean hops of each row i.

        ``came[x, i]`` is the share of updates made at i by a token that came from x.
        """
        on, back, factor = self._factors(node)
        sealed, near = factor * came, self._graph.neighbours(node)
        total = sealed.sum(axis=0)
        weights = (np.diag(total) - back[:, np.newaxis] * sealed.T) * on
        values = weights @ self._solved[node]
        # The arc straight back, where the token came from the destination itself.
        values[near, np.arange(len(near))] -= back[near] * came[node, near]
        # What hops add by themselves, but for one into the destination.
        values[:, -1] += total - back * (total - sealed[node])
        values *= self._law[:, node, np.newaxis]
        return np.maximum(values[:, :-1], 0.0), values[:, -1]

    def solve(self, train_probability: float) -> MeanOpenings:
        """Return the long run of the protocol."""
        n_nodes, sources = self._graph.n_nodes, stationary_law(self._law)
        came = self._links * (sources / self._graph.degrees)
        for _ in range(_MOST_UPDATES):
            before, came = came, self._seal_again(came)
            if np.abs(came - before).max() < _TOLERANCE:
                break
        else:
            raise NumericalError(f"shares of arcs on {self._graph!r} do not settle in {_MOST_UPDATES} updates")
        joint, hops = zip(*(self.weigh(node, came) for node in range(n_nodes)), strict=True)
        guess = self._guess_maker(sources, train_probability)
        n_sets = int(np.count_nonzero(self._law))
        arcs = np.concatenate([table.T for table in joint])
        return MeanOpenings(self._law, arcs, n_sets, float(np.sum(hops)), 0.0, guess, 0.0, guess, 0.0)

    def _seal_again(self, came: FloatArray) -> FloatArray:
        """Return the shares of arcs among the updates that follow those of ``came``."""
        after = np.zeros(came.shape)
        after[self._arcs] = np.concatenate([self.weigh(node, came)[0].sum(axis=0) for node in range(len(came))])
        return after

    def _guess_maker(self, sources: FloatArray, chance: float) -> float:
        """Return how often a source that knows its one recipient names who trains next."""
        following = (1.0 - chance) * find_makers(self._law, chance) + chance * np.eye(len(sources))
        return float(sources @ self._law @ following.max(axis=1))
