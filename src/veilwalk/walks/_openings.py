"""Who opens what is sealed for several, by sampled paths with the set summed out.

Given a path, the chance that a ciphertext is not opened by the first r eligible nodes met is s(r) = C(E-r, K) /
C(E, K), so a sampled path tells what every set would have done: a Rao-Blackwell estimator, in which one leg gives a
whole row of the law of openers. Legs follow each other as in the protocol, so sources come as often as they do there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.stats import half_width
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.graphs import Graph
from veilwalk.walks._device import Device, check_device, open_cuda
from veilwalk.walks._lanes import DeviceWalk
from veilwalk.walks._laws import LawRows, SetRows, set_rows
from veilwalk.walks._moves import stream_key
from veilwalk.walks._paths import token_paths

# Lanes forget how they began in so many legs; the last part of a path is for legs to be told to their ends.
_WARM_LEGS, _END_LEGS = 8, 16
_PATH_BYTES = 256 << 20
# A share is counted as 2**40, and a sum of shares must stay below 2**63.
_MOST_LEGS = 1 << 22
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Openings:
    """What was found, each figure with its 95% interval from independent lanes.

    Attributes:
        legs: How many legs were told.
        hops: Mean hops from a sealing to its opening.
        hops_interval: Its interval.
        unopened: Share that the ends of paths left unopened: the mean is too short by about that.
        made: How often each node is the source: shares.
        made_error: Standard errors of those.
        arrived: Share of openings by the arc (entry of the opener's neighbours) by which the token came.
        joint: P(arc, source), opener and last hop being the arc; empty where that was not asked for.
        by_hop: Share opened at each hop; the last entry is for all later ones.
    """

    legs: int
    hops: float
    hops_interval: tuple[float, float]
    unopened: float
    made: FloatArray
    made_error: FloatArray
    arrived: FloatArray
    joint: FloatArray
    by_hop: FloatArray

    def by_opener(self, graph: Graph) -> FloatArray:
        """Return P(source i, opener j), a row a source."""
        heads = np.repeat(np.arange(graph.n_nodes), graph.degrees)
        table = np.zeros((graph.n_nodes, graph.n_nodes))
        np.add.at(table, heads, self.joint)
        return table.T


def estimate_openings(
    graph: Graph,
    law: LawRows,
    recipients: int,
    *,
    walk: Walk = SIMPLE,
    legs: int = 20_000,
    seed: int = 1,
    joint: bool = True,
    longest: int = 1_000,
    lanes: int = 16,
    device: str = "cpu",
) -> Openings:
    """Estimate who opens what is sealed for ``recipients``, by legs of which every set is told at once.

    Args:
        graph: The network.
        law: Whom each source may choose.
        recipients: How many it draws, without replacement.
        walk: The walk.
        legs: How many legs to tell, about.
        seed: Of paths and of the sets by which legs follow each other.
        joint: Whether to tell sources apart by opener and last hop: takes arcs * nodes * 8 bytes for each lane.
        longest: Hops told apart.
        lanes: Independent ways on which the legs lie.
        device: ``cuda`` for the graphics card, with the same figures to the last bit; more lanes keep it busier, and
            take 16 bytes a node each there.
    """
    validate.integer(lanes=lanes, legs=legs)
    validate.at_least(2, lanes=lanes)
    validate.at_least(lanes, legs=legs)
    validate.at_least(1, longest=longest)
    check_device(device)
    if legs > _MOST_LEGS:
        raise InvalidParameterError("legs", legs, f"at most {_MOST_LEGS}: shares are summed in 64 bits")
    rows = set_rows(graph, law, recipients)
    tally: Tally | DeviceTally
    if device == "cuda":
        tally = DeviceTally(open_cuda(), graph, walk, rows, recipients, lanes=lanes, joint=joint, longest=longest)
    else:
        tally = Tally(graph, walk, rows, recipients, lanes=lanes, joint=joint, longest=longest)
    leg_hops = _first_guess(graph, int(rows.eligible.mean()), recipients)
    warm, end = _WARM_LEGS * leg_hops, _END_LEGS * leg_hops
    told = -(-legs // lanes) * leg_hops
    # Paths are walked anew from further lanes on when one would be too long to hold.
    most = max(_PATH_BYTES // (4 * lanes), warm + end + leg_hops)
    for turn in range(max(math.ceil(told / (most - warm - end)), 1)):
        cut = warm + min(told, most - warm - end)
        tally.follow(seed, turn * lanes, warm, cut, cut + end)
    return _summarise(*tally.totals())


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


def _summarise(sums: IntArray, made: IntArray, arrived: IntArray, table: IntArray, by_hop: IntArray) -> Openings:
    n_lanes = len(sums)
    legs, hops, unopened = sums[:, LEGS].astype(np.float64), sums[:, HOPS] / HOP_UNIT, sums[:, UNOPENED] / SHARE_UNIT
    if legs.min() < 1:
        raise InvalidParameterError("legs", float(legs.min()), "more: a lane told none")
    half = half_width(hops / legs, student=True)
    mean = float(hops.sum() / legs.sum())
    total = float(arrived.sum())
    return Openings(
        legs=int(legs.sum()),
        hops=mean,
        hops_interval=(mean - half, mean + half),
        unopened=float(unopened.sum() / legs.sum()),
        made=made.sum(axis=0) / legs.sum(),
        made_error=(made / legs[:, np.newaxis]).std(axis=0, ddof=1) / math.sqrt(n_lanes),
        arrived=arrived / total,
        joint=table / total,
        by_hop=by_hop / total,
    )


def _first_guess(graph: Graph, eligible: int, recipients: int) -> int:
    """Return about how many hops a leg takes: paths are cut to length by it, and a wrong guess costs time only."""
    new_nodes = (eligible + 1) / (recipients + 1)
    return max(8, math.ceil(2.0 * new_nodes + math.log(graph.n_nodes)))
