"""The full audit of the paper's network: every law, every observer, and the curve over colluders.

Run ``make audit-campaign``; about ten minutes on two cores. It writes the table ``docs/reference/audit.md`` and
the figures ``docs/images/audit-*.png``. ``--updates`` shrinks it to a smoke run, ``--docs`` writes elsewhere.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veilwalk.audit import AuditSettings, audit, collusion
from veilwalk.core.records import Record
from veilwalk.core.support import DistanceSupport
from veilwalk.core.version import __version__
from veilwalk.design import choose_scheme, closed_form
from veilwalk.graphs import parse_graph_spec
from veilwalk.report import audit_figures, collusion_figures

GRAPH = "rrg:300:3:seed=1"
SUPPORT = DistanceSupport(2, 6)
LAWS = ("plain", "uniform-distance", "uniform-node", "paper", "paper-printed")
COUNTS = (1, 3, 15, 30, 60, 90)
FIGURES = ("entropy-by-return-time", "posterior-by-distance", "colluders")


def main() -> None:
    """Run the campaign and write its page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--updates", type=int, default=500_000)
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[2] / "docs")
    options = parser.parse_args()
    graph = parse_graph_spec(GRAPH)
    settings = AuditSettings(updates=options.updates)
    records: dict[str, Record] = {}
    for name in LAWS:
        print(f"auditing {name}", flush=True)
        floor = closed_form(graph, SUPPORT).anonymity_floor_nats if name == "paper" else None
        scheme = choose_scheme(graph, name, support=SUPPORT)
        records[name] = audit(scheme, settings, floor=floor).record()
    print("auditing coalitions", flush=True)
    curve = collusion(choose_scheme(graph, "paper", support=SUPPORT), settings, COUNTS)
    write_page(options.docs / "reference" / "audit.md", records, curve)
    with tempfile.TemporaryDirectory() as folder:
        audit_figures(records["paper"], Path(folder))
        collusion_figures(curve, Path(folder))
        for figure in FIGURES:
            (options.docs / "images").mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(folder) / f"{figure}.png", options.docs / "images" / f"audit-{figure}.png")


def write_page(path: Path, records: dict[str, Record], curve: Record) -> None:
    """Write the tables of the campaign as Markdown."""
    paper = records["paper"]
    parts = [_head(paper), _by_law(records), _short_returns(paper), _linked(paper), _colluders(curve)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts))


def _head(paper: Record) -> str:
    return f"""# Audit of the paper's network

Written by `make audit-campaign` with veilwalk {__version__}: {GRAPH}, support {SUPPORT}, simple walk,
{paper.result["updates"]} updates a law, seed {paper.seed}, {paper.params["colluders"]} colluders. Means with 95%
confidence intervals from 64 independent lanes. Entropies are of the observer's posterior; a blind guess names the
likeliest source of the prior. Posteriors are exact (up to a return time of {paper.params["horizon"]} hops; longer ones,
about 2%, are told apart only as such), except the window's, which is the paper's notion.
The strongest observers (`coalition`, `neighbour`, `memory`) are scored on fewer updates:
[what really leaks](../explanation/what-really-leaks.md) has their figures.
"""


def _by_law(records: dict[str, Record]) -> str:
    rows = []
    for name, record in records.items():
        for observer in ("prior", "window", "return-time", "last-hop"):
            # Of a plain walk there is no more to see than the last hop.
            if observer not in record.result["observers"]:
                continue
            row = record.result["observers"][observer]["overall"]
            entropy = f"{_pm(row, 'node_entropy_nats', 3)} ({row['node_entropy_bits']:.2f})"
            scores = (entropy, _pm(row, "distance_entropy_nats", 3), _pm(row, "hit_ratio", 4))
            rows.append((name, f"{record.result['hops_per_update']:.1f}", observer, *scores, _plain(row)))
    head = ("law", "hops per update", "observer", "node entropy, nats (bits)", "distance entropy, nats")
    return _table("What a destination learns, by law", (*head, "hit ratio", "blind"), rows)


def _short_returns(paper: Record) -> str:
    rows = []
    for observer in ("window", "return-time", "last-hop"):
        for row in paper.result["observers"][observer]["by_return_time"][:4]:
            times, share = f"{row['lo']} to {row['hi']}", f"{row['share']:.1%}"
            scores = (_pm(row, "node_entropy_nats", 3), _pm(row, "distance_entropy_nats", 3), _pm(row, "hit_ratio", 4))
            rows.append((observer, times, share, *scores))
    head = ("observer", "return times", "share", "node entropy, nats", "distance entropy, nats", "hit ratio")
    table = _table("The shortest return times, law `paper`", head, rows)
    worst = paper.result["observers"]["last-hop"]["worst_destination"]
    if worst is None:
        return table
    return (
        f"{table}\nWorst destination for the last-hop observer: node {worst['destination']}, node entropy "
        f"{_pm(worst, 'node_entropy_nats', 3)} nats, hit ratio {_pm(worst, 'hit_ratio', 4)}.\nIt is the worst of 300, "
        "so its interval is optimistic.\n"
    )


def _linked(paper: Record) -> str:
    rows = [
        (str(row["linked"]), _pm(row, "node_entropy_nats", 3), _pm(row, "hit_ratio", 4))
        for row in paper.result["observers"]["repeated"]["by_linked_updates"]
    ]
    head = ("updates linked", "node entropy, nats", "hit ratio")
    return _table("Several updates known to have one source, law `paper`", head, rows)


def _colluders(curve: Record) -> str:
    names = ("first-sight", "bridge", "predecessor")
    rows = [
        (str(row["colluders"]), *(_pm(row[n], "hit_ratio", 4) if n in row else "-" for n in names), _plain(row))
        for row in curve.result["rows"]
    ]
    head = ("colluders", "first sight", "bridge", "first sight + a colluder sealed before", "blind")
    return _table("Colluders, law `paper`: share of sources named", head, rows)


def _table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]
    return f"## {title}\n\n" + "\n".join(lines) + "\n"


def _plain(row: dict[str, Any]) -> str:
    return f"{row['blind_hit_ratio']:.4f}"


def _pm(row: dict[str, Any], score: str, digits: int) -> str:
    low, high = row[f"{score}_interval"]
    return f"{row[score]:.{digits}f} ± {(high - low) / 2:.{digits}f}"


if __name__ == "__main__":
    main()
