"""The figure of walks side by side, drawn from its record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

from veilwalk.core.records import Record, write_atomically
from veilwalk.report._figures import rendered

_COLOURS = ("black", "#d98200", "#1f5fa8", "#2a8f5b", "#8a3fa0")
_MARKERS = ("o", "^", "s", "D", "v")


def walk_files(record: Record, folder: Path) -> list[Path]:
    """Write ``walks.json`` and the figure: hops per update, and node entropy by share of return times."""
    rows: list[dict[str, Any]] = list(record.result["rows"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), width_ratios=(1, 1.5))
    labels = [row["walk"] + (f", mix {row['mix']:g}" if row["mix"] else "") for row in rows]
    bars = left.barh(labels[::-1], [row["hops_per_update"] for row in rows][::-1], color=_COLOURS[: len(rows)][::-1])
    left.bar_label(bars, [f" {row['hops_per_update']:.0f}  ({row['relative_hops']:.2f}x)" for row in rows][::-1])
    left.set_xlabel("hops per update")
    left.set_xlim(0, 1.3 * max(row["hops_per_update"] for row in rows))
    for row, label, colour, marker in zip(rows, labels, _COLOURS, _MARKERS, strict=False):
        lines = row["last-hop"]["by_return_time"]
        share, total = [], 0.0
        for line in lines:
            share.append(total + line["share"] / 2)
            total += line["share"]
        right.plot(share, [line["node_entropy_nats"] for line in lines], color=colour, marker=marker, ms=4, label=label)
        low, high = ([line["node_entropy_nats_interval"][end] for line in lines] for end in (0, 1))
        right.fill_between(share, low, high, color=colour, alpha=0.15, lw=0)
    right.set_xscale("log")
    right.set_xlabel("share of deliveries with a shorter return time")
    right.set_ylabel("node entropy, last-hop observer (nats, by class)")
    right.legend(frameon=False, fontsize=9)
    for axis in (left, right):
        axis.grid(visible=True, color="#dddddd", lw=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"Walks side by side: {record.params['graph']}, law {record.params['law']}", x=0.01, ha="left")
    figure.tight_layout()
    paths = [folder / "walks.json", folder / "walks.png", folder / "walks.svg"]
    for path, data in zip(
        paths, (record.to_json().encode(), rendered(figure, "png"), rendered(figure, "svg")), strict=True
    ):
        write_atomically(path, data)
    plt.close(figure)
    return paths
