"""Tables with named columns, from CSV, ARFF and Parquet files: which column is what, and what is wrong with a cell."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veilwalk.core.errors import InputFileError, InvalidParameterError
from veilwalk.learning._api import Array
from veilwalk.learning._labels import WHOLE

_OPTION = re.compile(r":(\w+)=([^:]*)$")
# The index that pandas writes beside the columns is no column of the data.
_PANDAS_INDEX = "__index_level_"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """A file and the parts its columns play; all columns that have none are features.

    Attributes:
        file: Where it is.
        label: The column of labels.
        target: The column of numbers to be fitted, even where all are whole.
        groups: Columns that only say which rows belong together.
    """

    file: Path
    label: str | None
    target: str | None
    groups: tuple[str, ...]


def parse_table_spec(spec: str, rest: str) -> TableSpec:
    """Read ``FILE[:label=COLUMN | :target=COLUMN][:group=COLUMN ...]``."""
    found: dict[str, list[str]] = {"label": [], "target": [], "group": []}
    while match := _OPTION.search(rest):
        key, column = match.groups()
        if key not in found or not column:
            need = "FILE followed by label=COLUMN or target=COLUMN, and group=COLUMN"
            raise InvalidParameterError("data", spec, f"{need} (not {match.group()[1:]!r})")
        found[key].insert(0, column)
        rest = rest[: match.start()]
    if len(found["label"]) + len(found["target"]) > 1:
        raise InvalidParameterError("data", spec, "given one label or one target")
    label, target = (found[key][0] if found[key] else None for key in ("label", "target"))
    return TableSpec(file=Path(rest), label=label, target=target, groups=tuple(found["group"]))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Table:
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
            _, bad = _parsed(cells)
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
        """Return a column as whole numbers or numbers where all cells are such, else as text; none may be missing.

        Whole numbers that a double does not tell apart are text, too, and so are those with leading zeros.
        """
        cells = self.columns[column]
        if cells.dtype.kind != "U":
            return cells
        missing = np.flatnonzero(np.char.strip(cells) == "")
        if missing.size:
            raise self.refuse(int(missing[0]), column, "is missing")
        numbers, bad = _parsed(cells)
        if bad is not None:
            return cells
        if not np.isfinite(numbers).all() or not np.all(numbers == np.floor(numbers)):
            return numbers
        # Ids longer than a double tells apart, or filled up with zeros, stay the text that they are.
        padded = any(cell.strip().isdecimal() and cell.strip() != str(int(cell)) for cell in cells.tolist())
        return numbers.astype(np.int64) if np.abs(numbers).max() < WHOLE and not padded else cells


def _parsed(cells: Array) -> tuple[Array, int | None]:
    """Return text as numbers, or where the first is that is none."""
    try:
        return cells.astype(np.float64), None
    except ValueError:
        return cells, next(row for row, cell in enumerate(cells.tolist()) if _number(cell) is None)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def roles(table: Table, spec: TableSpec) -> tuple[Array, Array, dict[str, Array]]:
    """Return features, labels and grouping columns of ``table``.

    Labels are the column ``label`` where nothing is said, or the last one.
    """
    label = spec.label or spec.target or ("label" if "label" in table.columns else [*table.columns][-1])
    for column in (label, *spec.groups):
        if column not in table.columns:
            raise InputFileError(f"{table.file}: has no column {column}: it has {', '.join(table.columns)}")
    if label in spec.groups:
        raise InputFileError(f"{table.file}: column {label} cannot be both label and group")
    features = [name for name in table.columns if name != label and name not in spec.groups]
    if not features:
        raise InputFileError(f"{table.file}: has no features beside the column {label}")
    why = "; a column that only groups rows is given as group="
    rows = np.stack([table.numbers(name, why=why) for name in features], axis=1)
    labels = table.numbers(label, why="") if spec.target else table.values(label)
    return rows, labels, {name: table.values(name) for name in spec.groups}


def read_csv(path: Path) -> Table:
    """Read a CSV file, separated by commas, semicolons or tabs, with a line of column names or without."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            first = stream.readline()
            stream.seek(0)
            reader = csv.reader(stream, delimiter=max(",;\t", key=first.count), strict=True)
            rows, lines = [], []
            for row in reader:
                # A line that holds nothing at all is no row.
                if row:
                    rows.append(row)
                    lines.append(reader.line_num)
    except OSError as error:
        raise InputFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputFileError(f"{path}: is not a CSV file in UTF-8 ({error})") from error
    if len(rows) < 2:
        raise InputFileError(f"{path}: has no rows")
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(rows[0]):
            raise InputFileError(f"{path}, line {line}: has {len(row)} columns, line {lines[0]} has {len(rows[0])}")
    names = _header(rows)
    if names is None:
        names = [f"c{number}" for number in range(1, len(rows[0]) + 1)]
    else:
        _check_names(path, names)
        rows, lines = rows[1:], lines[1:]
    columns = {name: np.array(cells) for name, cells in zip(names, zip(*rows, strict=True), strict=True)}
    return Table(file=path, columns=columns, place=lambda row: f"line {lines[row]}")


