"""The figures of a training report, drawn from its record, as SVG with text that stays text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from veilwalk.report.style import COSTS, CURVES, PAGE_STYLE, render_figure

#: Colours by which a page may have its own instead, for a dark screen: what each is called in its style sheet.
_ON_A_PAGE = {
    "#000000": "ink",
    "#777777": "axis",
    "#e4e4e4": "grid",
    "#7a3b8f": "purple",
    "#d98200": "orange",
    "#1f5fa8": "blue",
    "#6fa8dc": "sky",
    "#888888": "grey",
}
#: Shares of a posterior, as multiples of an even one: the same steps in every report, so that two can be compared.
_STEPS = ((0.5, "less than half of it"), (1.0, "half of it to all"), (2.0, "up to twice"), (4.0, "up to four times"))
_BEYOND = "more"


def curve_looks(algorithms: Iterable[str]) -> list[dict[str, str]]:
    """Return name, colour and dashes of the curve of each algorithm, for a legend that a page sets itself."""
    dashes: dict[object, str] = {"--": "6 3", "-.": "7 3 2 3", ":": "2 3", (0, (5, 1)): "9 2"}
    return [
        {
            "label": CURVES[name]["label"],
            "colour": f"var(--{_ON_A_PAGE[mpl.colors.to_hex(CURVES[name]['color'])]})",
            "dashes": dashes.get(CURVES[name].get("ls"), "none"),
        }
        for name in algorithms
    ]


def accuracy_svgs(algorithms: Mapping[str, Any], what: str) -> dict[str, str]:
    """Accuracy (or loss, where a learner has no accuracy) against updates, hops and bytes: a figure each, by label."""
    return {label: _score_svg(algorithms, what, column, label, (4.2, 3.3)) for column, label in COSTS}


def score_svgs(algorithms: Mapping[str, Any], drawn: str) -> dict[str, str]:
    """Every other score of a learner against updates: a small figure each, by name; ``drawn`` has its own already."""
    points = [point for run in algorithms.values() for point in run["points"]]
    names = dict.fromkeys(("accuracy", "loss", *(name for point in points for name in point.get("scores", {}))))
    column, label = COSTS[0]
    return {
        name: _score_svg(algorithms, name, column, label, (2.9, 2.3))
        for name in names
        if name != drawn and any(_score(point, name) is not None for point in points)
    }


def _score_svg(algorithms: Mapping[str, Any], what: str, column: str, label: str, size: tuple[float, float]) -> str:
    with mpl.rc_context(PAGE_STYLE):
        figure, axis = plt.subplots(figsize=size, layout="constrained")
        for name, run in algorithms.items():
            # The first model has cost nothing, which a logarithm cannot show.
            found = [(point[column], _score(point, what)) for point in run["points"] if point[column] > 0]
            known = [(spent, value) for spent, value in found if value is not None]
            if known:
                axis.plot(*zip(*known, strict=True), **({"lw": 1.6} | CURVES[name]))
        axis.set_xscale("log")
        axis.set_xlabel(label)
        # A learner may call its scores as it likes: a dollar sign there begins no formula.
        axis.set_ylabel(f"{what} on held-out data", parse_math=False)
        title = f"{what[:1].upper()}{what[1:]} against {label}"
        return _svg(figure, title, _ends(algorithms, column, what))


def _score(point: Mapping[str, Any], what: str) -> float | None:
    """Return a score of a point of a record; None where it is not there, or was not finite."""
    found: float | None = point[what] if what in {"accuracy", "loss"} else point.get("scores", {}).get(what)
    return found


def _ends(algorithms: Mapping[str, Any], column: str, what: str) -> str:
    """Say where each curve ends, for who does not see it."""
    last = {name: run["points"][-1] for name, run in algorithms.items()}
    return "; ".join(
        f"{CURVES[name]['label']} ends at {what} {value:.3f}" + (f" with {point[column]:,.0f}" if point[column] else "")
        for name, point in last.items()
        if (value := _score(point, what)) is not None
    )


def entropy_svg(routes: Mapping[str, Mapping[str, Any]]) -> str:
    """Node entropy of the receiver's posterior by return time, for every private scheme, and how often each is seen."""
    with mpl.rc_context(PAGE_STYLE):
        figure, (top, bottom) = plt.subplots(
            2, 1, figsize=(5.8, 5.2), sharex=True, height_ratios=(2.4, 1), layout="constrained"
        )
        told = []
        for name, route in routes.items():
            look = {key: CURVES[name][key] for key in ("color", "label")}
            rows = [row for row in route["by_return_time"] if row["share"] > 0]
            ends = [row["hi"] if row["hi"] is not None else 2 * row["lo"] for row in rows]
            middle = [math.sqrt(row["lo"] * end) for row, end in zip(rows, ends, strict=True)]
            prior = route["prior_node_entropy_nats"]
            top.axhline(prior, color=look["color"], ls=":", lw=1.2)
            top.plot(middle, [row["node_entropy_nats"] for row in rows], marker="o", ms=4, **look)
            bottom.stairs([row["share"] for row in rows], [rows[0]["lo"], *ends], color=look["color"], lw=1.6)
            told.append(
                f"{look['label']}: {rows[0]['node_entropy_nats']:.2f} nats at the shortest, "
                f"{rows[-1]['node_entropy_nats']:.2f} at the longest returns, {prior:.2f} before looking"
            )
        top.set_ylabel("node entropy (nats)")
        top.set_ylim(0, 1.08 * max(route["prior_node_entropy_nats"] for route in routes.values()))
        top.legend(frameon=False, loc="lower right", title="dotted: before looking", alignment="left")
        bottom.set_ylabel("share of deliveries")
        bottom.set_xlabel("return time seen by the receiver (hops)")
        bottom.set_xscale("log")
        return _svg(figure, "What is left of the receiver's doubt, by return time", "; ".join(told))


