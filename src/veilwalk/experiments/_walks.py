"""Walks side by side under one law: what each costs and what it leaves hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from veilwalk.audit import AuditSettings, Estimate, Scored, audit, estimate, observer_report
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.progress import Progress, silent
from veilwalk.core.records import Record
from veilwalk.core.walk import Walk
from veilwalk.design import DestinationLaw, Scheme
from veilwalk.graphs import Graph
from veilwalk.walks import iter_protocol

_ALONE = ("prior", "return-time", "last-hop")
_SHOWN = ("lo", "hi", "share", "updates")
_SCORES = ("node_entropy_nats", "hit_ratio")


def compare_walks(
    graph: Graph,
    law: DestinationLaw,
    walks: Sequence[Walk],
    *,
    updates: int,
    seed: int,
    observers: Sequence[str] = ("path",),
    colluders: int = 30,
    posterior: str = "rehearsed",
    progress: Progress = silent,
    **settings: Any,
) -> Record:
    """Audit the same law under each walk, with posteriors of one kind for all of them alike.

    Those attack that are a destination alone, and ``observers`` (round only where nodes remember). Hops are also given
    relative to the first walk. Rows go by return time, cut at the same shares of deliveries for every walk, so that row
    k of one compares with row k of another. ``node_entropy_lost_nats`` is how far a posterior's node entropy is below
    that of the prior at the same destination: which destinations happen to have such return times cancels out.
    Further ``settings`` are the audit's.
    """
    rows: list[dict[str, Any]] = []
    for walk in walks:
        progress(f"walking {walk}")
        asked = (*_ALONE, *(name for name in observers if name != "round" or walk.remembers))
        options = {"updates": updates, "seed": seed, "posterior": posterior, "colluders": colluders, "replicas": 256}
        options |= settings
        hops, found = _attacked(Scheme(graph, law, walk), observers=asked, **options)
        row: dict[str, Any] = {"walk": walk.kind, "mix": walk.mix, "hops": hops.mean * updates}
        row |= {"hops_per_update": hops.mean, "hops_per_update_interval": [hops.low, hops.high]}
        row["relative_hops"] = hops.mean / (rows[0] if rows else row)["hops_per_update"]
        row["observers"] = {name: _told(found[name], found["prior"]) for name in asked[1:]}
        rows.append(row)
    return Record(
        kind="walks",
        params={"graph": graph.name, "law": law.name, "support": str(law.support), "nodes": graph.n_nodes}
        | {"updates": updates, "posterior": posterior, "colluders": colluders},
        seed=seed,
        result={"rows": rows},
    )


def _attacked(scheme: Scheme, **options: Any) -> tuple[Estimate, dict[str, Scored]]:
    """Return the hops per update and every observer's scores of single updates."""
    found = audit(scheme, AuditSettings(**options))
    return found.hops_per_update, {name: one.scored for name, one in found.findings.items()}


def _told(scored: Scored, prior: Scored) -> dict[str, Any]:
    """Return the rows of one observer, with what it takes of the prior's entropy where both score the same updates."""
    report = observer_report(scored)
    rows = [report["overall"], *report["by_return_time"]]
    shown = [{key: row[key] for key in _SHOWN} | _with_intervals(row, *_SCORES) for row in rows]
    if len(scored.scores) == len(prior.scores):
        lost = observer_report(replace(scored, scores=prior.scores - scored.scores))
        for row, less in zip(shown, [lost["overall"], *lost["by_return_time"]], strict=True):
            row["node_entropy_lost_nats"] = less["node_entropy_nats"]
            row["node_entropy_lost_nats_interval"] = less["node_entropy_nats_interval"]
    return {"posterior": report["posterior"], "overall": shown[0], "by_return_time": shown[1:]}


def _with_intervals(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: row[key] for name in names for key in (name, f"{name}_interval")}


def price_walks(
    graph: Graph,
    rows: sparse.csr_array,
    walks: Sequence[Walk],
    *,
    hops: int,
    seed: int,
    replicas: int = 64,
) -> list[dict[str, Any]]:
    """Return the hops per update of each walk, measured on about ``hops`` hops, and relative to the first.

    ``rows`` is the law as ``walks.iter_protocol`` takes it; nothing is kept but means, so any size will do.
    """
    found: list[dict[str, Any]] = []
    for walk in walks:
        # A first look says how many updates so many hops are.
        legs, lanes = _legs(graph, rows, walk, updates=2 * replicas, seed=seed, replicas=replicas)
        updates = int(max(2 * replicas, hops / legs.mean()))
        legs, lanes = _legs(graph, rows, walk, updates=updates, seed=seed + 1, replicas=replicas)
        mean = estimate(legs, lanes)
        line: dict[str, Any] = {"walk": walk.kind, "mix": walk.mix, "hops_per_update": mean.mean}
        line["hops_per_update_interval"] = [mean.low, mean.high]
        line["relative_hops"] = mean.mean / (found[0] if found else line)["hops_per_update"]
        found.append(line)
    return found


def _legs(
    graph: Graph, rows: sparse.csr_array, walk: Walk, *, updates: int, seed: int, replicas: int
) -> tuple[FloatArray, IntArray]:
    """Hops of every update, and its lane."""
    chunks = list(iter_protocol(graph, rows, updates=updates, seed=seed, walk=walk, replicas=replicas))
    legs = np.concatenate([chunk["leg_hops"] for chunk in chunks]).astype(np.float64)
    return legs, np.concatenate([chunk["replica"] for chunk in chunks]).astype(np.int64)
