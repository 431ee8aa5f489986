"""What each way to read return times loses against exact posteriors: the same run, the same updates, four readings.

Run ``python -m benchmarks.tables.inference_loss`` from the checkout; a few minutes. It prints a table in Markdown: the
share of sources that the last-hop observer names, by graph and inference, and what is lost against exact. By-class
learns on half of the lanes and is scored on the others, so its row has an interval of its own.
"""

from __future__ import annotations

import argparse

import numpy as np

from veilwalk.audit import audit
from veilwalk.design import choose_scheme
from veilwalk.graphs import Graph, parse_graph_spec

INFERENCES = ("exact", "estimated", "rehearsed", "by-class")
GRAPHS = ("rrg:60:3:seed=1", "ba:60:2:seed=1", "ws:60:4:0.1:seed=1", "tree:40", "torus:6:6")


def graph_of(name: str) -> Graph:
    """Return a named graph; the tree hangs each node on one that was there before."""
    if not name.startswith("tree:"):
        return parse_graph_spec(name)
    generator = np.random.default_rng(1)
    return Graph.from_edges(40, np.array([(int(generator.integers(node)), node) for node in range(1, 40)]))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--updates", type=int, default=400_000)
    parser.add_argument("--law", default="uniform-node")
    options = parser.parse_args()
    print(f"| graph | {' | '.join(INFERENCES)} |\n| --- {'| --- ' * len(INFERENCES)}|")
    for name in GRAPHS:
        scheme = choose_scheme(graph_of(name), options.law, support=(2, 5))
        cells: list[str] = []
        exact = 0.0
        for posterior in INFERENCES:
            found = audit(scheme, updates=options.updates, observers="last-hop", posterior=posterior)["last-hop"]
            exact = exact or found.hit_ratio
            low, high = found.interval
            margin = (high - low) / 2
            lost = "" if posterior == "exact" else f" ({found.hit_ratio / exact - 1:+.1%})"
            cells.append(f"{found.hit_ratio:.4f} ± {margin:.4f}{lost}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
