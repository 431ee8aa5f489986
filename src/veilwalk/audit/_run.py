"""Play the protocol and keep what an audit needs of it: sightings for the adversaries, truth for the scorer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from veilwalk.audit._scores import Estimate, estimate
from veilwalk.audit._settings import AuditSettings
from veilwalk.audit._sightings import Sightings
from veilwalk.core.arrays import BoolArray, IntArray
from veilwalk.core.randomness import task_generator
from veilwalk.design import DestinationLaw
from veilwalk.graphs import Graph
from veilwalk.walks import iter_protocol

Say = Callable[[str], None]

# A stream of its own for the choice of colluders.
_COLLUDER_TASK = 0x636F6C6C


@dataclass(frozen=True, eq=False)
class Truth:
    """What only the scorer may know: who made each update, and on which independent lane it happened."""

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


def choose_colluders(n_nodes: int, count: int, seed: int) -> IntArray:
    """Return ``count`` nodes drawn without replacement, ascending."""
    rng = task_generator(seed, _COLLUDER_TASK)
    return np.sort(rng.choice(n_nodes, size=count, replace=False))


def play(graph: Graph, law: DestinationLaw, settings: AuditSettings, colluders: IntArray, say: Say) -> Run:
    """Play the updates asked for; an interrupt keeps what was played so far."""
    watching = np.zeros(graph.n_nodes, dtype=np.bool_)
    watching[colluders] = True
    chunks: list[npt.NDArray[np.void]] = []
    complete = True
    try:
        chunks.extend(
            iter_protocol(
                graph,
                law.matrix,
                updates=settings.updates,
                seed=settings.seed,
                walk=settings.walk,
                mix=settings.mix,
                replicas=settings.replicas,
                colluders=watching if len(colluders) else None,
                progress=lambda done, total: say(f"walking: {done} of {total} updates"),
            )
        )
    except KeyboardInterrupt:
        if not chunks:
            raise
        complete = False
    together = np.concatenate(chunks)
    # Chunks interleave lanes; in lane order each update stands right after the one before it.
    records = together[np.argsort(together["replica"], kind="stable")]
    lane = records["replica"].astype(np.int64)
    return Run(
        seen=Sightings.of(records, told=_told_sources(records, watching)),
        truth=Truth(source=records["source"].astype(np.int64), lane=lane),
        hops_per_update=estimate(records["leg_hops"].astype(np.float64), lane),
        colluders=colluders,
        complete=complete,
    )


def _told_sources(records: npt.NDArray[np.void], watching: BoolArray) -> IntArray:
    """The source of each update where a colluder made the update before, and so chose it itself; else -1."""
    told = np.full(len(records), -1)
    follows = records["replica"][1:] == records["replica"][:-1]
    knows = follows & watching[records["source"][:-1]]
    told[1:][knows] = records["destination"][:-1][knows]
    return told
