"""Tokens of the protocol between two calls of the kernels: sealed for one or for several, here or on a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from veilwalk.core.arrays import BoolArray, IntArray
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph
from veilwalk.walks._device import Device
from veilwalk.walks._laws import AliasRows, SetRows
from veilwalk.walks._moves import TABLES, MemoryMoves, Moves, moves_of, walk_arguments

# Hops that a lane walks before what happened on them is looked up, at least: few enough to stay in the first cache.
_WAY = 256
_N_COLUMNS = 16


class Lanes(ABC):
    """The tokens of every replica, between two calls of the kernel."""

    def __init__(self, n_nodes: int, law: AliasRows, watching: BoolArray, *, tokens: int, key: np.uint64) -> None:
        self._n_nodes = n_nodes
        self._law = law
        self._watching = watching
        self._tokens = tokens
        self._key = key
        self._state = np.empty((0, 0), dtype=np.int64)
        self._visits = np.empty(0, dtype=np.int64)

    def start(self, lanes: range) -> None:
        """Put the tokens of these lanes on their first nodes."""
        from veilwalk.walks import _kernels_protocol as kernels

        self._state = np.empty((len(lanes), kernels.N_COLUMNS), dtype=np.int64)
        self._visits = np.full(len(lanes) * self._n_nodes, -1, dtype=np.int64)
        n_nodes, first = np.uint64(self._n_nodes), np.uint64(lanes.start)
        kernels.start_lanes(n_nodes, *self._law.arguments(), self._key, first, self._state, self._visits)

    @abstractmethod
    def play(self, quotas: IntArray, out: npt.NDArray[np.void]) -> None:
        """Let each lane make its quota of updates, recorded one lane after the other in ``out`` unless empty."""

    def unvisited(self) -> BoolArray:
        """Return which lanes' tokens have not been everywhere yet."""
        return np.asarray((self._visits.reshape(len(self._state), self._n_nodes) < 0).any(axis=1))


class TableLanes(Lanes):
    """Tokens whose walk is a table of moves."""

    def __init__(self, moves: Moves, law: AliasRows, watching: BoolArray, *, tokens: int, key: np.uint64) -> None:
        super().__init__(moves.n_nodes, law, watching, tokens=tokens, key=key)
        self._moves = moves

    def play(self, quotas: IntArray, out: npt.NDArray[np.void]) -> None:
        """Let each lane make its quota of updates."""
        from veilwalk.walks import _kernels_protocol as kernels

        if len(quotas) == 1 and self._moves.width and not len(self._watching):
            kernels.run_lane(
                self._moves.table,
                *self._moves.word_arguments(),
                *self._law.arguments(),
                self._tokens,
                self._key,
                self._state,
                self._visits,
                int(quotas[0]),
                out,
            )
            return
        kernels.run_lanes(
            self._moves.table,
            self._moves.offsets,
            *self._moves.word_arguments(),
            np.uint64(self._n_nodes),
            *self._law.arguments(),
            self._watching,
            self._tokens,
            self._key,
            self._state,
            self._visits,
            quotas,
            np.cumsum(quotas) - quotas,
            out,
        )


class MemoryLanes(Lanes):
    """Tokens whose walk needs to know where they came from, or a coin."""

    def __init__(self, moves: MemoryMoves, law: AliasRows, watching: BoolArray, *, tokens: int, key: np.uint64) -> None:
        super().__init__(moves.n_nodes, law, watching, tokens=tokens, key=key)
        self._moves = moves
        self._backs = np.empty(0, dtype=np.int64)

    def start(self, lanes: range) -> None:
        """Put the tokens of these lanes on their first nodes."""
        super().start(lanes)
        self._backs = np.full(len(lanes), -1, dtype=np.int64)

    def play(self, quotas: IntArray, out: npt.NDArray[np.void]) -> None:
        """Let each lane make its quota of updates."""
        from veilwalk.walks import _kernels_protocol as kernels

        kernels.run_memory_lanes(
            *self._moves.arguments(),
            np.uint64(self._n_nodes),
            *self._law.arguments(),
            self._watching,
            self._tokens,
            self._key,
            self._state,
            self._backs,
            self._visits,
            quotas,
            np.cumsum(quotas) - quotas,
            out,
        )


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
        from veilwalk.walks import _kernels_paths as paths
        from veilwalk.walks import _kernels_protocol as kernels

        n_lanes, first = len(lanes), np.uint64(lanes.start)
        starts = np.empty(n_lanes, dtype=np.int64)
        paths.start_nodes(np.uint64(self._n_nodes), self._key, first, starts)
        self._state = np.empty((n_lanes, kernels.N_COLUMNS), dtype=np.int64)
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
        from veilwalk.walks import _kernels_protocol as kernels

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


