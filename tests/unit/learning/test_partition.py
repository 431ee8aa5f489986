"""Partitioners one by one, their specs, and the adapter for strangers' partitioners."""

from __future__ import annotations

import numpy as np
import pytest

from veilwalk.core.errors import InvalidParameterError
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import (
    PARTITION_KINDS,
    Array,
    Data,
    DirichletPartitioner,
    GraphCorrelatedPartitioner,
    IidPartitioner,
    NaturalIdPartitioner,
    Partition,
    Partitioner,
    Partitions,
    PathologicalPartitioner,
    ShardPartitioner,
    load_data,
    parse_partition_spec,
    partitions_of,
)

LABELS = np.repeat(np.arange(5), 40)


def rows(labels: Array = LABELS) -> Partition:
    """Rows that know their own number."""
    return Partition(np.arange(len(labels), dtype=np.float32)[:, np.newaxis], labels)


def classes_of(parts: Partitions) -> list[int]:
    return [len(np.unique(part.labels)) for part in parts]


def skew(parts: Partitions) -> float:
    """Mean share of a node's commonest class."""
    return float(np.mean([np.bincount(part.labels).max() / len(part) for part in parts]))


def test_iid_parts_are_even_and_mixed() -> None:
    """Sizes differ by at most one; every node sees nearly every class."""
    parts = IidPartitioner(num_partitions=7).bind(rows())
    assert parts.sizes.max() - parts.sizes.min() <= 1
    assert min(classes_of(parts)) == 5


def test_dirichlet_parts_grow_more_skewed_as_alpha_falls() -> None:
    """From near even to nearly one class a node."""
    found = [skew(DirichletPartitioner(5, "label", alpha, 1).bind(rows())) for alpha in (100.0, 1.0, 0.1)]
    assert found[0] < 0.35
    assert found == sorted(found)
    assert found[2] > 0.7


def test_dirichlet_respects_the_least_size_and_alpha_by_node() -> None:
    """Also with one alpha for each node: a larger one gets more."""
    parts = DirichletPartitioner(4, "label", 1.0, min_partition_size=20).bind(rows())
    assert parts.sizes.min() >= 20
    favoured = DirichletPartitioner(2, "label", [50.0, 5.0], 1).bind(rows())
    assert favoured.sizes[0] > 3 * favoured.sizes[1]


def test_self_balancing_evens_the_sizes() -> None:
    """A node that has its share gets no more classes."""
    plain = DirichletPartitioner(5, "label", 0.3, 1).bind(rows())
    balanced = DirichletPartitioner(5, "label", 0.3, 1, self_balancing=True).bind(rows())
    assert balanced.sizes.max() < plain.sizes.max()


def test_filling_gives_every_node_a_row_where_draws_would_not() -> None:
    """100 nodes for 200 rows at alpha 0.05: refused by drawing, possible by filling."""
    with pytest.raises(InvalidParameterError, match=r"^min_partition_size = 1: .* 10 draws"):
        DirichletPartitioner(100, "label", 0.05, min_partition_size=1).deal(LABELS)
    parts = DirichletPartitioner(100, "label", 0.05, min_partition_size=1, fill=True).bind(rows())
    assert parts.sizes.min() == 1
    assert parts.sizes.sum() == 200


def test_unshuffled_dirichlet_rows_stand_class_by_class() -> None:
    """And shuffled ones do not."""
    plain = DirichletPartitioner(3, "label", 5.0, 1, shuffle=False).bind(rows())
    mixed = DirichletPartitioner(3, "label", 5.0, 1).bind(rows())
    assert all(np.array_equal(part.labels, np.sort(part.labels)) for part in plain)
    assert not all(np.array_equal(part.labels, np.sort(part.labels)) for part in mixed)


def test_shards_give_each_node_few_classes() -> None:
    """Two shards of a class-sorted list hold at most four classes, mostly two."""
    parts = ShardPartitioner(20, "label", num_shards_per_partition=2).bind(rows())
    assert max(classes_of(parts)) <= 4
    assert np.mean(classes_of(parts)) < 2.5
    assert set(parts.sizes) == {10}


