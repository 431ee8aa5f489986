"""The worst cases: observers who know where the token went, or what every node remembered when it last left them.

Both are destinations that are granted more than any node sees. Neither can look into a ciphertext, nor see where one
ends and the next begins; who sees that as well knows the source.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from veilwalk.audit._settings import AuditSettings
from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference._base import Posterior
from veilwalk.audit.inference._kernels_paths import weigh_path
from veilwalk.audit.inference.rehearsal import colluder_numbers, follow_paths, follow_sealed
from veilwalk.audit.inference.sealed import Sets
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.randomness import task_generator
from veilwalk.design import Scheme
from veilwalk.walks import memory_moves_of, token_paths

# Bytes of path and of what is followed along it, a hop.
_HOP_BYTES = 20
_BATCH_BYTES = 256 << 20
_ROUND_TASK = 0x726F756E
# How many ways that fit are enough.
_WANTED = 128


def first_updates(lanes: IntArray, rows: IntArray, count: int) -> IntArray:
    """Return of ``rows``, ordered by lane and time, the first few of every lane: about ``count`` in all."""
    starts = np.flatnonzero(np.r_[True, np.diff(lanes[rows]) != 0])
    sizes = np.diff(np.r_[starts, len(rows)])
    place = np.arange(len(rows)) - np.repeat(starts, sizes)
    return rows[place < -(-count // len(starts))]


def from_path(scheme: Scheme, settings: AuditSettings, *, seen: Sightings, lanes: IntArray) -> Posterior:
    """Exact posterior of who knows every hop: each visit since the token last left may have been the sealing."""
    n_nodes, law, sets = scheme.graph.n_nodes, scheme.law, Sets.of(scheme)
    columns = np.ascontiguousarray(law.matrix.toarray().T)
    nobody = colluder_numbers(n_nodes, np.zeros(0, dtype=np.int64))
    weight = np.zeros((len(seen), n_nodes))
    for first, rows in _batches(seen, lanes):
        paths = _walked(scheme, settings, first, lanes[rows], seen.clock[rows])
        part = np.zeros((len(rows), n_nodes))
        if sets is None:
            made, _ = follow_paths(paths, law, nobody)
            weigh_path(paths, made, columns, lanes[rows] - first, seen.clock[rows], seen.return_time[rows], part)
        else:
            from veilwalk.audit.inference._kernels_sealed import weigh_openings

            made, _ = follow_sealed(paths, sets, nobody)
            first_row = np.searchsorted(lanes[rows], first + np.arange(len(paths) + 1))
            weigh_openings(paths, made, *sets.arguments(), first_row, seen.clock[rows], part)
        weight[rows] = part
    return Posterior(normalised(weight), "exact: every hop is known")


def from_round(
    scheme: Scheme, settings: AuditSettings, *, seen: Sightings, lanes: IntArray, otherwise: FloatArray
) -> Posterior:
    """Posterior of who followed the token until it last left, and so knows what every node remembered then.

    It sees the return time and the last hop. Tokens are sent on from there by simulation, and those that come back
    alike are kept; ``otherwise``, a posterior that knows no memory, counts as one way more where chance has a part.
    """
    from veilwalk.audit.inference._kernels_round import foretell, foretell_sealed

    rows_of_law, mix, sets = scheme.law.matrix, scheme.walk.mix, Sets.of(scheme)
    columns = np.ascontiguousarray(rows_of_law.toarray().T)
    law = (rows_of_law.indptr, rows_of_law.indices, rows_of_law.data, columns) if sets is None else sets.arguments()
    follow: Callable[..., None] = foretell if sets is None else foretell_sealed
    moves = memory_moves_of(scheme.graph, scheme.walk)
    seed = np.uint64(task_generator(settings.seed, _ROUND_TASK).integers(1 << 63))
    guess = np.array(otherwise)
    for first, chosen in _batches(seen, lanes):
        # In the order in which the token left the destination the time before.
        order = np.lexsort((seen.clock[chosen] - seen.return_time[chosen], lanes[chosen]))
        rows = chosen[order]
        paths = _walked(scheme, settings, first, lanes[rows], seen.clock[rows])
        weight, found = np.zeros((len(rows), len(columns))), np.zeros(len(rows), dtype=np.int64)
        follow(
            paths,
            *law,
            *moves.arguments(),
            seed + np.uint64(first),
            np.searchsorted(lanes[rows], first + np.arange(len(paths) + 1)),
            seen.clock[rows],
            seen.return_time[rows],
            settings.tried_hops,
            _WANTED,
            weight,
            found,
        )
        fits = found > 0
        share = np.where(mix > 0.0, 1.0 / np.maximum(found[fits], 1), 0.0)[:, np.newaxis]
        guess[rows[fits]] = normalised(normalised(weight[fits]) + share * otherwise[rows[fits]])
    return Posterior(guess, "simulated onward from what every node remembered")


def _batches(seen: Sightings, lanes: IntArray) -> list[tuple[int, IntArray]]:
    """Cut the rows into groups of lanes whose paths fit into memory; return the first lane of each, and its rows."""
    size = max(1, _BATCH_BYTES // (_HOP_BYTES * (int(seen.clock.max()) + 1)))
    return [
        (first, rows)
        for first in range(0, int(lanes.max()) + 1, size)
        if len(rows := np.flatnonzero((lanes >= first) & (lanes < first + size)))
    ]


def _walked(scheme: Scheme, settings: AuditSettings, first: int, lanes: IntArray, clocks: IntArray) -> IntArray:
    """The paths of the lanes from ``first`` on, as far as they are needed."""
    return token_paths(
        scheme.graph,
        hops=int(clocks.max()),
        lanes=int(lanes.max()) - first + 1,
        seed=settings.seed,
        walk=scheme.walk,
        first_lane=first,
    )
