"""The scenario: scheme, data, partition, learner and mechanism, read and checked; a run before it starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from veilwalk.core.errors import InvalidParameterError
from veilwalk.design import LAWS, Scheme, choose_scheme, recommended_scheme, require_destinations
from veilwalk.graphs import Graph, parse_graph_spec
from veilwalk.learning import (
    Array,
    Data,
    Learner,
    NaturalIdPartitioner,
    Partitioner,
    Partitions,
    Protection,
    ProtectionRequest,
    RunSize,
    TrainingTask,
    TrainingTrace,
    central_trace,
    data_of,
    describe_scaling,
    gossip_trace,
    is_own_learner,
    load_data,
    make_learner,
    parse_partition_spec,
    partitions_of,
    plain_trace,
    scale_data,
    scale_like,
    trace_of,
)
from veilwalk.training._settings import PAPER, PRIVATE, TrainSettings
from veilwalk.walks import read_trace, write_trace

_GIVEN = "given"
#: What partitioners call their numbers, in the words of who asked for them.
_WORDS = {
    "num_partitions": "nodes",
    "num_classes_per_partition": "classes of a node",
    "num_shards_per_partition": "pieces of a node",
    "min_partition_size": "rows of a node",
    "partitions": "nodes",
    "partition": "node",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Scenario:
    """What is trained, by whom, over what: the same for a simulated run and a real one.

    Attributes:
        scheme: Network, destination law and walk.
        data: Training and held-out rows.
        partitions: The rows of each node.
        learner: The model and how it is updated.
        protection: Clipping and noise.
        payload: How the numbers of a model travel.
        names: What ``graph``, ``data``, ``partition`` and ``learner`` are called: their specs where they have one.
        notes: What a user should know of the data: how they are scaled, and which node has what. One line each.
    """

    scheme: Scheme
    data: Data
    partitions: Partitions
    learner: Learner
    protection: Protection = field(default_factory=Protection)
    payload: str = "fp32"
    names: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_destinations(self.scheme)
        if len(self.partitions) != self.graph.n_nodes:
            need = f"one that makes {self.graph.n_nodes} parts, one for each node (it makes {len(self.partitions)})"
            raise InvalidParameterError("partition", self.names.get("partition", _GIVEN), need)
        # A law that never leaves some nodes is refused now, and not after the training.
        _ = self.scheme.source_prior

    @classmethod
    def of(cls, settings: TrainSettings) -> Self:
        """Read and check everything that ``settings`` name; what they leave open is chosen to fit the graph."""
        graph = parse_graph_spec(settings.graph)
        scheme = scheme_of(graph, settings)
        if settings.support not in {None, str(scheme.law.support)}:
            need = f"left out: the law in {settings.law} has distances {scheme.law.support} of its own"
            raise InvalidParameterError("support", settings.support, need)
        return cls.make(
            scheme,
            data=settings.data,
            partition=settings.partition,
            learner=settings.chosen_learner,
            seed=settings.seed,
            protection=settings.protection,
            updates=settings.updates,
            tokens=settings.tokens,
            payload=settings.payload,
            graph_name=settings.graph,
        )

    @classmethod
    def make(
        cls,
        scheme: Scheme,
        *,
        data: str | Data | tuple[Array, Array],
        partition: Any,
        learner: str | Learner | None,
        seed: int,
        protection: ProtectionRequest | None = None,
        updates: int = 1,
        tokens: int = 1,
        payload: str = "fp32",
        graph_name: str = "",
        scale: str | None = None,
    ) -> Self:
        """Put a scenario together from objects, or from the specs that name them.

        Args:
            scheme: network, law and walk.
            data: a spec, data, or features and labels, of which a fifth is held out.
            partition: a spec, partitions, or whatever ``learning.partitions_of`` takes.
            learner: a spec or a learner; None for one that fits an epsilon asked for.
            seed: of the rows held out and of the partition.
            protection: what noise is to reach.
            updates: of the run, by which an epsilon finds its noise.
            tokens: models that walk side by side.
            payload: how the numbers of a model travel.
            graph_name: what the network is called, where it is not its own name.
            scale: how features and real labels are scaled, ``none``, ``range`` or ``rows``. None: as the data say, or
                else by their range for the package's own learners, and not for others.
        """
        if isinstance(data, str) and scale is not None:
            data = f"{data}:scale={scale}"
        rows, asked = _data(data, seed, scale), protection or ProtectionRequest()
        size = RunSize(updates=updates, nodes=scheme.graph.n_nodes, rows=len(rows.train), models=tokens)
        learner = asked.usual_learner(size) if learner is None else learner
        names = {
            "graph": graph_name or scheme.graph.name or _GIVEN,
            "data": data if isinstance(data, str) else rows.name,
            "partition": partition if isinstance(partition, str) else type(partition).__name__,
            "learner": learner if isinstance(learner, str) else learner_name(learner),
        }
        unscaled, dealt = "", None
        if rows.scaling_open:
            if not isinstance(partition, str | Partitioner):
                # These may hold rows of their own, which are not scaled yet.
                dealt = _dealt(partition, scheme.graph, rows, seed)
            is_own = is_own_learner(learner)
            unscaled = _remark_unscaled(rows, names["learner"]) if is_own else ""
            rows = scale_data(rows, "none" if is_own else "range")
        if isinstance(learner, str):
            learner = make_learner(learner, n_features=rows.n_features, n_classes=rows.n_classes)
        if dealt is None:
            partitions = _dealt(partition, scheme.graph, rows, seed)
        else:
            partitions = Partitions(scale_like(dealt.rows, rows), dealt.sizes, remark=dealt.remark)
        return cls(
            scheme=scheme,
            data=rows,
            partitions=partitions,
            learner=learner,
            protection=asked.settle(learner, size),
            payload=payload,
            names=names,
            notes=tuple(note for note in (describe_scaling(rows), unscaled, partitions.remark) if note),
        )

    @property
    def graph(self) -> Graph:
        """The network."""
        return self.scheme.graph

    @property
    def n_classes(self) -> int:
        """Classes of the data."""
        return self.data.n_classes

    @property
    def learner_spec(self) -> str:
        """What the learner is called: its spec, where it was made from one."""
        return self.names.get("learner", _GIVEN)

    def words(self) -> dict[str, Any]:
        """Return the settings that say what is here."""
        law, walk = self.scheme.law, self.scheme.walk
        return {
            **{part: self.names.get(part, _GIVEN) for part in ("graph", "data", "partition", "learner")},
            "law": law.name or _GIVEN,
            # The name of a far law says its distances.
            "support": None if law.name.startswith("far:") else str(law.support),
            "recipients": self.scheme.recipients,
            "walk": walk.kind,
            "protect": self.protection.unit,
            "epsilon": self.protection.epsilon,
            "noise": 0.0 if self.protection.epsilon else self.protection.noise,
            "clip": self.protection.clip,
            "most_updates": self.protection.most_updates,
            "payload": self.payload,
        }

    def arrays(self) -> Iterator[Array]:
        """Yield what the names stood for when the run began: rows, and a law that is not made by its name."""
        rows, test = self.partitions.rows, self.data.test
        yield from (rows.features, rows.labels, self.partitions.sizes, test.features, test.labels)
        if self.scheme.law.name.split(":")[0] not in LAWS:
            matrix = self.scheme.law.matrix
            yield from (matrix.indptr, matrix.indices, matrix.data)

    def task(self, algorithm: str, *, seed: int) -> TrainingTask:
        """Return the task of an algorithm; central training, the ceiling, has all data in one place."""
        central = algorithm == "central"
        protection = Protection() if central else self.protection
        return TrainingTask(
            learner=protection.learner(self.learner),
            partitions=[self.partitions.rows] if central else self.partitions,
            held_out=self.data.test,
            seed=seed,
            mod=protection.mod(),
            most_updates=protection.most_updates,
            payload="fp32" if central else self.payload,
        )

    def trace(
        self, algorithm: str, *, updates: int, seed: int, tokens: int = 1, kept: Path | None = None
    ) -> TrainingTrace:
        """Return who updates when; the private walk is read from ``kept`` where it was walked before."""
        match algorithm:
            case "plain-walk":
                return plain_trace(self.graph, updates=updates, seed=seed, tokens=tokens)
            case "gossip":
                return gossip_trace(self.graph, rounds=-(-updates // self.graph.n_nodes))
            case "central":
                return central_trace(updates=updates)
        scheme = self.paper_scheme if algorithm == PAPER else self.scheme
        walked = scheme.iter_updates(updates=updates, seed=seed, tokens=tokens, replicas=1)
        if kept is not None and algorithm == PRIVATE:
            if not kept.exists():
                write_trace(kept, walked, graph=self.graph, seed=seed, params={"algorithm": PRIVATE})
            walked = read_trace(kept, graph=self.graph).chunks()
        return trace_of(self.graph, np.concatenate(list(walked)), recipients=scheme.recipients)

    @cached_property
    def paper_scheme(self) -> Scheme:
        """The paper's scheme on this graph, or what is like it: sealed for one."""
        return choose_scheme(self.graph)