def _header(rows: Sequence[Sequence[str]]) -> list[str] | None:
    """Return the names in the first line; it holds none where no column turns from text to number below it."""
    named = any(
        _number(top) is None and _number(below) is not None for top, below in zip(rows[0], rows[1], strict=True)
    )
    return [name.strip() for name in rows[0]] if named else None


def _check_names(path: Path, names: Sequence[str]) -> None:
    if "" in names:
        raise InputFileError(f"{path}, line 1: column {names.index('') + 1} has no name: name it, or leave it out")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputFileError(f"{path}, line 1: two columns are called {twice[0]}")


def read_arff(path: Path) -> Table:
    """Read an ARFF file, as OpenML and Weka have them, through SciPy: numbers and nominal values."""
    from scipy.io import arff

    try:
        with path.open(encoding="utf-8-sig") as stream:
            found, meta = arff.loadarff(stream)
    except OSError as error:
        raise InputFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, NotImplementedError, StopIteration, arff.ArffError) as error:
        why = " ".join(str(error).split()) or "it ends too early"
        raise InputFileError(f"{path}: is not an ARFF file of numbers and nominal values ({why})") from error
    if not len(found):
        raise InputFileError(f"{path}: has no rows")
    columns = {name: _nominal(found[name]) for name in meta.names()}
    return Table(file=path, columns=columns, place=lambda row: f"row {row}")


def _nominal(cells: Array) -> Array:
    """Return a column of SciPy's: nominal values are bytes, and a question mark is a missing one."""
    if cells.dtype.kind != "S":
        return cells
    text = np.char.decode(cells, "utf-8")
    return np.where(text == "?", "", text)


def read_parquet(path: Path) -> Table:
    """Read a Parquet file through pyarrow."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise InvalidParameterError(
            "data", f"parquet:{path}", "read with pyarrow installed: pip install 'veilwalk[parquet]'"
        ) from error
    try:
        table = parquet.read_table(path)
    except (OSError, ArrowException) as error:
        raise InputFileError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    if not table.num_rows:
        raise InputFileError(f"{path}: has no rows")
    names = [name for name in table.column_names if not name.startswith(_PANDAS_INDEX)]
    _check_names(path, names)
    columns = {name: _column(path, name, table.column(name)) for name in names}
    return Table(file=path, columns=columns, place=lambda row: f"row {row}")


def _column(path: Path, name: str, column: object) -> Array:
    """Return a column of pyarrow's; whatever is neither number nor truth value is text."""
    if column.null_count:  # type: ignore[attr-defined]
        row = column.to_pylist().index(None)  # type: ignore[attr-defined]
        raise InputFileError(f"{path}, row {row}, column {name}: is missing")
    cells: Array = column.to_numpy()  # type: ignore[attr-defined]
    return cells if cells.dtype.kind in "biuf" else np.array([str(cell) for cell in column.to_pylist()])  # type: ignore[attr-defined]
