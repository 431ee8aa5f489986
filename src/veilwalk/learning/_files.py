"""Reads files of rows: bundled digits, tables (CSV, Parquet), IDX files and npz archives. Nothing in them is executed.

Tables, IDX files and archives have one form: features, labels, and columns beside them.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import numpy as np

from veilwalk.core.archives import name_errors, read_archive, read_bytes, require_size
from veilwalk.core.errors import InputFileError
from veilwalk.core.rooms import import_extra
from veilwalk.core.spec import Spec
from veilwalk.core.tables import is_number
from veilwalk.learning._contract import Array

LABEL = "label"
#: Whole numbers above are not told apart by a double.
WHOLE = 2.0**53
# Magic number and dimensions of the IDX files that are read.
_IDX_KINDS = {"images": (0x803, 3), "labels": (0x801, 1)}
# The index that pandas writes beside the columns is no column of the data.
_PANDAS_INDEX = "__index_level_"
# Whole numbers up to here are themselves in float32, as which rows are kept.
_MOST_TOKENS = 1 << 24


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RawRows:
    """Rows as a file has them.

    Attributes:
        name: Of the file.
        features: One row an example.
        labels: One a row; None where there are none.
        columns: Columns for partitioners, and what else an archive holds.
        test: Features and labels of a test part of its own, if any.
        feature_names: Columns of a table.
        is_token: Whether features are tokens, which are never scaled.
    """

    name: str
    features: Array
    labels: Array | None
    columns: Mapping[str, Array] = field(default_factory=dict)
    test: tuple[Array, Array | None] | None = None
    feature_names: tuple[str, ...] = ()
    is_token: bool = False

    @property
    def is_image(self) -> bool:
        """Whether each row came as a square of numbers."""
        return self.features.ndim in {3, 4} and self.features.shape[1] == self.features.shape[2]


def read_rows(spec: Spec, file: str, *, n_features: int | None = None, like: Spec | None = None) -> RawRows:
    """Read one file of the kind that ``spec`` names; rows for a model of ``n_features`` need no labels.

    Of columns that ``like`` names, a table may have some.
    """
    match spec.name:
        case "digits":
            with resources.files("veilwalk.learning").joinpath("digits.npz").open("rb") as stream:
                archive = np.load(stream, allow_pickle=False)
                # Pixels run from 0 to 16.
                pixels = archive["pixels"].reshape(-1, 8, 8) / np.float32(16)
                return RawRows(name=spec.name, features=pixels, labels=archive["labels"])
        case "mnist":
            if not Path(file).is_dir():
                raise InputFileError(f"{file}: no such folder")
            train, test = (
                # Pixels run from 0 to 255.
                (_read_idx(Path(file), start, "images") / np.float32(255), _read_idx(Path(file), start, "labels"))
                for start in ("train", "t10k")
            )
            return RawRows(name=file, features=train[0], labels=train[1], test=test)
        case "npz":
            return _read_npz(Path(file), labelled=n_features is None)
    return _read_table(spec, Path(file), n_features, like)


def _read_npz(path: Path, *, labelled: bool) -> RawRows:
    arrays = read_archive(path)

    def take_labels(name: str) -> Array | None:
        if name not in arrays and labelled:
            raise InputFileError(f"{path}: has no labels: need an array {name}")
        return arrays.pop(name, None)

    if "tokens" in arrays:
        tokens = arrays.pop("tokens")
        whole = tokens.ndim == 2 and tokens.dtype.kind in "iu" and tokens.size > 0
        if not whole or tokens.min() < 0 or tokens.max() >= _MOST_TOKENS:
            need = f"rows of whole numbers from 0 to below {_MOST_TOKENS}"
            raise InputFileError(f"{path}: tokens have shape {tokens.shape} and type {tokens.dtype}: need {need}")
        labels = arrays.pop("labels", None)
        return RawRows(name=str(path), features=tokens, labels=labels, columns=arrays, is_token=True)
    if "features" in arrays:
        return RawRows(name=str(path), features=arrays.pop("features"), labels=take_labels("labels"), columns=arrays)
    if "x_test" not in arrays or (labelled and "x_train" not in arrays):
        need = "arrays x_train, y_train, x_test, y_test, or features, labels, or tokens"
        raise InputFileError(f"{path}: need {need}")
    test = arrays.pop("x_test"), take_labels("y_test")
    train, labels = arrays.pop("x_train", test[0][:0]), take_labels("y_train")
    columns = {name.removesuffix("_train"): array for name, array in arrays.items() if name.endswith("_train")}
    return RawRows(name=str(path), features=train, labels=labels, columns=columns, test=test)


def _read_table(spec: Spec, path: Path, n_features: int | None, like: Spec | None) -> RawRows:
    """Read a table. Its labels are the column that ``spec`` names, or ``like``, or ``label``, or the last."""
    table = {"csv": _read_csv, "parquet": _read_parquet}[spec.name](path)
    named, groups = spec.option("label") or spec.option("target"), spec.option_values("group")
    if like is not None:
        groups = tuple(name for name in like.option_values("group") if name in table.columns)
    usual = (like and (like.option("label") or like.option("target")), LABEL)
    named = named or next((name for name in usual if name in table.columns), None)
    label = named or [*table.columns][-1]
    # Rows for a model may come without labels.
    skipped = {*groups} if not named and len(table.columns) - len(groups) == n_features else {*groups, label}
    for column in skipped - {*table.columns}:
        raise InputFileError(f"{path}: has no column {column}: it has {', '.join(table.columns)}")
    if label in groups:
        raise InputFileError(f"{path}: column {label} cannot be both label and group")
    names = tuple(name for name in table.columns if name not in skipped)
    if not names:
        raise InputFileError(f"{path}: has no features beside the column {label}")
    why = "; a column that only groups rows is given as group="
    features = np.stack([table.numbers(name, why=why) for name in names], axis=1)
    columns = {name: table.values(name) for name in groups}
    labels = None
    if label in skipped:
        labels = table.numbers(label, why="") if spec.option("target") else table.values(label)
    return RawRows(name=str(path), features=features, labels=labels, columns=columns, feature_names=names)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Table:
    """Columns by name, text or numbers; ``place`` says where in the file a row is."""

    file: Path
    columns: dict[str, Array]
    place: Callable[[int], str]

    def refuse(self, row: int, column: str, why: str) -> InputFileError:
        """Return the error for one cell."""
        return InputFileError(f"{self.file}, {self.place(row)}, column {column}: {why}")

    def numbers(self, column: str, *, why: str) -> Array:
        """Return a column as finite numbers; ``why`` says what one that is none could be instead."""
        cells = self.columns[column]
        if cells.dtype.kind == "U":
            _, bad = _parse_cells(cells)
            if bad is not None:
                cell = str(cells[bad])
                text = "is missing" if not cell.strip() else f"{cell!r} is not a number{why}"
                raise self.refuse(bad, column, text)
        numbers = cells.astype(np.float64)
        bad_rows = np.flatnonzero(~np.isfinite(numbers))
        if bad_rows.size:
            raise self.refuse(int(bad_rows[0]), column, f"{numbers[bad_rows[0]]} is not a finite number")
        return numbers

    def values(self, column: str) -> Array:
        """Return a column as whole numbers or numbers where all cells are such, else as text; none may be missing."""
        cells = self.columns[column]
        if cells.dtype.kind != "U":
            return cells
        missing = np.flatnonzero(np.char.strip(cells) == "")
        if missing.size:
            raise self.refuse(int(missing[0]), column, "is missing")
        numbers, bad = _parse_cells(cells)
        if bad is not None:
            return cells
        if not np.isfinite(numbers).all() or not np.all(numbers == np.floor(numbers)):
            return numbers
        # Whole numbers that a double does not tell apart are text, and so are those with leading zeros.
        padded = any(cell.strip().isdecimal() and cell.strip() != str(int(cell)) for cell in cells.tolist())
        return numbers.astype(np.int64) if np.abs(numbers).max() < WHOLE and not padded else cells


def _parse_cells(cells: Array) -> tuple[Array, int | None]:
    """Return text as numbers, or the row of the first cell that is none."""
    try:
        return cells.astype(np.float64), None
    except ValueError:
        return cells, next(row for row, cell in enumerate(cells.tolist()) if not is_number(cell))


def _read_csv(path: Path) -> _Table:
    """Read a CSV file, separated by commas, semicolons or tabs, with a line of column names or without."""
    rows, lines = [], []
    with (
        name_errors(path, "is not a CSV file in UTF-8 ({error})", UnicodeDecodeError, csv.Error),
        path.open(encoding="utf-8-sig", newline="") as stream,
    ):
        first = stream.readline()
        stream.seek(0)
        reader = csv.reader(stream, delimiter=max(",;\t", key=first.count), strict=True)
        for row in reader:
            # A line that holds nothing at all is no row.
            if row:
                rows.append(row)
                lines.append(reader.line_num)
    if len(rows) < 2:
        raise InputFileError(f"{path}: has no rows")
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(rows[0]):
            raise InputFileError(f"{path}, line {line}: has {len(row)} columns, line {lines[0]} has {len(rows[0])}")
    # The first line holds names where some column turns from text to number below it.
    if any(not is_number(top) and is_number(below) for top, below in zip(rows[0], rows[1], strict=True)):
        names = [name.strip() for name in rows[0]]
        _check_names(path, names)
        rows, lines = rows[1:], lines[1:]
    else:
        names = [f"c{number}" for number in range(1, len(rows[0]) + 1)]
    columns = {name: np.array(cells) for name, cells in zip(names, zip(*rows, strict=True), strict=True)}
    return _Table(file=path, columns=columns, place=lambda row: f"line {lines[row]}")


def _check_names(path: Path, names: Sequence[str]) -> None:
    if "" in names:
        raise InputFileError(f"{path}, line 1: column {names.index('') + 1} has no name: name it, or leave it out")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputFileError(f"{path}, line 1: two columns are called {twice[0]}")


def _read_parquet(path: Path) -> _Table:
    """Read a Parquet file through pyarrow."""
    parquet, arrow = import_extra("pyarrow.parquet", "parquet"), import_extra("pyarrow", "parquet")
    with name_errors(path, "cannot be read: {error}", OSError, arrow.ArrowException):
        metadata = parquet.read_metadata(path)
        groups = range(metadata.num_row_groups)
        require_size(path, sum(metadata.row_group(group).total_byte_size for group in groups))
        table = parquet.read_table(path)
    if not table.num_rows:
        raise InputFileError(f"{path}: has no rows")
    names = [name for name in table.column_names if not name.startswith(_PANDAS_INDEX)]
    _check_names(path, names)
    columns: dict[str, Array] = {}
    for name in names:
        column = table.column(name)
        if column.null_count:
            raise InputFileError(f"{path}, row {column.to_pylist().index(None)}, column {name}: is missing")
        cells = column.to_numpy()
        # What is neither number nor truth value is text.
        columns[name] = cells if cells.dtype.kind in "biuf" else np.array([str(cell) for cell in column.to_pylist()])
    return _Table(file=path, columns=columns, place=lambda row: f"row {row}")


def _read_idx(folder: Path, start: str, kind: str) -> Array:
    """Read the images or labels of MNIST, gzipped or not, under either common name."""
    magic, dimensions = _IDX_KINDS[kind]
    names = [f"{start}-{kind}{mark}idx{dimensions}-ubyte{packed}" for mark in "-." for packed in ("", ".gz")]
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise InputFileError(f"{folder}: has no file {names[0]} or {names[1]}")
    content, begin = read_bytes(path), 4 + 4 * dimensions
    if len(content) < begin or int.from_bytes(content[:4], "big") != magic:
        raise InputFileError(f"{path}: is not an IDX file of {kind}")
    shape, values = (
        np.frombuffer(content[4:begin], dtype=">u4").tolist(),
        np.frombuffer(content[begin:], dtype=np.uint8),
    )
    if len(values) != math.prod(shape):
        raise InputFileError(f"{path}: is cut short or too long: its header announces {shape}")
    return values.reshape(shape)
