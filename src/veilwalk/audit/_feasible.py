"""Which audits can be: ``auto`` and ``all`` decided, everything else checked, before a hop is walked."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from veilwalk.audit._settings import BY_CLASS, AuditSettings, Plan
from veilwalk.audit.inference import INFERENCES, inference_of
from veilwalk.audit.observers import COALITIONS, OBSERVERS
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError, VeilwalkError
from veilwalk.core.removed import refuse_removed
from veilwalk.design import DestinationLaw, Scheme
from veilwalk.graphs import Graph
from veilwalk.walks import UPDATE_DTYPE, ExcludedRows, estimate_memory

# (1 + x) e^-x = 0.02: two legs' worth of exponential waiting stay below x means in 98% of deliveries.
_HORIZON_LEGS = 5.83
# Exact laws at a sample of destinations: memory of one of them, products of all, shortest horizon.
_LAW_BYTES, _SAMPLED_PRODUCTS, _SHORTEST_HORIZON = 512 << 20, 4e11, 64
_COLLUDING_SHARE = 10


def make_plan(scheme: Scheme, settings: AuditSettings) -> Plan:
    """Return what the settings come to for this scheme, or refuse what cannot be.

    What ``all`` and ``auto`` choose can be: posteriors are tried from the best on until one fits into memory.
    """
    _check_names(settings)
    if not scheme.is_direct:
        # Refuses a law under which updates cannot travel between all nodes: no source would have a prior.
        _ = scheme.source_prior
    refusals: list[VeilwalkError] = []
    for draft in _drafts(scheme, settings):
        try:
            plan = _complete(draft)
        except InvalidParameterError as error:
            # Another way to infer may suit the observers; it does not mend anything else.
            if error.name not in {"observers", "posterior"}:
                raise
            refusals.append(error)
            continue
        needed, most = predicted_memory(plan), settings.memory_bytes
        if needed <= most:
            return plan
        refusals.append(
            ResourceLimitError(
                f"the audit would take about {needed / 2**30:.3g} GiB, may take {most / 2**30:.3g} GiB: "
                "ask for fewer updates or observers, or allow more memory"
            )
        )
    raise refusals[0]


def coalitions(scheme: Scheme, settings: AuditSettings) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the coalitions that ``all`` asks about this scheme, and the others with the reason why not."""
    large = scheme.graph.n_nodes >= settings.large_nodes
    plan = Plan(scheme=scheme, settings=settings, posterior="exact", looked_up=large)
    asked, left_out = _sort_observers(plan, COALITIONS)
    # A graph too large for any of them is refused by what they need, not by there being none.
    return (asked, left_out) if asked else (COALITIONS, {})


def predicted_memory(plan: Plan) -> int:
    """Return the bytes the audit will take, to within a small factor: records, tables and one batch of laws."""
    graph, law, settings = plan.scheme.graph, plan.scheme.law, plan.settings
    walking = estimate_memory(
        graph,
        law.rows,
        updates=settings.updates,
        replicas=settings.replicas,
        walk=plan.scheme.walk,
        recipients=plan.scheme.recipients,
        collect=True,
    )
    scores = settings.updates * (len(plan.observers) * 7 * 8 + UPDATE_DTYPE.itemsize)
    # All pairs, or where candidates are looked up the law once more by columns.
    tables = 2 * 12 * _entries(law) if plan.looked_up else 20 * 8 * graph.n_nodes**2
    laws = 0
    if plan.timed and plan.posterior == "exact" and not plan.scheme.is_direct:
        laws = 2 * 8 * (2 * (plan.horizon + 1) * int(graph.degrees.max()) * graph.n_nodes + 4 * graph.n_nodes**2)
        if plan.without_node_chain:
            laws += 8 * (4 * len(graph.indices) ** 2 + 8 * len(graph.indices) * graph.n_nodes)
    kinds = [OBSERVERS[name] for name in plan.observers]
    # Paths of a few tokens, and what is followed along them.
    if (plan.timed and plan.posterior == "rehearsed") or any(kind.rehearses(plan) for kind in kinds):
        laws += max(1_000_000, 8 * 220 * graph.n_nodes) * 20
    # Those that come one after the other do not hold theirs at a time.
    return walking + scores + tables + laws + max(kind.own_bytes(plan) for kind in kinds)


def _entries(law: DestinationLaw) -> int:
    """Pairs that a law holds; a far law holds those that may not be."""
    return law.rows.nodes.size if isinstance(law.rows, ExcludedRows) else int(law.n_choices.sum())


def _check_names(settings: AuditSettings) -> None:
    for name in () if settings.takes_all else settings.observers:
        refuse_removed("observers", name)
    if not settings.takes_all and (not settings.observers or any(name not in OBSERVERS for name in settings.observers)):
        raise InvalidParameterError("observers", ",".join(settings.observers), f"among {', '.join(OBSERVERS)}, or all")
    refuse_removed("posterior", settings.posterior)
    names = (*INFERENCES, BY_CLASS)
    if settings.posterior not in {"auto", *names}:
        raise InvalidParameterError("posterior", settings.posterior, f"auto or one of {', '.join(names)}")


