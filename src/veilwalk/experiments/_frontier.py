"""The privacy-price frontier: what each walk and law costs and leaves hidden, beside the best there can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from veilwalk.core.errors import InfeasibleDesignError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.records import Record
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import Walk
from veilwalk.design import (
    Channel,
    DestinationLaw,
    LawBench,
    Optimum,
    balanced,
    exposure,
    with_matrix,
)
from veilwalk.graphs import Graph

#: Budgets of the optimal laws, as shares of the hops of the best balanced law without one.
BUDGETS = (1.0, 0.99, 0.98, 0.95, 0.9)


def privacy_price(
    graph: Graph,
    *,
    support: DistanceSupport,
    walks: Sequence[Walk],
    observer: str = "return-time",
    progress: Progress = silent,
) -> Record:
    """Put simple laws and the optimal ones at several budgets side by side, for each walk.

    For each walk one observation channel, that of the balanced uniform-node law, is held fixed for all its laws, so
    that the bounds hold for them all. Budgets that no law can keep are left out.
    """
    rows: list[dict[str, Any]] = []
    channels: dict[str, dict[str, Any]] = {}
    for walk in walks:
        progress(f"{walk}: deriving what a destination sees")
        bench = LawBench(graph, support=support, walk=walk)
        even = balanced(bench.uniform)
        channel = bench.channel(even, observer)
        channels[str(walk)] = {"kind": channel.kind, "horizon": channel.horizon}
        for law, is_balanced in ((bench.uniform, False), (even, True)):
            rows.append(_row(bench, channel, law, walk=walk, law_name="uniform-node", is_balanced=is_balanced))
        free = bench.problem(even, channel, np.inf, balanced=False).solve()
        most = float((free.joint.T * bench.hops).sum())
        for share in BUDGETS:
            progress(f"{walk}: the best law with {share:.0%} of {most:.0f} hops")
            try:
                best = bench.problem(even, channel, share * most, balanced=False).solve()
            except InfeasibleDesignError:
                break
            law = with_matrix(even, best.joint.T)
            rows.append(_row(bench, channel, law, walk=walk, law_name="optimal", is_balanced=True, best=best))
    return Record(
        kind="frontier",
        params={"graph": graph.name, "nodes": graph.n_nodes, "graph_digest": graph.digest, "support": str(support)}
        | {"observer": observer, "channels": channels},
        result={"rows": rows},
    )


def _row(
    bench: LawBench,
    channel: Channel,
    law: DestinationLaw,
    *,
    walk: Walk,
    law_name: str,
    is_balanced: bool,
    best: Optimum | None = None,
) -> dict[str, Any]:
    found, prior = exposure(law, channel), law.source_prior * len(law.source_prior)
    worst = int(found.worst_destinations(1)[0])
    return {
        "walk": str(walk),
        "law": law_name,
        "balanced": is_balanced,
        "mean_iteration_hops": law.mean_hops(bench.hops),
        "node_entropy_nats": found.node_entropy_nats,
        "node_entropy_bound_nats": None if best is None else best.bound,
        "hit_ratio": found.hit_ratio,
        "blind_node_entropy_nats": found.blind_node_entropy_nats,
        "blind_hit_ratio": found.blind_hit_ratio,
        "worst_destination": worst,
        "worst_node_entropy_nats": float(found.node_entropy_by_destination[worst]),
        "prior_range": [float(prior.min()), float(prior.max())],
    }
