"""Walks side by side: hops per update, what each leaves hidden, on the paper's network and on others.

Run ``make walk-comparison``; about a quarter of an hour on two cores. It writes ``docs/reference/walks.md`` and
``docs/images/walks.png``. Parts are kept in ``--work`` and not played again; name parts to play only those.
``--scale`` shrinks all of it, ``--docs`` writes elsewhere. The Facebook graph is taken where it lies beside the
checkout.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.tables.walk_page import Rows, page
from veilwalk.core.records import Record, plain
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design import make_law
from veilwalk.experiments import compare_walks, price_walks
from veilwalk.graphs import Graph, balls, parse_graph_spec
from veilwalk.report import walk_files

ROOT = Path(__file__).parents[2]
FACEBOOK = ROOT.parent / "shared" / "data" / "graphs" / "facebook_combined.txt.gz"
GRAPH, SUPPORT = "rrg:300:3:seed=1", DistanceSupport(2, 6)
STRAIGHT = Walk("non-backtracking")
WALKS = (SIMPLE, STRAIGHT, *(Walk("least-recent", mix) for mix in (0.2, 0.1, 0.0)))
MIXES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
FEW = (SIMPLE, STRAIGHT, Walk("least-recent", 0.1))
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
    ("RRG(300, 3)", GRAPH, "2:6", 4e7, 64),
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


def main() -> None:
    """Play the parts that are missing, and write page and figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("parts", nargs="*", help="main, exact, rounds, graphs, prices; all when none is named")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the updates and hops to play")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--work", type=Path, default=ROOT / "out" / "walks")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    for name, play in steps(options.scale):
        path = options.work / f"{name}.json"
        if path.exists() or (options.parts and name.partition("-")[0] not in options.parts):
            continue
        print(name, flush=True)
        path.write_text(json.dumps(plain(play())))
    found = {path.stem: json.loads(path.read_text()) for path in sorted(options.work.glob("*.json"))}
    missing = [name for name, _ in steps(1.0) if name not in found]
    if missing:
        print("still to play:", ", ".join(missing))
        return
    write(options.docs, found)


def steps(scale: float) -> list[tuple[str, Callable[[], Any]]]:
    """Every step by name, small enough each for a few minutes."""
    everybody = ("path", "first-sight", "bridge", "predecessor")
    many, some, few = (max(2_000, int(scale * count)) for count in (1_000_000, 300_000, 60_000))
    paper = partial(compared, GRAPH, "2:6", "paper")
    made: list[tuple[str, Callable[[], Any]]] = []
    for number, walk in enumerate(WALKS):
        made.append((f"main-{number}", partial(paper, walks=[walk], updates=many, observers=everybody)))
    for number, walk in enumerate(WALKS[:2]):
        made.append((f"exact-{number}", partial(paper, walks=[walk], updates=some, observers=(), posterior="exact")))
    for number, mix in enumerate(MIXES):
        remembering = [Walk("least-recent", mix)]
        made.append((f"rounds-{number}", partial(paper, walks=remembering, updates=few, observers=("path", "round"))))
    for number, (_, spec, support) in enumerate(AUDITED):
        here = partial(compared, spec, support, "uniform-node", walks=FEW)
        made.append((f"graphs-{number}", partial(here, updates=2 * few, observers=("path", "first-sight"))))
    for number, one in enumerate(PRICED):
        if one[0] != "ego-Facebook" or FACEBOOK.exists():
            made.append((f"prices-{number:02d}", partial(priced, one, scale=scale)))
    return made


def compared(
    spec: str,
    support: str,
    law: str,
    *,
    walks: Sequence[Walk],
    updates: int,
    observers: Sequence[str],
    posterior: str = "rehearsed",
) -> Rows:
    """The rows of one comparison; a tenth of the nodes collude."""
    graph = parse_graph_spec(spec)
    chosen = make_law(law, graph, DistanceSupport.parse(support))
    colluders = graph.n_nodes // 10
    record = compare_walks(
        graph,
        chosen,
        walks,
        updates=updates,
        seed=7,
        observers=observers,
        colluders=colluders,
        posterior=posterior,
    )
    return list(record.result["rows"])


def priced(one: tuple[str, str, str, float, int], *, scale: float) -> dict[str, Any]:
    """The hops of every walk on one graph, under the law that is uniform over the support."""
    name, spec, support, hops, replicas = one
    graph = parse_graph_spec(spec)
    rows = near(graph, DistanceSupport.parse(support))
    walks = (*FEW, Walk("least-recent"))
    found = price_walks(graph, rows, walks, hops=int(scale * hops), seed=7, replicas=replicas)
    return {"name": name, "support": support, "nodes": graph.n_nodes, "walks": found}


def near(graph: Graph, support: DistanceSupport) -> sparse.csr_array:
    """Return the law that is uniform over the nodes of the support, for graphs of any size."""
    found = balls(graph, support.hi)
    kept = found.hops >= support.lo
    sources = np.repeat(np.arange(graph.n_nodes), np.diff(found.starts))[kept]
    sizes = np.bincount(sources, minlength=graph.n_nodes)
    shape = (graph.n_nodes, graph.n_nodes)
    return sparse.csr_array((1.0 / sizes[sources], (sources, found.nodes[kept])), shape=shape)


def write(docs: Path, found: dict[str, Any]) -> None:
    """Write the page and the figure."""
    by_part: dict[str, list[Any]] = {}
    for name, content in found.items():
        by_part.setdefault(name.partition("-")[0], []).append(content)
    rows = [row for part in by_part["main"] for row in part]
    for row in rows:
        row["relative_hops"] = row["hops_per_update"] / rows[0]["hops_per_update"]
    params = {"graph": GRAPH, "law": "paper", "support": str(SUPPORT), "nodes": 300, "colluders": 30}
    record = Record(kind="walks", params=params, seed=7, result={"rows": rows})
    prices = Record(kind="prices", params={}, seed=7, result={"rows": by_part["prices"]})
    (docs / "reference").mkdir(parents=True, exist_ok=True)
    (docs / "images").mkdir(parents=True, exist_ok=True)
    (docs / "reference" / "walks.md").write_text(
        page(rows, by_part, network=f"{GRAPH}, support {SUPPORT}", audited=AUDITED)
    )
    with tempfile.TemporaryDirectory() as folder:
        walk_files(record, Path(folder), prices=prices)
        shutil.copy(Path(folder) / "walks.png", docs / "images" / "walks.png")


if __name__ == "__main__":
    main()
