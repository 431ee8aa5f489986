"""Walks side by side under one law: what each costs and what it leaves hidden."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from veilwalk.audit import AuditSettings, audit, estimate_over_lanes
from veilwalk.audit._score import Scored, summarise_scores
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.progress import Progress, silent
from veilwalk.core.records import Record
from veilwalk.core.walk import Walk
from veilwalk.design import DestinationLaw, Scheme
from veilwalk.engine import Engine, JobStore, run_jobs
from veilwalk.graphs import Graph
from veilwalk.walks import iter_protocol

_ALONE = ("prior", "return-time", "last-hop")
_SHOWN = ("lo", "hi", "share", "updates")
_SCORES = ("node_entropy_nats", "hit_ratio")
# Lanes of a job.
_LANES = 8


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
    executor: Engine = None,
    store: JobStore | None = None,
    progress: Progress = silent,
    **settings: Any,
) -> Record:
    """Audit the same law under each walk, with posteriors of one kind for all of them alike.

    Those attack that are a destination alone, and ``observers``. Hops are also given
    relative to the first walk. Rows go by return time, cut at the same shares of deliveries for every walk, so that row
    k of one compares with row k of another. ``node_entropy_lost_nats`` is how far a posterior's node entropy is below
    that of the prior at the same destination: which destinations happen to have such return times cancels out.
    ``executor``, ``store`` and further ``settings`` are the audit's.
    """
    rows: list[dict[str, Any]] = []
    options: dict[str, Any] = {
        "updates": updates,
        "seed": seed,
        "posterior": posterior,
        "colluders": colluders,
        "replicas": 256,
    }
    for walk in walks:
        progress(f"walking {walk}")
        asked = (*_ALONE, *observers)
        told = AuditSettings(**options | settings | {"observers": asked})
        audited = audit(Scheme(graph, law, walk), told, executor=executor, store=store)
        hops, found = audited.hops_per_update, {name: one.scored for name, one in audited.findings.items()}
        row: dict[str, Any] = {"walk": walk.kind, "hops": hops.mean * updates}
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


def _told(scored: Scored, prior: Scored) -> dict[str, Any]:
    """Return the rows of one observer, with what it takes of the prior's entropy where both score the same updates."""
    report = summarise_scores(scored)
    rows = [report["overall"], *report["by_return_time"]]
    shown = [{key: row[key] for key in _SHOWN} | _with_intervals(row, *_SCORES) for row in rows]
    if len(scored.scores) == len(prior.scores):
        # Of the entropy only, which stands first: differences of shares are none.
        less_entropy = np.zeros_like(scored.scores)
        less_entropy[:, 0] = prior.scores[:, 0] - scored.scores[:, 0]
        lost = summarise_scores(replace(scored, scores=less_entropy))
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
    executor: Executor | None = None,
) -> list[dict[str, Any]]:
    """Return the hops per update of each walk, measured on about ``hops`` hops, and relative to the first.

    ``rows`` is the law as ``walks.iter_protocol`` takes it; nothing is kept but hops, so any size will do. Lanes are
    jobs of ``executor``.
    """
    found: list[dict[str, Any]] = []
    for walk in walks:
        # A first look says how many updates so many hops are.
        options = {"walk": walk, "replicas": replicas}
        legs, lanes = _legs(graph, rows, options | {"updates": 2 * replicas, "seed": seed}, executor)
        updates = int(max(2 * replicas, hops / legs.mean()))
        legs, lanes = _legs(graph, rows, options | {"updates": updates, "seed": seed + 1}, executor)
        mean = estimate_over_lanes(legs, lanes)
        line: dict[str, Any] = {"walk": walk.kind, "hops_per_update": mean.mean}
        line["hops_per_update_interval"] = [mean.low, mean.high]
        line["relative_hops"] = mean.mean / (found[0] if found else line)["hops_per_update"]
        found.append(line)
    return found


def _legs(
    graph: Graph, rows: sparse.csr_array, options: dict[str, Any], executor: Executor | None
) -> tuple[FloatArray, IntArray]:
    """Hops of every update, and its lane."""
    n_lanes = options["replicas"]
    size = n_lanes if executor is None else _LANES
    blocks = [[first, min(first + size, n_lanes)] for first in range(0, n_lanes, size)]
    parts = run_jobs(_lane_legs, blocks, common=(graph, rows, options), executor=executor)
    return np.concatenate([legs for legs, _ in parts]), np.concatenate([lanes for _, lanes in parts])


def _lane_legs(
    graph: Graph, rows: sparse.csr_array, options: dict[str, Any], job: list[int]
) -> tuple[FloatArray, IntArray]:
    chunks = [(one["leg_hops"], one["replica"]) for one in iter_protocol(graph, rows, only=range(*job), **options)]
    legs, lanes = (np.concatenate(column) for column in zip(*chunks, strict=True))
    return legs.astype(np.float64), lanes.astype(np.int64)
