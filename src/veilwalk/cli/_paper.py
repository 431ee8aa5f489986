"""``veilwalk paper``: the paper's figures and claims, as printed and as they should be."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from veilwalk.cli._output import console, drawn, help_without_verb, live_progress, print_table
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.records import Record, require_writable, write_atomically

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """The paper's figures and claims, printed and corrected."""
    help_without_verb(context)


@app.command("reproduce")
def reproduce(
    figure: Annotated[
        str, typer.Argument(metavar="FIGURE", help="side-information, probability, trade-off or all.")
    ] = "all",
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for PNG, SVG, CSV and JSON.")],
    graphs: Annotated[int, typer.Option(help="Sampled graphs behind the exact curves, for each degree.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the sampled graphs.")] = 1,
) -> None:
    """Draw the paper's figures: printed, corrected and exact.

    For c = 3 and c = 4: printed formulas, corrected ones, and exact chains.

    Example: veilwalk paper reproduce trade-off --out figures
    """
    from veilwalk import experiments

    if figure not in (*experiments.FIGURES, "all"):
        raise InvalidParameterError("figure", figure, f"one of {', '.join(experiments.FIGURES)}, all")
    require_writable(out)
    for name in experiments.FIGURES if figure == "all" else (figure,):
        with live_progress() as progress:
            record = experiments.reproduce(name, n_graphs=graphs, seed=seed, progress=progress)
        for path in drawn(partial(_draw, record, out)) or [_written(record, out / f"{name}.json")]:
            typer.echo(f"wrote {path}")


def _draw(record: Record, folder: Path) -> list[Path]:
    from veilwalk.report import figure_files

    return figure_files(record, folder)


def _written(record: Record, path: Path) -> Path:
    write_atomically(path, record.to_json().encode())
    return path


@app.command("claims")
def claims(
    *, as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array instead of a table.")] = False
) -> None:
    """List the paper's claims and how each stands here.

    Each with the function that implements it.

    as-printed: holds as the paper has it. corrected: wrong or loose in print, right here. not-reproduced: the
    paper's own numbers cannot be had, and the note says why.
    """
    from veilwalk.experiments import load_claims

    found = load_claims()
    if as_json:
        typer.echo(json.dumps([asdict(claim) for claim in found], indent=2))
        return
    print_table(
        "the paper's claims",
        ("label", "kind", "status", "function"),
        [(claim.label, claim.kind, claim.status, claim.function.removeprefix("veilwalk.")) for claim in found],
    )
    for claim in found:
        if claim.note:
            console().print(f"{claim.label}: {claim.note}", style="dim")
