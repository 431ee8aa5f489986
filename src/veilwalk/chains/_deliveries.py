r"""What a destination sees when an update is delivered to it, jointly with who the source was: exact, any graph.

The protocol is a Markov chain on (position x, destination d) of the token. Let mu be the stationary law of the
sources (mu P = mu for the destination law P) and H the mean hitting times. In the long run the token is in state
(x, d) in proportion to

    sigma(x, d) = \sum_i mu_i P_id pi_x (H_id + H_dx - H_ix),

the expected visits to x on a leg towards d. Started from a visit to j with d drawn from sigma(j, .), the chain is
followed, never through j, until it is back at j. The update delivered then was sealed by the last source i on the
way; the hops taken are the return time that j sees, and the last node is the neighbour it came from.

Nothing is assumed about independence of the walk's past and the update; the one thing an observer could add is its
memory of earlier visits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import fft

from veilwalk.chains._chain import WalkChain
from veilwalk.chains._kernels import thread_count
from veilwalk.chains._kernels_deliveries import deliver
from veilwalk.chains._limits import chosen_horizon, chosen_targets, require_memory
from veilwalk.chains._means import mean_hitting_times
from veilwalk.chains._past import PastLaws
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES

# Rounding, before the damping of the transform is undone.
_TRANSFORM_NOISE = 1e-15
# What can be is never quite zero: a rare sighting that drowns in the approximation leaves the prior, not nothing.
_FAINT = 1e-30


@dataclass(frozen=True, eq=False)
class DeliveryLaw:
    """The joint law, at a delivery to ``destination``, of return time, last hop and source.

    ``joint[k, e, s]`` is the probability that the return time is k, the token came from ``neighbours[e]`` and the
    source is ``sources[s]``. ``beyond[e, s]`` is that of a return time past the horizon. All entries together sum
    to one; nodes that are not among ``sources`` never seal for this destination.
    """

    destination: int
    neighbours: IntArray
    sources: IntArray
    joint: FloatArray
    beyond: FloatArray


def stationary_law(transitions: FloatArray) -> FloatArray:
    """Return the stationary law of an irreducible dense row-stochastic matrix, by one linear solve."""
    size = len(transitions)
    system = transitions.T - np.eye(size)
    # One balance equation is redundant; the normalisation takes its place.
    system[-1] = 1.0
    return normalised(np.maximum(np.linalg.solve(system, np.eye(size)[-1]), 0.0))


def token_law(chain: WalkChain, law: FloatArray, hitting: FloatArray) -> FloatArray:
    """Return sigma(x, d); it sums to the mean hops of a leg. ``hitting`` holds the chain's mean hitting times."""
    legs = stationary_law(law)[:, np.newaxis] * law
    visits = (legs * hitting).sum(axis=0) + legs.sum(axis=0) * hitting.T - hitting.T @ legs
    # A destination is left at once: rounding must not leave a trace of it.
    np.fill_diagonal(visits, 0.0)
    return np.asarray(chain.stationary[:, np.newaxis] * np.maximum(visits, 0.0))


