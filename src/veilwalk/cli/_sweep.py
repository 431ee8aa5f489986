"""``veilwalk sweep``: train, audit or design over a grid of settings, each case a job."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilwalk.cli._output import drawn, live_progress, print_table
from veilwalk.core.records import require_writable
from veilwalk.core.units import readable_bytes

if TYPE_CHECKING:
    from veilwalk.core.records import Record
    from veilwalk.experiments import SweepPlan

_SHOWN = (
    "accuracy",
    "loss",
    "node_entropy_nats",
    "hit_ratio",
    "membership_auc",
    "hops_per_update",
)


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="kind, [settings], [grid] and [[cases]].")],
    *,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the sweep: finished cases, tables, figure, page.")
    ] = Path("sweep"),
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            show_default="process",
            help="Where cases are run: serial, process, process:N, ray, ray://HOST:PORT or dask://HOST:PORT. "
            "It has no say in the result.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Count the cases, do one, print the time and memory all would take, and stop."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON instead of tables.")] = False,
) -> None:
    """Train, audit or design over a grid or list of settings.

    Every finished case is kept in --out: run again after a stop, or with more seeds, it goes on from there, on any
    engine. Cases that fail are listed with their error, and do not stop the rest; the exit code is then 1.

    Example: veilwalk sweep seeds.toml --out seeds --engine process:4
    """
    from veilwalk.engine import JobStore
    from veilwalk.experiments import SweepPlan
    from veilwalk.experiments import sweep as run_sweep

    require_writable(out)
    plan = SweepPlan.read(file)
    store, cases, cores = JobStore(out / "jobs"), len(plan.jobs()), len(os.sched_getaffinity(0))
    if dry_run:
        _foretell(plan, store, min(cores, cases))
        return
    plan.keep(out)
    chosen = engine or ("serial" if min(cores, cases) == 1 else "process")
    with live_progress() as progress:
        found = run_sweep(plan, executor=chosen, store=store, progress=progress)
    record = found.record()
    paths = [*found.write(out), *drawn(partial(_draw, record, out))]
    if as_json:
        typer.echo(json.dumps(record.to_dict(), indent=2))
    else:
        _print(record)
        for path in paths:
            typer.echo(f"wrote {path}")
    if found.failed:
        for one in found.failed:
            typer.echo(f"veilwalk: case {one['job']} failed: {one['error']}", err=True)
        raise typer.Exit(1)


def _foretell(plan: SweepPlan, store: Any, workers: int) -> None:
    from veilwalk.experiments import predicted

    with live_progress() as progress:
        progress("doing one case")
        found = predicted(plan, workers=workers, store=store)
    typer.echo(f"{found['jobs']} cases of {plan.kind}, {found['done']} of them done; swept: {', '.join(plan.swept)}")
    if found["error"] is not None:
        typer.echo(f"the first that is left fails: {found['error']}")
    elif found["seconds_each"]:
        typer.echo(
            f"one took {found['seconds_each']:.1f} s and is kept; the others about {found['seconds']:.0f} s on "
            f"{workers} cores, {readable_bytes(found['memory_bytes'])} each, if they are alike"
        )


def _draw(record: Record, folder: Path) -> list[Path]:
    from veilwalk.report import sweep_files

    return sweep_files(record, folder)


def _print(record: Record) -> None:
    """Print means over seeds, a row a group."""
    rows, swept = record.result["summary"], record.result["swept"]
    if not rows:
        return
    labels = [key for key in (*swept, "algorithm", "observer", "linked") if any(key in row for row in rows)]
    measures = [key for key in _SHOWN if any(key in row for row in rows)]
    print_table(
        record.params["sweep"],
        (*labels, ">runs", *(f">{key.replace('_', ' ')}" for key in measures)),
        [
            (
                *(str(row.get(key, "")) for key in labels),
                str(row["runs"]),
                *(_mean(row, key) for key in measures),
            )
            for row in rows
        ],
    )
    typer.echo(record.result["meaning"])


def _mean(row: Mapping[str, Any], key: str) -> str:
    """Return a mean with half of its interval, where it has one."""
    if key not in row:
        return "-"
    half = (row.get(f"{key}_high", row[key]) - row.get(f"{key}_low", row[key])) / 2
    return f"{row[key]:.4g}" + (f" ± {half:.2g}" if half else "")
