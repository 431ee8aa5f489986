"""Properties of every partitioner: each row to exactly one node, the same way every time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilwalk.core.errors import InvalidParameterError
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import (
    Array,
    DirichletPartitioner,
    GraphCorrelatedPartitioner,
    IidPartitioner,
    NaturalIdPartitioner,
    Partition,
    Partitioner,
    PathologicalPartitioner,
    ShardPartitioner,
)

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=120).map(lambda found: np.array(found, dtype=np.int64))
AMOUNTS = st.lists(st.floats(-9, 9, width=32), min_size=1, max_size=120).map(lambda found: np.array(found, np.float32))
SEEDS = st.integers(0, 2**63)
NODES = st.integers(1, 12)
ANY = st.booleans()
LABEL = st.just("label")
MODES = st.sampled_from(["random", "deterministic", "first-deterministic"])
GRAPHS = st.integers(3, 12).map(lambda nodes: parse_graph_spec(f"ring:{nodes}"))
# Every partitioner that promises to use every row; feasible or not.
PARTITIONERS: dict[str, st.SearchStrategy[Partitioner]] = {
    "iid": st.builds(IidPartitioner, NODES, SEEDS),
    "dirichlet": st.builds(
        DirichletPartitioner, NODES, LABEL, st.floats(0.01, 100), st.integers(0, 4), ANY, ANY, SEEDS, ANY
    ),
    "shards by number": st.builds(ShardPartitioner, NODES, LABEL, st.integers(1, 4), shuffle=ANY, seed=SEEDS),
    "shards by size": st.builds(
        ShardPartitioner,
        NODES,
        LABEL,
        shard_size=st.integers(1, 9),
        keep_incomplete_shard=st.just(value=True),
        shuffle=ANY,
        seed=SEEDS,
    ),
    "pathological": st.builds(PathologicalPartitioner, NODES, LABEL, st.integers(1, 4), MODES, ANY, SEEDS),
    "natural": st.just(NaturalIdPartitioner("label")),
    "graph": st.builds(GraphCorrelatedPartitioner, GRAPHS, st.floats(0, 1), seed=SEEDS),
}


def dealt(partitioner: Partitioner, labels: Array) -> list[Array] | InvalidParameterError:
    """The parts, or the refusal."""
    try:
        return list(partitioner.deal(labels))
    except InvalidParameterError as error:
        return error


@pytest.mark.parametrize("kind", PARTITIONERS)
@given(data=st.data(), labels=LABELS)
def test_every_row_goes_to_exactly_one_node_the_same_way_every_time(
    kind: str, data: st.DataObject, labels: Array
) -> None:
    """Disjoint, complete, deterministic; or refused by the name of a parameter the partitioner has."""
    partitioner = data.draw(PARTITIONERS[kind])
    parts = dealt(partitioner, labels)
    if isinstance(parts, InvalidParameterError):
        assert hasattr(partitioner, parts.name)
        return
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    again = partitioner.deal(labels)
    assert all(np.array_equal(one, two) for one, two in zip(parts, again, strict=True))
    if not isinstance(partitioner, NaturalIdPartitioner):
        assert len(parts) == partitioner.num_partitions  # type: ignore[attr-defined]
    if isinstance(partitioner, DirichletPartitioner):
        assert min(len(part) for part in parts) >= partitioner.min_partition_size


@given(st.one_of(*PARTITIONERS.values()), LABELS)
def test_rows_and_labels_stay_together(partitioner: Partitioner, labels: Array) -> None:
    """What a node holds are rows of the data with their own labels."""
    rows = Partition(np.arange(len(labels), dtype=np.float32)[:, np.newaxis], labels)
    if isinstance(dealt(partitioner, labels), InvalidParameterError):
        return
    for part in partitioner.bind(rows):
        assert np.array_equal(labels[part.features[:, 0].astype(np.int64)], part.labels)


@given(st.one_of(*PARTITIONERS.values()), AMOUNTS)
def test_real_labels_are_dealt_whole_or_refused(partitioner: Partitioner, labels: Array) -> None:
    """By what shares out classes, always; by others only where there are too few rows."""
    rows = Partition(np.arange(len(labels), dtype=np.float32)[:, np.newaxis], labels)
    if partitioner.by_class:
        with pytest.raises(InvalidParameterError, match=r"^partition = "):
            partitioner.bind(rows)
        return
    if isinstance(dealt(partitioner, labels), InvalidParameterError):
        return
    parts = partitioner.bind(rows)
    assert sorted(parts.rows.features[:, 0].tolist()) == list(range(len(labels)))
    assert parts.rows.labels.dtype == np.float32


@given(NODES, LABELS, SEEDS)
def test_infeasible_numbers_are_refused_and_feasible_ones_are_not(nodes: int, labels: Array, seed: int) -> None:
    """Even parts exist exactly when there is a row for each node."""
    parts = dealt(IidPartitioner(nodes, seed), labels)
    if isinstance(parts, InvalidParameterError):
        assert parts.name == "num_partitions"
        assert nodes > len(labels)
    else:
        assert nodes <= len(labels)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(LABELS, SEEDS, NODES, st.integers(0, 5))
def test_filling_succeeds_whenever_there_are_rows_enough(labels: Array, seed: int, nodes: int, least: int) -> None:
    """However small alpha is."""
    parts = dealt(DirichletPartitioner(nodes, "label", 0.01, least, seed=seed, fill=True), labels)
    feasible = nodes <= len(labels) and least * nodes <= len(labels)
    assert feasible == (not isinstance(parts, InvalidParameterError))
    if not isinstance(parts, InvalidParameterError):
        assert min(map(len, parts)) >= least