def iter_deliveries(
    chain: WalkChain,
    law: FloatArray,
    horizon: int,
    destinations: Sequence[int] | IntArray | None = None,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Iterator[DeliveryLaw]:
    """Yield the exact :class:`DeliveryLaw` of each destination in turn.

    Cost: O(n^2 degree) a hop and destination, that is about ``horizon * n^3 * degree`` in all; destinations are
    independent and run on all threads. Error: rounding only; impossible combinations are exactly zero.

    Args:
        chain: the walk.
        law: dense row-stochastic matrix of destination probabilities, zero on the diagonal, irreducible.
        horizon: largest return time told apart; longer ones are pooled in ``beyond``.
        destinations: which, in this order; all when None.
        memory_bytes: refuse rather than use more.
    """
    chosen, hops = chosen_targets(chain, destinations), chosen_horizon(horizon)
    n_nodes = chain.n_nodes
    if law.shape != (n_nodes, n_nodes):
        raise InvalidParameterError("law", law.shape, f"a matrix of shape ({n_nodes}, {n_nodes})")
    degrees = np.diff(chain.indptr)
    widest = int((law[:, chosen] > 0).sum(axis=0).max())
    each = (hops + 1) * int(degrees[chosen].max()) * widest + 4 * n_nodes**2
    batch = thread_count()
    require_memory("delivery laws", batch * each + 5 * n_nodes**2, memory_bytes)
    return _deliveries(chain, law, hops, chosen, batch)


def _deliveries(chain: WalkChain, law: FloatArray, hops: int, chosen: IntArray, batch: int) -> Iterator[DeliveryLaw]:
    hitting = mean_hitting_times(chain)
    sources = stationary_law(law)
    visits = token_law(chain, law, hitting)
    inflow = _inflow(chain)
    degrees = np.diff(chain.indptr)
    for start in range(0, len(chosen), batch):
        nodes = chosen[start : start + batch]
        possible = law[:, nodes].T > 0
        columns = np.where(possible, np.cumsum(possible, axis=1) - 1, -1)
        arrivals = np.zeros((len(nodes), hops + 1, int(degrees[nodes].max()), int(possible.sum(axis=1).max())))
        deliver(chain.indptr, chain.indices, inflow, law, nodes, columns, normalised(visits[nodes]), arrivals)
        for row, node in enumerate(nodes):
            own = np.flatnonzero(possible[row])
            # A visit is a delivery with probability (mu_j / hops per leg) / pi_j.
            joint = arrivals[row, :, : degrees[node], : len(own)]
            joint *= chain.stationary[node] * visits.sum() / sources[node]
            whole = normalised(sources * law[:, node]) * _entry_shares(chain, inflow, int(node), hitting)
            neighbours = chain.indices[chain.indptr[node] : chain.indptr[node + 1]]
            beyond = np.maximum(whole[:, own] - joint.sum(axis=0), 0.0)
            yield DeliveryLaw(int(node), neighbours, own, joint, beyond)


def iter_approximate_deliveries(
    chain: WalkChain, law: FloatArray, horizon: int, destinations: Sequence[int] | IntArray
) -> Iterator[DeliveryLaw]:
    """Yield delivery laws from transforms: the way there exact, the past exact but for one correlation.

    The return time is the sum of two times that are independent given the source: the way there, and the time since
    the destination was last passed before the sealing (see ``_past`` for what is approximated in it). Total variation
    of the posteriors given the return time, against the exact law, was 0.0004 to 0.0015 on the graphs of 60 nodes
    that were tried and 0.0003 to 0.0005 on RRG(120, 3); on bipartite graphs 0.0003 (torus 6x6) to 0.0026 (trees).

    Cost, a destination: O(horizon n^2), in matrix products, and a Fourier transform for each source and neighbour;
    once, an eigendecomposition.
    """
    chosen, hops = chosen_targets(chain, destinations), chosen_horizon(horizon)
    hitting, sources, inflow = mean_hitting_times(chain), stationary_law(law), _inflow(chain)
    size = int(fft.next_fast_len(2 * hops + 1, real=True))
    past = PastLaws(chain, law, sources, hitting, size)
    damping = past.damping[: hops + 1, np.newaxis, np.newaxis]
    for node in chosen:
        entries = slice(chain.indptr[node], chain.indptr[node + 1])
        neighbours, own = chain.indices[entries], np.flatnonzero(law[:, node] > 0)
        arriving = np.zeros((chain.n_nodes, len(neighbours)))
        arriving[neighbours, np.arange(len(neighbours))] = inflow[entries]
        hits = np.zeros((hops + 1, len(own), len(neighbours)))
        for hop in range(1, hops + 1):
            arriving[node] = 0.0
            hits[hop] = arriving[own]
            arriving = chain.transition_matrix @ arriving
        there = fft.rfft(hits * damping, size, axis=0)
        sums = fft.irfft(there * past.at(int(node))[:, own, np.newaxis], size, axis=0)[: hops + 1] / damping
        prior = normalised(sources * law[:, node])
        # Transforms leave rounding where nothing can be, and the past may seem shorter than the way back.
        away = np.argmax(hits.any(axis=2), axis=0)
        times = np.arange(hops + 1)[:, np.newaxis]
        possible = (times >= 2 * away) & (times % (2 if chain.is_periodic else 1) == 0)
        sums = np.where(sums > _TRANSFORM_NOISE / damping, sums, _FAINT)
        sums = np.where(possible[:, :, np.newaxis] & hits.any(axis=0), sums, 0.0)
        joint = sums * prior[own][:, np.newaxis]
        joint = np.ascontiguousarray(np.moveaxis(joint, 2, 1))
        whole = prior * _entry_shares(chain, inflow, int(node), hitting)
        yield DeliveryLaw(int(node), neighbours, own, joint, np.maximum(whole[:, own] - joint.sum(axis=0), 0.0))


def _entry_shares(chain: WalkChain, inflow: FloatArray, node: int, hitting: FloatArray) -> FloatArray:
    """P(the walk first enters ``node`` through its e-th neighbour | it starts at i), as a table [e, i]."""
    entries = slice(chain.indptr[node], chain.indptr[node + 1])
    neighbours = chain.indices[entries]
    visits = hitting[:, [node]] + hitting[node, neighbours] - hitting[:, neighbours]
    shares = np.maximum(visits, 0.0) * (chain.stationary[neighbours] * inflow[entries])
    # The row of the node itself is empty: it is never its own source.
    shares[node] = 1.0
    return np.ascontiguousarray(normalised(shares).T)


def _inflow(chain: WalkChain) -> FloatArray:
    """Return P(indices[e] -> row) for each entry: reversibility turns the transpose into a scaling."""
    rows = np.repeat(np.arange(chain.n_nodes), np.diff(chain.indptr))
    ratio = chain.stationary[rows] / chain.stationary[chain.indices]
    return np.asarray(chain.probabilities * ratio)
