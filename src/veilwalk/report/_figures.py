"""The paper's figures, drawn from their records: PNG, SVG, CSV and JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.records import Record
from veilwalk.report.style import finish_axis, save_figure

Row = dict[str, Any]

# Printed in red, corrected in blue, exact truth in black: the same in every figure, and told apart by line and
# marker as well, for readers who do not see the colours.
_STYLES: dict[str, dict[str, Any]] = {
    # The printed formulas give the same to 1e-13 whether shortest paths are counted or not: one curve for both.
    "printed_nats": {"color": "#c1272d", "ls": "--", "lw": 1.6, "label": "as printed, shortest paths or not"},
    "printed_uniform_nats": {"color": "#e8a0a2", "ls": "--", "lw": 1.2, "label": "uniform over distances, printed"},
    "corrected_nats": {"color": "#1f5fa8", "ls": "--", "lw": 1.6, "label": "corrected, shortest paths left out"},
    "corrected_without_fht_nats": {"color": "#1f5fa8", "lw": 2.0, "label": "corrected, shortest paths counted"},
    "corrected_uniform_nats": {"color": "#9dbbe0", "lw": 1.4, "label": "uniform over distances, corrected"},
    "exact_nats": {"color": "black", "ls": "none", "marker": "o", "ms": 4, "label": "exact chains (truth)"},
    "exact_uniform_nats": {
        "color": "#777777",
        "ls": "none",
        "marker": "s",
        "ms": 3.5,
        "label": "uniform over distances, exact",
    },
    "floor_printed_nats": {"color": "#c1272d", "ls": "-.", "lw": 1.2, "label": "floor as printed"},
    "floor_corrected_nats": {"color": "#1f5fa8", "ls": "-.", "lw": 1.2, "label": "floor, corrected"},
}


def figure_files(record: Record, folder: Path) -> list[Path]:
    """Write the figure of ``record`` as PNG and SVG, its rows as CSV and the record as JSON; return the paths."""
    name = record.kind.removeprefix("paper figure: ")
    drawers: dict[str, Callable[[Axes, list[Row]], None]] = {
        "side-information": _draw_side_information,
        "probability": _draw_probability,
        "trade-off": _draw_trade_off,
    }
    if name not in drawers:
        raise InvalidParameterError("record", record.kind, "a paper figure")
    rows: list[Row] = list(record.result["rows"])
    return save_figure(_draw(rows, drawers[name], _caption(name, record)), folder, name, rows=rows, record=record)


def _draw(rows: list[Row], drawer: Callable[[Axes, list[Row]], None], caption: str) -> Figure:
    degrees = sorted({row["degree"] for row in rows})
    figure, axes = plt.subplots(1, len(degrees), figsize=(6.4 * len(degrees), 5.6), sharey=True, squeeze=False)
    for axis, degree in zip(axes[0], degrees, strict=True):
        drawer(axis, [row for row in rows if row["degree"] == degree])
        axis.set_title(f"degree c = {degree}", fontsize=11)
        # The axes share their scale; one label serves both.
        axis.label_outer()
    handles, labels = axes[0][0].get_legend_handles_labels()
    columns = 3 if len(labels) > 5 else len(labels)
    figure.legend(handles, labels, loc="lower center", ncols=columns, fontsize=9, frameon=False)
    figure.suptitle(caption, fontsize=12, x=0.01, ha="left")
    figure.tight_layout(rect=(0, 0.042 * -(-len(labels) // columns) + 0.01, 1, 0.99))
    return figure


def _draw_side_information(axis: Axes, rows: list[Row]) -> None:
    x = [row["return_time_seen"] for row in rows]
    _curves(axis, x, rows, skip=("floor_printed_nats", "floor_corrected_nats"))
    covered = (rows[0]["return_time_from"], max(x))
    for name in ("floor_printed_nats", "floor_corrected_nats"):
        axis.plot(covered, [rows[0][name]] * 2, **_STYLES[name])
    axis.axvline(rows[0]["return_time_design"], color="#999999", lw=0.8)
    most = rows[0]["maximum_nats"]
    here = (rows[0]["return_time_design"], 0.466 * most)
    axis.annotate("designed for ", here, fontsize=8, color="#666666", ha="right")
    finish_axis(axis, "return time seen by the destination, κ′ (hops)", "distance entropy H(W) (nats)", log=True)
    axis.set_ylim(0.25 * most, 1.044 * most)


def _draw_probability(axis: Axes, rows: list[Row]) -> None:
    _curves(axis, [row["probability"] for row in rows], rows)
    finish_axis(axis, "probability 1 − δ′ that the return time is covered", "least distance entropy covered (nats)")
    axis.annotate(
        "exact points count returns that retrace their way;\nthe curves and floors leave them out",
        (0.02, 0.05),
        xycoords="axes fraction",
        fontsize=8,
        color="#666666",
    )
    axis.set_ylim(-0.02 * rows[0]["maximum_nats"], 1.044 * rows[0]["maximum_nats"])


def _curves(axis: Axes, x: Sequence[float], rows: list[Row], skip: tuple[str, ...] = ()) -> None:
    axis.axhline(rows[0]["maximum_nats"], color="#bbbbbb", lw=0.8)
    for name, style in _STYLES.items():
        if name not in skip:
            axis.plot(x, [row[name] for row in rows], **style)


def _draw_trade_off(axis: Axes, rows: list[Row]) -> None:
    entropy = [row["distance_entropy_nats"] for row in rows]
    if rows[0]["published_hops"] is not None:
        published = [row["published_hops"] for row in rows]
        axis.plot(published, entropy, color="#c1272d", marker="x", ms=8, ls="none", label="published table")
        recipe = [row["integer_window_hops"] for row in rows]
        axis.plot(recipe, entropy, color="#c1272d", lw=1, label="its recipe, reproduced")
    else:
        axis.annotate("nothing was published for this", (0.03, 0.94), xycoords="axes fraction", fontsize=9)
    for key, name in (("formula_hops", "printed_nats"), ("corrected_hops", "corrected_without_fht_nats")):
        style = _STYLES[name] | {"label": "printed formulas" if key == "formula_hops" else "corrected formulas"}
        axis.plot([row[key] for row in rows], entropy, **style)
    error = [2 * (row["exact_hops_standard_error"] or 0) for row in rows]
    axis.errorbar(
        [row["exact_hops"] for row in rows],
        entropy,
        xerr=error,
        color="black",
        marker="o",
        ms=4,
        ls="none",
        label="exact chains (±2 s.e.)",
    )
    finish_axis(axis, "mean hops per update", "distance entropy H(W) at κ′ = κ (nats)")


def _caption(name: str, record: Record) -> str:
    """Say what is to be seen, in the numbers of the record, of the first degree that is drawn."""
    size, graphs = record.params["n_nodes"], record.params["n_graphs"]
    rows = [row for row in record.result["rows"] if row["degree"] == record.params["degrees"][0]]
    finding = {"side-information": _describe_by_time, "probability": _describe_by_share, "trade-off": _describe_cost}[
        name
    ](rows)
    several = f"mean of {graphs} sampled graphs" if graphs > 1 else "one sampled graph"
    return f"{finding} (degree {rows[0]['degree']} of {size} nodes; exact: {several})"


def _describe_by_time(rows: list[Row]) -> str:
    worst = max(rows, key=lambda row: row["printed_nats"] - row["exact_nats"])
    gap = worst["printed_nats"] - worst["exact_nats"]
    return f"At short return times distance entropy is up to {gap:.2f} nats below what is printed"


def _describe_by_share(rows: list[Row]) -> str:
    row = min(rows, key=lambda row: abs(row["probability"] - 0.9))
    what = f"{row['exact_nats']:.2f} nats of distance entropy, where {row['printed_nats']:.2f} are printed"
    return f"With probability {row['probability']:.1f} there are at least {what}"


def _describe_cost(rows: list[Row]) -> str:
    first, last = rows[0], rows[-1]
    gained = last["distance_entropy_nats"] - first["distance_entropy_nats"]
    return (
        f"{gained:.2f} nats more of distance entropy cost {last['exact_hops'] / first['exact_hops'] - 1:.0%} more hops"
    )
