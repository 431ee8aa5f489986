"""Walks side by side: hops per update, what each leaves hidden, on the paper's network and on others.

Run ``make walk-comparison``; about a quarter of an hour on two cores. It writes ``docs/measured/walks.md`` and
``docs/images/walks.png``. Every row of the page is a job, kept in ``--work`` and not played again; name parts to play
only those. ``--engine`` plays them elsewhere, ``--small`` plays little on small graphs, a smoke test, ``--docs`` writes
elsewhere. The Facebook graph is taken where it lies beside the checkout.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from tools.pages.campaign import add_engine, engine
from tools.pages.rows import write_page
from tools.pages.walk_page import Rows, page
from tools.rivals.walks import compare_walks, price_walks
from tools.rivals.walks_figure import walk_files
from veilwalk.core.records import Record, plain
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design import choose_scheme
from veilwalk.graphs import Graph, balls, parse_graph_spec

ROOT = Path(__file__).parents[2]
FACEBOOK = ROOT.parent / "shared" / "data" / "graphs" / "facebook_combined.txt.gz"
GRAPH, SUPPORT = "rrg:300:3:seed=1", "2:6"
STRAIGHT = Walk("non-backtracking")
WALKS = (SIMPLE, STRAIGHT)
#: Audited too: name, spec, support.
AUDITED = (
    ("RRG(100, 3)", "rrg:100:3:seed=1", "2:5"),
    ("RRG(1000, 3)", "rrg:1000:3:seed=1", "2:6"),
    ("RRG(300, 4)", "rrg:300:4:seed=1", "2:4"),
    ("RRG(300, 8)", "rrg:300:8:seed=1", "2:3"),
    ("Erdős–Rényi(300, 6)", "er:300:6:seed=1:component=largest", "2:4"),
    ("Barabási–Albert(300, 2)", "ba:300:2:seed=1", "2:4"),
    ("Watts–Strogatz(300, 4, 0.1)", "ws:300:4:0.1:seed=1", "2:6"),
    ("torus 18 × 17", "torus:18:17", "2:6"),
)
#: Only priced: name, spec, support, hops to walk, replicas.
PRICED = (
    ("RRG(300, 3)", GRAPH, SUPPORT, 4e7, 64),
    *((*one, 4e7, 64) for one in AUDITED),
    ("RRG(1000, 4)", "rrg:1000:4:seed=1", "2:4", 4e7, 64),
    ("RRG(1000, 8)", "rrg:1000:8:seed=1", "2:3", 4e7, 64),
    ("RRG(1000, 32)", "rrg:1000:32:seed=1", "2:2", 4e7, 64),
    ("RRG(10⁴, 3)", "rrg:10000:3:seed=1", "2:6", 2e8, 64),
    ("RRG(10⁴, 4)", "rrg:10000:4:seed=1", "2:4", 2e8, 64),
    ("RRG(10⁴, 8)", "rrg:10000:8:seed=1", "2:3", 2e8, 64),
    ("RRG(10⁵, 3)", "rrg:100000:3:seed=1", "2:6", 4e8, 16),
    ("random tree, 300 nodes", "ba:300:1:seed=1", "2:4", 4e7, 64),
    ("torus 100 × 100", "torus:100:100", "2:6", 2e8, 64),
    ("ego-Facebook", f"file:{FACEBOOK}", "2:4", 2e8, 64),
)


PARTS = ("main", "exact", "graphs", "prices")
EVERYBODY = ("path", "first-sight")


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much to play, and on which graphs: those of the page unless told otherwise."""

    network: tuple[str, str] = (GRAPH, SUPPORT)
    audited: tuple[tuple[str, str, str], ...] = AUDITED
    priced: tuple[tuple[str, str, str, float, int], ...] = PRICED
    many: int = 1_000_000
    some: int = 300_000
    few: int = 60_000
    # Of a rehearsal, for each node; the audit's own where none.
    rehearsed_hops: int | None = None


_TINY = (("RRG(20, 3)", "rrg:20:3:seed=1", "2:3"), ("torus 5 × 5", "torus:5:5", "2:3"))
SMALL = Size(
    network=("rrg:20:3:seed=1", "2:3"),
    audited=_TINY,
    priced=tuple((*one, 1e4, 8) for one in _TINY),
    many=2_000,
    some=2_000,
    few=2_000,
    rehearsed_hops=2_000,
)


