"""Walks side by side under one law: what each costs and what it leaves hidden."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from veilwalk.audit import AuditSettings, audit
from veilwalk.core.records import Record
from veilwalk.design import DestinationLaw
from veilwalk.experiments._sampled import Progress, silent
from veilwalk.graphs import Graph
from veilwalk.walks import WalkKind

_OBSERVERS = ("return-time", "last-hop")
_SHOWN = ("lo", "hi", "share", "node_entropy_nats", "node_entropy_nats_interval", "hit_ratio", "hit_ratio_interval")


def compare_walks(
    graph: Graph,
    law: DestinationLaw,
    walks: Sequence[tuple[WalkKind, float]],
    *,
    updates: int,
    seed: int,
    names: tuple[str, str],
    say: Progress = silent,
) -> Record:
    """Audit the same law under each ``(walk, mix)``, with posteriors estimated by class for all of them alike.

    Hops are also given relative to the first walk. The rows of an observer go by return time, cut at the same shares
    of deliveries for every walk, so that row k of one compares with row k of another.
    """
    rows: list[dict[str, Any]] = []
    for walk, mix in walks:
        say(f"walking {walk}" + (f", mix {mix:g}" if mix else ""))
        settings = AuditSettings(
            observers=_OBSERVERS, updates=updates, seed=seed, walk=walk, mix=mix, posterior="by-class", replicas=256
        )
        result = audit(graph, law, settings, names=names).result
        row: dict[str, Any] = {
            "walk": walk,
            "mix": mix,
            "hops": result["hops_per_update"] * updates,
            "hops_per_update": result["hops_per_update"],
            "hops_per_update_interval": result["hops_per_update_interval"],
        }
        row["relative_hops"] = row["hops_per_update"] / (rows[0] if rows else row)["hops_per_update"]
        for name in _OBSERVERS:
            found = result["observers"][name]
            row[name] = {
                "overall": {key: found["overall"][key] for key in _SHOWN},
                "by_return_time": [{key: line[key] for key in _SHOWN} for line in found["by_return_time"]],
            }
        rows.append(row)
    return Record(
        kind="walks",
        params={"graph": names[0], "law": names[1], "nodes": graph.n_nodes, "updates": updates},
        seed=seed,
        result={"rows": rows},
    )
