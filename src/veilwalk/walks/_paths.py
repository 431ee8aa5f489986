"""Where the tokens of the protocol went, hop by hop: for those who are granted to know, and for rehearsals."""

from __future__ import annotations

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import IntArray
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.graphs import Graph
from veilwalk.walks._moves import TABLES, memory_moves_of, moves_of, stream_key


def token_paths(
    graph: Graph,
    *,
    hops: int,
    lanes: int,
    seed: int,
    walk: Walk = SIMPLE,
    first_lane: int = 0,
) -> IntArray:
    """Return the nodes that tokens stand on after 0, 1, ... ``hops`` hops, one row a lane.

    Row k is the way that lane ``first_lane + k`` of :func:`iter_protocol` goes, with one token a replica and the same
    seed and walk: ``path[clock]`` is where it is at that clock. Takes 4 bytes a hop and lane.
    """
    validate.integer(hops=hops, lanes=lanes, first_lane=first_lane)
    validate.at_least(1, hops=hops, lanes=lanes)
    validate.at_least(0, first_lane=first_lane)
    from veilwalk.walks import _kernels_paths as kernels

    key, job = stream_key(seed), np.uint64(first_lane)
    starts = np.empty(lanes, dtype=np.int64)
    kernels.start_nodes(np.uint64(graph.n_nodes), key, job, starts)
    out = np.empty((lanes, hops + 1), dtype=np.int32)
    if walk.kind in TABLES:
        moves = moves_of(graph, walk)
        kernels.trace_tables(moves.table, moves.offsets, *moves.word_arguments(), key, job, starts, out)
    else:
        memory = memory_moves_of(graph, walk)
        kernels.trace_memory(*memory.arguments(), key, job, starts, out)
    return out
