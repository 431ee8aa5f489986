"""What an audit found, as values: for each observer, for all of them, as a record, as rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from veilwalk.audit._plan import Plan
from veilwalk.audit._report import Scored, observer_report
from veilwalk.audit._scores import Estimate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.records import Record
from veilwalk.core.tables import frame, html_table

# What depends on the machine, or is told elsewhere.
_NOT_PARAMS = {"seed", "horizon", "memory_bytes"}


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
        left_out: Observers of ``all`` that proved impossible, each with the reason.
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
        return html_table(
            [
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
        )
