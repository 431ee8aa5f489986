"""Kernels of the filter: what members who hold the token now and then can know of where it is and whom it is for.

The token's state is where it is (a node, or an arc for walks that know where they came from) and the destination of
the ciphertext it carries. Between two sightings it is with no member. Weights of states are carried forward hop by hop:
``still`` while the ciphertext is the one last seen (given its destination, so that it starts with weight one), and
``layers`` after one or more updates. Layer j holds tokens that made j updates more than the fewest that explain what
was seen. Where the last layer is for ``more``, updates lead from it back into it; where counts are not known it is
the only one.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.engine import njit
from veilwalk.walks.compiled import kernel

Array = Any


@njit(cache=True, error_model="numpy")
def _step(offsets: Array, others: Array, chances: Array, free: Array, live: Array, here: Array, there: Array) -> None:
    """Let ``there[z]`` be the sum of ``here`` over the live states that z is linked to; other rows are left alone."""
    for z in range(free.shape[0]):
        if not free[z]:
            continue
        begun = False
        for e in range(offsets[z], offsets[z + 1]):
            y = others[e]
            if live[y]:
                p = chances[e]
                if begun:
                    for d in range(here.shape[1]):
                        there[z, d] += p * here[y, d]
                else:
                    for d in range(here.shape[1]):
                        there[z, d] = p * here[y, d]
                    begun = True


@njit(cache=True, error_model="numpy")
def _spread(offsets: Array, others: Array, free: Array, live: Array, reached: Array) -> None:
    """Mark the states that are linked to live ones."""
    for z in range(free.shape[0]):
        reached[z] = False
        if free[z]:
            for e in range(offsets[z], offsets[z + 1]):
                if live[others[e]]:
                    reached[z] = True
                    break


@njit(cache=True, error_model="numpy")
def _deliver(
    place: Array, live: Array, row_starts: Array, goals: Array, shares: Array, weights: Array, still: Array,
    layers: Array, used: int, more: int, made: Array
) -> None:  # fmt: skip
    """Open what has arrived and seal it anew; ``made`` gets the weight of sealing into the last layer of all."""
    top = weights.shape[0] - 1
    sealed = np.zeros(top + 2)
    for z in range(live.shape[0]):
        made[z] = 0.0
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
        made[z] = sealed[top]
        for j in range(used):
            if sealed[j] > 0.0:
                for e in range(row_starts[node], row_starts[node + 1]):
                    layers[j, z, goals[e]] += sealed[j] * shares[e]


@njit(cache=True, error_model="numpy")
def _unchanged(
    back: tuple[Array, Array, Array], place: Array, free: Array, start: int, hops: int, end: Array, weights: Array
) -> None:
    """Weigh destinations by a way of ``hops`` hops on which the ciphertext stayed the same."""
    n_states, n_nodes = free.shape[0], weights.shape[1]
    still, after = np.empty((n_states, n_nodes)), np.empty((n_states, n_nodes))
    live, reached = np.zeros(n_states, np.bool_), np.zeros(n_states, np.bool_)
    still[start] = 1.0
    still[start, place[start]] = 0.0
    live[start] = True
    for _ in range(hops):
        _step(back[0], back[1], back[2], free, live, still, after)
        _spread(back[0], back[1], free, live, reached)
        still, after = after, still
        live, reached = reached, live
        for z in range(n_states):
            if live[z]:
                still[z, place[z]] = 0.0
    chance = np.zeros(n_nodes)
    for z in range(n_states):
        if live[z] and end[z] > 0.0:
            chance += end[z] * still[z]
    for j in range(weights.shape[0]):
        weights[j] *= chance


@njit(cache=True, error_model="numpy")
def _changed(
    back: tuple[Array, Array, Array], law: tuple[Array, Array, Array], place: Array, free: Array, start: int,
    hops: int, end: Array, weights: Array, more: int, used: int, made: Array
) -> None:  # fmt: skip
    """Weigh destinations by a way on which there were updates; ``made[t, z]``: sealed after t hops at z.

    Layers from ``used`` on are not followed.
    """
    n_states, n_nodes = free.shape[0], weights.shape[1]
    still, after = np.zeros((n_states, n_nodes)), np.zeros((n_states, n_nodes))
    layers, later = np.zeros((used, n_states, n_nodes)), np.zeros((used, n_states, n_nodes))
    live, reached = np.zeros(n_states, np.bool_), np.zeros(n_states, np.bool_)
    still[start] = 1.0
    live[start] = True
    _deliver(place, live, law[0], law[1], law[2], weights, still, layers, used, more, made[0])
    for t in range(1, hops + 1):
        _step(back[0], back[1], back[2], free, live, still, after)
        for j in range(used):
            _step(back[0], back[1], back[2], free, live, layers[j], later[j])
        _spread(back[0], back[1], free, live, reached)
        still, after = after, still
        layers, later = later, layers
        live, reached = reached, live
        _deliver(place, live, law[0], law[1], law[2], weights, still, layers, used, more, made[t])
    weights[:] = 0.0
    for z in range(n_states):
        if live[z] and end[z] > 0.0:
            for j in range(used):
                weights[j] += end[z] * layers[j, z]


@njit(cache=True, error_model="numpy")
def _weigh_makers(
    ahead: tuple[Array, Array, Array], law: tuple[Array, Array, Array], place: Array, free: Array, hops: int,
    end: Array, allowed: Array, made: Array, out: Array
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
            if made[t, z] > 0.0:
                total = 0.0
                for e in range(law[0][node], law[0][node + 1]):
                    if column[law[1][e]] >= 0:
                        total += law[2][e] * rest[z, column[law[1][e]]]
                out[node] += made[t, z] * total
        if t:
            _step(ahead[0], ahead[1], ahead[2], free, live, rest, before)
            _spread(ahead[0], ahead[1], free, live, reached)
            rest, before = before, rest
            live, reached = reached, live


@njit(cache=True, error_model="numpy")
def way_out(back: tuple[Array, Array, Array], place: Array, free: Array, came_from: int, target: int) -> Array:
    """Return the chance that each state goes on to ``target``, for those at ``came_from``."""
    end = np.zeros(free.shape[0])
    for e in range(back[0][target], back[0][target + 1]):
        z = back[1][e]
        if free[z] and place[z] == came_from:
            end[z] = back[2][e]
    return end


@njit(cache=True, error_model="numpy")
def _scale(weights: Array) -> None:
    total = weights.sum()
    if total > 0.0:
        weights /= total


@kernel
def follow_segments(
    ahead_offsets: Array, ahead_others: Array, ahead_chances: Array, back_offsets: Array, back_others: Array,
    back_chances: Array, law_offsets: Array, law_goals: Array, law_shares: Array, place: Array, frees: Array,
    group: Array, bounds: Array, drawn: Array, slack: Array, more: Array, start: Array, hops: Array, came_from: Array,
    target: Array, new: Array, goal: Array, out: Array
) -> None:  # fmt: skip
    """Follow every segment through its windows; ``out[w]`` gets the weights of makers of what was new in window w.

    Segment s has the windows ``bounds[s]:bounds[s + 1]`` and members ``~frees[group[s]]``, as a mask of states. A
    window of -1 hops leads from member to member. ``goal``: -2 where nobody asks, -1 where the destination is not
    known, but for not being the member that holds it; else the destination. ``slack[s]`` more updates than they saw
    were made, or, where ``more[s]``, so many or more.
    """
    for s in numba.prange(bounds.shape[0] - 1):
        ahead = (ahead_offsets, ahead_others, ahead_chances)
        back = (back_offsets, back_others, back_chances)
        law = (law_offsets, law_goals, law_shares)
        free, n_nodes = frees[group[s]], law_offsets.shape[0] - 1
        weights = np.zeros((slack[s] + 1, n_nodes))
        weights[0, drawn[s]] = 1.0
        first, last = bounds[s], bounds[s + 1] - 1
        while last >= first and goal[last] == -2:
            last -= 1
        # In the layers updates are counted from the fewest that explain what was seen, and that is none at first.
        for w in range(first, last + 1):
            if hops[w] >= 0:
                end = way_out(back, place, free, came_from[w], target[w])
                if new[w]:
                    # What is sealed into the last layer need not be followed once nobody asks where it went.
                    used = weights.shape[0] - (1 if w == last and not more[s] else 0)
                    made = np.zeros((hops[w] + 1, free.shape[0]))
                    _changed(back, law, place, free, start[w], hops[w], end, weights, more[s], used, made)
                    if goal[w] >= 0:
                        _weigh_makers(ahead, law, place, free, hops[w], end, np.array([goal[w]]), made, out[w])
                    elif goal[w] == -1:
                        others = np.arange(n_nodes)
                        others = others[others != place[target[w]]]
                        _weigh_makers(ahead, law, place, free, hops[w], end, others, made, out[w])
                else:
                    _unchanged(back, place, free, start[w], hops[w], end, weights)
            # Who holds it did not open it.
            weights[:, place[target[w]]] = 0.0
            _scale(weights)
