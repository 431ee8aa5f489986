"""Sealed for several: the frontier over number of recipients, distance and walk, drawn from its record."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from veilwalk.core.records import Record, write_atomically
from veilwalk.report._figures import rendered, titled

_COLOURS = ("#1f5fa8", "#d98200", "#2a8f5b", "#8a3ab9")
_LINES = {"simple": ":", "non-backtracking": "-"}


def recipients_files(record: Record, folder: Path) -> list[Path]:
    """Write ``frontier.json`` and the figure: node entropy against hops and against bytes per update."""
    rows: list[dict[str, Any]] = list(record.result["rows"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8), sharey=True)
    floor = record.params["keep"] * math.log(max(record.params["nodes"] - 1, 2))
    for axis, price in ((left, "mean_iteration_hops"), (right, "bytes_per_update")):
        draw_curves(axis, rows, price, record.result["best"])
        axis.axhline(floor, color="#777777", lw=0.8, ls="--")
        axis.set_xscale("log")
        axis.grid(visible=True, color="#dddddd", lw=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    left.set_ylabel("node entropy, opener with last hop (nats)")
    left.set_xlabel("mean hops per update")
    right.set_xlabel(f"mean bytes per update ({record.params['suite']})")
    floor_said = f"dashed: {record.params['keep']:g} of log(N - 1); K doubles from dot to dot, leftwards"
    best = record.result["best"]
    found = "No number of recipients keeps so much here"
    if best is not None:
        hops, kept = best["mean_iteration_hops"], best["node_entropy_nats"]
        found = f"Sealed for {best['recipients']}: {hops:.3g} hops an update, {kept:.2f} nats of node entropy"
    titled(figure, found, f"{record.params['graph']}; {floor_said}")
    figure.tight_layout(rect=(0, 0.12, 1, 1))
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=4, frameon=False, fontsize=9)
    paths = [folder / f"frontier.{suffix}" for suffix in ("json", "png", "svg")]
    contents = (record.to_json().encode(), rendered(figure, "png"), rendered(figure, "svg"))
    for path, data in zip(paths, contents, strict=True):
        write_atomically(path, data)
    plt.close(figure)
    return paths


def draw_curves(axis: Axes, rows: list[dict[str, Any]], price: str, best: dict[str, Any] | None) -> None:
    """Draw a curve over the number of recipients for each walk and law; circle the best point."""
    laws = list(dict.fromkeys(row["law"] for row in rows))
    for walk in dict.fromkeys(row["walk"] for row in rows):
        for law, colour in zip(laws, _COLOURS, strict=False):
            mine = [row for row in rows if row["law"] == law and row["walk"] == walk]
            if not mine:
                continue
            axis.plot(
                [row[price] for row in mine],
                [row["node_entropy_nats"] for row in mine],
                color=colour,
                ls=_LINES.get(walk, "-."),
                marker="o",
                ms=3.5,
                lw=1.2,
                label=f"{walk}, {law}",
            )
    if best is not None:
        axis.plot(best[price], best["node_entropy_nats"], marker="o", ms=11, mfc="none", color="black", ls="")
        axis.annotate(
            f"K = {best['recipients']}",
            (best[price], best["node_entropy_nats"]),
            textcoords="offset points",
            xytext=(9, -12),
        )
