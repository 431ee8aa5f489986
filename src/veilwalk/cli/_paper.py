"""``veilwalk paper``: the paper's figures and claims, as printed and as they should be."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from veilwalk.cli._output import console, help_without_verb, print_table
from veilwalk.core.errors import InvalidParameterError

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """The paper's figures and claims, as printed and as they should be."""
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
    """Draw the paper's figures for c = 3 and c = 4: printed formulas, corrected ones, and exact chains.

    Example: veilwalk paper reproduce trade-off --out figures
    """
    from veilwalk import experiments

    if figure not in (*experiments.FIGURES, "all"):
        raise InvalidParameterError("figure", figure, f"one of {', '.join(experiments.FIGURES)}, all")
    from veilwalk.report import figure_files

    screen = console()
    with screen.status("starting") as status:
        for name in experiments.FIGURES if figure == "all" else (figure,):
            record = experiments.reproduce(name, n_graphs=graphs, seed=seed, say=status.update)
            for path in figure_files(record, out):
                screen.print(f"wrote {path}")


@app.command("claims")
def claims(
    *, as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array instead of a table.")] = False
) -> None:
    """List every claim of the paper with the function that implements it and how it stands.

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
