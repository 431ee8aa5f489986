"""Partitions by specification, and the adapter for partitioners of other libraries."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from veilwalk.core.errors import InvalidParameterError
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import (
    PARTITION_KINDS,
    Array,
    Data,
    Partition,
    Partitions,
    load_data,
    make_partitions,
    parse_partition_spec,
)

LABELS = np.repeat(np.arange(5), 40)


def rows(labels: Array = LABELS) -> Partition:
    """Rows that know their own number."""
    return Partition(np.arange(len(labels), dtype=np.float32)[:, np.newaxis], labels)


def deal(spec: str, *, nodes: int, data: Data | Partition | None = None, seed: int = 42) -> Partitions:
    """Deal rows to the nodes of a ring."""
    partitioner = parse_partition_spec(spec, graph=parse_graph_spec(f"ring:{nodes}"), seed=seed)
    return make_partitions(partitioner, rows() if data is None else data)


def count_classes(parts: Partitions) -> list[int]:
    return [len(np.unique(part.labels)) for part in parts]


def skew(parts: Partitions) -> float:
    """Mean share of a node's commonest class."""
    return float(np.mean([np.bincount(part.labels).max() / len(part) for part in parts]))


def test_iid_parts_are_even_and_mixed() -> None:
    """Sizes differ by at most one; every node sees nearly every class."""
    parts = deal("iid", nodes=7)
    assert parts.sizes.max() - parts.sizes.min() <= 1
    assert min(count_classes(parts)) == 5


def test_dirichlet_parts_grow_more_skewed_as_alpha_falls() -> None:
    """From near even to nearly one class a node."""
    shares = [skew(deal(f"dirichlet:{alpha}", nodes=5)) for alpha in (100.0, 1.0, 0.1)]
    assert shares[0] < 0.35
    assert shares == sorted(shares)
    assert shares[2] > 0.7


def test_dirichlet_gives_every_node_a_row() -> None:
    """100 nodes for 200 rows at alpha 0.05: by draws alone most would have none."""
    parts = deal("dirichlet:0.05", nodes=100)
    assert parts.sizes.min() == 1
    assert parts.sizes.sum() == 200


def test_shards_give_each_node_few_classes() -> None:
    """Two shards of a class-sorted list hold at most four classes, mostly two."""
    parts = deal("shards:2", nodes=20)
    assert max(count_classes(parts)) <= 4
    assert np.mean(count_classes(parts)) < 2.5
    assert set(parts.sizes) == {10}


def test_natural_values_make_one_node_each() -> None:
    """By a column of the data, in the order of its values; an unknown column is refused with those there are."""
    train = rows(np.array([0, 1, 0, 1]))
    data = Data(name="x", train=train, test=train, columns={"writer": np.array(["b", "a", "c", "a"])})
    parts = deal("natural:writer", nodes=3, data=data)
    assert [part.features.ravel().tolist() for part in parts] == [[1, 3], [0], [2]]
    assert "b to 1" in parts.remark
    with pytest.raises(InvalidParameterError, match=r"^partition = 'natural:hospital'.*label, writer"):
        deal("natural:hospital", nodes=3, data=data)


def test_graph_correlation_makes_neighbours_similar() -> None:
    """The share of edges between nodes with the same main class rises with the correlation; at 0 it is chance."""
    graph = parse_graph_spec("rrg:100:3:seed=1")
    data, edges = rows(np.repeat(np.arange(5), 400)), graph.edges()

    def deal_by(correlation: float) -> Partitions:
        return make_partitions(parse_partition_spec(f"graph:{correlation}", graph=graph, seed=42), data)

    def share_of_similar(correlation: float) -> float:
        main = np.array([np.bincount(part.labels).argmax() for part in deal_by(correlation)])
        return float(np.mean(main[edges[:, 0]] == main[edges[:, 1]]))

    assert share_of_similar(0.0) < 0.35
    assert share_of_similar(0.5) > 0.55
    assert set(deal_by(1.0).sizes) == {20}
    assert np.mean(np.array(count_classes(deal_by(1.0))) == 1) > 0.9
    assert min(count_classes(deal_by(0.0))) >= 3


@pytest.mark.parametrize(
    ("spec", "nodes"),
    [
        ("dirichlet:0", 3),
        ("dirichlet:nan", 3),
        ("shards:3", 100),
        ("shards:0", 3),
        ("graph:1.5", 5),
    ],
)
def test_what_cannot_be_is_refused_in_the_words_of_the_user(spec: str, nodes: int) -> None:
    """With the specification, before any loop that would not end; no name of a library's parameter."""
    with pytest.raises(InvalidParameterError) as caught:
        deal(spec, nodes=nodes)
    assert (caught.value.name, caught.value.value) == ("partition", spec)
    assert "num_" not in str(caught.value)


