"""Writes docs/measured/overlay-attackers.md, its rows and its figure: what coalitions name on a secret overlay.

Cases that are stored are not measured again: remove the stored rows to measure all, which takes half an hour on two
cores. ``--from-rows`` measures nothing.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.ticker import PercentFormatter

from veilwalk.audit import OverlayAttack, measure_overlay
from veilwalk.core.records import plain, write_atomically
from veilwalk.design import choose_scheme, exposed_share
from veilwalk.report.style import finish_axis, render_figure, set_heading

ROOT = Path(__file__).parents[2] / "docs"
ROWS, PAGE, FIGURE = ROOT / "measured/overlay-attackers.json", ROOT / "measured/overlay-attackers.md", "overlay.png"
NODES, REPLICAS, SEED = 300, 6, 1
_OWN: dict[str, Any] = {"has_map": False}
_NAMED: dict[str, Any] = {"has_names": True}
#: Attack, recipients, share of colluders, degree.
CASES: tuple[tuple[OverlayAttack, int, float, int], ...] = (
    (OverlayAttack(name="own links only", has_key_places=False, **_OWN), 16, 0.1, 3),
    (OverlayAttack(name="cartographer, keys not placed", has_key_places=False), 16, 0.1, 3),
    (OverlayAttack(name="cartographer"), 16, 0.1, 3),
    (OverlayAttack(name="cartographer, one key and dummies", aim="dummies"), 16, 0.1, 3),
    (OverlayAttack(name="cartographer, seals for its neighbours", aim="neighbours"), 16, 0.1, 3),
    (OverlayAttack(name="cartographer, sees who is online (90%)", online=0.9), 16, 0.1, 3),
    (OverlayAttack(name="cartographer, uneven hop times", hop_noise=1.0), 16, 0.1, 3),
    (OverlayAttack(name="cartographer, opens by the rule", seizes=False), 16, 0.1, 3),
    (OverlayAttack(name="cartographer"), 32, 0.1, 3),
    (OverlayAttack(name="cartographer"), 64, 0.1, 3),
    (OverlayAttack(name="cartographer, seals for its neighbours", aim="neighbours"), 64, 0.1, 3),
    (OverlayAttack(name="cartographer, opens by the rule", seizes=False), 64, 0.1, 3),
    (OverlayAttack(name="cartographer"), 16, 0.1, 4),
    (OverlayAttack(name="cartographer"), 16, 0.05, 3),
    (OverlayAttack(name="published graph, named keys", **_NAMED), 16, 0.1, 3),
    (OverlayAttack(name="published graph, opens by the rule", seizes=False, **_NAMED), 16, 0.1, 3),
    (OverlayAttack(name="published graph, seals for its neighbours", aim="neighbours", **_NAMED), 16, 0.1, 3),
    (OverlayAttack(name="published graph, nameless keys", has_key_places=False, **_NAMED), 16, 0.1, 3),
    (OverlayAttack(name="secret overlay, named keys", **_NAMED, **_OWN), 16, 0.1, 3),
    (OverlayAttack(name="the same, by the rule", seizes=False, **_NAMED, **_OWN), 16, 0.1, 3),
    (OverlayAttack(name="the same, without its draws", seizes=False, uses_draws=False, **_NAMED, **_OWN), 16, 0.1, 3),
    *((OverlayAttack(name=f"32 updates over {e} fresh overlays", overlays=e), 16, 0.1, 3) for e in (1, 4, 8)),
)
#: Blank legs: recipients, share of openers that train.
BLANK: tuple[tuple[int, float], ...] = ((16, 0.5), (16, 0.25), (64, 0.5))
# Points of other ways: hops, named of one update that is read, of eight linked; of honest members, one and eight.
# Coalitions that open by the rule are those of what-really-leaks.md, the rest are formulas.
_RETURN = 1.0 - 0.8 * 269 / 300
_TWICE = 1.0 - (1 - _RETURN) ** 8 - 7 * _RETURN * (1 - _RETURN) ** 7
OTHERS: dict[str, tuple[float, float, float, float, float]] = {
    "the paper, K = 1": (563.2, 0.364, 1.0, 0.364, 1.0),
    "0.2, K = 16, opens by the rule": (21.4, 0.234, 0.96, 0.234, 0.96),
    "onion, 10 hops (formula)": (10.0, 0.1, 1 - 0.9**8, 0.1, 1 - 0.9**8),
    "Crowds 0.8 (formula)": (6.0, _RETURN, _TWICE, _RETURN, _TWICE),
    "gossip": (1.0, 1.0, 1.0, exposed_share(0.1, 3), exposed_share(0.1, 3)),
}


# What the figure calls the coalitions that it draws, all of which seize.
_DRAWN = {"cartographer": "overlay", "published graph, named keys": "published", "published graph": "published"}

_HEAD = """# What coalitions name on a secret overlay

Written by `python -m tools.pages.overlay_attackers`: {nodes} members, {replicas} replicas, each with an overlay and
colluders of its own, far:2, non-backtracking, seed 1. A tenth colludes and all have three neighbours, but where a row
says otherwise. All share keys and, but where they open *by the rule*, seize what any of their keys opens and seal anew.
Scored are honest updates that they read. *Of updates*: how often they name the maker of so many linked updates; *of
members*: how many of the honest members they name, where one of whom they never read so many counts as not named.
*Bound*: what the theorem allows of members. Intervals are 95%, over replicas; `overlay-attackers.json` beside this page
has 2 and 16 linked updates and mean top posteriors too. [The secret overlay](../explanation/secret-overlay.md) says
what the rows mean.

![Hops against what the strongest coalition names of one and of eight linked updates](../images/overlay.png)

