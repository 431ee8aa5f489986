"""Sweeps: one verb over a grid or a list of settings, each case a job; tidy rows, means and intervals over seeds."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from veilwalk.audit import AuditSettings, audit, parse_colluders
from veilwalk.core.config import key_of, read_toml
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.records import Record, plain, write_atomically
from veilwalk.core.stats import estimate_mean
from veilwalk.core.tables import csv_table, frame, html_table, parquet_table
from veilwalk.core.validate import refuse_removed
from veilwalk.design import LawRequest, design
from veilwalk.engine import Engine, JobFailure, JobStore, open_engine, run_jobs
from veilwalk.graphs import parse_graph_spec
from veilwalk.training import AUDIT, TRAIN, RunSpec, Scenario, build_scheme, run_training

Settings = Mapping[str, Any]
Rows = list[dict[str, Any]]
_GRAPH = "rrg:300:3:seed=1"
# What the files that a case names hold, among its settings; no verb has such a key.
_FILES = "files"
# Settings of an audit that say what it attacks.
_OF_SCHEMES = tuple(item.key for item in AUDIT.options)
_MEASURES = ("node_entropy_nats", "hit_ratio", "blind_hit_ratio", "distance_entropy_nats", "times_floor")
_TABLES = ("kind", "settings", "grid", "cases")
# A job's own number, and what its rows are averaged over.
_JOB, _SEED = "job", "seed"
_PLAN = "plan.json"
#: Columns that say which part of a case a row is of.
PARTS = ("algorithm", "observer", "linked")


def train_case(settings: Settings) -> Rows:
    """Train, and return a row an algorithm."""
    result = run_training(Scenario.from_spec(TRAIN.read(settings))).record().result
    noisy = result["privacy"] or {"algorithms": {}}
    rows = []
    for name, outcome in result["algorithms"].items():
        row = {"algorithm": name, "accuracy": outcome["accuracy"], "loss": outcome["loss"]} | outcome["scores"]
        row |= {key: outcome[key] for key in ("hops_per_update", "bytes_per_update", "accuracy_at_equal_hops")}
        row |= {key: outcome["anonymity"][key] for key in ("node_entropy_nats", "hit_ratio")}
        row["epsilon"] = noisy["algorithms"].get(name, {}).get("epsilon_sender_known")
        # Without an audit there is no entropy, and without noise no epsilon.
        rows.append({key: value for key, value in row.items() if value is not None})
    return rows


def audit_case(settings: Settings) -> Rows:
    """Audit, and return a row an observer; of one that joins updates, a row a number of them."""
    spec = _read_attacked(settings)
    graph, options = parse_graph_spec(spec.graph), _take_options(AuditSettings, settings)
    if isinstance(options.get("colluders"), str):
        (options["colluders"],) = parse_colluders(options["colluders"], graph.n_nodes, single=True)
    result = audit(build_scheme(graph, spec), AuditSettings(**options))
    rows = []
    for entry in result.rows():
        if entry["part"] != "return time":
            columns = ["observer", "linked", *(key for key in _MEASURES if entry.get(key) is not None)]
            row = {key: entry[key] for key in columns if key in entry}
            rows.append(row | {"hops_per_update": result.hops_per_update.mean})
    return rows


def _read_attacked(settings: Settings) -> RunSpec:
    """Return the network and the scheme to attack, as ``audit`` takes them."""
    return AUDIT.read({"graph": _GRAPH} | {key: settings[key] for key in _OF_SCHEMES if key in settings})


def design_case(settings: Settings) -> Rows:
    """Design, and return one row."""
    law = {"law": settings["law"]} if "law" in settings else {}
    result = design(**({"graph": _GRAPH} | _take_options(LawRequest, settings) | law))
    content = result.to_dict()
    names = ("blind_node_entropy_nats", "node_entropy_nats", "hit_ratio")
    return [{"hops_per_update": result.price.hops} | {name: content[name] for name in names if name in content}]


def _take_options(settings_type: Any, settings: Settings) -> dict[str, Any]:
    """Return the settings that are fields of a dataclass, by the names of the fields."""
    return {field.name: settings[key_of(field)] for field in fields(settings_type) if key_of(field) in settings}


@dataclass(frozen=True, kw_only=True)
class SweepKind:
    """One verb that sweeps run; ``meaning`` says what its numbers are.

    ``run`` returns the tidy rows of one case, and other processes can import it; ``check`` refuses unknown settings.
    """

    run: Callable[[Settings], Rows]
    check: Callable[[Settings], object]
    meaning: str


def _check_audit(settings: Settings) -> None:
    _read_attacked(settings)
    _check_fields(AuditSettings, _OF_SCHEMES, settings)


def _check_fields(settings_type: Any, more: Sequence[str], settings: Settings) -> None:
    """Refuse a key that is neither a field of the dataclass nor one of ``more``."""
    known = {key_of(field) for field in fields(settings_type)} | {*more}
    for key in settings:
        if key not in known:
            raise ConfigError(f"unknown key {key!r}: must be one of {', '.join(sorted(known))}")


#: What can be swept, by its verb.
KINDS: Mapping[str, SweepKind] = {
    "train": SweepKind(
        run=train_case,
        check=TRAIN.read,
        meaning="Node entropy (nats) and hit ratio are the receiver's, by what the route tells it, "
        "as `train` has them.",
    ),
    "audit": SweepKind(
        run=audit_case,
        check=_check_audit,
        meaning="Node entropy (nats) and hit ratio are of each observer, exact or estimated as `audit` says.",
    ),
    "design": SweepKind(
        run=design_case,
        check=partial(_check_fields, LawRequest, ("law",)),
        meaning="Node entropy (nats) and hit ratio are the opener's, exact or estimated as `design` says.",
    ),
}


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """What to run over which settings: every case of the list with every point of the grid.

    All cases share the ``settings``; the ``grid`` has lists of values by key, ``cases`` have further settings each.
    """

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    cases: Sequence[Mapping[str, Any]] = ()
    #: The verbs that a plan may name.
    kinds: ClassVar[Mapping[str, SweepKind]] = KINDS

    def __post_init__(self) -> None:
        self._check_types()
        for place in (self.grid, *self.cases):
            twice = sorted(set(place) & set(self.settings))
            if twice:
                raise ConfigError(f"{twice[0]!r} is both fixed and swept: leave it out of one")
        for case in self.cases:
            if set(case) & set(self.grid):
                raise ConfigError(f"{min(set(case) & set(self.grid))!r} is both in the grid and in a case")
        for job in self.jobs():
            self.verb.check(job)

    def _check_types(self) -> None:
        """Refuse what a file may hold in the place of words, tables and lists."""
        kind: object = self.kind
        cases: object = self.cases
        if not isinstance(kind, str) or kind not in self.kinds:
            refuse_removed("kind", str(kind))
            raise InvalidParameterError("kind", kind, f"one of {', '.join(self.kinds)}")
        for name, table in (("settings", self.settings), ("grid", self.grid)):
            if not isinstance(table, Mapping):
                raise InvalidParameterError(name, table, "a table")
        if not isinstance(cases, Sequence) or not all(isinstance(case, Mapping) for case in cases):
            raise InvalidParameterError("cases", cases, "a list of tables")
        given: Mapping[str, Any] = self.grid
        for key, values in given.items():
            if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
                raise InvalidParameterError(f"grid: {key}", values, "a list of one or more values")

    @classmethod
    def read(cls, path: Path) -> SweepPlan:
        """Read a file: ``kind``, and where they are there tables ``[settings]`` and ``[grid]``, and ``[[cases]]``."""
        content = read_toml(path)
        for key in content:
            if key not in _TABLES:
                raise ConfigError(f"{path}: unknown key {key!r}: must be one of {', '.join(_TABLES)}")
        if "kind" not in content:
            raise ConfigError(f"{path}: lacks 'kind'")
        return cls(**content)

    def save(self, folder: Path) -> None:
        """Write the plan into the folder of its sweep, so that others can tell what its files are."""
        parts = {name: plain(getattr(self, name)) for name in _TABLES}
        write_atomically(folder / _PLAN, (json.dumps(parts, indent=2) + "\n").encode())

    @property
    def verb(self) -> SweepKind:
        """What runs and checks the cases."""
        return self.kinds[self.kind]

    @property
    def swept(self) -> list[str]:
        """The keys that differ between cases, in the order given."""
        return list(dict.fromkeys([key for case in self.cases for key in case] + list(self.grid)))

    def jobs(self) -> list[dict[str, Any]]:
        """Return the settings of every case, the last key of the grid fastest."""
        points = [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]
        return [dict(self.settings) | dict(case) | point for case in (self.cases or ({},)) for point in points]

    def run(self, jobs: list[dict[str, Any]], *, store: JobStore | None, **options: Any) -> list[Any]:
        """Run cases as jobs; one that fails stops no other."""
        what = {"kind": "sweep", "of": self.kind}
        return run_jobs(run_case, jobs, common=(self.verb.run,), store=store, what=what, keep_failures=True, **options)

    def estimate_cost(self, *, workers: int, store: JobStore) -> dict[str, Any]:
        """Do the first case that is not in the store, keep its result, and estimate what all the others would take.

        Returns how many cases there are and how many are done, the seconds of one, those of all that are left on so
        many workers, and the most memory that this process has taken, which is what each worker takes.
        """
        jobs, what = list_jobs(self.jobs()), {"kind": "sweep", "of": self.kind}
        left = [job for job in jobs if store.load(what, job) is None]
        counts: dict[str, Any] = {"jobs": len(jobs), "done": len(jobs) - len(left), "error": None}
        if not left:
            return counts | {"seconds_each": 0.0, "seconds": 0.0, "memory_bytes": 0}
        began = time.perf_counter()
        (result,) = self.run(left[:1], store=store)
        each = time.perf_counter() - began
        rounds = math.ceil((len(left) - 1) / workers)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        error = result.error if isinstance(result, JobFailure) else None
        return counts | {"seconds_each": each, "seconds": rounds * each, "memory_bytes": memory, "error": error}


@dataclass(frozen=True, eq=False, kw_only=True)
class Sweep:
    """What came of a sweep: its plan, tidy ``rows``, and cases that ``failed``, each with settings and error."""

    plan: SweepPlan
    rows: list[dict[str, Any]]
    failed: list[dict[str, Any]]

    def summary(self) -> list[dict[str, Any]]:
        """Return means over seeds of all that is alike but for the seed, each with its 95% interval."""
        labels = [key for key in (*self.plan.swept, *PARTS) if key != _SEED]
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.rows:
            groups.setdefault(tuple(row.get(key) for key in labels), []).append(row)
        means = []
        for values, rows in groups.items():
            named = {key: value for key, value in zip(labels, values, strict=True) if value is not None}
            measures = [key for key in rows[0] if key not in {*labels, _JOB, _SEED}]
            means.append(named | {"runs": len(rows)} | _means(rows, measures))
        return means

    def write(self, folder: Path) -> list[Path]:
        """Write record, rows and summary; rows as Parquet too where pyarrow is there."""
        files = {"record.json": self.record().to_json().encode()}
        files |= {"sweep.csv": csv_table(self.rows), "summary.csv": csv_table(self.summary())}
        parquet = parquet_table(self.rows)
        files |= {} if parquet is None else {"sweep.parquet": parquet}
        for name, data in files.items():
            write_atomically(folder / name, data)
        return [folder / name for name in files]

    def to_frame(self) -> Any:
        """Return the rows as a pandas data frame; only this needs pandas."""
        return frame(self.rows)

    def _repr_html_(self) -> str:
        return html_table(self.summary())

    def record(self) -> Record:
        """Return what was asked, by which code, and what came out."""
        plan = self.plan
        params = {"sweep": plan.kind, "settings": plan.settings, "grid": plan.grid, "cases": plan.cases}
        meaning = f"Means over seeds, with 95% t intervals over seeds where there are several. {plan.verb.meaning}"
        result = {"meaning": meaning, "jobs": len(plan.jobs()), "swept": plan.swept, "rows": self.rows}
        return Record(kind="sweep", params=params, result=result | {"summary": self.summary(), "failed": self.failed})


def sweep(
    kind: str | SweepPlan,
    *,
    settings: Mapping[str, Any] | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    cases: Sequence[Mapping[str, Any]] = (),
    executor: Engine = None,
    store: JobStore | None = None,
    progress: Progress = silent,
) -> Sweep:
    """Run one verb over a grid or a list of settings; a case that fails stops no other.

    Args:
        kind: ``train``, ``audit`` or ``design``; or a plan, which says all.
        settings: What all cases share, by key as ``train --config`` has it.
        grid: Lists of values by key: all combinations are run.
        cases: Further settings, a mapping each, every one of them with the whole grid.
        executor: Where cases are run: any executor, or the name of an engine; None is here, one after the other.
        store: Where finished cases are kept; a sweep that was stopped or extended goes on from them.
        progress: Told after each case.

    Example:
        >>> fixed = {"graph": "rrg:20:3:seed=1", "support": "2:3", "observers": "last-hop", "updates": 500}
        >>> results = sweep("audit", settings=fixed, grid={"law": ["plain", "uniform-node"], "seed": [1, 2]})
        >>> [(row["law"], row["runs"], row["hit_ratio"] > 0.5) for row in results.summary()]
        [('plain', 2, True), ('uniform-node', 2, False)]
    """
    plan = kind
    if not isinstance(plan, SweepPlan):
        plan = SweepPlan(kind=plan, settings=settings or {}, grid=grid or {}, cases=cases)
    with open_engine(executor) as workers:
        results = plan.run(list_jobs(plan.jobs()), store=store, executor=workers, stage="cases", progress=progress)
    return _collect_rows(plan, dict(enumerate(results)))


def _collect_rows(plan: SweepPlan, results: Mapping[int, Any]) -> Sweep:
    """Return the rows of cases, by their numbers."""
    rows, failed, jobs = [], [], plan.jobs()
    for number, result in results.items():
        about = {_JOB: number} | {key: jobs[number].get(key) for key in plan.swept}
        if isinstance(result, JobFailure):
            failed.append(about | {"error": result.error})
        else:
            rows += [about | row for row in result]
    return Sweep(plan=plan, rows=rows, failed=failed)


def _means(rows: Sequence[Mapping[str, Any]], measures: Sequence[str]) -> dict[str, Any]:
    """Return the mean of each measure with its interval by Student's law; none where there is one run."""
    means: dict[str, Any] = {}
    for name in measures:
        values = [row[name] for row in rows if isinstance(row.get(name), int | float)]
        if not values:
            continue
        estimate = estimate_mean(np.asarray(values, np.float64), student=True)
        means[name] = estimate.mean
        if len(values) > 1:
            means[f"{name}_low"], means[f"{name}_high"] = estimate.interval
    return dict(plain(means))


def run_case(run: Callable[[Settings], Rows], job: Settings) -> Rows:
    """Run one case; what comes back is plain data."""
    return list(plain(run({key: value for key, value in job.items() if key != _FILES})))


def list_jobs(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return cases as jobs: one that names files also says what they hold, so that other content is another job."""
    known: dict[Path, str] = {}
    jobs = []
    for case in cases:
        digests = {}
        for key, value in case.items():
            for path in _files(value):
                if path not in known:
                    with path.open("rb") as stream:
                        known[path] = hashlib.file_digest(stream, "sha256").hexdigest()
                digests[f"{key}: {path.name}"] = known[path]
        jobs.append(case | ({_FILES: digests} if digests else {}))
    return jobs


def _files(value: Any) -> list[Path]:
    """Return the files that a setting names: a file, alone or after a word, or a folder of files after a word."""
    if not isinstance(value, str):
        return []
    after = value.partition(":")[2]
    for name in (value, after, after.partition(":")[0]):
        if name and Path(name).is_file():
            return [Path(name)]
        if name and name != value and Path(name).is_dir():
            return sorted(path for path in Path(name).iterdir() if path.is_file())
    return []
