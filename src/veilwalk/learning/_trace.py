"""Traces: who updates which model when, of the private walk and of what it is compared with; and what they cost.

A trace is fixed before anything is trained. It needs no data and no learner, and can be replayed with any. It costs
transfers, bytes and modelled seconds.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray, frozen
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.geometry import MessageGeometry, SuiteName
from veilwalk.core.options import Specification, option
from veilwalk.core.payload import array_bytes
from veilwalk.core.randomness import task_generator
from veilwalk.learning._contract import Params

if TYPE_CHECKING:
    # Types only: a node starts without SciPy and compiled walks.
    from scipy import sparse

    from veilwalk.graphs import Graph

# A stream of its own for the plain walk.
_PLAIN_TASK = 0x706C6169
_COLUMNS = ("node", "model", "hops", "clock", "source", "last_hop", "return_time")
_UNKNOWN = frozen(np.array(-1))


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingTrace:
    """One row an update, in the order in which they happen.

    A column that is a single number is the same in every row.

    Attributes:
        algorithm: Its name, one of ``ALGORITHMS``.
        n_nodes: Nodes that hold data.
        n_models: Models in flight: one a token, one a node for gossip.
        node: The node that updates.
        model: Which model is updated.
        hops: Model transfers that this update cost.
        clock: Hops of the token since training began; for gossip, the round.
        source: The maker of the update that is delivered; -1 where nobody is.
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
    source: IntArray = field(default_factory=lambda: _UNKNOWN)
    last_hop: IntArray = field(default_factory=lambda: _UNKNOWN)
    return_time: IntArray = field(default_factory=lambda: _UNKNOWN)
    mixing: sparse.csr_array | None = None
    recipients: int = 0

    def __post_init__(self) -> None:
        columns = np.broadcast_arrays(*(np.asarray(getattr(self, name), dtype=np.int64) for name in _COLUMNS))
        for name, column in zip(_COLUMNS, columns, strict=True):
            object.__setattr__(self, name, frozen(column.copy()))

    def __len__(self) -> int:
        return len(self.node)

    def first(self, updates: int) -> TrainingTrace:
        """Return the trace cut after so many updates."""
        return replace(self, **{name: getattr(self, name)[:updates] for name in _COLUMNS})

    @cached_property
    def steps(self) -> IntArray:
        """How many updates the node of each row has made before: its name for the stream it draws from."""
        return _count_earlier(self.node)

    @cached_property
    def ages(self) -> IntArray:
        """How many updates the model of each row has had before."""
        return _count_earlier(self.model)

    @cached_property
    def digest(self) -> str:
        """Name of the order of updates, by what is in it."""
        digest = hashlib.sha256(f"{self.algorithm} {self.n_nodes} {self.n_models}".encode())
        for name in _COLUMNS:
            digest.update(np.ascontiguousarray(getattr(self, name), dtype="<i8").tobytes())
        return digest.hexdigest()


def _count_earlier(column: IntArray) -> IntArray:
    """Return how often each entry stands above its row."""
    order = np.argsort(column, kind="stable")
    _, begins, sizes = np.unique(column[order], return_index=True, return_counts=True)
    earlier = np.empty(len(column), dtype=np.int64)
    earlier[order] = np.arange(len(column)) - np.repeat(begins, sizes)
    return frozen(earlier)


def trace_of(graph: Graph, records: npt.NDArray[np.void], *, recipients: int = 1) -> TrainingTrace:
    """Return the trace of a played protocol (``walks.UPDATE_DTYPE``, one replica), sealed for so many ``recipients``.

    Tokens hop at the same pace; updates are taken in the order of their clocks, those of one clock by token.
    """
    if len(np.unique(records["replica"])) > 1:
        raise InvalidParameterError("replicas", len(np.unique(records["replica"])), "1: a model is in one network")
    # A token's clock also counts what it walked before training; here it starts at nought.
    hops, clock = records["leg_hops"].astype(np.int64), records["clock"].astype(np.int64)
    for token in np.unique(records["token"]):
        rows = np.flatnonzero(records["token"] == token)
        clock[rows] -= clock[rows[0]] - hops[rows[0]]
    order = np.lexsort((records["token"], clock))
    ordered = records[order]
    return TrainingTrace(
        algorithm="private-walk",
        n_nodes=graph.n_nodes,
        n_models=int(ordered["token"].max()) + 1,
        node=ordered["destination"],
        model=ordered["token"],
        hops=hops[order],
        clock=clock[order],
        recipients=recipients,
        source=ordered["source"],
        last_hop=ordered["last_hop"],
        return_time=ordered["return_time"],
    )


