"""What the stages of the campaign count in, and the cluster they hurt unless they say otherwise."""

from __future__ import annotations

from typing import Any

from benchmarks.reliability.chaos_checker import Findings
from veilwalk.node import Limits

Counts = dict[str, Any]
SPEC = "rrg:10:4:seed=1"
QUICK = Limits(retry_s=0.2, connect_s=1.0, answer_s=1.5, ping_s=1.0)


def add(counts: Counts, **amounts: float) -> None:
    """Add to counts."""
    for name, amount in amounts.items():
        counts[name] = counts.get(name, 0) + amount


def note(counts: Counts, found: Findings, what: str) -> None:
    """Add a check's findings."""
    add(counts, checks=1, lost=found.lost, doubled=found.doubled)
    counts.setdefault("faults", []).extend(f"{what}: {fault}" for fault in found.faults)
