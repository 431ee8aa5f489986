"""Ciphertexts that are sealed for several, as observers know them: the law of the set, and what a given set does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from veilwalk.chains import Chain
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray
from veilwalk.design import Scheme

# Given sets that are followed at a time; and what may be left unopened of them.
_SETS, _NOTHING = 256, 1e-9


@dataclass(frozen=True, eq=False)
class Sets:
    """The law of the set of recipients, as ``_kernels_sealed`` reads it.

    Attributes:
        recipients: How many there are.
        weights: The law by columns: ``weights[j, i]`` is the probability that i, drawing one, draws j.
        eligible: How many each node may choose from.
        even: Whether it chooses evenly among them.
        pace: Of uneven rows, see ``walks.SetRows``.
        slope: And this too.
    """

    recipients: int
    weights: FloatArray
    eligible: IntArray
    even: BoolArray
    pace: FloatArray
    slope: FloatArray

    @classmethod
    def of(cls, scheme: Scheme) -> Sets | None:
        """Return those of a scheme; None where there is one recipient, and nothing to sum out."""
        if scheme.recipients == 1:
            return None
        from veilwalk.walks.compiled import set_rows

        rows = set_rows(scheme.graph, scheme.law.draws, scheme.recipients)
        weights = np.ascontiguousarray(scheme.law.matrix.toarray().T)
        return cls(scheme.recipients, weights, *rows.followed_by())

    def arguments(self) -> tuple[FloatArray, IntArray, BoolArray, FloatArray, FloatArray, int]:
        """Return the arrays in the order in which kernels take them."""
        return self.weights, self.eligible, self.even, self.pace, self.slope, self.recipients


def opened_by(chain: Chain, came_from: IntArray, source: IntArray, sets: IntArray) -> FloatArray:
    """Return the probability that each node opens what ``source`` sealed for the nodes of a row of ``sets``; exact.

    The token stands at the source, having come from a neighbour. Followed on the chain of the walk with the set
    absorbing, until nothing is left that would matter.
    """
    states = chain.states
    onward = sparse.csr_array(states.transition_matrix.T)
    into = sparse.csr_array((np.ones(len(states.node)), (states.node, np.arange(len(states.node)))))
    found = np.zeros((len(sets), chain.n_nodes))
    for first in range(0, len(sets), _SETS):
        mine = slice(first, first + _SETS)
        size = len(sets[mine])
        at = np.zeros((len(states.node), size))
        at[states.after(came_from[mine], source[mine]), np.arange(size)] = 1.0
        chosen = np.zeros((chain.n_nodes, size), dtype=np.bool_)
        chosen[sets[mine].T, np.arange(size)] = True
        ends = chosen[states.node]
        opened = np.zeros_like(at)
        while at.sum(axis=0).max() > _NOTHING:
            at = onward @ at
            opened += np.where(ends, at, 0.0)
            at[ends] = 0.0
        found[mine] = np.asarray(into @ opened).T
    return found
