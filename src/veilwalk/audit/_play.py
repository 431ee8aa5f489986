"""Plays the protocol and splits it into sightings for the observers and the truth for the scorer."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from veilwalk.audit._score import estimate_over_lanes
from veilwalk.audit._settings import AuditSettings
from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.randomness import task_generator
from veilwalk.core.stats import Estimate
from veilwalk.design import Scheme
from veilwalk.engine import JobStore
from veilwalk.graphs import Graph, distances
from veilwalk.walks import draw_recipients, token_paths

# A stream of its own for the choice of colluders.
_COLLUDER_TASK = 0x636F6C6C
# Hops after which a plain walk has forgotten where it began, at most.
_WARM_HOPS = 10_000
_NOBODY: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Sightings:
    """Columns of what the destination of an update, or the colluders, can know; -1 means nothing was seen.

    A sighting never holds the source. Only the scorer reads both sides.
    """

    destination: IntArray
    clock: IntArray
    return_time: IntArray
    last_hop: IntArray
    first_sight_node: IntArray
    first_sight_from: IntArray

    @classmethod
    def from_records(cls, updates: npt.NDArray[np.void]) -> Sightings:
        """Take the observable columns of records of ``walks.UPDATE_DTYPE``."""
        return cls(**{field.name: updates[field.name].astype(np.int64) for field in fields(cls)})

    @classmethod
    def empty(cls, size: int, **columns: IntArray) -> Sightings:
        """Return the given columns; all others hold nothing."""
        nothing = {field.name: np.full(size, -1) for field in fields(cls)}
        return cls(**nothing | columns)

    def take(self, rows: IntArray) -> Sightings:
        """Return the chosen rows."""
        return Sightings(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def __len__(self) -> int:
        return len(self.destination)


@dataclass(frozen=True, eq=False)
class Truth:
    """Facts for the scorer alone: the source of each update, and its independent lane."""

    source: IntArray
    lane: IntArray


@dataclass(frozen=True, eq=False)
class Run:
    """A played protocol: all updates of the settings, or those done when it was interrupted."""

    sightings: Sightings
    truth: Truth
    hops_per_update: Estimate
    colluders: IntArray
    complete: bool

    @classmethod
    def from_records(cls, records: npt.NDArray[np.void], colluders: IntArray, *, complete: bool) -> Run:
        """Split records of ``walks.UPDATE_DTYPE``, in the order of their lanes (``replica``)."""
        lane = records["replica"].astype(np.int64)
        return cls(
            sightings=Sightings.from_records(records),
            truth=Truth(source=records["source"].astype(np.int64), lane=lane),
            hops_per_update=estimate_over_lanes(records["leg_hops"].astype(np.float64), lane),
            colluders=colluders,
            complete=complete,
        )


def choose_colluders(graph: Graph, count: int, seed: int, *, placement: str = "random") -> IntArray:
    """Return ``count`` nodes, ascending: random ones, or nodes ``spread`` out from a random one.

    Each spread node is as far as possible from those before it; the same stream breaks ties.
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


def draw_pools(scheme: Scheme, n_sets: int, rng: np.random.Generator) -> IntArray:
    """Return so many sets of recipients of each node by the rule: for coalitions, which play a run of their own."""
    sources = np.repeat(np.arange(scheme.graph.n_nodes), n_sets)
    named: dict[str, Any] = {"lane": np.zeros_like(sources), "source": sources, "clock": np.arange(len(sources))}
    sets = draw_recipients(scheme.graph, scheme.law.rows, scheme.recipients, seed=int(rng.integers(1 << 62)), **named)
    return sets.reshape(scheme.graph.n_nodes, n_sets, -1)


def play_updates(
    scheme: Scheme,
    settings: AuditSettings,
    colluders: IntArray = _NOBODY,
    *,
    executor: Executor | None = None,
    store: JobStore | None = None,
    device: str = "cpu",
    progress: Progress = silent,
) -> Run:
    """Play the updates of the settings; an interrupt keeps the updates played so far, unless lanes are jobs."""
    if scheme.is_direct and device != "cpu":
        raise InvalidParameterError("device", device, "cpu for the plain walk, which seals nothing")
    if scheme.is_direct:
        return _play_plain_walk(scheme, settings)
    watching = np.isin(np.arange(scheme.graph.n_nodes), colluders)
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
    joined = np.concatenate(chunks)
    # Chunks interleave lanes; in lane order each update follows the one before it.
    records = joined[np.argsort(joined["replica"], kind="stable")]
    return Run.from_records(records, colluders, complete=complete)


def _play_plain_walk(scheme: Scheme, settings: AuditSettings) -> Run:
    """Play the plain walk: each hop hands the model to the next node, which sees the node before it.

    A step of a lazy or metropolis walk that stays in place hands on nothing and does not count.
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
        sightings=Sightings.empty(len(lane), destination=destination, last_hop=source),
        truth=Truth(source=source, lane=lane),
        hops_per_update=Estimate(1.0, 1.0, 1.0),
        colluders=_NOBODY,
        complete=True,
    )