class DeviceWalk:
    """A walk of any kind as the kernels of a device take it."""

    def __init__(self, device: Device, graph: Graph, walk: Walk) -> None:
        memory, kind, offsets, table, reverse, *numbers = walk_arguments(graph, walk)
        reverse = reverse.astype(np.int64)
        self.arguments = (memory, kind, *(device.put(one) for one in (offsets, table, reverse)), *numbers)


class DeviceLanes:
    """The tokens of every replica, sealed for one (``AliasRows``) or for several (``SetRows``)."""

    def __init__(
        self,
        device: Device,
        graph: Graph,
        walk: Walk,
        law: AliasRows | SetRows,
        watching: BoolArray,
        *,
        recipients: int,
        tokens: int,
        key: np.uint64,
    ) -> None:
        self._device, self._n_nodes = device, graph.n_nodes
        self._walk = DeviceWalk(device, graph, walk)
        self._several = isinstance(law, SetRows)
        if isinstance(law, SetRows):
            arrays = (device.put(one) for one in law.drawn_by())
            self._law: tuple[Any, ...] = (graph.n_nodes, *arrays, len(law.weights) > 0, recipients)
        else:
            self._law = (graph.n_nodes, *(device.put(one) for one in law.arguments()))
        self._watched = len(watching) > 0
        self._watching = device.put(watching.view(np.uint8))
        self._tokens, self._key = tokens, key
        self._state: Any = None
        self._backs: Any = None
        self._visits: Any = None
        self._stamps: tuple[Any, ...] = ()

    def start(self, lanes: range) -> None:
        """Put the tokens of these lanes on their first nodes."""
        full, n_lanes, first = self._device.full, len(lanes), np.uint64(lanes.start)
        self._state = full((n_lanes, _N_COLUMNS), 0, "int64")
        self._backs = full(n_lanes, -1, "int64")
        self._visits = full((n_lanes, self._n_nodes), -1, "int64")
        self._stamps = (full((n_lanes, self._n_nodes), -1, "int64"),) if self._several else ()
        kernel = "start_several" if self._several else "start_lanes"
        tables = (self._state, self._visits, *self._stamps)
        self._device.launch(kernel, n_lanes, *self._law, self._key, first, n_lanes, *tables)

    def unvisited(self) -> BoolArray:
        """Return which lanes' tokens have not been everywhere yet."""
        return self._device.fetch((self._visits < 0).any(axis=1))

    def play(self, quotas: IntArray, out: npt.NDArray[np.void]) -> None:
        """Let each lane make its quota of updates, recorded one lane after the other in ``out`` unless empty."""
        put, n_lanes = self._device.put, len(quotas)
        rows = np.cumsum(quotas) - quotas
        records = self._device.full(len(out) * out.dtype.itemsize // 4, 0, "uint32")
        self._device.launch(
            "run_several" if self._several else "run_lanes",
            n_lanes,
            *self._walk.arguments,
            *self._law,
            self._watching,
            self._watched,
            self._tokens,
            self._key,
            n_lanes,
            self._state,
            self._backs,
            self._visits,
            *self._stamps,
            put(quotas.astype(np.int64)),
            put(rows.astype(np.int64)),
            len(out) > 0,
            records,
        )
        if len(out):
            out.view(np.uint32)[:] = self._device.fetch(records)
