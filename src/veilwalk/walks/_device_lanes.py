"""Tokens of the protocol on a device, between two calls of the kernels: a thread a lane."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from veilwalk.core.arrays import BoolArray, IntArray
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph
from veilwalk.walks._device import Device
from veilwalk.walks._law import AliasRows
from veilwalk.walks._sets import SetRows
from veilwalk.walks._several import walk_arguments

_N_COLUMNS = 16


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
