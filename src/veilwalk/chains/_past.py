r"""How long ago the token last passed a node, given where it was sealed: the past of a delivery.

Seen backwards from the sealing at i, the walk goes to the previous source k without coming back to i (a leg ends at
the first hit), then on to the one before, and so on, until it meets the destination j. With q_ik = mu_k P_ki / mu_i
the chance that k came before i, and F the generating functions of first hits, the law A_i of the time since j solves

    A_i = V_i + \sum_{k != j} q_ik U_ki A_k,      U_ki = (F_ki - F_kj F_ji) / (1 - F_ij F_ji),

V_i for legs on which j was passed, U_ki for legs from k to i that avoided it. V_i is exact and cheap: backwards it is
the walk from i that meets j before it is back at i,

    V_i = m_ij T_ij / T_ij(1),   T_ij = F_ij / (G_ii (1 - F_ij F_ji)),   m_ij = \sum_k q_ik P_k(j before i).

Of U one thing is approximated: that the length of an avoiding leg and the age A_k at its start are correlated through
k, which both are near or far from. It is of order 1 / n, and only where the past has several legs. A walk that swings
between two sides ties both to the side k is on; there predecessors are kept apart in groups, by side and by half of the
graph (of its slowest mode: trees and rings are long), and the correlation is lost only within a group. With a group for
each node nothing would be approximated.

Functions are evaluated on a circle inside the unit disc: a transform of length ``size`` then wraps what lies beyond
it by a factor 1e-7, and undoing the damping costs three digits of sixteen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import fft

from veilwalk.chains._deliveries import DeliveryLaw, stationary_law
from veilwalk.chains._limits import Nodes, chosen_horizon, chosen_targets
from veilwalk.core.arrays import BoolArray, FloatArray, normalised

if TYPE_CHECKING:
    from veilwalk.chains._node_chain import NodeChain

ComplexArray = npt.NDArray[np.complex128]

_WRAPPED = 1e-7
# Each pass shrinks what is wrong by about the chance that a leg avoids the destination.
_PASSES = 2
# Frequencies worked on at a time: what they need stays in the cache.
_BLOCK = 64
# Rounding, before the damping of the transform is undone.
_TRANSFORM_NOISE = 1e-15
# What can be is never quite zero: a rare sighting that drowns in the approximation leaves the prior, not nothing.
_FAINT = 1e-30


def iter_approximate_deliveries(
    chain: NodeChain, law: FloatArray, horizon: int, destinations: Nodes
) -> Iterator[DeliveryLaw]:
    """Yield delivery laws from transforms: the way there exact, the past exact but for one correlation.

    The return time is the sum of two times that are independent given the source: the way there, and the time since
    the destination was last passed before the sealing (the module says what is approximated in it). Total variation
    of the posteriors given the return time, against the exact law, was 0.0004 to 0.0015 on the graphs of 60 nodes
    that were tried and 0.0003 to 0.0005 on RRG(120, 3); on bipartite graphs 0.0003 (torus 6x6) to 0.0026 (trees).

    Cost, a destination: O(horizon n^2), in matrix products, and a Fourier transform for each source and neighbour;
    once, an eigendecomposition.
    """
    chosen, hops = chosen_targets(chain.n_nodes, destinations), chosen_horizon(horizon)
    hitting, sources, inflow = chain.mean_hitting_times(), stationary_law(law), chain.inflow
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
        whole = prior * chain.entry_shares(int(node), hitting)
        yield DeliveryLaw(int(node), neighbours, own, joint, np.maximum(whole[:, own] - joint.sum(axis=0), 0.0))


class PastLaws:
    """Transforms of A_i for one destination at a time; what all destinations share is computed once."""

    def __init__(self, chain: NodeChain, law: FloatArray, prior: FloatArray, hitting: FloatArray, size: int) -> None:
        """Prepare for transforms of length ``size``; ``prior`` is the stationary law of ``law``."""
        self.damping = _WRAPPED ** (np.arange(size) / size)
        points = _WRAPPED ** (1 / size) * np.exp(-2j * np.pi * np.arange(size // 2 + 1) / size)
        root = np.sqrt(chain.stationary)
        # Similar to the transition matrix, and symmetric: the walk is reversible.
        symmetric = (chain.transition_matrix.toarray() * root[:, np.newaxis]) / root
        values, self._vectors = np.linalg.eigh((symmetric + symmetric.T) / 2)
        self._root, self._hitting = root, hitting
        self._resolvent = 1 / (1 - points[:, np.newaxis] * values)
        # q_ik: who came before a source.
        self._before = (law * prior[:, np.newaxis]).T / prior[:, np.newaxis]
        self._returns = _product(self._resolvent, self._vectors**2)
        self._groups = _groups(chain, self._vectors[:, -2] / root)
        self._arrivals = [self._arrived(group) for group in self._groups]

    def _arrived(self, group: BoolArray) -> ComplexArray:
        """Return the transforms of the leg to each source from those of a group who came before it, summed."""
        scaled = (np.where(group, self._before, 0.0) / self._root) @ self._vectors
        return _product(self._resolvent, scaled * self._vectors * self._root[:, np.newaxis]) / self._returns

    def at(self, node: int) -> ComplexArray:
        """Return the transform of A_i, damped, for destination ``node``: a row a frequency, a column a source."""
        before = self._before.copy()
        from_node = before[:, node].copy()
        before[:, node] = 0.0
        parts = [np.where(group, before, 0.0) for group in self._groups]
        shares = [np.maximum(part.sum(axis=1), np.finfo(float).tiny) for part in parts]
        passed = self._passed(node)
        ages = np.empty_like(self._returns)
        for start in range(0, len(ages), _BLOCK):
            rows = slice(start, start + _BLOCK)
            returns = self._returns[rows]
            visits = _product(self._resolvent[rows] * self._vectors[node], self._vectors)
            # First hits F_ij and F_ji are quotients of Green functions.
            towards = visits * (self._root[node] / self._root) / returns[:, [node]]
            back = visits * (self._root / self._root[node]) / returns
            loops = 1 - towards * back
            # The node itself is nobody's candidate, and its own column would divide by zero.
            towards[:, node], back[:, node], loops[:, node] = 0.0, 0.0, 1.0
            first = towards / (returns * loops) * passed
            legs = [
                arrivals[rows] - from_node * group[node] * back
                for arrivals, group in zip(self._arrivals, self._groups, strict=True)
            ]
            for leg in legs:
                leg[:, node] = 0.0
            avoiding = [(leg - back * _product(towards, part)) / loops for leg, part in zip(legs, parts, strict=True)]
            guess = _first_guess(first, avoiding, parts)
            for _ in range(_PASSES):
                onward = -back * _product(towards * guess, before)
                for leg, part, share in zip(legs, parts, shares, strict=True):
                    onward += leg / share * _product(guess, part)
                guess = first + onward / loops
            ages[rows] = guess
        return ages

    def _passed(self, node: int) -> FloatArray:
        """m_ij / T_ij(1), m_ij being the chance that the last leg to i passed ``node``, its start included.

        P_k(j before i) = (H_ki + H_ij - H_kj) / (H_ij + H_ji), and 1 / T_ij(1) = pi_i (H_ij + H_ji).
        """
        hitting = self._hitting
        mean = (self._before * hitting.T).sum(axis=1) + hitting[:, node] - self._before @ hitting[:, node]
        return np.asarray(np.maximum(mean, 0.0) * self._root**2)


def _groups(chain: NodeChain, slowest: FloatArray) -> list[BoolArray]:
    """Return who is kept apart: nobody, unless the walk swings; ``slowest`` is its slowest mode."""
    if not chain.is_periodic:
        return [np.ones(chain.n_nodes, dtype=np.bool_)]
    group = chain.sides + 2 * (slowest > np.median(slowest))
    return [group == number for number in np.unique(group)]


def _first_guess(first: ComplexArray, avoiding: list[ComplexArray], parts: list[FloatArray]) -> ComplexArray:
    """Return ages if all predecessors of a group had one; the total mass is one, and each pass keeps that."""
    means = np.array([part.sum(axis=0) / max(part.sum(), np.finfo(float).tiny) for part in parts])
    system = np.eye(len(means)) - np.stack([leg @ means.T for leg in avoiding], axis=-1)
    common = np.linalg.solve(system, (first @ means.T)[..., np.newaxis])
    return np.asarray(first + (np.stack(avoiding, axis=-1) @ common)[..., 0])


def _product(left: ComplexArray, right: FloatArray) -> ComplexArray:
    """Return ``left @ right.T`` of a complex and a real matrix, by a real product."""
    # Stacked, both parts are contiguous, as the fast product needs them.
    parts = np.concatenate((left.real, left.imag)) @ right.T
    return np.asarray(parts[: len(left)] + 1j * parts[len(left) :])