def posterior_svg(sample: Mapping[str, Any]) -> str:
    """One delivery on the network, drawn in rings around its receiver; the fuller, the likelier."""
    places, posterior = _rings(sample), np.asarray(sample["posterior"])
    (x, y), possible = places.T, posterior > 0
    even = 1 / (len(posterior) - 1)
    step = np.searchsorted([upper for upper, _ in _STEPS], posterior / even)
    with mpl.rc_context(PAGE_STYLE):
        figure, axis = plt.subplots(figsize=(5.8, 6.2), layout="constrained")
        lines = [(places[a], places[b]) for a, b in sample["edges"]]
        axis.add_collection(LineCollection(lines, colors="#e4e4e4", linewidths=0.5, zorder=1))
        axis.scatter(x[~possible], y[~possible], s=8, facecolor="none", edgecolor="#888888", lw=0.6, zorder=2)
        for number, label in enumerate([*(label for _, label in _STEPS), _BEYOND]):
            # Filled so far: opacity alone tells the steps apart, on any ground and without colour.
            chosen, full = possible & (step == number), (0.12, 0.3, 0.55, 0.8, 1.0)[number]
            axis.scatter(
                x[chosen], y[chosen], s=28, facecolor=("#1f5fa8", full), edgecolor="#1f5fa8", lw=0.5, zorder=3,
                label=f"{label} ({chosen.sum()})",
            )  # fmt: skip
        figure.legend(
            *axis.get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=3, handletextpad=0.2,
            title=f"a peer's share, beside an even one of {100 * even:.2g}% (number of peers)",
        )  # fmt: skip
        marks = (
            ("destination", "receiver", "s", True),
            ("last_hop", "came from here", "o", False),
            ("source", "really made it", "D", False),
        )
        handles = [_mark(axis, places[sample[key]], label, mark, filled=full) for key, label, mark, full in marks]
        figure.legend(handles=handles, frameon=False, loc="outside upper center", ncols=3)
        axis.set_axis_off()
        axis.set_aspect("equal")
        told = (
            f"{possible.sum()} of {len(posterior)} peers may have made it; the likeliest gets "
            f"{100 * posterior.max():.2f}%, the one that did {100 * posterior[sample['source']]:.2f}%"
        )
        return _svg(figure, "The receiver's posterior over who made one update", told)


def _mark(axis: Axes, place: Sequence[float], label: str, marker: str, *, filled: bool) -> Any:
    face = "black" if filled else "none"
    return axis.scatter(
        place[0], place[1], s=90, marker=marker, facecolor=face, edgecolor="black", lw=1.6, label=label, zorder=4
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


def _svg(figure: Figure, title: str, told: str) -> str:
    """Return a figure for the middle of a page: in its colours, on its ground, with words for who cannot see it."""
    figure.patch.set_alpha(0.0)
    for axis in figure.axes:
        axis.patch.set_alpha(0.0)
    text = render_figure(figure, "svg")[0].decode()
    # Inside a page neither a prologue nor a note on what drew it has any use.
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub("|".join(_ON_A_PAGE), lambda found: f"var(--{_ON_A_PAGE[found[0]]})", text)
    # Figures of one page must not share names of clip paths and markers.
    text = re.sub(r'(id="|url\(#|href="#)', lambda found: f"{found[1]}{_slug(title)}-", text)
    words = f"<title>{escape(title)}</title><desc>{escape(told)}</desc>"
    head, _, rest = text.partition(">")
    return f'{head} role="img" aria-label="{escape(title)}. {escape(told)}">{words}{rest}'


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
