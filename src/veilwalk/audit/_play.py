"""Play the protocol and keep what an audit needs of it: sightings for the observers, truth for the judge."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from veilwalk.audit._scores import estimate
from veilwalk.audit._settings import AuditSettings
from veilwalk.audit._sightings import Sightings
from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.randomness import task_generator
from veilwalk.core.stats import Estimate
from veilwalk.design import Scheme
from veilwalk.engine import JobStore
from veilwalk.graphs import Graph, distances
from veilwalk.walks import token_paths

# A stream of its own for the choice of colluders.
_COLLUDER_TASK = 0x636F6C6C
# Hops after which a plain walk has forgotten where it began, at most.
_WARM_HOPS = 10_000
_NOBODY: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Truth:
    """What only the judge may know: who made each update, and on which independent lane it happened."""

    source: IntArray
    lane: IntArray


@dataclass(frozen=True, eq=False)
class Run:
    """A played protocol: as many updates as were asked for, or as were done when it was interrupted."""

    seen: Sightings
    truth: Truth
    hops_per_update: Estimate
    colluders: IntArray
    complete: bool


def choose_colluders(graph: Graph, count: int, seed: int, *, placement: str = "random") -> IntArray:
    """Return ``count`` nodes, ascending: drawn without replacement, or ``spread`` out from a drawn one.

    Each that is spread out is as far as can be from those before it; ties are broken by the same stream.
    """
    rng = task_generator(seed, _COLLUDER_TASK)
    if placement == "random" or not count:
        return np.sort(rng.choice(graph.n_nodes, size=count, replace=False))
    order, chosen = rng.permutation(graph.n_nodes), np.zeros(graph.n_nodes, dtype=np.bool_)
    nearest, node = np.full(graph.n_nodes, graph.n_nodes), int(order[0])
    for _ in range(count):
        chosen[node] = True
        nearest = np.minimum(nearest, distances(graph, np.array([node]))[0])
        node = int(order[np.argmax(nearest[order])])
    return np.flatnonzero(chosen)


def play(
    scheme: Scheme,
    settings: AuditSettings,
    colluders: IntArray = _NOBODY,
    *,
    executor: Executor | None = None,
    store: JobStore | None = None,
    device: str = "cpu",
    progress: Progress = silent,
) -> Run:
    """Play the updates asked for; an interrupt keeps what was played so far, unless lanes are played as jobs."""
    if scheme.is_direct and device != "cpu":
        raise InvalidParameterError("device", device, "cpu for the plain walk: nothing is sealed, and hops are all")
    if scheme.is_direct:
        return _play_direct(scheme, settings)
    watching = np.zeros(scheme.graph.n_nodes, dtype=np.bool_)
    watching[colluders] = True
    options: dict[str, Any] = {
        "updates": settings.updates,
        "seed": settings.seed,
        "replicas": settings.replicas,
        "colluders": watching if len(colluders) else None,
        "progress": progress,
    }
    chunks: list[npt.NDArray[np.void]] = []
    complete = True
    try:
        if device != "cpu" or (executor is None and store is None):
            chunks.extend(scheme.iter_updates(device=device, **options))
        else:
            chunks.append(scheme.run_updates(executor=executor, store=store, **options))
    except KeyboardInterrupt:
        if not chunks:
            raise
        complete = False
    together = np.concatenate(chunks)
    # Chunks interleave lanes; in lane order each update stands right after the one before it.
    records = together[np.argsort(together["replica"], kind="stable")]
    lane = records["replica"].astype(np.int64)
    return Run(
        seen=Sightings.of(records),
        truth=Truth(source=records["source"].astype(np.int64), lane=lane),
        hops_per_update=estimate(records["leg_hops"].astype(np.float64), lane),
        colluders=colluders,
        complete=complete,
    )


def _play_direct(scheme: Scheme, settings: AuditSettings) -> Run:
    """Play the plain walk: each hop hands the model from the node before to the next, who sees whence it came.

    A step of a lazy or metropolis walk that stays where it is hands on nothing, and does not count.
    """
    share = -(-settings.updates // settings.replicas)
    warm = min(scheme.graph.n_nodes, _WARM_HOPS)
    hops, moved = share, np.zeros((1, 1), dtype=np.bool_)
    while moved.sum(axis=1).min() < share:
        paths = token_paths(
            scheme.graph, hops=warm + hops, lanes=settings.replicas, seed=settings.seed, walk=scheme.walk
        ).astype(np.int64)[:, warm:]
        moved, hops = paths[:, 1:] != paths[:, :-1], 2 * hops
    lane, hop = np.nonzero(moved & (np.cumsum(moved, axis=1) <= share))
    lane, hop = lane[: settings.updates], hop[: settings.updates]
    source, destination = paths[lane, hop], paths[lane, hop + 1]
    return Run(
        seen=Sightings.empty(len(lane), destination=destination, last_hop=source),
        truth=Truth(source=source, lane=lane),
        hops_per_update=Estimate(1.0, 1.0, 1.0),
        colluders=_NOBODY,
        complete=True,
    )
