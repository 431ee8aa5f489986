"""How the chance of naming the source grows with the number of colluders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from veilwalk.audit._audit import audit
from veilwalk.audit._run import Say
from veilwalk.audit._settings import AuditSettings
from veilwalk.audit._sightings import COLLUDING
from veilwalk.core.errors import ResourceLimitError
from veilwalk.core.records import Record
from veilwalk.design import DestinationLaw
from veilwalk.graphs import Graph

# Updates to score for each number of colluders: intervals of about a percentage point.
_WANTED = 6_000
_SHOWN = ("hit_ratio", "hit_ratio_interval", "top_posterior", "node_entropy_nats", "node_entropy_bits", "updates")


def collusion(
    graph: Graph,
    law: DestinationLaw,
    settings: AuditSettings,
    counts: Sequence[int],
    *,
    names: tuple[str, str],
    say: Say = lambda _: None,
) -> Record:
    """Audit the coalitions at each number of colluders.

    The destination is one of them. A bridge whose gaps are too long for memory is left out of its row.
    """
    rows: list[dict[str, Any]] = []
    for count in counts:
        needed = _WANTED * graph.n_nodes // count
        row: dict[str, Any] = {"colluders": count}
        asked = replace(settings, observers=COLLUDING, colluders=count, updates=min(settings.updates, needed))
        say(f"{count} colluders")
        try:
            record = audit(graph, law, asked, names=names)
        except ResourceLimitError:
            record = audit(graph, law, replace(asked, observers=("first-sight", "predecessor")), names=names)
        for name, found in record.result["observers"].items():
            row[name] = {key: found["overall"][key] for key in _SHOWN}
            row["blind_hit_ratio"] = found["overall"]["blind_hit_ratio"]
        rows.append(row)
    return Record(
        kind="collusion",
        params={"graph": names[0], "law": names[1], "walk": settings.walk, "nodes": graph.n_nodes},
        seed=settings.seed,
        result={"rows": rows},
    )
