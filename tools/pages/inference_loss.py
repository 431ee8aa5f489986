"""What each way to read return times loses against exact posteriors: one run, three readings.

Run ``python -m tools.pages.inference_loss`` from the checkout; a few minutes. It prints a table in Markdown: the
share of sources that the last-hop observer names, by graph and inference, and what is lost against exact. By-class
learns on half of the lanes and is scored on some updates of the others, so it has an interval of its own. Audits are
jobs, kept in ``--work``; ``--engine`` does them elsewhere.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tools.pages.campaign import add_engine, engine
from veilwalk.audit import audit
from veilwalk.design import choose_scheme
from veilwalk.graphs import Graph, parse_graph_spec

INFERENCES = ("exact", "rehearsed", "by-class")
GRAPHS = ("rrg:60:3:seed=1", "ba:60:2:seed=1", "ws:60:4:0.1:seed=1", "tree:40", "torus:6:6")


def graph_of(name: str) -> Graph:
    """Return a named graph; the tree hangs each node on one that was there before."""
    if not name.startswith("tree:"):
        return parse_graph_spec(name)
    generator = np.random.default_rng(1)
    return Graph.from_edges(40, np.array([(int(generator.integers(node)), node) for node in range(1, 40)]))


def measured(job: Mapping[str, Any]) -> dict[str, float]:
    """Return the share of sources that one reading names, with its interval."""
    scheme = choose_scheme(graph_of(job["graph"]), job["law"], support=(2, 5))
    found = audit(scheme, updates=job["updates"], observers="last-hop", posterior=job["posterior"])["last-hop"]
    low, high = found.interval
    return {"hits": found.hit_ratio, "low": low, "high": high}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--updates", type=int, default=400_000)
    parser.add_argument("--law", default="uniform-node")
    add_engine(parser, Path("out") / "inference-loss")
    options = parser.parse_args()
    base = {"law": options.law, "updates": options.updates}
    asked = [base | {"graph": graph, "posterior": one} for graph, one in itertools.product(GRAPHS, INFERENCES)]
    with engine(options.engine, options.work) as run:
        parts = iter(run(measured, asked, what={"kind": "inference-loss"}, stage="audits"))
    print(f"| graph | {' | '.join(INFERENCES)} |\n| --- {'| --- ' * len(INFERENCES)}|")
    for name in GRAPHS:
        found = dict(zip(INFERENCES, itertools.islice(parts, len(INFERENCES)), strict=True))
        cells: list[str] = []
        for posterior, one in found.items():
            lost = "" if posterior == "exact" else f" ({one['hits'] / found['exact']['hits'] - 1:+.1%})"
            cells.append(f"{one['hits']:.4f} ± {(one['high'] - one['low']) / 2:.4f}{lost}")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
