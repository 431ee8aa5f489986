"""The figures of a training report, drawn from its record, as SVG with text that stays text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from veilwalk.core.records import Record
from veilwalk.report._figures import rendered

_LOOKS: dict[str, dict[str, Any]] = {
    "private-walk": {"color": "black", "lw": 2.0, "label": "private walk"},
    "paper-walk": {"color": "#7a3b8f", "ls": (0, (5, 1)), "label": "the paper's walk"},
    "plain-walk": {"color": "#d98200", "ls": "--", "label": "plain walk"},
    "gossip": {"color": "#1f5fa8", "ls": "-.", "label": "gossip (average model)"},
    "gossip, own models": {"color": "#6fa8dc", "ls": "-.", "label": "gossip (single models)"},
    "central": {"color": "#999999", "ls": ":", "label": "central (ceiling)"},
}
_AXES = (("update", "updates"), ("hops", "hops, all together"), ("sent_bytes", "bytes sent, all together"))
_STYLE: Any = {
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


def accuracy_svg(algorithms: Mapping[str, Any]) -> str:
    """Accuracy (or loss, where a learner has no accuracy) against updates, hops and bytes."""
    has_accuracy = all(point["accuracy"] is not None for run in algorithms.values() for point in run["points"])
    what = "accuracy" if has_accuracy else "loss"
    with mpl.rc_context(_STYLE):
        figure, axes = plt.subplots(1, 3, figsize=(12, 4.1), sharey=True, layout="constrained")
        for axis, (column, label) in zip(axes, _AXES, strict=True):
            for name, run in algorithms.items():
                # The first model has cost nothing, which a logarithm cannot show.
                points = [point for point in run["points"] if point[column] > 0]
                if points:
                    values = [point[what] for point in points]
                    axis.plot([point[column] for point in points], values, **({"lw": 1.6} | _LOOKS[name]))
            axis.set_xscale("log")
            axis.set_xlabel(label)
        axes[0].set_ylabel(f"{what} on held-out data")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
        return _svg(figure)


def entropy_svg(route: Mapping[str, Any]) -> str:
    """Node entropy of the receiver's posterior, and how often its first guess is right, by return time."""
    rows = [row for row in route["by_return_time"] if row["share"] > 0]
    ends = [row["hi"] if row["hi"] is not None else 2 * row["lo"] for row in rows]
    middle = [math.sqrt(row["lo"] * end) for row, end in zip(rows, ends, strict=True)]
    width = [end - row["lo"] + 1 for row, end in zip(rows, ends, strict=True)]
    with mpl.rc_context(_STYLE):
        figure, (top, bottom) = plt.subplots(
            2, 1, figsize=(5.8, 5.2), sharex=True, height_ratios=(2.4, 1), layout="constrained"
        )
        prior = route["prior_node_entropy_nats"]
        top.axhline(prior, color="#999999", ls=":", lw=1.4, label=f"before looking: {prior:.3f}")
        top.plot(middle, [row["node_entropy_nats"] for row in rows], color="black", marker="o", ms=4, label="after")
        top.set_ylabel("node entropy (nats)")
        top.set_ylim(0, 1.08 * prior)
        top.legend(frameon=False, loc="lower right")
        bottom.bar([row["lo"] for row in rows], [row["share"] for row in rows], width, align="edge", color="#b9c8dc")
        bottom.set_ylabel("share of deliveries")
        bottom.set_xlabel("return time seen by the receiver (hops)")
        bottom.set_xscale("log")
        return _svg(figure)


def posterior_svg(sample: Mapping[str, Any]) -> str:
    """One delivery on the network, drawn in rings around its receiver; the darker, the likelier."""
    places, posterior = _rings(sample), np.asarray(sample["posterior"])
    (x, y), possible = places.T, posterior > 0
    with mpl.rc_context(_STYLE):
        figure, axis = plt.subplots(figsize=(5.8, 5.6), layout="constrained")
        lines = [(places[a], places[b]) for a, b in sample["edges"]]
        axis.add_collection(LineCollection(lines, colors="#e2e2e2", linewidths=0.5, zorder=1))
        axis.scatter(x[~possible], y[~possible], s=10, facecolor="white", edgecolor="#bbbbbb", lw=0.6, zorder=2)
        shades = axis.scatter(
            x[possible], y[possible], s=26, c=100 * posterior[possible], cmap="YlOrRd", zorder=3, vmin=0,
            edgecolor="#666666", lw=0.4,
        )  # fmt: skip
        marks = (("destination", "receiver", "s", "black"), ("last_hop", "came from here", "o", "#1f5fa8"))
        for key, label, marker, colour in marks:
            _mark(axis, places[sample[key]], label, marker=marker, color=colour, filled=key == "destination")
        _mark(axis, places[sample["source"]], "really made it", marker="D", color="#1a7f37", filled=False)
        figure.colorbar(shades, ax=axis, shrink=0.6, label="posterior of one node (%)")
        axis.set_axis_off()
        axis.set_aspect("equal")
        axis.legend(frameon=False, loc="upper left", fontsize=9, borderpad=0)
        return _svg(figure)


