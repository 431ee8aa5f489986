"""The full audit of the paper's network: every law, every observer, the curve over colluders, the strongest attackers.

Run ``make audit-campaign``; about half an hour on two cores that have nothing else to do. It writes the table
``docs/measured/audit.md`` and the figures ``docs/images/audit-*.png``. Every part is a job, kept under ``--work``; run
it again to go on where it stopped, with ``--engine`` on several cores or machines. ``--only attackers`` renews those
sections and leaves the others as they were written. ``--updates`` shrinks the laws and the curve to a smoke run,
``--docs`` writes elsewhere.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.pages.attackers import LARGE, WORK, cases, measure
from tools.pages.audit_page import page
from tools.pages.campaign import add_engine, engine
from tools.pages.rows import write_page
from veilwalk.audit import AuditSettings, audit, audit_collusion
from veilwalk.core.records import Record, plain
from veilwalk.core.support import DistanceSupport
from veilwalk.design import choose_scheme, closed_form
from veilwalk.graphs import parse_graph_spec
from veilwalk.report import audit_figures, collusion_figures

GRAPH, SUPPORT = LARGE[0], str(DistanceSupport(*LARGE[1]))
LAWS = ("plain", "uniform-distance", "uniform-node", "paper", "paper-printed")
COUNTS = (1, 3, 15, 30, 60, 90)
# Who can be scored on every update: the others are the attackers.
OBSERVERS = "prior,window,return-time,last-hop,repeated"
# From so many colluders on those who use everything are asked too, about so many updates.
_ENOUGH, _SCORED = 30, 400
PARTS = ("attackers", "colluders", "laws")


def law_jobs(updates: int) -> list[dict[str, Any]]:
    """Return one audit for each law; of a plain walk there is no more to see than the last hop."""
    base = {"graph": GRAPH, "support": SUPPORT, "updates": updates}
    return [base | {"law": law, "observers": "prior,last-hop" if law == "plain" else OBSERVERS} for law in LAWS]


def curve_jobs(updates: int) -> list[dict[str, Any]]:
    """Return one audit for each number of colluders."""
    base = {"graph": GRAPH, "support": SUPPORT, "updates": updates, "law": "paper"}
    return [base | {"colluders": count, "scored": _SCORED if count >= _ENOUGH else 0} for count in COUNTS]


def audited(job: Mapping[str, Any]) -> dict[str, Any]:
    """Audit one law, or the coalitions of one size."""
    graph, support = parse_graph_spec(job["graph"]), DistanceSupport.parse(job["support"])
    scheme = choose_scheme(graph, job["law"], support=support)
    if "colluders" in job:
        settings = AuditSettings(updates=job["updates"], scored_by_filter=job["scored"])
        found = audit_collusion(scheme, settings, (job["colluders"],))
    else:
        floor = closed_form(graph, support).anonymity_floor_nats if job["law"] == "paper" else None
        settings = AuditSettings(updates=job["updates"])
        found = audit(scheme, settings, floor=floor, observers=job["observers"]).record()
    return dict(plain({"kind": found.kind, "params": found.params, "result": found.result, "seed": found.seed}))


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
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="sections to renew")
    add_engine(parser, WORK)
    options = parser.parse_args()
    laws = law_jobs(options.updates) if "laws" in options.only else []
    curve = curve_jobs(options.updates) if "colluders" in options.only else []
    with engine(options.engine, options.work) as run:
        attackers = measure(run, cases(full=True) if "attackers" in options.only else {})
        found = run(audited, curve + laws, what={"kind": "audit-campaign"}, stage="laws and colluders")
    rows = [row for part in found[: len(curve)] for row in part["result"]["rows"]]
    joined = Record(**found[len(curve) - 1] | {"result": {"rows": rows}}) if curve else None
    by_law = {job["law"]: Record(**part) for job, part in zip(laws, found[len(curve) :], strict=True)}
    path = options.docs / "measured" / "audit.md"
    before = path.read_text() if path.exists() else ""
    write_page(path, page(by_law, joined, attackers, before))
    drawn(by_law, joined, options.docs / "images")


if __name__ == "__main__":
    main()
