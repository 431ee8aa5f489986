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
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.graphs import Graph
from veilwalk.walks._jobs import stream_key
from veilwalk.walks._memory_paths import token_paths
from veilwalk.walks._sets import LawRows, set_rows

# A stream apart from the paths': both are named by lanes and clocks.
_SETS_APART = 0x9E3779B97F4A7C15
# Two-sided 95% of Student's law with 15 degrees of freedom.
_LANES, _STUDENT = 16, 2.131450
# Lanes forget how they began in so many legs; the last part of a path is for legs to be told to their ends.
_WARM_LEGS, _END_LEGS = 8, 16
_PATH_BYTES = 256 << 20


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
) -> Openings:
    """Estimate who opens what is sealed for ``recipients``, by legs of which every set is told at once.

    Args:
        graph: The network.
        law: Whom each source may choose.
        recipients: How many it draws, without replacement.
        walk: The walk.
        legs: How many legs to tell, about.
        seed: Of paths and of the sets by which legs follow each other.
        joint: Whether to tell sources apart by opener and last hop: takes arcs * nodes * 8 bytes for each of 16 lanes.
        longest: Hops told apart.
    """
    from veilwalk.walks import _kernels_openings as kernels

    validate.at_least(_LANES, legs=legs)
    validate.at_least(1, longest=longest)
    rows, n_arcs = set_rows(graph, law, recipients), len(graph.indices)
    leg_hops = _first_guess(graph, int(rows.eligible.mean()), recipients)
    sums = np.zeros((_LANES, kernels.N_SUMS))
    made, arrived = np.zeros((_LANES, graph.n_nodes)), np.zeros((_LANES, n_arcs))
    table = np.zeros((_LANES, n_arcs if joint else 0, graph.n_nodes))
    by_hop = np.zeros((_LANES, longest + 1))
    warm, end = _WARM_LEGS * leg_hops, _END_LEGS * leg_hops
    told = -(-legs // _LANES) * leg_hops
    # Paths are walked anew from further lanes on when one would be too long to hold.
    most = max(_PATH_BYTES // (4 * _LANES), warm + end + leg_hops)
    for turn in range(max(math.ceil(told / (most - warm - end)), 1)):
        hops = warm + min(told, most - warm - end)
        first = turn * _LANES
        paths = token_paths(graph, hops=hops + end, lanes=_LANES, seed=seed, walk=walk, first_lane=first)
        kernels.follow_legs(
            paths,
            graph.n_nodes,
            *rows.drawn_by(),
            *rows.followed_by(),
            recipients,
            stream_key(seed ^ _SETS_APART),
            first,
            warm,
            hops,
            graph.indptr,
            graph.indices,
            sums,
            made,
            arrived,
            table,
            by_hop,
        )
    return _found(sums, made, arrived, table, by_hop)


def _found(sums: FloatArray, made: FloatArray, arrived: FloatArray, table: FloatArray, by_hop: FloatArray) -> Openings:
    from veilwalk.walks import _kernels_openings as kernels

    legs = sums[:, kernels.LEGS]
    if legs.min() < 1:
        raise InvalidParameterError("legs", float(legs.min()), "more: a lane told none")
    means = sums[:, kernels.HOPS] / legs
    half = _STUDENT * float(means.std(ddof=1)) / math.sqrt(_LANES)
    mean = float(sums[:, kernels.HOPS].sum() / legs.sum())
    shares = made / legs[:, np.newaxis]
    total = float(arrived.sum())
    return Openings(
        legs=int(legs.sum()),
        hops=mean,
        hops_interval=(mean - half, mean + half),
        unopened=float(sums[:, kernels.UNOPENED].sum() / legs.sum()),
        made=made.sum(axis=0) / legs.sum(),
        made_error=shares.std(axis=0, ddof=1) / math.sqrt(_LANES),
        arrived=arrived.sum(axis=0) / total,
        joint=table.sum(axis=0) / total,
        by_hop=by_hop.sum(axis=0) / total,
    )


def _first_guess(graph: Graph, eligible: int, recipients: int) -> int:
    """Return about how many hops a leg takes: paths are cut to length by it, and a wrong guess costs time only."""
    new_nodes = (eligible + 1) / (recipients + 1)
    return max(8, math.ceil(2.0 * new_nodes + math.log(graph.n_nodes)))