def scheme_of(graph: Graph, settings: TrainSettings) -> Scheme:
    """Return the scheme that settings ask for; a word on law, walk or recipients rules the other settings out."""
    if settings.leaves_open and settings.scheme == "auto":
        return recommended_scheme(graph)
    chosen = choose_scheme(
        graph,
        settings.law,
        support=settings.support,
        walk=settings.chosen_walk,
        recipients=settings.recipients,
    )
    return require_destinations(chosen)


def learner_name(learner: object) -> str:
    """Return what tells a learner from others: its own ``spec``, its fields if a dataclass, or else its class."""
    spec = getattr(learner, "spec", None)
    if isinstance(spec, str):
        return spec
    kind = type(learner)
    return repr(learner) if is_dataclass(kind) else f"{kind.__module__}:{kind.__qualname__}"


def _data(given: Any, seed: int, scale: str | None) -> Data:
    if isinstance(given, str):
        return load_data(given, seed=seed)
    if not isinstance(given, Data):
        if not isinstance(given, list | tuple) or len(given) != 2:
            raise InvalidParameterError("data", given, "a spec, Data, or a pair of features and labels")
        return data_of(*given, seed=seed, scale=scale)
    return given if scale is None else scale_data(given, scale)


def _remark_unscaled(data: Data, learner: str) -> str:
    """Return a line that says that a learner of the user's own is given features as they are; none if in [0, 1]."""
    low, high = data.train.features.min(), data.train.features.max()
    if low >= 0 and high <= 1:
        return ""
    return f"features, {low:g} to {high:g}, are not scaled for {learner} (:scale=range scales them to [0, 1])"


def _dealt(partition: Any, graph: Graph, data: Data, seed: int) -> Partitions:
    """Deal out the rows; refusals speak of nodes and rows, not of what a partitioner calls them."""
    if isinstance(partition, NaturalIdPartitioner) and partition.names is None:
        partition = replace(partition, names=graph.labels)
    if not isinstance(partition, str):
        return partitions_of(partition, data)
    source, rows = parse_partition_spec(partition, graph=graph, seed=seed), len(data.train)
    if graph.n_nodes > rows and not partition.startswith("natural"):
        need = f"of at most {rows} nodes: so many rows there are to train on, and every node needs one"
        raise InvalidParameterError("graph", f"{graph.n_nodes} nodes", need)
    try:
        return partitions_of(source, data)
    except InvalidParameterError as error:
        if error.name == "partition":
            raise
        if error.name == "partition_by":
            need = f"by a column that the data have, {error.need} (not {error.value})"
            raise InvalidParameterError("partition", partition, need) from error
        said = f"{_WORDS.get(error.name, error.name)} {error.value}, where they must be {error.need}"
        for theirs, ours in _WORDS.items():
            said = said.replace(theirs, ours)
        raise InvalidParameterError("partition", partition, f"possible here (not {said})") from error
