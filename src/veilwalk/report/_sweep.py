"""A sweep, from its record: a figure of means and intervals, and one page."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from veilwalk.core.records import Record, write_atomically
from veilwalk.core.tables import columns_of
from veilwalk.report.style import finish_axis, render_figure, render_page

Row = Mapping[str, Any]
# What is drawn, of what there is: what was gained, what leaks, what it costs.
_DRAWN = {
    "accuracy": "accuracy",
    "loss": "loss",
    "node_entropy_nats": "node entropy, nats",
    "hit_ratio": "hit ratio",
    "recall": "recall of first-spy",
    "precision": "precision of first-spy",
    "hops_per_update": "hops per update",
}
_MOST_PANELS, _MOST_GROUPS = 4, 60
_COLOUR = "#1f5fa8"


def sweep_files(record: Record, folder: Path) -> list[Path]:
    """Draw the means over seeds with their intervals, and write the figure and a page that needs nothing else."""
    if not record.result["summary"]:
        return []
    figure = _figure(record)
    files = {"sweep.png": figure, "report.html": _page(record, figure).encode()}
    for name, data in files.items():
        write_atomically(folder / name, data)
    return [folder / name for name in files]


def _label(record: Record, row: Row) -> str:
    parts = [name for name in (*record.result["swept"], "algorithm", "observer", "linked") if name in row]
    return ", ".join(f"{row[name]}" if isinstance(row[name], str) else f"{name} {row[name]}" for name in parts) or "all"


def _figure(record: Record) -> bytes:
    """Draw the mean of each measure with its interval over seeds, a line a group."""
    rows = list(record.result["summary"])[:_MOST_GROUPS]
    measures = [name for name in _DRAWN if any(name in row for row in rows)][:_MOST_PANELS]
    size = (2.5 + 3.2 * len(measures), 1.2 + 0.28 * len(rows))
    figure, axes = plt.subplots(1, len(measures), figsize=size, sharey=True, squeeze=False)
    for axis, name in zip(axes[0], measures, strict=True):
        for place, row in enumerate(rows):
            if name not in row:
                continue
            low, high = row.get(f"{name}_low", row[name]), row.get(f"{name}_high", row[name])
            axis.plot([low, high], [place, place], color=_COLOUR, lw=1.5)
            axis.plot(row[name], place, "o", color=_COLOUR, ms=5)
        axis.set_xlabel(_DRAWN[name])
        finish_axis(axis)
    axes[0][0].set_yticks(range(len(rows)), [_label(record, row) for row in rows])
    axes[0][0].invert_yaxis()
    figure.tight_layout()
    return render_figure(figure, "png")[0]


def _page(record: Record, figure: bytes) -> str:
    result = record.result
    columns = [name for name in columns_of(result["summary"]) if not name.endswith(("_low", "_high"))]
    return render_page(
        "sweep.html",
        record=record.to_dict(),
        columns=columns,
        cells=[[_cell(row, name) for name in columns] for row in result["summary"]],
        failed_columns=columns_of(result["failed"]),
        figure=base64.b64encode(figure).decode(),
    )


def _cell(row: Row, name: str) -> str:
    value = row.get(name)
    if not isinstance(value, float):
        return "" if value is None else str(value)
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    return f"{value:.4g}" + ("" if low is None or high is None else f" ({low:.4g} to {high:.4g})")
