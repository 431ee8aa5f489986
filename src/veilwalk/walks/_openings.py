"""Estimates which node opens a ciphertext from sampled paths, with the set of recipients summed out.

Given a path, the chance that the first r eligible nodes met do not open a ciphertext is s(r) = C(E-r, K) / C(E, K). So
one sampled path serves every set: a Rao-Blackwell estimator, in which one leg gives a whole row of the law of openers.
Legs follow each other as in the protocol, so sources come as often as they do there.
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
from veilwalk.walks._protocol import token_paths
from veilwalk.walks._tables import LawRows, build_law_tables, stream_key

# Lanes forget how they began in so many legs; the last hops of a path let the last legs reach their ends.
_WARM_LEGS, _END_LEGS = 8, 16
_PATH_BYTES = 256 << 20
# A share is counted as 2**40, and a sum of shares must stay below 2**63.
_MOST_LEGS = 1 << 22
# Columns of the sums over the legs of a lane.
LEGS, HOPS, UNOPENED = range(3)
N_SUMS = 3
#: Whole numbers that stand for 1 in sums of shares and of hops.
SHARE_UNIT = 2.0**40
HOP_UNIT = 2.0**16
# Separates the stream of sets from that of paths: both are named by lanes and clocks.
_SET_STREAM = 0x9E3779B97F4A7C15


@dataclass(frozen=True, eq=False, kw_only=True)
class Openings:
    """Estimates of the openings of a scheme, with 95% intervals from independent lanes.

    Attributes:
        legs: How many legs were sampled.
        hops: Mean hops from a sealing to its opening.
        hops_interval: Its interval.
        unopened: Share that the ends of paths leave unopened: the mean is too short by about that.
        source_share: Share of legs from each node.
        arrived: Share of openings by the arc (entry of the opener's neighbours) by which the token came.
        joint: P(arc, source), opener and last hop being the arc; empty where ``joint`` is off.
        by_hop: Share opened at each hop; the last entry is for all later ones.
    """

    legs: int
    hops: float
    hops_interval: tuple[float, float]
    unopened: float
    source_share: FloatArray
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
) -> Openings:
    """Estimate the openers of ciphertexts for ``recipients``; every sampled leg serves all sets at once.

    About ``legs`` legs are sampled on ``lanes`` independent paths; ``seed`` is of paths, and of the sets by which legs
    follow each other. ``joint`` counts sources by opener and last hop, in arcs * nodes * 8 bytes for each lane. Up to
    ``longest`` hops are counted separately.
    """
    validate.integer(2, lanes=lanes)
    validate.integer(lanes, legs=legs)
    validate.at_least(1, longest=longest)
    if legs > _MOST_LEGS:
        raise InvalidParameterError("legs", legs, f"at most {_MOST_LEGS}: shares are summed in 64 bits")
    from veilwalk.walks import _kernels_laws as kernels

    tables, n_arcs, n_nodes = build_law_tables(graph, law, recipients), len(graph.indices), graph.n_nodes
    shapes = ((N_SUMS,), (n_nodes,), (n_arcs,), (n_arcs if joint else 0, n_nodes), (longest + 1,))
    sums, sources, arrived, by_source, by_hop = (np.zeros((lanes, *shape), dtype=np.int64) for shape in shapes)
    leg_hops = _guess_leg_hops(graph, int(tables.eligible.mean()), recipients)
    warm, end = _WARM_LEGS * leg_hops, _END_LEGS * leg_hops
    n_hops = -(-legs // lanes) * leg_hops
    # Paths are walked anew from further lanes on when one would be too long to hold.
    most = max(_PATH_BYTES // (4 * lanes), warm + end + leg_hops)
    for turn in range(max(math.ceil(n_hops / (most - warm - end)), 1)):
        cut = warm + min(n_hops, most - warm - end)
        first = turn * lanes
        paths = token_paths(graph, hops=cut + end, lanes=lanes, seed=seed, walk=walk, first_lane=first)
        legs_of = (first, warm, cut, graph.indptr, graph.indices)
        totals = (sums, sources, arrived, by_source, by_hop)
        kernels.follow_legs(paths, tables, recipients, stream_key(seed ^ _SET_STREAM), *legs_of, *totals)
    return _summarise(sums, sources, arrived.sum(axis=0), by_source.sum(axis=0), by_hop.sum(axis=0))


def _summarise(sums: IntArray, sources: IntArray, arrived: IntArray, table: IntArray, by_hop: IntArray) -> Openings:
    legs, hops, unopened = sums[:, LEGS].astype(np.float64), sums[:, HOPS] / HOP_UNIT, sums[:, UNOPENED] / SHARE_UNIT
    if legs.min() < 1:
        raise InvalidParameterError("legs", float(legs.min()), "more: a lane has none")
    half = half_width(hops / legs, student=True)
    mean = float(hops.sum() / legs.sum())
    total = float(arrived.sum())
    return Openings(
        legs=int(legs.sum()),
        hops=mean,
        hops_interval=(mean - half, mean + half),
        unopened=float(unopened.sum() / legs.sum()),
        source_share=sources.sum(axis=0) / legs.sum(),
        arrived=arrived / total,
        joint=table / total,
        by_hop=by_hop / total,
    )


def _guess_leg_hops(graph: Graph, eligible: int, recipients: int) -> int:
    """Return about how many hops a leg takes: paths are cut to length by it, and a wrong guess costs time only."""
    new_nodes = (eligible + 1) / (recipients + 1)
    return max(8, math.ceil(2.0 * new_nodes + math.log(graph.n_nodes)))
