"""Traces: who updates which model when, of the private walk and of what it is compared with; and what they cost.

A trace is fixed before anything is trained. It needs no data and no learner, and can be replayed with any. It costs
transfers, bytes and modelled seconds.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray, frozen
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.geometry import MessageGeometry, SuiteName, choose_suite
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
# A server has so many times the line of a peer; FedAvg asks one peer of so many in a round.
_SERVER_LINES, _FEDAVG_SHARE = 10, 10
_ROUND_TASK = 0x726F756E
# The default dwell of a real node, in seconds, and in updates.
_LEAST_DWELL_S, _DWELL_UPDATES = 0.05, 1.5
#: Returns the weights with which all models are averaged after a round, by its number from 0.
Mixing = Callable[[int], "sparse.csr_array"]
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
        mixing: Weights with which the models are averaged after each round; None where there are no rounds.
        round_sends: Latencies, and messages over one line, that follow each other in a round.
        recipients: For how many each message is sealed; 0 where none is.
        suite: What seals it.
        meet: All walks are averaged after so many updates of each; 0: never.
        meet_sends: Transfers of a meeting for each walk, the hops that it takes, and the models over one line.
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
    mixing: Mixing | None = None
    round_sends: tuple[int, float] = (0, 0.0)
    recipients: int = 0
    suite: SuiteName = "hybrid"
    meet: int = 0
    meet_sends: tuple[int, int, int] = (0, 0, 0)

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

    def add_meetings(self, graph: Graph, every: int) -> TrainingTrace:
        """Return the trace of walks that meet after ``every`` updates of each, where they wait for the last one.

        The end of every walk is flooded, as at the end of a run: a node sends it to all neighbours but the one that it
        came from. Then all walks go on from their mean.
        """
        from veilwalk.graphs import summary

        if not every or self.n_models < 2 or self.mixing is not None:
            return self
        depth, degree = summary(graph).diameter_upper, int(graph.degrees.max())
        sends = (2 * graph.n_edges - graph.n_nodes + 1, depth, self.n_models * degree)
        order = np.argsort(self.ages // every, kind="stable")
        columns = {name: getattr(self, name)[order] for name in _COLUMNS}
        trace = replace(self, meet=every, meet_sends=sends, **columns)
        return replace(trace, clock=trace.time_updates(trace.hops, depth).astype(np.int64))

    def rounds(self) -> Iterator[slice]:
        """Yield the rows from one meeting to the next."""
        ends = (np.flatnonzero(np.diff(self.ages // self.meet)) + 1).tolist() if self.meet else []
        return (slice(start, end) for start, end in itertools.pairwise([0, *ends, len(self)]))

    def time_updates(self, leg_times: npt.NDArray[Any], meeting: float) -> FloatArray:
        """Return when the walk of each row has made its update; all go on from a meeting at once."""
        done, start = np.zeros(len(self)), 0.0
        for rows in self.rounds():
            for model in range(self.n_models):
                own = rows.start + np.flatnonzero(self.model[rows] == model)
                done[own] = start + np.cumsum(leg_times[own])
            start = float(done[rows].max(initial=start)) + meeting
        return done

    @cached_property
    def digest(self) -> str:
        """Name of the order of updates, by what is in it."""
        meet = f" {self.meet}" if self.meet else ""
        digest = hashlib.sha256(f"{self.algorithm} {self.n_nodes} {self.n_models}{meet}".encode())
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
        suite=choose_suite(is_overlay=graph.is_overlay),
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
    weights, sends = _metropolis_weights(graph), (1, float(graph.degrees.max()))
    return TrainingTrace(
        algorithm="gossip", n_nodes=n_nodes, n_models=n_nodes, mixing=lambda _: weights, round_sends=sends, **columns
    )


def sparse_gossip_trace(graph: Graph, *, rounds: int, seed: int, push: bool) -> TrainingTrace:
    """Return rounds in which every node updates its own model and talks to one neighbour at most.

    Push: it sends its model to a random neighbour, and averages what came with its own. Else a random maximal matching
    is drawn, and the two of a pair take the mean of their models.
    """
    from scipy import sparse

    validate.integer(1, rounds=rounds)
    n_nodes = graph.n_nodes

    def draw_links(number: int) -> IntArray:
        """Return who receives whose model in a round: pairs of a receiver and a sender."""
        rng = task_generator(seed, _ROUND_TASK, number)
        if push:
            first = graph.indptr[:-1] + (rng.random(n_nodes) * graph.degrees).astype(np.int64)
            return np.stack((graph.indices[first], np.arange(n_nodes)), axis=1)
        is_free, pairs = np.ones(n_nodes, dtype=np.bool_), []
        for a, b in rng.permutation(graph.edges()).tolist():
            if is_free[a] and is_free[b]:
                is_free[[a, b]] = False
                pairs += [(a, b), (b, a)]
        return np.array(pairs, dtype=np.int64)

    def mix(number: int) -> sparse.csr_array:
        links = draw_links(number)
        ends = np.concatenate((links, np.stack((np.arange(n_nodes),) * 2, axis=1)))
        received = sparse.csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n_nodes, n_nodes))
        return sparse.csr_array(sparse.diags_array(1 / np.asarray(received.sum(axis=1)).ravel()) @ received)

    node, clock = np.tile(np.arange(n_nodes), rounds), np.repeat(np.arange(1, rounds + 1), n_nodes)
    sent = [np.bincount(draw_links(number)[:, 1], minlength=n_nodes) for number in range(rounds)]
    columns: dict[str, Any] = {"node": node, "model": node, "hops": np.concatenate(sent), "clock": clock}
    name = "gossip-push" if push else "gossip-matching"
    return TrainingTrace(algorithm=name, n_nodes=n_nodes, n_models=n_nodes, mixing=mix, round_sends=(1, 1.0), **columns)


def fedavg_peers(n_nodes: int) -> int:
    """Return how many nodes FedAvg asks in a round."""
    return max(n_nodes // _FEDAVG_SHARE, 1)


def fedavg_trace(graph: Graph, *, updates: int, seed: int) -> TrainingTrace:
    """Return rounds of FedAvg: a server sends its model to a tenth of the nodes, and averages what they make of it.

    The server has ten times a node's line.
    """
    from scipy import sparse

    validate.integer(1, updates=updates)
    participants = fedavg_peers(graph.n_nodes)
    rounds = -(-updates // participants)
    draws = (task_generator(seed, _ROUND_TASK, number) for number in range(rounds))
    node = np.concatenate([rng.choice(graph.n_nodes, participants, replace=False) for rng in draws])
    model, clock = np.tile(np.arange(participants), rounds), np.repeat(np.arange(1, rounds + 1), participants)
    columns: dict[str, Any] = {"node": node, "model": model, "hops": np.array(2), "clock": clock}
    mean = sparse.csr_array(np.full((participants, participants), 1 / participants))
    sends = (2, 2 * max(participants / _SERVER_LINES, 1.0))
    return TrainingTrace(
        algorithm="fedavg",
        n_nodes=graph.n_nodes,
        n_models=participants,
        mixing=lambda _: mean,
        round_sends=sends,
        **columns,
    )


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
    dwell_s: float | None = option(
        None,
        "Seconds every message stays at every node, whether it trains or not; 0 for none.",
        "SECONDS",
        key="dwell",
        usual="one and a half updates, at least 0.05: modelled, or by a trial update",
        rare=True,
    )

    def __post_init__(self) -> None:
        dwell_s = self.dwell_s or 0.0
        validate.finite(
            bandwidth=self.bandwidth_bytes_per_s, latency=self.latency_s, compute=self.compute_s, dwell=dwell_s
        )
        validate.more_than(0, bandwidth=self.bandwidth_bytes_per_s)
        validate.at_least(0, latency=self.latency_s, compute=self.compute_s, dwell=dwell_s)

    @property
    def settled_dwell_s(self) -> float:
        """The dwell, given or usual."""
        return max(_LEAST_DWELL_S, _DWELL_UPDATES * self.compute_s) if self.dwell_s is None else self.dwell_s


#: Lines by which pages and tables say seconds.
LINES = {
    f"{megabits} Mbit/s, {milliseconds} ms": CostModel(
        bandwidth_bytes_per_s=megabits * 125_000, latency_s=milliseconds / 1000
    )
    for megabits in (10, 100)
    for milliseconds in (20, 100)
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Ledger:
    """Running totals after each update of a trace; entry 0 is before the first.

    Attributes:
        message_bytes: Size of every message.
        hops: Transfers of a model from one node to the next.
        sent_bytes: Hops times the size.
        seconds: Modelled; models in flight at once share the time.
        trace: What it is the costs of.
    """

    message_bytes: int
    hops: IntArray
    sent_bytes: IntArray
    seconds: FloatArray
    trace: TrainingTrace

    def model_seconds(self, cost: CostModel, updates: int) -> float:
        """Return how long so many updates take with another line."""
        return float(_model_seconds(self.trace, cost, self.message_bytes)[:updates].max(initial=0.0))


def params_bytes(params: Params, *, payload: str = "fp32") -> int:
    """Return the bytes of the arrays of a model, as ``payload`` says that they travel."""
    return sum(array_bytes(payload, array.shape, array.dtype) for array in map(np.asarray, params.values()))


def sealed_bytes(params_bytes: int, *, suite: SuiteName = "hybrid", recipients: int = 1) -> int:
    """Return the length of the sealed message that carries parameters of so many bytes: all of a run are equal."""
    return MessageGeometry.for_body(params_bytes, suite=suite, recipients=recipients).message_bytes


def make_ledger(trace: TrainingTrace, cost: CostModel, *, params_bytes: int) -> Ledger:
    """Return the costs of ``trace`` for a model of so many bytes."""
    size = params_bytes
    # Others send the parameters as they are.
    if trace.recipients:
        size = sealed_bytes(params_bytes, suite=trace.suite, recipients=trace.recipients)
    sent = trace.hops.copy()
    for rows in trace.rounds():
        # What ends a run is flooded by any algorithm, and not counted.
        sent[rows.stop - 1 : rows.stop] += trace.n_models * trace.meet_sends[0] * (rows.stop < len(trace))
    hops = np.concatenate(([0], np.cumsum(sent)))
    seconds = np.concatenate(([0.0], _model_seconds(trace, cost, size)))
    return Ledger(message_bytes=size, hops=hops, sent_bytes=hops * size, seconds=seconds, trace=trace)


def _model_seconds(trace: TrainingTrace, cost: CostModel, size: int) -> FloatArray:
    """Return when each update is made, and all before it are, with messages of so many bytes.

    In rounds all update at once, and the last to have sent ends the round. A sealed message dwells at every node, and
    an update is made meanwhile; walks go side by side, and at a meeting wait for the last one and for all models.
    """
    sending_s = size / cost.bandwidth_bytes_per_s
    if trace.mixing is not None:
        latencies, messages = trace.round_sends
        return np.asarray(trace.clock * (cost.compute_s + latencies * cost.latency_s + messages * sending_s))
    dwell_s = cost.settled_dwell_s if trace.recipients else 0.0
    hop_s = cost.latency_s + sending_s
    legs = trace.hops * (hop_s + dwell_s) + max(cost.compute_s - dwell_s, 0.0)
    _, depth, models = trace.meet_sends
    done_s = trace.time_updates(legs, depth * hop_s + models * sending_s)
    return np.asarray(np.maximum.accumulate(done_s))
