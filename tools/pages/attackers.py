"""The strongest attackers: coalitions who use everything, relays, destinations with a memory, linked updates.

``make attackers`` measures RRG(60, 3) with 6 colluders in some minutes on two cores and prints a table in Markdown;
``make audit-campaign`` measures RRG(300, 3) with 30 as well and writes all of it into the docs. Each case is a job,
kept in ``--work`` as soon as it is there, the same for both; ``--engine`` does them elsewhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tools.pages.campaign import Run, add_engine, engine
from veilwalk.audit import Audit, audit
from veilwalk.core.records import plain
from veilwalk.design import choose_scheme
from veilwalk.graphs import parse_graph_spec

SMALL = ("rrg:60:3:seed=1", (2, 4), 6, 60_000)
LARGE = ("rrg:300:3:seed=1", (2, 6), 30, 200_000)
WALKS = ("simple", "non-backtracking")
WORK = Path("out") / "audit-campaign"
BASELINES = "prior,last-hop,repeated,first-sight"
# Observer, placement, and updates to score. What takes hours with 300 nodes is not there: a memory, and linked sights
# of one relay.
ASKED_SMALL = (
    ("coalition", "random", 2000),
    ("coalition", "spread", 2000),
    ("linked-coalition", "random", 1600),
    ("linked-coalition", "spread", 1600),
    ("neighbour", "random", 1000),
    ("linked-neighbour", "random", 1000),
    ("memory", "random", 1000),
)
ASKED_LARGE = (
    ("coalition", "random", 2000),
    ("coalition", "spread", 1000),
    ("linked-coalition", "random", 640),
    ("linked-coalition", "spread", 640),
    ("neighbour", "random", 600),
)


def cases(*, full: bool) -> dict[str, dict[str, Any]]:
    """Return what is measured: one audit each."""
    found: dict[str, dict[str, Any]] = {}
    for spec, support, colluders, updates in (SMALL, LARGE) if full else (SMALL,):
        small = spec == SMALL[0]
        for walk in WALKS:
            base = {"graph": spec, "support": support, "walk": walk, "colluders": colluders, "updates": updates}
            for observer, placement, scored in ASKED_SMALL if small else ASKED_LARGE:
                asked = {"observers": observer, "placement": placement, "scored_by_filter": scored}
                found[f"{spec} {walk} {observer} {placement}"] = base | asked
            if small:
                found[f"{spec} {walk} others random"] = base | {"observers": BASELINES}
    return found


def measured(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows of one case."""
    options = dict(case)
    spec, support, walk = (options.pop(name) for name in ("graph", "support", "walk"))
    scheme = choose_scheme(parse_graph_spec(spec), "paper", support=support, walk=walk)
    about = {"graph": spec, "walk": walk, "placement": case.get("placement", "random")}
    return dict(plain({"rows": scored_rows(audit(scheme, **options), about)}))


def measure(run: Run, asked: Mapping[str, Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of all cases by graph, measuring what is not there yet."""
    found: dict[str, list[dict[str, Any]]] = {}
    done = run(measured, list(asked.values()), what={"kind": "attackers"}, stage="attackers")
    for case, part in zip(asked.values(), done, strict=True):
        found.setdefault(case["graph"], []).extend(part["rows"])
    return found


def scored_rows(found: Audit, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each observer, and for each number of linked updates."""
    rows = []
    for name, one in found.findings.items():
        for row in one.by_linked_updates or [one.overall]:
            kept_scores = (
                "linked",
                "of",
                "hit_ratio",
                "hit_ratio_interval",
                "top_posterior",
                "node_entropy_nats",
                "updates",
            )
            said = {key: row[key] for key in (*kept_scores, "blind_hit_ratio") if key in row}
            rows.append({**about, "observer": name, "linked": 1} | said | {"facts": one.scored.facts})
    return rows


def table(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a table in Markdown; of linked updates 2, 4 and 8 are shown."""
    lines = [
        "| walk | observer | colluders | linked | named | 95% interval | mean top posterior | blind | scored |",
        "|---|---|---|---:|---:|---|---:|---:|---:|",
    ]
    for row in rows:
        if row["observer"].startswith("linked-") and row["linked"] not in {2, 4, 8}:
            continue
        low, high = row["hit_ratio_interval"]
        alone = "coalition" not in row["observer"] and row["observer"] != "first-sight"
        blind = f"{row['blind_hit_ratio']:.2%}" if "blind_hit_ratio" in row else ""
        linked = f"{row['linked']} {row['of']}" if "of" in row else str(row["linked"])
        cells = (row["walk"], f"`{row['observer']}`", "" if alone else row["placement"], linked)
        scores = (f"{row['hit_ratio']:.1%}", f"{low:.1%} to {high:.1%}", f"{row['top_posterior']:.1%}")
        lines.append(f"| {' | '.join((*cells, *scores, blind, str(row['updates'])))} |")
    return lines


def facts(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what observers say beside their scores, a line each; shares above 0, not how many paths they sampled."""
    return [
        f"- {row['walk']}, `{row['observer']}`: "
        + ", ".join(f"{name.replace('_', ' ')} {share:.2%}" for name, share in row["facts"].items() if 0 < share <= 1)
        for row in rows
        if any(0 < share <= 1 for share in row["facts"].values())
    ]


def main() -> None:
    """Measure what is not there yet, and print all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--full", action="store_true", help="RRG(300, 3) with 30 colluders as well")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    add_engine(parser, WORK)
    options = parser.parse_args()
    asked = {key: case for key, case in cases(full=options.full).items() if options.only in key}
    with engine(options.engine, options.work) as run:
        found = measure(run, asked)
    for spec, rows in found.items():
        print("\n".join((f"\n{spec}\n", *table(rows), "", *facts(rows))))


if __name__ == "__main__":
    main()
