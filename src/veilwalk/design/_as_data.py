"""A design as plain data: the one writer of its stable JSON keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from veilwalk.core.stats import Estimate

if TYPE_CHECKING:
    from veilwalk.design._design import Design


def design_data(found: Design) -> dict[str, Any]:
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
