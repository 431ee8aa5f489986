"""Computes the paper's own design: by closed forms for a random regular graph, or with exact chains on one graph.

The closed forms know a graph by its size and degree only. On a concrete graph the principle is the same: a destination
at distance l is drawn in inverse proportion to the chance that such a node hits within the observer's window. There
that chance is exact, averaged over all pairs at distance l, shells are counted, and the row of each node is normalised
over the nodes it really has. Nothing is assumed about the graph but that it is connected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy import sparse, special

from veilwalk import theory
from veilwalk.chains import Chain, chain_of
from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.sizes import DEFAULT_MEMORY_BYTES
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design._law import DestinationLaw, DistanceLaw, law_by_distance, require_memory
from veilwalk.design._scheme import relay_warning
from veilwalk.graphs import Graph, distances
from veilwalk.theory import printed

FORMULAS = ("corrected", "printed")
# Dense n x n tables of doubles alive at once.
_TABLES = 8
# Return times, from the shortest covered to infinity, at which the minimum over destinations is computed.
_EXAMINED = 7
# Products that the window notion may take: half a minute on two cores.
_WINDOW_PRODUCTS = 1e11
# Passes of the search for the return time, and the accuracy to which each waits for the walk to mix.
_SEARCH_PASSES, _SETTLING_NATS = 5, 37.0


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowDesign:
    """A law by the paper's window notion, with its guarantee, its price and the assumptions that bend.

    Entropies are those of the paper's window notion at the design return time. ``floor_kind`` names the
    origin of ``anonymity_floor_nats``: a proved bound, the printed bound, or a computed minimum.
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

    @property
    def relay_warning(self) -> str:
        """Warning about relays that know the maker for certain, on a regular graph with the simple walk."""
        return relay_warning(1 / (self.degree or 1), turns=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the design as plain data under its stable JSON keys."""
        content = {field.name: getattr(self, field.name) for field in fields(self)} | {"warnings": list(self.warnings)}
        law, lengths, worst = (content.pop(name) for name in ("law", "distances", "worst_destination"))
        content["support"] = [int(lengths[0]), int(lengths[-1])]
        if isinstance(law, DistanceLaw):
            return content
        matrix = law.matrix.toarray()
        return content | {"graph_digest": law.graph_digest, "worst_destination": worst, "destination_pmf": matrix}


def design_regular(
    model: theory.AnonymityModel,
    *,
    tail_probability: float = 0.3,
    return_time: float | None = None,
    formulas: str = "corrected",
) -> WindowDesign:
    """Design the law of lemma:rrgopt; return it with its guarantee and its price.

    Args:
        model: network, support and window.
        tail_probability: delta'; the guarantee holds with probability 1 - delta'.
        return_time: kappa; without it the paper's choice, to the nearest hop.
        formulas: ``corrected``, or ``printed`` for the formulas as the paper prints them.

    Example:
        >>> from veilwalk.core.support import DistanceSupport
        >>> walk = theory.WalkModel(n_nodes=300, degree=3)
        >>> closed = design_regular(theory.AnonymityModel(walk=walk, support=DistanceSupport(2, 6)))
        >>> closed.return_time_design, round(closed.mean_iteration_hops, 1)
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
        warnings=_list_warnings(model, kappa, start, formulas),
        law=DistanceLaw(model.support, pmf, model.walk.n_nodes, model.walk.degree),
    )


