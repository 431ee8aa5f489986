"""Laws for graphs too large for tables of all pairs: the law and its prior exact, its price by sampled legs.

Beyond some ten thousand nodes no table of hitting times fits. What a law costs is then measured: the protocol is played
and the legs are sorted by how far the destination was and by its degree. Every mean comes with its interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from veilwalk.core.arrays import IntArray
from veilwalk.core.stats import Estimate, estimate_mean
from veilwalk.core.walk import Walk
from veilwalk.design._law import DestinationLaw
from veilwalk.engine import Engine, JobStore, open_engine
from veilwalk.graphs import Graph, balls
from veilwalk.walks import run_protocol

#: From this size on a law is priced by sampling.
LARGE_NODES = 10_000
_LEGS = 4_000
_REPLICAS = 16
_LANE_NODES = 4_000_000


@dataclass(frozen=True, eq=False, kw_only=True)
class SampledLegs:
    """What a law costs by sampled legs: in all, by how far the destination is, and by its degree."""

    seed: int
    hops: Estimate
    by_distance: dict[int, Estimate]
    by_degree: dict[tuple[int, int], Estimate]


def sample_legs(
    graph: Graph,
    law: DestinationLaw,
    walk: Walk,
    *,
    seed: int = 1,
    legs: int = _LEGS,
    executor: Engine = None,
    store: JobStore | None = None,
) -> SampledLegs:
    """Walk ``legs`` legs of any kind of walk and sort them; lanes are jobs of ``executor``, kept in ``store``."""
    with open_engine(executor) as workers:
        played = run_protocol(
            graph,
            law.matrix,
            updates=legs,
            seed=seed,
            replicas=_REPLICAS,
            walk=walk,
            burn_in=1,
            executor=workers,
            store=store,
        )
    hops = played["leg_hops"].astype(np.float64)
    apart = _distances(graph, law.support.hi, played["source"], played["destination"])
    classes = degree_classes(graph.degrees[played["destination"]])
    return SampledLegs(
        seed=seed,
        hops=estimate_mean(hops),
        by_distance={int(one): estimate_mean(hops[apart == one]) for one in np.unique(apart)},
        by_degree={
            (2**one, 2 ** (one + 1) - 1): estimate_mean(hops[classes == one]) for one in np.unique(classes).tolist()
        },
    )


def degree_classes(degrees: IntArray) -> IntArray:
    """Return the class of each degree; classes double in width: 1, 2-3, 4-7, ..."""
    return np.floor(np.log2(degrees)).astype(np.int64)


def side_by_side(graph: Graph, updates: int) -> int:
    """Return how many lanes to play at once: each has its table of nodes, which takes longer to fill than to use."""
    return max(min(64, _LANE_NODES // graph.n_nodes, updates), 1)


def _distances(graph: Graph, radius: int, sources: IntArray, destinations: IntArray) -> IntArray:
    around = balls(graph, radius, sources)
    rows = np.repeat(np.arange(len(sources)), np.diff(around.starts))
    return np.asarray(around.hops[around.nodes == destinations[rows]])


def blind_node_entropy(law: DestinationLaw) -> float:
    """Mean entropy of the source given only its destination, in nats: H(source, destination) - H(destination)."""
    rows = np.repeat(np.arange(law.matrix.shape[0]), np.diff(law.matrix.indptr))
    pairs = special.entr(law.source_prior[rows] * law.matrix.data).sum()
    return float(pairs - special.entr(law.source_prior).sum())
