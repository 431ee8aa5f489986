"""Tables for people: no cell of a CSV is a formula to a spreadsheet."""

from __future__ import annotations

import csv
import io
from typing import Any

from veilwalk.core.tables import csv_table


def test_text_that_a_spreadsheet_would_run_is_quoted() -> None:
    """In headings and cells; numbers, also negative ones, stay as they are, and missing cells are empty."""
    rows: list[dict[str, Any]] = [
        {"name": "=1+1", "value": -1.5, "text": "-2.5e-3"},
        {"name": "+x", "value": None, "text": "-"},
        {"name": "@sum", "@note": "a=b"},
    ]
    table = list(csv.reader(io.StringIO(csv_table(rows).decode())))
    assert table == [
        ["name", "value", "text", "'@note"],
        ["'=1+1", "-1.5", "-2.5e-3", ""],
        ["'+x", "", "'-", ""],
        ["'@sum", "", "", "a=b"],
    ]
