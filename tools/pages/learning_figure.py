"""The figure of a learning campaign, drawn from its record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from veilwalk.core.records import Record
from veilwalk.report.style import COSTS, CURVES, PAGE_STYLE, render_figure


def learning_figure(record: Record) -> bytes:
    """Draw accuracy against updates and hops for every partition and model of a learning campaign, as PNG."""
    cells = [cell for cell in record.result["cells"] if cell["kind"] == "train"]
    panels = list(dict.fromkeys((cell["model"], cell["partition"]) for cell in cells))
    with mpl.rc_context(PAGE_STYLE):
        figure, axes = plt.subplots(
            len(panels), 2, figsize=(10, 2.6 * len(panels)), sharey="row", squeeze=False, layout="constrained"
        )
        for (model, partition), row in zip(panels, axes, strict=True):
            found = [cell["found"] for cell in cells if (cell["model"], cell["partition"]) == (model, partition)]
            for axis, (column, label) in zip(row, COSTS[:2], strict=True):
                for name in found[0]:
                    _band(axis, [run[name]["points"] for run in found], column, CURVES[name])
                axis.set_xscale("log")
                axis.set_xlabel(label)
            row[0].set_ylabel(f"{model}, {partition}\naccuracy")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=-(-len(labels) // 2), frameon=False)
        return render_figure(figure, "png")[0]


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
