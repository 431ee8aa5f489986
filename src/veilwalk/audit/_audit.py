"""Audits a scheme: plays the protocol, attacks it with every observer, and reports the scores."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Unpack

import numpy as np

from veilwalk.audit._attack import attack_run, grant_knowledge
from veilwalk.audit._coalitions import list_overlay_rows, measure_members
from veilwalk.audit._members import Coalition
from veilwalk.audit._plan import OBSERVERS, make_plan, plan_collusion
from veilwalk.audit._play import choose_colluders, play_updates
from veilwalk.audit._score import Scored, summarise_scores
from veilwalk.audit._settings import AuditOptions, AuditSettings, Plan
from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, show_progress, silent
from veilwalk.core.records import Record
from veilwalk.core.rooms import show_options
from veilwalk.core.sizes import FEW_NODES
from veilwalk.core.stats import Estimate, estimate_mean
from veilwalk.core.tables import Tabular
from veilwalk.design import Scheme, evaluate_scheme
from veilwalk.engine import Engine, JobStore, open_engine
from veilwalk.walks import law_digest

# Settings that depend on the machine, or stand elsewhere in the record.
_NOT_PARAMS = {"seed", "horizon", "memory_bytes"}
# Pairs that collude in a small network, what each follows, and from which share named it is not worth it.
_PAIRS, _PAIR_UPDATES, _PAIR_STRETCHES, _PAIR_PATHS, _NOT_WORTH = 8, 2_000, 64, 100, 1 / 3
# Updates to score for each number of colluders: intervals of about a percentage point.
_ENOUGH_UPDATES = 6_000
_COLUMNS = (
    "hit_ratio",
    "times_floor",
    "hit_ratio_interval",
    "top_posterior",
    "node_entropy_nats",
    "node_entropy_bits",
    "updates",
)
# Means and intervals of some updates, as plain data.
_Row = dict[str, Any]


class Findings:
    """The results of one observer.

    Means and 95% intervals are over all its updates; for linked updates over the largest groups.

    Attributes:
        how: How its posteriors were obtained.
        report: The results as plain data, as in the record: also the worst destination, arc and percent.
        overall: The row over all updates.
        by_return_time: The rows by bands of return times, the shortest first.
        by_linked_updates: The rows by how many updates are known to have one source.
        hit_ratio: How often its first guess is the source.
        interval: The 95% interval of the hit ratio.
        node_entropy_nats: Mean entropy over nodes of its posterior.
        blind_hit_ratio: How often a guess from the prior is right; None for linked updates.
        times_floor: The hit ratio over the share of nodes that collude, which no routing goes below; None without
            colluders.
    """

    def __init__(self, name: str, scored: Scored) -> None:
        report: dict[str, Any] = summarise_scores(scored)
        self.name, self.scored, self.how, self.report = name, scored, scored.how, report
        self.by_return_time: list[_Row] = report.get("by_return_time", [])
        self.by_linked_updates: list[_Row] = report.get("by_linked_updates", [])
        self.overall: _Row = report["overall"] if "overall" in report else self.by_linked_updates[-1]
        self.hit_ratio: float = self.overall["hit_ratio"]
        low, high = self.overall["hit_ratio_interval"]
        self.interval: tuple[float, float] = (low, high)
        self.node_entropy_nats: float = self.overall["node_entropy_nats"]
        self.blind_hit_ratio: float | None = self.overall.get("blind_hit_ratio")
        self.times_floor: float | None = self.overall.get("times_floor")

    def __repr__(self) -> str:
        return f"Findings(name={self.name!r})"


@dataclass(frozen=True, eq=False, kw_only=True)
class Audit(Tabular):
    """The results of every observer of a scheme: ``audit["last-hop"].hit_ratio``.

    Attributes:
        plan: The plan of the audit.
        findings: The results of each observer.
        updates: How many updates were played.
        complete: Whether all updates of the settings were played.
        hops_per_update: Their mean hops, measured.
        hops_per_update_predicted: The same from the chain of the walk; None where the graph is too large.
        return_time_mean: Mean return time; None for a plain walk.
        left_out: Observers of ``all`` that did not run, each with the reason.
        members: What the colluders read, make and know: by sharing keys, by cheating, as neighbours; a row each. None
            where no coalition attacks.
        anonymity_floor_nats: The distance entropy that the design promises.
    """

    plan: Plan = field(repr=False)
    findings: dict[str, Findings] = field(repr=False)
    updates: int
    complete: bool
    hops_per_update: Estimate
    hops_per_update_predicted: float | None
    return_time_mean: float | None
    left_out: dict[str, str]
    members: list[_Row] = field(repr=False)
    anonymity_floor_nats: float | None

    def __getitem__(self, observer: str) -> Findings:
        if observer not in self.findings:
            raise InvalidParameterError("observer", observer, f"among those of the audit: {', '.join(self.findings)}")
        return self.findings[observer]

    def __iter__(self) -> Iterator[str]:
        return iter(self.findings)

    def __contains__(self, observer: object) -> bool:
        return observer in self.findings

    def record(self) -> Record:
        """Return the audit as a record."""
        plan, scheme = self.plan, self.plan.scheme
        hops = self.hops_per_update
        names = {"graph": scheme.graph.name, "law": scheme.law.name}
        settings = {key: value for key, value in vars(plan.settings).items() if key not in _NOT_PARAMS}
        settings |= {"walk": scheme.walk.kind, "posterior": plan.posterior, "recipients": scheme.recipients}
        settings |= {"observers": tuple(self.findings), "colluders": plan.settings.colluders or plan.colluders}
        return Record(
            kind="audit",
            params=names
            | {"support": str(scheme.law.support), "horizon": plan.horizon, "nodes": scheme.graph.n_nodes}
            | {"graph_digest": scheme.graph.digest, "anonymity_floor_nats": self.anonymity_floor_nats}
            | settings,
            seed=plan.settings.seed,
            result={
                "updates": self.updates,
                "complete": self.complete,
                "hops_per_update": hops.mean,
                "hops_per_update_interval": [hops.low, hops.high],
                "hops_per_update_predicted": self.hops_per_update_predicted,
                "return_time_mean": self.return_time_mean,
                "observers": {name: findings.report for name, findings in self.findings.items()},
                "left_out": self.left_out,
                "members": self.members,
            }
            | ({} if scheme.graph.labels is None else {"labels": list(scheme.graph.labels)}),
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return tidy rows: an observer and a band of return times, or a number of linked updates, each."""
        rows: list[dict[str, Any]] = []
        for name, findings in self.findings.items():
            whole = [("all", findings.overall)] if "overall" in findings.report else []
            parts = [("return time", row) for row in findings.by_return_time]
            parts += [("linked updates", row) for row in findings.by_linked_updates]
            for part, row in (*whole, *parts):
                ends = {
                    f"{key.removesuffix('_interval')}_{end}": value[place]
                    for key, value in row.items()
                    if key.endswith("_interval")
                    for place, end in enumerate(("low", "high"))
                }
                plain = {key: value for key, value in row.items() if not key.endswith("_interval")}
                rows.append({"observer": name, "how": findings.how, "part": part} | plain | ends)
        return rows

    def _overview(self) -> list[dict[str, Any]]:
        rows = [row for row in self.rows() if row["part"] != "return time"]
        return rows + [{"observer": name, "how": f"not run: {reason}"} for name, reason in self.left_out.items()]


