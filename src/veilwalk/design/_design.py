"""Design: a scheme with its price, what it leaves hidden, and how near it is to the best there can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from veilwalk.core import validate
from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, show_progress
from veilwalk.core.records import Record
from veilwalk.core.rooms import show_options
from veilwalk.core.stats import Estimate, estimate_mean
from veilwalk.core.support import DistanceSupport
from veilwalk.core.tables import frame, html_table
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design._bench import Certificate, Round, WindowFloor, certify
from veilwalk.design._channel import Channel, Exposure, exposure
from veilwalk.design._hidden import degree_classes
from veilwalk.design._law import DestinationLaw
from veilwalk.design._paper import WindowDesign, weight_ratio, window_entropies
from veilwalk.design._registry import LAWS, Made, Request, default_support, make
from veilwalk.design._scheme import Price, Scheme
from veilwalk.engine import Engine, JobStore, open_engine
from veilwalk.graphs import Graph, balls, distances, parse_graph_spec
from veilwalk.walks import run_protocol

_LEGS = 4_000
_REPLICAS = 16


@dataclass(frozen=True, eq=False, kw_only=True)
class SampledLegs:
    """What a law costs by sampled legs: in all, by how far the destination is, and by its degree.

    Beyond some ten thousand nodes no table of hitting times fits: the protocol is played, and its legs are sorted.
    """

    seed: int
    hops: Estimate
    by_distance: dict[int, Estimate]
    by_degree: dict[tuple[int, int], Estimate]


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """A scheme and what is known about it; what is not known at its size, or for its law, is None.

    Attributes:
        scheme: graph, law and walk.
        price: mean hops between two updates.
        blind_node_entropy_nats: of the source given only its destination, exact.
        is_balanced: whether it was made so that every node updates equally often.
        exposure: what the observer of ``channel`` makes of deliveries; exact or approximate as ``channel.kind`` says.
        window: Definition PrivacyNotion at the return time designed for; ``weight_ratio`` says how many times one
            source of a destination outweighs another there, at most.
        certificates: how near the law is to the best.
        rounds: turns of the optimisation.
        legs: what sampling found, where tables of all pairs do not fit.
        paper: the paper's own design, of the law ``paper-exact``.
    """

    scheme: Scheme
    price: Price
    blind_node_entropy_nats: float
    is_balanced: bool
    channel: Channel | None = None
    exposure: Exposure | None = None
    window: WindowFloor | None = None
    weight_ratio: float | None = None
    certificates: tuple[Certificate, ...] = ()
    rounds: tuple[Round, ...] = ()
    legs: SampledLegs | None = None
    paper: WindowDesign | None = None

    def rows(self) -> list[dict[str, Any]]:
        """Return a row a node: how often it updates, and where it is known what it learns and who knows it."""
        graph, seen = self.scheme.graph, self.exposure
        often = self.scheme.source_prior * graph.n_nodes
        rows: list[dict[str, Any]] = [
            {"node": graph.label(node), "degree": int(graph.degrees[node]), "updates": float(often[node])}
            for node in range(graph.n_nodes)
        ]
        if seen is not None:
            for node, row in enumerate(rows):
                row["node_entropy_nats"] = float(seen.node_entropy_by_destination[node])
                row["hit_ratio"] = float(seen.hit_ratio_by_destination[node])
                row["weight_as_source"] = float(seen.weight_by_source[node])
        return rows

    def __repr__(self) -> str:
        return f"Design({self.scheme!r}, {self.price.hops:.1f} hops per update)"

    def to_frame(self) -> Any:
        """Return :meth:`rows` as a pandas data frame; only this needs pandas."""
        return frame(self.rows())

    def _repr_html_(self) -> str:
        scheme, seen = self.scheme, self.exposure
        shown = {
            "law": scheme.law.name,
            "walk": str(scheme.walk),
            "nodes": str(scheme.graph.n_nodes),
            "distances": str(scheme.law.support),
            "hops per update": f"{self.price.hops:.1f} ({self.price.kind})",
            "node entropy, nats": f"{self.blind_node_entropy_nats:.4f} (blind)",
        }
        if seen is not None:
            shown |= {"node entropy, nats": f"{seen.node_entropy_nats:.4f}", "hit ratio": f"{seen.hit_ratio:.3%}"}
        return html_table([{"": name, "value": value} for name, value in shown.items()])

    def to_dict(self) -> dict[str, Any]:
        """Return the design as plain data under its stable JSON keys."""
        return _design_data(self)

    def record(self) -> Record:
        """Return what was asked, by which code, and what came out."""
        scheme = self.scheme
        params = {"graph": scheme.graph.name, "law": scheme.law.name, "walk": str(scheme.walk)}
        seed = None if self.legs is None else self.legs.seed
        return Record(
            kind="design", params=params | {"support": str(scheme.law.support)}, seed=seed, result=self.to_dict()
        )


@show_options(Request, but=("far",))
def design(
    graph: Graph | str,
    law: str = "optimal",
    *,
    support: DistanceSupport | tuple[int, int] | str | None = None,
    walk: Walk | str = SIMPLE,
    executor: Engine = None,
    store: JobStore | None = None,
    progress: Progress | bool = False,
    **options: Any,
) -> Design:
    """Design a law for ``graph``: what it costs, what it leaves hidden, how near it is to the best.

    Args:
        graph: any connected graph, or its spec.
        law: a name of ``LAWS``.
        support: distances a destination may have; without it the widest that every node has, from 2 to 6 at most.
        walk: how ciphertexts walk.
        executor: where legs are walked on a graph so large that they are sampled: any executor, or an engine's name.
        store: where those that are walked are kept.
        progress: True for a display on standard error, or a function that is told what is going on.
        options: of :class:`Request`; those that the law does not take are refused.

    Example:
        >>> from veilwalk.graphs import random_regular
        >>> found = design(random_regular(20, 3, seed=1), "uniform-node", support=(2, 3))
        >>> round(found.price.hops, 2), found.price.kind
        (31.43, 'exact')
    """
    graph = parse_graph_spec(graph)
    validate.instance(str, f"the name of a law: {', '.join(LAWS)}", law=law)
    if "recipients" in options:
        raise InvalidParameterError("recipients", options["recipients"], "given to design_several instead")
    validate.options(Request, options)
    chosen = default_support(graph) if support is None else DistanceSupport.parse(support)
    request = Request(graph=graph, support=chosen, walk=Walk.parse(walk), **options)
    with show_progress(progress=progress) as listener:
        listener(f"making the law {law}")
        made = make(law, request)
        named = made.law.named(law)
        scheme = Scheme(graph, named, request.walk, designed_for=request.walk)
        common: dict[str, Any] = {
            "scheme": scheme,
            "blind_node_entropy_nats": _blind_node_entropy(named),
            "is_balanced": law == "optimal" if request.balanced is None else request.balanced,
        }
        if scheme.is_direct or made.window is not None:
            return Design(**common, price=scheme.price, paper=made.window)
        listener("what the law costs and leaves hidden")
        if request.is_large:
            legs = sample_legs(graph, named, request.walk, seed=request.seed, executor=executor, store=store)
            price = Price(legs.hops.mean, f"estimated from {legs.hops.count} legs", legs.hops.interval)
            return Design(**common, price=price, legs=legs)
        return Design(**common, price=scheme.price, **_looked_at(law, request, made))


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


def _distances(graph: Graph, radius: int, sources: IntArray, destinations: IntArray) -> IntArray:
    around = balls(graph, radius, sources)
    rows = np.repeat(np.arange(len(sources)), np.diff(around.starts))
    return np.asarray(around.hops[around.nodes == destinations[rows]])


def _blind_node_entropy(law: DestinationLaw) -> float:
    """Mean entropy of the source given only its destination, in nats: H(source, destination) - H(destination)."""
    rows = np.repeat(np.arange(law.matrix.shape[0]), np.diff(law.matrix.indptr))
    pairs = special.entr(law.source_prior[rows] * law.matrix.data).sum()
    return float(pairs - special.entr(law.source_prior).sum())


def _looked_at(name: str, request: Request, made: Made) -> dict[str, Any]:
    """What tables of all pairs tell: exposure, window floor and certificates."""
    bench, law, best = request.bench, made.law, made.best
    channel = bench.channel(law, request.observer) if best is None else best.channel
    certificates = made.certificates or certify(bench, name, law, channel, objective=request.objective)
    kappa, chosen_by = request.return_time_and_why
    floors = window_entropies(law, request.likelihood, distances(request.graph)).by_node
    return {
        "channel": channel,
        "exposure": exposure(law, channel),
        "window": WindowFloor(return_time=kappa, chosen_by=chosen_by, node_entropy_by_destination=floors),
        "weight_ratio": weight_ratio(law, request.likelihood),
        "certificates": certificates,
        "rounds": () if best is None else best.rounds,
    }


def _design_data(found: Design) -> dict[str, Any]:
    """Return everything that is known about a design; parts that are not known are left out."""
    scheme = found.scheme
    names = {} if scheme.graph.labels is None else {"labels": list(scheme.graph.labels)}
    if found.paper is not None:
        return found.paper.to_dict() | names
    prior = scheme.source_prior * scheme.graph.n_nodes
    content: dict[str, Any] = {
        "law": scheme.law.name,
        "walk": str(scheme.walk),
        "recipients": scheme.recipients,
        "n_nodes": scheme.graph.n_nodes,
        "graph_digest": scheme.law.graph_digest,
        "support": [scheme.law.support.lo, scheme.law.support.hi],
        "balanced": found.is_balanced,
        "mean_iteration_hops": found.price.hops,
        "mean_iteration_hops_kind": found.price.kind,
        "prior_range": [prior.min(), prior.max()],
        "prior_range_nodes": [prior.argmin(), prior.argmax()],
        "blind_node_entropy_nats": found.blind_node_entropy_nats,
        "certain_to_a_relay": scheme.certain_to_a_relay(),
    }
    for part in (_exposure, _window, _certificates, _legs):
        content |= part(found)
    return content | names


def _exposure(found: Design) -> dict[str, Any]:
    channel, seen, graph = found.channel, found.exposure, found.scheme.graph
    if channel is None or seen is None:
        return {}
    return {
        "observer": channel.observer,
        "channel": {"kind": channel.kind, "horizon": channel.horizon},
        "node_entropy_nats": seen.node_entropy_nats,
        "hit_ratio": seen.hit_ratio,
        "blind_node_entropy_nats": seen.blind_node_entropy_nats,
        "blind_hit_ratio": seen.blind_hit_ratio,
        "worst_destinations": [
            {
                "node": node,
                "degree": graph.degrees[node],
                "node_entropy_nats": seen.node_entropy_by_destination[node],
                "hit_ratio": seen.hit_ratio_by_destination[node],
            }
            for node in seen.worst_destinations()
        ],
        "best_known_sources": [
            {"node": node, "degree": graph.degrees[node], "weight": seen.weight_by_source[node]}
            for node in seen.best_known_sources()
        ],
    }


def _window(found: Design) -> dict[str, Any]:
    if found.window is None:
        return {}
    window = {
        "return_time": found.window.return_time,
        "chosen_by": found.window.chosen_by,
        "node_entropy_nats": found.window.node_entropy_nats,
        "worst_destinations": found.window.worst_destinations(),
        "weight_ratio": found.weight_ratio,
    }
    return {"window": window}


def _certificates(found: Design) -> dict[str, Any]:
    if found.exposure is None:
        return {}
    content: dict[str, Any] = {
        "certificates": [
            vars(one) | {"shortfall": one.shortfall, "in_words": one.in_words()} for one in found.certificates
        ]
    }
    if found.rounds:
        content["rounds"] = [vars(one) for one in found.rounds]
    return content


def _legs(found: Design) -> dict[str, Any]:
    legs = found.legs
    if legs is None:
        return {}
    return {
        "seed": legs.seed,
        "mean_iteration_hops_interval": legs.hops.interval,
        "hops_by_distance": [{"distance": distance} | _mean(one) for distance, one in legs.by_distance.items()],
        "hops_by_degree": [{"degrees": list(degrees)} | _mean(one) for degrees, one in legs.by_degree.items()],
    }


def _mean(one: Estimate) -> dict[str, Any]:
    return {"legs": one.count, "mean": one.mean, "interval": one.interval}