def _drafts(scheme: Scheme, settings: AuditSettings) -> list[Plan]:
    """The posteriors asked for, the best first; ``auto`` may come to any that can be had."""
    large = scheme.graph.n_nodes >= settings.large_nodes
    if settings.posterior != "auto":
        looks_up = large or settings.posterior == BY_CLASS
        return [Plan(scheme=scheme, settings=settings, posterior=settings.posterior, looked_up=looks_up)]
    if scheme.is_direct:
        return [Plan(scheme=scheme, settings=settings, posterior="exact", looked_up=large)]
    looked_up = Plan(scheme=scheme, settings=settings, posterior=BY_CLASS, looked_up=True)
    if large:
        return [looked_up]
    plans = [replace(looked_up, posterior=name, looked_up=False) for name in INFERENCES]
    return [*(plan for plan in plans if inference_of(plan).why_not(plan) is None), looked_up]


def _complete(draft: Plan) -> Plan:
    settings = draft.settings
    names, left_out = _choose_observers(draft)
    kinds = [OBSERVERS[name] for name in names]
    timed, colluding = (any(getattr(kind, flag) for kind in kinds) for flag in ("timed", "colluding"))
    if timed or draft.looked_up:
        _check_posterior(draft)
    tenth = max(round(draft.scheme.graph.n_nodes / _COLLUDING_SHARE), 1)
    asked = tenth if settings.colluders is None else settings.colluders
    colluders = _checked_colluders(draft.scheme.graph, asked) if colluding else 0
    plan = replace(draft, observers=names, timed=timed, colluders=colluders, left_out=left_out)
    return replace(plan, horizon=_horizon(plan))


def _checked_colluders(graph: Graph, count: int) -> int:
    """Return the number of colluders, or refuse a coalition of nobody or of everybody."""
    if not 1 <= count < graph.n_nodes:
        raise InvalidParameterError("colluders", count, f"from 1 to {graph.n_nodes - 1}, fewer than the nodes")
    return count


def _choose_observers(plan: Plan) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the observers asked for, or all that suit and reasons why others do not."""
    if plan.settings.takes_all:
        return _sort_observers(plan, OBSERVERS)
    for name in plan.settings.observers:
        reason = OBSERVERS[name].why_not(plan)
        if reason is not None:
            raise InvalidParameterError("observers", name, f"left out: {reason}")
    return tuple(plan.settings.observers), {}


def _sort_observers(plan: Plan, names: Iterable[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return those of ``names`` that ``all`` asks, and those that a reader would miss with the reason why not."""
    reasons = {name: OBSERVERS[name].why_not(plan) or OBSERVERS[name].reason_to_skip(plan) for name in names}
    asked = tuple(name for name, reason in reasons.items() if reason is None)
    if plan.looked_up or plan.scheme.is_direct:
        # Nobody but destinations is asked there.
        return asked, {}
    return asked, {
        name: reason for name, reason in reasons.items() if reason is not None and OBSERVERS[name].missed_by_readers
    }


def _check_posterior(plan: Plan) -> None:
    """Refuse a way to read return times that this scheme does not allow, and say which it does."""
    if plan.looked_up and not plan.scheme.is_direct:
        if plan.posterior != BY_CLASS:
            need = f"{BY_CLASS} from {plan.settings.large_nodes} nodes on: others need tables of all pairs"
            raise InvalidParameterError("posterior", plan.posterior, need)
        return
    why = inference_of(plan).why_not(plan)
    if why is not None:
        others = [replace(plan, posterior=name) for name in INFERENCES]
        able = [other.posterior for other in others if inference_of(other).why_not(other) is None]
        able += [] if plan.scheme.is_direct else [BY_CLASS]
        raise InvalidParameterError("posterior", plan.posterior, f"{' or '.join(able)}: {why}")


def _horizon(plan: Plan) -> int:
    """Return the horizon asked for, or the one that leaves about 2% of deliveries beyond it.

    A sample of destinations on a larger graph has a horizon that takes a few minutes: longer return times tell sources
    apart less and less.
    """
    scheme, asked = plan.scheme, plan.settings.horizon
    if asked or plan.looked_up or scheme.is_direct:
        return asked
    if plan.posterior == "rehearsed" or (plan.without_node_chain and not plan.timed):
        return 0
    whole = math.ceil(_HORIZON_LEGS * scheme.price.hops)
    if not plan.samples_destinations:
        return whole
    n_nodes, widest = scheme.graph.n_nodes, int(scheme.graph.degrees.max()) + 1
    products = min(plan.settings.sampled_destinations, n_nodes) * scheme.chain.products_per_hop / n_nodes
    affordable = min(_LAW_BYTES / (8 * n_nodes * widest), _SAMPLED_PRODUCTS / products)
    return min(whole, max(_SHORTEST_HORIZON, int(affordable)))
