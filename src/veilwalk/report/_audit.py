"""Figures of audits, drawn from their records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from veilwalk.core.records import Record
from veilwalk.report.style import finish_axis, plot_with_band, save_figure, set_heading

_LOOKS: dict[str, dict[str, Any]] = {
    "prior": {"color": "#999999", "marker": ".", "ls": ":", "label": "prior only: it was chosen"},
    "window": {"color": "#1f5fa8", "marker": "s", "ls": "--", "label": "the paper's window notion"},
    "return-time": {"color": "#d98200", "marker": "^", "ls": "-", "label": "return time, whole law"},
    "last-hop": {"color": "black", "marker": "o", "ls": "-", "label": "return time and last hop"},
}
_COALITIONS: dict[str, dict[str, Any]] = {
    "first-sight": {"color": "#d98200", "marker": "^", "label": "first sight, of what they open"},
    "coalition": {
        "color": "#1f5fa8",
        "marker": "D",
        "label": "everything they saw, keys shared, of all honest updates",
    },
}


def audit_figures(record: Record, folder: Path) -> list[Path]:
    """Draw what the observers of an audit allow; return the paths."""
    paths: list[Path] = []
    observers: dict[str, Any] = dict(record.result["observers"])
    if any(name in observers and observers[name]["by_return_time"] for name in _LOOKS):
        paths += save_figure(_by_return_time(record, observers), folder, "entropy-by-return-time")
    return paths


def collusion_figures(record: Record, folder: Path) -> list[Path]:
    """Draw the hit ratio against the number of colluders; return the paths."""
    figure, axis = plt.subplots(figsize=(7.2, 4.6))
    rows = list(record.result["rows"])
    for name, style in _COALITIONS.items():
        # Not every coalition is asked at every number of colluders.
        known = [(row["colluders"] / record.params["nodes"], row[name]) for row in rows if name in row]
        if known:
            share = [here for here, _ in known]
            plot_with_band(axis, share, [scores for _, scores in known], "hit_ratio", {"lw": 1.5, "ms": 5, **style})
    everywhere = [row["colluders"] / record.params["nodes"] for row in rows]
    axis.plot(everywhere, [row["blind_hit_ratio"] for row in rows], color="#999999", ls=":", label="blind guess")
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_major_formatter(PercentFormatter(1.0))
    finish_axis(axis, "nodes that collude, the destination among them", "sources named at the first guess")
    return save_figure(_finish_figure(figure, record, _describe_colluders(rows)), folder, "colluders")


def _by_return_time(record: Record, observers: dict[str, Any]) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8))
    for name, style in _LOOKS.items():
        if name in observers:
            rows = observers[name]["by_return_time"]
            middle = [(row["lo"] * row["hi"]) ** 0.5 for row in rows]
            for axis, score in ((left, "distance_entropy_nats"), (right, "node_entropy_nats")):
                plot_with_band(axis, middle, rows, score, {"ms": 4, "lw": 1.4, **style})
    floor = record.params.get("anonymity_floor_nats")
    if floor is not None:
        label = "the paper's floor, corrected"
        left.axhline(floor, color="#1f5fa8", ls="-.", lw=1, label=label)
    label = "return time seen by the destination (hops; bands hold 1% to 10% of deliveries)"
    for axis, what in ((left, "distance entropy"), (right, "node entropy")):
        finish_axis(axis, label, f"{what} of the posterior (nats)", log=True)
    return _finish_figure(figure, record, _describe_by_time(observers))


def _describe_colluders(rows: list[dict[str, Any]]) -> str:
    """Say what the strongest coalition names, where most collude; or that it was not run."""
    most = rows[-1]
    strongest = max((most[name]["hit_ratio"] for name in _COALITIONS if name in most), default=0.0)
    how = "" if "coalition" in most else " by first sight alone (strongest coalition not run)"
    return f"{most['colluders']} colluders name {strongest:.0%} of sources{how}; blind, {most['blind_hit_ratio']:.1%}"


def _describe_by_time(observers: dict[str, Any]) -> str:
    """Say what the strongest observer drawn is left with after short returns, and on the whole."""
    strongest = [name for name in _LOOKS if name in observers and observers[name]["by_return_time"]][-1]
    band = observers[strongest]["by_return_time"][0]
    whole = observers[strongest]["overall"]["node_entropy_nats"]
    shortest = f"{band['node_entropy_nats']:.2f} nats of node entropy after returns of up to {band['hi']} hops"
    return f"{strongest}: {shortest}, {whole:.2f} on the whole"


def _finish_figure(figure: Figure, record: Record, finding: str) -> Figure:
    """Give every panel its legend, and the figure its heading."""
    for axis in figure.axes:
        axis.legend(frameon=False, fontsize=9)
    set_heading(figure, finding, f"{record.params['graph']}, law {record.params['law']}, {record.params['walk']} walk")
    figure.tight_layout()
    return figure
