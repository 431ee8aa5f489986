"""The scenario: scheme, data, partition, learner and mechanism, read and checked; a run before it starts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from veilwalk import learning
from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.walk import Walk
from veilwalk.design import LAWS, Scheme, choose_scheme, recommend
from veilwalk.graphs import Graph, parse_graph_spec
from veilwalk.learning import Data, Learner, Partitioner, Partitions, Protection, TrainingTask, TrainingTrace
from veilwalk.training._spec import PAPER, PRIVATE, TRAIN, USUAL_PARTITION, RunSpec
from veilwalk.walks import read_trace, write_trace


@dataclass(frozen=True, eq=False, kw_only=True)
class Scenario:
    """What is trained, by whom, over what: the same for a simulated run and a real one.

    ``spec`` has the names of everything that was chosen or given for the run; ``data`` are training and held-out rows,
    ``partitions`` those of each node; ``notes`` say how rows are scaled and which node has what.
    """

    scheme: Scheme
    spec: RunSpec
    data: Data
    partitions: Partitions
    learner: Learner
    protection: Protection = field(default_factory=Protection)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.scheme.require_sealed()
        if len(self.partitions) != self.graph.n_nodes:
            need = f"one that makes {self.graph.n_nodes} parts, one for each node (it makes {len(self.partitions)})"
            raise InvalidParameterError("partition", self.spec.learning.partition, need)
        # A scheme under which some node never trains is refused now, and not after the training.
        self.scheme.require_everybody()

    @classmethod
    def from_spec(cls, spec: RunSpec, *, progress: Progress = silent) -> Self:
        """Read and check everything that ``spec`` names; what it leaves open is chosen to fit the network."""
        scheme = build_scheme(parse_graph_spec(spec.network), spec, progress=progress).require_sealed()
        if spec.scheme.support not in {None, str(scheme.law.support)}:
            need = f"left out: the law in {spec.scheme.law} has distances {scheme.law.support} of its own"
            raise InvalidParameterError("support", spec.scheme.support, need)
        return cls.build(scheme, spec, data=spec.learning.data, partition=spec.learning.partition, learner=spec.learner)

    @classmethod
    def build(
        cls,
        scheme: Scheme,
        spec: RunSpec = TRAIN.defaults,
        *,
        data: Any,
        partition: Any,
        learner: str | Learner | None,
        scale: str | None = None,
        usual_partition: str = USUAL_PARTITION,
    ) -> Self:
        """Build a scenario from objects, or from the specs that name them; they replace what ``spec`` names.

        ``data``, ``partition``, ``learner`` and ``scale`` are those of :func:`~veilwalk.training.train`; without a
        learner it is one that fits the epsilon. Data without sites are dealt out by ``usual_partition``.
        """
        if isinstance(data, str) and scale is not None:
            data = f"{data}:scale={scale}"
        rows, request = _load(data, spec.seed, scale, nodes=scheme.graph.n_nodes), spec.privacy
        request = replace(request, most_updates=request.most_updates or scheme.most_updates)
        if partition is None:
            partition = usual_partition if rows.sites is None else f"natural:{learning.SITE}"
        if isinstance(partition, str):
            partition = learning.parse_partition_spec(partition, graph=scheme.graph, seed=spec.seed)
        # Rows that were dealt out already stay as they are; and a learner is made for what it is given.
        is_noised = request.protect == "record" and bool(request.epsilon) and learner is None
        if rows.is_image and is_noised and isinstance(partition, Partitioner):
            rows = learning.scatter_data(rows)
            data = f"{data}:features=scatter" if isinstance(data, str) else data
        is_scattered = rows.scaler.features == "scatter"
        size = spec.size(nodes=scheme.graph.n_nodes, rows=len(rows.train), is_scattered=is_scattered)
        learner = request.usual_learner(size) if learner is None else learner
        need = "a spec, or an object with init_params, update and evaluate"
        validate.instance((str, Learner), need, learner=learner)
        learner = spec.settle_learner(learner)
        name = learner if isinstance(learner, str) else learner_name(learner)
        # Parts that are given may hold rows of their own, which are scaled as the data are.
        partitions = None if isinstance(partition, Partitioner) else learning.make_partitions(partition, rows)
        remark = ""
        if rows.scaling_open:
            is_own = learning.is_own_learner(learner)
            remark = _remark_unscaled(rows, name) if is_own else ""
            rows = learning.scale_data(rows, "none" if is_own else "range")
            if partitions is not None:
                parts = learning.scale_like(partitions.rows, rows)
                partitions = Partitions(parts, partitions.sizes, remark=partitions.remark)
        if isinstance(learner, str):
            learner = learning.make_learner(learner, n_features=rows.n_features, n_classes=rows.n_classes)
        if partitions is None:
            partitions = learning.make_partitions(partition, rows)
        if callable(require_same_bits := getattr(learner, "require_same_bits", None)):
            require_same_bits(partitions[0], seed=spec.seed)
        notes = (learning.describe_scaling(rows), remark, partitions.remark, rows.class_remark)
        return cls(
            scheme=scheme,
            # With the names of what was chosen or given, from which anybody can build the same.
            spec=spec.change(
                graph=scheme.graph.name or "given",
                law=scheme.law.name or "given",
                # The name of a far law says its distances.
                support=None if scheme.law.name.startswith("far:") else str(scheme.law.support),
                walk=scheme.walk.kind,
                recipients=scheme.recipients,
                data=data if isinstance(data, str) else rows.name,
                partition=partition.spec.text if isinstance(partition, Partitioner) else type(partition).__name__,
                learner=name,
                local_steps=None,
            ),
            data=rows,
            partitions=partitions,
            learner=learner,
            protection=request.settle(learner, size),
            notes=tuple(note for note in notes if note),
        )

    def change(self, **options: Any) -> Self:
        """Return the scenario with other options of its run that its parts do not depend on: updates, seed, walks."""
        return replace(self, spec=self.spec.change(**options))

    @property
    def graph(self) -> Graph:
        """The network."""
        return self.scheme.graph

    def digest(self) -> str:
        """Return the name of the run: its specification, its rows, and a law that is not made by its name."""
        rows, test = self.partitions.rows, self.data.test
        arrays = [rows.features, rows.labels, self.partitions.sizes, test.features, test.labels]
        if self.scheme.law.name.split(":")[0] not in LAWS:
            matrix = self.scheme.law.matrix
            arrays += [matrix.indptr, matrix.indices, matrix.data]
        digest = hashlib.sha256(self.spec.digest.encode())
        for array in arrays:
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return digest.hexdigest()

    def task(self, algorithm: str) -> TrainingTask:
        """Return the task of an algorithm; central training, the ceiling, has all data in one place.

        What a node changes counts less in an older model by one rule, each to the end of its own models.
        """
        central, spec = algorithm == "central", self.spec
        # Models are tested and poisoned in walks only.
        is_walk = algorithm in {PRIVATE, PAPER, "plain-walk"}
        protection = Protection(fade=self.protection.fade) if central else self.protection
        if self.protection.decay:
            protection = replace(protection, decay=-(-spec.end.updates // self.count_models(algorithm)))
        return TrainingTask(
            learner=protection.learner(self.learner),
            partitions=[self.partitions.rows] if central else self.partitions,
            held_out=self.data.test,
            seed=spec.seed,
            mod=protection.mod(),
            most_updates=protection.most_updates,
            payload="fp32" if central else spec.learning.payload,
            acceptance=spec.learning.acceptance if is_walk else None,
            poison=spec.checks.poisoning if is_walk else None,
        )

    def count_models(self, algorithm: str) -> int:
        """Return how many models an algorithm has in flight."""
        if algorithm in learning.ROUND_ALGORITHMS:
            nodes = self.graph.n_nodes
            return learning.fedavg_peers(nodes) if algorithm == "fedavg" else nodes
        return 1 if algorithm == "central" else self.spec.end.walks

    def trace(self, algorithm: str, *, path: Path | None = None) -> TrainingTrace:
        """Return who updates when; the private walk is stored at ``path``, and read from there the second time."""
        updates, seed, tokens = self.spec.end.updates, self.spec.seed, self.spec.end.walks
        rounds, meet = -(-updates // self.graph.n_nodes), self.spec.end.meet
        match algorithm:
            case "plain-walk":
                trace = learning.plain_trace(self.graph, updates=updates, seed=seed, tokens=tokens)
                return trace.add_meetings(self.graph, meet)
            case "gossip":
                return learning.gossip_trace(self.graph, rounds=rounds)
            case "gossip-matching" | "gossip-push":
                push = algorithm == "gossip-push"
                return learning.sparse_gossip_trace(self.graph, rounds=rounds, seed=seed, push=push)
            case "fedavg":
                return learning.fedavg_trace(self.graph, updates=updates, seed=seed)
            case "central":
                return learning.central_trace(updates=updates)
        scheme = self.paper_scheme if algorithm == PAPER else self.scheme
        stored = path if algorithm == PRIVATE else None
        if stored is not None and stored.exists():
            records = read_trace(stored, graph=self.graph)
        else:
            records = np.concatenate(list(scheme.iter_trained(updates=updates, seed=seed, tokens=tokens)))
            if stored is not None:
                write_trace(stored, records, graph=self.graph)
        return learning.trace_of(self.graph, records, recipients=scheme.recipients).add_meetings(self.graph, meet)

    @cached_property
    def paper_scheme(self) -> Scheme:
        """The paper's scheme on this graph, which all members know there, or what is like it: sealed for one."""
        return choose_scheme(replace(self.graph, is_overlay=False))


