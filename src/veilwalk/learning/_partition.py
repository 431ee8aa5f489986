"""Deals the rows of a data set to nodes: by a specification, or by any partitioner of the flwr-datasets library.

A specification such as ``dirichlet:0.3`` becomes a :class:`Partitioner`; bound to data it gives :class:`Partitions`.
Every row goes to exactly one node, and the same seed gives the same rows.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.core.spec import Spec
from veilwalk.learning._contract import Array, Partition
from veilwalk.learning._data import SITE, Data, is_real, join_parts
from veilwalk.learning._files import LABEL

if TYPE_CHECKING:
    # Types only: a node starts without compiled walks.
    from veilwalk.graphs import Graph

# As many names as a line has room for.
_SHOWN_NAMES = 12
# Classes into which real labels are sorted where neighbours hold like rows.
_REAL_CLASSES = 10


class Partitions(Sequence[Partition]):
    """The data of every node, held as one block of rows in which each node's part is a slice."""

    def __init__(self, rows: Partition, sizes: Sequence[int] | IntArray, *, remark: str = "") -> None:
        """Cut ``rows`` into consecutive parts of the given ``sizes``; ``remark`` is a line on which node has what."""
        validate.instance(Partition, "a Partition", rows=rows)
        self.rows, self.remark = rows, remark
        self.starts = np.concatenate(([0], np.cumsum(np.asarray(sizes, dtype=np.int64))))
        if self.starts[-1] != len(rows):
            raise InvalidParameterError("sizes", int(self.starts[-1]), f"{len(rows)} rows in all")
        # Views are made once: training comes back to them at every update.
        self._parts = [rows.take(slice(*ends)) for ends in itertools.pairwise(self.starts.tolist())]

    @classmethod
    def of_rows(cls, data: Partition, row_numbers: Sequence[IntArray], *, remark: str = "") -> Partitions:
        """Gather the rows of each node from ``data``."""
        order = np.concatenate([np.asarray(numbers, dtype=np.int64) for numbers in row_numbers])
        sizes = [len(numbers) for numbers in row_numbers]
        return cls(data.take(order), sizes, remark=remark)

    @classmethod
    def of_parts(cls, parts: Sequence[Partition]) -> Partitions:
        """Put parts that exist already side by side."""
        widths = {part.features.shape[1:] for part in parts}
        if len(widths) != 1:
            raise InvalidParameterError("partition", sorted(widths), "one shape of rows for all nodes")
        return cls(join_parts(parts), [len(part) for part in parts])

    @property
    def sizes(self) -> IntArray:
        """Rows of every node."""
        return np.diff(self.starts)

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, index: int) -> Partition: ...
    @overload
    def __getitem__(self, index: slice) -> list[Partition]: ...
    def __getitem__(self, index: int | slice) -> Partition | list[Partition]:
        return self._parts[index]


@dataclass(frozen=True, eq=False, kw_only=True)
class Partitioner:
    """Deals rows to the nodes of ``graph`` as ``spec`` says; ``value`` is what stands behind the name in it."""

    spec: Spec
    value: Any
    graph: Graph
    seed: int

    def deal(self, data: Data | Partition) -> Partitions:
        """Return the data of every node; refuse a specification that does not fit the data."""
        kind, rows = PARTITION_KINDS[self.spec.name], data.train if isinstance(data, Data) else data
        if kind.by_class and is_real(rows.labels):
            need = "iid, graph:CORRELATION or natural:COLUMN where labels are real numbers: they have no classes"
            raise self.spec.refuse(need)
        if kind.deal is None:
            return _deal_naturally(self, data, rows)
        if self.graph.n_nodes > len(rows):
            need = f"of at most {len(rows)} nodes: so many rows there are to train on, and every node needs one"
            raise InvalidParameterError("graph", f"{self.graph.n_nodes} nodes", need)
        return Partitions.of_rows(rows, kind.deal(self, rows.labels))


