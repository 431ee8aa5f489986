"""Properties of every partitioner: each row to exactly one node, the same way every time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilwalk.core.errors import InvalidParameterError
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import PARTITION_KINDS, Array, Partition, Partitioner, Partitions, parse_partition_spec

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=120).map(lambda values: np.array(values, dtype=np.int64))
AMOUNTS = st.lists(st.floats(-9, 9, width=32), min_size=1, max_size=120).map(
    lambda values: np.array(values, np.float32)
)
VALUES: dict[str, st.SearchStrategy[str]] = {
    "iid": st.just("iid"),
    "dirichlet": st.floats(0.01, 100).map(lambda alpha: f"dirichlet:{alpha}"),
    "shards": st.integers(1, 4).map(lambda each: f"shards:{each}"),
    "graph": st.floats(0, 1).map(lambda correlation: f"graph:{correlation}"),
    "natural": st.just("natural:label"),
}


def build_partitioners(kind: str) -> st.SearchStrategy[Partitioner]:
    """Return partitioners of one kind, feasible or not."""
    return st.builds(
        lambda spec, nodes, seed: parse_partition_spec(spec, graph=parse_graph_spec(f"ring:{nodes}"), seed=seed),
        VALUES[kind],
        st.integers(3, 12),
        st.integers(0, 2**63),
    )


ANY = st.sampled_from(sorted(VALUES)).flatmap(build_partitioners)


def number_rows(labels: Array) -> Partition:
    """Return rows that know their own number."""
    return Partition(np.arange(len(labels), dtype=np.float32)[:, np.newaxis], labels)


def deal(partitioner: Partitioner, labels: Array) -> Partitions | InvalidParameterError:
    """Return the parts, or the refusal."""
    try:
        return partitioner.deal(number_rows(labels))
    except InvalidParameterError as error:
        return error


def test_every_kind_is_tried() -> None:
    """A new one needs values here."""
    assert set(VALUES) == set(PARTITION_KINDS)


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data(), labels=LABELS)
def test_every_row_goes_to_exactly_one_node_the_same_way_every_time(
    kind: str, data: st.DataObject, labels: Array
) -> None:
    """Disjoint, complete, deterministic, labels with their rows; or refused in words of the user."""
    partitioner = data.draw(build_partitioners(kind))
    parts = deal(partitioner, labels)
    if isinstance(parts, InvalidParameterError):
        assert parts.name in {"partition", "graph"}
        assert (parts.name == "graph") == (partitioner.graph.n_nodes > len(labels))
        return
    numbers = parts.rows.features[:, 0].astype(np.int64)
    assert np.array_equal(np.sort(numbers), np.arange(len(labels)))
    assert np.array_equal(labels[numbers], parts.rows.labels)
    again = partitioner.deal(number_rows(labels))
    assert np.array_equal(again.rows.features, parts.rows.features)
    assert np.array_equal(again.sizes, parts.sizes)
    if kind != "natural":
        assert len(parts) == partitioner.graph.n_nodes
        assert parts.sizes.min() >= 1


@given(ANY, AMOUNTS)
def test_real_labels_are_dealt_whole_or_refused(partitioner: Partitioner, labels: Array) -> None:
    """By what shares out classes, always; by others only where there are too few rows."""
    parts = deal(partitioner, labels)
    if PARTITION_KINDS[partitioner.spec.name].by_class:
        assert isinstance(parts, InvalidParameterError)
        assert parts.name == "partition"
    elif not isinstance(parts, InvalidParameterError):
        assert sorted(parts.rows.features[:, 0].tolist()) == list(range(len(labels)))
        assert parts.rows.labels.dtype == np.float32
