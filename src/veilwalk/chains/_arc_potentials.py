r"""The fundamental matrix of the chain on arcs, dense, and what it says about entering a node.

With B the transitions between arcs and pi = 1 / arcs, let Z = (I - B + 1 pi)^-1. For a walk from arc a that first
enters node j at time T on arc q with probability nu_a(q), and for any arc k,

    Z_ak - \sum_q nu_a(q) Z_qk = (expected visits to k before T) - pi_k E_a[T].

On the arcs k into j there are no visits before T: d equations, and sum nu_a = 1, for the d + 1 unknowns.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg, sparse

from veilwalk.chains._arc_chain import ArcChain
from veilwalk.chains._limits import require_memory
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import GraphError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES


def require_turning(chain: ArcChain) -> None:
    """Refuse a ring, on which the chain of arcs falls apart."""
    if chain.is_ring:
        raise GraphError("the graph is a ring, where a non-backtracking walk never turns: take another walk")


def fundamental_matrix(transitions: sparse.csr_array, shares: FloatArray) -> FloatArray:
    """Return Z = (I - P + 1 pi)^-1 for transitions P with stationary law pi, dense."""
    system = -transitions.toarray()
    system[np.diag_indices_from(system)] += 1.0
    system += shares
    return np.asarray(linalg.inv(system, overwrite_a=True, check_finite=False))


class Potentials:
    """Z, and entries into nodes read from it. Cost: one inverse, O(arcs^3), then O(arcs * degree^2) a node."""

    def __init__(self, chain: ArcChain, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
        require_turning(chain)
        require_memory("potentials of arcs", 3 * chain.n_arcs**2, memory_bytes)
        self._chain = chain
        self.matrix: FloatArray = fundamental_matrix(chain.transition_matrix, chain.stationary)

    def hits(self, node: int) -> tuple[FloatArray, FloatArray]:
        """Return E_a[T] and nu_a, one row an arc a, for entering ``node``; 0 and itself on arcs into it."""
        graph = self._chain.graph
        into = slice(graph.indptr[node], graph.indptr[node + 1])
        degree = int(graph.degrees[node])
        system = np.ones((degree + 1, degree + 1))
        system[:degree, :degree] = self.matrix[into, into].T
        system[:degree, degree] = -1.0 / self._chain.n_arcs
        system[degree, degree] = 0.0
        right = np.ones((degree + 1, self._chain.n_arcs))
        right[:degree] = self.matrix[:, into].T
        found = np.linalg.solve(system, right)
        # What is impossible comes out as rounding.
        means, entries = np.maximum(found[degree], 0.0), np.maximum(found[:degree].T, 0.0)
        means[into], entries[into] = 0.0, np.eye(degree)
        return means, entries
