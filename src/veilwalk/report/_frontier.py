"""Frontiers, drawn from their records: over laws, and over the number of recipients."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from veilwalk.core.records import Record
from veilwalk.report.style import finish_axis, save_figure, set_heading

_COLOURS = ("black", "#d98200", "#1f5fa8", "#2a8f5b")
# The rarer a law lies by itself, the larger: where they pile up each is seen around the next.
_MARKERS = {"uniform-node": "o", "optimal": "^"}
_SIZES = {"uniform-node": 11, "optimal": 4}
# Of the frontier over the number of recipients.
_LAW_COLOURS = ("#1f5fa8", "#d98200", "#2a8f5b", "#8a3ab9")
_WALK_LINES = {"simple": ":", "non-backtracking": "-"}
_HOPS = "mean hops per update"


def frontier_files(record: Record, folder: Path) -> list[Path]:
    """Write ``frontier.json`` and the figure: node entropy and hit ratio against mean hops per update."""
    rows: list[dict[str, Any]] = list(record.result["rows"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5.2))
    walks = list(dict.fromkeys(row["walk"] for row in rows))
    for walk, colour in zip(walks, _COLOURS, strict=False):
        own_rows = [row for row in rows if row["walk"] == walk]
        for axis, score in ((left, "node_entropy_nats"), (right, "hit_ratio")):
            _draw(axis, own_rows, score, colour)
        left.plot([], [], color=colour, lw=3, label=f"{walk} walk")
    for law, marker in _MARKERS.items():
        style = {"mfc": None, "ls": "-"} if law == "optimal" else {"mfc": "none", "mew": 1.8, "ls": ""}
        left.plot([], [], color="#777777", marker=marker, ms=_SIZES[law], label=law, **style)
    left.plot([], [], color="#777777", marker="o", mfc="none", mew=0.8, ls="", label="thin: not balanced")
    finish_axis(left, _HOPS, f"node entropy, {record.params['observer']} observer (nats, expected)")
    finish_axis(right, _HOPS, "chance of naming the source")
    right.yaxis.set_major_formatter(PercentFormatter(1.0))
    set_heading(figure, _heading(rows), f"{record.params['graph']}, distances {record.params['support']}")
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.legend(loc="lower center", ncol=7, frameon=False, fontsize=9)
    return save_figure(figure, folder, "frontier", record=record)


def _draw(axis: Axes, rows: list[dict[str, Any]], score: str, colour: str) -> None:
    curve = [row for row in rows if row["law"] == "optimal"]
    axis.plot([row["mean_iteration_hops"] for row in curve], [row[score] for row in curve], color=colour, lw=1.3)
    for row in rows:
        axis.plot(
            row["mean_iteration_hops"],
            row[score],
            color=colour,
            marker=_MARKERS[row["law"]],
            mfc=colour if row["balanced"] and row["law"] == "optimal" else "none",
            mew=1.8 if row["balanced"] else 0.8,
            ms=_SIZES[row["law"]],
        )


def _heading(rows: list[dict[str, Any]]) -> str:
    """Say what the cheapest walk takes beside the dearest, each with the law that hides most."""
    best = [
        max((row for row in rows if row["walk"] == walk), key=lambda row: float(row["node_entropy_nats"]))
        for walk in dict.fromkeys(row["walk"] for row in rows)
    ]
    cheap, dear = (end(best, key=lambda row: float(row["mean_iteration_hops"])) for end in (min, max))
    nats, hops = cheap["node_entropy_nats"], cheap["mean_iteration_hops"]
    sentence = f"{cheap['walk']}: {nats:.2f} nats of node entropy for {hops:.0f} hops"
    if cheap is dear:
        return sentence
    return f"{sentence}; {dear['walk']}: {dear['node_entropy_nats']:.2f} for {dear['mean_iteration_hops']:.0f}"


def recipients_files(record: Record, folder: Path) -> list[Path]:
    """Write ``frontier.json`` and the figure: node entropy against hops and against bytes per update."""
    rows: list[dict[str, Any]] = list(record.result["rows"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8), sharey=True)
    floor = record.params["keep"] * math.log(max(record.params["nodes"] - 1, 2))
    for axis, price in ((left, "mean_iteration_hops"), (right, "bytes_per_update")):
        _draw_curves(axis, rows, price, record.result["best"])
        axis.axhline(floor, color="#777777", lw=0.8, ls="--")
    finish_axis(left, _HOPS, "node entropy, opener with last hop (nats)", log=True)
    finish_axis(right, f"mean bytes per update ({record.params['suite']})", log=True)
    floor_note = f"dashed: {record.params['keep']:g} of log(N - 1); K doubles from dot to dot, leftwards"
    best = record.result["best"]
    hops, nats = best["mean_iteration_hops"], best["node_entropy_nats"]
    heading = f"Sealed for {best['recipients']}: {hops:.3g} hops an update, {nats:.2f} nats of node entropy"
    set_heading(figure, heading, f"{record.params['graph']}; {floor_note}")
    figure.tight_layout(rect=(0, 0.12, 1, 1))
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=4, frameon=False, fontsize=9)
    return save_figure(figure, folder, "frontier", record=record)


def _draw_curves(axis: Axes, rows: list[dict[str, Any]], price: str, best: dict[str, Any]) -> None:
    """Draw a curve over the number of recipients for each walk and law; circle the best point."""
    laws = list(dict.fromkeys(row["law"] for row in rows))
    for walk in dict.fromkeys(row["walk"] for row in rows):
        for law, colour in zip(laws, _LAW_COLOURS, strict=False):
            own_rows = [row for row in rows if row["law"] == law and row["walk"] == walk]
            if not own_rows:
                continue
            x, y = ([row[name] for row in own_rows] for name in (price, "node_entropy_nats"))
            style: dict[str, Any] = {"color": colour, "ls": _WALK_LINES.get(walk, "-."), "label": f"{walk}, {law}"}
            axis.plot(x, y, marker="o", ms=3.5, lw=1.2, **style)
    point = (best[price], best["node_entropy_nats"])
    axis.plot(*point, marker="o", ms=11, mfc="none", color="black", ls="")
    axis.annotate(f"K = {best['recipients']}", point, textcoords="offset points", xytext=(9, -12))