def main() -> None:
    """Play the parts that are missing, and write page and figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"{', '.join(PARTS)}; all when none is named")
    parser.add_argument("--small", action="store_true", help="little, on small graphs")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    add_engine(parser, ROOT / "out" / "walks")
    options = parser.parse_args()
    size = SMALL if options.small else Size()
    found: dict[str, list[Any]] = {}
    with engine(options.engine, options.work) as run:
        for part, jobs in jobs_of(size).items():
            if part in options.parts:
                found[part] = run(play, jobs, what={"kind": "walk-comparison"}, stage=part)
    if len(found) < len(PARTS):
        print("the page needs all parts")
        return
    write(options.docs, found, size)


def jobs_of(size: Size) -> dict[str, list[dict[str, Any]]]:
    """Return the jobs of every part, small enough each for a few minutes."""
    (spec, support), hops = size.network, size.rehearsed_hops
    fixed: dict[str, Any] = {} if hops is None else {"rehearsed_hops": hops}
    paper = fixed | {"graph": spec, "support": support, "law": "paper"}
    return {
        "main": [_job(paper, walk, updates=size.many, observers=EVERYBODY) for walk in WALKS],
        "exact": [_job(paper, walk, updates=size.some, observers=(), posterior="exact") for walk in WALKS],
        "graphs": [
            _job(fixed | {"graph": spec, "support": support, "law": "uniform-node"}, *WALKS, updates=2 * size.few)
            for _, spec, support in size.audited
        ],
        "prices": [
            {"name": name, "graph": spec, "support": support, "hops": int(hops), "replicas": replicas}
            for name, spec, support, hops, replicas in size.priced
            if name != "ego-Facebook" or FACEBOOK.exists()
        ],
    }


def _job(base: Mapping[str, Any], *walks: Walk, **more: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"observers": ("path", "first-sight"), "posterior": "rehearsed"}
    return dict(base) | {"walks": [str(walk) for walk in walks]} | told | more


def play(job: Mapping[str, Any]) -> Any:
    """Play one job."""
    return plain(priced(**job) if "hops" in job else compared(**job))


def compared(*, graph: str, support: str, law: str, walks: list[str], **settings: Any) -> Rows:
    """The rows of one comparison; a tenth of the nodes collude."""
    network = parse_graph_spec(graph)
    chosen = choose_scheme(network, law, support=DistanceSupport.parse(support)).law
    kinds = [Walk.parse(walk) for walk in walks]
    record = compare_walks(network, chosen, kinds, seed=7, colluders=network.n_nodes // 10, **settings)
    return list(record.result["rows"])


def priced(*, name: str, graph: str, support: str, hops: int, replicas: int) -> dict[str, Any]:
    """The hops of every walk on one graph, under the law that is uniform over the support."""
    network = parse_graph_spec(graph)
    rows = near(network, DistanceSupport.parse(support))
    found = price_walks(network, rows, WALKS, hops=hops, seed=7, replicas=replicas)
    return {"name": name, "support": support, "nodes": network.n_nodes, "walks": found}


def near(graph: Graph, support: DistanceSupport) -> sparse.csr_array:
    """Return the law that is uniform over the nodes of the support, for graphs of any size."""
    found = balls(graph, support.hi)
    kept = found.hops >= support.lo
    sources = np.repeat(np.arange(graph.n_nodes), np.diff(found.starts))[kept]
    sizes = np.bincount(sources, minlength=graph.n_nodes)
    shape = (graph.n_nodes, graph.n_nodes)
    return sparse.csr_array((1.0 / sizes[sources], (sources, found.nodes[kept])), shape=shape)


def write(docs: Path, by_part: dict[str, list[Any]], size: Size) -> None:
    """Write the page and the figure."""
    rows = [row for part in by_part["main"] for row in part]
    for row in rows:
        row["relative_hops"] = row["hops_per_update"] / rows[0]["hops_per_update"]
    spec, support = size.network
    nodes = parse_graph_spec(spec).n_nodes
    params = {"graph": spec, "law": "paper", "support": support, "nodes": nodes, "colluders": nodes // 10}
    record = Record(kind="walks", params=params, seed=7, result={"rows": rows})
    prices = Record(kind="prices", params={}, seed=7, result={"rows": by_part["prices"]})
    (docs / "measured").mkdir(parents=True, exist_ok=True)
    (docs / "images").mkdir(parents=True, exist_ok=True)
    text = page(rows, by_part, network=f"{spec}, support {support}", audited=size.audited)
    write_page(docs / "measured" / "walks.md", text)
    with tempfile.TemporaryDirectory() as folder:
        walk_files(record, Path(folder), prices=prices)
        shutil.copy(Path(folder) / "walks.png", docs / "images" / "walks.png")


if __name__ == "__main__":
    main()
