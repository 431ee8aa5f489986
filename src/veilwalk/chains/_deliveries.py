r"""What a destination sees when an update is delivered to it, jointly with who the source was: exact, any graph.

The protocol is a Markov chain on (position x, destination d) of the token; for a walk that knows where it came from, x
is the arc by which the token came. Started from a visit to j, with x and d drawn from the long run, the chain is
followed, never through j, until it is back at j. The update delivered then was sealed by the last source i on the way;
the hops taken are the return time that j sees, and the last node is the neighbour it came from. A token that is sealed
again keeps the arc it came by.

Walks without memory. Let mu be the stationary law of the sources (mu P = mu for the destination law P) and H the mean
hitting times. In the long run the token is in state (x, d) in proportion to

    sigma(x, d) = \sum_i mu_i P_id pi_x (H_id + H_dx - H_ix),

the expected visits to x on a leg towards d. For walks on arcs see :mod:`veilwalk.chains._arc_chain`.

Nothing is assumed about independence of the walk's past and the update; the one thing an observer could add is its
memory of earlier visits: whence the token came then, and whither it went.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.core.arrays import FloatArray, IntArray, normalised

if TYPE_CHECKING:
    from veilwalk.chains._node_chain import NodeChain


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


def token_law(chain: NodeChain, law: FloatArray, hitting: FloatArray) -> FloatArray:
    """Return sigma(x, d); it sums to the mean hops of a leg. ``hitting`` holds the chain's mean hitting times."""
    legs = stationary_law(law)[:, np.newaxis] * law
    visits = (legs * hitting).sum(axis=0) + legs.sum(axis=0) * hitting.T - hitting.T @ legs
    # A destination is left at once: rounding must not leave a trace of it.
    np.fill_diagonal(visits, 0.0)
    return np.asarray(chain.stationary[:, np.newaxis] * np.maximum(visits, 0.0))


class Tokens(ABC):
    """The token of the protocol in its long run under one law."""

    @abstractmethod
    def follow(self, nodes: IntArray, columns: IntArray, arrivals: FloatArray) -> None:
        """Follow the token from a visit to each of ``nodes`` until it is back.

        ``columns[row, s]`` is the column of source s for the row-th node, -1 where it never seals for it.
        ``arrivals[row, t, e, k]`` receives the weight of a delivery after t hops by the e-th last hop.
        """

    @abstractmethod
    def scale_arrivals(self, node: int, arrivals: FloatArray) -> FloatArray:
        """Return the weights of :meth:`follow` as probabilities, given a delivery to ``node``; may reuse the array."""

    @abstractmethod
    def last_hops(self, node: int) -> tuple[IntArray, FloatArray]:
        """Return the neighbours of ``node`` and P(e-th of them is the last hop, source i | a delivery), as [e, i]."""


def iter_deliveries(tokens: Tokens, law: FloatArray, hops: int, chosen: IntArray, batch: int) -> Iterator[DeliveryLaw]:
    """Yield the law of each of the ``chosen`` destinations, computing ``batch`` of them at a time."""
    for start in range(0, len(chosen), batch):
        nodes = chosen[start : start + batch]
        possible = law[:, nodes].T > 0
        columns = np.where(possible, np.cumsum(possible, axis=1) - 1, -1)
        last_hops = [tokens.last_hops(int(node)) for node in nodes]
        widest = max(len(neighbours) for neighbours, _ in last_hops)
        arrivals = np.zeros((len(nodes), hops + 1, widest, int(possible.sum(axis=1).max())))
        tokens.follow(nodes, columns, arrivals)
        for row, (node, (neighbours, whole)) in enumerate(zip(nodes, last_hops, strict=True)):
            own = np.flatnonzero(possible[row])
            joint = tokens.scale_arrivals(int(node), arrivals[row, :, : len(neighbours), : len(own)])
            beyond = np.maximum(whole[:, own] - joint.sum(axis=0), 0.0)
            yield DeliveryLaw(int(node), neighbours, own, joint, beyond)
