"""The worst case: a destination that knows where the token went.

It is granted more than any node sees. It cannot look into a ciphertext, nor see where one ends and the next begins: an
observer that sees that as well knows the source.
"""

from __future__ import annotations

import numpy as np

from veilwalk.audit._settings import AuditSettings
from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference._base import Posterior
from veilwalk.audit.inference._kernels_paths import weigh_openings, weigh_path
from veilwalk.audit.inference.rehearsed import Sets, colluder_numbers, follow_paths, follow_sealed
from veilwalk.core.arrays import IntArray, normalised
from veilwalk.design import Scheme
from veilwalk.walks import token_paths

# Bytes of path and of what is followed along it, a hop.
_HOP_BYTES = 20
_BATCH_BYTES = 256 << 20


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
            made = follow_paths(paths, law)
            weigh_path(paths, made, columns, lanes[rows] - first, seen.clock[rows], seen.return_time[rows], part)
        else:
            made, _ = follow_sealed(paths, sets, nobody)
            first_row = np.searchsorted(lanes[rows], first + np.arange(len(paths) + 1))
            weigh_openings(paths, made, *sets.arguments(), first_row, seen.clock[rows], part)
        weight[rows] = part
    return Posterior(normalised(weight), "exact: every hop is known")


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
