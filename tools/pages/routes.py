"""What hops buy: sealed for one and for several, beside other ways to bring an update on.

Run ``make routes``; some twenty minutes on two cores. It writes ``docs/measured/routes.md`` and
``docs/images/sealed-for-several.png``. Graphs are jobs, kept in ``--work`` and not measured again; ``--engine`` does
them elsewhere, ``--small`` measures little, on small graphs: a smoke test. The Facebook graph is taken where it lies
beside the checkout.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.pages.campaign import add_engine, engine
from tools.pages.markdown import share_between
from tools.pages.rows import write_page
from tools.rivals.routes import compare_routes
from tools.rivals.routes_figure import routes_figure
from veilwalk.core.records import Record, plain
from veilwalk.core.units import readable_bytes
from veilwalk.core.version import __version__
from veilwalk.core.walk import Walk
from veilwalk.design import Sealing
from veilwalk.graphs import parse_graph_spec

ROOT = Path(__file__).parents[2]
FACEBOOK = ROOT.parent / "shared" / "data" / "graphs" / "facebook_combined.txt.gz"
DRAWN = "RRG(300, 3)"
GRAPHS = {
    DRAWN: "rrg:300:3:seed=1",
    "RRG(1000, 3)": "rrg:1000:3:seed=1",
    "Erdős–Rényi(300, 6)": "er:300:6:seed=1:component=largest",
    "Barabási–Albert(300, 2)": "ba:300:2:seed=1",
    "Watts–Strogatz(300, 4, 0.1)": "ws:300:4:0.1:seed=1",
    "ego-Facebook": f"file:{FACEBOOK}",
}
SMALL = {"RRG(60, 3)": "rrg:60:3:seed=1", "Barabási–Albert(60, 2)": "ba:60:2:seed=1"}
# What the strongest coalition attacks, at the farthest distance: for one recipient that takes two minutes.
ATTACKED = (1, 4, 16, 64)
FARS, COUNTS, OTHER_COUNTS = (2, 4), (1, 2, 4, 8, 16, 32, 64), (4, 16, 64)
NEEDS = {
    "plain walk": "nothing; the receiver knows whose update it is",
    "gossip": "nothing; the receiver knows whose model it is",
    "crowd": "everybody reaches everybody; a member may open at the first hop",
    "onion": "the source knows a path of live peers and seals a layer for each; a dead one loses the update",
}

HEAD = """# What hops buy: ways to bring an update on, side by side

Written by `make routes`, veilwalk {version}.

- **Node entropy** over the source, in nats, of the opener who knows its last hop: estimated by walks with the set
  summed out, less its bias of first order; or exact; or, on graphs too large for tables, an upper bound by classes. Its
  **best guess**: how often it names the source; where estimated, a little too high.
- **Colluders** are a tenth of the nodes, placed at random. **Coalition**: what the strongest of the audit names of all
  honest updates, sharing keys; about 2,000 updates each. **Read**: what members that share keys read of all honest
  updates, eight placements. **First sight**, their cheapest attack: the first of them to get a message names who handed
  it over, as a multiple of their share, below which no routing goes; 95% interval about ± 7%.
- **Hops** an update: exact for one recipient, estimated for several.
- **Predecessor**: how often the node that sealed it names who will open it.
- **Bytes** are hops times a hybrid message with a model of {model_bytes} bytes. Layers of an onion are not counted.

`routes.json` beside this page has more rows. [Sealed for several](../explanation/sealed-for-several.md) says why, [what
really leaks](../explanation/what-really-leaks.md) has more attackers.
"""


def job_of(name: str, spec: str) -> dict[str, Any]:
    """Return what is measured on a graph: all of it on the one that is drawn."""
    if name in SMALL:
        return {"graph": spec, "fars": FARS[:1], "counts": OTHER_COUNTS[:1]}
    if name == DRAWN:
        return {"graph": spec, "fars": FARS, "counts": COUNTS, "attacked": ATTACKED}
    return {"graph": spec, "fars": FARS[:1], "counts": OTHER_COUNTS, "walk": "non-backtracking"}


def measured(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the routes of one graph."""
    walks: dict[str, Any] = {"walks": [Walk(job["walk"])]} if "walk" in job else {}
    options = walks | {key: job[key] for key in ("fars", "counts", "attacked") if key in job}
    found = compare_routes(parse_graph_spec(job["graph"]), **options)
    return dict(plain({"params": found.params, "result": found.result}))


