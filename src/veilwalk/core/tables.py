"""Tidy rows as others like them: a data frame where pandas is there, a table where a notebook shows one."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from veilwalk.core.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd


def frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a pandas data frame, or say in one line that pandas is not installed."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise ConfigError("pandas is missing: pip install pandas, or take the rows as they are") from None
    return pd.DataFrame(list(rows))


class Tabular:
    """A result that is a table: a data frame for who has pandas, and rows at the end of a cell of a notebook."""

    def rows(self) -> list[dict[str, Any]]:
        """Return tidy rows."""
        raise NotImplementedError

    def to_frame(self) -> pd.DataFrame:
        """Return :meth:`rows` as a pandas data frame; only this needs pandas."""
        return frame(self.rows())

    def _overview(self) -> Iterable[Mapping[str, Any]]:
        """Return the rows that a notebook shows."""
        return self.rows()

    def _repr_html_(self) -> str:
        return html_table(list(self._overview()))


def html_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows, which need not have the same keys, as a table in HTML: reals with four digits, text escaped."""
    columns = columns_of(rows)
    lines = [columns, *([_format_cell(row.get(name)) for name in columns] for row in rows)]
    cells = ("".join(f"<td>{escape(cell)}</td>" for cell in line) for line in lines)
    head, *body = (f"<tr>{line}</tr>" for line in cells)
    return f"<table>{head.replace('td>', 'th>')}{''.join(body)}</table>"


def _format_cell(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else "" if cell is None else str(cell)


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return every column of rows that need not have the same, in the order in which they first come."""
    return list(dict.fromkeys(name for row in rows for name in row))


def csv_table(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows as CSV; a row that lacks a column leaves it empty, and no cell is a formula to a spreadsheet."""
    stream, columns = io.StringIO(), columns_of(rows)
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(_quote_formula, columns))
    writer.writerows([_quote_formula(row.get(name, "")) for name in columns] for row in rows)
    return stream.getvalue().encode()


def _quote_formula(value: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would run: it begins with = + - @, and is no number."""
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    return value if is_number(value) else f"'{value}"


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def parquet_table(rows: Sequence[Mapping[str, Any]]) -> bytes | None:
    """Return rows as Parquet; None where pyarrow is missing. A column that mixes numbers and text becomes text."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ModuleNotFoundError:
        return None
    columns = {}
    for name in columns_of(rows):
        values = [row.get(name) for row in rows]
        kinds = {float if type(value) is int else type(value) for value in values if value is not None}
        columns[name] = values if len(kinds) <= 1 else [None if value is None else str(value) for value in values]
    stream = io.BytesIO()
    parquet.write_table(pa.table(columns), stream)
    return stream.getvalue()
