"""What a destination sees when an update is delivered to it by a non-backtracking walk: exact, any graph but a ring.

The protocol is a Markov chain on (arc the token came by, destination it is sealed for). Started from a visit to j, with
arc and destination drawn from the long run, the chain is followed, never through j, until it is back at j: as
:mod:`veilwalk.chains._deliveries` does for walks without memory, with arcs in the place of nodes. The token keeps the
arc it came by when it is sealed again.

Nothing is assumed about independence of the walk's past and the update; the one thing an observer could add is its
memory of earlier visits: whence the token came then, and whither it went.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from veilwalk.chains._arc_chain import ArcChain
from veilwalk.chains._arc_updates import ArcUpdates, arc_updates
from veilwalk.chains._deliveries import DeliveryLaw, stationary_law
from veilwalk.chains._kernels import thread_count
from veilwalk.chains._kernels_arcs import deliver_on_arcs
from veilwalk.chains._limits import chosen_horizon, chosen_targets, require_memory
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES


def iter_arc_deliveries(
    chain: ArcChain,
    law: FloatArray,
    horizon: int,
    destinations: Sequence[int] | IntArray | None = None,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Iterator[DeliveryLaw]:
    """Yield the exact :class:`DeliveryLaw` of each destination in turn.

    Cost: O(arcs * n) a hop and destination, that is about ``degree`` times what a walk without memory costs;
    destinations are independent and run on all threads. Error: rounding only; return times, last hops and sources that
    cannot come together have exactly zero within the horizon.

    Args:
        chain: the walk.
        law: dense row-stochastic matrix of destination probabilities, zero on the diagonal, irreducible.
        horizon: largest return time told apart; longer ones are pooled in ``beyond``.
        destinations: which, in this order; all when None.
        memory_bytes: refuse rather than use more.
    """
    chosen, hops = chosen_targets(chain, destinations), chosen_horizon(horizon)
    if law.shape != (chain.n_nodes, chain.n_nodes):
        raise InvalidParameterError("law", law.shape, f"a matrix of shape ({chain.n_nodes}, {chain.n_nodes})")
    widest = int((law[:, chosen] > 0).sum(axis=0).max())
    each = (hops + 1) * int(chain.graph.degrees[chosen].max()) * widest + 2 * chain.n_arcs * (chain.n_nodes + widest)
    batch = thread_count()
    require_memory("delivery laws", batch * each, memory_bytes)
    updates = arc_updates(chain, law, memory_bytes=memory_bytes)
    return _deliveries(chain, law, updates, hops=hops, chosen=chosen, batch=batch)


def _deliveries(
    chain: ArcChain, law: FloatArray, updates: ArcUpdates, *, hops: int, chosen: IntArray, batch: int
) -> Iterator[DeliveryLaw]:
    graph, sources = chain.graph, stationary_law(law)
    for start in range(0, len(chosen), batch):
        nodes = chosen[start : start + batch]
        possible = law[:, nodes].T > 0
        columns = np.where(possible, np.cumsum(possible, axis=1) - 1, -1)
        widest = int(graph.degrees[nodes].max())
        sealed_for = np.zeros((len(nodes), widest, chain.n_nodes))
        for row, node in enumerate(nodes):
            sealed_for[row, : graph.degrees[node]] = updates.visits[graph.indptr[node] : graph.indptr[node + 1]]
        arrivals = np.zeros((len(nodes), hops + 1, widest, int(possible.sum(axis=1).max())))
        deliver_on_arcs(graph.indptr, graph.indices, chain.reverse, law, nodes, columns, sealed_for, arrivals)
        for row, node in enumerate(nodes):
            own = np.flatnonzero(possible[row])
            # Per leg there are as many such visits as sealed_for holds, and mu_j deliveries.
            joint = arrivals[row, :, : graph.degrees[node], : len(own)] / sources[node]
            whole = _source_and_last_hop(chain, law, updates, int(node))[:, own] / sources[node]
            neighbours = graph.neighbours(int(node))
            yield DeliveryLaw(int(node), neighbours, own, joint, np.maximum(whole - joint.sum(axis=0), 0.0))


def _source_and_last_hop(chain: ArcChain, law: FloatArray, updates: ArcUpdates, node: int) -> FloatArray:
    """P(an update was sealed by i for ``node`` and comes to it by its e-th arc), as a table [e, i]."""
    into = slice(chain.graph.indptr[node], chain.graph.indptr[node + 1])
    weights = (updates.sources * law[chain.heads, node])[:, np.newaxis] * normalised(updates.entries[:, into])
    return np.ascontiguousarray(np.add.reduceat(weights, chain.graph.indptr[:-1], axis=0).T)
