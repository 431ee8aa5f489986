"""One interface for every walk that is a Markov chain, on the nodes or on the arcs.

A non-backtracking walk is a chain on arcs. Where a question is about nodes, the token is taken to have come to the
source by any of its arcs alike, as it does in the long run of the walk; mean hitting times of a law are then right to
one part in 10^5 on regular graphs and to a few in 10^4 on small ones with hubs (measured). Delivery laws and
:meth:`Chain.mean_hops`, which follow the arcs, are exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from veilwalk.chains._arc_chain import ArcChain
from veilwalk.chains._arc_deliveries import iter_arc_deliveries
from veilwalk.chains._arc_laws import (
    arc_hitting_pmf,
    arc_mean_hitting_times,
    arc_return_survival,
    arc_truncated_means,
    arc_window_masses,
)
from veilwalk.chains._arc_updates import arc_updates
from veilwalk.chains._chain import WalkChain
from veilwalk.chains._deliveries import DeliveryLaw, iter_approximate_deliveries, iter_deliveries, stationary_law
from veilwalk.chains._laws import iter_hitting_pmf
from veilwalk.chains._means import mean_hitting_times
from veilwalk.chains._recipients import MeanOpenings, OpeningLaw, SetPotentials
from veilwalk.chains._returns import return_survival
from veilwalk.chains._truncated import truncated_means, window_masses
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph

# Targets whose laws are held at a time.
_BLOCK = 8


@dataclass(frozen=True, eq=False)
class States:
    """A walk as a chain hop by hop: its states are the nodes, or the arcs that lead into them.

    Attributes:
        transition_matrix: between states.
        node: where the token stands in each state.
        arrivals: the neighbours that each node's states come from, as a graph; None where states are nodes.
    """

    transition_matrix: sparse.csr_array
    node: IntArray
    arrivals: Graph | None = None

    def after(self, came_from: IntArray, node: IntArray) -> IntArray:
        """Return the state of a token that has gone from one node to another."""
        if self.arrivals is None:
            return np.asarray(node, dtype=np.int64)
        graph, n_nodes = self.arrivals, self.arrivals.n_nodes
        keys = self.node * n_nodes + graph.indices
        return np.searchsorted(keys, np.asarray(node, dtype=np.int64) * n_nodes + came_from)


class Chain(ABC):
    """What can be said exactly about a walk.

    Attributes:
        n_nodes: number of nodes.
        node_shares: share of its time that the walk spends on each node.
        products_per_hop: multiplications of one hop of all delivery laws.
        mixing_rate: largest modulus of an eigenvalue that dies out, of the simple walk for one on arcs.
        on_nodes: the chain on the nodes, None where the walk is one on arcs: for what needs its transition matrix.
    """

    n_nodes: int
    node_shares: FloatArray
    products_per_hop: float
    on_nodes: WalkChain | None = None

    @property
    @abstractmethod
    def mixing_rate(self) -> float: ...

    @property
    @abstractmethod
    def states(self) -> States:
        """The walk hop by hop."""

    @abstractmethod
    def mean_hitting_times(self, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> FloatArray:
        """Return the mean hops from each node to each other node."""

    @abstractmethod
    def truncated_means(self, kappa: float) -> FloatArray:
        """Return E[T_ij | T_ij <= kappa] for all pairs, infinite where that cannot be."""

    @abstractmethod
    def window_masses(self, first: IntArray, last: IntArray) -> FloatArray:
        """Return P(first_ij <= T_ij <= last_ij) for all pairs."""

    @abstractmethod
    def return_survival(self, times: IntArray) -> FloatArray:
        """Return P(return time > t) for each time (row) and node."""

    @abstractmethod
    def hitting_laws(self, horizon: int) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield targets and P(T_ij = t) for them, as (time, source, target), some targets at a time."""

    @abstractmethod
    def deliveries(self, law: FloatArray, horizon: int, nodes: IntArray | None = None) -> Iterator[DeliveryLaw]:
        """Yield the exact delivery law of each destination in turn, all of them unless told which."""

    def estimated_deliveries(self, law: FloatArray, horizon: int, nodes: IntArray) -> Iterator[DeliveryLaw]:
        """Yield delivery laws from transforms: exact but for one correlation, and cheap enough for large graphs."""
        raise InvalidParameterError("posterior", "estimated", "another: transforms are for walks on the nodes")

    @abstractmethod
    def mean_hops(self, law: sparse.csr_array) -> float:
        """Return the exact mean hops between two updates under a destination law."""

    @cached_property
    def _set_potentials(self) -> SetPotentials:
        return SetPotentials(self.states, self.node_shares)

    def opening_law(self, source: int, recipients: Sequence[int] | IntArray, horizon: int = 0) -> OpeningLaw:
        """Return who of ``recipients`` opens what ``source`` sealed for them, by which last hop and when: exact."""
        return self._set_potentials.law(source, recipients, horizon)

    def mean_openings(self, law: sparse.csr_array, recipients: int, *, n_sets: int, seed: int) -> MeanOpenings:
        """Return the long run of a protocol that seals for several, from ``n_sets`` sets drawn for each source."""
        return self._set_potentials.mean_over_sets(law, recipients, n_sets, seed)


