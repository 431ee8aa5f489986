"""Ways to bring an update on, side by side: what a hop buys of node entropy, and what colluders name and read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from veilwalk.core.records import Record, write_atomically
from veilwalk.report.style import finish_axis, render_figure, set_heading

_OTHERS = {"plain walk": "X", "gossip": "P", "crowd": "s"}
_COLOURS = {"simple": "#d98200", "non-backtracking": "#1f5fa8"}
# Where names stand beside their points: the two that hand models on unsealed share one.
_PLACES = {"gossip": (7, -4), "crowd": (-36, 12), "paper": (-48, -16), "recommended": (6, -18)}
_NAMES = {"crowd": "Crowds 0.8", "paper": "the paper"}


def routes_figure(record: Record, path: Path) -> None:
    """Draw node entropy against hops per update; and what the strongest coalition names and reads, for sealed walks."""
    rows: list[dict[str, Any]] = list(record.result["rows"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 5.2))
    _curves(left, [row for row in rows if row["route"] == "several"], "node_entropy_nats")
    _onions(left, [row for row in rows if row["route"].startswith("onion")], "node_entropy_nats")
    for row in rows:
        if row["route"] in {"paper", "recommended", *_OTHERS}:
            _point(left, row, "node_entropy_nats")
    left.axhline(math.log(record.params["nodes"] - 1), color="#777777", lw=0.8, ls="--")
    finish_axis(left, "mean hops per update", "node entropy, opener with last hop (nats)", log=True)
    _coalition(right, [row for row in rows if "coalition" in row])
    share = record.params["colluders"]
    right.axhline(share, color="#777777", lw=0.8, ls="--")
    right.set_ylim(0.0, None)
    right.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    finish_axis(right, "mean hops per update", "share of all honest updates", log=True)
    about = f"{share:.0%} collude and share keys (right); dashed: the most there is, and the colluders' share"
    set_heading(figure, _found(rows), f"{record.params['graph']}; {about}")
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
    if "coalition" not in ours:
        return f"Sealed for {ours['recipients']}: {ours['hops']:.3g} hops; the paper: {paper['hops']:.3g} hops"
    said = [
        f"{row['hops']:.3g} hops, {row['node_entropy_nats']:.2f} nats, {row['coalition']:.0%} named, "
        f"{row['read']:.0%} read"
        for row in (ours, paper)
    ]
    return f"Sealed for {ours['recipients']}: {said[0]}; the paper: {said[1]}"


def _coalition(axis: Axes, rows: list[dict[str, Any]]) -> None:
    """Draw what the strongest coalition names, with intervals, and what it reads, hollow."""
    for walk, colour in _COLOURS.items():
        mine = [row for row in rows if row["route"] == "several" and row["walk"] == walk]
        hops, named = [row["hops"] for row in mine], [row["coalition"] for row in mine]
        ends = [[abs(row["coalition"] - row["coalition_interval"][end]) for row in mine] for end in (0, 1)]
        axis.errorbar(hops, named, yerr=ends, color=colour, marker="o", ms=5, lw=1.4, capsize=3, label=f"named, {walk}")
        read = [row["read"] for row in mine]
        axis.plot(hops, read, color=colour, marker="o", ms=6, mfc="none", ls=":", lw=1.2, label=f"read, {walk}")
    for row in rows:
        if row["route"] in {"paper", "recommended"}:
            ours = row["route"] == "recommended"
            name = f"K = {row['recipients']}" if ours else "the paper"
            for score, face in (("coalition", "black"), ("read", "none")):
                axis.plot(
                    row["hops"], row[score], color="black", mfc=face, marker="*" if ours else "s", ms=13 if ours else 8
                )
                axis.annotate(
                    f"{name}: {row[score]:.0%}", (row["hops"], row[score]), textcoords="offset points",
                    xytext=(8, -15 if score == "coalition" else 5) if ours else (-62, 8), fontsize=9,
                )  # fmt: skip
    axis.legend(frameon=False, fontsize=9, loc="upper right")


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
