"""The figure of walks side by side, drawn from its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from veilwalk.core.records import Record
from veilwalk.report.style import finish_axis, plot_with_band, save_figure, set_heading

# Told apart by how dark they are, by marker and by hatching.
_COLOURS = ("#333333", "#d98200", "#0b3c6f", "#4f8fcb", "#b5d2ec")
_HATCHES = ("", "//", "", "..", "")
_MARKERS = ("o", "^", "s", "D", "v")
_OBSERVERS = {
    "last-hop": "destination:\ntime, last hop",
    "path": "destination:\nevery hop",
    "first-sight": "colluders:\nfirst sight",
    "coalition": "colluders:\nall they saw",
}


def walk_files(record: Record, folder: Path, *, prices: Record | None = None) -> list[Path]:
    """Write ``walks.json`` and the figure: price, node entropy, sources named; ``prices`` are of other graphs."""
    rows: list[dict[str, Any]] = list(record.result["rows"])
    labels = [str(row["walk"]) for row in rows]
    figure, axes = plt.subplots(2, 2, figsize=(13, 9.5), width_ratios=(1, 1.15))
    _price(axes[0, 0], rows, labels, record.params["nodes"])
    _entropy(axes[0, 1], rows, labels)
    _named(axes[1, 0], rows, labels, record.params)
    if prices is None:
        axes[1, 1].set_axis_off()
    else:
        _elsewhere(axes[1, 1], list(prices.result["rows"]), labels)
    for axis in axes.flat:
        finish_axis(axis)
    cheapest = min(rows, key=lambda row: float(row["hops_per_update"]))
    found = f"{cheapest['walk']} takes {cheapest['relative_hops']:.0%} of the hops of {labels[0]}"
    about = f"{record.params['graph']}, support {record.params['support']}, law {record.params['law']}"
    set_heading(figure, found, about)
    figure.tight_layout()
    return save_figure(figure, folder, "walks", record=record)


def _price(axis: Axes, rows: list[dict[str, Any]], labels: list[str], n_nodes: int) -> None:
    # One quantity, one hue.
    bars = axis.barh(labels[::-1], [row["hops_per_update"] for row in rows][::-1], color="#8fa6c0")
    axis.bar_label(bars, [f" {row['hops_per_update']:.0f}  ({row['relative_hops']:.2f}×)" for row in rows][::-1])
    axis.axvline(n_nodes / 2, color="#c1272d", ls="--", lw=1.2, label="N/2: all nodes in turn")
    axis.legend(frameon=False, fontsize=9, loc="lower right")
    axis.set_title("What an update costs", loc="left", fontsize=11)
    axis.set_xlabel("hops per update")
    axis.set_xlim(0, 1.3 * max(row["hops_per_update"] for row in rows))


def _entropy(axis: Axes, rows: list[dict[str, Any]], labels: list[str]) -> None:
    for row, label, colour, marker in zip(rows, labels, _COLOURS, _MARKERS, strict=False):
        lines = row["observers"]["last-hop"]["by_return_time"]
        share, total = [], 0.0
        for line in lines:
            share.append(total + line["share"] / 2)
            total += line["share"]
        look = {"color": colour, "marker": marker, "ms": 4, "lw": 1.4, "label": label}
        plot_with_band(axis, share, lines, "node_entropy_nats", look)
    axis.set_xscale("log")
    axis.set_xticks([0.005, 0.02, 0.1, 0.5, 1], ["0.5%", "2%", "10%", "50%", "100%"])
    axis.set_title("What is left hidden from a destination", loc="left", fontsize=11)
    axis.set_xlabel("share of deliveries with a shorter return time")
    axis.set_ylabel("node entropy, last-hop observer (nats)")
    axis.legend(frameon=False, fontsize=9, loc="lower right")


def _named(axis: Axes, rows: list[dict[str, Any]], labels: list[str], params: Any) -> None:
    names = [name for name in _OBSERVERS if name in rows[0]["observers"]]
    width = 0.8 / len(rows)
    for number, (row, colour) in enumerate(zip(rows, _COLOURS, strict=False)):
        found = [row["observers"][name]["overall"] for name in names]
        places = [place + (number - (len(rows) - 1) / 2) * width for place in range(len(names))]
        values = [100 * one["hit_ratio"] for one in found]
        errors = [[100 * abs(one["hit_ratio_interval"][end] - one["hit_ratio"]) for one in found] for end in (0, 1)]
        look: dict[str, Any] = {"color": colour, "hatch": _HATCHES[number], "edgecolor": "white", "lw": 0}
        axis.bar(places, values, width, label=labels[number], **look)
        axis.errorbar(places, values, errors, fmt="none", ecolor="#666666", elinewidth=0.8)
    axis.set_xticks(range(len(names)), [_OBSERVERS[name] for name in names], fontsize=8)
    axis.set_ylabel("sources named at the first guess (%)")
    axis.set_title(f"Who finds the source ({params['colluders']} colluders)", loc="left", fontsize=11)
    axis.legend(frameon=False, fontsize=9, loc="upper left")


def _elsewhere(axis: Axes, rows: list[dict[str, Any]], labels: list[str]) -> None:
    """Hops relative to the simple walk on other graphs, cheapest at the bottom; a walk looks as in the other panels."""
    rows = sorted(rows, key=lambda row: float(row["walks"][-1]["relative_hops"]))
    walks = [str(one["walk"]) for one in rows[0]["walks"][1:]]
    for number, label in enumerate(walks, start=1):
        values = [row["walks"][number]["relative_hops"] for row in rows]
        look = labels.index(label) if label in labels else number
        axis.plot(values, range(len(rows)), _MARKERS[look], color=_COLOURS[look], ms=6, label=label)
    axis.axvline(1, color="black", lw=1, label="simple")
    axis.set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=8)
    axis.set_xlim(0.2, 1.03)
    axis.set_xlabel("hops per update, relative to the simple walk")
    axis.set_title("Other degrees, sizes and graphs", loc="left", fontsize=11)
    axis.legend(frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(0.98, 0.08))
