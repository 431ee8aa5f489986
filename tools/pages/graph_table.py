"""Graphs, walks and laws side by side: price, entropy, hit ratio, worst destination, and how near to the best.

Run ``make graph-table``; about ten minutes on two cores. It writes ``docs/measured/graphs.md`` and the figures
``docs/images/frontier-*.png``. Graphs that are done are kept in ``--work``. ``--small`` runs on small
graphs, a smoke test; ``--docs`` writes elsewhere.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.pages.campaign import add_engine, engine
from tools.pages.markdown import markdown_table, plus_minus
from tools.pages.rows import write_page
from veilwalk.audit import AuditSettings, audit
from veilwalk.core.records import Record, plain
from veilwalk.core.support import DistanceSupport
from veilwalk.core.version import __version__
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design import design
from veilwalk.experiments import privacy_price
from veilwalk.graphs import parse_graph_spec
from veilwalk.report import frontier_files

ROOT = Path(__file__).parents[2]
#: Specification, support and short name of every graph.
GRAPHS = (
    ("rrg:300:3:seed=1", "2:6", "regular"),
    ("er:150:4:seed=1:component=largest", "2:5", "random"),
    ("ba:150:2:seed=1", "2:4", "hubs"),
    ("ws:150:4:0.1:seed=1", "2:6", "small-world"),
    ("torus:12:12", "2:8", "torus"),
)
SMALL = (("rrg:30:3:seed=1", "2:3", "regular"), ("ba:30:2:seed=1", "2:3", "hubs"))
WALKS = (SIMPLE, Walk("non-backtracking"))
_ABOUT = (
    "Written by `make graph-table` (veilwalk {version}). Expected values from the observation channel of the "
    "return-time observer; nothing is sampled. Hops: mean per update. Of simple: against the balanced uniform-node "
    "law with the simple walk on the same graph. Entropy: expected node entropy, nats. At most: a bound on any "
    "balanced law with so many hops. Worst: entropy at the destination that knows most. Updates: how often a node "
    "updates, times the mean, least to most. `graphs.json` beside this page has more rows. What the columns rest on: "
    "[walks and laws](../explanation/walks-and-laws.md#the-law)."
)
_AUDITED = (
    "The protocol played under each balanced law, {updates:,} updates, and attacked with exact posteriors; the same "
    "hops for both laws of a graph, those of uniform-node. Return-time and last-hop: node entropy left to that "
    "observer, nats, estimated; 95% intervals from the spread of independent lanes. "
    "Better by: the optimal law's node entropy less this one's, exact for the return-time observer it is optimal for."
)
AUDITED_COLUMNS = ("graph", "law", "hops played", "return-time", "last-hop", "return-time names", "better by")
LAWS = ("uniform-node", "optimal")
COLUMNS = ("graph", "walk", "law", "hops", "of simple", "entropy", "at most", "hit ratio", "worst", "updates")


def main() -> None:
    """Run every graph and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--small", action="store_true", help="small graphs only")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    add_engine(parser, ROOT / "out" / "graphs")
    options = parser.parse_args()
    updates = 2_000 if options.small else 300_000
    graphs = [list(one) for one in (SMALL if options.small else GRAPHS)]
    with engine(options.engine, options.work) as run:
        found = run(measured, graphs, common=(updates,), what={"kind": "graph-table", "updates": updates})
    records = {short: Record(**one["record"]) for (_, _, short), one in zip(graphs, found, strict=True)}
    for short, record in records.items():
        with tempfile.TemporaryDirectory() as folder:
            frontier_files(record, Path(folder))
            (options.docs / "images").mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(folder) / "frontier.png", options.docs / "images" / f"frontier-{short}.png")
    audits = [line for one in found for line in one["audits"]]
    write_tables(options.docs / "measured" / "graphs.md", records, audits, _AUDITED.format(updates=updates))


def measured(updates: int, graph: list[str]) -> dict[str, Any]:
    """Look at one graph: the laws attacked, and privacy against price."""
    spec, support = graph[0], DistanceSupport.parse(graph[1])
    print(f"designing on {spec}", flush=True)
    found = privacy_price(parse_graph_spec(spec), support=support, walks=WALKS)
    record = {"kind": found.kind, "params": found.params, "result": found.result, "seed": found.seed}
    return dict(plain({"audits": audited(spec, support, updates), "record": record}))


def audited(spec: str, support: DistanceSupport, updates: int) -> list[Sequence[str]]:
    """Attack both balanced laws at equal hops; return a line of cells for each."""
    graph = parse_graph_spec(spec)
    budget = design(graph, "uniform-node", support=support, balanced=True).price.hops
    laws = [design(graph, name, support=support, balanced=True, budget_hops=budget) for name in LAWS]
    entropies = [law.exposure.node_entropy.mean for law in laws]
    settings = AuditSettings(observers=("return-time", "last-hop"), updates=updates)
    lines: list[Sequence[str]] = []
    for one, entropy in zip(laws, entropies, strict=True):
        found = audit(one.scheme, settings)
        seen = {name: found[name].overall for name in found}
        named, gain = seen["return-time"], entropies[-1] - entropy
        low, high = named["hit_ratio_interval"]
        lines.append(
            (
                f"{spec}, {support}",
                one.scheme.law.name,
                f"{found.hops_per_update.mean:.1f}",
                *(plus_minus(seen[name], "node_entropy_nats", 4) for name in seen),
                f"{named['hit_ratio']:.2%} ± {(high - low) / 2:.2%}",
                "" if one is laws[-1] else f"{gain:.5f}",
            )
        )
    return lines


def write_tables(path: Path, records: dict[str, Record], audits: list[Sequence[str]], about: str) -> None:
    """Write the tables and the figures."""
    designed = []
    for record in records.values():
        rows = list(record.result["rows"])
        base = next(row for row in rows if row["law"] == "uniform-node" and row["balanced"])
        designed += [_cells(record, row, base["mean_iteration_hops"]) for row in _shown(rows)]
    lines = ["# Graphs, walks and laws", "", _ABOUT.format(version=__version__), ""]
    lines += [*markdown_table(COLUMNS, designed), "", "## The laws attacked, at equal hops", "", about, ""]
    lines += [*markdown_table(AUDITED_COLUMNS, audits), "", "## Figures"]
    for short, record in records.items():
        lines += ["", f"![Privacy and price on {record.params['graph']}](../images/frontier-{short}.png)"]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(path, "\n".join(lines) + "\n")


def _shown(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every simple law, and of the optimal ones the first, which has no budget."""
    seen: set[str] = set()
    kept = []
    for row in rows:
        if row["law"] != "optimal" or row["walk"] not in seen:
            kept.append(row)
        if row["law"] == "optimal":
            seen.add(row["walk"])
    return kept


def _cells(record: Record, row: dict[str, Any], base: float) -> list[str]:
    bound = row["node_entropy_bound_nats"]
    law = str(row["law"]) + (", balanced" if row["balanced"] and row["law"] != "optimal" else "")
    return [
        f"{record.params['graph']}, {record.params['support']}",
        str(row["walk"]),
        law,
        f"{row['mean_iteration_hops']:.1f}",
        f"{row['mean_iteration_hops'] / base:.2f}x",
        f"{row['node_entropy_nats']:.4f}",
        "" if bound is None else f"{bound:.4f}",
        f"{row['hit_ratio']:.2%}",
        f"{row['worst_node_entropy_nats']:.3f}",
        "{:.2f} to {:.2f}".format(*row["prior_range"]),
    ]


if __name__ == "__main__":
    main()
