"""From settings to what is trained: network, law, data, learner, traces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from veilwalk.audit import chosen_law
from veilwalk.core.errors import InvalidParameterError
from veilwalk.design import DestinationLaw
from veilwalk.experiments._train_settings import PRIVATE, TrainSettings
from veilwalk.graphs import Graph, parse_graph_spec
from veilwalk.learning import (
    ClipUpdate,
    Data,
    Learner,
    Partitions,
    TrainingTask,
    TrainingTrace,
    UpdateMod,
    central_trace,
    gossip_trace,
    load_data,
    make_learner,
    parse_partition_spec,
    partitions_of,
    plain_trace,
    private_mods,
    trace_of,
)
from veilwalk.walks import iter_protocol, read_trace, write_trace


@dataclass(frozen=True, eq=False, kw_only=True)
class Setup:
    """Everything that settings name, read and checked; nothing is trained yet."""

    settings: TrainSettings
    graph: Graph
    law: DestinationLaw
    data: Data
    partitions: Partitions
    learner: Learner

    @cached_property
    def identity(self) -> str:
        """Name of the run: its settings, and the data that their names stood for when it began."""
        found = hashlib.sha256(self.settings.digest.encode())
        rows = self.partitions.rows
        for array in (
            rows.features,
            rows.labels,
            self.partitions.sizes,
            self.data.test.features,
            self.data.test.labels,
        ):
            found.update(np.ascontiguousarray(array).view(np.uint8).data)
        return found.hexdigest()

    def task(self, algorithm: str) -> TrainingTask:
        """Return the task of an algorithm; central training, the ceiling, has all data in one place and no noise."""
        central = algorithm == "central"
        return TrainingTask(
            learner=self.learner,
            partitions=[self.partitions.rows] if central else self.partitions,
            held_out=self.data.test,
            seed=self.settings.seed,
            mod=None if central else _mod(self.settings),
        )

    def trace(self, algorithm: str, kept: Path | None = None) -> TrainingTrace:
        """Return who updates when; the private walk is read from ``kept`` where it was walked before."""
        settings = self.settings
        match algorithm:
            case "plain-walk":
                return plain_trace(self.graph, updates=settings.updates, seed=settings.seed, tokens=settings.tokens)
            case "gossip":
                return gossip_trace(self.graph, rounds=-(-settings.updates // self.graph.n_nodes))
            case "central":
                return central_trace(updates=settings.updates)
            case _:
                return self._private_trace(kept)

    def _private_trace(self, kept: Path | None) -> TrainingTrace:
        if kept is None:
            return trace_of(self.graph, np.concatenate(list(self._walk())))
        if not kept.exists():
            write_trace(kept, self._walk(), graph=self.graph, seed=self.settings.seed, params={"algorithm": PRIVATE})
        return trace_of(self.graph, np.concatenate(list(read_trace(kept, graph=self.graph).chunks())))

    def _walk(self) -> Iterator[np.ndarray[tuple[int], np.dtype[np.void]]]:
        settings = self.settings
        return iter_protocol(
            self.graph,
            self.law.matrix,
            updates=settings.updates,
            seed=settings.seed,
            tokens=settings.tokens,
            replicas=1,
            walk=settings.walk,
            mix=settings.mix,
        )


def set_up(settings: TrainSettings) -> Setup:
    """Read and check everything that ``settings`` name."""
    graph = parse_graph_spec(settings.graph)
    law = chosen_law(settings.law, graph, settings.distances)
    law.check_graph(graph)
    data = load_data(settings.data, seed=settings.seed)
    dealt = partitions_of(parse_partition_spec(settings.partition, graph=graph, seed=settings.seed), data)
    if len(dealt) != graph.n_nodes:
        need = f"one that makes {graph.n_nodes} parts, one for each node (it makes {len(dealt)})"
        raise InvalidParameterError("partition", settings.partition, need)
    learner = make_learner(settings.learner, n_features=data.n_features, n_classes=data.n_classes)
    return Setup(settings=settings, graph=graph, law=law, data=data, partitions=dealt, learner=learner)


def _mod(settings: TrainSettings) -> UpdateMod | None:
    if settings.noise:
        return private_mods(noise_multiplier=settings.noise, max_norm=settings.clip)
    return ClipUpdate(settings.clip) if settings.clip else None
