"""How the chance of naming the source grows with the number of colluders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from veilwalk.audit._audit import audit
from veilwalk.audit._feasible import coalitions
from veilwalk.audit._settings import AuditSettings
from veilwalk.core.progress import Progress, silent
from veilwalk.core.records import Record
from veilwalk.design import Scheme
from veilwalk.engine import Engine, JobStore, open_engine

# Updates to score for each number of colluders: intervals of about a percentage point.
_WANTED = 6_000
_SHOWN = (
    "hit_ratio",
    "times_floor",
    "hit_ratio_interval",
    "top_posterior",
    "node_entropy_nats",
    "node_entropy_bits",
    "updates",
)


def collusion(
    scheme: Scheme,
    settings: AuditSettings,
    counts: Sequence[int],
    *,
    executor: Engine = None,
    store: JobStore | None = None,
    device: str = "cpu",
    progress: Progress = silent,
) -> Record:
    """Audit the coalitions at each number of colluders.

    The destination is one of them. A coalition may be so small that to follow the token from one of its openings to the
    next takes too long: it is then not run, and its row says so. ``executor``, ``store`` and ``device`` are those of
    :func:`audit`.

    Example:
        >>> from veilwalk.design import choose_scheme
        >>> from veilwalk.graphs import random_regular
        >>> scheme = choose_scheme(random_regular(20, 3, seed=1), "uniform-node", support=(2, 3))
        >>> few, many = collusion(scheme, AuditSettings(updates=2_000), [2, 10]).result["rows"]
        >>> few["first-sight"]["hit_ratio"] < many["first-sight"]["hit_ratio"]
        True
    """
    rows: list[dict[str, Any]] = []
    with open_engine(executor) as workers:
        for number, count in enumerate(counts):
            progress("coalitions", number, len(counts), f"{count} colluders")
            options = {"executor": workers, "store": store, "device": device}
            rows.append(_audit_coalitions(scheme, settings, count, options))
    about = {"graph": scheme.graph.name, "law": scheme.law.name}
    return Record(
        kind="collusion",
        params=about | {"walk": scheme.walk.kind, "nodes": scheme.graph.n_nodes, "recipients": scheme.recipients},
        seed=settings.seed,
        result={"rows": rows},
    )


def _audit_coalitions(scheme: Scheme, settings: AuditSettings, count: int, options: dict[str, Any]) -> dict[str, Any]:
    """Audit the coalitions of so many colluders; one that is not run has its reason under ``left_out``."""
    needed = _WANTED * scheme.graph.n_nodes // count
    names, left_out = coalitions(scheme, replace(settings, colluders=count))
    asked = replace(settings, observers=names, colluders=count, updates=min(settings.updates, needed))
    row: dict[str, Any] = {"colluders": count, "left_out": left_out}
    for name, findings in audit(scheme, asked, **options).findings.items():
        row[name] = {key: findings.overall[key] for key in _SHOWN}
        row |= {key: findings.overall[key] for key in ("blind_hit_ratio", "floor")}
    return row
