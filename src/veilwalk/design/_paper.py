"""The paper's own design: by closed forms for a random regular graph, and with exact chains on one concrete graph.

The closed forms know a graph by its size and degree only. On a concrete graph the principle is the same: a destination
at distance l is drawn in inverse proportion to the chance that such a node hits within the observer's window. There
that chance is exact, averaged over all pairs at distance l, shells are counted, and the row of each node is normalised
over the nodes it really has. Nothing is assumed about the graph but that it is connected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from veilwalk import theory
from veilwalk.chains import Chain, chain_of
from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design._law import DestinationLaw, DistanceLaw, law_by_distance
from veilwalk.graphs import Graph, distances
from veilwalk.theory import printed

FORMULAS = ("corrected", "printed")
# Dense n x n tables of doubles alive at once.
_TABLES = 8
# Return times, from the shortest covered to infinity, at which the minimum over destinations is computed.
_EXAMINED = 7


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowDesign:
    """A law by the paper's window notion: what it guarantees, what it costs, and which assumptions bend.

    Entropies are those of the paper's window notion at the design return time. ``floor_kind`` says what stands
    behind ``anonymity_floor_nats``: a proved bound, the printed bound, or a computed minimum.
    """

    n_nodes: int
    degree: int | None
    formulas: str
    window_radius: int
    tail_probability: float
    return_time_design: float
    return_time_from: float
    distances: IntArray
    distance_pmf: FloatArray
    shell_sizes: FloatArray
    distance_entropy_nats: float
    node_entropy_nats: float
    anonymity_floor_nats: float
    floor_kind: str
    mean_iteration_hops: float
    worst_destination: int | None
    warnings: tuple[str, ...]
    law: DistanceLaw | DestinationLaw

    @property
    def destination_law(self) -> DestinationLaw:
        """The law of a design that was made on a graph."""
        if isinstance(self.law, DistanceLaw):
            raise InvalidParameterError("law", "of distances", "one made on a graph")
        return self.law

    def to_dict(self) -> dict[str, Any]:
        """Return the design as plain data under its stable JSON keys."""
        content: dict[str, Any] = {
            "n_nodes": self.n_nodes,
            "degree": self.degree,
            "formulas": self.formulas,
            "support": [int(self.distances[0]), int(self.distances[-1])],
            "window_radius": self.window_radius,
            "tail_probability": self.tail_probability,
            "return_time_design": self.return_time_design,
            "return_time_from": self.return_time_from,
            "distance_pmf": self.distance_pmf,
            "shell_sizes": self.shell_sizes,
            "distance_entropy_nats": self.distance_entropy_nats,
            "node_entropy_nats": self.node_entropy_nats,
            "anonymity_floor_nats": self.anonymity_floor_nats,
            "floor_kind": self.floor_kind,
            "mean_iteration_hops": self.mean_iteration_hops,
            "warnings": list(self.warnings),
        }
        if not isinstance(self.law, DistanceLaw):
            content["graph_digest"] = self.law.graph_digest
            content["worst_destination"] = self.worst_destination
            content["destination_pmf"] = self.law.matrix.toarray()
        return content


def design_regular(
    model: theory.AnonymityModel,
    *,
    tail_probability: float = 0.3,
    return_time: float | None = None,
    formulas: str = "corrected",
) -> WindowDesign:
    """Design the law of lemma:rrgopt and say what it guarantees and costs.

    Args:
        model: network, support and window.
        tail_probability: delta'; the guarantee holds with probability 1 - delta'.
        return_time: kappa; without it the paper's choice, to the nearest hop.
        formulas: ``corrected``, or ``printed`` to see what the paper's own text would give.

    Example:
        >>> from veilwalk.core.support import DistanceSupport
        >>> walk = theory.WalkModel(n_nodes=300, degree=3)
        >>> found = design_regular(theory.AnonymityModel(walk=walk, support=DistanceSupport(2, 6)))
        >>> found.return_time_design, round(found.mean_iteration_hops, 1)
        (634.0, 574.9)
    """
    if formulas not in FORMULAS:
        raise InvalidParameterError("formulas", formulas, f"one of {', '.join(FORMULAS)}")
    # First of all: it refuses a support that no array could hold.
    sizes = theory.shell_sizes(model)
    kappa = return_time
    if kappa is None:
        kappa = float(round(theory.design_return_time(tail_probability, model=model)))
        # A support that reaches beyond the paper's choice would leave no window at all.
        kappa = max(kappa, model.support.hi + 1.0)
    if formulas == "corrected":
        pmf = theory.optimal_distance_pmf(kappa, model=model)
        posterior = theory.source_posterior(pmf, kappa, model=model)
        promise = theory.guarantee(tail_probability, model=model, return_time_design=kappa)
        floor, start = promise.anonymity_floor_nats, promise.return_time_from
        kind = "proved lower bound at every return time covered, given ass:frt"
    else:
        theory.window_likelihood(kappa, model=model)  # refuses what the printed forms would turn into nonsense
        pmf = printed.optimal_distance_pmf(kappa, model=model)
        posterior = printed.source_posterior(pmf, kappa, model=model)
        floor = printed.guaranteed_entropy(tail_probability, model=model, corollary=math.isinf(kappa))
        start = printed.guaranteed_return_time(tail_probability, model=model)
        kind = "bound as printed in the paper, which is not what it should be (erratum 3)"
    return WindowDesign(
        n_nodes=model.walk.n_nodes,
        degree=model.walk.degree,
        formulas=formulas,
        window_radius=model.window_radius,
        tail_probability=tail_probability,
        return_time_design=kappa,
        return_time_from=start,
        distances=model.support.distances,
        distance_pmf=pmf,
        shell_sizes=sizes,
        distance_entropy_nats=float(theory.distance_entropy(posterior)),
        node_entropy_nats=float(theory.node_entropy(posterior, sizes=sizes)),
        anonymity_floor_nats=floor,
        floor_kind=kind,
        mean_iteration_hops=theory.mean_iteration_hops(pmf, model=model),
        worst_destination=None,
        warnings=_warnings(model, kappa, start, formulas),
        law=DistanceLaw(model.support, pmf, model.walk.n_nodes, model.walk.degree),
    )


def _warnings(model: theory.AnonymityModel, kappa: float, start: float, formulas: str) -> tuple[str, ...]:
    """Name every assumption that ignores more than 5%, at the design return time or at the shortest covered."""
    found = []
    seen: set[str] = set()
    for return_time in (kappa, max(start, model.support.hi + 1.0)):
        for term in theory.ignored_terms(return_time, model=model):
            if term.bends and term.label not in seen:
                seen.add(term.label)
                found.append(f"{term.label} ignores {term.ignored_share:.1%}: {term.meaning}")
    if formulas == "printed":
        found.append("printed formulas: kept for comparison only; see paper/errata.md")
    return tuple(found)


@dataclass(frozen=True, eq=False)
class WindowEntropies:
    """Entropies of the window posterior at one return time, for each destination, in nats."""

    by_node: FloatArray
    by_distance: FloatArray


def design_on_graph(
    graph: Graph,
    *,
    support: DistanceSupport,
    window_radius: int = 5,
    tail_probability: float = 0.3,
    return_time: float | None = None,
    walk: Walk = SIMPLE,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> WindowDesign:
    """Design the paper's law for every node of ``graph``; entropies and floor are minima over destinations.

    Cost: about 2 * 7 passes over all pairs of nodes, each of a few hundred sparse products (``chains``).

    Args:
        graph: any connected graph.
        support: distances a destination may have.
        window_radius: delta.
        tail_probability: delta'; return times shorter than the covered ones come with this probability.
        return_time: kappa; without it the one whose survival is half that of the shortest covered.
        walk: one that is a chain.
        memory_bytes: refuse rather than use more for the n x n tables.
    """
    validate.probability(tail=tail_probability)
    validate.integer(window=window_radius)
    validate.at_least(0, window=window_radius)
    _require_memory(graph.n_nodes, memory_bytes)
    apart = distances(graph)
    _require_support(apart, support)
    # Refuses a support that some node has nobody in: of its return times there would be nothing to say.
    law_by_distance(graph, support, np.ones(support.hi + 1))
    chain = chain_of(graph, walk)
    start, half = covered_return_times(chain, support, (1 - tail_probability, (1 - tail_probability) / 2))
    kappa = float(max(half, support.hi + 1)) if return_time is None else return_time
    if not kappa > support.hi:
        raise InvalidParameterError("return time", kappa, f"more than the largest distance, {support.hi}")

    likelihood = exact_window_likelihood(chain, kappa, window_radius)
    by_distance = mean_by_distance(likelihood, apart, support)
    if not by_distance.min() > 0:
        # On a bipartite graph hits at every other hop are impossible, and a narrow window may miss all others.
        raise InvalidParameterError("window", window_radius, "wider: at some distance no hit falls into it")
    law = law_by_distance(graph, support, np.pad(by_distance.min() / by_distance, (support.lo, 0)))
    at_design = window_entropies(law, likelihood, apart)
    floor = float(at_design.by_distance.min())
    first = max(start, support.hi + 1)
    for seen in _examined(chain, first):
        found = window_entropies(law, exact_window_likelihood(chain, seen, window_radius), apart)
        floor = min(floor, float(found.by_distance.min()))
    share = np.stack([_row_by_distance(law, node, apart, support) for node in range(graph.n_nodes)])
    return WindowDesign(
        n_nodes=graph.n_nodes,
        degree=int(graph.degrees[0]) if graph.is_regular else None,
        formulas="exact chains on this graph",
        window_radius=window_radius,
        tail_probability=tail_probability,
        return_time_design=kappa,
        return_time_from=float(first),
        distances=support.distances,
        distance_pmf=law.source_prior @ share,
        shell_sizes=(np.bincount(apart.ravel())[support.lo : support.hi + 1] / graph.n_nodes),
        distance_entropy_nats=float(at_design.by_distance.min()),
        node_entropy_nats=float(at_design.by_node.min()),
        anonymity_floor_nats=floor,
        floor_kind=f"computed minimum over all destinations and {_EXAMINED + 1} return times",
        mean_iteration_hops=law.mean_hops(chain.mean_hitting_times(memory_bytes=memory_bytes)),
        worst_destination=int(at_design.by_node.argmin()),
        warnings=(),
        law=law,
    )


def exact_window_likelihood(chain: Chain, return_time_seen: float, window_radius: int) -> FloatArray:
    """P(T_ij at a whole hop of [E_ij - delta, E_ij + delta]) with E_ij = E[T_ij | T_ij <= kappa'], for all pairs.

    Pairs that cannot meet within ``return_time_seen`` get exactly zero; so does the diagonal.
    Paper: the integrals of Definition PrivacyNotion, with no assumption.
    """
    centre = chain.truncated_means(return_time_seen)
    possible = np.isfinite(centre)
    np.fill_diagonal(possible, val=False)
    centre = np.where(possible, centre, 0.0)
    # Symmetric graphs have whole-numbered means: rounding noise must not move a window by a hop.
    first = np.maximum(np.ceil(centre - window_radius - 1e-9), 1).astype(np.int64)
    last = np.floor(centre + window_radius + 1e-9).astype(np.int64)
    return np.where(possible, chain.window_masses(first, last), 0.0)


def window_entropies(law: DestinationLaw, likelihood: FloatArray, apart: IntArray) -> WindowEntropies:
    """Entropies of Definition PrivacyNotion for every destination.

    The posterior of destination j over sources i is proportional to P_ij L_ij. Its distance entropy is that of
    the mean weight of ONE node at each distance, as in the paper's W.
    """
    posterior = normalised(np.ascontiguousarray((law.matrix.multiply(likelihood)).toarray().T))
    by_node: FloatArray = special.entr(posterior).sum(axis=1)
    means = []
    for row, where in zip(posterior, apart, strict=True):
        total = np.bincount(where, weights=row, minlength=law.support.hi + 1)
        count = np.bincount(where, minlength=law.support.hi + 1)
        within = slice(law.support.lo, law.support.hi + 1)
        means.append(total[within] / np.maximum(count[within], 1))
    by_distance: FloatArray = special.entr(normalised(np.array(means))).sum(axis=1)
    return WindowEntropies(by_node=by_node, by_distance=by_distance)


def weight_ratio(law: DestinationLaw, likelihood: FloatArray) -> float:
    """Return how many times the likeliest source of a destination outweighs the least likely, at most.

    Weights are ``P_ij L_ij``, as the window notion has them: 1 where all sources look alike.
    """
    weights = law.matrix.toarray() * likelihood
    least = np.where(weights > 0, weights, np.inf).min(axis=0)
    return float((weights.max(axis=0) / least).max())


def mean_by_distance(values: FloatArray, apart: IntArray, support: DistanceSupport) -> FloatArray:
    """Mean of ``values[i, j]`` over all ordered pairs at each distance of the support; NaN where there is none."""
    flat, within = apart.ravel(), slice(support.lo, support.hi + 1)
    total = np.bincount(flat, weights=values.ravel(), minlength=support.hi + 1)[within]
    count = np.bincount(flat, minlength=support.hi + 1)[within]
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def covered_return_times(chain: Chain, support: DistanceSupport, shares: Sequence[float]) -> list[int]:
    """Return, for each share, the largest t with P(T_FR >= t | T_FR >= 2 lo) at least that share.

    The law is the mean over all nodes of their exact return laws. With share 1 - delta' this is the paper's t1;
    with half of it, kappa by the paper's rule, which on a random regular graph is t1 + (N/c') ln 2.
    """
    first = 2 * support.lo

    def survival(times: IntArray) -> FloatArray:
        """P(T_FR >= t | T_FR >= first) for each t."""
        found = chain.return_survival(np.append(first - 1, times - 1))
        return np.asarray((found[1:] / found[0]).mean(axis=1))

    # Every look costs one pass over all pairs, however many times it asks for: bracket all shares, then cut each
    # bracket into many parts at once.
    powers = first * 2 ** np.arange(40)
    found = survival(powers)
    low = [int(powers[np.flatnonzero(found >= share)[-1]]) for share in shares]
    high = [2 * bound for bound in low]
    while max(h - b for b, h in zip(low, high, strict=True)) > 1:
        cuts = [np.unique(np.linspace(b, h, 65).astype(np.int64)) for b, h in zip(low, high, strict=True)]
        found = survival(np.concatenate(cuts))
        begin = 0
        for index, (cut, share) in enumerate(zip(cuts, shares, strict=True)):
            kept = int(np.flatnonzero(found[begin : begin + len(cut)] >= share)[-1])
            low[index], high[index] = int(cut[kept]), int(cut[min(kept + 1, len(cut) - 1)])
            begin += len(cut)
    return low


def _examined(chain: Chain, first: int) -> list[float]:
    """Return times from ``first`` to infinity, a factor of two or so apart around the mean return time."""
    mean_return = 1 / float(chain.node_shares.min())
    last = max(8 * mean_return, 2.0 * first)
    return [*np.unique(np.round(np.geomspace(first, last, _EXAMINED - 1))), math.inf]


def _row_by_distance(law: DestinationLaw, node: int, apart: IntArray, support: DistanceSupport) -> FloatArray:
    begin, end = law.matrix.indptr[node], law.matrix.indptr[node + 1]
    where = apart[node, law.matrix.indices[begin:end]]
    weights = law.matrix.data[begin:end]
    return np.bincount(where, weights=weights, minlength=support.hi + 1)[support.lo :].astype(np.float64)


def _require_support(apart: IntArray, support: DistanceSupport) -> None:
    diameter = int(apart.max())
    if support.hi > diameter:
        raise InvalidParameterError("support", str(support), f"within the diameter of the graph, {diameter}")


def _require_memory(n_nodes: int, memory_bytes: int) -> None:
    needed = _TABLES * 8 * n_nodes**2
    if needed > memory_bytes:
        raise ResourceLimitError(
            f"exact design on {n_nodes} nodes needs about {needed / 2**30:.3g} GiB and may use "
            f"{memory_bytes / 2**30:.3g} GiB; use the closed forms, a smaller graph or more memory"
        )
