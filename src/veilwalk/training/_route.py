"""Who made the update that was delivered? What the route alone lets its receiver say, for each algorithm.

For walks that have a chain this is exact, with no sampling: the mean over all deliveries of the entropy, and of the
top, of the posterior that a destination has from the return time and the neighbour the token came from. Return times
above a horizon of three mean legs are told apart only as such; they hardly tell sources apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from veilwalk.audit import AuditSettings, audit, last_hop_joint, make_plan
from veilwalk.chains import Chain, DeliveryLaw
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.progress import Progress, silent
from veilwalk.core.stats import geometric_starts
from veilwalk.design import Scheme
from veilwalk.learning import TrainingTrace

_HORIZON_LEGS = 3
_BINS = 16
_AUDITED_UPDATES = 100_000
# A rehearsal of so much takes some ten seconds; sealed for several, it loses 0.003 nats of 5.5.
_SEVERAL_UPDATES, _REHEARSED_HOPS = 50_000, 4_000
_BY_ITSELF = (
    "of one token: they walk and are sealed independently, so whoever sees the others too, and is told which is which, "
    "learns no more about this one from their routes"
)


@dataclass(frozen=True, eq=False)
class Route:
    """What the route tells.

    Attributes:
        summary: Means over all deliveries, as plain data.
        posteriors: The posterior (row) of each delivery asked about.
    """

    summary: dict[str, Any]
    posteriors: FloatArray


def route_anonymity(
    scheme: Scheme,
    trace: TrainingTrace,
    rows: IntArray,
    *,
    seed: int,
    exact_nodes: int = 500,
    progress: Progress = silent,
) -> Route:
    """Return what receivers of a private trace learn from the route; posteriors for the deliveries ``rows``.

    The auditor's plan decides how: exact where its posteriors are exact at every destination, which is up to
    ``exact_nodes`` nodes, sealed for one; else measured by the auditor, drawing by ``seed``, and the posteriors are
    those of the last hop where openings are known by it, or the priors.
    """
    settings = _audit_settings(scheme, seed, exact_nodes)
    plan = make_plan(scheme, settings)
    if plan.posterior == "exact" and not plan.samples_destinations:
        route = _exact(scheme, scheme.chain, trace, rows, progress)
    else:
        route = Route(_audited(scheme, settings, progress), _posteriors(scheme, trace, rows))
    note = None if trace.n_models == 1 else _BY_ITSELF
    return replace(route, summary=route.summary | {"tokens": note})


def certain(how: str, blind: float | None) -> dict[str, Any]:
    """Return the summary of an algorithm whose receivers know the maker; ``how``, and what a blind guess would hit."""
    return {
        "kind": f"exact: {how}",
        "node_entropy_nats": 0.0,
        "node_entropy_bits": 0.0,
        "hit_ratio": 1.0,
        "blind_hit_ratio": blind,
    }


def _priors(scheme: Scheme) -> FloatArray:
    """For each destination (row) how often each node is the source: mu_i P_ij."""
    return np.ascontiguousarray((scheme.source_prior[:, np.newaxis] * scheme.law.matrix.toarray()).T)


def _posteriors(scheme: Scheme, trace: TrainingTrace, rows: IntArray) -> FloatArray:
    """Who made each delivery: by opener and last hop where that is known, else by the prior."""
    if not len(rows):
        return np.zeros((0, scheme.graph.n_nodes))
    if scheme.recipients == 1 or not scheme.openings.joint.size:
        return normalised(_priors(scheme)[trace.node[rows]])
    heads = np.repeat(np.arange(scheme.graph.n_nodes), scheme.graph.degrees)
    # Entries of a node's neighbours ascend, so an arc is found by its two ends.
    places = heads * scheme.graph.n_nodes + scheme.graph.indices
    arcs = np.searchsorted(places, trace.node[rows] * scheme.graph.n_nodes + trace.last_hop[rows])
    return normalised(scheme.openings.joint[arcs] + 1e-12 * scheme.source_prior)


def _exact(scheme: Scheme, chain: Chain, trace: TrainingTrace, rows: IntArray, progress: Progress) -> Route:
    # A budget may allow no update at all.
    leg_hops = float(trace.hops.mean()) if len(trace) else scheme.price.hops
    horizon = math.ceil(_HORIZON_LEGS * leg_hops)
    n_nodes, often = scheme.graph.n_nodes, scheme.source_prior
    sums = _Sums(2 * scheme.law.support.lo, horizon)
    posteriors = np.zeros((len(rows), n_nodes))
    own = np.empty((n_nodes, 2))
    for number, delivery in enumerate(chain.deliveries(scheme.law.matrix.toarray(), horizon), start=1):
        node = delivery.destination
        own[node] = sums.add(delivery, float(often[node]))
        asked = np.flatnonzero(trace.node[rows] == node)
        weight = last_hop_joint(delivery, trace.return_time[rows[asked]], trace.last_hop[rows[asked]])
        posteriors[np.ix_(asked, delivery.sources)] = normalised(weight)
        progress("exact posteriors", number, n_nodes, "destinations")
    priors = normalised(_priors(scheme))
    worst = int(own[:, 0].argmin())
    summary = {
        "kind": f"exact, return times above {horizon} hops told apart only as such",
        "observer": "last-hop",
        **_entropies(float(often @ own[:, 0])),
        "prior_node_entropy_nats": float(often @ special.entr(priors).sum(axis=1)),
        "hit_ratio": float(often @ own[:, 1]),
        "blind_hit_ratio": float(often @ priors.max(axis=1)),
        "by_return_time": sums.rows(),
        "worst_destination": {"node": worst, **_entropies(float(own[worst, 0])), "hit_ratio": float(own[worst, 1])},
    }
    return Route(summary, posteriors)


class _Sums:
    """Masses of deliveries by return time, with the entropy and the hits of their posteriors."""

    def __init__(self, shortest: int, horizon: int) -> None:
        self._edges = geometric_starts(shortest, max(horizon + 1, shortest + 1), _BINS + 1)
        self._sums = np.zeros((len(self._edges), 3))

    def add(self, delivery: DeliveryLaw, share: float) -> tuple[float, float]:
        """Add one destination, which gets ``share`` of all deliveries; return its mean entropy and hit ratio."""
        by_time = _masses(delivery.joint).sum(axis=1)
        late = _masses(delivery.beyond).sum(axis=0)
        binned = np.add.reduceat(by_time, self._edges[:-1], axis=0)
        self._sums += share * np.vstack((binned, late))
        _, entropy, hits = by_time.sum(axis=0) + late
        return float(entropy), float(hits)

    def rows(self) -> list[dict[str, Any]]:
        """Return the bins that can happen: range of return times, share of deliveries, entropy, hit ratio."""
        lows, highs = self._edges.tolist(), [edge - 1 for edge in self._edges[1:].tolist()] + [None]
        return [
            {"lo": low, "hi": high, "share": float(mass), **_entropies(entropy / mass), "hit_ratio": float(hits / mass)}
            for low, high, (mass, entropy, hits) in zip(lows, highs, self._sums, strict=True)
            if mass > 0
        ]


def _masses(joint: FloatArray) -> FloatArray:
    """For each sighting (all axes but the last): its probability p, p times the entropy of its posterior, its top."""
    total = joint.sum(axis=-1)
    # p H(post) = -sum j log j + p log p, and rounding must not make certainty negative.
    entropy = np.maximum(special.entr(joint).sum(axis=-1) - special.entr(total), 0.0)
    return np.stack((total, entropy, joint.max(axis=-1)), axis=-1)


def _entropies(nats: float) -> dict[str, float]:
    return {"node_entropy_nats": float(nats), "node_entropy_bits": float(nats) / math.log(2)}


def _audited(scheme: Scheme, settings: AuditSettings, progress: Progress) -> dict[str, Any]:
    """Measure what the auditor can of a large network, or of what is sealed for several."""
    observers: Mapping[str, Any] = audit(scheme, settings, progress=progress).record().result["observers"]
    found, prior = observers["last-hop"], observers["prior"]["overall"]
    kept = ("lo", "hi", "share", "node_entropy_nats", "node_entropy_bits", "hit_ratio", "hit_ratio_interval")
    shown = ("node_entropy_nats", "node_entropy_bits", "hit_ratio", "hit_ratio_interval", "blind_hit_ratio")
    return {
        "kind": f"measured on {found['scored_updates']} updates, {found['posterior']}",
        "observer": "last-hop",
        **{name: found["overall"][name] for name in (*shown, "node_entropy_nats_interval")},
        "prior_node_entropy_nats": prior["node_entropy_nats"],
        "by_return_time": [{name: row[name] for name in kept} for row in found["by_return_time"]],
        "worst_destination": None,
    }


def _audit_settings(scheme: Scheme, seed: int, exact_nodes: int) -> AuditSettings:
    """Return the settings of an audit that takes some ten seconds where it rehearses."""
    return AuditSettings(
        observers=("prior", "last-hop"),
        updates=_AUDITED_UPDATES if scheme.recipients == 1 else _SEVERAL_UPDATES,
        seed=seed,
        exact_nodes=exact_nodes,
        rehearsed_hops=_REHEARSED_HOPS,
    )
