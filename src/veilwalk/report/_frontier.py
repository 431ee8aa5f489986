"""The privacy-price frontier, drawn from its record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from veilwalk.core.records import Record, write_atomically
from veilwalk.report._figures import rendered, titled

_COLOURS = ("black", "#d98200", "#1f5fa8", "#2a8f5b")
# The rarer a law lies by itself, the larger: where they pile up each is seen around the next.
_MARKERS = {"uniform-node": "o", "optimal": "^"}
_SIZES = {"uniform-node": 11, "optimal": 4}


def frontier_files(record: Record, folder: Path) -> list[Path]:
    """Write ``frontier.json`` and the figure: node entropy and hit ratio against mean hops per update."""
    rows: list[dict[str, Any]] = list(record.result["rows"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5.2))
    walks = list(dict.fromkeys(row["walk"] for row in rows))
    for walk, colour in zip(walks, _COLOURS, strict=False):
        mine = [row for row in rows if row["walk"] == walk]
        for axis, score in ((left, "node_entropy_nats"), (right, "hit_ratio")):
            _draw(axis, mine, score, colour)
        left.plot([], [], color=colour, lw=3, label=f"{walk} walk")
    for law, marker in _MARKERS.items():
        look = {"mfc": None, "ls": "-"} if law == "optimal" else {"mfc": "none", "mew": 1.8, "ls": ""}
        left.plot([], [], color="#777777", marker=marker, ms=_SIZES[law], label=law, **look)
    left.plot([], [], color="#777777", marker="o", mfc="none", mew=0.8, ls="", label="thin: not balanced")
    left.set_ylabel(f"node entropy, {record.params['observer']} observer (nats, expected)")
    right.set_ylabel("chance of naming the source")
    right.yaxis.set_major_formatter(PercentFormatter(1.0))
    for axis in (left, right):
        axis.set_xlabel("mean hops per update")
        axis.grid(visible=True, color="#dddddd", lw=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    titled(figure, _found(rows), f"{record.params['graph']}, distances {record.params['support']}")
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.legend(loc="lower center", ncol=7, frameon=False, fontsize=9)
    paths = [folder / f"frontier.{suffix}" for suffix in ("json", "png", "svg")]
    contents = (record.to_json().encode(), rendered(figure, "png"), rendered(figure, "svg"))
    for path, data in zip(paths, contents, strict=True):
        write_atomically(path, data)
    plt.close(figure)
    return paths


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


def _found(rows: list[dict[str, Any]]) -> str:
    """Say what the cheapest walk takes beside the dearest, each with the law that hides most."""
    best = [
        max((row for row in rows if row["walk"] == walk), key=lambda row: float(row["node_entropy_nats"]))
        for walk in dict.fromkeys(row["walk"] for row in rows)
    ]
    cheap, dear = (end(best, key=lambda row: float(row["mean_iteration_hops"])) for end in (min, max))
    nats, hops = cheap["node_entropy_nats"], cheap["mean_iteration_hops"]
    said = f"{cheap['walk']}: {nats:.2f} nats of node entropy for {hops:.0f} hops"
    if cheap is dear:
        return said
    return f"{said}; {dear['walk']}: {dear['node_entropy_nats']:.2f} for {dear['mean_iteration_hops']:.0f}"