def _list_warnings(model: theory.AnonymityModel, kappa: float, start: float, formulas: str) -> tuple[str, ...]:
    """Name every assumption that ignores more than 5%, at the design return time or at the shortest covered."""
    warnings: dict[str, str] = {}
    for return_time in (kappa, max(start, model.support.hi + 1.0)):
        for term in theory.ignored_terms(return_time, model=model):
            if term.bends:
                warnings.setdefault(term.label, f"{term.label} ignores {term.ignored_share:.1%}: {term.meaning}")
    if formulas == "printed":
        warnings["printed"] = "printed formulas: kept for comparison only; see paper/errata.md"
    return tuple(warnings.values())


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

    Cost: about 2 * 7 passes over all pairs of nodes, each of a few hundred sparse products (``chains``). The window
    radius is delta. Return times shorter than the covered ones come with the tail probability, delta'. Without a return
    time, kappa is the one whose survival is half that of the shortest covered.
    """
    validate.probability(tail=tail_probability)
    validate.integer(0, window=window_radius)
    cure = "; use the closed forms, a smaller graph or more memory"
    require_memory(f"exact design on {graph.n_nodes} nodes", _TABLES * 8 * graph.n_nodes**2, memory_bytes, cure)
    hops = distances(graph)
    if support.hi > (diameter := int(hops.max())):
        raise InvalidParameterError("support", str(support), f"within the diameter of the graph, {diameter}")
    # Refuses a support that some node has no other node in.
    law_by_distance(graph, support, np.ones(support.hi + 1))
    chain = chain_of(graph, walk)
    start, half = covered_return_times(chain, support, (1 - tail_probability, (1 - tail_probability) / 2))
    kappa = float(max(half, support.hi + 1)) if return_time is None else return_time
    if not kappa > support.hi:
        raise InvalidParameterError("return time", kappa, f"more than the largest distance, {support.hi}")

    likelihood = exact_window_likelihood(chain, kappa, window_radius)
    by_distance = mean_by_distance(likelihood, hops, support)
    if not by_distance.min() > 0:
        # On a bipartite graph hits at every other hop are impossible, and a narrow window may miss all others.
        raise InvalidParameterError("window", window_radius, "wider: at some distance no hit falls into it")
    law = law_by_distance(graph, support, np.pad(by_distance.min() / by_distance, (support.lo, 0)))
    by_node, entropy_by_distance = window_entropies(law, likelihood, hops)
    at_design = floor = float(entropy_by_distance.min())
    first = max(start, support.hi + 1)
    # From the shortest covered to infinity, a factor of two or so hops around the mean return time.
    last = max(8 / float(chain.node_shares.min()), 2.0 * first)
    for examined in (*np.unique(np.round(np.geomspace(first, last, _EXAMINED - 1))), math.inf):
        _, entropies = window_entropies(law, exact_window_likelihood(chain, examined, window_radius), hops)
        floor = min(floor, float(entropies.min()))
    pairs = sparse.coo_array(law.matrix)
    shares = sparse.csr_array((pairs.data, (pairs.row, hops[pairs.row, pairs.col])), shape=(len(hops), support.hi + 1))
    return WindowDesign(
        n_nodes=graph.n_nodes,
        degree=int(graph.degrees[0]) if graph.is_regular else None,
        formulas="exact chains on this graph",
        window_radius=window_radius,
        tail_probability=tail_probability,
        return_time_design=kappa,
        return_time_from=float(first),
        distances=support.distances,
        distance_pmf=law.source_prior @ shares.toarray()[:, support.lo :],
        shell_sizes=(np.bincount(hops.ravel())[support.lo : support.hi + 1] / graph.n_nodes),
        distance_entropy_nats=at_design,
        node_entropy_nats=float(by_node.min()),
        anonymity_floor_nats=floor,
        floor_kind=f"computed minimum over all destinations and {_EXAMINED + 1} return times",
        mean_iteration_hops=law.mean_hops(chain.mean_hitting_times(memory_bytes=memory_bytes)),
        worst_destination=int(by_node.argmin()),
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


def window_entropies(law: DestinationLaw, likelihood: FloatArray, hops: IntArray) -> tuple[FloatArray, FloatArray]:
    """Node and distance entropies of Definition PrivacyNotion for every destination, in nats.

    The posterior of destination j over sources i is proportional to P_ij L_ij. Its distance entropy is that of
    the mean weight of ONE node at each distance, as in the paper's W.
    """
    posterior = normalised(np.ascontiguousarray((law.matrix.multiply(likelihood)).toarray().T))
    means = [mean_by_distance(row, where, law.support) for row, where in zip(posterior, hops, strict=True)]
    by_distance = normalised(np.nan_to_num(np.array(means)))
    return special.entr(posterior).sum(axis=1), special.entr(by_distance).sum(axis=1)


@dataclass(frozen=True, eq=False)
class WindowFloor:
    """Definition PrivacyNotion at one return time: node entropy of every destination, in nats."""

    return_time: float
    chosen_by: str
    node_entropy_by_destination: FloatArray

    @property
    def node_entropy_nats(self) -> float:
        """The minimum over destinations, as in the definition."""
        return float(self.node_entropy_by_destination.min())

    def worst_destinations(self, count: int = 5) -> IntArray:
        """Return the destinations with the least entropy, worst first."""
        return np.argsort(self.node_entropy_by_destination, kind="stable")[:count]


def choose_return_time(chain: Chain, support: DistanceSupport, tail_probability: float) -> tuple[float, str]:
    """Return kappa and how it was chosen.

    The paper's rule takes the return time whose survival is half that of the shortest one covered. Where walks mix so
    slowly that the search would take hours, it is the longest that the window notion can afford.
    """
    validate.probability(tail=tail_probability)
    hop_products = chain.products_per_hop / chain.n_nodes
    settling = _SETTLING_NATS / -math.log(max(chain.mixing_rate, 1e-3))
    if _SEARCH_PASSES * settling * hop_products > _WINDOW_PRODUCTS:
        longest = max(math.floor(_WINDOW_PRODUCTS / (2 * hop_products)), support.hi + 1)
        return float(longest), "the longest affordable: walks mix too slowly here for the paper's rule"
    half = covered_return_times(chain, support, ((1 - tail_probability) / 2,))[0]
    return float(max(half, support.hi + 1)), "the paper's rule"


def mean_by_distance(values: FloatArray, hops: IntArray, support: DistanceSupport) -> FloatArray:
    """Mean of ``values``, one for each pair in ``hops``, at each distance of the support; NaN where there is none."""
    flat, within = hops.ravel(), slice(support.lo, support.hi + 1)
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
        """Return P(T_FR >= t | T_FR >= first) for each t."""
        shares_left = chain.return_survival(np.append(first - 1, times - 1))
        return np.asarray((shares_left[1:] / shares_left[0]).mean(axis=1))

    # Every call costs one pass over all pairs, whatever the number of times: bracket all shares, then cut each
    # bracket into many intervals at once.
    powers = first * 2 ** np.arange(40)
    left = survival(powers)
    low = [int(powers[np.flatnonzero(left >= share)[-1]]) for share in shares]
    high = [2 * bound for bound in low]
    while max(h - b for b, h in zip(low, high, strict=True)) > 1:
        cuts = [np.unique(np.linspace(b, h, 65).astype(np.int64)) for b, h in zip(low, high, strict=True)]
        left = survival(np.concatenate(cuts))
        begin = 0
        for index, (cut, share) in enumerate(zip(cuts, shares, strict=True)):
            last = int(np.flatnonzero(left[begin : begin + len(cut)] >= share)[-1])
            low[index], high[index] = int(cut[last]), int(cut[min(last + 1, len(cut) - 1)])
            begin += len(cut)
    return low
