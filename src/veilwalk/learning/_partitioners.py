"""Partitioners by label, with the names and arguments of the flwr-datasets library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.learning._api import Array
from veilwalk.learning._partition import LABEL, Partitioner, check_feasible

_TRIES = 10
# As many names as a line has room for.
_SHOWN_NAMES = 12


@dataclass(frozen=True)
class IidPartitioner(Partitioner):
    """Rows dealt evenly at random; sizes differ by at most one."""

    num_partitions: int
    seed: int = 42

    def deal(self, keys: Array) -> list[IntArray]:
        """Return the row numbers of each node."""
        check_feasible(self.num_partitions, len(keys))
        return np.array_split(task_generator(self.seed).permutation(len(keys)), self.num_partitions)


@dataclass(frozen=True)
class DirichletPartitioner(Partitioner):
    """Each class shared out in proportions drawn from a Dirichlet law: the smaller ``alpha``, the more skewed.

    Attributes:
        num_partitions: Number of nodes.
        partition_by: Column whose values are the classes.
        alpha: Concentration, one number or one for each partition.
        min_partition_size: Rows each node must have. Proportions are drawn again, ten times at most, until it holds.
        self_balancing: A node that has its even share of rows already gets none of the classes still to come.
        shuffle: Whether a node's rows are in random order, not class by class.
        seed: Of the draws.
        fill: Instead of drawing again, hand rows of the largest parts to those below ``min_partition_size``. With
            few rows a node and a small ``alpha`` no number of draws would give every node one.
    """

    by_class: ClassVar[bool] = True
    num_partitions: int
    partition_by: str
    alpha: float | Sequence[float]
    min_partition_size: int = 10
    self_balancing: bool = False
    shuffle: bool = True
    seed: int = 42
    fill: bool = False

    def deal(self, keys: Array) -> list[IntArray]:
        """Return the row numbers of each node."""
        validate.integer(min_partition_size=self.min_partition_size)
        validate.at_least(0, min_partition_size=self.min_partition_size)
        check_feasible(self.num_partitions, len(keys), least=self.min_partition_size)
        alpha = self._checked_alpha()
        rng = task_generator(self.seed)
        smallest = 0
        for _ in range(_TRIES):
            parts = self._draw(keys, alpha, rng)
            if self.fill:
                _fill(parts, self.min_partition_size)
            smallest = max(smallest, min(len(part) for part in parts))
            if smallest >= self.min_partition_size:
                return [np.array(part, dtype=np.int64) for part in parts]
        need = f"at most {smallest}, the most that {_TRIES} draws with alpha = {self.alpha} gave every partition"
        raise InvalidParameterError("min_partition_size", self.min_partition_size, need)

    def _checked_alpha(self) -> FloatArray:
        alpha = np.asarray(self.alpha, dtype=np.float64)
        if alpha.ndim and alpha.shape != (self.num_partitions,):
            raise InvalidParameterError("alpha", self.alpha, f"one number, or one for each of {self.num_partitions}")
        if not np.all(np.isfinite(alpha) & (alpha > 0)):
            raise InvalidParameterError("alpha", self.alpha, "positive and finite")
        return np.broadcast_to(alpha, self.num_partitions)

    def _draw(self, keys: Array, alpha: FloatArray, rng: np.random.Generator) -> list[list[int]]:
        parts: list[list[int]] = [[] for _ in range(self.num_partitions)]
        for key in np.unique(keys):
            rows = np.flatnonzero(keys == key)
            share = rng.dirichlet(alpha)
            if self.self_balancing:
                open_to = np.array([len(part) * self.num_partitions < len(keys) for part in parts])
                share = np.where(open_to, share, 0.0)
                # Only full nodes were drawn: the others share evenly.
                share = share if share.sum() > 0 else open_to / open_to.sum()
            ends = np.floor(np.cumsum(share / share.sum())[:-1] * len(rows) + 0.5).astype(np.int64)
            for part, mine in zip(parts, np.split(rows, ends), strict=True):
                part.extend(mine.tolist())
        if self.shuffle:
            for part in parts:
                rng.shuffle(part)
        return parts


def _fill(parts: list[list[int]], least: int) -> None:
    """Move rows, one at a time, from the largest part to those with fewer than ``least``."""
    sizes = np.array([len(part) for part in parts])
    for short in np.flatnonzero(sizes < least):
        while sizes[short] < least:
            largest = int(sizes.argmax())
            parts[short].append(parts[largest].pop())
            sizes[largest] -= 1
            sizes[short] += 1


@dataclass(frozen=True)
class ShardPartitioner(Partitioner):
    """Rows sorted by class and cut into shards, which are dealt out at random.

    Give ``num_shards_per_partition``, ``shard_size``, or both. With the first alone all rows are used, and shards
    differ by at most one row. With ``shard_size`` the last, smaller shard is left out unless ``keep_incomplete_shard``;
    alone, every whole shard is dealt, and numbers of shards differ by at most one; with both, shards left over are
    left out.
    """

    by_class: ClassVar[bool] = True
    num_partitions: int
    partition_by: str
    num_shards_per_partition: int | None = None
    shard_size: int | None = None
    keep_incomplete_shard: bool = False
    shuffle: bool = True
    seed: int = 42

    def deal(self, keys: Array) -> list[IntArray]:
        """Return the row numbers of each node."""
        check_feasible(self.num_partitions, len(keys))
        ordered = np.argsort(keys, kind="stable")
        rng = task_generator(self.seed)
        shards = self._shards(ordered)
        dealt = rng.permutation(len(shards))
        if self.num_shards_per_partition is not None:
            dealt = dealt[: self.num_partitions * self.num_shards_per_partition]
        parts = [np.concatenate([shards[s] for s in mine]) for mine in np.array_split(dealt, self.num_partitions)]
        return [rng.permutation(part) for part in parts] if self.shuffle else parts

    def _shards(self, ordered: IntArray) -> list[IntArray]:
        each = self.num_shards_per_partition
        if each is not None:
            validate.integer(num_shards_per_partition=each)
            validate.at_least(1, num_shards_per_partition=each)
        wanted = self.num_partitions * (each or 1)
        if self.shard_size is None:
            if each is None:
                raise InvalidParameterError("shard_size", None, "given where num_shards_per_partition is not")
            if wanted > len(ordered):
                need = f"at most {len(ordered) // self.num_partitions}, or shards would be empty"
                raise InvalidParameterError("num_shards_per_partition", each, need)
            return np.array_split(ordered, wanted)
        validate.integer(shard_size=self.shard_size)
        validate.at_least(1, shard_size=self.shard_size)
        shards = np.split(ordered, np.arange(self.shard_size, len(ordered), self.shard_size))
        if len(shards[-1]) < self.shard_size and not self.keep_incomplete_shard:
            shards.pop()
        if len(shards) < wanted:
            raise InvalidParameterError("shard_size", self.shard_size, f"small enough for {wanted} shards")
        return shards


@dataclass(frozen=True)
class PathologicalPartitioner(Partitioner):
    """A few classes for each node; each class shared evenly among the nodes that have it.

    ``class_assignment_mode``: ``random`` draws the classes of each node; ``deterministic`` deals them in turn;
    ``first-deterministic`` deals the first in turn and draws the others. Random draws are repeated, ten times at most,
    until every class has a node: no row is left out.
    """

    by_class: ClassVar[bool] = True
    num_partitions: int
    partition_by: str
    num_classes_per_partition: int
    class_assignment_mode: Literal["random", "deterministic", "first-deterministic"] = "random"
    shuffle: bool = True
    seed: int = 42

    def deal(self, keys: Array) -> list[IntArray]:
        """Return the row numbers of each node."""
        check_feasible(self.num_partitions, len(keys))
        classes, counts = np.unique(keys, return_counts=True)
        each = self.num_classes_per_partition
        validate.integer(num_classes_per_partition=each)
        if not 1 <= each <= len(classes) or each * self.num_partitions < len(classes):
            least = -(-len(classes) // self.num_partitions)
            need = f"{least} to {len(classes)}, for {len(classes)} classes among {self.num_partitions} partitions"
            raise InvalidParameterError("num_classes_per_partition", each, need)
        rng = task_generator(self.seed)
        has = self._assign(len(classes), rng)
        holders = has.sum(axis=0)
        scarce = np.flatnonzero(holders > counts)
        if scarce.size:
            need = f"fewer: class {classes[scarce[0]]} has {counts[scarce[0]]} rows for {holders[scarce[0]]} partitions"
            raise InvalidParameterError("num_classes_per_partition", each, need)
        parts: list[list[IntArray]] = [[] for _ in range(self.num_partitions)]
        for index, key in enumerate(classes):
            rows = rng.permutation(np.flatnonzero(keys == key)) if self.shuffle else np.flatnonzero(keys == key)
            owners = np.flatnonzero(has[:, index])
            for owner, mine in zip(owners, np.array_split(rows, len(owners)), strict=True):
                parts[owner].append(mine)
        dealt = [np.concatenate(part) for part in parts]
        return [rng.permutation(part) for part in dealt] if self.shuffle else dealt

    def _assign(self, n_classes: int, rng: np.random.Generator) -> Array:
        """Return which node (row) has which class (column)."""
        modes = ("random", "deterministic", "first-deterministic")
        if self.class_assignment_mode not in modes:
            raise InvalidParameterError("class_assignment_mode", self.class_assignment_mode, " or ".join(modes))
        for _ in range(_TRIES):
            has = np.zeros((self.num_partitions, n_classes), dtype=np.bool_)
            for node in range(self.num_partitions):
                has[node, self._classes_of(node, n_classes, rng)] = True
            if has.any(axis=0).all():
                return has
        need = f"more: {_TRIES} draws each left a class without a partition"
        raise InvalidParameterError("num_classes_per_partition", self.num_classes_per_partition, need)

    def _classes_of(self, node: int, n_classes: int, rng: np.random.Generator) -> IntArray:
        each = self.num_classes_per_partition
        match self.class_assignment_mode:
            case "deterministic":
                # In turn without a gap: all classes are had as soon as there are places for them.
                return (node * each + np.arange(each)) % n_classes
            case "first-deterministic":
                first = node % n_classes
                others = rng.choice(n_classes - 1, each - 1, replace=False)
                return np.concatenate(([first], (first + 1 + others) % n_classes))
            case _:
                return rng.choice(n_classes, each, replace=False)


@dataclass(frozen=True)
class NaturalIdPartitioner(Partitioner):
    """One node for each value of a column: a writer, a hospital.

    Attributes:
        partition_by: The column.
        names: What each node is called. Rows go to the node that their value names, and a node may have none. None,
            where nodes have no names: values in sorted order are nodes 0, 1 and so on.
    """

    partition_by: str = LABEL
    names: tuple[str, ...] | None = None

    def deal(self, keys: Array) -> list[IntArray]:
        """Return the row numbers of each node."""
        values, number = np.unique(keys, return_inverse=True)
        node: IntArray = number if self.names is None else self._match_names(values)[number]
        order = np.argsort(node, kind="stable")
        counts = np.bincount(node, minlength=len(self.names or ()))
        return np.split(order, np.cumsum(counts)[:-1])

    def _match_names(self, values: Array) -> IntArray:
        """Return the node that each value names."""
        node_of = {name: node for node, name in enumerate(self.names or ())}
        called = _list_names(values)
        unknown = [name for name in called if name not in node_of]
        if unknown:
            need = (
                f"a column whose values are names of nodes ({_shorten(unknown)} "
                f"{'is none' if len(unknown) == 1 else 'are none'}; nodes are {_shorten([*node_of])})"
            )
            raise InvalidParameterError("partition", f"natural:{self.partition_by}", need)
        return np.array([node_of[name] for name in called], dtype=np.int64)

    def remark(self, keys: Array) -> str:
        """Return which nodes have no rows or, where nodes have no names, which value went to which node."""
        values = _list_names(np.unique(keys))
        if self.names is None:
            pairs = [f"{value} to {node}" for node, value in enumerate(values)]
            return f"nodes have no names, so values of {self.partition_by} go to them in order: {_shorten(pairs)}"
        idle = sorted(set(self.names) - set(values))
        return f"{len(idle)} of {len(self.names)} nodes have no rows: {_shorten(idle)}" if idle else ""


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


@dataclass(frozen=True, eq=False)
class GroupPartitioner(Partitioner):
    """The values of a column in their order, as many for each node, or one more: several users each."""

    num_partitions: int
    partition_by: str = LABEL

    def deal(self, keys: Array) -> list[IntArray]:
        """Return the row numbers of each node."""
        values, number = np.unique(keys, return_inverse=True)
        if len(values) < self.num_partitions:
            raise InvalidParameterError(
                "num_partitions", self.num_partitions, f"at most {len(values)}, the values there are"
            )
        sizes = np.full(self.num_partitions, len(values) // self.num_partitions)
        sizes[: len(values) % self.num_partitions] += 1
        node = np.repeat(np.arange(self.num_partitions), sizes)[number]
        return np.split(np.argsort(node, kind="stable"), np.cumsum(np.bincount(node))[:-1])
