"""The tables of :mod:`benchmarks.learning` as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from veilwalk import __version__
from veilwalk.core.records import Record
from veilwalk.learning import readable_bytes, sealed_bytes

_TARGET = 0.8
Cells = list[Mapping[str, Any]]


def page(record: Record) -> str:
    """Return the page."""
    cells: Cells = list(record.result["cells"])
    params = record.params
    about = _paragraph(
        f"Written by `python -m benchmarks.learning` with veilwalk {__version__}: MNIST over {params['graph']}, law "
        f"`paper`, support {params['support']}, simple walk, seeds {', '.join(map(str, params['seeds']))}. Figures are "
        "means over the seeds, with the least and the largest in brackets. Softmax regression and a convolutional "
        "network of 5,994 parameters, step size 0.1, batches of 32, one step an update. *Updates* are gradient steps "
        "of single nodes, whoever makes them; *hops* are model transfers between neighbours. Gossip is D-PSGD with "
        "Metropolis weights; its accuracy is that of the average of all models, which no node holds, and in "
        "parentheses that of a node's own. The network is evaluated on the first "
        f"{params['held_out']['cnn']} of the held-out rows."
    )
    lines = ["# Learning, measured", "", about, "", "![Accuracy against updates and hops](../images/learning.png)"]
    for model in ("softmax", "cnn"):
        lines += ["", *_trained(cells, model, params["updates"][model])]
    lines += ["", *_noise(cells, params), "", *_attacks(cells, params), "", *_speed(record)]
    return "\n".join(lines) + "\n"


def _trained(cells: Cells, model: str, updates: int) -> list[str]:
    name = {"softmax": "Softmax regression", "cnn": "Convolutional network"}[model]
    columns = (
        "partition",
        "algorithm",
        f"accuracy after {updates} updates",
        f"accuracy after {updates} hops",
        f"hops to {_TARGET:.0%}",
        "hops per update",
        "bytes per update",
    )
    lines = [f"## {name}", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    mine = [cell for cell in cells if cell["kind"] == "train" and cell["model"] == model]
    for partition in dict.fromkeys(cell["partition"] for cell in mine):
        for algorithm in mine[0]["found"]:
            runs = [cell["found"][algorithm] for cell in mine if cell["partition"] == partition]
            final = _spread([run["points"][-1]["accuracy"] for run in runs])
            if algorithm == "gossip":
                final += f" ({np.mean([run['single_accuracy'] for run in runs]):.1%})"
            central = algorithm == "central"
            per_update = [run["points"][-1]["hops"] / run["points"][-1]["update"] for run in runs]
            size = runs[0]["message_bytes"] * float(np.mean(per_update))
            cells_of_row = (
                partition,
                algorithm,
                final,
                "–" if central else _spread([_at_hops(run, updates) for run in runs]),
                "–" if central else _hops_to(runs),
                f"{np.mean(per_update):.1f}",
                readable_bytes(size),
            )
            lines.append(f"| {' | '.join(cells_of_row)} |")
    return lines


def _noise(cells: Cells, params: Mapping[str, Any]) -> list[str]:
    about = _paragraph(
        f"The private walk with softmax, updates clipped to norm {params['clip']:g}, with the least noise that keeps "
        f"epsilon at delta {params['delta']:g} for the node with most updates: whether one node's data, all of them, "
        "were used. *Sender known* holds against everybody; *sender unknown* against one receiver, justified by the "
        "exact posteriors of that very run's deliveries."
    )
    lines = ["## Noise", "", about, "", "| partition | epsilon | case | noise multiplier | accuracy |"]
    lines.append("|---|---|---|---|---|")
    mine = [cell for cell in cells if cell["kind"] == "noise"]
    for key, group in _grouped(mine, lambda cell: (cell["partition"], cell["epsilon"], cell["case"])):
        multiplier = np.mean([cell["found"]["noise_multiplier"] for cell in group])
        accuracy = _spread([cell["found"]["accuracy"] for cell in group])
        lines.append(f"| {key[0]} | {key[1]:g} | {key[2]} | {multiplier:.2f} | {accuracy} |")
    return lines


def _attacks(cells: Cells, params: Mapping[str, Any]) -> list[str]:
    about = _paragraph(
        f"{params['attacked']} deliveries a seed, softmax. The attacker is granted every candidate's data. *loss*: of "
        "the received model, lowest first; *drop*: since the receiver's own last model; *step*: over the very update, "
        "which takes the model before it and so bounds what evidence of this kind can give. Share of deliveries whose "
        "maker is named at the first guess, pooled over the seeds, with 95% intervals; node entropy in nats."
    )
    lines = ["## What content gives away", "", about, ""]
    lines += ["| partition | attacker | names the maker | 95% interval | node entropy |", "|---|---|---|---|---|"]
    mine = [cell for cell in cells if cell["kind"] == "attack"]
    for partition, group in _grouped(mine, lambda cell: (cell["partition"],)):
        for index, first in enumerate(group[0]["found"]["rows"]):
            rows = [cell["found"]["rows"][index] for cell in group]
            low, high = _interval(rows)
            hits = np.mean([row["hit_ratio"] for row in rows])
            entropy = np.mean([row["node_entropy_nats"] for row in rows])
            lines.append(
                f"| {partition[0]} | {first['attacker']} | {hits:.2%} | {low:.2%} to {high:.2%} | {entropy:.3f} |"
            )
    return lines


def _speed(record: Record) -> list[str]:
    about = _paragraph(
        "`python -m benchmarks.learning_speed`: a softmax step of 784 x 10 and 32 rows, one thread, contenders in "
        "turns; medians [min-max] of per-round ratios. An update is a private one: training and its part of the walk. "
        "*Walk* is all hops and the draw of the destination. *Trials* are the headers that nodes open in vain."
    )
    lines = ["## Speed", "", about, "", "| goal | what | found | need | |", "|---|---|---|---|---|"]
    for line in record.result["speed"]:
        found, verdict = (
            f"{line['found']:.3g} [{line['low']:.3g}-{line['high']:.3g}]",
            "met" if line["met"] else "missed",
        )
        lines.append(f"| {line['goal']} | {line['what']} | {found} | {line['need']} | {verdict} |")
    medians = ", ".join(f"{name} {value:.0f}" for name, value in record.result["microseconds"].items())
    size = sealed_bytes(4 * 7850)
    return [
        *lines,
        "",
        f"Microseconds an update (trial: a message): {medians}. A sealed softmax model is {size} bytes on the wire.",
    ]


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


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


def _hops_to(runs: list[Mapping[str, Any]]) -> str:
    found = []
    for run in runs:
        reached = [point["hops"] for point in run["points"] if point["accuracy"] >= _TARGET]
        if not reached:
            return "not reached"
        found.append(reached[0])
    return f"{np.mean(found):,.0f}"


def _spread(values: list[float]) -> str:
    return f"{np.mean(values):.1%} [{min(values):.1%}-{max(values):.1%}]"
