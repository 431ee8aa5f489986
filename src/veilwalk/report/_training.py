"""The report of a training run: one HTML file that needs nothing else, with its numbers in words and figures."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from veilwalk.core.records import Record, score_of, write_atomically
from veilwalk.core.units import readable_bytes, readable_data, readable_seconds
from veilwalk.report.style import COSTS, CURVES, PAGE_STYLE, render_figure, render_page

#: The algorithms whose receivers are meant not to know.
_PRIVATE_SCHEMES = ("private-walk", "paper-walk")
_MEASURED = "measured in this run"
_NAMES = {
    "private-walk": "private walk",
    "paper-walk": "the paper's walk",
    "plain-walk": "plain walk",
    "gossip": "gossip (D-PSGD)",
    "gossip-matching": "gossip, random pairs",
    "gossip-push": "gossip, push to one",
    "fedavg": "FedAvg (a server)",
    "central": "central SGD",
}


def training_report(record: Record, path: Path) -> Path:
    """Write the report of ``record`` to ``path`` and return it."""
    content: Mapping[str, Any] = record.to_dict()
    script = resources.files("veilwalk.report").joinpath("tables.js").read_text()
    labels = content.get("labels")
    filters: dict[str, Callable[..., str]] = {
        "peer": lambda node: str(node) if labels is None else labels[node],
        "share": percent,
        "score": score,
        "size": readable_bytes,
        "count": lambda value: f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}",
        "time": readable_seconds,
        # Records keep infinities as None.
        "epsilon": lambda value: "∞" if value is None else f"{value:.3g}",
        "entropy": lambda value: "–" if value is None else f"{value:.3f}",
    }
    algorithms, sample = content["algorithms"], content["sample"]
    gain = score_of(algorithms["private-walk"]["points"][-1])[0]
    drawn = "accuracy" if gain == "accuracy" else "loss"
    routes = {name: algorithms[name]["anonymity"] for name in _PRIVATE_SCHEMES if name in algorithms}
    text = render_page(
        "training.html",
        filters,
        run=content,
        names=_NAMES,
        gain=gain,
        private=algorithms["private-walk"],
        headline=headline(content),
        summary=summary(content),
        findings=findings(content),
        curves=curve_looks(algorithms),
        script=script,
        # Of all scripts only this one may run, whatever the record holds.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        figures={
            "accuracy": {label: _score_svg(algorithms, drawn, column, label, (4.2, 3.3)) for column, label in COSTS},
            "scores": score_svgs(algorithms, drawn),
            "entropy": entropy_svg(routes) if is_measured(algorithms["private-walk"]) else None,
            "posterior": posterior_svg(sample) if sample is not None else None,
        },
    )
    write_atomically(path, text.encode())
    return path


def is_measured(outcome: Mapping[str, Any]) -> bool:
    """Return whether a run has measured what the route tells a receiver (``train --audit none`` leaves it out)."""
    return outcome["anonymity"]["node_entropy_nats"] is not None


def headline(run: Mapping[str, Any]) -> str:
    """Return what came of it, in one line."""
    private = run["algorithms"]["private-walk"]
    gained = f"{learners(run)}: {reached(private)}"
    if not is_measured(private):
        return gained
    return f"{gained}; the receiver of an update names its maker {chance(private['anonymity']['hit_ratio'])}"


def learners(run: Mapping[str, Any]) -> str:
    """Return how many learnt what."""
    return f"{run['network']['nodes']} peers learnt {readable_data(run['params']['data'])}"


def summary(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return sentences with what kind of number is in each: measured, exact or estimated."""
    algorithms = run["algorithms"]
    private, kind = algorithms["private-walk"], algorithms["private-walk"]["anonymity"]["kind"]
    leak, sealed = private["anonymity"], run["network"]["recipients"]
    opened = "one peer" if sealed == 1 else f"{sealed} peers, of whom the first met opens it"
    gained = (
        f"{learners(run)}: {reached(private)} on {run['data']['held_out_rows']} rows that nobody trained on, "
        f"after {private['updates']:,} updates"
    )
    if "central" in algorithms:
        gained += f" (central training: {score(algorithms['central'])})"
    paid = (
        f"An update took {hops(private)} and {readable_bytes(private['bytes_per_update'])}, sealed for {opened}; "
        "a plain walk takes one hop, and hides nothing."
    )
    sentences = [(f"{gained}.", _MEASURED), (paid, f"{_MEASURED}, means over updates")]
    if not is_measured(private):
        return sentences
    left = (
        f"The peer that received it is right {chance(leak['hit_ratio'])} with its best guess at who made it; "
        f"guessing without looking, {chance(leak['blind_hit_ratio'])}. It is left with "
        f"{leak['node_entropy_nats']:.2f} nats of node entropy, as among {math.exp(leak['node_entropy_nats']):.0f} "
        "equally likely peers."
    )
    sentences.append((left, kind))
    if "paper-walk" in algorithms:
        paper = algorithms["paper-walk"]
        held = paper["anonymity"]
        beside = (
            f"The paper's scheme, sealed for one, took {hops(paper)} for an update on the same network; its receivers "
            f"are right {chance(held['hit_ratio'])}, and left with {held['node_entropy_nats']:.2f} nats of it."
        )
        sentences.append((beside, f"hops {_MEASURED}; the rest {held['kind']}"))
    return sentences


