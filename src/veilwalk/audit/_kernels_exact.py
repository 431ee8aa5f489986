"""Kernels of the exact filter: weights of every state and destination, carried forward hop by hop.

The token's state is where it is: a node, or an arc for walks that know where they came from. Between two sightings it
is with no member. Weights are ``still`` while the ciphertext is the one last seen (given its destination, so that it
starts with weight one), and ``layers`` after one or more updates. Layer j holds tokens after j updates more than the
fewest that explain what was seen. Where the last layer is for ``more``, updates lead from it back into it; where counts
are not known it is the only one.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.walks.compiled import jit, jit_parallel

Array = Any
# Rows of a sparse matrix: offsets, columns, values.
Links = tuple[Array, Array, Array]


@jit
def _step_weights(links: Links, free: Array, live: Array, here: Array, there: Array, reached: Array) -> None:
    """Let ``there[z]`` be the sum of ``here`` over the live states that z is linked to, and mark z as reached.

    Rows of states that are not reached are left alone.
    """
    for z in range(free.shape[0]):
        reached[z] = False
        if not free[z]:
            continue
        for e in range(links[0][z], links[0][z + 1]):
            y = links[1][e]
            if live[y]:
                p = links[2][e]
                if reached[z]:
                    for d in range(here.shape[1]):
                        there[z, d] += p * here[y, d]
                else:
                    for d in range(here.shape[1]):
                        there[z, d] = p * here[y, d]
                    reached[z] = True


@jit
def _open_arrived(
    law: Links, place: Array, live: Array, weights: Array, still: Array, layers: Array, used: int, more: int,
    sealings: Array
) -> None:  # fmt: skip
    """Open what has arrived and seal it anew; ``sealings`` gets the weight of sealing into the last layer of all."""
    top = weights.shape[0] - 1
    sealed = np.zeros(top + 2)
    for z in range(live.shape[0]):
        sealings[z] = 0.0
        if not live[z]:
            continue
        node = place[z]
        sealed[:] = 0.0
        for j in range(top + 1):
            sealed[j] += weights[j, node] * still[z, node]
            if j < used:
                sealed[j + 1] += layers[j, z, node]
                layers[j, z, node] = 0.0
        still[z, node] = 0.0
        if more:
            sealed[top] += sealed[top + 1]
        sealings[z] = sealed[top]
        for j in range(used):
            if sealed[j] > 0.0:
                for e in range(law[0][node], law[0][node + 1]):
                    layers[j, z, law[1][e]] += sealed[j] * law[2][e]


@jit
def _follow_window(
    back: Links, law: Links, place: Array, free: Array, start: int, hops: int, end: Array, weights: Array, new: int,
    more: int, used: int, sealings: Array
) -> None:  # fmt: skip
    """Weigh destinations by a way of ``hops`` hops, on which there were updates if what was seen then is ``new``.

    ``sealings[t, z]`` gets the weight of sealing after t hops at z. Layers from ``used`` on are not followed: none if
    the ciphertext stayed the same.
    """
    n_states, n_nodes = free.shape[0], weights.shape[1]
    still, after = np.zeros((n_states, n_nodes)), np.zeros((n_states, n_nodes))
    layers, later = np.zeros((used, n_states, n_nodes)), np.zeros((used, n_states, n_nodes))
    live, reached = np.zeros(n_states, np.bool_), np.zeros(n_states, np.bool_)
    still[start] = 1.0
    live[start] = True
    _open_arrived(law, place, live, weights, still, layers, used, more, sealings[0])
    for t in range(1, hops + 1):
        _step_weights(back, free, live, still, after, reached)
        for j in range(used):
            _step_weights(back, free, live, layers[j], later[j], reached)
        still, after = after, still
        layers, later = later, layers
        live, reached = reached, live
        _open_arrived(law, place, live, weights, still, layers, used, more, sealings[t])
    chance_unchanged = np.zeros(n_nodes)
    if new:
        weights[:] = 0.0
    for z in range(n_states):
        if live[z] and end[z] > 0.0:
            chance_unchanged += end[z] * still[z]
            for j in range(used):
                weights[j] += end[z] * layers[j, z]
    if not new:
        for j in range(weights.shape[0]):
            weights[j] *= chance_unchanged


@jit
def _weigh_makers(
    ahead: Links, law: Links, place: Array, free: Array, hops: int, end: Array, allowed: Array, sealings: Array,
    out: Array
) -> None:  # fmt: skip
    """Add to ``out`` the weight of each maker: sealing somewhere on the way, for an allowed destination, then the rest.

    ``allowed`` lists destinations; the ciphertext must not have come to its destination on the rest of the way.
    """
    n_states = free.shape[0]
    column = np.full(out.shape[0], -1)
    column[allowed] = np.arange(allowed.shape[0])
    rest, before = np.zeros((n_states, allowed.shape[0])), np.zeros((n_states, allowed.shape[0]))
    live, reached = end > 0.0, np.zeros(n_states, np.bool_)
    for z in range(n_states):
        if live[z]:
            rest[z] = end[z]
    for t in range(hops, -1, -1):
        for z in range(n_states):
            if not live[z]:
                continue
            node = place[z]
            if column[node] >= 0:
                rest[z, column[node]] = 0.0
            if sealings[t, z] > 0.0:
                total = 0.0
                for e in range(law[0][node], law[0][node + 1]):
                    if column[law[1][e]] >= 0:
                        total += law[2][e] * rest[z, column[law[1][e]]]
                out[node] += sealings[t, z] * total
        if t:
            _step_weights(ahead, free, live, rest, before, reached)
            rest, before = before, rest
            live, reached = reached, live


@jit
def way_out(back: Links, place: Array, free: Array, came_from: int, target: int) -> Array:
    """Return the chance that each state goes on to ``target``, for those at ``came_from``."""
    end = np.zeros(free.shape[0])
    for e in range(back[0][target], back[0][target + 1]):
        z = back[1][e]
        if free[z] and place[z] == came_from:
            end[z] = back[2][e]
    return end


@jit_parallel
def follow_segments(
    ahead: Links, back: Links, law: Links, place: Array, frees: Array, group: Array, bounds: Array, drawn: Array,
    slack: Array, more: Array, windows: Array, out: Array
) -> None:  # fmt: skip
    """Follow every segment through its windows; ``out[w]`` gets the weights of makers of what was new in window w.

    Segment s has the windows ``bounds[s]:bounds[s + 1]`` and members ``~frees[group[s]]``, as a mask of states. Windows
    have columns: start, hops, last node, state at the sighting, new or not, and the goal. A window of -1 hops leads
    from member to member. The goal is -2 where nobody asks, -1 where the destination is not known, but for not being
    the member that holds it; else the destination. ``slack[s]`` more updates than they saw happened, or, where
    ``more[s]``, so many or more.
    """
    for s in numba.prange(bounds.shape[0] - 1):
        free, n_nodes = frees[group[s]], law[0].shape[0] - 1
        weights = np.zeros((slack[s] + 1, n_nodes))
        weights[0, drawn[s]] = 1.0
        first, last = bounds[s], bounds[s + 1] - 1
        while last >= first and windows[last, 5] == -2:
            last -= 1
        # In the layers updates are counted from the fewest that explain what was seen, and that is none at first.
        for w in range(first, last + 1):
            start, hops, came_from, target, new, goal = windows[w]
            if hops >= 0:
                end, sealings = way_out(back, place, free, came_from, target), np.zeros((hops + 1, free.shape[0]))
                # What is sealed into the last layer need not be followed once nobody asks where it went.
                used = weights.shape[0] - (1 if w == last and not more[s] else 0) if new else 0
                _follow_window(back, law, place, free, start, hops, end, weights, new, more[s], used, sealings)
                if new and goal > -2:
                    nodes = np.arange(n_nodes)
                    allowed = nodes[nodes == goal] if goal >= 0 else nodes[nodes != place[target]]
                    _weigh_makers(ahead, law, place, free, hops, end, allowed, sealings, out[w])
            # The member that holds it did not open it.
            weights[:, place[target]] = 0.0
            total = weights.sum()
            if total > 0.0:
                weights /= total
