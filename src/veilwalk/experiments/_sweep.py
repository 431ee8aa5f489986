"""Sweeps: one verb over a grid or a list of settings, each case a job; tidy rows, means and intervals over seeds."""

from __future__ import annotations

import itertools
import json
import math
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from veilwalk.core.config import read_toml
from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.records import Record, plain, write_atomically
from veilwalk.core.stats import half_width
from veilwalk.core.tables import csv_table, frame, html_table, parquet_table
from veilwalk.engine import Engine, JobFailure, JobStore, open_engine, run_jobs
from veilwalk.experiments._sweep_jobs import KINDS, MEANINGS, PARTS, check_case, jobs_of, run_case

_TABLES = ("kind", "settings", "grid", "cases")
# A job's own number, and what its rows are averaged over.
_JOB, _SEED = "job", "seed"
_PLAN = "plan.json"


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """What to run over which settings: every case of the list with every point of the grid.

    Attributes:
        kind: ``train``, ``learn``, ``audit``, ``design`` or ``routes``.
        settings: What all cases share, by key as files have it.
        grid: Lists of values by key: all combinations are run.
        cases: Further settings, a mapping each; none is one case without any.
    """

    kind: str
    settings: Mapping[str, Any]
    grid: Mapping[str, Sequence[Any]]
    cases: Sequence[Mapping[str, Any]] = ()

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
            check_case(self.kind, job)

    def _check_types(self) -> None:
        """Refuse what a file may hold in the place of words, tables and lists."""
        kind: object = self.kind
        cases: object = self.cases
        if not isinstance(kind, str) or kind not in KINDS:
            raise InvalidParameterError("kind", kind, f"one of {', '.join(KINDS)}")
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
        given = read_toml(path)
        for key in given:
            if key not in _TABLES:
                raise ConfigError(f"{path}: unknown key {key!r}: must be one of {', '.join(_TABLES)}")
        if "kind" not in given:
            raise ConfigError(f"{path}: lacks 'kind'")
        return cls(
            kind=given["kind"],
            settings=given.get("settings", {}),
            grid=given.get("grid", {}),
            cases=given.get("cases", ()),
        )

    def keep(self, folder: Path) -> None:
        """Write the plan into the folder of its sweep, so that others can tell what its files are."""
        parts = {name: plain(getattr(self, name)) for name in _TABLES}
        write_atomically(folder / _PLAN, (json.dumps(parts, indent=2) + "\n").encode())

    @classmethod
    def kept(cls, folder: Path) -> SweepPlan:
        """Return the plan of the sweep in ``folder``."""
        try:
            return cls(**json.loads((folder / _PLAN).read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise InputFileError(f"{folder / _PLAN}: not the plan of a sweep ({error})") from error

    @property
    def swept(self) -> list[str]:
        """The keys that differ between cases, in the order given."""
        return list(dict.fromkeys([key for case in self.cases for key in case] + list(self.grid)))

    def jobs(self) -> list[dict[str, Any]]:
        """Return the settings of every case, the last key of the grid fastest."""
        points = [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]
        return [dict(self.settings) | dict(case) | point for case in (self.cases or ({},)) for point in points]


@dataclass(frozen=True, eq=False, kw_only=True)
class Sweep:
    """What came of a sweep.

    Attributes:
        plan: What was run.
        rows: Tidy: the number of the case, what was swept, which part of it, and what was measured.
        failed: Cases that failed, each with its settings and the error; the others went on.
    """

    plan: SweepPlan
    rows: list[dict[str, Any]]
    failed: list[dict[str, Any]]

    def summary(self) -> list[dict[str, Any]]:
        """Return means over seeds of all that is alike but for the seed, each with its 95% interval."""
        labels = [key for key in (*self.plan.swept, *PARTS) if key != _SEED]
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.rows:
            groups.setdefault(tuple(row.get(key) for key in labels), []).append(row)
        found = []
        for values, rows in groups.items():
            named = {key: value for key, value in zip(labels, values, strict=True) if value is not None}
            measures = [key for key in rows[0] if key not in {*labels, _JOB, _SEED}]
            found.append(named | {"runs": len(rows)} | _means(rows, measures))
        return found

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
        return html_table([{key: str(value) for key, value in row.items()} for row in self.summary()])

    def record(self) -> Record:
        """Return what was asked, by which code, and what came out."""
        plan = self.plan
        params = {"sweep": plan.kind, "settings": plan.settings, "grid": plan.grid, "cases": plan.cases}
        meaning = f"Means over seeds, with 95% t intervals over seeds where there are several. {MEANINGS[plan.kind]}"
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
        kind: ``train``, ``learn``, ``audit``, ``design`` or ``routes``; or a plan, which says all.
        settings: What all cases share, by key as ``train --config`` has it.
        grid: Lists of values by key: all combinations are run.
        cases: Further settings, a mapping each, every one of them with the whole grid.
        executor: Where cases are run: any executor, or the name of an engine; None is here, one after the other.
        store: Where finished cases are kept; a sweep that was stopped or extended goes on from them.
        progress: Told after each case.

    Example:
        >>> fixed = {"graph": "rrg:20:3:seed=1", "support": "2:3", "observers": "last-hop", "updates": 500}
        >>> found = sweep("audit", settings=fixed, grid={"law": ["plain", "uniform-node"], "seed": [1, 2]})
        >>> [(row["law"], row["runs"], row["hit_ratio"] > 0.5) for row in found.summary()]
        [('plain', 2, True), ('uniform-node', 2, False)]
    """
    if isinstance(kind, SweepPlan):
        plan = kind
    else:
        plan = SweepPlan(kind=kind, settings=settings or {}, grid=grid or {}, cases=cases)
    jobs = plan.jobs()
    with open_engine(executor) as workers:
        results = run_jobs(
            run_case,
            jobs_of(jobs),
            common=(plan.kind,),
            executor=workers,
            store=store,
            what={"kind": "sweep", "of": plan.kind},
            keep_failures=True,
            stage="cases",
            progress=progress,
        )
    return _gathered(plan, dict(enumerate(results)))


def finished_cases(plan: SweepPlan, store: JobStore) -> tuple[Sweep, int]:
    """Return what came of the cases that are in the store so far, and how many they are."""
    what, found = {"kind": "sweep", "of": plan.kind}, {}
    for number, job in enumerate(jobs_of(plan.jobs())):
        if (result := store.found(what, job)) is not None:
            found[number] = result
    return _gathered(plan, found), len(found)


def _gathered(plan: SweepPlan, results: Mapping[int, Any]) -> Sweep:
    """Return the rows of cases, by their numbers."""
    rows, failed, jobs = [], [], plan.jobs()
    for number, result in results.items():
        about = {_JOB: number} | {key: jobs[number].get(key) for key in plan.swept}
        if isinstance(result, JobFailure):
            failed.append(about | {"error": result.error})
        else:
            rows += [about | row for row in result]
    return Sweep(plan=plan, rows=rows, failed=failed)


def predicted(plan: SweepPlan, *, workers: int, store: JobStore | None = None) -> dict[str, Any]:
    """Do the first case that is not in the store, and say what all the others would take.

    Returns:
        How many cases there are and how many are done, the seconds of one, those of all that are left on so many
        workers, and the most memory that this process has taken, which is what each worker takes. What was done is
        kept.
    """
    jobs, what = jobs_of(plan.jobs()), {"kind": "sweep", "of": plan.kind}
    left = [job for job in jobs if store is None or store.found(what, job) is None]
    found: dict[str, Any] = {"jobs": len(jobs), "done": len(jobs) - len(left), "error": None}
    if not left:
        return found | {"seconds_each": 0.0, "seconds": 0.0, "memory_bytes": 0}
    began = time.perf_counter()
    (result,) = run_jobs(
        run_case, left[:1], common=(plan.kind,), store=store, what=what if store else None, keep_failures=True
    )
    each = time.perf_counter() - began
    rounds = math.ceil((len(left) - 1) / workers)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    error = result.error if isinstance(result, JobFailure) else None
    return found | {"seconds_each": each, "seconds": rounds * each, "memory_bytes": memory, "error": error}


def _means(rows: Sequence[Mapping[str, Any]], measures: Sequence[str]) -> dict[str, Any]:
    """Return the mean of each measure with its interval by Student's law; none where there is one run."""
    found: dict[str, Any] = {}
    for name in measures:
        values = [row[name] for row in rows if isinstance(row.get(name), int | float)]
        if not values:
            continue
        found[name] = float(np.mean(values))
        if len(values) > 1:
            half = half_width(np.asarray(values, np.float64), student=True)
            found[f"{name}_low"], found[f"{name}_high"] = found[name] - half, found[name] + half
    return dict(plain(found))