@show_options(AuditSettings)
def audit(
    scheme: Scheme,
    settings: AuditSettings | None = None,
    *,
    floor: float | None = None,
    executor: Engine = None,
    store: JobStore | None = None,
    device: str = "cpu",
    progress: Progress | bool = False,
    **options: Unpack[AuditOptions],
) -> Audit:
    """Attack ``scheme`` with observers and report what each of them learns.

    Args:
        scheme: Graph, law and walk.
        settings: The observers and the effort.
        floor: The distance entropy that the design promises, in nats, for the record and its figures.
        executor: Where its jobs run: any executor, or the name of an engine (``process:4``, ``ray``); None is this
            process with all its threads. The result does not depend on it.
        store: Where finished jobs are stored, so that a stopped audit continues on any engine.
        device: ``cuda`` plays the protocol on the graphics card, to the same updates; with thousands of replicas it is
            many times as fast. The result does not depend on it.
        progress: True for a bar on standard error, or a progress callback.
        options: Fields of :class:`AuditSettings`, instead of or beside ``settings``.

    Example:
        >>> from veilwalk.design import choose_scheme
        >>> from veilwalk.graphs import random_regular
        >>> scheme = choose_scheme(random_regular(20, 3, seed=1), "uniform-node", support=(2, 3))
        >>> result = audit(scheme, updates=2_000, observers="prior,last-hop")
        >>> result["last-hop"].how, result["prior"].hit_ratio < result["last-hop"].hit_ratio
        ('exact', True)
    """
    validate.instance(
        Scheme, "a Scheme: of recommend(graph).scheme, choose_scheme(graph) or design(graph).scheme", scheme=scheme
    )
    # Observers name who sealed: a blank leg is one like any other to all who do not compare models.
    scheme = scheme if scheme.train_probability == 1.0 else replace(scheme, train_probability=1.0)
    validate.instance((AuditSettings, type(None)), "AuditSettings, or options by name", settings=settings)
    validate.instance((JobStore, type(None)), "a JobStore", store=store)
    validate.options(AuditSettings, options)
    plan = make_plan(scheme, replace(settings or AuditSettings(), **options))
    with show_progress(progress=progress) as listener, open_engine(executor) as workers:
        return _run_plan(plan, _place_jobs(plan, workers, store), device=device, progress=listener, floor=floor)