| coalition | K | hops | reads | of updates, 1 | 4 linked | 8 | 32 | of members, 1 | 8 | 32 | bound |
|---|---:|---:|---:|---|---|---|---|---|---|---|---:|"""
_TAIL = """
The cartographer knows the map and the place of every key, but for the names: the end of any long watch. It is
calibrated: its mean top posterior lies within the interval. Coalitions without a map multiply evidence as if stretches
were independent; linked, they are too sure of themselves, and a better one may lie between them and the cartographer.
Of fresh overlays, members of whom too few updates were read on some overlay count as not named, so that *of members* is
too low there. Opening by the rule on published links, the filter of [the other page](sealed-attackers.md) is stronger:
it counts each member's updates too, and names 23.4% of the single ones at far:4."""


def measure_rows() -> list[dict[str, Any]]:
    """Measure every case that is not stored."""
    stored = json.loads(ROWS.read_text()) if ROWS.exists() else []
    rows: list[dict[str, Any]] = []
    blank = [(OverlayAttack(name=f"cartographer, {1 - q:.0%} of legs blank"), k, 0.1, 3, q) for k, q in BLANK]
    for attack, recipients, share, degree, trains in [*((*case, 1.0) for case in CASES), *blank]:
        about = {"attack": asdict(attack), "recipients": recipients, "colluding": share, "degree": degree}
        if kept := [row for row in stored if about.items() <= row.items()]:
            rows += kept
            continue
        scheme = choose_scheme(f"overlay:{NODES}:{degree}:seed={SEED}", recipients=recipients)
        scheme = replace(scheme, train_probability=trains)
        options: dict[str, Any] = {"linked": (32,)} if attack.name.startswith("32") else {}
        measured = measure_overlay(
            scheme, attack, colluders=round(NODES * share), replicas=REPLICAS, seed=SEED, **options
        )
        rows.append(about | {"hops": scheme.price.hops, "rows": plain(measured)})
        kept = rows + [row for row in stored if row not in rows]
        write_atomically(ROWS, (json.dumps(plain(kept), indent=1) + "\n").encode())
        print(attack.name, recipients, share, degree, flush=True)
    return rows


def _cell(row: dict[str, Any], column: str) -> str:
    low, high = row[f"{column}_interval"]
    ends = "" if low is None else f" [{low:.1%}-{high:.1%}]"
    return f"{row[column]:.1%}{ends}"


def write_page(cases: list[dict[str, Any]]) -> None:
    """Write the page."""
    lines = _HEAD.format(nodes=NODES, replicas=REPLICAS).splitlines()
    for case in cases:
        attack, by = case["attack"], {row["linked"]: row for row in case["rows"]}
        last, name = by[32], attack["name"]
        name += f", {case['colluding']:.0%} collude" if case["colluding"] != 0.1 else ""
        name += f", {case['degree']} neighbours" if case["degree"] != 3 else ""
        cells = [name, str(case["recipients"]), f"{case['hops']:.1f}", f"{last['read']:.0%}"]
        columns = [("share", linked) for linked in (1, 4, 8, 32)] + [("by_maker", linked) for linked in (1, 8, 32)]
        cells += [_cell(by[linked], column) if linked in by else "" for column, linked in columns]
        bound = "-" if last["bound"] >= 1.0 and attack["overlays"] == 1 else f"{last['bound']:.1%}"
        lines.append(f"| {' | '.join([*cells, bound])} |")
    lines += _TAIL.splitlines()
    write_atomically(PAGE, ("\n".join(lines) + "\n").encode())


def draw_figure(cases: list[dict[str, Any]]) -> None:
    """Draw hops against what is named, of updates that are read and of honest members."""
    figure, axes = plt.subplots(1, 2, figsize=(12.5, 5.4), sharey=True)
    points = dict(OTHERS)
    for case in cases:
        name, _, steers = case["attack"]["name"].partition(", seals for its")
        if (case["colluding"], case["degree"]) != (0.1, 3) or name not in _DRAWN:
            continue
        by = {row["linked"]: row for row in case["rows"]}
        label = f"{_DRAWN[name]}, K = {case['recipients']}{', steering' if steers else ''}"
        values = [by[linked][column] for column in ("share", "by_maker") for linked in (1, 8)]
        points[label] = (case["hops"], *values)
    colours = plt.get_cmap("tab20")
    for number, (name, (hops, *values)) in enumerate(points.items()):
        marker = "^" if name.endswith("steering") else "o" if name.startswith("overlay") else "s"
        for axis, (one, eight) in zip(axes, (values[:2], values[2:]), strict=True):
            axis.plot([hops, hops], [one, eight], color=colours(number), lw=1.2)
            axis.plot([hops], [one], marker, mfc="white", mec=colours(number), ms=8)
            axis.plot([hops], [eight], marker, color=colours(number), ms=8, label=name)
    for axis, of in zip(axes, ("of the updates that the coalition reads", "of the honest members"), strict=True):
        axis.set_ylim(0.0, 1.05)
        axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        finish_axis(axis, "mean hops per update", f"named, {of}", log=True)
    about = (
        f"{NODES} members, a tenth colluding, shared keys; hollow: one update, filled: eight linked updates; steering: "
        "sealing for its own neighbours alone"
    )
    set_heading(figure, "On an overlay linked updates stop adding up", about)
    figure.tight_layout(rect=(0, 0.16, 1, 1))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=4, frameon=False, fontsize=9)
    write_atomically(ROOT / "images" / FIGURE, render_figure(figure, "png")[0])


def main() -> None:
    """Measure, or read the stored rows, and write page and figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from-rows", action="store_true", help="Use the stored rows.")
    cases = json.loads(ROWS.read_text()) if parser.parse_args().from_rows else plain(measure_rows())
    write_page(cases)
    draw_figure(cases)


if __name__ == "__main__":
    main()
