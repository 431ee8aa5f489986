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

from veilwalk import __version__
from veilwalk.audit import scheme_law
from veilwalk.core.records import Record, plain
from veilwalk.core.support import DistanceSupport
from veilwalk.experiments import compare_walks
from veilwalk.experiments._walks import price_walks
from veilwalk.graphs import Graph, balls, parse_graph_spec
from veilwalk.report import walk_files
from veilwalk.report._walks import walk_label
from veilwalk.walks import WalkKind

ROOT = Path(__file__).parents[1]
FACEBOOK = ROOT.parent / "shared" / "data" / "graphs" / "facebook_combined.txt.gz"
GRAPH, SUPPORT = "rrg:300:3:seed=1", DistanceSupport(2, 6)
Walks = tuple[tuple[WalkKind, float], ...]
WALKS: Walks = (
    ("simple", 0.0),
    ("non-backtracking", 0.0),
    ("least-recent", 0.2),
    ("least-recent", 0.1),
    ("least-recent", 0.0),
)
MIXES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
FEW: Walks = (("simple", 0.0), ("non-backtracking", 0.0), ("least-recent", 0.1))
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

Rows = list[dict[str, Any]]


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
        remembering = [("least-recent", mix)]
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
    walks: Sequence[tuple[WalkKind, float]],
    updates: int,
    observers: Sequence[str],
    posterior: str = "rehearsed",
) -> Rows:
    """The rows of one comparison; a tenth of the nodes collude."""
    graph = parse_graph_spec(spec)
    chosen = scheme_law(law, graph, DistanceSupport.parse(support))
    colluders = graph.n_nodes // 10
    record = compare_walks(
        graph,
        chosen,
        walks,
        updates=updates,
        seed=7,
        names=(spec, law),
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
    walks = (*FEW, ("least-recent", 0.0))
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
    (docs / "reference" / "walks.md").write_text(page(rows, by_part))
    with tempfile.TemporaryDirectory() as folder:
        walk_files(record, Path(folder), prices=prices)
        shutil.copy(Path(folder) / "walks.png", docs / "images" / "walks.png")


def page(rows: Rows, parts: dict[str, list[Any]]) -> str:
    """Return the tables as Markdown."""
    updates = round(rows[0]["hops"] / rows[0]["hops_per_update"])
    lines = [
        "# Walks side by side",
        "",
        f"Written by `make walk-comparison` with veilwalk {__version__}, seed 7. What the words mean and what follows",
        "is in [better walks](../explanation/better-walks.md). 95% intervals are from the spread of independent lanes.",
        "",
        f"## The paper's network: {GRAPH}, support {SUPPORT}, law `paper`, {updates} updates a walk",
        "",
        "Posteriors are rehearsed for all walks alike. Sources named at the first guess, in percent; 30 colluders.",
        "",
        "| walk | hops per update | relative | hops walked | last-hop | path | first-sight | bridge | predecessor |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = row["hops_per_update_interval"]
        named = " | ".join(
            percent(row["observers"][name]["overall"])
            for name in ("last-hop", "path", "first-sight", "bridge", "predecessor")
        )
        cost = f"{row['hops_per_update']:.1f} ± {(high - low) / 2:.1f} | {row['relative_hops']:.3f} | {row['hops']:.1e}"
        lines.append(f"| {walk_label(row)} | {cost} | {named} |")
    for observer in ("return-time", "last-hop", "path"):
        lines += by_quantile(f"### Node entropy in nats, {observer} observer", rows, observer, "node_entropy_nats", 4)
    lines += [
        "",
        "Lost is how far the posterior's node entropy is below the prior's at the same destinations; below zero, the",
    ]
    lines += ["law's unevenness is undone by what is seen. Intervals are below 0.0001 but for the first two rows."]
    for observer in ("return-time", "last-hop"):
        title = f"### Node entropy lost to the {observer} observer, in nats"
        lines += by_quantile(title, rows, observer, "node_entropy_lost_nats", 4)
    exact = [row for part in parts["exact"] for row in part]
    lines += ["", "## The same with exact posteriors, where there is a chain"]
    for observer in ("return-time", "last-hop"):
        title = f"### Node entropy lost to the {observer} observer, in nats, exact"
        lines += by_quantile(title, exact, observer, "node_entropy_lost_nats", 4)
    lines += memory_table([row for part in parts["rounds"] for row in part])
    lines += graph_table(parts["graphs"])
    lines += price_table(parts["prices"])
    return "\n".join(lines) + "\n"


def by_quantile(title: str, rows: Rows, observer: str, score: str, digits: int) -> list[str]:
    """One score by return time, walks side by side."""
    names = [walk_label(row) for row in rows]
    lines = ["", title, "", f"| deliveries | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for index, line in enumerate(rows[0]["observers"][observer]["by_return_time"]):
        cells = [cell(row["observers"][observer]["by_return_time"][index], score, digits) for row in rows]
        lines.append(f"| {'shortest' if index == 0 else 'next'} {line['share']:.0%} | {' | '.join(cells)} |")
    overall = " | ".join(cell(row["observers"][observer]["overall"], score, digits) for row in rows)
    return [*lines, f"| all | {overall} |"]


def memory_table(rows: Rows) -> list[str]:
    """What the memory of the nodes tells, by mix."""
    lines = [
        "",
        "## What the nodes' memory tells: least-recent, by mix",
        "",
        "`round` knows every hop until it last sent the token on, and so what every node remembers; `path` knows every",
        "hop. With mix 1 the walk is the non-backtracking one, and memory tells nothing. Node entropy in nats, sources",
        "named in percent.",
        "",
        "| mix | hops per update | last-hop | round | round, shortest 10% | path | named: round | named: path |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        seen = row["observers"]
        short = seen["round"]["by_return_time"][:3]
        weight = sum(line["share"] for line in short)
        shortest = sum(line["share"] * line["node_entropy_nats"] for line in short) / weight
        cells = [
            f"{row['mix']:g}",
            f"{row['hops_per_update']:.1f}",
            cell(seen["last-hop"]["overall"], "node_entropy_nats", 3),
            cell(seen["round"]["overall"], "node_entropy_nats", 3),
            f"{shortest:.2f}",
            cell(seen["path"]["overall"], "node_entropy_nats", 3),
            percent(seen["round"]["overall"]),
            percent(seen["path"]["overall"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def graph_table(parts: list[Any]) -> list[str]:
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
    for (name, _, support), rows in zip(AUDITED, parts, strict=True):
        for row in rows:
            seen = row["observers"]
            cells = [
                f"{name}, {support}",
                walk_label(row),
                f"{row['relative_hops']:.3f}",
                cell(seen["last-hop"]["overall"], "node_entropy_nats", 3),
                cell(seen["last-hop"]["by_return_time"][0], "node_entropy_nats", 2),
                cell(seen["path"]["overall"], "node_entropy_nats", 2),
                percent(seen["first-sight"]["overall"]),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def price_table(rows: Rows) -> list[str]:
    """Hops per update on all graphs."""
    names = [walk_label(one) for one in rows[0]["walks"]]
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
        cells = []
        for one in row["walks"]:
            low, high = one["hops_per_update_interval"]
            cells.append(f"{one['hops_per_update']:.0f} ± {(high - low) / 2:.0f} ({one['relative_hops']:.2f})")
        lines.append(f"| {row['name']} | {row['support']} | {' | '.join(cells)} |")
    return lines


def cell(row: dict[str, Any], score: str, digits: int) -> str:
    """A mean with half its interval."""
    low, high = row[f"{score}_interval"]
    return f"{row[score]:.{digits}f} ± {(high - low) / 2:.{digits}f}"


def percent(row: dict[str, Any]) -> str:
    """A hit ratio in percent with half its interval."""
    low, high = row["hit_ratio_interval"]
    return f"{100 * row['hit_ratio']:.1f} ± {50 * (high - low):.1f}"


if __name__ == "__main__":
    main()