def findings(run: Mapping[str, Any]) -> dict[str, str]:
    """Return what each figure shows, as its heading."""
    algorithms = run["algorithms"]
    private, leak = algorithms["private-walk"], algorithms["private-walk"]["anonymity"]
    learning = f"{reached(private)} after {private['updates']:,} updates and {private['hops']:,} hops"
    plain = algorithms.get("plain-walk")
    # A budget may have allowed it no update, and then it has no price.
    if plain is not None and plain["updates"]:
        learning = (
            f"Update for update {score(private)} against the plain walk's {score(plain)}; "
            f"hop for hop {private['hops_per_update'] / plain['hops_per_update']:.0f} times the price"
        )
    headings = {"learning": learning}
    sample = run["sample"]
    if sample is not None:
        given = sample["posterior"][sample["source"]]
        headings["posterior"] = f"Of one update the receiver gives its true maker {percent(given, 2)}"
    if is_measured(private):
        first = next(row for row in leak["by_return_time"] if row["share"] > 0)
        headings["entropy"] = (
            f"Short returns give most away: {first['node_entropy_nats']:.2f} nats of node entropy are left at the "
            f"shortest ({percent(first['share'])} of deliveries), {leak['node_entropy_nats']:.2f} on average"
        )
    attacks = run["content_attack"]
    if attacks:
        worst = attacks[0]
        headings["content"] = (
            f"Who is granted {worst.get('granted', 'nothing')} names the maker by content "
            f"in {percent(worst['hit_ratio'])} of updates"
        )
    return headings


def chance(share: float | None) -> str:
    """Return a probability as people count: once in so many."""
    if not share:
        return "never"
    if share > 1 / 2:
        return "always" if share == 1.0 else percent(share) + " of the time"
    return f"once in {1 / share:.{1 if share > 0.1 else 0}f}"


