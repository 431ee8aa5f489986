"""Tokens of ciphertexts that are sealed for several, between two calls of the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from veilwalk.core.arrays import BoolArray, IntArray
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph
from veilwalk.walks._memory import memory_moves_of
from veilwalk.walks._moves import TABLES, moves_of
from veilwalk.walks._sets import SetRows

# Hops that a lane walks before what happened on them is looked up, at least: few enough to stay in the first cache.
_WAY = 256


class SeveralLanes:
    """The tokens of every replica; whatever their walk, one kernel serves them."""

    def __init__(
        self,
        graph: Graph,
        walk: Walk,
        law: SetRows,
        watching: BoolArray,
        *,
        recipients: int,
        tokens: int,
        key: np.uint64,
    ) -> None:
        self._n_nodes, self._law, self._watching = graph.n_nodes, law, watching
        self._recipients, self._tokens, self._key = recipients, tokens, key
        self._walk = walk_arguments(graph, walk)
        # A way starts and ends with a block of words.
        block_hops = 4 * moves_of(graph, walk).digits if walk.kind in TABLES else 4
        self._way_nodes = 1 + -(-_WAY // block_hops) * block_hops
        nothing = np.empty((0, 0), dtype=np.int64)
        self._state = self._visits = self._stamps = self._ways = nothing
        self._places = self._backs = np.empty(0, dtype=np.int64)

    def start(self, lanes: range) -> None:
        """Put the tokens of these lanes on their first nodes."""
        from veilwalk.walks import _kernels_memory_paths as paths
        from veilwalk.walks import _kernels_records as records
        from veilwalk.walks import _kernels_several as kernels

        n_lanes, first = len(lanes), np.uint64(lanes.start)
        starts = np.empty(n_lanes, dtype=np.int64)
        paths.start_nodes(np.uint64(self._n_nodes), self._key, first, starts)
        self._state = np.empty((n_lanes, records.N_COLUMNS), dtype=np.int64)
        self._visits = np.full((n_lanes, self._n_nodes), -1, dtype=np.int64)
        self._stamps = np.full((n_lanes, self._n_nodes), -1, dtype=np.int64)
        drawn = np.empty(self._recipients, dtype=np.int64)
        kernels.start_several(
            np.uint64(self._n_nodes),
            *self._law.drawn_by(),
            self._key,
            first,
            starts,
            self._state,
            self._visits,
            self._stamps,
            drawn,
        )
        self._ways = np.repeat(starts[:, np.newaxis], self._way_nodes, axis=1)
        self._places = np.full(n_lanes, self._way_nodes - 1)
        self._backs = np.full(n_lanes, -1, dtype=np.int64)

    def unvisited(self) -> BoolArray:
        """Return which lanes' tokens have not been everywhere yet."""
        return np.asarray((self._visits < 0).any(axis=1))

    def play(self, quotas: IntArray, out: npt.NDArray[np.void]) -> None:
        """Let each lane make its quota of updates, recorded one lane after the other in ``out`` unless empty."""
        from veilwalk.walks import _kernels_several as kernels

        arguments: tuple[Any, ...] = (
            *self._walk,
            np.uint64(self._n_nodes),
            *self._law.drawn_by(),
            self._recipients,
            self._watching,
            self._tokens,
            self._key,
            self._state,
            self._visits,
            self._stamps,
            self._ways,
            self._places,
            self._backs,
            quotas,
            np.cumsum(quotas) - quotas,
            out,
        )
        kernels.run_several(*arguments)


def walk_arguments(graph: Graph, walk: Walk) -> tuple[Any, ...]:
    """Return a walk of either kind as the one kernel takes it; what it does not need is empty."""
    if walk.kind not in TABLES:
        return (True, *memory_moves_of(graph, walk).arguments(), np.uint64(0), 1, np.uint64(1), np.uint64(0))
    moves = moves_of(graph, walk)
    nowhere = np.empty(0, dtype=graph.indices.dtype)
    nowhere.flags.writeable = False
    return (False, 0, moves.offsets, moves.table, nowhere, 1, *moves.word_arguments())