def _mark(axis: Axes, place: Sequence[float], label: str, *, marker: str, color: str, filled: bool) -> None:
    face = color if filled else "none"
    axis.scatter(
        place[0], place[1], s=90, marker=marker, facecolor=face, edgecolor=color, lw=1.8, label=label, zorder=4
    )


def _rings(sample: Mapping[str, Any]) -> Any:
    """Places of all nodes: as many rings out as hops from the receiver, each node near the one it hangs on."""
    away = np.asarray(sample["hops_away"])
    children: list[list[int]] = [[] for _ in away]
    parent = np.full(len(away), -1)
    for a, b in sorted(sample["edges"]):
        for inner, outer in ((a, b), (b, a)):
            if away[outer] == away[inner] + 1 and parent[outer] < 0:
                parent[outer] = inner
                children[inner].append(outer)
    leaves = np.ones(len(away))
    for node in np.argsort(-away, kind="stable"):
        if children[node]:
            leaves[node] = sum(leaves[child] for child in children[node])
    # Every node owns a slice of the circle, shared among those that hang on it in proportion to their leaves.
    begin = np.zeros(len(away))
    for node in np.argsort(away, kind="stable"):
        angle = begin[node]
        for child in children[node]:
            begin[child] = angle
            angle += leaves[child]
    turn = 2 * np.pi * (begin + leaves / 2) / leaves[sample["destination"]]
    return np.stack((away * np.cos(turn), away * np.sin(turn)), axis=1)


def _svg(figure: Figure) -> str:
    text = rendered(figure, "svg").decode()
    plt.close(figure)
    # Inside a page neither a prologue nor a note on what drew it has any use.
    return re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)


def learning_figure(record: Record) -> bytes:
    """Draw accuracy against updates and hops for every partition and model of a learning campaign, as PNG."""
    cells = [cell for cell in record.result["cells"] if cell["kind"] == "train"]
    panels = list(dict.fromkeys((cell["model"], cell["partition"]) for cell in cells))
    with mpl.rc_context(_STYLE):
        figure, axes = plt.subplots(
            len(panels), 2, figsize=(10, 2.6 * len(panels)), sharey="row", squeeze=False, layout="constrained"
        )
        for (model, partition), row in zip(panels, axes, strict=True):
            found = [cell["found"] for cell in cells if (cell["model"], cell["partition"]) == (model, partition)]
            for axis, (column, label) in zip(row, _AXES[:2], strict=True):
                for name in found[0]:
                    _band(axis, [run[name]["points"] for run in found], column, _LOOKS[name])
                axis.set_xscale("log")
                axis.set_xlabel(label)
            row[0].set_ylabel(f"{model}, {partition}\naccuracy")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=-(-len(labels) // 2), frameon=False)
        data = rendered(figure, "png")
        plt.close(figure)
        return data


def _band(axis: Axes, runs: list[list[dict[str, Any]]], column: str, look: Mapping[str, Any]) -> None:
    """Mean over seeds, and the range; evaluations of all seeds are at the same updates."""
    at = np.mean([[point[column] for point in points] for points in runs], axis=0)
    accuracy = np.array([[point["accuracy"] for point in points] for points in runs])
    if (at > 0).any():
        shown = at > 0
        axis.plot(at[shown], accuracy.mean(axis=0)[shown], **({"lw": 1.6} | dict(look)))
        axis.fill_between(
            at[shown], accuracy.min(axis=0)[shown], accuracy.max(axis=0)[shown], color=look["color"], alpha=0.15, lw=0
        )
