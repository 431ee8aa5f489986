"""Phase one: who updates which model when, and how far it travelled; no data, no learner.

A trace is fixed before anything is trained. It can be replayed with any learner, and studied without one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import sparse

from veilwalk.core.arrays import IntArray, frozen
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.graphs import Graph
from veilwalk.walks import run_protocol


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingTrace:
    """One row an update, in the order in which they happen.

    Attributes:
        algorithm: Its name, one of ``ALGORITHMS``.
        n_nodes: Nodes that hold data.
        n_models: Models in flight: one a token, one a node for gossip.
        node: Who updates.
        model: Which model is updated.
        hops: Model transfers that this update cost.
        clock: Hops of the token since training began; for gossip, the round.
        source: Who made the update that is delivered; -1 where nobody did.
        last_hop: The neighbour it came from; -1 where there is none.
        return_time: Hops since the token was last here, whatever it carried; -1 where it never was.
        mixing: Weights with which gossip averages the models after each round; None elsewhere.
        recipients: For how many each message is sealed; 0 where none is.
    """

    algorithm: str
    n_nodes: int
    n_models: int
    node: IntArray
    model: IntArray
    hops: IntArray
    clock: IntArray
    source: IntArray
    last_hop: IntArray
    return_time: IntArray
    mixing: sparse.csr_array | None = None
    recipients: int = 0

    def __post_init__(self) -> None:
        for name in _COLUMNS:
            frozen(getattr(self, name))

    def __len__(self) -> int:
        return len(self.node)

    def first(self, updates: int) -> TrainingTrace:
        """Return the trace cut after so many updates."""
        columns = {name: getattr(self, name)[:updates] for name in _COLUMNS}
        others = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _COLUMNS}
        return TrainingTrace(**columns, **others)

    @cached_property
    def steps(self) -> IntArray:
        """How many updates the node of each row has made before: its name for the stream it draws from."""
        return _earlier(self.node)

    @cached_property
    def ages(self) -> IntArray:
        """How many updates the model of each row has had before."""
        return _earlier(self.model)

    @cached_property
    def digest(self) -> str:
        """Name of the order of updates, by what is in it."""
        found = hashlib.sha256(f"{self.algorithm} {self.n_nodes} {self.n_models}".encode())
        for name in _COLUMNS:
            found.update(np.ascontiguousarray(getattr(self, name), dtype="<i8").tobytes())
        return found.hexdigest()


def _earlier(column: IntArray) -> IntArray:
    """Return how often each entry stands above its row."""
    order = np.argsort(column, kind="stable")
    _, begins, sizes = np.unique(column[order], return_index=True, return_counts=True)
    found = np.empty(len(column), dtype=np.int64)
    found[order] = np.arange(len(column)) - np.repeat(begins, sizes)
    return frozen(found)


_COLUMNS = ("node", "model", "hops", "clock", "source", "last_hop", "return_time")


def private_trace(
    graph: Graph,
    law: sparse.csr_array,
    *,
    updates: int,
    seed: int,
    tokens: int = 1,
    walk: Walk = SIMPLE,
) -> TrainingTrace:
    """Walk the private protocol: tokens go from destination to destination, drawn from ``law``.

    A token has been everywhere before the first update counts, so that every return time is known. Each of the
    ``tokens`` makes the same number of updates, give or take one.
    """
    records = run_protocol(graph, law, updates=updates, seed=seed, tokens=tokens, replicas=1, walk=walk)
    return trace_of(graph, records)


def trace_of(graph: Graph, records: npt.NDArray[np.void], *, recipients: int = 1) -> TrainingTrace:
    """Return the trace of a played protocol (``walks.UPDATE_DTYPE``, one replica), sealed for so many ``recipients``.

    Tokens hop at the same pace; updates are taken in the order of their clocks, those of one clock by token.
    """
    if len(np.unique(records["replica"])) > 1:
        raise InvalidParameterError("replicas", len(np.unique(records["replica"])), "1: a model is in one network")
    # A token's clock also counts what it walked before training; here it starts at nought.
    hops, clock = records["leg_hops"].astype(np.int64), records["clock"].astype(np.int64)
    for token in np.unique(records["token"]):
        mine = np.flatnonzero(records["token"] == token)
        clock[mine] -= clock[mine[0]] - hops[mine[0]]
    order = np.lexsort((records["token"], clock))
    ordered = records[order]
    return TrainingTrace(
        algorithm="private-walk",
        n_nodes=graph.n_nodes,
        n_models=int(ordered["token"].max()) + 1,
        node=ordered["destination"].astype(np.int64),
        model=ordered["token"].astype(np.int64),
        hops=hops[order],
        clock=clock[order],
        source=ordered["source"].astype(np.int64),
        last_hop=ordered["last_hop"].astype(np.int64),
        return_time=ordered["return_time"].astype(np.int64),
        recipients=recipients,
    )