def plain_trace(graph: Graph, *, updates: int, seed: int, tokens: int = 1) -> TrainingTrace:
    """Walk the plain protocol: every node updates what its neighbour hands it, and hands it on."""
    validate.integer(1, updates=updates, tokens=tokens)
    tokens = min(tokens, updates)
    steps = -(-updates // tokens)
    paths = np.stack([_walk_path(graph, steps, task_generator(seed, _PLAIN_TASK, token)) for token in range(tokens)])
    # One hop each in turn: updates of one clock by token.
    node, source = paths[:, 1:].T.reshape(-1)[:updates], paths[:, :-1].T.reshape(-1)[:updates]
    model, clock = np.tile(np.arange(tokens), steps)[:updates], np.repeat(np.arange(1, steps + 1), tokens)[:updates]
    columns: dict[str, Any] = {"node": node, "model": model, "clock": clock, "source": source, "last_hop": source}
    return TrainingTrace(algorithm="plain-walk", n_nodes=graph.n_nodes, n_models=tokens, hops=np.array(1), **columns)


def gossip_trace(graph: Graph, *, rounds: int) -> TrainingTrace:
    """Return the rounds of D-PSGD: every node updates its own model, then all average with their neighbours.

    An update is one node's gradient step; it costs as many transfers as the node has neighbours. The weights are
    Metropolis': 1 / (1 + the larger degree) for each edge, and what is left for oneself.
    """
    validate.integer(1, rounds=rounds)
    n_nodes, node = graph.n_nodes, np.tile(np.arange(graph.n_nodes), rounds)
    hops, clock = np.tile(graph.degrees, rounds), np.repeat(np.arange(1, rounds + 1), n_nodes)
    columns: dict[str, Any] = {"node": node, "model": node, "hops": hops, "clock": clock}
    mixing = _metropolis_weights(graph)
    return TrainingTrace(algorithm="gossip", n_nodes=n_nodes, n_models=n_nodes, mixing=mixing, **columns)


def central_trace(*, updates: int) -> TrainingTrace:
    """Return plain SGD in one place: a network of one node that holds all data, and sends nothing."""
    validate.integer(1, updates=updates)
    here, clock = np.array(0), np.arange(1, updates + 1)
    return TrainingTrace(algorithm="central", n_nodes=1, n_models=1, node=here, model=here, hops=here, clock=clock)


def _walk_path(graph: Graph, steps: int, rng: np.random.Generator) -> IntArray:
    """Return the nodes of a simple walk of ``steps`` hops, started anywhere by the law it tends to."""
    node = int(rng.choice(graph.n_nodes, p=graph.stationary_distribution))
    picks, path = rng.random(steps), np.empty(steps + 1, dtype=np.int64)
    path[0] = node
    indptr, indices = graph.indptr.tolist(), graph.indices
    for step, pick in enumerate(picks.tolist(), start=1):
        first, width = indptr[node], indptr[node + 1] - indptr[node]
        node = int(indices[first + int(pick * width)])
        path[step] = node
    return path


def _metropolis_weights(graph: Graph) -> sparse.csr_array:
    from scipy import sparse

    degrees = graph.degrees.astype(np.float64)
    rows = np.repeat(np.arange(graph.n_nodes), graph.degrees)
    weights = 1 / (1 + np.maximum(degrees[rows], degrees[graph.indices]))
    edges = sparse.csr_array((weights, graph.indices, graph.indptr), shape=(graph.n_nodes, graph.n_nodes))
    own: FloatArray = 1 - np.asarray(edges.sum(axis=1)).ravel()
    return sparse.csr_array(edges + sparse.diags_array(own))


@dataclass(frozen=True, kw_only=True)
class CostModel(Specification):
    """How long things take, as a simulation models them. A node sends one message at a time."""

    bandwidth_bytes_per_s: float = option(
        1.25e6, "Bytes a second that a node sends, modelled.", "BYTES", key="bandwidth", rare=True
    )
    latency_s: float = option(0.02, "Seconds a hop takes besides, modelled.", "SECONDS", key="latency", rare=True)
    compute_s: float = option(0.01, "Seconds an update takes, modelled.", "SECONDS", key="compute", rare=True)

    def __post_init__(self) -> None:
        validate.finite(bandwidth=self.bandwidth_bytes_per_s, latency=self.latency_s, compute=self.compute_s)
        validate.more_than(0, bandwidth=self.bandwidth_bytes_per_s)
        validate.at_least(0, latency=self.latency_s, compute=self.compute_s)


@dataclass(frozen=True, eq=False, kw_only=True)
class Ledger:
    """Running totals after each update of a trace; entry 0 is before the first.

    Attributes:
        message_bytes: Size of every message.
        hops: Transfers of a model from one node to the next.
        sent_bytes: Hops times the size.
        seconds: Modelled; models in flight at once share the time.
    """

    message_bytes: int
    hops: IntArray
    sent_bytes: IntArray
    seconds: FloatArray


def params_bytes(params: Params, *, payload: str = "fp32") -> int:
    """Return the bytes of the arrays of a model, as ``payload`` says that they travel."""
    return sum(array_bytes(payload, array.shape, array.dtype) for array in map(np.asarray, params.values()))


def sealed_bytes(params_bytes: int, *, suite: SuiteName = "hybrid", recipients: int = 1) -> int:
    """Return the length of the sealed message that carries parameters of so many bytes: all of a run are equal."""
    return MessageGeometry.for_body(params_bytes, suite=suite, recipients=recipients).message_bytes


def make_ledger(trace: TrainingTrace, cost: CostModel, *, params_bytes: int) -> Ledger:
    """Return the costs of ``trace`` for a model of so many bytes."""
    # Others send the parameters as they are.
    size = sealed_bytes(params_bytes, recipients=trace.recipients) if trace.recipients else params_bytes
    hop_s = cost.latency_s + size / cost.bandwidth_bytes_per_s
    done_s: FloatArray = np.zeros(len(trace))
    if trace.mixing is not None:
        # All update at once; then the node with most neighbours is the last to have sent.
        sending = cost.latency_s + int(trace.hops.max()) * size / cost.bandwidth_bytes_per_s
        done_s = np.asarray(trace.clock * (cost.compute_s + sending))
    else:
        for model in range(trace.n_models):
            rows = np.flatnonzero(trace.model == model)
            done_s[rows] = np.cumsum(trace.hops[rows] * hop_s + cost.compute_s)
        # Tokens walk side by side; a row is done when its own token, and all before it, are.
        done_s = np.maximum.accumulate(done_s)
    hops = np.concatenate(([0], np.cumsum(trace.hops)))
    return Ledger(message_bytes=size, hops=hops, sent_bytes=hops * size, seconds=np.concatenate(([0.0], done_s)))