def test_shards_by_size_keep_or_leave_the_last() -> None:
    """200 rows in shards of 30: six whole ones and a rest of 20."""
    assert ShardPartitioner(3, "label", shard_size=30).bind(rows()).sizes.tolist() == [60, 60, 60]
    kept = ShardPartitioner(3, "label", shard_size=30, keep_incomplete_shard=True).bind(rows())
    assert kept.sizes.sum() == 200
    both = ShardPartitioner(3, "label", num_shards_per_partition=1, shard_size=30).bind(rows())
    assert both.sizes.tolist() == [30, 30, 30]


@pytest.mark.parametrize("mode", ["random", "deterministic", "first-deterministic"])
def test_pathological_nodes_have_exactly_so_many_classes(mode: str) -> None:
    """And classes are shared evenly by those that have them."""
    parts = PathologicalPartitioner(10, "label", 2, mode).bind(rows())  # type: ignore[arg-type]
    assert classes_of(parts) == [2] * 10
    assert parts.sizes.sum() == 200


def test_natural_ids_make_one_node_a_value() -> None:
    """By a column of the data, in the order of its values."""
    writer = np.array(["b", "a", "c", "a"])
    train = rows(np.array([0, 1, 0, 1]))
    data = Data(name="x", train=train, test=train, columns={"writer": writer})
    parts = NaturalIdPartitioner("writer").bind(data)
    assert [part.features.ravel().tolist() for part in parts] == [[1, 3], [0], [2]]
    with pytest.raises(InvalidParameterError, match=r"^partition_by = 'hospital': must be one of label, writer"):
        NaturalIdPartitioner("hospital").bind(data)


def test_graph_correlation_makes_neighbours_alike() -> None:
    """The share of edges between nodes with the same main class rises with the correlation; at 0 it is chance."""
    graph = parse_graph_spec("rrg:100:3:seed=1")
    labels = np.repeat(np.arange(5), 400)
    edges = graph.edges()

    def alike(correlation: float) -> float:
        parts = GraphCorrelatedPartitioner(graph, correlation).bind(rows(labels))
        main = np.array([np.bincount(part.labels).argmax() for part in parts])
        return float(np.mean(main[edges[:, 0]] == main[edges[:, 1]]))

    found = [alike(correlation) for correlation in (0.0, 0.5, 1.0)]
    assert found[0] < 0.35
    assert found[1] > 0.55
    pure = GraphCorrelatedPartitioner(graph, 1.0).bind(rows(labels))
    assert set(pure.sizes) == {20}
    assert np.mean(np.array(classes_of(pure)) == 1) > 0.9
    even = GraphCorrelatedPartitioner(graph, 0.0).bind(rows(labels))
    assert min(classes_of(even)) >= 3


@pytest.mark.parametrize(
    ("partitioner", "name"),
    [
        (IidPartitioner(201), "num_partitions"),
        (IidPartitioner(0), "num_partitions"),
        (DirichletPartitioner(3, "label", 0.0), "alpha"),
        (DirichletPartitioner(3, "label", float("nan")), "alpha"),
        (DirichletPartitioner(3, "label", [1.0, 2.0]), "alpha"),
        (DirichletPartitioner(30, "label", 1.0, min_partition_size=10), "min_partition_size"),
        (DirichletPartitioner(3, "label", 1.0, min_partition_size=-1), "min_partition_size"),
        (ShardPartitioner(3, "label"), "shard_size"),
        (ShardPartitioner(100, "label", num_shards_per_partition=3), "num_shards_per_partition"),
        (ShardPartitioner(3, "label", num_shards_per_partition=0), "num_shards_per_partition"),
        (ShardPartitioner(3, "label", shard_size=100), "shard_size"),
        (PathologicalPartitioner(3, "label", 6), "num_classes_per_partition"),
        (PathologicalPartitioner(2, "label", 2), "num_classes_per_partition"),
        (PathologicalPartitioner(100, "label", 5), "num_classes_per_partition"),
        (PathologicalPartitioner(10, "label", 2, "by-luck"), "class_assignment_mode"),  # type: ignore[arg-type]
        (GraphCorrelatedPartitioner(parse_graph_spec("ring:5"), 1.5), "correlation"),
        (GraphCorrelatedPartitioner(parse_graph_spec("ring:201"), 0.5), "num_partitions"),
    ],
)
def test_what_cannot_be_is_refused_by_the_name_of_the_parameter(partitioner: Partitioner, name: str) -> None:
    """Before any loop that would not end."""
    with pytest.raises(InvalidParameterError, match=f"^{name} = "):
        partitioner.deal(LABELS)


