"""``veilwalk paper``: the paper's figures and claims, as printed and as they should be."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from veilwalk.cli._output import console, drawn_or_kept, help_without_verb, live_progress, print_table
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.records import require_writable

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
    nodes: Annotated[int, typer.Option(help="Of another network than the paper's: its nodes.")] = 300,
    degree: Annotated[
        str, typer.Option(metavar="C[,C...]", help="Its degree; several are drawn side by side.")
    ] = "3,4",
    support: Annotated[str, typer.Option(metavar="LO:HI", help="Distances that destinations are drawn from.")] = "2:6",
) -> None:
    """Draw the paper's figures: printed, corrected and exact.

    For c = 3 and c = 4: printed formulas, corrected ones, and exact chains. The same for other random regular graphs.

    Example: veilwalk paper reproduce trade-off --out figures
    """
    from veilwalk import experiments
    from veilwalk.core.support import DistanceSupport

    if figure not in (*experiments.FIGURES, "all"):
        raise InvalidParameterError("figure", figure, f"one of {', '.join(experiments.FIGURES)}, all")
    network: dict[str, Any] = {"n_nodes": nodes, "degrees": _degrees(degree), "support": DistanceSupport.parse(support)}
    require_writable(out)
    for name in experiments.FIGURES if figure == "all" else (figure,):
        with live_progress() as progress:
            record = experiments.reproduce(name, n_graphs=graphs, seed=seed, progress=progress, **network)
        for path in drawn_or_kept("figure_files", record, out / f"{name}.json"):
            typer.echo(f"wrote {path}")


def _degrees(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidParameterError("degree", text, "one or more whole numbers, such as 3 or 3,4") from None


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
