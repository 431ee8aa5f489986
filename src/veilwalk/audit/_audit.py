"""The audit: play the protocol, attack it with every observer asked for, score against the truth."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from veilwalk.audit._attack import Attack
from veilwalk.audit._feasible import make_plan
from veilwalk.audit._plan import Plan
from veilwalk.audit._result import Audit, Findings
from veilwalk.audit._scoring import Work
from veilwalk.audit._settings import AuditSettings
from veilwalk.core.progress import Progress, silent
from veilwalk.design import Scheme
from veilwalk.engine import Engine, JobStore, open_engine
from veilwalk.walks import law_digest


def audit(
    scheme: Scheme,
    settings: AuditSettings | None = None,
    *,
    floor: float | None = None,
    executor: Engine = None,
    store: JobStore | None = None,
    device: str = "cpu",
    progress: Progress = silent,
    **options: Any,
) -> Audit:
    """Attack ``scheme`` with observers and say what each of them learns.

    Args:
        scheme: graph, law and walk.
        settings: what to look at and how hard.
        floor: the distance entropy the design promises, in nats, to be drawn beside what is measured.
        executor: where its parts are done: any executor, or the name of an engine (``process:4``, ``ray``); None is
            this process with all its threads. It has no say in the result.
        store: where finished parts are kept, so that an audit that was stopped goes on, on whatever engine.
        device: ``cuda`` plays the protocol on the graphics card, to the same updates; with thousands of replicas it is
            many times as fast. It has no say in the result.
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
    with open_engine(executor) as workers:
        attack = Attack(plan, progress, Work(workers, store, None if store is None else _named(plan), device))
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


def _named(plan: Plan) -> dict[str, Any]:
    """Return what is audited, as the names of files have it."""
    scheme = plan.scheme
    return {
        "kind": "audit",
        "graph": scheme.graph.digest,
        "law": law_digest(scheme.law.draws),
        "walk": scheme.walk.kind,
        "recipients": scheme.recipients,
        "settings": asdict(replace(plan.settings, memory_bytes=1)),
        "plan": [plan.posterior, plan.horizon, plan.colluders, list(plan.observers)],
    }


def _predicted_hops(plan: Plan) -> float | None:
    """Mean hops per update from the chain of the walk, None where the graph is too large for it."""
    scheme = plan.scheme
    known = scheme.is_direct or not (plan.looked_up or scheme.is_large)
    return scheme.price.hops if known else None
