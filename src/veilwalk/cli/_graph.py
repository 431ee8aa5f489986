"""``veilwalk graph``: look at a network before designing for it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from veilwalk.cli._output import help_without_verb, print_table
from veilwalk.core.records import plain

app = typer.Typer(rich_markup_mode=None)

SPEC_HELP = (
    "rrg:NODES:DEGREE, er:NODES:MEAN_DEGREE, ba:NODES:ATTACH, ws:NODES:DEGREE:REWIRE (each with :seed=S), "
    "ring:NODES, torus:SIDE:SIDE, hypercube:DIMENSION, complete:NODES, or file:PATH (edge list, CSV, .mtx, .npz; "
    ".gz too); er, ws and file take :component=largest."
)


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Look at a network."""
    help_without_verb(context)


@app.command("info")
def info(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help=SPEC_HELP, show_default=False)],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Print nodes, edges, degrees, diameter, spectral gap and shell sizes.

    Example: veilwalk graph info rrg:300:3:seed=1
    """
    from veilwalk.graphs import parse_graph_spec, summary

    result = summary(parse_graph_spec(spec)).to_dict()
    if as_json:
        typer.echo(json.dumps(plain({"graph": spec, **result}), indent=2))
        return
    shells = result.pop("mean_shell_sizes")
    rows = [
        (name.replace("_", " "), f"{value:.6g}" if isinstance(value, float) else str(value))
        for name, value in result.items()
    ]
    print_table(spec, ("property", "value"), rows)
    print_table(
        "nodes at each distance, mean over the shell sources",
        (">distance", ">nodes"),
        [(str(distance), f"{size:.2f}") for distance, size in enumerate(shells)],
    )
