"""Plays coalitions that cheat, and weighs who made what they read on a hidden overlay.

A stretch is the part of a path between two visits to members of the coalition: L honest nodes, of which the first and
the last are their neighbours. What a member reads was made on the stretch before it was first held. Each row of a play
is one such update: see the columns. An honest opener trains, or seals the model again as it is: a blank leg.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.walks.compiled import jit, jit_parallel

Array = Any
#: Columns: the maker; first and last node of the stretch, and its length; updates made on it; the set that the
#: coalition sealed for before it, or -1 where an honest node had sealed; who sealed last on it, for which set, and
#: whether a member can read that.
MAKER, FIRST, LAST, STEPS, COUNT, OWN_SET, SEALER, DRAWN_SET, READABLE, N_COLUMNS = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
#: Whom members that cheat seal for: as the law says, one victim, or somebody else each time; and the column of a run of
#: cheaters that has whom they expected, beside the maker.
HONESTLY, ONE_VICTIM, ANYBODY, GUESS = 0, 1, 2, 1


@jit
def play_seizing_lane(
    path: Array, pools: Array, aims: Array, member: Array, seizes: Any, trains: float, draws: Array, out: Array
) -> Any:
    """Play the protocol on one path; write a row for each honest update that the coalition reads.

    ``pools[i]`` are sets of recipients of node i; members seal for rows of ``aims`` (-1 fills a slot with nobody's
    key). A coalition that ``seizes`` opens whatever any key of its members opens; else a member opens by the rule.
    ``trains``: the chance that an honest opener trains. Returns the rows written and the number of honest updates.
    """
    chosen, own_set, maker, n_rows, honest_updates = pools[path[0], 0], -1, path[0], 0, 0
    readable, held, draw, drawn, sealer = False, False, 0, 0, path[0]
    # Where the last member stood, the own set that left with the token, and updates made since.
    left, left_set, count = -1, -1, 0
    for hop in range(1, path.shape[0]):
        node = path[hop]
        opens = False
        for recipient in chosen:
            opens |= recipient == node
        if member[node]:
            if left >= 0 and not held and not member[maker] and count > 0:
                if n_rows == out.shape[0]:
                    return n_rows, honest_updates
                # It counts if a member reads it before the next update.
                out[n_rows, MAKER], out[n_rows, FIRST], out[n_rows, LAST] = maker, path[left + 1], path[hop - 1]
                out[n_rows, STEPS], out[n_rows, COUNT], out[n_rows, OWN_SET] = hop - left - 1, count, left_set
                out[n_rows, SEALER], out[n_rows, DRAWN_SET], out[n_rows, READABLE] = sealer, drawn, readable
                held = True
            if opens or (seizes and readable):
                n_rows += held
                draw = (draw + 1) % draws.shape[0]
                own_set = int(draws[draw] * aims.shape[0])
                chosen, maker, held, readable = aims[own_set], node, False, False
            left, left_set, count = hop, own_set, 0
        elif opens:
            draw = (draw + 1) % draws.shape[0]
            drawn = int(draws[draw] * pools.shape[1])
            chosen, own_set, sealer, readable = pools[node, drawn], -1, node, False
            for recipient in chosen:
                readable |= member[recipient]
            if trains < 1.0:
                draw = (draw + 1) % draws.shape[0]
            if trains == 1.0 or draws[draw] < trains:
                maker, held = node, False
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


@jit
def _sum_onward(offsets: Array, table: Array, back: Array, honest: Array, arc: Any, values: Array) -> Any:
    """Return the sum of values on the arcs that a walk can take after ``arc``."""
    total, node = 0.0, table[arc]
    for onward in range(offsets[node], offsets[node + 1]):
        if onward != back[arc] and honest[table[onward]]:
            total += values[onward]
    return total


@jit
def _weigh_ends(row: Array, hazards: Array, trains: float, sealers: Array, graph: Any, honest: Array) -> Any:
    """Return for each step and arc how likely the rest of a stretch is after its last update was made there.

    That update may be the last that is sealed on it: who sealed last is weighed by ``sealers``. Or blank legs follow.
    """
    offsets, table, back = graph
    steps, last, arcs = row[STEPS], row[LAST], table.shape[0]
    lasting = 1.0 - (hazards[2] if row[READABLE] else hazards[0])
    ways, ends = np.zeros(arcs), np.zeros((steps + 1, arcs))
    # Sealed again later: at this step or after it, after the next one, after the one after that.
    again, next_again, far_again = np.zeros(arcs), np.zeros(arcs), np.zeros(arcs)
    before = np.zeros(arcs)
    for step in range(steps, 0, -1):
        scale = lasting ** max(steps - step - 1, 0)
        before[:] = ways
        if step < steps and trains < 1.0:
            for arc in range(arcs):
                far_again[arc] = _sum_onward(offsets, table, back, honest, arc, next_again)
            for arc in range(arcs):
                next_again[arc] = _sum_onward(offsets, table, back, honest, arc, again)
        for arc in range(arcs):
            node = table[arc]
            if not honest[node]:
                continue
            if step == steps:
                ways[arc] = 1.0 if node == last else 0.0
            else:
                ways[arc] = _sum_onward(offsets, table, back, honest, arc, before)
            ends[step, arc] = sealers[node] * scale * ways[arc] + far_again[arc]
            again[arc] = hazards[1] * (1.0 - trains) * ends[step, arc] + (1.0 - hazards[1]) * next_again[arc]
    return ends


@jit_parallel
def weigh_with_map(
    rows: Array, chances: Array, hazards: Array, trains: float, sealers: Array, graph: Any, honest: Array, out: Array
) -> None:
    """Write into ``out[row, i]`` the posterior that node i made the update, for an observer that knows the map.

    ``chances[s, i]`` is the chance that node i is a recipient of the coalition's set s, for this observer. ``hazards``
    are the chances that a node is a recipient of an honest set: of one that no member can read, of one that was opened
    on the stretch, of one that a member reads. ``sealers[row, i]``: how likely i is to have drawn the last set. The
    next node after one that sealed is its neighbour, and no recipient.
    """
    offsets, table, back = graph
    arcs = table.shape[0]
    for row in numba.prange(rows.shape[0]):
        first, steps, count, own = rows[row, FIRST], rows[row, STEPS], rows[row, COUNT], rows[row, OWN_SET]
        ends = _weigh_ends(rows[row], hazards, trains, sealers[row], graph, honest)
        # state[0]: not opened yet; state[1 + k, fresh]: k updates so far, and whether the node just left sealed.
        state, moved = np.zeros((count + 1, 2, arcs)), np.zeros((count + 1, 2, arcs))
        for step in range(1, steps + 1):
            moved[:] = 0.0
            if step > 1:
                for k in range(count + 1):
                    _advance_weights(state[k, 0], offsets, table, back, honest, moved[k, 0])
                    _advance_weights(state[k, 1], offsets, table, back, honest, moved[k, 1])
            else:
                # Any arc from a member into the first node: all lead on into the same honest nodes.
                for arc in range(arcs):
                    if table[arc] == first and not honest[table[back[arc]]]:
                        moved[0, 0, arc] = 1.0
                        break
            state[:] = 0.0
            for k in range(count + 1):
                for arc in range(arcs):
                    node = table[arc]
                    fresh, stale = moved[k, 1, arc], moved[k, 0, arc]
                    if fresh == 0.0 and stale == 0.0:
                        continue
                    opened = stale * (hazards[1] if k > 0 else hazards[0] if own < 0 else chances[own, node])
                    state[k, 0, arc] += fresh + stale - opened
                    after = max(k, 1)
                    state[after, 1, arc] += opened * (1.0 - trains)
                    if after == count:
                        out[row, node] += opened * trains * ends[step, arc]
                    else:
                        state[after + 1, 1, arc] += opened * trains
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
