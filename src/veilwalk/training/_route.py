"""Measures what the route alone tells a receiver about the maker of an update.

Where the walk has an exact law this is exact: the mean over all deliveries of the entropy, and of the top, of the
posterior given the return time and the last hop. Return times above a mean leg are taken as one: they hardly
distinguish sources. Elsewhere the auditor estimates it from simulated updates. Either takes some ten seconds, so means
are stored by scheme in the user's cache folder, where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from veilwalk.audit import AuditSettings, audit, last_hop_joint, make_plan
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.errors import RecordError
from veilwalk.core.files import cache_folder, hold_file
from veilwalk.core.progress import Progress, silent
from veilwalk.core.records import plain
from veilwalk.core.stats import geometric_starts
from veilwalk.design import Scheme
from veilwalk.engine import JobStore, source_stamp
from veilwalk.learning import TrainingTrace
from veilwalk.training._spec import CheckSpec
from veilwalk.walks import law_digest

# Mean legs that returns are followed, for means and for single posteriors. Of the paper's scheme on 300 nodes, three
# legs leave 0.0002 nats of 4.94 less than one.
_HORIZON_LEGS, _POSTERIOR_LEGS = 1, 3
_BINS = 16
_AUDITED_UPDATES = 100_000
# A rehearsal of so much takes some ten seconds; sealed for several, it loses 0.003 nats of 5.5.
_SEVERAL_UPDATES, _REHEARSED_HOPS = 50_000, 4_000
# The same for every run: the result is stored by scheme.
_AUDIT_SEED = 7
# Seconds, measured on two cores: of an exact law for each destination, state and hop; of an estimate for each node, and
# for each node and hop of a leg.
_EXACT_S, _REHEARSAL_S, _REHEARSED_HOP_S = 7e-8, 0.02, 7e-5
_USUAL = CheckSpec()
_MEMORYLESS = ("simple", "lazy", "metropolis")
_BY_ITSELF = (
    "of one walk: walks are sealed independently, so an observer that sees the others too, and knows which is which, "
    "learns no more about this one from their routes"
)


@dataclass(frozen=True, eq=False)
class Route:
    """Means over all deliveries, as plain data; and the posterior (row) of each delivery in question."""

    summary: dict[str, Any]
    posteriors: FloatArray


def route_anonymity(
    scheme: Scheme, trace: TrainingTrace, rows: IntArray, *, checks: CheckSpec = _USUAL, progress: Progress = silent
) -> Route:
    """Return what receivers of a private trace learn from the route; posteriors for the deliveries ``rows``.

    The auditor's plan decides how: exact where its posteriors are exact at every destination, which is up to
    500 nodes, sealed for one; else estimated by the auditor. The posteriors are then those of the last hop where
    openings are known by it, or the priors. With ``checks.audit`` none there is no number.
    """
    if checks.audit == "none":
        names = ("node_entropy_nats", "node_entropy_bits", "hit_ratio", "blind_hit_ratio")
        summary = dict[str, Any](kind="not measured (--audit none)", observer="last-hop", walks=None, by_return_time=[])
        return Route(summary | dict.fromkeys(names), _posteriors(scheme, trace, rows))
    settings, is_exact = _plan_route(scheme)
    if not is_exact:
        summary = _compute_once(scheme, asdict(settings), lambda: _audit_route(scheme, settings, progress))
        route = Route(summary, _posteriors(scheme, trace, rows))
    else:
        summary = _compute_once(scheme, _horizon(scheme), lambda: _measure_exactly(scheme, progress))
        route = Route(summary, _exact_posteriors(scheme, trace, rows))
    note = None if trace.n_models == 1 else _BY_ITSELF
    return replace(route, summary=route.summary | {"walks": note})


def predict_route_s(scheme: Scheme, *, checks: CheckSpec) -> float:
    """Return about the seconds that :func:`route_anonymity` takes on two cores; 0 where its result is stored."""
    if checks.audit == "none":
        return 0.0
    settings, is_exact = _plan_route(scheme)
    nodes, arcs = scheme.graph.n_nodes, 2 * scheme.graph.n_edges
    with suppress(RecordError):
        store, name = _name_summary(scheme, _horizon(scheme) if is_exact else asdict(settings))
        if store.path(*name).exists():
            return 0.0
    if is_exact:
        # A walk that remembers its last hop has a state for each arc.
        states = arcs * (1 if scheme.walk.kind in _MEMORYLESS else arcs / nodes)
        return _EXACT_S * nodes * states * _HORIZON_LEGS * scheme.price.hops
    return nodes * (_REHEARSAL_S + _REHEARSED_HOP_S * scheme.price.hops)


def _priors(scheme: Scheme) -> FloatArray:
    """For each destination (row) how often each node is the source: mu_i P_ij."""
    return np.ascontiguousarray((scheme.source_prior[:, np.newaxis] * scheme.law.matrix.toarray()).T)


def _posteriors(scheme: Scheme, trace: TrainingTrace, rows: IntArray) -> FloatArray:
    """Return the makers of each delivery: by opener and last hop where that is known, else by the prior."""
    if not len(rows):
        return np.zeros((0, scheme.graph.n_nodes))
    if scheme.hides_names:
        # By symmetry: all but its neighbours, who do not seal for it.
        return np.asarray(scheme.law.matrix[trace.node[rows]].toarray())
    if scheme.has_exact_law or not scheme.openings.joint.size:
        return normalised(_priors(scheme)[trace.node[rows]])
    heads = np.repeat(np.arange(scheme.graph.n_nodes), scheme.graph.degrees)
    # Entries of a node's neighbours ascend, so an arc is found by its two ends.
    places = heads * scheme.graph.n_nodes + scheme.graph.indices
    arcs = np.searchsorted(places, trace.node[rows] * scheme.graph.n_nodes + trace.last_hop[rows])
    return normalised(scheme.openings.joint[arcs] + 1e-12 * scheme.source_prior)


def _horizon(scheme: Scheme, legs: int = _HORIZON_LEGS) -> int:
    """Return the return time above which all are taken as one."""
    return math.ceil(legs * scheme.price.hops)


def _exact_posteriors(scheme: Scheme, trace: TrainingTrace, rows: IntArray) -> FloatArray:
    """Return the makers of each delivery by its return time and last hop."""
    posteriors = np.zeros((len(rows), scheme.graph.n_nodes))
    nodes = np.unique(trace.node[rows])
    if not len(nodes):
        return posteriors
    for delivery in scheme.chain.deliveries(scheme.law.matrix.toarray(), _horizon(scheme, _POSTERIOR_LEGS), nodes):
        places = np.flatnonzero(trace.node[rows] == delivery.destination)
        weight = last_hop_joint(delivery, trace.return_time[rows[places]], trace.last_hop[rows[places]])
        posteriors[np.ix_(places, delivery.sources)] = normalised(weight)
    return posteriors


def _measure_exactly(scheme: Scheme, progress: Progress) -> dict[str, Any]:
    horizon = _horizon(scheme)
    n_nodes, often = scheme.graph.n_nodes, scheme.source_prior
    # Masses by return time, and of all above the horizon, with the entropy and the hits of their posteriors.
    shortest = 2 * scheme.law.support.lo
    edges = geometric_starts(shortest, max(horizon + 1, shortest + 1), _BINS + 1)
    sums, own = np.zeros((len(edges), 3)), np.empty((n_nodes, 2))
    for number, delivery in enumerate(scheme.chain.deliveries(scheme.law.matrix.toarray(), horizon), start=1):
        node = delivery.destination
        by_time, late = _masses(delivery.joint).sum(axis=1), _masses(delivery.beyond).sum(axis=0)
        sums += often[node] * np.vstack((np.add.reduceat(by_time, edges[:-1], axis=0), late))
        own[node] = (by_time.sum(axis=0) + late)[1:]
        progress("exact posteriors", number, n_nodes, "destinations")
    lows, highs = edges.tolist(), [edge - 1 for edge in edges[1:].tolist()] + [None]
    priors = normalised(_priors(scheme))
    worst = int(own[:, 0].argmin())
    return {
        "kind": f"exact, with all return times above {horizon:,} hops taken as one",
        "observer": "last-hop",
        **_entropies(float(often @ own[:, 0])),
        "prior_node_entropy_nats": float(often @ special.entr(priors).sum(axis=1)),
        "hit_ratio": float(often @ own[:, 1]),
        "blind_hit_ratio": float(often @ priors.max(axis=1)),
        "by_return_time": [
            {"lo": low, "hi": high, "share": float(mass), **_entropies(entropy / mass), "hit_ratio": float(hits / mass)}
            for low, high, (mass, entropy, hits) in zip(lows, highs, sums, strict=True)
            if mass > 0
        ],
        "worst_destination": {"node": worst, **_entropies(float(own[worst, 0])), "hit_ratio": float(own[worst, 1])},
    }


def _masses(joint: FloatArray) -> FloatArray:
    """For each sighting (all axes but the last): its probability p, p times the entropy of its posterior, its top."""
    total = joint.sum(axis=-1)
    # p H(post) = -sum j log j + p log p, and rounding must not make certainty negative.
    entropy = np.maximum(special.entr(joint).sum(axis=-1) - special.entr(total), 0.0)
    return np.stack((total, entropy, joint.max(axis=-1)), axis=-1)


def _entropies(nats: float) -> dict[str, float]:
    return {"node_entropy_nats": float(nats), "node_entropy_bits": float(nats) / math.log(2)}


def _compute_once(scheme: Scheme, how: Any, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the means for a scheme; those of an earlier run are read from the user's cache folder.

    Of two processes that want the same, one computes it and the other waits.
    """
    summary: dict[str, Any] | None = None
    # A cache that cannot be read or written costs time, nothing else.
    with suppress(RecordError, OSError):
        store, name = _name_summary(scheme, how)
        if (stored := store.load(*name)) is not None:
            return dict(stored)
        store.folder.mkdir(parents=True, exist_ok=True)
        with hold_file(store.path(*name).with_suffix(".lock")):
            if (stored := store.load(*name)) is not None:
                return dict(stored)
            summary = dict(plain(compute()))
            store.save(*name, summary)
    return dict(plain(compute())) if summary is None else summary


