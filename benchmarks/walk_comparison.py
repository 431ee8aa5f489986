"""Walks side by side on the paper's network: hops per update and what each leaves hidden.

Run ``make walk-comparison``; about a minute on two cores. It writes ``docs/reference/walks.md`` and
``docs/images/walks.png``. ``--updates`` shrinks it, ``--docs`` writes elsewhere.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

from veilwalk import __version__
from veilwalk.audit import scheme_law
from veilwalk.core.records import Record
from veilwalk.core.support import DistanceSupport
from veilwalk.experiments import compare_walks
from veilwalk.graphs import parse_graph_spec
from veilwalk.report import walk_files
from veilwalk.walks import WalkKind

GRAPH = "rrg:300:3:seed=1"
SUPPORT = DistanceSupport(2, 6)
WALKS: tuple[tuple[WalkKind, float], ...] = (
    ("simple", 0.0),
    ("non-backtracking", 0.0),
    ("least-recent", 0.1),
    ("least-recent", 0.0),
)


def main() -> None:
    """Run the comparison and write its page and figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--updates", type=int, default=1_000_000)
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[1] / "docs")
    options = parser.parse_args()
    graph = parse_graph_spec(GRAPH)
    law = scheme_law("paper", graph, SUPPORT)
    record = compare_walks(graph, law, WALKS, updates=options.updates, seed=7, names=(GRAPH, "paper"), say=print)
    (options.docs / "reference").mkdir(parents=True, exist_ok=True)
    (options.docs / "images").mkdir(parents=True, exist_ok=True)
    (options.docs / "reference" / "walks.md").write_text(page(record))
    with tempfile.TemporaryDirectory() as folder:
        walk_files(record, Path(folder))
        shutil.copy(Path(folder) / "walks.png", options.docs / "images" / "walks.png")


def page(record: Record) -> str:
    """Return the tables as Markdown."""
    rows: list[dict[str, Any]] = list(record.result["rows"])
    names = [row["walk"] + (f", mix {row['mix']:g}" if row["mix"] else "") for row in rows]
    lines = [
        "# Walks side by side",
        "",
        f"Written by `make walk-comparison` with veilwalk {__version__}: {GRAPH}, support {SUPPORT}, law `paper`,",
        f"{record.params['updates']} updates a walk, seed {record.seed}. Posteriors are by class, for all walks alike",
        "(calibrated on half of the 256 lanes, scored on the others); 95% intervals from the spread of lanes.",
        "",
        "| walk | hops per update | relative | hops walked |",
        "|---|---|---|---|",
    ]
    for name, row in zip(names, rows, strict=True):
        low, high = row["hops_per_update_interval"]
        half = (high - low) / 2
        relative = row["relative_hops"]
        lines.append(f"| {name} | {row['hops_per_update']:.1f} ± {half:.1f} | {relative:.3f} | {row['hops']:.1e} |")
    for observer in ("return-time", "last-hop"):
        lines += ["", f"## Node entropy in nats, {observer} observer", "", f"| deliveries | {' | '.join(names)} |"]
        lines.append("|---" * (len(names) + 1) + "|")
        for index, line in enumerate(rows[0][observer]["by_return_time"]):
            cells = [_entropy(row[observer]["by_return_time"][index]) for row in rows]
            where = "shortest" if index == 0 else "next"
            lines.append(f"| {where} {line['share']:.0%} | {' | '.join(cells)} |")
        overall = " | ".join(_entropy(row[observer]["overall"]) for row in rows)
        lines.append(f"| all | {overall} |")
    return "\n".join(lines) + "\n"


def _entropy(row: dict[str, Any]) -> str:
    low, high = row["node_entropy_nats_interval"]
    return f"{row['node_entropy_nats']:.3f} ± {(high - low) / 2:.3f}"


if __name__ == "__main__":
    main()