def _deal_evenly(partitioner: Partitioner, keys: Array) -> list[IntArray]:
    """Deal rows evenly at random; sizes differ by at most one."""
    order = task_generator(partitioner.seed).permutation(len(keys))
    return np.array_split(order, partitioner.graph.n_nodes)


def _deal_by_dirichlet(partitioner: Partitioner, keys: Array) -> list[IntArray]:
    """Share out each class in proportions drawn from a Dirichlet law; every node gets at least one row."""
    n_nodes, alpha = partitioner.graph.n_nodes, partitioner.value
    if not (np.isfinite(alpha) and alpha > 0):
        raise partitioner.spec.refuse("dirichlet:ALPHA with ALPHA positive and finite")
    rng = task_generator(partitioner.seed)
    parts: list[list[int]] = [[] for _ in range(n_nodes)]
    for key in np.unique(keys):
        rows, share = np.flatnonzero(keys == key), rng.dirichlet(np.full(n_nodes, alpha))
        ends = np.floor(np.cumsum(share / share.sum())[:-1] * len(rows) + 0.5).astype(np.int64)
        for part, numbers in zip(parts, np.split(rows, ends), strict=True):
            part.extend(numbers.tolist())
    for part in parts:
        rng.shuffle(part)
    sizes = np.array([len(part) for part in parts])
    # With few rows a node and a small alpha no number of draws would give every node one.
    for empty in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        parts[empty].append(parts[largest].pop())
        sizes[largest] -= 1
        sizes[empty] += 1
    return [np.array(part, dtype=np.int64) for part in parts]


def _deal_shards(partitioner: Partitioner, keys: Array) -> list[IntArray]:
    """Sort rows by class, cut them into pieces that differ by at most one row, and deal the pieces at random."""
    n_nodes, each = partitioner.graph.n_nodes, partitioner.value
    if not 1 <= each <= len(keys) // n_nodes:
        raise partitioner.spec.refuse(f"shards:PER_NODE with 1 to {len(keys) // n_nodes} pieces a node")
    rng = task_generator(partitioner.seed)
    shards = np.array_split(np.argsort(keys, kind="stable"), n_nodes * each)
    numbers = np.array_split(rng.permutation(len(shards)), n_nodes)
    parts = [np.concatenate([shards[shard] for shard in chosen]) for chosen in numbers]
    return [rng.permutation(part) for part in parts]


def _deal_by_regions(partitioner: Partitioner, keys: Array) -> list[IntArray]:
    """Give each class its own region of the graph, then let a share 1 - CORRELATION of the rows change places."""
    if not 0.0 <= partitioner.value <= 1.0:
        raise partitioner.spec.refuse("graph:CORRELATION with CORRELATION between 0 and 1")
    if is_real(keys):
        # Ten classes of as many rows each.
        keys = np.argsort(np.argsort(keys, kind="stable")) * _REAL_CLASSES // len(keys)
    rng = task_generator(partitioner.seed)
    # Random order within a class, so that no row is bound to a node by its place in the file.
    shuffled = rng.permutation(len(keys))
    rows = shuffled[np.argsort(keys[shuffled], kind="stable")]
    nodes = _grow_regions(partitioner.graph, np.unique(keys, return_counts=True)[1], rng)
    movers = np.flatnonzero(rng.random(len(rows)) >= partitioner.value)
    rows[movers] = rows[rng.permutation(movers)]
    parts: list[IntArray] = [rows[:0]] * len(nodes)
    for node, numbers in zip(nodes, np.array_split(rows, len(nodes)), strict=True):
        parts[node] = numbers
    return parts