def _name_summary(scheme: Scheme, how: Any) -> tuple[JobStore, tuple[dict[str, Any], list[Any]]]:
    """Return where means are stored, and under which name those of a scheme."""
    if (folder := cache_folder()) is None:
        raise RecordError("there is no folder to store results in")
    parts = [scheme.graph.digest, law_digest(scheme.law.rows), scheme.walk.kind, scheme.recipients, scheme.key_period]
    return JobStore(folder / "anonymity"), ({"code": source_stamp(), "how": how}, parts)


def _audit_route(scheme: Scheme, settings: AuditSettings, progress: Progress) -> dict[str, Any]:
    """Estimate what receivers learn on a large network, or from updates sealed for several."""
    observers: Mapping[str, Any] = audit(scheme, settings, progress=progress).record().result["observers"]
    report, prior = observers["last-hop"], observers["prior"]["overall"]
    how = f"estimated from {report['scored_updates']:,} simulated updates"
    means = ("node_entropy_nats", "node_entropy_bits", "hit_ratio", "hit_ratio_interval")
    whole, columns = (*means, "blind_hit_ratio", "node_entropy_nats_interval"), ("lo", "hi", "share", *means)
    return {
        "kind": "exact, by symmetry" if scheme.hides_names else how,
        "observer": "last-hop",
        **{name: report["overall"][name] for name in whole},
        "prior_node_entropy_nats": prior["node_entropy_nats"],
        "by_return_time": [{name: row[name] for name in columns} for row in report["by_return_time"]],
        "worst_destination": None,
    }


def _plan_route(scheme: Scheme) -> tuple[AuditSettings, bool]:
    """Return settings of an audit that takes some ten seconds where it rehearses, and whether it would be exact."""
    settings = AuditSettings(
        observers=("prior", "last-hop"),
        updates=_AUDITED_UPDATES if scheme.has_exact_law else _SEVERAL_UPDATES,
        seed=_AUDIT_SEED,
        rehearsed_hops=_REHEARSED_HOPS,
    )
    plan = make_plan(scheme, settings)
    return settings, plan.posterior == "exact" and not (plan.samples_destinations or scheme.hides_names)