def hops(outcome: Mapping[str, Any]) -> str:
    """Return hops of an update, as a mean."""
    return f"{outcome['hops_per_update']:.{0 if outcome['hops_per_update'] >= 100 else 1}f} hops"


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share in percent; a dash where there is none."""
    return "–" if value is None else f"{100 * value:.{digits}f}%"


def score(outcome: Mapping[str, Any], most_hops: float = math.inf) -> str:
    """Return what the last model of an algorithm is good for, or the last within so many hops."""
    name, value = score_of([point for point in outcome["points"] if point["hops"] <= most_hops][-1])
    return percent(value) if name == "accuracy" else f"{value:.3f}"


def reached(outcome: Mapping[str, Any]) -> str:
    """Return the same with its name: 96.7% accuracy, loss 0.123."""
    name, _ = score_of(outcome["points"][-1])
    return f"{score(outcome)} accuracy" if name == "accuracy" else f"{name} {score(outcome)}"


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
            points = [(point[column], _score(point, what)) for point in run["points"] if point[column] > 0]
            known = [(spent, value) for spent, value in points if value is not None]
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
    value: float | None = point[what] if what in {"accuracy", "loss"} else point.get("scores", {}).get(what)
    return value


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
        ends_of_curves = []
        for name, route in routes.items():
            style = {key: CURVES[name][key] for key in ("color", "label")}
            rows = [row for row in route["by_return_time"] if row["share"] > 0]
            ends = [row["hi"] if row["hi"] is not None else 2 * row["lo"] for row in rows]
            middle = [math.sqrt(row["lo"] * end) for row, end in zip(rows, ends, strict=True)]
            prior = route["prior_node_entropy_nats"]
            top.axhline(prior, color=style["color"], ls=":", lw=1.2)
            top.plot(middle, [row["node_entropy_nats"] for row in rows], marker="o", ms=4, **style)
            bottom.stairs([row["share"] for row in rows], [rows[0]["lo"], *ends], color=style["color"], lw=1.6)
            ends_of_curves.append(
                f"{style['label']}: {rows[0]['node_entropy_nats']:.2f} nats at the shortest, "
                f"{rows[-1]['node_entropy_nats']:.2f} at the longest returns, {prior:.2f} before looking"
            )
        top.set_ylabel("node entropy (nats)")
        top.set_ylim(0, 1.08 * max(route["prior_node_entropy_nats"] for route in routes.values()))
        top.legend(frameon=False, loc="lower right", title="dotted: before looking", alignment="left")
        bottom.set_ylabel("share of deliveries")
        bottom.set_xlabel("return time seen by the receiver (hops)")
        bottom.set_xscale("log")
        return _svg(figure, "What is left of the receiver's doubt, by return time", "; ".join(ends_of_curves))


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
            ("destination", "receiver", "s", "black"),
            ("last_hop", "came from here", "o", "none"),
            ("source", "really made it", "D", "none"),
        )
        style: dict[str, Any] = {"s": 90, "edgecolor": "black", "lw": 1.6, "zorder": 4}
        handles = [
            axis.scatter(*places[sample[key]], marker=marker, facecolor=face, label=label, **style)
            for key, label, marker, face in marks
        ]
        figure.legend(handles=handles, frameon=False, loc="outside upper center", ncols=3)
        axis.set_axis_off()
        axis.set_aspect("equal")
        description = (
            f"{possible.sum()} of {len(posterior)} peers may have made it; the likeliest gets "
            f"{100 * posterior.max():.2f}%, the one that did {100 * posterior[sample['source']]:.2f}%"
        )
        return _svg(figure, "The receiver's posterior over who made one update", description)


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


def _svg(figure: Figure, title: str, description: str) -> str:
    """Return a figure for the middle of a page: in its colours, on its ground, with words for who cannot see it."""
    figure.patch.set_alpha(0.0)
    for axis in figure.axes:
        axis.patch.set_alpha(0.0)
    text = render_figure(figure, "svg")[0].decode()
    # Inside a page neither a prologue nor a note on what drew it has any use.
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub("|".join(_ON_A_PAGE), lambda colour: f"var(--{_ON_A_PAGE[colour[0]]})", text)
    # Figures of one page must not share names of clip paths and markers.
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    text = re.sub(r'(id="|url\(#|href="#)', lambda reference: f"{reference[1]}{slug}-", text)
    words = f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
    head, _, rest = text.partition(">")
    return f'{head} role="img" aria-label="{escape(title)}. {escape(description)}">{words}{rest}'
