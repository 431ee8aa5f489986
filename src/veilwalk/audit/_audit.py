"""The audit: play the protocol, attack it with every observer asked for, score against the truth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from veilwalk.audit._attack import Attack
from veilwalk.audit._feasible import make_plan
from veilwalk.audit._plan import Plan
from veilwalk.audit._result import Audit, Findings
from veilwalk.audit._settings import AuditSettings
from veilwalk.core.progress import Progress, silent
from veilwalk.design import Scheme


def audit(
    scheme: Scheme,
    settings: AuditSettings | None = None,
    *,
    floor: float | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Audit:
    """Attack ``scheme`` with observers and say what each of them learns.

    Args:
        scheme: graph, law and walk.
        settings: what to look at and how hard.
        floor: the distance entropy the design promises, in nats, to be drawn beside what is measured.
        progress: told what is going on.
        options: fields of :class:`AuditSettings`, to be set instead of or beside ``settings``.

    Example:
        >>> from veilwalk.design import choose_scheme
        >>> from veilwalk.graphs import random_regular
        >>> scheme = choose_scheme(random_regular(20, 3, seed=1), "uniform-node", support=(2, 3))
        >>> found = audit(scheme, updates=2_000, observers="prior,last-hop")
        >>> found["last-hop"].how, found["prior"].hit_ratio < found["last-hop"].hit_ratio
        ('exact', True)
    """
    plan = make_plan(scheme, replace(settings or AuditSettings(), **options))
    attack = Attack(plan, progress)
    run = attack.run
    return Audit(
        plan=plan,
        findings={name: Findings(name, scored) for name, scored in attack.found.items()},
        updates=len(run.seen),
        complete=run.complete,
        hops_per_update=run.hops_per_update,
        hops_per_update_predicted=_predicted_hops(plan),
        return_time_mean=None if scheme.is_direct else float(run.seen.return_time.mean()),
        posterior_by_distance=attack.profile,
        left_out=attack.left_out,
        anonymity_floor_nats=floor,
    )


def _predicted_hops(plan: Plan) -> float | None:
    """Mean hops per update from the chain of the walk, None where it has none or the graph is too large for it."""
    scheme = plan.scheme
    known = scheme.is_direct or not (plan.looked_up or scheme.is_large or scheme.chain is None)
    return scheme.price.hops if known else None
