"""The tables of :mod:`tools.pages.learning` as Markdown."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tools.pages import local_steps
from tools.pages.campaign import sections_of
from tools.pages.markdown import markdown_table, mean_share, paragraph
from veilwalk.core.records import Record
from veilwalk.core.units import readable_bytes
from veilwalk.core.version import __version__
from veilwalk.learning import sealed_bytes

#: What the row of single models is called.
OWN_MODELS = "gossip, own models"
_TARGET = 0.8
_RUN = f"Run of veilwalk {__version__}."
_TITLES = {
    "softmax": "Softmax regression",
    # Written by tools.pages.clock.
    "clock": "By the clock",
    "steps": "Local steps",
    "cnn": "Convolutional network",
    # Written by tools.pages.noise.
    "noise": "Noise",
    "attack": "What content gives away",
    "speed": "Speed",
    # Written by tools.pages.payloads, and kept.
    "payloads": "Payloads",
}
# What is tuned, and what it is called.
_TUNED = {"learning_rate": "step size", "local_steps": "local steps", "fade": "fading"}
Cells = list[Mapping[str, Any]]


def page(record: Record, before: str = "") -> str:
    """Return the page; sections that the record has nothing of are taken from the page as it was before."""
    params = record.params
    about = paragraph(
        f"Written by `python -m tools.pages.learning`: MNIST over {params['graph']}; *private-walk*: sealed for "
        f"{params['recipients']}, law `{params['far']}`, non-backtracking walk; *paper-walk*: sealed for one, law "
        f"`paper`, support {params['support']}, simple walk, which sections of 0.1.0 call private-walk and the one "
        f"on content is about; seeds {', '.join(map(str, params['seeds']))}; each section says "
        "which version it was run with. Figures are means over the seeds, with the least and the largest in brackets. "
        "An *update* is what one node does to a model between two transfers; *hops* are model transfers between "
        f"neighbours, and those to {_TARGET:.0%} are interpolated between evaluations, but for gossip, which knows "
        "whole rounds only. Gossip is D-PSGD with Metropolis weights; its accuracy is that of the average of all "
        f"models, which no node holds, and below it, *{OWN_MODELS}*, the mean of what single nodes hold."
    )
    lines = ["# Learning, measured", "", about, "", "![Accuracy against updates and hops](../images/learning.png)"]
    sections = sections_of(before) | _written(record)
    for title in _TITLES.values():
        if title in sections:
            lines += ["", f"## {title}", "", *sections[title]]
    return "\n".join(lines) + "\n"


def _written(record: Record) -> dict[str, list[str]]:
    cells: Cells = list(record.result["cells"])
    writers = {"softmax": _softmax, "cnn": _network, "attack": _attacks}
    found = {}
    for part, write in writers.items():
        mine = [cell for cell in cells if cell.get("model", cell["kind"]) == part]
        if mine:
            found[_TITLES[part]] = write(mine, record.params)
    if "steps" in record.result:
        found[_TITLES["steps"]] = _steps(record)
    if "speed" in record.result:
        found[_TITLES["speed"]] = _speed(record)
    return found


def _softmax(cells: Cells, params: Mapping[str, Any]) -> list[str]:
    rule = (
        "what gives the best accuracy on a fifth of the training rows, held back from everybody, after "
        f"{params['tuning_updates']} updates with seed 0 (gossip: whole rounds, average model), for each algorithm and "
        "partition. The test rows have no part in it; the runs below train on all training rows."
    )
    grid = params["grids"]["softmax"]
    about = f"{_RUN} Every algorithm is tuned by one rule: of {_tried(grid)}, {rule} {_ends(cells, grid)}"
    return [paragraph(about), "", *_trained(cells, params["updates"]["softmax"])]


def _tried(grid: Sequence[Mapping[str, Any]]) -> str:
    rates, steps, fades = ([setting[name] for setting in grid] for name in _TUNED)
    text = f"the step sizes {_listed(rates)} and {_listed(steps)} local steps an update (batches of 32)"
    fading = f", fading after {_listed(fades)} updates of a model (0: none)" if any(fades) else ""
    return text + fading


def _ends(cells: Cells, grid: Sequence[Mapping[str, Any]]) -> str:
    """Return how many choices lie at an end of the grid; single models of gossip have the setting of their average."""
    chosen = {
        (cell["partition"], name): run["setting"]
        for cell in cells
        for name, run in cell["found"].items()
        if name != OWN_MODELS
    }
    tried = {name: {setting[name] for setting in grid} for name in _TUNED}
    outer = {
        what: sum(setting[name] in {min(tried[name]), max(tried[name])} for setting in chosen.values())
        for name, what in _TUNED.items()
        if len(tried[name]) > 1
    }
    listed = ", ".join(f"{count} in {what}" for what, count in outer.items())
    return (
        f"Of the {len(chosen)} choices so many lie at an end of the grid: {listed}; a wider grid might give them more."
    )


def _steps(record: Record) -> list[str]:
    about, *table = local_steps.section(record.result["steps"], seeds=len(record.params["seeds"]))
    return [paragraph(f"{_RUN} {about}"), *table]


def _network(cells: Cells, params: Mapping[str, Any]) -> list[str]:
    grid = params["grids"]["cnn"]
    about = (
        f"{_RUN} 5,994 parameters, evaluated on the first {params['held_out']['cnn']} of the held-out rows. Every "
        f"algorithm is tuned by the same rule, of {_tried(grid)}. {_ends(cells, grid)}"
    )
    return [paragraph(about), "", *_trained(cells, params["updates"]["cnn"])]


def _trained(cells: Cells, updates: int) -> list[str]:
    columns = (
        "partition",
        "algorithm",
        "step size, local steps, fade",
        f"accuracy after {updates} updates",
        f"accuracy after {updates} hops",
        f"hops to {_TARGET:.0%}",
        f"bytes to {_TARGET:.0%}",
        "hops per update",
        "bytes per update",
    )
    rows = []
    for (partition,), group in _grouped(cells, lambda cell: (cell["partition"],)):
        for algorithm in group[0]["found"]:
            runs = [cell["found"][algorithm] for cell in group]
            rows.append((partition, algorithm, *_row(algorithm, runs, updates)))
    return markdown_table(columns, rows)


def _row(algorithm: str, runs: list[Mapping[str, Any]], updates: int) -> tuple[str, ...]:
    central = algorithm == "central"
    setting = runs[0]["setting"]
    per_update = float(np.mean([run["points"][-1]["hops"] / run["points"][-1]["update"] for run in runs]))
    return (
        f"{setting['learning_rate']:g}, {setting['local_steps']}, {setting['fade']}",
        mean_share([run["points"][-1]["accuracy"] for run in runs]),
        "–" if central else mean_share([_at_hops(run, updates) for run in runs]),
        *(("–", "–") if central else _to_target(runs, whole=algorithm.startswith("gossip"))),
        f"{per_update:.1f}",
        readable_bytes(runs[0]["message_bytes"] * per_update),
    )


def _attacks(cells: Cells, params: Mapping[str, Any]) -> list[str]:
    seeds = len({cell["seed"] for cell in cells})
    about = paragraph(
        f"{_RUN} {params['attacked']} deliveries a seed, of {seeds} seed{'s' * (seeds > 1)}, softmax, step size 0.1, "
        "one step an update. The attacker is "
        "granted every candidate's data. *loss*: of the received model, lowest first; *drop*: since the receiver's own "
        "last model; *count*: how often each candidate took part since then, with drop; *step*: over the very update; "
        "*gradient*: the very update, held against the one that each candidate would have made. The last two take the "
        "model before, which the update's predecessor holds. Share of deliveries whose maker is named at the first "
        "guess, pooled over the seeds, with 95% intervals; node entropy in nats."
    )
    lines = []
    for partition, group in _grouped(cells, lambda cell: (cell["partition"],)):
        for first in group[0]["found"]["rows"]:
            every = [row for cell in group for row in cell["found"]["rows"]]
            # Each seed has its strongest first: the same attacker may stand elsewhere.
            rows = [row for row in every if row["attacker"] == first["attacker"]]
            low, high = _interval(rows)
            hits = np.mean([row["hit_ratio"] for row in rows])
            entropy = np.mean([row["node_entropy_nats"] for row in rows])
            named = (f"{hits:.2%}", f"{low:.2%} to {high:.2%}")
            lines.append((partition[0], first["attacker"], *named, f"{entropy:.3f}"))
    head = ("partition", "attacker", "names the maker", "95% interval", "node entropy")
    return [about, "", *markdown_table(head, lines)]


def _speed(record: Record) -> list[str]:
    about = paragraph(
        f"{_RUN} `python -m benchmarks.speed.learning`: a softmax step of 784 x 10 and 32 rows, one thread, contenders "
        "in turns; medians [min-max] of per-round ratios. An update is a private one: training and its part of the "
        "walk. *Walk* is all hops and the draw of the destination. *Trials* are the headers that nodes open in vain."
    )
    rows = []
    for line in record.result["speed"]:
        ratio = f"{line['found']:.3g} [{line['low']:.3g}-{line['high']:.3g}]"
        rows.append((line["goal"], line["what"], ratio, line["need"], "met" if line["met"] else "missed"))
    medians = ", ".join(f"{name} {value:.0f}" for name, value in record.result["microseconds"].items())
    size = sealed_bytes(4 * 7850)
    return [
        about,
        "",
        *markdown_table(("goal", "what", "found", "need", ""), rows),
        "",
        f"Microseconds an update (trial: a message): {medians}. A sealed softmax model is {size} bytes on the wire.",
    ]


def _grouped(cells: Cells, key: Callable[[Mapping[str, Any]], tuple[Any, ...]]) -> Iterable[tuple[Any, Cells]]:
    found: dict[tuple[Any, ...], Cells] = {}
    for cell in cells:
        found.setdefault(key(cell), []).append(cell)
    return found.items()


def _interval(rows: list[Mapping[str, Any]]) -> tuple[float, float]:
    from scipy import stats

    total = sum(row["deliveries"] for row in rows)
    hits = sum(row["hit_ratio"] * row["deliveries"] for row in rows)
    found = stats.binomtest(round(hits), total).proportion_ci(0.95)
    return float(found.low), float(found.high)


def _at_hops(run: Mapping[str, Any], hops: int) -> float:
    return float([point for point in run["points"] if point["hops"] <= hops][-1]["accuracy"])


def _to_target(runs: list[Mapping[str, Any]], *, whole: bool) -> tuple[str, str]:
    """Return hops and bytes to the target."""
    found = [_reached(run["points"], whole=whole) for run in runs]
    if None in found:
        return "not reached", "not reached"
    hops = float(np.mean([hops for hops in found if hops is not None]))
    return f"{hops:,.0f}", readable_bytes(hops * runs[0]["message_bytes"])


def _reached(points: list[Mapping[str, Any]], *, whole: bool) -> float | None:
    """Return the hops after which the target was first reached, between two evaluations unless ``whole``."""
    for last, point in itertools.pairwise(points):
        if point["accuracy"] >= _TARGET:
            share = 1.0 if whole else (_TARGET - last["accuracy"]) / (point["accuracy"] - last["accuracy"])
            return float(last["hops"] + share * (point["hops"] - last["hops"]))
    return None


def _listed(values: Iterable[float]) -> str:
    *most, last = (f"{value:g}" for value in dict.fromkeys(values))
    return f"{', '.join(most)} or {last}"
