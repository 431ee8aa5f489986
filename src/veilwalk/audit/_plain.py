"""The plain random walk, for comparison: the source hands the update to its neighbour, who knows it."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from veilwalk.audit._report import Scored, observer_report
from veilwalk.audit._scores import score
from veilwalk.audit._settings import AuditSettings
from veilwalk.core.records import Record
from veilwalk.core.support import DistanceSupport
from veilwalk.graphs import Graph, distances
from veilwalk.walks import walk_positions


def audit_plain(graph: Graph, settings: AuditSettings, *, names: tuple[str, str]) -> Record:
    """Score the one guess every receiver has: the neighbour the model came from is the source.

    Sources follow the stationary law of the walk. Whatever else an observer may use, it adds nothing.
    """
    per_lane = -(-settings.updates // settings.replicas)
    lanes = np.repeat(np.arange(settings.replicas), per_lane)[: settings.updates]
    rng = np.random.default_rng(np.random.SeedSequence(settings.seed))
    sources = rng.choice(graph.n_nodes, size=settings.updates, p=graph.stationary_distribution)
    destinations = walk_positions(graph, sources, 1, seed=settings.seed, walk="simple").astype(np.int64)
    apart, support = distances(graph), DistanceSupport(1, 1, allow_neighbours=True)
    scores = np.empty((settings.updates, 7))
    # The posterior of each row is certain; a few thousand rows at a time bound the memory.
    for begin in range(0, settings.updates, 4096):
        part = slice(begin, begin + 4096)
        certain = np.zeros((len(sources[part]), graph.n_nodes))
        certain[np.arange(len(certain)), sources[part]] = 1.0
        scores[part] = score(certain, sources[part], apart[0], support)
    blind = 1 / graph.degrees[destinations]
    scored = Scored(
        kind="exact: the neighbour it came from is the source",
        scores=scores,
        blind=blind,
        lanes=lanes,
        return_time=np.zeros(0, dtype=np.int64),
        destination=destinations,
    )
    return Record(
        kind="audit",
        params={"graph": names[0], "law": names[1], "support": "1:1", "nodes": graph.n_nodes}
        | {"graph_digest": graph.digest, "anonymity_floor_nats": None}
        | {key: value for key, value in asdict(settings).items() if key != "seed"},
        seed=settings.seed,
        result={
            "updates": settings.updates,
            "complete": True,
            "hops_per_update": 1.0,
            "hops_per_update_interval": [1.0, 1.0],
            "hops_per_update_predicted": 1.0,
            "return_time_mean": None,
            "observers": {name: observer_report(scored) for name in settings.observers},
            "posterior_by_distance": [],
        },
    )
