"""The rules of a run: what members agreed on, and after how long a walk of theirs is believed lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from veilwalk.node.cluster._lost_walks import LostWalkRules, lost_walk_rules
from veilwalk.node.members import RunRules

if TYPE_CHECKING:
    from veilwalk.design import Scheme
    from veilwalk.learning import Protection


def run_rules(
    scheme: Scheme,
    model_bytes: int,
    *,
    alarm_hops: float,
    away_s: float,
    updates: int,
    walks: int,
    target: float | None,
    evaluations: int,
    hop_s: float,
    dwell_s: float,
    protection: Protection,
    spare_s: float = 0.0,
    accept: str = "none",
) -> tuple[RunRules, LostWalkRules]:
    """Return the rules of a run that walks by ``scheme``, and those for lost walks with how they were found.

    ``model_bytes`` is the length of the model on its way; ``alarm_hops`` and ``away_s`` are those of
    :func:`.lost_walk_rules`, ``protection`` is what updates go through, ``accept`` is what
    :meth:`veilwalk.learning.Acceptance.of` reads, all others are those of :class:`RunRules`, without a target None. The
    run is made now.
    """
    from veilwalk.learning import Acceptance

    asked = Acceptance.of(accept) or Acceptance()
    lost = lost_walk_rules(
        scheme,
        alarm_hops=alarm_hops,
        step_s=max(hop_s, dwell_s),
        away_s=away_s,
        model_bytes=model_bytes,
    )
    rules = RunRules(
        walk=scheme.walk,
        updates=updates,
        walks=walks,
        target=target or 0.0,
        evaluations=evaluations,
        late_hops=lost.late_hops,
        starve_hops=lost.starve_hops,
        hop_s=hop_s,
        dwell_s=dwell_s,
        spare_s=spare_s,
        clip=protection.clip,
        noise=protection.noise,
        rows=protection.rows,
        most_updates=protection.most_updates,
        decay=protection.decay,
        max_loss_ratio=asked.max_loss_ratio,
        max_step=asked.max_step,
        hops_per_update=scheme.price.hops,
        since=int(time.time()),
    )
    return rules, lost
