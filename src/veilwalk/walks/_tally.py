"""What is summed over legs whose set is summed out: whole numbers, on the processor or on a device."""

from __future__ import annotations

import numpy as np

from veilwalk.core.arrays import IntArray
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph
from veilwalk.walks._device import Device
from veilwalk.walks._device_lanes import DeviceWalk
from veilwalk.walks._memory_paths import token_paths
from veilwalk.walks._moves import stream_key
from veilwalk.walks._sets import SetRows

# Columns of what is summed over the legs of a lane.
LEGS = 0
HOPS = 1
UNOPENED = 2
N_SUMS = 3
#: Of shares, and of hops: what a one is counted as.
SHARE_UNIT = 2.0**40
HOP_UNIT = 2.0**16
# A stream apart from the paths': both are named by lanes and clocks.
_SETS_APART = 0x9E3779B97F4A7C15

#: By lane: legs, hops, what was left unopened; legs from each node. Of all lanes together: openings by arc, by arc and
#: source, by hop.
Totals = tuple[IntArray, IntArray, IntArray, IntArray, IntArray]


class Tally:
    """Sums of the processor, a table a lane."""

    def __init__(
        self, graph: Graph, walk: Walk, rows: SetRows, recipients: int, *, lanes: int, joint: bool, longest: int
    ) -> None:
        self._graph, self._walk, self._rows, self._recipients, self._lanes = graph, walk, rows, recipients, lanes
        n_arcs, n_nodes = len(graph.indices), graph.n_nodes
        shapes = ((N_SUMS,), (n_nodes,), (n_arcs,), (n_arcs if joint else 0, n_nodes), (longest + 1,))
        self._tables = tuple(np.zeros((lanes, *shape), dtype=np.int64) for shape in shapes)

    def follow(self, seed: int, first_lane: int, warm: int, cut: int, end: int) -> None:
        """Add the legs of lanes from ``first_lane`` on that are sealed from ``warm`` to ``cut``, in ``end`` hops."""
        from veilwalk.walks import _kernels_openings as kernels

        graph = self._graph
        kernels.follow_legs(
            token_paths(graph, hops=end, lanes=self._lanes, seed=seed, walk=self._walk, first_lane=first_lane),
            graph.n_nodes,
            *self._rows.drawn_by(),
            *self._rows.followed_by(),
            self._recipients,
            stream_key(seed ^ _SETS_APART),
            first_lane,
            warm,
            cut,
            graph.indptr,
            graph.indices,
            *self._tables,
        )

    def totals(self) -> Totals:
        """Return the sums."""
        sums, made, arrived, joint, by_hop = self._tables
        return sums, made, arrived.sum(axis=0), joint.sum(axis=0), by_hop.sum(axis=0)


class DeviceTally:
    """Sums of a device, one table for all lanes where lanes need not be told apart."""

    def __init__(
        self,
        device: Device,
        graph: Graph,
        walk: Walk,
        rows: SetRows,
        recipients: int,
        *,
        lanes: int,
        joint: bool,
        longest: int,
    ) -> None:
        self._device, self._lanes, self._n_nodes = device, lanes, graph.n_nodes
        self._joint, self._longest, self._recipients = joint, longest, recipients
        self._walk = DeviceWalk(device, graph, walk)
        self._sets = (graph.n_nodes, *(device.put(one) for one in rows.drawn_by()), len(rows.weights) > 0)
        eligible, even, pace, slope = rows.followed_by()
        followed = (eligible.astype(np.int64), even.view(np.uint8), pace, slope)
        self._followed = tuple(device.put(one) for one in followed)
        arcs = (graph.indptr.astype(np.int64), graph.indices.astype(np.int32))
        self._arcs = tuple(device.put(one) for one in arcs)
        n_arcs, n_nodes = len(graph.indices), graph.n_nodes
        shapes = ((lanes, N_SUMS), (lanes, n_nodes), (n_arcs,), (n_arcs if joint else 0, n_nodes), (longest + 1,))
        self._tables = tuple(device.full(shape, 0, "int64") for shape in shapes)

    def follow(self, seed: int, first_lane: int, warm: int, cut: int, end: int) -> None:
        """Add the legs of lanes from ``first_lane`` on that are sealed from ``warm`` to ``cut``, in ``end`` hops."""
        device, lanes = self._device, self._lanes
        paths, earlier, sealed = (device.full((lanes, end + 1), 0, "int32") for _ in range(3))
        n_legs = device.full(lanes, 0, "int64")
        device.launch(
            "walk_legs",
            lanes,
            *self._walk.arguments,
            *self._sets,
            self._recipients,
            stream_key(seed),
            stream_key(seed ^ _SETS_APART),
            np.uint64(first_lane),
            lanes,
            end,
            cut,
            device.full((lanes, self._n_nodes), -1, "int64"),
            device.full((lanes, self._n_nodes), -1, "int64"),
            paths,
            earlier,
            sealed,
            n_legs,
        )
        offsets = np.concatenate(([0], np.cumsum(device.fetch(n_legs))))
        sums, made, arrived, joint, by_hop = self._tables
        device.launch(
            "tell_legs",
            int(offsets[-1]),
            paths,
            earlier,
            sealed,
            device.put(offsets),
            lanes,
            end,
            warm,
            *self._sets,
            *self._followed,
            self._recipients,
            *self._arcs,
            sums,
            made,
            arrived,
            joint,
            self._joint,
            by_hop,
            self._longest,
        )

    def totals(self) -> Totals:
        """Return the sums."""
        sums, made, arrived, joint, by_hop = (self._device.fetch(table) for table in self._tables)
        return sums, made, arrived, joint, by_hop
