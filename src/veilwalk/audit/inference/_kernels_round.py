"""Compiled loops of the observer that knows what every node remembers: it tries out how the token may have gone on."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from veilwalk.audit.inference._kernels_paths import entry_of
from veilwalk.audit.inference._kernels_sealed import LEFT, N_ROWS, NOTHING, SHARE, open_here, seal_here
from veilwalk.walks.compiled import ZERO, kernel, part, walk_on

_TWO = np.uint64(2)
_JOBS = np.uint64(20)

Array = Any


@part
def _sent(
    kind: int,
    offsets: Array,
    table: Array,
    reverse: Array,
    threshold: Any,
    n_words: int,
    used: Array,
    trial: Array,
    seed: Any,
    row: int,
    number: int,
    node: int,
    back: int,
    hop: int,
    way: Array,
) -> int:
    """Send token ``number`` of a row on, the same way whenever it is asked for; return how many hops it took."""
    trial[:] = used
    job = (np.uint64(row) << _JOBS) + np.uint64(number)
    return walk_on(
        kind, offsets, table, reverse, threshold, n_words, trial, seed, job, np.uint64(node), np.uint64(back), hop + 1,
        way,
    )  # fmt: skip


@part
def _tried(
    kind: int,
    offsets: Array,
    table: Array,
    reverse: Array,
    threshold: Any,
    n_words: int,
    used: Array,
    trial: Array,
    seed: Any,
    row: int,
    node: int,
    back: int,
    hop: int,
    onward: int,
    return_time: int,
    last: int,
    hops_per_row: int,
    wanted: int,
) -> Any:
    """Send tokens on; return room for a way, by how many hops each missed the return time, and how many still fit."""
    away = return_time - 1
    slack = away // 4 + 1
    way = np.empty(away + slack + 1, np.int32)
    way[0] = onward
    n_trials = 1 if threshold == ZERO else max(1, min(1 << 20, hops_per_row // way.shape[0]))
    misses = np.full(n_trials, slack + 1, np.int64)
    for number in range(n_trials):
        took = _sent(
            kind, offsets, table, reverse, threshold, n_words, used, trial, seed, row, number, node, back, hop, way
        )
        if took > 0 and (way[took - 1] == last):
            misses[number] = abs(took - away)
    return way, misses, min(np.sort(misses)[min(wanted, n_trials) - 1], slack)


@kernel
def foretell(
    paths: Array,
    law_offsets: Array,
    law_columns: Array,
    law_weights: Array,
    law: Array,
    kind: int,
    offsets: Array,
    table: Array,
    reverse: Array,
    threshold: Any,
    n_words: int,
    seed: Any,
    first_row: Array,
    clocks: Array,
    return_times: Array,
    hops_per_row: int,
    wanted: int,
    out: Array,
    found: Array,
) -> None:
    """Write into ``out[row, i]`` the weight of source i over all ways that fit, and into ``found[row]`` their number.

    Rows ``first_row[lane]`` to ``first_row[lane + 1]`` are deliveries on path ``lane``, in the order of when the token
    left the destination the time before. All up to that hop is known, and so what every node remembers; tokens are sent
    on from there, for ``hops_per_row`` hops in all. Those that come back by the neighbour the true one came from, and
    after the same number of hops, fit; where fewer than ``wanted`` do, so do those next to it. Updates are followed
    along each way as in ``_kernels_paths.follow``. ``law[j]`` is the column of j.
    """
    n_nodes, n_entries = law.shape[0], table.shape[0]
    for lane in numba.prange(paths.shape[0]):
        path = paths[lane]
        used, trial = np.full(n_entries, -1, np.int64), np.empty(n_entries, np.int64)
        sealed, tried = np.zeros(n_nodes), np.empty(n_nodes)
        sealed[path[0]] = 1.0
        row, stop = first_row[lane], first_row[lane + 1]
        for hop in range(path.shape[0] - 1):
            if row == stop:
                break
            node, onward = path[hop], path[hop + 1]
            here = sealed[node]
            sealed[node] = 0.0
            for entry in range(law_offsets[node], law_offsets[node + 1]):
                sealed[law_columns[entry]] += here * law_weights[entry]
            back = entry_of(offsets, table, onward, node)
            used[back] = hop + 1
            used[reverse[back]] = hop + 1
            while row < stop and clocks[row] - return_times[row] == hop:
                way, misses, worst = _tried(
                    kind, offsets, table, reverse, threshold, n_words, used, trial, seed, row, node, back, hop, onward,
                    return_times[row], path[clocks[row] - 1], hops_per_row, wanted,
                )  # fmt: skip
                for number in range(misses.shape[0]):
                    if misses[number] > worst:
                        continue
                    found[row] += 1
                    took = _sent(
                        kind, offsets, table, reverse, threshold, n_words, used, trial, seed, row, number, node, back,
                        hop, way,
                    )  # fmt: skip
                    tried[:] = sealed
                    for then in range(took):
                        source = way[then]
                        made = tried[source]
                        tried[source] = 0.0
                        out[row, source] += made * law[node, source]
                        for entry in range(law_offsets[source], law_offsets[source + 1]):
                            tried[law_columns[entry]] += made * law_weights[entry]
                row += 1


@part
def _open_along(
    path: Array,
    oldest: int,
    hop: int,
    way: Array,
    took: int,
    weights: Array,
    eligible: Array,
    even: Array,
    pace: Array,
    slopes: Array,
    recipients: int,
    state: Array,
    seen: Array,
    out: Array,
) -> None:
    """Add to ``out[i]`` the probability that the token comes back from a way with what i sealed on it, and is opened.

    All up to ``hop`` is known; before ``oldest`` nothing is left unopened.
    """
    known = hop + 1 - oldest
    tried = np.zeros((N_ROWS, known + took + 1))
    tried[:, :known] = state[:, oldest : hop + 1]
    whole = np.empty(known + took + 1, np.int64)
    whole[:known] = path[oldest : hop + 1]
    whole[known : known + took] = way[:took]
    whole[known + took] = path[hop]
    last = np.maximum(seen - oldest, -1)
    for then in range(known, known + took + 1):
        node = whole[then]
        made = open_here(whole, then, last[node] + 1, weights[node], eligible, even, recipients, tried)
        seal_here(tried, then, made, pace[node], slopes[node])
        last[node] = then
    for then in range(known, known + took):
        out[whole[then]] += tried[SHARE, then]


@kernel
def foretell_sealed(
    paths: Array,
    weights: Array,
    eligible: Array,
    even: Array,
    pace: Array,
    slopes: Array,
    recipients: int,
    kind: int,
    offsets: Array,
    table: Array,
    reverse: Array,
    threshold: Any,
    n_words: int,
    seed: Any,
    first_row: Array,
    clocks: Array,
    return_times: Array,
    hops_per_row: int,
    wanted: int,
    out: Array,
    found: Array,
) -> None:
    """The same where there are several recipients: openings are followed as in ``_kernels_sealed.follow_sets``."""
    n_nodes, n_entries = weights.shape[0], table.shape[0]
    for lane in numba.prange(paths.shape[0]):
        path = paths[lane]
        used, trial = np.full(n_entries, -1, np.int64), np.empty(n_entries, np.int64)
        state, seen = np.zeros((N_ROWS, path.shape[0])), np.full(n_nodes, -1, np.int64)
        row, stop, oldest = first_row[lane], first_row[lane + 1], 0
        for hop in range(path.shape[0] - 1):
            if row == stop:
                break
            node, onward = path[hop], path[hop + 1]
            since = max(seen[node] + 1, oldest)
            seen[node] = hop
            made = 1.0 if hop == 0 else open_here(path, hop, since, weights[node], eligible, even, recipients, state)
            seal_here(state, hop, made, pace[node], slopes[node])
            while oldest < hop and state[LEFT, oldest] <= NOTHING:
                oldest += 1
            back = entry_of(offsets, table, onward, node)
            used[back] = hop + 1
            used[reverse[back]] = hop + 1
            while row < stop and clocks[row] - return_times[row] == hop:
                way, misses, worst = _tried(
                    kind, offsets, table, reverse, threshold, n_words, used, trial, seed, row, node, back, hop, onward,
                    return_times[row], path[clocks[row] - 1], hops_per_row, wanted,
                )  # fmt: skip
                for number in range(misses.shape[0]):
                    if misses[number] > worst:
                        continue
                    found[row] += 1
                    took = _sent(
                        kind, offsets, table, reverse, threshold, n_words, used, trial, seed, row, number, node, back,
                        hop, way,
                    )  # fmt: skip
                    _open_along(
                        path, oldest, hop, way, took, weights, eligible, even, pace, slopes, recipients, state, seen,
                        out[row],
                    )  # fmt: skip
                row += 1
