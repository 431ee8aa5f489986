"""Ways to bring an update on, side by side: what a hop buys of node entropy, and what colluders name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from veilwalk.core.records import Record, write_atomically
from veilwalk.report.style import finish_axis, render_figure, set_heading

_OTHERS = {"plain walk": "X", "gossip": "P", "crowd": "s"}
_COLOURS = {"simple": "#d98200", "non-backtracking": "#1f5fa8"}
# Where names stand beside their points: the two that hand models on unsealed share one.
_PLACES = {"gossip": (7, -4), "crowd": (-36, 12), "paper": (-48, -16), "recommended": (6, -18)}
_NAMES = {"crowd": "Crowds 0.8", "paper": "the paper"}


def routes_figure(record: Record, path: Path) -> None:
    """Draw node entropy, and colluders' hits as a multiple of their share, against hops per update."""
    rows: list[dict[str, Any]] = list(record.result["rows"])
    figure, axes = plt.subplots(1, 2, figsize=(12.5, 5.2))
    for axis, score in zip(axes, ("node_entropy_nats", "times_floor"), strict=True):
        _curves(axis, [row for row in rows if row["route"] == "several"], score)
        _onions(axis, [row for row in rows if row["route"].startswith("onion")], score)
        for row in rows:
            if row["route"] in {"paper", "recommended", *_OTHERS}:
                _point(axis, row, score)
        axis.set_xscale("log")
        axis.set_xlabel("mean hops per update")
        finish_axis(axis)
    left, right = axes
    left.axhline(math.log(record.params["nodes"] - 1), color="#777777", lw=0.8, ls="--")
    left.set_ylabel("node entropy, opener with last hop (nats)")
    right.axhline(1.0, color="#777777", lw=0.8, ls="--")
    right.set_ylabel(f"named by colluders ({record.params['colluders']:.0%}), times their share")
    set_heading(figure, _found(rows), f"{record.params['graph']}; dashed: the best there is")
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=3, frameon=False, fontsize=9)
    write_atomically(path, render_figure(figure, path.suffix.removeprefix("."))[0])


def _found(rows: list[dict[str, Any]]) -> str:
    """Say what is recommended beside the paper's scheme, where both are there."""
    by_route = {row["route"]: row for row in rows}
    if not {"recommended", "paper"} <= set(by_route):
        return ""
    ours, paper = by_route["recommended"], by_route["paper"]
    said = f"Sealed for {ours['recipients']}: {ours['hops']:.3g} hops, {ours['node_entropy_nats']:.2f} nats"
    return f"{said} of node entropy; the paper: {paper['hops']:.3g} hops, {paper['node_entropy_nats']:.2f} nats"


def _curves(axis: Axes, rows: list[dict[str, Any]], score: str) -> None:
    for law, line in zip(dict.fromkeys(row["law"] for row in rows), ("-", ":", "-."), strict=False):
        for walk, colour in _COLOURS.items():
            mine = [row for row in rows if row["law"] == law and row["walk"] == walk]
            if mine:
                axis.plot(
                    [row["hops"] for row in mine],
                    [row[score] for row in mine],
                    color=colour,
                    ls=line,
                    marker="o",
                    ms=3.5,
                    lw=1.2,
                    label=f"sealed for 1 to {mine[-1]['recipients']}, {law}, {walk}",
                )


def _onions(axis: Axes, rows: list[dict[str, Any]], score: str) -> None:
    hops, values = [row["hops"] for row in rows], [row[score] for row in rows]
    axis.plot(hops, values, color="#2a8f5b", marker="D", ms=5, lw=1.0, label="source-routed onion, 8 to 12 hops")


def _point(axis: Axes, row: dict[str, Any], score: str) -> None:
    ours = row["route"] == "recommended"
    axis.plot(
        row["hops"],
        row[score],
        color="black" if ours or row["route"] == "paper" else "#8a3ab9",
        marker="*" if ours else _OTHERS.get(row["route"], "o"),
        ms=15 if ours else 8,
        ls="",
    )
    name = f"recommended: K = {row['recipients']}" if ours else _NAMES.get(row["route"], row["route"])
    axis.annotate(
        name,
        (row["hops"], row[score]),
        textcoords="offset points",
        xytext=_PLACES.get(row["route"], (7, 7)),
        fontsize=9,
    )
