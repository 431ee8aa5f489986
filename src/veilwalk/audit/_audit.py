"""The audit: play the protocol, attack it with every observer asked for, score against the truth, report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from veilwalk.audit._attack import Attack, Work
from veilwalk.audit._feasible import coalitions, make_plan
from veilwalk.audit._scores import Scored, observer_report
from veilwalk.audit._settings import AuditSettings, Plan
from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, show_progress, silent
from veilwalk.core.records import Record
from veilwalk.core.rooms import show_options
from veilwalk.core.stats import Estimate
from veilwalk.core.tables import frame, html_table
from veilwalk.design import Scheme
from veilwalk.engine import Engine, JobStore, open_engine
from veilwalk.walks import law_digest

# What depends on the machine, or is told elsewhere.
_NOT_PARAMS = {"seed", "horizon", "memory_bytes"}
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


@dataclass(frozen=True, eq=False)
class Findings:
    """What one observer makes of the updates it was asked about.

    Means and 95% intervals are over all of them; of linked updates over the largest groups that there were.
    """

    name: str
    scored: Scored = field(repr=False)

    @cached_property
    def report(self) -> dict[str, Any]:
        """All of it as plain data, as it stands in the record."""
        return observer_report(self.scored)

    @property
    def overall(self) -> dict[str, Any]:
        """The row over all updates."""
        row: dict[str, Any] = self.report["overall"] if "overall" in self.report else self.by_linked_updates[-1]
        return row

    @property
    def how(self) -> str:
        """How its posteriors were obtained."""
        return self.scored.how

    @property
    def hit_ratio(self) -> float:
        """How often its first guess is the source."""
        return float(self.overall["hit_ratio"])

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the hit ratio."""
        low, high = self.overall["hit_ratio_interval"]
        return float(low), float(high)

    @property
    def node_entropy_nats(self) -> float:
        """Mean entropy over nodes of its posterior."""
        return float(self.overall["node_entropy_nats"])

    @property
    def blind_hit_ratio(self) -> float | None:
        """How often a guess from the prior would be right; None of linked updates."""
        found = self.overall.get("blind_hit_ratio")
        return None if found is None else float(found)

    @property
    def times_floor(self) -> float | None:
        """The hit ratio over the share of nodes that collude, which no routing goes below; None of who do not."""
        found = self.overall.get("times_floor")
        return None if found is None else float(found)

    @property
    def by_return_time(self) -> list[dict[str, Any]]:
        """The same by bands of return times, the shortest first."""
        return list(self.report.get("by_return_time", []))

    @property
    def by_linked_updates(self) -> list[dict[str, Any]]:
        """The same by how many updates are known to have one source."""
        return list(self.report.get("by_linked_updates", []))

    @property
    def worst_destination(self) -> dict[str, Any] | None:
        """The destination that knows most, among those with enough updates to say."""
        return self.report.get("worst_destination")

    @property
    def worst_arc(self) -> dict[str, Any] | None:
        """The destination and last hop that tell most, among those with enough updates to say."""
        return self.report.get("worst_arc")

    @property
    def worst_percent(self) -> dict[str, Any] | None:
        """The row over the percent of updates that it knows most about; None of linked updates."""
        return self.report.get("worst_percent")


