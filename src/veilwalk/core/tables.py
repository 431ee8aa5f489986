"""Tidy rows as others like them: a data frame where pandas is there, a table where a notebook shows one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from veilwalk.core.errors import ConfigError


def frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as a pandas data frame.

    Raises:
        ConfigError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise ConfigError("pandas is missing: pip install pandas, or take the rows as they are") from None
    return pd.DataFrame(list(rows))


def html_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows, which have the same keys, as a table in HTML; numbers as they are, text escaped."""
    head = "".join(f"<th>{escape(str(key))}</th>" for key in (rows[0] if rows else ()))
    lines = ("".join(f"<td>{escape(str(value))}</td>" for value in row.values()) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