@pytest.mark.parametrize("spec", ["iid", "dirichlet:1", "shards:1", "graph:0.5"])
def test_more_nodes_than_rows_are_refused(spec: str) -> None:
    """Every node needs a row."""
    with pytest.raises(InvalidParameterError, match=r"^graph = '201 nodes'.*at most 200"):
        deal(spec, nodes=201)


def test_partitions_are_slices_of_one_block() -> None:
    """Views, in order, as a sequence."""
    parts = deal("iid", nodes=7)
    assert len(parts) == 7
    assert np.shares_memory(parts[3].features, parts.rows.features)
    assert np.array_equal(np.concatenate([part.labels for part in parts]), parts.rows.labels)
    assert [len(part) for part in parts[2:4]] == parts.sizes[2:4].tolist()
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
    parts = make_partitions(Foreign(kind), rows())
    assert [part.features[:2, 0].tolist() for part in parts] == [[0, 2], [1, 3]]
    assert parts.rows.features.dtype == np.float32
    assert make_partitions(parts, rows()) is parts
    assert len(deal("iid", nodes=4)) == 4


def test_other_objects_are_refused() -> None:
    """By what they lack or gave."""
    with pytest.raises(InvalidParameterError, match="load_partition and num_partitions"):
        make_partitions(object(), rows())
    with pytest.raises(InvalidParameterError, match="columns features and labels"):
        make_partitions(Foreign("none"), rows())


class FlwrLike:
    """A partitioner of flwr-datasets as its base class has it: no data set yet, and none can be counted before."""

    def __init__(self) -> None:
        self.dataset: Any = None

    def is_dataset_assigned(self) -> bool:
        """Return whether it has data."""
        return self.dataset is not None

    @property
    def num_partitions(self) -> int:
        """One for each class; asked too early, it fails as the library does."""
        if self.dataset is None:
            raise AttributeError("The dataset field should be set before using it.")
        return len(set(self.dataset.columns["label"].tolist()))

    def load_partition(self, partition_id: int) -> object:
        """Rows of one class, as a table of the library's own."""
        chosen = np.flatnonzero(self.dataset.columns["label"] == partition_id)
        table = {name: column[chosen] for name, column in self.dataset.columns.items()}

        class Dataset(dict[str, Any]):
            column_names = tuple(table)

        return Dataset(table)


def test_a_partitioner_of_flwr_datasets_is_given_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels, row numbers and columns; what it returns are rows of ours. Without the library a line says so."""
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InvalidParameterError, match="datasets installed"):
        make_partitions(FlwrLike(), rows())
    library: Any = ModuleType("datasets")
    library.Dataset = SimpleNamespace(from_dict=lambda table: SimpleNamespace(columns=table))
    monkeypatch.setitem(sys.modules, "datasets", library)
    parts = make_partitions(FlwrLike(), rows())
    assert [part.features[0, 0] for part in parts] == [0, 40, 80, 120, 160]
    assert count_classes(parts) == [1] * 5


SPECS = ["iid", "dirichlet:0.3", "shards:2", "graph:0.8", "natural:label"]


def test_every_kind_has_a_spec_that_works_on_digits() -> None:
    """For 300 nodes where the kind does not say otherwise; natural:label makes ten."""
    graph, data = parse_graph_spec("rrg:300:3:seed=1"), load_data("digits")
    assert [spec.partition(":")[0] for spec in SPECS] == list(PARTITION_KINDS)
    for spec in SPECS:
        parts = parse_partition_spec(spec, graph=graph, seed=0).deal(data)
        assert len(parts) == (10 if spec.startswith("natural") else 300)
        assert parts.sizes.min() >= 1
        assert parts.sizes.sum() == len(data.train)


@pytest.mark.parametrize("spec", ["", "even", "iid:3", "dirichlet", "dirichlet:x", "shards:1.5", "graph:"])
def test_bad_specs_are_refused_with_how_to_write_them(spec: str) -> None:
    """One line."""
    with pytest.raises(InvalidParameterError, match=r"^partition = "):
        parse_partition_spec(spec, graph=parse_graph_spec("ring:5"), seed=0)


def test_the_seed_of_a_spec_matters() -> None:
    """Another seed, another partition."""
    first, again, other = (deal("iid", nodes=10, seed=seed).rows.features for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
