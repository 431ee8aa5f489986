"""Computes the privacy-price frontier: price and exposure of each walk and law, with bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from veilwalk.core.errors import InfeasibleDesignError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.records import Record
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import Walk
from veilwalk.design import Channel, DestinationLaw, LawDesigner
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
        designer = LawDesigner(graph, support=support, walk=walk)
        even = designer.uniform.balance()
        channel = designer.channel(even, observer)
        channels[str(walk)] = {"kind": channel.kind, "horizon": channel.horizon}
        rows += [_row(designer, channel, designer.uniform, is_balanced=False), _row(designer, channel, even)]
        free = designer.problem(even, channel, np.inf, balanced=False).solve()
        most = float((free.joint.T * designer.hops).sum())
        for share in BUDGETS:
            progress(f"{walk}: the best law with {share:.0%} of {most:.0f} hops")
            try:
                best = designer.problem(even, channel, share * most, balanced=False).solve()
            except InfeasibleDesignError:
                break
            rows.append(_row(designer, channel, even.with_rows(best.joint.T), bound=best.bound))
    return Record(
        kind="frontier",
        params={"graph": graph.name, "nodes": graph.n_nodes, "graph_digest": graph.digest, "support": str(support)}
        | {"observer": observer, "channels": channels},
        result={"rows": rows},
    )


def _row(
    designer: LawDesigner,
    channel: Channel,
    law: DestinationLaw,
    *,
    is_balanced: bool = True,
    bound: float | None = None,
) -> dict[str, Any]:
    """Return the row of a law: the optimal one, which has a bound, or uniform-node."""
    prior = law.source_prior * len(law.source_prior)
    exposure = channel.expose(law).to_dict(designer.graph.degrees)
    worst = exposure["worst_destinations"][0]
    return {
        "walk": str(designer.walk),
        "law": "uniform-node" if bound is None else "optimal",
        "balanced": is_balanced,
        "mean_iteration_hops": law.mean_hops(designer.hops),
        "node_entropy_nats": exposure["node_entropy_nats"],
        "node_entropy_bound_nats": bound,
        "hit_ratio": exposure["hit_ratio"],
        "blind_node_entropy_nats": exposure["blind_node_entropy_nats"],
        "blind_hit_ratio": exposure["blind_hit_ratio"],
        "worst_destination": int(worst["node"]),
        "worst_node_entropy_nats": float(worst["node_entropy_nats"]),
        "prior_range": [float(prior.min()), float(prior.max())],
    }