@dataclass(frozen=True, eq=False, kw_only=True)
class Audit:
    """What each observer learns of a scheme: ``audit["last-hop"].hit_ratio``.

    Attributes:
        plan: What was attacked and how.
        findings: What each observer makes of it.
        updates: How many updates were played.
        complete: Whether these are all that were asked for.
        hops_per_update: Their mean hops, measured.
        hops_per_update_predicted: The same from the chain of the walk, None where it has none.
        return_time_mean: Mean return time, None of a plain walk.
        posterior_by_distance: Exact posterior of one node by distance and return time.
        left_out: Observers of ``all`` that take too long or proved impossible, each with the reason.
        anonymity_floor_nats: The distance entropy that the design promises.
    """

    plan: Plan = field(repr=False)
    findings: dict[str, Findings] = field(repr=False)
    updates: int
    complete: bool
    hops_per_update: Estimate
    hops_per_update_predicted: float | None
    return_time_mean: float | None
    posterior_by_distance: list[dict[str, Any]] = field(repr=False)
    left_out: dict[str, str]
    anonymity_floor_nats: float | None

    def __getitem__(self, observer: str) -> Findings:
        if observer not in self.findings:
            raise InvalidParameterError("observer", observer, f"among those asked: {', '.join(self.findings)}")
        return self.findings[observer]

    def __iter__(self) -> Iterator[str]:
        return iter(self.findings)

    def __contains__(self, observer: object) -> bool:
        return observer in self.findings

    def record(self) -> Record:
        """Return all of it as a record."""
        plan, scheme = self.plan, self.plan.scheme
        hops = self.hops_per_update
        names = {"graph": scheme.graph.name, "law": scheme.law.name}
        settings = {key: value for key, value in asdict(plan.settings).items() if key not in _NOT_PARAMS}
        settings |= {"walk": scheme.walk.kind, "posterior": plan.posterior}
        settings |= {"recipients": scheme.recipients}
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
                "observers": {name: found.report for name, found in self.findings.items()},
                "posterior_by_distance": self.posterior_by_distance,
                "left_out": self.left_out,
            }
            | ({} if scheme.graph.labels is None else {"labels": list(scheme.graph.labels)}),
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return tidy rows: an observer and a band of return times, or a number of linked updates, each."""
        found: list[dict[str, Any]] = []
        for name, one in self.findings.items():
            whole = [("all", one.overall)] if "overall" in one.report else []
            parts = [("return time", row) for row in one.by_return_time]
            parts += [("linked updates", row) for row in one.by_linked_updates]
            for part, row in (*whole, *parts):
                ends = {
                    f"{key.removesuffix('_interval')}_{end}": value[place]
                    for key, value in row.items()
                    if key.endswith("_interval")
                    for place, end in enumerate(("low", "high"))
                }
                plain = {key: value for key, value in row.items() if not key.endswith("_interval")}
                found.append({"observer": name, "how": one.how, "part": part} | plain | ends)
        return found

    def to_frame(self) -> Any:
        """Return :meth:`rows` as a pandas data frame; only this needs pandas."""
        return frame(self.rows())

    def _repr_html_(self) -> str:
        rows = [
            {
                "observer": name,
                "node entropy, nats": f"{one.node_entropy_nats:.3f}",
                "hit ratio": f"{one.hit_ratio:.4f}",
                "95%": "{:.4f} to {:.4f}".format(*one.interval),
                "blind": "" if one.blind_hit_ratio is None else f"{one.blind_hit_ratio:.4f}",
                "times floor": "" if one.times_floor is None else f"{one.times_floor:.2f}",
                "how": one.how,
            }
            for name, one in self.findings.items()
        ]
        empty = dict.fromkeys(rows[0], "")
        not_run = [empty | {"observer": name, "how": f"not run: {reason}"} for name, reason in self.left_out.items()]
        return html_table([*rows, *not_run])


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
        progress: True for a bar on standard error, or a function that is told what is going on.
        options: fields of :class:`AuditSettings`, to be set instead of or beside ``settings``.

    Example:
        >>> from veilwalk.design import choose_scheme
        >>> from veilwalk.graphs import random_regular
        >>> scheme = choose_scheme(random_regular(20, 3, seed=1), "uniform-node", support=(2, 3))
        >>> found = audit(scheme, updates=2_000, observers="prior,last-hop")
        >>> found["last-hop"].how, found["prior"].hit_ratio < found["last-hop"].hit_ratio
        ('exact', True)
    """
    validate.instance(
        Scheme, "a Scheme: of recommended_scheme(graph), choose_scheme(graph) or design(graph).scheme", scheme=scheme
    )
    validate.instance((AuditSettings, type(None)), "AuditSettings, or options by name", settings=settings)
    validate.instance((JobStore, type(None)), "a JobStore", store=store)
    validate.options(AuditSettings, options)
    plan = make_plan(scheme, replace(settings or AuditSettings(), **options))
    with show_progress(progress=progress) as listener, open_engine(executor) as workers:
        attack = Attack(plan, listener, Work(workers, store, None if store is None else _named(plan), device))
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
        "law": law_digest(scheme.law.rows),
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