class NodeWalk(Chain):
    """A walk without memory."""

    def __init__(self, chain: WalkChain) -> None:
        self.on_nodes: WalkChain = chain
        self.n_nodes, self.node_shares = chain.n_nodes, chain.stationary
        self.products_per_hop = float(chain.n_nodes**2 * len(chain.indices))

    @property
    def mixing_rate(self) -> float:
        return self.on_nodes.mixing_rate

    @property
    def states(self) -> States:
        return States(sparse.csr_array(self.on_nodes.transition_matrix), np.arange(self.n_nodes))

    def mean_hitting_times(self, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> FloatArray:
        return mean_hitting_times(self.on_nodes, memory_bytes=memory_bytes)

    def truncated_means(self, kappa: float) -> FloatArray:
        return truncated_means(self.on_nodes, kappa)

    def window_masses(self, first: IntArray, last: IntArray) -> FloatArray:
        return window_masses(self.on_nodes, first, last)

    def return_survival(self, times: IntArray) -> FloatArray:
        return return_survival(self.on_nodes, times)

    def hitting_laws(self, horizon: int) -> Iterator[tuple[IntArray, FloatArray]]:
        return iter_hitting_pmf(self.on_nodes, horizon)

    def deliveries(self, law: FloatArray, horizon: int, nodes: IntArray | None = None) -> Iterator[DeliveryLaw]:
        return iter_deliveries(self.on_nodes, law, horizon, nodes)

    def estimated_deliveries(self, law: FloatArray, horizon: int, nodes: IntArray) -> Iterator[DeliveryLaw]:
        return iter_approximate_deliveries(self.on_nodes, law, horizon, nodes)

    def mean_hops(self, law: sparse.csr_array) -> float:
        legs = np.asarray(law.multiply(self.mean_hitting_times()).sum(axis=1)).ravel()
        return float(stationary_law(law.toarray()) @ legs)


class ArcWalk(Chain):
    """A walk that knows where it came from."""

    def __init__(self, chain: ArcChain) -> None:
        self._arcs = chain
        self.n_nodes, self.node_shares = chain.n_nodes, chain.graph.stationary_distribution
        degrees = chain.graph.degrees
        self.products_per_hop = float(chain.n_nodes) ** 2 * float(degrees @ np.maximum(degrees - 1, 1))

    @cached_property
    def mixing_rate(self) -> float:
        return WalkChain.simple(self._arcs.graph).mixing_rate

    @property
    def states(self) -> States:
        return States(self._arcs.transition_matrix, self._arcs.heads, self._arcs.graph)

    def mean_hitting_times(self, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> FloatArray:
        arrivals = self._arcs.uniform_arrivals
        return arc_mean_hitting_times(self._arcs, arrivals=arrivals, memory_bytes=memory_bytes)

    def truncated_means(self, kappa: float) -> FloatArray:
        return arc_truncated_means(self._arcs, kappa, arrivals=self._arcs.uniform_arrivals)

    def window_masses(self, first: IntArray, last: IntArray) -> FloatArray:
        return arc_window_masses(self._arcs, first, last, arrivals=self._arcs.uniform_arrivals)

    def return_survival(self, times: IntArray) -> FloatArray:
        return arc_return_survival(self._arcs, times)

    def hitting_laws(self, horizon: int) -> Iterator[tuple[IntArray, FloatArray]]:
        for start in range(0, self.n_nodes, _BLOCK):
            targets = np.arange(start, min(start + _BLOCK, self.n_nodes))
            yield targets, arc_hitting_pmf(self._arcs, targets, horizon, arrivals=self._arcs.uniform_arrivals)

    def deliveries(self, law: FloatArray, horizon: int, nodes: IntArray | None = None) -> Iterator[DeliveryLaw]:
        return iter_arc_deliveries(self._arcs, law, horizon, nodes)

    def mean_hops(self, law: sparse.csr_array) -> float:
        return arc_updates(self._arcs, law.toarray()).mean_hops


#: How the chain of each kind of walk is made.
CHAINS: dict[str, Callable[[Graph], Chain]] = {
    "simple": lambda graph: NodeWalk(WalkChain.simple(graph)),
    "lazy": lambda graph: NodeWalk(WalkChain.lazy(graph)),
    "metropolis": lambda graph: NodeWalk(WalkChain.metropolis(graph)),
    "non-backtracking": lambda graph: ArcWalk(ArcChain(graph)),
}


def chain_of(graph: Graph, walk: Walk) -> Chain:
    """Return the exact chain of ``walk`` on ``graph``."""
    return CHAINS[walk.kind](graph)
