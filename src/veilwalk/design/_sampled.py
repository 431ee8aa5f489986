"""Laws for graphs too large for tables of all pairs: the law and its prior exact, its price by sampled legs.

Beyond some ten thousand nodes no table of hitting times fits. What a law costs is then measured: the protocol is played
and the legs are sorted by how far the destination was and by its degree. Every mean comes with its interval. What an
equalised law needs to know about the walk is sampled too, by classes of pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.design._equalised import nearest_shares
from veilwalk.design._law import DestinationLaw, law_by_distance, scaled_rows, weighted_pairs
from veilwalk.design._sampled_classes import ClassLikelihood, degree_classes, sample_likelihood
from veilwalk.design._scaling import balanced
from veilwalk.graphs import Graph, balls
from veilwalk.walks import WalkKind, run_protocol

#: From this size on a law is priced by sampling.
LARGE_NODES = 10_000
#: The laws that need no table of all pairs.
SAMPLED_LAWS = ("uniform-node", "equalised")
_LEGS = 4_000
_REPLICAS = 16
# Two-sided 95% of a normal law.
_NORMAL = 1.959964


@dataclass(frozen=True, slots=True)
class SampledMean:
    """A mean over sampled legs with its 95% interval; infinite where there are fewer than two."""

    legs: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True, eq=False, kw_only=True)
class SampledDesign:
    """A law on a large graph: prior and blind entropy exact, hops by sampled legs.

    ``likelihood`` and ``row_sums`` are those of an equalised law: what it was made from, and how nearly it equalises
    that; see :class:`Equalised`.
    """

    name: str
    walk: WalkKind
    seed: int
    law: DestinationLaw
    hops: SampledMean
    hops_by_distance: dict[int, SampledMean]
    hops_by_degree: dict[tuple[int, int], SampledMean]
    blind_node_entropy_nats: float
    likelihood: ClassLikelihood | None = None
    row_sums: FloatArray | None = None


def sample_design(
    graph: Graph,
    name: str,
    *,
    support: DistanceSupport,
    walk: WalkKind,
    is_balanced: bool = False,
    tail_probability: float = 0.3,
    seed: int = 1,
    legs: int = _LEGS,
) -> SampledDesign:
    """Return the law called ``name`` with its price from ``legs`` sampled legs.

    Args:
        graph: the network, of any size whose law fits into memory.
        name: one of ``SAMPLED_LAWS``.
        support: distances a destination may have.
        walk: any kind of walk.
        is_balanced: scale the law until every node updates equally often.
        tail_probability: delta' of an equalised law's return time.
        seed: of the sample.
        legs: how many to walk.
    """
    if name not in SAMPLED_LAWS:
        need = f"{', '.join(SAMPLED_LAWS)} from {LARGE_NODES} nodes on: others need tables of all pairs"
        raise InvalidParameterError("law", name, need)
    likelihood, sums = None, None
    if name == "equalised":
        likelihood = sample_likelihood(graph, support, walk=walk, tail_probability=tail_probability, seed=seed)
        law, sums = _equalised(graph, support, likelihood)
    else:
        law = law_by_distance(graph, support, np.ones(support.hi + 1))
    if is_balanced:
        law = balanced(law)
    played = run_protocol(graph, law.matrix, updates=legs, seed=seed, replicas=_REPLICAS, walk=walk, burn_in=1)
    hops = played["leg_hops"].astype(np.float64)
    apart = _distances(graph, support.hi, played["source"], played["destination"])
    degrees = graph.degrees[played["destination"]]
    classes = degree_classes(degrees)
    return SampledDesign(
        name=name,
        walk=walk,
        seed=seed,
        law=law,
        hops=_mean(hops),
        hops_by_distance={int(one): _mean(hops[apart == one]) for one in np.unique(apart)},
        hops_by_degree={
            (2**one, 2 ** (one + 1) - 1): _mean(hops[classes == one]) for one in np.unique(classes).tolist()
        },
        blind_node_entropy_nats=_blind_entropy(law),
        likelihood=likelihood,
        row_sums=sums,
    )


def _equalised(
    graph: Graph, support: DistanceSupport, likelihood: ClassLikelihood
) -> tuple[DestinationLaw, FloatArray]:
    """Return the nearest equalised law under a likelihood by class, and its row sums before they are normalised."""
    classes = np.minimum(degree_classes(graph.degrees), len(likelihood.values) - 1)
    inverse = likelihood.values.max() / likelihood.values

    def weigh(sources: IntArray, hops: IntArray) -> FloatArray:
        return np.asarray(inverse[classes[sources], np.maximum(hops - support.lo, 0)])

    table = weighted_pairs(graph, support, weigh)
    table.data /= (np.ones(graph.n_nodes) @ table)[table.indices]
    table.data *= nearest_shares(table)[table.indices]
    sums: FloatArray = table @ np.ones(graph.n_nodes)
    return DestinationLaw(support, graph.digest, scaled_rows(table, 1 / sums)), sums


def _mean(values: FloatArray) -> SampledMean:
    mean = float(values.mean())
    half = _NORMAL * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return SampledMean(len(values), mean, mean - half, mean + half)


def _distances(graph: Graph, radius: int, sources: IntArray, destinations: IntArray) -> IntArray:
    around = balls(graph, radius, sources)
    rows = np.repeat(np.arange(len(sources)), np.diff(around.starts))
    return np.asarray(around.hops[around.nodes == destinations[rows]])


def _blind_entropy(law: DestinationLaw) -> float:
    """Mean entropy of the source given only its destination, in nats: H(source, destination) - H(destination)."""
    rows = np.repeat(np.arange(law.matrix.shape[0]), np.diff(law.matrix.indptr))
    pairs = special.entr(law.source_prior[rows] * law.matrix.data).sum()
    return float(pairs - special.entr(law.source_prior).sum())
