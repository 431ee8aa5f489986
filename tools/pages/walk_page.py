"""The tables of :mod:`tools.pages.walk_comparison` as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tools.pages.markdown import percent, plus_minus
from veilwalk.core.version import __version__

Rows = list[dict[str, Any]]


def page(rows: Rows, parts: dict[str, list[Any]], *, network: str, audited: Sequence[tuple[str, str, str]]) -> str:
    """Return the tables as Markdown."""
    updates = round(rows[0]["hops"] / rows[0]["hops_per_update"])
    lines = [
        "# Walks side by side",
        "",
        f"Written by `make walk-comparison` with veilwalk {__version__}, seed 7. What follows is in",
        "[walks and laws](../explanation/walks-and-laws.md). 95% intervals are from the spread of independent lanes;",
        "`walks.json` beside this page has the longer return times and more graphs.",
        "",
        f"## The paper's network: {network}, law `paper`, {updates} updates a walk",
        "",
        "Posteriors are rehearsed for all walks alike. Sources named at the first guess, in percent; 30 colluders.",
        "",
        "Entropies in nats, of nodes.",
        "",
        "| walk | hops per update | relative | entropy, last-hop | path | named by last-hop | path | first-sight |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        left = (row["observers"][name]["overall"] for name in ("last-hop", "path"))
        entropy = " | ".join(plus_minus(one, "node_entropy_nats", 3) for one in left)
        named = " | ".join(percent(row["observers"][name]["overall"]) for name in ("last-hop", "path", "first-sight"))
        cost = f"{plus_minus(row, 'hops_per_update', 1)} | {row['relative_hops']:.3f} | {entropy}"
        lines.append(f"| {row['walk']} | {cost} | {named} |")
    lines += by_quantile("### Node entropy in nats, last-hop observer", rows, "last-hop", "node_entropy_nats", 4)
    lines += [
        "",
        "Lost is how far the posterior's node entropy is below the prior's at the same destinations; below zero, the",
    ]
    lines += ["law's unevenness is undone by what is seen."]
    exact = [row for part in parts["exact"] for row in part]
    for observer in ("return-time", "last-hop"):
        title = f"### Node entropy lost to the {observer} observer, in nats, exact"
        lines += by_quantile(title, exact, observer, "node_entropy_lost_nats", 4)
    lines += graph_table(parts["graphs"], audited)
    lines += price_table(parts["prices"])
    return "\n".join(lines) + "\n"


def by_quantile(title: str, rows: Rows, observer: str, score: str, digits: int) -> list[str]:
    """One score by return time, walks side by side."""
    names = [row["walk"] for row in rows]
    lines = ["", title, "", f"| deliveries | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for index, line in enumerate(rows[0]["observers"][observer]["by_return_time"]):
        cells = [plus_minus(row["observers"][observer]["by_return_time"][index], score, digits) for row in rows]
        lines.append(f"| {'shortest' if index == 0 else 'next'} {line['share']:.0%} | {' | '.join(cells)} |")
    overall = " | ".join(plus_minus(row["observers"][observer]["overall"], score, digits) for row in rows)
    return [*lines, f"| all | {overall} |"]


def graph_table(parts: list[Any], audited: Sequence[tuple[str, str, str]]) -> list[str]:
    """Other graphs, audited."""
    lines = [
        "",
        "## Other graphs: what is hidden",
        "",
        "Law `uniform-node`, 120,000 updates a walk; a tenth of the nodes collude. Node entropy in nats; sources named",
        "at first sight in percent.",
        "",
        "| graph | walk | relative hops | last-hop | last-hop, shortest 1% | path | first-sight |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, _, support), rows in zip(audited, parts, strict=True):
        for row in rows:
            seen = row["observers"]
            cells = [
                f"{name}, {support}",
                row["walk"],
                f"{row['relative_hops']:.3f}",
                plus_minus(seen["last-hop"]["overall"], "node_entropy_nats", 3),
                plus_minus(seen["last-hop"]["by_return_time"][0], "node_entropy_nats", 2),
                plus_minus(seen["path"]["overall"], "node_entropy_nats", 2),
                percent(seen["first-sight"]["overall"]),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def price_table(rows: Rows) -> list[str]:
    """Hops per update on all graphs."""
    names = [one["walk"] for one in rows[0]["walks"]]
    lines = [
        "",
        "## Other degrees, sizes and graphs: what an update costs",
        "",
        "Hops per update under the law that is uniform over the support, and relative to the simple walk.",
        "",
        f"| graph | support | {' | '.join(names)} |",
        "|---" * (len(names) + 2) + "|",
    ]
    for row in rows:
        cells = [f"{plus_minus(one, 'hops_per_update', 0)} ({one['relative_hops']:.2f})" for one in row["walks"]]
        lines.append(f"| {row['name']} | {row['support']} | {' | '.join(cells)} |")
    return lines
