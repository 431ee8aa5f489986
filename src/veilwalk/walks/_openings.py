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
from veilwalk.walks._device import check_device, open_cuda
from veilwalk.walks._sets import LawRows, set_rows
from veilwalk.walks._tally import HOP_UNIT, HOPS, LEGS, SHARE_UNIT, UNOPENED, DeviceTally, Tally

# Lanes forget how they began in so many legs; the last part of a path is for legs to be told to their ends.
_WARM_LEGS, _END_LEGS = 8, 16
_PATH_BYTES = 256 << 20
# A share is counted as 2**40, and a sum of shares must stay below 2**63.
_MOST_LEGS = 1 << 22


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
    return _found(*tally.totals())


def _found(sums: IntArray, made: IntArray, arrived: IntArray, table: IntArray, by_hop: IntArray) -> Openings:
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
