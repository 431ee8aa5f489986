"""What the stages of the campaign count in, and the cluster they hurt unless they say otherwise."""

from __future__ import annotations

from typing import Any

from tests.campaigns.chaos_checker import Findings
from veilwalk.node import Limits

Counts = dict[str, Any]
SPEC = "rrg:10:4:seed=1"
#: The same for many recipients: twenty are far enough from each node.
WIDE_SPEC = "rrg:24:3:seed=1"
IMPATIENT = Limits(pin_s=0.5, retry_s=0.1, connect_s=0.5, answer_s=0.5, ping_s=0.5)
QUICK = Limits(retry_s=0.2, connect_s=1.0, answer_s=1.5, ping_s=1.0)


def network_of(counts: Counts, spec: str = SPEC) -> Counts:
    """Return graph, recipients and walk of a stage's clusters: ``spec``, where the stage is for one recipient.

    With several every cluster is large enough for them, or, where a stage needs a small one, has slots of nobody.
    """
    recipients = counts.get("recipients", 1)
    wide = WIDE_SPEC if recipients > 1 and spec == SPEC else spec
    return {"spec": wide, "recipients": recipients, "walk": "non-backtracking"}


def add(counts: Counts, **amounts: float) -> None:
    """Add to counts."""
    for name, amount in amounts.items():
        counts[name] = counts.get(name, 0) + amount


def tally(counts: Counts, found: Findings, before: Findings | None = None) -> None:
    """Add what nodes counted since ``before``: hops, walks made because one seemed lost, messages thrown away."""
    for word, name in {"hops": "hops", "walks_made": "created", "crowded_out": "crowded_out"}.items():
        add(counts, **{word: found.tallies.get(name, 0) - (0 if before is None else before.tallies.get(name, 0))})


def note(counts: Counts, found: Findings, what: str) -> None:
    """Add a check's findings."""
    add(counts, checks=1, lost=found.lost, doubled=found.doubled)
    counts.setdefault("faults", []).extend(f"{what}: {fault}" for fault in found.faults)