def page(records: Mapping[str, Record]) -> str:
    """Return the page: the first graph in full, the others by their main rows."""
    lines = [HEAD.format(model_bytes=Sealing().model_bytes, version=__version__)]
    drawn = next(iter(records))
    lines += [f"## {drawn}", "", "![What hops buy](../images/sealed-for-several.png)", "", *_full(records[drawn])]
    lines += ["", "What the others need:", "", *(f"- {name}: {need}." for name, need in NEEDS.items()), ""]
    lines += ["## Six graphs", "", *_six(records), ""]
    return "\n".join(lines)


def _full(record: Record) -> list[str]:
    head = [
        "| way | hops | node entropy | of log(N − 1) | best guess | coalition | read | first sight | predecessor |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    return head + [
        f"| {_name(row)} | {row['hops']:.1f} | {row['node_entropy_nats']:.3f} ({row['node_entropy_kind']}) | "
        f"{row['node_entropy_nats'] / math.log(record.params['nodes'] - 1):.1%} | "
        f"{_share(row['top_posterior'])} | {_named(row)} | {_share(row.get('read'))} | {row['times_floor']:.2f} | "
        f"{_share(row['predecessor'])} |"
        for row in record.result["rows"]
        if not (row["route"] == "several" and row["walk"] == "simple" and row["recipients"] in {2, 8, 32})
    ]


def _six(records: Mapping[str, Record]) -> list[str]:
    lines = [
        "| graph | way | hops | bytes | node entropy | of log(N − 1) | read | first sight | predecessor |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, record in records.items():
        most = math.log(record.params["nodes"] - 1)
        for row in record.result["rows"]:
            if row["route"] not in {"paper", "recommended", "onion 10", "several"} or _is_drawn(name, row):
                continue
            sealed = row.get("recipients")
            cost = "–" if sealed is None else readable_bytes(row["hops"] * Sealing().message_bytes(sealed))
            mark = "≤ " if row["node_entropy_kind"] == "upper bound" else ""
            nats, ahead = row["node_entropy_nats"], _share(row["predecessor"])
            lines.append(
                f"| {name} | {_name(row)} | {row['hops']:.1f} | {cost} | {mark}{nats:.3f} | {mark}{nats / most:.1%} | "
                f"{_share(row.get('read'))} | {row['times_floor']:.2f} | {ahead} |"
            )
    return lines


def _is_drawn(name: str, row: Mapping[str, Any]) -> bool:
    """Return whether the row stands in the graph's own table already."""
    return name == DRAWN and row["route"] == "several"


def _name(row: Mapping[str, Any]) -> str:
    if "law" not in row:
        return str(row["route"])
    what = f"K = {row['recipients']}, {row['law']}, {row['walk']}"
    return what if row["route"] == "several" else f"**{row['route']}**: {what}"


def _named(row: Mapping[str, Any]) -> str:
    """Return what the strongest coalition names, with its interval."""
    return share_between(row["coalition"], *row["coalition_interval"]) if "coalition" in row else "–"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def main() -> None:
    """Measure what is missing, and write the page and the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="little, on small graphs")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    add_engine(parser, ROOT / "out" / "routes")
    asked = parser.parse_args()
    graphs = SMALL if asked.small else GRAPHS
    specs = {name: spec for name, spec in graphs.items() if name != "ego-Facebook" or FACEBOOK.exists()}
    with engine(asked.engine, asked.work) as run:
        found = run(measured, [job_of(name, spec) for name, spec in specs.items()], what={"kind": "routes"})
    records = {name: Record(kind="routes", seed=1, **one) for name, one in zip(specs, found, strict=True)}
    write_page(asked.docs / "measured" / "routes.md", page(records))
    routes_figure(records[next(iter(specs))], asked.docs / "images" / "sealed-for-several.png")


if __name__ == "__main__":
    main()
