"""The walk as the design sees it: what it costs from node to node, and what chains know about it.

A non-backtracking walk is a chain on arcs. Where a question is about nodes, the token is taken to have come to the
source by any of its arcs alike, as it does in the long run of the walk; mean hops of a law are then right to about one
part in 10^5 (measured), and delivery laws, which follow the arcs, are exact.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from veilwalk.chains import (
    ArcChain,
    DeliveryLaw,
    WalkChain,
    arc_hitting_pmf,
    arc_mean_hitting_times,
    arc_return_survival,
    arc_truncated_means,
    arc_window_masses,
    iter_arc_deliveries,
    iter_deliveries,
    iter_hitting_pmf,
    mean_hitting_times,
    return_survival,
    truncated_means,
    window_masses,
)
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.graphs import Graph

Chain = WalkChain | ArcChain
#: Walks that are chains, on nodes or on arcs, and so can be designed for exactly.
WALKS = ("simple", "lazy", "metropolis", "non-backtracking")
_BLOCK = 8


def walk_chain(graph: Graph, walk: str) -> Chain:
    """Return the chain of the walk called ``walk``."""
    if walk not in WALKS:
        need = f"one of {', '.join(WALKS)}"
        if walk == "least-recent":
            need += ": this one has no chain; measure it with veilwalk audit --walk least-recent"
        raise InvalidParameterError("walk", walk, need)
    return ArcChain(graph) if walk == "non-backtracking" else WalkChain.of(graph, walk)


def mean_hops_table(chain: Chain, *, memory_bytes: int = 4 << 30) -> FloatArray:
    """Return the mean hops from each node to each other node."""
    if isinstance(chain, ArcChain):
        return arc_mean_hitting_times(chain, arrivals=chain.uniform_arrivals, memory_bytes=memory_bytes)
    return mean_hitting_times(chain, memory_bytes=memory_bytes)


def node_shares(chain: Chain) -> FloatArray:
    """Return the share of its time that the walk spends on each node."""
    return chain.graph.stationary_distribution if isinstance(chain, ArcChain) else chain.stationary


def survival_of_returns(chain: Chain, times: IntArray) -> FloatArray:
    """Return P(return time > t) for each time (row) and node."""
    return arc_return_survival(chain, times) if isinstance(chain, ArcChain) else return_survival(chain, times)


def means_until(chain: Chain, kappa: float) -> FloatArray:
    """Return E[T_ij | T_ij <= kappa] for all pairs, infinite where that cannot be."""
    if isinstance(chain, ArcChain):
        return arc_truncated_means(chain, kappa, arrivals=chain.uniform_arrivals)
    return truncated_means(chain, kappa)


def masses_within(chain: Chain, first: IntArray, last: IntArray) -> FloatArray:
    """Return P(first_ij <= T_ij <= last_ij) for all pairs."""
    if isinstance(chain, ArcChain):
        return arc_window_masses(chain, first, last, arrivals=chain.uniform_arrivals)
    return window_masses(chain, first, last)


def deliveries(chain: Chain, law: FloatArray, horizon: int) -> Iterator[DeliveryLaw]:
    """Yield the exact delivery law of each destination in turn."""
    if isinstance(chain, ArcChain):
        return iter_arc_deliveries(chain, law, horizon)
    return iter_deliveries(chain, law, horizon)


def delivery_products(chain: Chain) -> float:
    """Return how many products one hop of all delivery laws takes."""
    if isinstance(chain, ArcChain):
        return float(chain.n_nodes**2 * chain.transition_matrix.nnz)
    return float(chain.n_nodes**2 * len(chain.indices))


def hitting_laws(chain: Chain, horizon: int) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield targets and P(T_ij = t) for them, as (time, source, target), some targets at a time."""
    if not isinstance(chain, ArcChain):
        yield from iter_hitting_pmf(chain, horizon)
        return
    for start in range(0, chain.n_nodes, _BLOCK):
        targets = np.arange(start, min(start + _BLOCK, chain.n_nodes))
        yield targets, arc_hitting_pmf(chain, targets, horizon, arrivals=chain.uniform_arrivals)
