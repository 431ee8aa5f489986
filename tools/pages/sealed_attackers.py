"""The strongest attackers of messages sealed for several, and what a coalition loses without shared keys or its draws.

Run ``make sealed-attackers``; a quarter of an hour on two cores. It writes ``docs/measured/sealed-attackers.md``. Each
part is a job, kept in ``--work`` as soon as it is there; ``--engine`` does them elsewhere, ``--small`` measures little,
on a small graph: a smoke test.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.pages.attackers import LARGE, SMALL, facts, scored_rows, table
from tools.pages.campaign import add_engine, engine
from tools.pages.markdown import share_between
from tools.pages.rows import write_page
from veilwalk.audit import Coalition, audit
from veilwalk.core.records import plain
from veilwalk.core.version import __version__
from veilwalk.design import Scheme, choose_scheme
from veilwalk.graphs import parse_graph_spec

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Size:
    """What is audited, and how much of the answers below is asked for."""

    graph: str = LARGE[0]
    law: str = "far:4"
    colluders: int = LARGE[2]
    updates: int = LARGE[3]
    share: float = 1.0


LITTLE = Size(graph=SMALL[0], law="far:3", colluders=SMALL[2], updates=6_000, share=0.1)
# Recipients, walk, and about how many answers of the coalition; the first is the recommended scheme.
SCHEMES = (
    (16, "non-backtracking", 1_000),
    (8, "non-backtracking", 600),
    (32, "non-backtracking", 600),
    (16, "simple", 600),
    (1, "non-backtracking", 200),
)
# Of the recommended scheme, all that follow the token; of the others the strongest.
OBSERVERS = (
    ("coalition", "random", 1_000),
    ("coalition", "spread", 1_000),
    ("linked-coalition", "random", 992),
    ("linked-coalition", "spread", 992),
    ("neighbour", "random", 200),
    ("memory", "random", 200),
)
HEAD = """# The strongest attackers of messages sealed for several

Written by `make sealed-attackers`, veilwalk {version}: {graph}, law `{law}`, {colluders}
colluders at random or spread out as far as can be, {updates} updates played, seed 7. Sealed for several, posteriors are
estimated by sampled paths, and calibrated: the mean top posterior must lie in the interval of the hits, but for one in
twenty. `coalition` shares keys and answers for all honest updates between two openings by a member;
`linked-coalition` joins groups of updates that it opens, or reads. `neighbour`: first sights of a relay; `memory`: what
a destination opens. `sealed-attackers.json` beside this page has more rows.
[What really leaks](../explanation/what-really-leaks.md) says what the figures mean.
"""


# What members share and remember.
COALITIONS = {
    "sharing keys": {},
    "each with its own key": {"shares_keys": False},
    "and without its own draws": {"shares_keys": False, "own_draws": False},
}


def scheme_of(job: Mapping[str, Any]) -> Scheme:
    """Return the scheme of a job."""
    return choose_scheme(parse_graph_spec(job["graph"]), job["law"], walk=job["walk"], recipients=job["recipients"])


def jobs(size: Size) -> list[dict[str, Any]]:
    """Return what is measured: rows of observers, and the two coalitions held against each other."""
    base = {"graph": size.graph, "law": size.law, "updates": size.updates, "colluders": size.colluders}
    found = []
    for recipients, walk, scored in SCHEMES:
        main = (recipients, walk, scored) == SCHEMES[0]
        for observer, placement, answers in OBSERVERS if main else (("coalition", "random", scored),):
            asked = {"observers": observer, "placement": placement, "scored_by_filter": int(size.share * answers)}
            found.append(base | {"recipients": recipients, "walk": walk} | asked)
    recipients, walk, scored = SCHEMES[0]
    both = base | {"recipients": recipients, "walk": walk, "scored_by_filter": int(size.share * scored)}
    return found + [both | {"held by": name} for name in COALITIONS]


def measured(job: Mapping[str, Any]) -> dict[str, Any]:
    """Do one job."""
    held_by = job.get("held by")
    return dict(plain(audited(job) if held_by is None else score_coalition(job, held_by)))


def audited(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows of one observer."""
    keys = ("updates", "colluders", "observers", "placement", "scored_by_filter")
    found = audit(scheme_of(job), **{key: job[key] for key in keys})
    return {"rows": scored_rows(found, {key: job[key] for key in ("walk", "placement", "recipients")})}


def score_coalition(job: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return how often a coalition names makers: of all updates by others, and by what it sees of them."""
    keys = ("updates", "colluders", "scored_by_filter")
    found = audit(scheme_of(job), observers=[Coalition(**COALITIONS[name])], **{key: job[key] for key in keys})
    report = found["coalition"].report
    return {"parts": [report["overall"] | {"of": "all honest updates"}, *report["by_knowledge"], *report["by_maker"]]}


def page(size: Size, rows: Sequence[Mapping[str, Any]], parts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page."""
    names = ("graph", "law", "colluders", "updates")
    lines = [HEAD.format(version=__version__, **{name: getattr(size, name) for name in names})]
    recipients, walk, _ = SCHEMES[0]
    first = [row for row in rows if (row["recipients"], row["walk"]) == (recipients, walk)]
    others = [{**row, "walk": f"K = {row['recipients']}, {row['walk']}"} for row in rows if row not in first]
    lines += [f"## K = {recipients}, {walk}", "", *table(first), "", *facts(first), ""]
    lines += ["## Other recipients and walks", "", *table(others), "", *facts(others), ""]
    lines += ["## Of all honest updates, K = 16, non-backtracking", ""]
    lines += [
        "| coalition | updates | share of all | named | mean top posterior | scored |",
        "|---|---|---:|---|---:|---:|",
    ]
    for name, part in parts.items():
        for row in part["parts"]:
            cells = (name, str(row.get("makers", row["of"])), f"{row['share']:.0%}")
            named = share_between(row["hit_ratio"], *row["hit_ratio_interval"])
            scores = (named, f"{row['top_posterior']:.1%}", str(row["updates"]))
            lines += [f"| {' | '.join((*cells, *scores))} |"]
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure what is not there yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--small", action="store_true", help="little, on a small graph")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    add_engine(parser, ROOT / "out" / "sealed-attackers")
    options = parser.parse_args()
    size = LITTLE if options.small else Size()
    with engine(options.engine, options.work) as run:
        found = run(measured, jobs(size), what={"kind": "sealed-attackers"}, stage="attackers")
    rows = [row for part in found[: -len(COALITIONS)] for row in part["rows"]]
    parts = dict(zip(COALITIONS, found[-len(COALITIONS) :], strict=True))
    write_page(options.docs / "measured" / "sealed-attackers.md", page(size, rows, parts))


if __name__ == "__main__":
    main()
