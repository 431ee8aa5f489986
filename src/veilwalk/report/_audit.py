"""Figures of an audit, drawn from its record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from veilwalk.core.records import Record, write_atomically
from veilwalk.report._figures import rendered

_LOOKS: dict[str, dict[str, Any]] = {
    "prior": {"color": "#999999", "marker": ".", "ls": ":"},
    "window": {"color": "#1f5fa8", "marker": "s", "ls": "--"},
    "return-time": {"color": "#d98200", "marker": "^", "ls": "-"},
    "last-hop": {"color": "black", "marker": "o", "ls": "-"},
}


def audit_files(record: Record, folder: Path) -> list[Path]:
    """Write ``audit.json`` and the figures that its observers allow; return the paths."""
    paths = [folder / "audit.json"]
    write_atomically(paths[0], record.to_json().encode())
    observers: dict[str, Any] = dict(record.result["observers"])
    timed = {name: observers[name] for name in _LOOKS if name in observers}
    if timed:
        paths += _draw(folder / "entropy-by-return-time", _entropy_by_return_time(record, timed))
        paths += _draw(folder / "hit-ratio-by-return-time", _hits_by_return_time(record, timed))
    return paths


def _entropy_by_return_time(record: Record, observers: dict[str, Any]) -> Figure:
    figure, axis = plt.subplots(figsize=(7.2, 4.8))
    for name, report in observers.items():
        _curve(axis, report["by_return_time"], "node_entropy_nats", name)
    axis.set_ylabel("node entropy of the posterior (nats)")
    return _finished(figure, axis, record)


def _hits_by_return_time(record: Record, observers: dict[str, Any]) -> Figure:
    figure, axis = plt.subplots(figsize=(7.2, 4.8))
    for name, report in observers.items():
        _curve(axis, report["by_return_time"], "hit_ratio", name)
    axis.set_yscale("log")
    axis.set_ylabel("share of sources named at the first guess")
    return _finished(figure, axis, record)


def _curve(axis: Axes, rows: list[dict[str, Any]], score: str, name: str) -> None:
    middle = [(row["lo"] * row["hi"]) ** 0.5 for row in rows]
    value = [row[score] for row in rows]
    low, high = ([row[f"{score}_interval"][end] for row in rows] for end in (0, 1))
    axis.plot(middle, value, label=name, ms=4, lw=1.4, **_LOOKS[name])
    axis.fill_between(middle, low, high, color=_LOOKS[name]["color"], alpha=0.15, lw=0)


def _finished(figure: Figure, axis: Axes, record: Record) -> Figure:
    axis.set_xscale("log")
    axis.set_xlabel("return time seen by the destination (hops), deciles")
    axis.grid(visible=True, color="#dddddd", lw=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(title="observer", frameon=False)
    axis.set_title(f"{record.params['graph']}, law {record.params['law']}, {record.params['walk']} walk", loc="left")
    figure.tight_layout()
    return figure


def _draw(stem: Path, figure: Figure) -> list[Path]:
    paths = []
    for kind in ("png", "svg"):
        path = stem.with_suffix(f".{kind}")
        write_atomically(path, rendered(figure, kind))
        paths.append(path)
    plt.close(figure)
    return paths
