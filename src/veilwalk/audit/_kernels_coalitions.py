"""Plays coalitions that cheat, and weighs who made what they read on a hidden overlay.

A stretch is the part of a path between two visits to members of the coalition: L honest nodes, of which the first and
the last are their neighbours. What a member reads was made on the stretch before it was first held. Each row of a play
is one such update: see the columns.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.walks.compiled import jit, jit_parallel

Array = Any
#: Columns: the maker; first and last node of the stretch, and its length; updates made on it; the set that the
#: coalition sealed for before it, or -1 where an honest node had sealed; the set of the maker.
MAKER, FIRST, LAST, STEPS, COUNT, OWN_SET, DRAWN_SET, N_COLUMNS = 0, 1, 2, 3, 4, 5, 6, 7
#: Whom members that cheat seal for: as the law says, one victim, or somebody else each time; and the column of a run of
#: cheaters that has whom they expected, beside the maker.
HONESTLY, ONE_VICTIM, ANYBODY, GUESS = 0, 1, 2, 1


@jit
def play_seizing_lane(
    path: Array, pools: Array, aims: Array, member: Array, seizes: Any, draws: Array, out: Array
) -> Any:
    """Play the protocol on one path; write a row for each honest update that the coalition reads.

    ``pools[i]`` are sets of recipients of node i; members seal for rows of ``aims`` (-1 fills a slot with nobody's
    key). A coalition that ``seizes`` opens whatever any key of its members opens; else a member opens by the rule.
    Returns the rows written and the number of honest updates.
    """
    chosen, own_set, maker, n_rows, honest_updates = pools[path[0], 0], -1, path[0], 0, 0
    readable, held, draw, drawn = False, False, 0, 0
    # Where the last member stood, the own set that left with the token, and updates made since.
    left, left_set, count = -1, -1, 0
    first, last, steps, n_updates, before = -1, -1, 0, 0, -1
    for hop in range(1, path.shape[0]):
        node = path[hop]
        opens = False
        for recipient in chosen:
            opens |= recipient == node
        if member[node]:
            if left >= 0 and not held and not member[maker] and count > 0:
                first, last, steps, n_updates, before = path[left + 1], path[hop - 1], hop - left - 1, count, left_set
                held = True
            if opens or (seizes and readable):
                if held:
                    if n_rows == out.shape[0]:
                        return n_rows, honest_updates
                    out[n_rows, MAKER], out[n_rows, FIRST], out[n_rows, LAST] = maker, first, last
                    out[n_rows, STEPS], out[n_rows, COUNT], out[n_rows, OWN_SET] = steps, n_updates, before
                    out[n_rows, DRAWN_SET] = drawn
                    n_rows += 1
                draw = (draw + 1) % draws.shape[0]
                own_set = int(draws[draw] * aims.shape[0])
                chosen, maker, held, readable = aims[own_set], node, False, False
            left, left_set, count = hop, own_set, 0
        elif opens:
            draw = (draw + 1) % draws.shape[0]
            drawn = int(draws[draw] * pools.shape[1])
            chosen, own_set, maker, held = pools[node, drawn], -1, node, False
            readable = False
            for recipient in chosen:
                readable |= member[recipient]
            count += 1
            honest_updates += 1
    return n_rows, honest_updates


@jit
def play_cheating_lane(
    path: Any, pools: Any, member: Any, honest: Any, aim: int, victim: int, takes: Any, trains: float, draws: Any,
    out: Any
) -> int:  # fmt: skip
    """Play the protocol on one path and return the number of updates; members aim, or take over what they can read.

    ``pools[i]`` are sets of recipients of node i. ``trains``: the chance that an honest opener trains; else it only
    seals again. A row of ``out`` gets the maker of an update, and whom the members expected, or -1.
    """
    chosen, n_updates, guess, readable = pools[path[0], 0], 0, -1, False
    single, draw = -1, 0
    for hop in range(1, path.shape[0]):
        node = path[hop]
        opens = node == single
        if single < 0:
            for recipient in chosen:
                opens |= recipient == node
        if not opens and not (takes and member[node] and readable):
            continue
        draw = (draw + 3) % (draws.shape[0] - 3)
        if n_updates == out.shape[0]:
            break
        if member[node] or draws[draw] < trains:
            out[n_updates, MAKER], out[n_updates, GUESS] = node, guess
            n_updates += 1
            guess = -1
        single, readable = -1, False
        if member[node] and aim != HONESTLY:
            single = victim if aim == ONE_VICTIM else honest[int(draws[draw + 1] * honest.shape[0])]
            guess = single
            continue
        chosen = pools[node, int(draws[draw + 2] * pools.shape[1])]
        for recipient in chosen:
            readable |= member[recipient]
    return n_updates


@jit
def _advance_weights(state: Array, offsets: Array, table: Array, back: Array, honest: Array, out: Array) -> None:
    """Move weights on arcs one hop on, inside the honest part and never straight back; ``back`` is the reverse arc."""
    out[:] = 0.0
    for arc in range(table.shape[0]):
        weight, node = state[arc], table[arc]
        if weight == 0.0:
            continue
        for onward in range(offsets[node], offsets[node + 1]):
            if onward != back[arc] and honest[table[onward]]:
                out[onward] += weight


@jit_parallel
def weigh_with_map(
    rows: Array, chances: Array, hazards: Array, offsets: Array, table: Array, back: Array, honest: Array, out: Array
) -> None:
    """Write into ``out[row, i]`` the posterior that node i made the update, for an observer that knows the map.

    ``chances[s, i]`` is the chance that node i is a recipient of the coalition's set s, for this observer. ``hazards``
    are the chances that a node is a recipient of an honest set: of one that no member can read, of one that was opened
    on the stretch, of one that a member reads. The next node after a maker is its neighbour, and no recipient.
    """
    arcs = table.shape[0]
    for row in numba.prange(rows.shape[0]):
        first, last, steps = rows[row, FIRST], rows[row, LAST], rows[row, STEPS]
        count, own = rows[row, COUNT], rows[row, OWN_SET]
        # later[t]: ways from an arc at step t to the end of the stretch.
        later = np.zeros((steps + 1, arcs))
        for arc in range(arcs):
            if table[arc] == last:
                later[steps, arc] = 1.0
        for step in range(steps - 1, 0, -1):
            for arc in range(arcs):
                node = table[arc]
                if not honest[node]:
                    continue
                total = 0.0
                for onward in range(offsets[node], offsets[node + 1]):
                    if onward != back[arc] and honest[table[onward]]:
                        total += later[step + 1, onward]
                later[step, arc] = total
        # state[k, fresh]: k updates so far, and whether the last was made by the node just left.
        state, moved = np.zeros((count, 2, arcs)), np.zeros((count, 2, arcs))
        for step in range(1, steps + 1):
            scale = (1.0 - hazards[2]) ** max(steps - step - 1, 0)
            moved[:] = 0.0
            if step > 1:
                for k in range(count):
                    _advance_weights(state[k, 0], offsets, table, back, honest, moved[k, 0])
                    _advance_weights(state[k, 1], offsets, table, back, honest, moved[k, 1])
            else:
                # Any arc from a member into the first node: all lead on into the same honest nodes.
                for arc in range(arcs):
                    if table[arc] == first and not honest[table[back[arc]]]:
                        moved[0, 0, arc] = 1.0
                        break
            state[:] = 0.0
            for k in range(count):
                for arc in range(arcs):
                    node = table[arc]
                    fresh, stale = moved[k, 1, arc], moved[k, 0, arc]
                    if fresh == 0.0 and stale == 0.0:
                        continue
                    chance = hazards[1] if k > 0 else hazards[0] if own < 0 else chances[own, node]
                    opened = stale * chance
                    state[k, 0, arc] += fresh + stale - opened
                    if k == count - 1:
                        out[row, node] += opened * scale * later[step, arc]
                    else:
                        state[k + 1, 1, arc] += opened
        total = out[row].sum()
        if total > 0.0:
            out[row] /= total


@jit_parallel
def weigh_without_map(rows: Array, chances: Array, hazards: Array, free: Array, out: Array) -> None:
    """Write the same for an observer that knows its own links only; ``free[i]`` are links of i to honest nodes.

    Over all overlays that agree with its links, a node between the first and the last of a stretch is each honest node
    with weight f (f - 1): the ways in and on.
    """
    weight = free * (free - 1.0)
    weight /= weight.sum()
    for row in numba.prange(rows.shape[0]):
        first, last, steps = rows[row, FIRST], rows[row, LAST], rows[row, STEPS]
        count, own = rows[row, COUNT], rows[row, OWN_SET]
        between = 0.0
        if own >= 0:
            for node in range(free.shape[0]):
                between += weight[node] * chances[own, node]
        state, moved = np.zeros((count, 2)), np.zeros((count, 2))
        state[0, 0] = 1.0
        by_set, by_any = 0.0, 0.0
        for step in range(1, steps + 1):
            moved[:] = state
            state[:] = 0.0
            scale = (1.0 - hazards[2]) ** max(steps - step - 1, 0)
            for k in range(count):
                chance = hazards[1] if k > 0 else hazards[0]
                if k == 0 and own >= 0:
                    chance = chances[own, first] if step == 1 else chances[own, last] if step == steps else between
                opened = moved[k, 0] * chance
                state[k, 0] += moved[k, 1] + moved[k, 0] - opened
                if k < count - 1:
                    state[k + 1, 1] += opened
                elif step == 1:
                    out[row, first] += opened * scale
                elif step == steps:
                    out[row, last] += opened * scale
                elif k == 0 and own >= 0:
                    by_set += opened * scale
                else:
                    by_any += opened * scale
        for node in range(free.shape[0]):
            out[row, node] += by_any * weight[node]
            if by_set > 0.0 and between > 0.0:
                out[row, node] += by_set * weight[node] * chances[own, node] / between
        total = out[row].sum()
        if total > 0.0:
            out[row] /= total