def test_partitions_are_slices_of_one_block() -> None:
    """Views, in order, as a sequence and by load_partition."""
    parts = IidPartitioner(7).bind(rows())
    assert parts.num_partitions == len(parts) == 7
    assert np.shares_memory(parts[3].features, parts.rows.features)
    assert np.array_equal(np.concatenate([part.labels for part in parts]), parts.rows.labels)
    assert np.array_equal(parts[-1].labels, parts.load_partition(6).labels)
    assert [len(part) for part in parts[2:4]] == parts.sizes[2:4].tolist()
    with pytest.raises(InvalidParameterError, match="partition_id = 7"):
        parts.load_partition(7)
    with pytest.raises(IndexError):
        parts[7]
    with pytest.raises(InvalidParameterError, match="sizes"):
        Partitions(rows(), [1, 2])


class Foreign:
    """What the flwr-datasets library offers, as far as we use it."""

    num_partitions = 2

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def load_partition(self, partition_id: int) -> object:
        """Even or odd rows."""
        numbers = np.arange(partition_id, 200, 2)
        match self._kind:
            case "rows":
                return numbers
            case "table":
                return {"features": [[float(n)] for n in numbers], "labels": LABELS[numbers].tolist()}
            case "partition":
                return Partition(rows().features[numbers], LABELS[numbers])
            case _:
                return "nothing of use"


@pytest.mark.parametrize("kind", ["rows", "table", "partition"])
def test_any_object_with_the_two_members_is_taken(kind: str) -> None:
    """Whatever load_partition gives of the three things we know."""
    parts = partitions_of(Foreign(kind), rows())
    assert [part.features[:2, 0].tolist() for part in parts] == [[0, 2], [1, 3]]
    assert parts.rows.features.dtype == np.float32
    assert partitions_of(parts, rows()) is parts
    assert partitions_of(IidPartitioner(4), rows()).num_partitions == 4


def test_other_objects_are_refused() -> None:
    """By what they lack or gave."""
    with pytest.raises(InvalidParameterError, match="load_partition and num_partitions"):
        partitions_of(object(), rows())
    with pytest.raises(InvalidParameterError, match="columns features and labels"):
        partitions_of(Foreign("none"), rows())


SPECS = ["iid", "dirichlet:0.3", "shards:2", "pathological:2", "graph:0.8", "natural:label", "groups:label"]


def test_every_kind_has_a_spec_that_works_on_digits() -> None:
    """For 300 nodes where the kind does not say otherwise; there are ten classes to be grouped."""
    many, few, data = parse_graph_spec("rrg:300:3:seed=1"), parse_graph_spec("ring:5"), load_data("digits")
    assert [spec.partition(":")[0] for spec in SPECS] == list(PARTITION_KINDS)
    for spec in SPECS:
        grouped = spec.startswith("groups")
        parts = parse_partition_spec(spec, graph=few if grouped else many, seed=0).bind(data)
        assert parts.num_partitions == (10 if spec.startswith("natural") else 5 if grouped else 300)
        assert parts.sizes.min() >= 1
        assert parts.sizes.sum() == len(data.train)


@pytest.mark.parametrize("spec", ["", "even", "iid:3", "dirichlet", "dirichlet:x", "shards:1.5", "graph:"])
def test_bad_specs_are_refused_with_how_to_write_them(spec: str) -> None:
    """One line."""
    with pytest.raises(InvalidParameterError, match=r"^partition = "):
        parse_partition_spec(spec, graph=parse_graph_spec("ring:5"), seed=0)


def test_the_seed_of_a_spec_matters() -> None:
    """Another seed, another partition."""
    graph = parse_graph_spec("ring:10")
    one, two, other = (parse_partition_spec("iid", graph=graph, seed=seed).deal(LABELS) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