def _grow_regions(graph: Graph, weights: IntArray, rng: np.random.Generator) -> IntArray:
    """Return all nodes, region by region, sizes in proportion to ``weights``; each region grows breadth first."""
    ends = np.floor(np.cumsum(weights) / weights.sum() * graph.n_nodes + 0.5).astype(np.int64)
    room = np.diff(ends, prepend=0)
    start = deque(rng.permutation(graph.n_nodes).tolist())
    taken = np.zeros(graph.n_nodes, dtype=np.bool_)
    regions: list[list[int]] = [[] for _ in room]
    frontiers: list[deque[int]] = [deque() for _ in room]
    while any(len(region) < size for region, size in zip(regions, room, strict=True)):
        for region, frontier, size in zip(regions, frontiers, room, strict=True):
            if len(region) >= size:
                continue
            while frontier and taken[frontier[0]]:
                frontier.popleft()
            if not frontier:
                # First node of a region, or one shut in by others: go on from any free node.
                while taken[start[0]]:
                    start.popleft()
                frontier.append(start[0])
            node = frontier.popleft()
            taken[node] = True
            region.append(node)
            frontier.extend(int(near) for near in graph.neighbours(node) if not taken[near])
    return np.array([node for region in regions for node in region], dtype=np.int64)


def _deal_naturally(partitioner: Partitioner, data: Data | Partition, rows: Partition) -> Partitions:
    """Give rows to the node that a column names, or values in order to nodes 0, 1 and on; each site must be a node."""
    columns = {LABEL: rows.labels} | (dict(data.columns) if isinstance(data, Data) else {})
    column, spec, labels = partitioner.value, partitioner.spec, partitioner.graph.labels
    if column not in columns:
        raise spec.refuse(f"natural:COLUMN with one of the columns {', '.join(columns)}")
    sites = data.sites if isinstance(data, Data) and column == SITE else None
    values, number = np.unique(columns[column], return_inverse=True)
    names = _list_names(values)
    if sites is not None and len(names) != partitioner.graph.n_nodes and (labels is None or not sites.is_named):
        raise InvalidParameterError("data", f"{len(names)} sites", f"one for each of {partitioner.graph.n_nodes} nodes")
    if labels is None or (sites is not None and not sites.is_named):
        node, n_nodes = np.arange(len(names)), len(names)
        pairs = [f"{name} to {place}" for place, name in enumerate(names)]
        remark = f"nodes have no names, so values of {column} go to them in order: {_shorten(pairs)}"
    else:
        node_of, n_nodes = {name: place for place, name in enumerate(labels)}, len(labels)
        unknown, idle = [name for name in names if name not in node_of], sorted(set(labels) - set(names))
        if unknown or (idle and sites is not None):
            faults = [f"{_shorten(unknown)} {'is none' if len(unknown) == 1 else 'are none'}"] if unknown else []
            faults += [f"rows of {_shorten(idle)} are missing"] if idle and sites is not None else []
            about = f"({'; '.join(faults)}; nodes are {_shorten(labels)})"
            if sites is not None:
                raise InvalidParameterError("data", f"{len(names)} sites", f"one named as each node {about}")
            raise spec.refuse(f"a column whose values are names of nodes {about}")
        node = np.array([node_of[name] for name in names], dtype=np.int64)
        remark = f"{len(idle)} of {n_nodes} nodes have no rows: {_shorten(idle)}" if idle else ""
    of_row = node[number]
    counts = np.bincount(of_row, minlength=n_nodes)
    parts = np.split(np.argsort(of_row, kind="stable"), np.cumsum(counts)[:-1])
    return Partitions.of_rows(rows, parts, remark=remark)


def _list_names(values: Array) -> list[str]:
    """Return values as a network would call its nodes: 3 and not 3.0, text and not bytes."""
    if values.dtype.kind == "f" and np.all(values == np.floor(values)):
        values = values.astype(np.int64)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    return [str(value) for value in values.tolist()]


def _shorten(names: Sequence[str]) -> str:
    """Return names in one line, the first of many."""
    rest = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" and {rest} more" if rest > 0 else "")


