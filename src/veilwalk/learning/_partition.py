"""Data dealt out to nodes: what a partitioner is, and what it gives.

A partitioner turns the labels of a data set (or another column) into one array of row numbers for each node; bound to
data it becomes :class:`Partitions`, which has the two members the flwr-datasets library made common:
``load_partition`` and ``num_partitions``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, overload

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import Array, Partition
from veilwalk.learning._data import Data
from veilwalk.learning._labels import is_real

LABEL = "label"
"""The column that every data set has."""


class Partitions(Sequence[Partition]):
    """The data of every node, held as one block of rows in which each node's part is a slice."""

    def __init__(self, rows: Partition, sizes: Sequence[int] | IntArray, *, remark: str = "") -> None:
        """Cut ``rows`` into consecutive parts of the given ``sizes``; ``remark`` is a line on which node has what."""
        self.rows, self.remark = rows, remark
        self.starts = np.concatenate(([0], np.cumsum(np.asarray(sizes, dtype=np.int64))))
        if self.starts[-1] != len(rows):
            raise InvalidParameterError("sizes", int(self.starts[-1]), f"{len(rows)} rows in all")
        # Views made once: training comes back to them at every update.
        ends = zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)
        self._parts = [Partition(rows.features[start:end], rows.labels[start:end]) for start, end in ends]

    @classmethod
    def of_rows(cls, data: Partition, row_numbers: Sequence[IntArray], *, remark: str = "") -> Partitions:
        """Gather the rows of each node from ``data``."""
        order = np.concatenate([np.asarray(numbers, dtype=np.int64) for numbers in row_numbers])
        sizes = [len(numbers) for numbers in row_numbers]
        return cls(Partition(data.features[order], data.labels[order]), sizes, remark=remark)

    @classmethod
    def of_parts(cls, parts: Sequence[Partition]) -> Partitions:
        """Put parts that exist already side by side."""
        widths = {part.features.shape[1:] for part in parts}
        if len(widths) != 1:
            raise InvalidParameterError("partitions", sorted(widths), "one shape of rows for all")
        features = np.concatenate([part.features for part in parts])
        labels = np.concatenate([part.labels for part in parts])
        return cls(Partition(features, labels), [len(part) for part in parts])

    @property
    def num_partitions(self) -> int:
        """How many nodes there are."""
        return len(self.starts) - 1

    @property
    def sizes(self) -> IntArray:
        """Rows of every node."""
        return np.diff(self.starts)

    def load_partition(self, partition_id: int) -> Partition:
        """Return the data of one node, a view."""
        if not 0 <= partition_id < self.num_partitions:
            raise InvalidParameterError("partition_id", partition_id, f"0 to {self.num_partitions - 1}")
        return self._parts[partition_id]

    def __len__(self) -> int:
        return self.num_partitions

    @overload
    def __getitem__(self, index: int) -> Partition: ...
    @overload
    def __getitem__(self, index: slice) -> list[Partition]: ...
    def __getitem__(self, index: int | slice) -> Partition | list[Partition]:
        return self._parts[index]

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._parts)


class Partitioner(ABC):
    """Deals rows to nodes: every row to exactly one node, the same way every time.

    ``by_class`` says of a kind of partitioner that it shares out classes, which real labels have none of.
    """

    by_class: ClassVar[bool] = False

    @abstractmethod
    def deal(self, keys: Array) -> list[IntArray]:
        """Return the row numbers of each node, from the ``partition_by`` value of each row."""

    def remark(self, keys: Array) -> str:
        """Return a line on which node has what, where a reader should know; else an empty text."""
        del keys
        return ""

    def bind(self, data: Data | Partition) -> Partitions:
        """Return the data of every node."""
        rows = data.train if isinstance(data, Data) else data
        columns = dict(data.columns) if isinstance(data, Data) else {}
        keys = column({LABEL: rows.labels} | columns, getattr(self, "partition_by", LABEL))
        if self.by_class and is_real(keys):
            dealt = "iid, graph:CORRELATION, natural:COLUMN or groups:COLUMN"
            need = f"{dealt} where labels are real numbers: they have no classes"
            raise InvalidParameterError("partition", type(self).__name__, need)
        return Partitions.of_rows(rows, self.deal(keys), remark=self.remark(keys))


def column(columns: Mapping[str, Array], name: str) -> Array:
    """Return the column ``name``; an unknown one is refused with those there are."""
    if name not in columns:
        raise InvalidParameterError("partition_by", name, f"one of {', '.join(columns)}")
    return columns[name]


def partitions_of(source: Any, data: Data | Partition) -> Partitions:
    """Return the data of every node from a partitioner, or any object with ``load_partition`` and ``num_partitions``.

    ``load_partition(i)`` may give a :class:`Partition`, an array of row numbers of ``data``, or a table with columns
    ``features`` and ``labels`` (a mapping, or a ``datasets.Dataset``).
    """
    if isinstance(source, Partitions):
        return source
    if isinstance(source, Partitioner):
        return source.bind(data)
    if not (callable(getattr(source, "load_partition", None)) and hasattr(source, "num_partitions")):
        raise InvalidParameterError(
            "partitioner", type(source).__name__, "an object with load_partition and num_partitions"
        )
    validate.integer(num_partitions=source.num_partitions)
    rows = data.train if isinstance(data, Data) else data
    return Partitions.of_parts([_part(source.load_partition(i), rows) for i in range(source.num_partitions)])


def _part(given: Any, rows: Partition) -> Partition:
    if isinstance(given, Partition):
        return given
    if isinstance(given, np.ndarray) and given.dtype.kind in "iu":
        return Partition(rows.features[given], rows.labels[given])
    kind = rows.labels.dtype if is_real(rows.labels) else np.int64
    try:
        return Partition(
            *(np.asarray(given[key], dtype=of) for key, of in (("features", np.float32), ("labels", kind)))
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InvalidParameterError(
            "load_partition", type(given).__name__, "a Partition, row numbers, or columns features and labels"
        ) from error


def check_feasible(num_partitions: int, n_rows: int, *, least: int = 1) -> None:
    """Refuse more partitions than rows, or fewer rows than each must have."""
    validate.integer(num_partitions=num_partitions)
    validate.at_least(1, num_partitions=num_partitions)
    if num_partitions > n_rows:
        raise InvalidParameterError("num_partitions", num_partitions, f"at most {n_rows}, the number of rows")
    if least * num_partitions > n_rows:
        need = f"at most {n_rows // num_partitions}, for {n_rows} rows among {num_partitions} partitions"
        raise InvalidParameterError("min_partition_size", least, need)
