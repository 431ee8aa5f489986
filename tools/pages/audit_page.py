"""The tables of :mod:`tools.pages.audit_campaign` as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tools.pages.attackers import LARGE, SMALL, facts, table
from tools.pages.campaign import sections_of
from tools.pages.markdown import markdown_table, plus_minus
from veilwalk.core.records import Record
from veilwalk.core.version import __version__

_HEAD = """# Audit of the paper's network

Written by `make audit-campaign`; each section says which version it was run with, and `audit.json` beside this page has
more rows. RRG(300, 3) is rrg:300:3:seed=1, support 2:6. Means with 95% confidence intervals from 64 independent lanes,
seed 7. Entropies are of the observer's posterior; a blind guess names the likeliest source of the prior. Posteriors are
exact, except the window's, which is the paper's notion. [What really leaks](../explanation/what-really-leaks.md) says
what the figures mean.
"""
_TITLES = {
    LARGE[0]: "The strongest attackers, RRG(300, 3)",
    SMALL[0]: "The strongest attackers, RRG(60, 3)",
    "colluders": "Colluders, law `paper`: share of sources named",
    "laws": "What a destination learns, by law",
    "short": "The shortest return times, law `paper`",
    "linked": "Several updates known to have one source, law `paper`",
}
_RUN = f"Run of veilwalk {__version__}"


def page(
    laws: Mapping[str, Record],
    curve: Record | None,
    attackers: Mapping[str, Sequence[Mapping[str, Any]]],
    before: str = "",
) -> str:
    """Return the page; sections that there is nothing of are taken from the page as it was before."""
    written = {_TITLES[spec]: _attackers(spec, rows) for spec, rows in attackers.items()}
    if curve:
        written[_TITLES["colluders"]] = _colluders(curve)
    if laws:
        paper = laws["paper"]
        written |= {_TITLES["laws"]: _by_law(laws), _TITLES["short"]: _short_returns(paper)}
        written[_TITLES["linked"]] = _linked(paper)
    sections = sections_of(before) | written
    lines = [_HEAD]
    for title in _TITLES.values():
        if title in sections:
            lines += [f"## {title}", "", *sections[title], ""]
    return "\n".join(lines)


def _attackers(spec: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    _, support, colluders, updates = LARGE if spec == LARGE[0] else SMALL
    if spec != LARGE[0]:
        about = (
            f"{_RUN}: support {support[0]}:{support[1]}, {colluders} colluders, {updates} updates played; for the rest "
            "as above."
        )
        return [about, "", *table(rows), "", *facts(rows)]
    about = (
        f"{_RUN}: law `paper`, support {support[0]}:{support[1]}, {colluders} colluders at random or spread out as far "
        f"as\ncan be, {updates} updates played, seed 7. Scored are updates that a colluder opens (`neighbour`: first\n"
        "sights of a relay), as many as the last column says; of linked ones so many groups. An exact posterior is\n"
        "calibrated: its mean top must lie in the interval. `memory` and `linked-neighbour` take hours with 300\n"
        "nodes, and are measured with 60 only."
    )
    return [about, "", *table(rows), "", *facts(rows)]


def _run(record: Record) -> str:
    params, updates = record.params, record.result["updates"]
    return (
        f"{_RUN}: {params['graph']}, support {params['support']}, simple walk, {updates} updates a law.\n"
        f"Return times are told apart up to {params['horizon']} hops; longer ones, about 2%, only as such."
    )


def _by_law(records: Mapping[str, Record]) -> list[str]:
    rows = []
    for name, record in records.items():
        for observer in ("prior", "window", "return-time", "last-hop"):
            # Of a plain walk there is no more to see than the last hop.
            if observer not in record.result["observers"]:
                continue
            row = record.result["observers"][observer]["overall"]
            entropy = plus_minus(row, "node_entropy_nats", 3)
            rows.append(
                (
                    name,
                    f"{record.result['hops_per_update']:.1f}",
                    observer,
                    entropy,
                    plus_minus(row, "hit_ratio", 4),
                    _plain(row),
                )
            )
    head = ("law", "hops per update", "observer", "node entropy, nats")
    return [_run(records["paper"]), "", *markdown_table((*head, "hit ratio", "blind"), rows)]


def _short_returns(paper: Record) -> list[str]:
    rows = []
    for observer in ("window", "return-time", "last-hop"):
        for row in paper.result["observers"][observer]["by_return_time"][:4]:
            times, share = f"{row['lo']} to {row['hi']}", f"{row['share']:.1%}"
            scores = (plus_minus(row, "node_entropy_nats", 3), plus_minus(row, "hit_ratio", 4))
            rows.append((observer, times, share, *scores))
    head = ("observer", "return times", "share", "node entropy, nats", "hit ratio")
    lines = ["The same runs.", "", *markdown_table(head, rows)]
    worst = paper.result["observers"]["last-hop"]["worst_destination"]
    if worst is None:
        return lines
    learnt = (
        f"node entropy {plus_minus(worst, 'node_entropy_nats', 3)} nats, hit ratio {plus_minus(worst, 'hit_ratio', 4)}"
    )
    return [
        *lines,
        "",
        f"Worst destination for the last-hop observer: node {worst['destination']}, {learnt}.",
        "It is the worst of 300, so its interval is optimistic.",
    ]


def _linked(paper: Record) -> list[str]:
    rows = [
        (str(row["linked"]), plus_minus(row, "node_entropy_nats", 3), plus_minus(row, "hit_ratio", 4))
        for row in paper.result["observers"]["repeated"]["by_linked_updates"]
    ]
    head = ("updates linked", "node entropy, nats", "hit ratio")
    return ["The same runs.", "", *markdown_table(head, rows)]


def _colluders(curve: Record) -> list[str]:
    names = ("first-sight", "coalition")
    rows = [
        (
            str(row["colluders"]),
            *(plus_minus(row[n], "hit_ratio", 4) if n in row else "not run" for n in names),
            _plain(row),
        )
        for row in curve.result["rows"]
    ]
    head = ("colluders", "first sight", "everything", "blind")
    about = (
        f"{_RUN}: {curve.params['graph']}, simple walk, colluders at random. Everything they saw is followed from 30 "
        "colluders on,\nand scored on 400 updates each."
    )
    return [about, "", *markdown_table(head, rows)]


def _plain(row: dict[str, Any]) -> str:
    return f"{row['blind_hit_ratio']:.4f}"
