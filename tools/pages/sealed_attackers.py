"""The strongest attackers of messages sealed for several, and what a coalition loses that forgets its own draws.

Run ``make sealed-attackers``; a quarter of an hour on two cores. It writes ``docs/reference/sealed-attackers.md``. Each
part is a job, kept in ``--work`` as soon as it is there; ``--engine`` does them elsewhere, ``--small`` measures little,
on a small graph: a smoke test.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tools.pages.attackers import LARGE, SMALL, facts, scored_rows, table
from tools.pages.campaign import add_engine, engine
from tools.pages.markdown import share_between
from veilwalk.audit import AuditSettings, audit, choose_colluders, estimate, make_plan, play
from veilwalk.audit._scene import Scene
from veilwalk.audit.observers.members import Coalition
from veilwalk.core.records import plain, write_atomically
from veilwalk.core.stats import Estimate
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
twenty. Scored are updates that a colluder opens (`neighbour`: first sights of a relay; `memory`: what a destination
opens), as many as the last column says; of linked ones so many groups.
[What really leaks](../explanation/what-really-leaks.md) says what the figures mean.
"""


class Forgetful(Coalition):
    """A coalition whose members do not remember for whom they sealed."""

    own_draws = False


COALITIONS = {"with its own draws": Coalition, "without": Forgetful}


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
    return dict(plain(audited(job) if held_by is None else held(COALITIONS[held_by], job)))


def audited(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows of one observer."""
    keys = ("updates", "colluders", "observers", "placement", "scored_by_filter")
    found = audit(scheme_of(job), **{key: job[key] for key in keys})
    return {"rows": scored_rows(found, {key: job[key] for key in ("walk", "placement", "recipients")})}


def held(kind: type[Coalition], job: Mapping[str, Any]) -> dict[str, Any]:
    """Return how often a coalition names makers: of what it opens, and of all updates by others."""
    scheme, colluders = scheme_of(job), job["colluders"]
    asked = {"updates": job["updates"], "scored_by_filter": job["scored_by_filter"]}
    settings = AuditSettings(observers="coalition", colluders=colluders, **asked)
    run = play(scheme, settings, choose_colluders(scheme.graph, colluders, settings.seed))
    scene = Scene(make_plan(scheme, settings), run)
    observer = kind(scene)
    opened, by_opening = observer.answers
    rows, weights = observer.held
    every = np.concatenate([np.arange(begin + 1, end + 1) for begin, end in observer.chosen()])
    every = every[~scene.own[every]]
    # What none of them ever held is guessed blindly.
    named = np.full(len(scene.seen), 1.0 / (scene.graph.n_nodes - colluders))
    named[rows] = weights.argmax(axis=1) == run.truth.source[rows]
    return {
        "opened": _told(estimate(named[opened], scene.lane[opened], share=True)),
        "top": float(by_opening.max(axis=1).mean()),
        "all": _told(estimate(named[every], scene.lane[every], share=True)),
        "held": len(rows) / len(every),
        "answers": len(opened),
        "others": len(every),
    }


def page(size: Size, rows: Sequence[Mapping[str, Any]], parts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page."""
    names = ("graph", "law", "colluders", "updates")
    lines = [HEAD.format(version=__version__, **{name: getattr(size, name) for name in names})]
    for recipients, walk, _ in SCHEMES:
        mine = [row for row in rows if (row["recipients"], row["walk"]) == (recipients, walk)]
        lines += [f"## K = {recipients}, {walk}", "", *table(mine), "", *facts(mine), ""]
    lines += ["## What members' own draws add, K = 16, non-backtracking", ""]
    lines += [
        "| coalition | of updates that it opens | mean top posterior | of all updates by others | of those held |"
    ]
    lines += ["|---|---|---:|---|---:|"]
    for name, part in parts.items():
        opened, every = share_between(*part["opened"]), share_between(*part["all"])
        cells = (name, f"{opened}, {part['answers']} answers", f"{part['top']:.1%}", every)
        lines += [f"| {' | '.join(cells)} | {part['held']:.0%} of {part['others']} |"]
    return "\n".join([*lines, "", "Of updates that none of them held a guess is blind.", ""])


def _told(found: Estimate) -> list[float]:
    return [found.mean, found.low, found.high]


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
    write_atomically(options.docs / "reference" / "sealed-attackers.md", page(size, rows, parts).encode())


if __name__ == "__main__":
    main()
