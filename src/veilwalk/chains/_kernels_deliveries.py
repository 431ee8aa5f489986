"""Compiled loops over the states of a token: where it is, and for whom its ciphertext is sealed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from veilwalk.chains._kernels import _apply_row
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.engine import njit

_OPTIONS: dict[str, Any] = {"cache": True, "fastmath": {"contract"}, "error_model": "numpy"}


@njit(**_OPTIONS)
def _step_avoiding(
    indptr: IntArray, indices: IntArray, inflow: FloatArray, avoided: int, mass: FloatArray, out: FloatArray
) -> None:
    """Move all mass one hop; what reaches the avoided node is dropped."""
    for node in range(mass.shape[0]):
        entry = indptr[node]
        if node == avoided:
            out[node, :] = 0.0
        elif indptr[node + 1] - entry == 3:
            # The paper's degree, in one pass: a third less time than the general row.
            a, b, c = indices[entry], indices[entry + 1], indices[entry + 2]
            wa, wb, wc = inflow[entry], inflow[entry + 1], inflow[entry + 2]
            for column in range(mass.shape[1]):
                out[node, column] = wa * mass[a, column] + wb * mass[b, column] + wc * mass[c, column]
        else:
            _apply_row(indptr, indices, inflow, mass, node, out, node)


@njit(**_OPTIONS)
def _deliver_one(
    indptr: IntArray,
    indices: IntArray,
    inflow: FloatArray,
    law: FloatArray,
    observer: int,
    column_of: IntArray,
    sealed_for: FloatArray,
    out: FloatArray,
) -> None:
    """Follow a token from a visit to ``observer`` until it is back, for as many hops as ``out`` has rows.

    ``bound[x, d]`` is the probability that the token has not been back, is at x, and is sealed for d, not the
    observer. ``incoming[x, s]`` is the same with a ciphertext sealed for the observer by its s-th possible source
    (``column_of`` says which column a source has). ``out[t, e, s]`` receives the probability that such a
    ciphertext arrives after t hops through the observer's e-th neighbour.
    """
    n_nodes = law.shape[0]
    first, stop = indptr[observer], indptr[observer + 1]
    bound = np.zeros((n_nodes, n_nodes))
    bound[observer, :] = sealed_for
    next_bound = np.empty((n_nodes, n_nodes))
    incoming = np.zeros((n_nodes, out.shape[2]))
    next_incoming = np.empty_like(incoming)
    for hop in range(1, out.shape[0]):
        for entry in range(first, stop):
            out[hop, entry - first, :] = inflow[entry] * incoming[indices[entry]]
        _step_avoiding(indptr, indices, inflow, observer, bound, next_bound)
        _step_avoiding(indptr, indices, inflow, observer, incoming, next_incoming)
        for node in range(n_nodes):
            arrived = next_bound[node, node]
            if arrived > 0.0:
                for goal in range(n_nodes):
                    next_bound[node, goal] += arrived * law[node, goal]
                next_bound[node, node] -= arrived
                if column_of[node] >= 0:
                    next_incoming[node, column_of[node]] += next_bound[node, observer]
                    next_bound[node, observer] = 0.0
        bound, next_bound = next_bound, bound
        incoming, next_incoming = next_incoming, incoming


@njit(parallel=True, **_OPTIONS)
def deliver(
    indptr: IntArray,
    indices: IntArray,
    inflow: FloatArray,
    law: FloatArray,
    observers: IntArray,
    column_of: IntArray,
    sealed_for: FloatArray,
    out: FloatArray,
) -> None:
    """Run :func:`_deliver_one` for each observer; rows of the last three arguments belong to them in turn."""
    for row in prange(len(observers)):
        _deliver_one(indptr, indices, inflow, law, observers[row], column_of[row], sealed_for[row], out[row])
