"""The strongest attackers: coalitions who use everything, relays, destinations with a memory, linked updates.

``python -m benchmarks.tables.attackers`` measures RRG(60, 3) with 6 colluders in some minutes on two cores; ``--full``
adds RRG(300, 3) with 30, about half an hour. Each figure is kept in ``--out`` as soon as it is there; a second run goes
on where the first one stopped. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from veilwalk.audit import audit
from veilwalk.core.records import write_atomically
from veilwalk.design import choose_scheme
from veilwalk.graphs import parse_graph_spec

SMALL = ("rrg:60:3:seed=1", (2, 4), 6, 60_000)
LARGE = ("rrg:300:3:seed=1", (2, 6), 30, 200_000)
WALKS = ("simple", "non-backtracking")
BASELINES = ("prior", "last-hop", "first-sight", "bridge", "predecessor")


def cases(*, full: bool) -> dict[str, dict[str, Any]]:
    """Return what is measured: one audit each."""
    found: dict[str, dict[str, Any]] = {}
    for spec, support, colluders, updates in (SMALL, LARGE) if full else (SMALL,):
        large = spec == LARGE[0]
        for walk in WALKS:
            base = {"graph": spec, "support": support, "walk": walk, "colluders": colluders, "updates": updates}
            asked = [
                ("coalition", "random", 2000),
                ("coalition", "spread", 1000),
                ("linked-coalition", "random", 640 if large else 1600),
            ]
            asked += [("neighbour", "random", 1000)] + ([] if large else [("linked-neighbour", "random", 1000)])
            asked += [] if large else [("memory", "random", 600)]
            for observer, placement, scored in asked:
                key = f"{spec} {walk} {observer} {placement}"
                found[key] = base | {"observers": observer, "placement": placement, "scored_by_filter": scored}
            names = [name for name in BASELINES if not (large and name in {"bridge", "last-hop"})]
            found[f"{spec} {walk} others"] = base | {"observers": ",".join(names)}
    return found


def measured(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each observer, and for each number of linked updates."""
    options = dict(case)
    spec, support, walk = (options.pop(name) for name in ("graph", "support", "walk"))
    scheme = choose_scheme(parse_graph_spec(spec), "paper", support=support, walk=walk)
    began = time.perf_counter()
    found = audit(scheme, **options)
    seconds = time.perf_counter() - began
    rows = []
    for name, one in found.findings.items():
        parts = one.by_linked_updates or [one.overall]
        for row in parts:
            kept = ("linked", "hit_ratio", "hit_ratio_interval", "top_posterior", "node_entropy_nats", "updates")
            said = {key: row[key] for key in kept if key in row}
            about = {"graph": spec, "walk": walk, "observer": name, "placement": case.get("placement", "random")}
            rows.append(about | said | {"facts": one.scored.facts, "seconds": seconds})
    return rows


def main() -> None:
    """Measure what is not there yet, and print all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--full", action="store_true", help="RRG(300, 3) with 30 colluders as well")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--out", type=Path, default=Path("attackers.json"))
    options = parser.parse_args()
    kept: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    asked = {key: case for key, case in cases(full=options.full).items() if options.only in key}
    for key, case in asked.items():
        if key not in kept:
            print(f"measuring {key}", flush=True)
            kept[key] = measured(case)
            write_atomically(options.out, json.dumps(kept, indent=1).encode())
    print("| graph | walk | observer | linked | named | 95% interval | top posterior | updates | seconds |")
    print("|---|---|---|---:|---:|---|---:|---:|---:|")
    for key in asked:
        for row in kept[key]:
            low, high = row["hit_ratio_interval"]
            name = row["observer"] + (" (spread)" if row["placement"] == "spread" else "")
            print(
                f"| {row['graph']} | {row['walk']} | {name} | {row.get('linked', '')} | {row['hit_ratio']:.4f} | "
                f"{low:.4f} to {high:.4f} | {row['top_posterior']:.4f} | {row['updates']} | {row['seconds']:.0f} |"
            )
            if row["facts"]:
                print(f"| | | {', '.join(f'{fact} {value:.4f}' for fact, value in row['facts'].items())} | | | | | | |")


if __name__ == "__main__":
    main()