def _run_plan(
    plan: Plan, where: dict[str, Any], *, device: str, progress: Progress = silent, floor: float | None = None
) -> Audit:
    """Play and attack a plan, and gather the results; ``where`` is as in ``attack_run``."""
    scheme, settings = plan.scheme, plan.settings
    colluders = choose_colluders(scheme.graph, plan.colluders, settings.seed, placement=settings.placement)
    jobs = {name: where.get(name) for name in ("executor", "store")}
    run = play_updates(scheme, settings, colluders, device=device, progress=progress, **jobs)
    scored, left_out = attack_run(plan, run, where, progress)
    attacks = any(isinstance(observer, Coalition) for observer in plan.observers) and not plan.scheme.is_direct
    known = scheme.is_direct or not (plan.looked_up or scheme.is_large)
    return Audit(
        plan=plan,
        findings={name: Findings(name, table) for name, table in scored.items()},
        updates=len(run.sightings),
        complete=run.complete,
        hops_per_update=run.hops_per_update,
        hops_per_update_predicted=scheme.price.hops if known else None,
        return_time_mean=None if scheme.is_direct else float(run.sightings.return_time.mean()),
        left_out=left_out,
        members=measure_members(grant_knowledge(plan, run)) if attacks else _list_bounds(plan),
        anonymity_floor_nats=floor,
    )


def warn_few_members(scheme: Scheme) -> str | None:
    """Return a warning in plain words where a network is so small that little can be hidden; else None.

    Two members that collude are the strongest coalition of an audit, at some places; the mean has an interval. It
    samples paths, so that the best attacker names no less.
    """
    n_nodes = scheme.graph.n_nodes
    if n_nodes > FEW_NODES or scheme.is_direct:
        return None
    shares, scheme = [], replace(scheme, train_probability=1.0)
    for seed in range(_PAIRS):
        observer = Coalition(particles=_PAIR_PATHS)
        options = {"colluders": 2, "seed": seed, "scored_by_filter": _PAIR_STRETCHES, "updates": _PAIR_UPDATES}
        plan = make_plan(scheme, AuditSettings(observers=(observer,), replicas=_PAIRS, **dict[str, Any](options)))
        run = play_updates(scheme, plan.settings, choose_colluders(scheme.graph, 2, seed))
        scored, _ = attack_run(plan, run, {})
        shares.append(Findings(observer.name, scored[observer.name]).hit_ratio)
    pair = estimate_mean(np.array(shares), student=True)
    hit_ratio = evaluate_scheme(scheme, effort=20, colluders=None).exposure.hit_ratio
    opener = "" if hit_ratio is None else f"an opener names the maker by its last hop in {hit_ratio.mean:.0%}, "
    low, high = max(pair.low, 0.0), min(pair.high, 1.0)
    between = f"{low:.0%} to {high:.0%} (by sampled paths at {_PAIRS} places, so at least)"
    line = f"{n_nodes} members: {opener}two that collude name it in {between}, blind guesses in "
    line += f"{1 / (n_nodes - 1):.0%} and {1 / max(n_nodes - 2, 1):.0%} of updates"
    if pair.mean < _NOT_WORTH:
        return line
    cure = "use noise (train --epsilon), or aggregate at a party that all trust"
    return f"{line}; where two may collude anonymity is not worth its price: {cure}"


