"""The full audit of the paper's network: every law, every observer, the curve over colluders, the strongest attackers.

Run ``make audit-campaign``; about half an hour on two cores that have nothing else to do. It writes the table
``docs/reference/audit.md`` and the figures ``docs/images/audit-*.png``. Every finished part is a file under ``--work``;
run it again to go on where it stopped. ``--only attackers`` renews those sections and leaves the others as they were
written. ``--updates`` shrinks the laws and the curve to a smoke run, ``--docs`` writes elsewhere.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.tables.attackers import LARGE, SMALL, WORK, cases, measured
from benchmarks.tables.audit_page import page
from benchmarks.tables.cells import kept, refuse_others
from veilwalk.audit import AuditSettings, audit, collusion
from veilwalk.core.records import Record, write_atomically
from veilwalk.core.support import DistanceSupport
from veilwalk.design import choose_scheme, closed_form
from veilwalk.graphs import parse_graph_spec
from veilwalk.report import audit_figures, collusion_figures

GRAPH, SUPPORT = LARGE[0], DistanceSupport(*LARGE[1])
LAWS = ("plain", "uniform-distance", "uniform-node", "paper", "paper-printed")
COUNTS = (1, 3, 15, 30, 60, 90)
# Who can be scored on every update: the others are the attackers.
OBSERVERS = "prior,window,return-time,last-hop,repeated"
# From so many colluders on those who use everything are asked too, about so many updates.
_ENOUGH, _SCORED = 30, 400
PARTS = ("attackers", "colluders", "laws")


def audited(law: str, settings: AuditSettings) -> dict[str, Any]:
    """Audit one law."""
    graph = parse_graph_spec(GRAPH)
    floor = closed_form(graph, SUPPORT).anonymity_floor_nats if law == "paper" else None
    observers = "prior,last-hop" if law == "plain" else OBSERVERS
    found = audit(choose_scheme(graph, law, support=SUPPORT), settings, floor=floor, observers=observers).record()
    return {"kind": found.kind, "params": found.params, "result": found.result, "seed": found.seed}


def colluding(count: int, settings: AuditSettings) -> dict[str, Any]:
    """Audit the coalitions of one size."""
    scheme = choose_scheme(parse_graph_spec(GRAPH), "paper", support=SUPPORT)
    found = collusion(scheme, replace(settings, scored_by_filter=_SCORED if count >= _ENOUGH else 0), (count,))
    return {"kind": found.kind, "params": found.params, "result": found.result, "seed": found.seed}


def drawn(records: dict[str, Record], curve: Record | None, images: Path) -> None:
    """Draw what there is anew."""
    images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        paths = audit_figures(records["paper"], Path(folder)) if "paper" in records else []
        paths += collusion_figures(curve, Path(folder)) if curve else []
        for path in paths:
            if path.suffix == ".png":
                shutil.copy(path, images / f"audit-{path.name}")


def main() -> None:
    """Run what is not there yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--updates", type=int, default=500_000)
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[2] / "docs")
    parser.add_argument("--work", type=Path, default=WORK, help="where finished parts are kept")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="sections to renew")
    options = parser.parse_args()
    settings = AuditSettings(updates=options.updates)
    asked = cases(full=True)
    refuse_others(options.work, asked)
    attackers: dict[str, list[dict[str, Any]]] = {}
    for key, case in asked.items() if "attackers" in options.only else ():
        found = kept(options.work, key, partial(measured, case))
        attackers.setdefault(SMALL[0] if key.startswith(SMALL[0]) else GRAPH, []).extend(found["rows"])
    rows, curve = [], None
    for count in COUNTS if "colluders" in options.only else ():
        found = kept(options.work, f"colluders-{options.updates}-{count}", partial(colluding, count, settings))
        rows += found["result"]["rows"]
        curve = Record(**found | {"result": {"rows": rows}})
    laws = {
        name: Record(**kept(options.work, f"law-{options.updates}-{name}", partial(audited, name, settings)))
        for name in (LAWS if "laws" in options.only else ())
    }
    path = options.docs / "reference" / "audit.md"
    before = path.read_text() if path.exists() else ""
    write_atomically(path, page(laws, curve, attackers, before).encode())
    drawn(laws, curve, options.docs / "images")


if __name__ == "__main__":
    main()