def build_scheme(graph: Graph, spec: RunSpec, *, progress: Progress = silent) -> Scheme:
    """Return the scheme that a run on ``graph`` has: the recommended one, for as many recipients as are given."""
    parts = spec.scheme
    if parts.is_open and parts.choice == "auto":
        scheme = recommend(graph, progress=progress).scheme
        return scheme if parts.recipients is None else replace(scheme, recipients=parts.recipients)
    walk = None if parts.walk is None else Walk(parts.walk)
    return choose_scheme(graph, parts.law, support=parts.support, walk=walk, recipients=parts.recipients)


def learner_name(learner: object) -> str:
    """Return what tells a learner from others: its own ``spec``, its fields if a dataclass, or else its class."""
    spec = getattr(learner, "spec", None)
    if isinstance(spec, str):
        return spec
    kind = type(learner)
    return repr(learner) if is_dataclass(kind) else f"{kind.__module__}:{kind.__qualname__}"


def _load(given: Any, seed: int, scale: str | None, *, nodes: int) -> Data:
    if isinstance(given, str) and given == learning.PARTITIONS:
        return learning.partition_numbers(nodes)
    if isinstance(given, str):
        return learning.load_data(given, seed=seed)
    if isinstance(given, Data):
        return given if scale is None else learning.scale_data(given, scale)
    if isinstance(given, Mapping) or (isinstance(given, list) and all(isinstance(pair, tuple) for pair in given)):
        return learning.data_of_sites(given, seed=seed, scale=scale)
    if not isinstance(given, list | tuple) or len(given) != 2:
        need = "a spec, Data, a pair of features and labels, or such pairs by site (a dict or a list)"
        raise InvalidParameterError("data", given, need)
    return learning.data_of(*given, seed=seed, scale=scale)


def _remark_unscaled(data: Data, learner: str) -> str:
    """Return a line that says that a learner of the user's own is given features as they are; none if in [0, 1]."""
    low, high = data.train.features.min(), data.train.features.max()
    if low >= 0 and high <= 1:
        return ""
    return f"features, {low:g} to {high:g}, are not scaled for {learner} (:scale=range scales them to [0, 1])"