def _list_bounds(plan: Plan) -> list[_Row]:
    """Return what holds for any coalition of an overlay, where none was played; nothing for other schemes."""
    if not plan.scheme.hides_names:
        return []
    n_nodes, settings = plan.scheme.graph.n_nodes, plan.settings
    count = max(round(n_nodes / 10), 1) if settings.colluders is None else settings.colluders
    colluders = choose_colluders(plan.scheme.graph, count, settings.seed, placement=settings.placement)
    return list_overlay_rows(plan.scheme, np.isin(np.arange(n_nodes), colluders), plays=False)


def _place_jobs(plan: Plan, executor: Executor | None, store: JobStore | None) -> dict[str, Any]:
    """Return where the jobs of an audit run and are stored; nothing where everything runs here.

    An observer is refused that cannot be sent to another process, or has no name that a store could keep.
    """
    for observer in plan.observers:
        try:
            if executor is not None:
                pickle.dumps(observer)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            need = f"a class of an importable module where an executor runs the jobs ({error})"
            raise InvalidParameterError("observers", observer.name, need) from error
        is_built_in = type(observer) is OBSERVERS.get(observer.name) and vars(observer) == vars(type(observer)())
        if store is not None and not is_built_in:
            raise InvalidParameterError("observers", observer.name, "a built-in observer where a store keeps the jobs")
    if executor is None and store is None:
        return {}
    return {"executor": executor, "store": store, "what": None if store is None else _cache_key(plan)}


def _cache_key(plan: Plan) -> dict[str, Any]:
    """Return the name of an audit in a store."""
    scheme = plan.scheme
    return {
        "kind": "audit",
        "graph": scheme.graph.digest,
        "law": law_digest(scheme.law.rows),
        "walk": scheme.walk.kind,
        "recipients": scheme.recipients,
        "key_period": scheme.key_period,
        "settings": asdict(replace(plan.settings, memory_bytes=1, observers=plan.names)),
        "plan": [plan.posterior, plan.horizon, plan.colluders, list(plan.names)],
    }


def audit_collusion(
    scheme: Scheme,
    settings: AuditSettings,
    counts: Sequence[int],
    *,
    executor: Engine = None,
    store: JobStore | None = None,
    device: str = "cpu",
    progress: Progress = silent,
) -> Record:
    """Audit the coalitions at each number of colluders, each number once.

    ``first-sight`` is scored on what one of them opens, ``coalition`` on all honest updates. Following the token of a
    small coalition may take too long; its row then gives the reason. ``executor``, ``store`` and ``device`` are those
    of :func:`audit`.

    Example:
        >>> from veilwalk.design import choose_scheme
        >>> from veilwalk.graphs import random_regular
        >>> scheme = choose_scheme(random_regular(20, 3, seed=1), "uniform-node", support=(2, 3))
        >>> few, many = audit_collusion(scheme, AuditSettings(updates=2_000), [2, 10]).result["rows"]
        >>> few["first-sight"]["hit_ratio"] < many["first-sight"]["hit_ratio"]
        True
    """
    rows: list[dict[str, Any]] = []
    with open_engine(executor) as workers:
        for number, count in enumerate(dict.fromkeys(counts)):
            progress("coalitions", number, len(counts), f"{count} colluders")
            updates = min(settings.updates, _ENOUGH_UPDATES * scheme.graph.n_nodes // max(count, 1))
            plan = plan_collusion(scheme, replace(settings, updates=updates), count)
            result = _run_plan(plan, _place_jobs(plan, workers, store), device=device)
            row: dict[str, Any] = {"colluders": count, "left_out": dict(plan.left_out)}
            row |= {"members": {part["name"]: part["share"] for part in result.members}}
            for name, findings in result.findings.items():
                row[name] = {key: findings.overall[key] for key in _COLUMNS}
                row |= {key: findings.overall[key] for key in ("blind_hit_ratio", "floor")}
            rows.append(row)
    about = {"graph": scheme.graph.name, "law": scheme.law.name}
    return Record(
        kind="collusion",
        params=about | {"walk": scheme.walk.kind, "nodes": scheme.graph.n_nodes, "recipients": scheme.recipients},
        seed=settings.seed,
        result={"rows": rows},
    )
