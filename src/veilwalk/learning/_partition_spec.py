"""Partitioners by a line of text, as the command line names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from veilwalk.core.errors import InvalidParameterError
from veilwalk.graphs import Graph
from veilwalk.learning._partition import LABEL, Partitioner
from veilwalk.learning._partition_graph import GraphCorrelatedPartitioner
from veilwalk.learning._partitioners import (
    DirichletPartitioner,
    GroupPartitioner,
    IidPartitioner,
    NaturalIdPartitioner,
    PathologicalPartitioner,
    ShardPartitioner,
)


@dataclass(frozen=True, slots=True)
class PartitionKind:
    """One way to deal out data that a spec can name.

    Attributes:
        usage: How it is written.
        help: What it is, in one line.
        build: Makes the partitioner from the value, the graph and the seed.
        value: Type of the value; None where there is none.
    """

    usage: str
    help: str
    build: Callable[..., Partitioner]
    value: type[int | float | str] | None


PARTITION_KINDS: Mapping[str, PartitionKind] = MappingProxyType(
    {
        "iid": PartitionKind(
            "iid", "evenly at random", lambda _, graph, seed: IidPartitioner(graph.n_nodes, seed), None
        ),
        "dirichlet": PartitionKind(
            "dirichlet:ALPHA",
            "classes shared out by a Dirichlet law, at least one row a node; the smaller ALPHA the more skewed",
            lambda value, graph, seed: DirichletPartitioner(
                graph.n_nodes, LABEL, value, min_partition_size=1, seed=seed, fill=True
            ),
            float,
        ),
        "shards": PartitionKind(
            "shards:PER_NODE",
            "rows sorted by class, PER_NODE pieces for each node",
            lambda value, graph, seed: ShardPartitioner(graph.n_nodes, LABEL, value, seed=seed),
            int,
        ),
        "pathological": PartitionKind(
            "pathological:CLASSES",
            "CLASSES classes for each node",
            lambda value, graph, seed: PathologicalPartitioner(graph.n_nodes, LABEL, value, seed=seed),
            int,
        ),
        "graph": PartitionKind(
            "graph:CORRELATION",
            "neighbours hold the same classes: 0 evenly at random, 1 each class its own region",
            lambda value, graph, seed: GraphCorrelatedPartitioner(graph, value, seed=seed),
            float,
        ),
        "natural": PartitionKind(
            "natural:COLUMN",
            "rows to the node that a column of the data names; without names, values in order",
            lambda value, graph, _seed: NaturalIdPartitioner(value, graph.labels),
            str,
        ),
        "groups": PartitionKind(
            "groups:COLUMN",
            "values of a column in their order, as many for each node: several users each",
            lambda value, graph, _seed: GroupPartitioner(graph.n_nodes, value),
            str,
        ),
    }
)


def parse_partition_spec(text: str, *, graph: Graph, seed: int) -> Partitioner:
    """Make the partitioner that ``text`` names for the nodes of ``graph``, for example ``dirichlet:0.3``."""
    name, _, value = text.strip().partition(":")
    kind = PARTITION_KINDS.get(name)
    if kind is None:
        known = ", ".join(entry.usage for entry in PARTITION_KINDS.values())
        raise InvalidParameterError("partition", text, f"one of {known}")
    if bool(value) != (kind.value is not None):
        raise InvalidParameterError("partition", text, kind.usage)
    if kind.value is None:
        return kind.build(None, graph, seed)
    try:
        return kind.build(kind.value(value), graph, seed)
    except ValueError as error:
        if isinstance(error, InvalidParameterError):
            raise
        what = "whole number" if kind.value is int else "number"
        raise InvalidParameterError("partition", text, f"{kind.usage} ({value!r} is not a {what})") from None
