"""One style for all figures: how they are made, finished, headed and written."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from veilwalk.core.records import Record, write_atomically
from veilwalk.core.tables import csv_table

Row = Mapping[str, Any]

#: How the curve of each algorithm looks.
CURVES: dict[str, dict[str, Any]] = {
    "private-walk": {"color": "black", "lw": 2.0, "label": "private walk"},
    "paper-walk": {"color": "#7a3b8f", "ls": (0, (5, 1)), "label": "the paper's walk"},
    "plain-walk": {"color": "#d98200", "ls": "--", "label": "plain walk"},
    "gossip": {"color": "#1f5fa8", "ls": "-.", "label": "gossip (average model)"},
    "gossip-matching": {"color": "#1f5fa8", "ls": ":", "label": "gossip in random pairs (average model)"},
    "gossip-push": {"color": "#6fa8dc", "ls": "--", "label": "gossip, push to one (average model)"},
    "fedavg": {"color": "#d98200", "ls": ":", "label": "FedAvg (a server)"},
    "gossip, own models": {"color": "#6fa8dc", "ls": "-.", "label": "gossip (single models)"},
    "central": {"color": "#888888", "ls": ":", "label": "central (ceiling)"},
}
#: What training is drawn against: the column of its points, and the label of the axis.
COSTS = (("update", "updates"), ("hops", "hops, all together"), ("sent_bytes", "bytes sent, all together"))
#: Settings of figures inside a page, whose text stays text.
PAGE_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 10,
    "axes.edgecolor": "#777777",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
}


def render_page(template: str, filters: Mapping[str, Any] | None = None, **content: Any) -> str:
    """Fill a template of this package; text is escaped, and a name that is missing is an error."""
    source = resources.files("veilwalk.report").joinpath(template).read_text()
    page = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page.filters |= filters or {}
    return page.from_string(source).render(**content)


def finish_axis(axis: Axes, x: str = "", y: str = "", *, log: bool = False) -> None:
    """Label a panel, draw its grid behind everything, and leave out the upper and the right edge.

    ``log`` makes the horizontal axis logarithmic.
    """
    axis.set(**{name: label for name, label in (("xlabel", x), ("ylabel", y)) if label})
    if log:
        axis.set_xscale("log")
    axis.grid(visible=True, color="#dddddd", lw=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def set_heading(figure: Figure, finding: str, about: str) -> None:
    """Head a figure with what is to be seen in it, and below that with what it is of."""
    figure.suptitle(f"{finding}\n{about}" if finding else about, x=0.01, ha="left")


def plot_with_band(
    axis: Axes, places: Sequence[float], rows: Sequence[Row], score: str, style: Mapping[str, Any]
) -> None:
    """Draw a score of ``rows`` as a curve, and its interval as a band."""
    axis.plot(places, [row[score] for row in rows], **style)
    low, high = ([row[f"{score}_interval"][end] for row in rows] for end in (0, 1))
    axis.fill_between(places, low, high, color=style["color"], alpha=0.15, lw=0)


def render_figure(figure: Figure, *kinds: str) -> list[bytes]:
    """Return ``figure`` as ``png`` or ``svg``, and close it; the same figure gives the same bytes."""
    rendered = []
    for kind in kinds:
        buffer = io.BytesIO()
        # No date and a fixed salt: the same record gives the same bytes.
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        with mpl.rc_context({"svg.hashsalt": "veilwalk"}):
            figure.savefig(buffer, format=kind, dpi=140, metadata=metadata)
        rendered.append(buffer.getvalue())
    plt.close(figure)
    return rendered


def save_figure(
    figure: Figure, folder: Path, name: str, *, rows: Sequence[Row] | None = None, record: Record | None = None
) -> list[Path]:
    """Write ``figure`` as PNG and SVG, its rows as CSV and its record as JSON, and close it; return the paths."""
    png, svg = render_figure(figure, "png", "svg")
    files = {"png": png, "svg": svg}
    if rows is not None:
        files["csv"] = csv_table(rows)
    if record is not None:
        files["json"] = record.to_json().encode()
    for suffix, data in files.items():
        write_atomically(folder / f"{name}.{suffix}", data)
    return [folder / f"{name}.{suffix}" for suffix in files]