class PartitionKind(NamedTuple):
    """One way to deal out data: how it is written, what deals it, the type of its value, if any.

    ``deal`` returns the row numbers of each node from the label of each row; it is None where a column says the node.
    What deals ``by_class`` refuses real labels, which have no classes.
    """

    usage: str
    deal: Callable[[Partitioner, Array], list[IntArray]] | None
    value: type[int | float | str] | None
    by_class: bool = False


PARTITION_KINDS: Mapping[str, PartitionKind] = MappingProxyType(
    {
        "iid": PartitionKind("iid", _deal_evenly, None),
        "dirichlet": PartitionKind("dirichlet:ALPHA", _deal_by_dirichlet, float, by_class=True),
        "shards": PartitionKind("shards:PER_NODE", _deal_shards, int, by_class=True),
        "graph": PartitionKind("graph:CORRELATION", _deal_by_regions, float),
        "natural": PartitionKind("natural:COLUMN", None, str),
    }
)


def parse_partition_spec(text: str, *, graph: Graph, seed: int) -> Partitioner:
    """Return the partitioner that ``text`` names for the nodes of ``graph``, for example ``dirichlet:0.3``."""
    spec = Spec.parse(text, parameter="partition", files=("natural",))
    kind = PARTITION_KINDS.get(spec.name)
    if kind is None:
        raise spec.refuse(f"one of {', '.join(entry.usage for entry in PARTITION_KINDS.values())}")
    if bool(spec.argument) != (kind.value is not None) or spec.options:
        raise spec.refuse(kind.usage)
    value = None if kind.value is None else spec.convert(spec.argument, kind.value, kind.usage)
    return Partitioner(spec=spec, value=value, graph=graph, seed=seed)


def make_partitions(source: Any, data: Data | Partition) -> Partitions:
    """Return the data of every node from a partitioner, or any object with ``load_partition`` and ``num_partitions``.

    A partitioner of flwr-datasets that has no data set yet is given this one: a column ``label``, and every column of
    the data. ``load_partition(i)`` may give a :class:`Partition`, an array of row numbers, or a table with columns
    ``features`` and ``labels`` (a mapping, or a ``datasets.Dataset``).
    """
    if isinstance(source, Partitions):
        return source
    if isinstance(source, Partitioner):
        return source.deal(data)
    # Some partitioners count their parts only once they have data: the names must be there, no values.
    if not {"load_partition", "num_partitions"} <= {*dir(source)}:
        need = "a specification, Partitions, or an object with load_partition and num_partitions"
        raise InvalidParameterError("partition", type(source).__name__, need)
    rows, columns = (data.train, data.columns) if isinstance(data, Data) else (data, {})
    if callable(is_assigned := getattr(source, "is_dataset_assigned", None)) and not is_assigned():
        try:
            from datasets import Dataset
        except ImportError:
            need = "used with the library datasets installed, which flwr-datasets brings"
            raise InvalidParameterError("partition", "flwr_datasets", need) from None
        source.dataset = Dataset.from_dict({LABEL: rows.labels, "row": np.arange(len(rows)), **columns})
    validate.integer(num_partitions=source.num_partitions)
    return Partitions.of_parts([_read_part(source.load_partition(i), rows) for i in range(source.num_partitions)])


def _read_part(part: Any, rows: Partition) -> Partition:
    """Return the data of one node from what ``load_partition`` returned."""
    if isinstance(part, Partition):
        return part
    if isinstance(part, np.ndarray) and part.dtype.kind in "iu":
        return rows.take(part)
    kind = rows.labels.dtype if is_real(rows.labels) else np.int64
    try:
        if "row" in getattr(part, "column_names", ()):
            return rows.take(np.asarray(part["row"], dtype=np.int64))
        return Partition(np.asarray(part["features"], dtype=np.float32), np.asarray(part["labels"], dtype=kind))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        need = "a Partition, row numbers, or columns features and labels from load_partition"
        raise InvalidParameterError("partition", type(part).__name__, need) from error
