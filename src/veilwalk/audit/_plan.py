"""Plans an audit: resolves ``auto`` and ``all``, and refuses impossible settings before a hop is walked."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import replace

from veilwalk.audit._knowledge import Inference
from veilwalk.audit._members import Coalition, LinkedCoalition, LinkedNeighbour, Memory, Neighbour, PreviousMaker
from veilwalk.audit._observers import FirstSight, LastHop, Observer, Path, Prior, Repeated, ReturnTime, Window
from veilwalk.audit._sampled import Rehearsed
from veilwalk.audit._settings import BY_CLASS, EXACT, REHEARSED, SAMPLED_DESTINATIONS, AuditSettings, Plan
from veilwalk.audit._timings import Exact, PlainInference
from veilwalk.core import sizes
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError, VeilwalkError
from veilwalk.core.validate import refuse_removed
from veilwalk.design import Scheme
from veilwalk.walks import UPDATE_DTYPE, ExcludedRows, estimate_memory

# (1 + x) e^-x = 0.02: two legs' worth of exponential waiting stay below x means in 98% of deliveries.
_HORIZON_LEGS = 5.83
# Exact laws at a sample of destinations: memory of one of them, products of all, shortest horizon.
_LAW_BYTES, _SAMPLED_PRODUCTS, _SHORTEST_HORIZON = 512 << 20, 4e11, 64
_COLLUDING_SHARE = 10

_AT_DESTINATIONS = (Prior, Window, ReturnTime, LastHop, Memory, Repeated)
_ELSEWHERE = (PreviousMaker, Neighbour, LinkedNeighbour, FirstSight, Coalition, LinkedCoalition, Path)
#: Built-in observers by name, in the order of the report.
OBSERVERS: dict[str, type[Observer]] = {kind.name: kind for kind in (*_AT_DESTINATIONS, *_ELSEWHERE)}
#: Inferences with tables of all pairs, in the order in which ``auto`` tries them; by-class needs no tables.
INFERENCES: dict[str, type[Inference]] = {kind.name: kind for kind in (Exact, Rehearsed)}


def choose_inference(plan: Plan) -> Inference:
    """Return how return times are read; a plain walk seals nothing, and its last hop says everything."""
    return PlainInference() if plan.scheme.is_direct else INFERENCES[plan.posterior]()


def make_plan(scheme: Scheme, settings: AuditSettings) -> Plan:
    """Return the plan of an audit, or refuse impossible settings.

    ``auto`` tries posteriors from the best on, until one suits the observers and fits into memory.
    """
    _check_names(settings)
    if not scheme.is_direct:
        # Refuses a law under which updates cannot travel between all nodes: no source would have a prior.
        _ = scheme.source_prior
    refusals: list[VeilwalkError] = []
    for draft in _draft_plans(scheme, settings):
        try:
            plan = _complete(draft)
        except InvalidParameterError as error:
            # Another inference may suit the observers; it does not mend anything else.
            if error.name not in {"observers", "posterior"}:
                raise
            refusals.append(error)
            continue
        needed, most = _predict_memory(plan), settings.memory_bytes
        if needed <= most:
            return replace(plan, predicted_bytes=needed)
        refusals.append(
            ResourceLimitError(
                f"the audit would take about {needed / 2**30:.3g} GiB, may take {most / 2**30:.3g} GiB: "
                "ask for fewer updates or observers, or allow more memory"
            )
        )
    raise refusals[0]


def plan_collusion(scheme: Scheme, settings: AuditSettings, count: int) -> Plan:
    """Return the plan of an audit of the coalitions of so many colluders; it says which it leaves out, and why."""
    coalitions = [name for name, kind in OBSERVERS.items() if kind.colluding and not kind.links]
    counted = replace(settings, colluders=count)
    draft = Plan(scheme=scheme, settings=counted, posterior=EXACT, looked_up=scheme.graph.n_nodes >= sizes.LARGE_NODES)
    chosen, left_out = _select_observers(draft, coalitions)
    names = tuple(observer.name for observer in chosen)
    # A graph too large for all of them is refused by what they need.
    plan = make_plan(scheme, replace(counted, observers=names or tuple(coalitions)))
    return replace(plan, left_out=left_out if names else {})


def _predict_memory(plan: Plan) -> int:
    """Return the bytes that the audit takes, to within a small factor: records, tables and one batch of laws."""
    graph, law, settings = plan.scheme.graph, plan.scheme.law, plan.settings
    walking = estimate_memory(
        graph, law.rows, updates=settings.updates, replicas=settings.replicas, walk=plan.scheme.walk, collect=True
    )
    scores = settings.updates * (len(plan.observers) * 7 * 8 + UPDATE_DTYPE.itemsize)
    # All pairs, or where candidates are looked up the law once more by columns; a far law holds excluded pairs.
    entries = law.rows.nodes.size if isinstance(law.rows, ExcludedRows) else int(law.n_choices.sum())
    tables = 2 * 12 * entries if plan.looked_up else 20 * 8 * graph.n_nodes**2
    laws = 0
    if plan.reads_by(EXACT) and not plan.scheme.is_direct:
        laws = 2 * 8 * (2 * (plan.horizon + 1) * int(graph.degrees.max()) * graph.n_nodes + 4 * graph.n_nodes**2)
        if plan.without_node_chain:
            laws += 8 * (4 * len(graph.indices) ** 2 + 8 * len(graph.indices) * graph.n_nodes)
    # Paths of a few tokens, and their states.
    if plan.reads_by(REHEARSED) or any(observer.rehearses(plan) for observer in plan.observers):
        laws += max(1_000_000, 8 * 220 * graph.n_nodes) * 20
    # Observers that run one after the other do not hold their memory at the same time.
    return walking + scores + tables + laws + max(observer.memory_bytes(plan) for observer in plan.observers)


def _check_names(settings: AuditSettings) -> None:
    """Refuse unknown names, objects that are no observers, and two observers of one name."""
    names = []
    for entry in () if settings.takes_all else settings.observers:
        name = entry if isinstance(entry, str) else getattr(entry, "name", None)
        if isinstance(entry, str):
            refuse_removed("observers", entry)
        is_observer = isinstance(entry, Observer) or (isinstance(entry, type) and issubclass(entry, Observer))
        if not (name in OBSERVERS if isinstance(entry, str) else is_observer and isinstance(name, str) and name):
            need = f"names among {', '.join(OBSERVERS)}, all, or subclasses of Observer that have a name"
            raise InvalidParameterError("observers", entry if isinstance(entry, str) else repr(entry), need)
        names.append(name)
    if not settings.takes_all and len(set(names)) < max(len(names), 1):
        raise InvalidParameterError("observers", ",".join(map(str, names)), "one or more, each with its own name")
    refuse_removed("posterior", settings.posterior)
    posteriors = (*INFERENCES, BY_CLASS)
    if settings.posterior not in {"auto", *posteriors}:
        raise InvalidParameterError("posterior", settings.posterior, f"auto or one of {', '.join(posteriors)}")


def _draft_plans(scheme: Scheme, settings: AuditSettings) -> list[Plan]:
    """Return a plan for each posterior that the settings allow, the best first."""
    large = scheme.graph.n_nodes >= sizes.LARGE_NODES
    if settings.posterior != "auto":
        looks_up = large or settings.posterior == BY_CLASS
        return [Plan(scheme=scheme, settings=settings, posterior=settings.posterior, looked_up=looks_up)]
    if scheme.is_direct:
        return [Plan(scheme=scheme, settings=settings, posterior=EXACT, looked_up=large)]
    looked_up = Plan(scheme=scheme, settings=settings, posterior=BY_CLASS, looked_up=True)
    if large:
        return [looked_up]
    plans = [replace(looked_up, posterior=name, looked_up=False) for name in INFERENCES]
    return [*(plan for plan in plans if choose_inference(plan).unsupported_reason(plan) is None), looked_up]


def _complete(draft: Plan) -> Plan:
    """Choose the observers, the number of colluders and the horizon."""
    settings, n_nodes = draft.settings, draft.scheme.graph.n_nodes
    observers, left_out = _choose_observers(draft)
    timed, colluding = (any(getattr(kind, flag) for kind in observers) for flag in ("timed", "colluding"))
    if timed or draft.looked_up:
        _check_posterior(draft)
    tenth = max(round(n_nodes / _COLLUDING_SHARE), 1)
    colluders = tenth if settings.colluders is None else settings.colluders
    if colluding and not 1 <= colluders < n_nodes:
        raise InvalidParameterError("colluders", colluders, f"from 1 to {n_nodes - 1}, fewer than the nodes")
    count = colluders if colluding else 0
    plan = replace(draft, observers=observers, timed=timed, colluders=count, left_out=left_out)
    return replace(plan, horizon=_choose_horizon(plan))


def _choose_observers(plan: Plan) -> tuple[tuple[Observer, ...], dict[str, str]]:
    """Return the observers of the settings, or all that suit and the reasons of the others."""
    if plan.settings.takes_all:
        return _select_observers(plan, OBSERVERS)
    observers = []
    for entry in plan.settings.observers:
        kind = OBSERVERS[entry] if isinstance(entry, str) else entry
        # A copy of an instance: what it learns in one audit does not reach the next.
        observer = kind() if isinstance(kind, type) else copy.copy(kind)
        if (reason := observer.unsupported_reason(plan)) is not None:
            raise InvalidParameterError("observers", observer.name, f"left out: {reason}")
        observers.append(observer)
    return tuple(observers), {}


def _select_observers(plan: Plan, names: Iterable[str]) -> tuple[tuple[Observer, ...], dict[str, str]]:
    """Return those of ``names`` that ``all`` takes, and the reasons of others that a reader would miss."""
    observers = [OBSERVERS[name]() for name in names]
    reasons = [observer.unsupported_reason(plan) or observer.skip_reason(plan) for observer in observers]
    pairs = list(zip(observers, reasons, strict=True))
    chosen = tuple(observer for observer, reason in pairs if reason is None)
    if plan.looked_up or plan.scheme.is_direct:
        # Only destinations attack there.
        return chosen, {}
    return chosen, {observer.name: reason for observer, reason in pairs if reason is not None and observer.reported}


def _check_posterior(plan: Plan) -> None:
    """Refuse an inference that is not possible for this scheme, and name those that are."""
    if plan.looked_up and not plan.scheme.is_direct:
        if plan.posterior != BY_CLASS:
            need = f"{BY_CLASS} from {sizes.LARGE_NODES} nodes on: others need tables of all pairs"
            raise InvalidParameterError("posterior", plan.posterior, need)
        return
    reason = choose_inference(plan).unsupported_reason(plan)
    if reason is not None:
        drafts = [replace(plan, posterior=name) for name in INFERENCES]
        possible = [draft.posterior for draft in drafts if choose_inference(draft).unsupported_reason(draft) is None]
        possible += [] if plan.scheme.is_direct else [BY_CLASS]
        raise InvalidParameterError("posterior", plan.posterior, f"{' or '.join(possible)}: {reason}")


def _choose_horizon(plan: Plan) -> int:
    """Return the horizon of the settings, or the one that leaves about 2% of deliveries beyond it.

    A sample of destinations on a larger graph has a horizon that takes a few minutes: longer return times say less and
    less about the source.
    """
    scheme, horizon = plan.scheme, plan.settings.horizon
    if horizon or plan.looked_up or scheme.is_direct:
        return horizon
    if plan.posterior != EXACT or (plan.without_node_chain and not plan.timed):
        return 0
    whole = math.ceil(_HORIZON_LEGS * scheme.price.hops)
    if not plan.samples_destinations:
        return whole
    n_nodes, widest = scheme.graph.n_nodes, int(scheme.graph.degrees.max()) + 1
    products = min(SAMPLED_DESTINATIONS, n_nodes) * scheme.chain.products_per_hop / n_nodes
    affordable = min(_LAW_BYTES / (8 * n_nodes * widest), _SAMPLED_PRODUCTS / products)
    return min(whole, max(_SHORTEST_HORIZON, int(affordable)))
