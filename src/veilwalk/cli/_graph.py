"""``veilwalk graph``: look at a network before designing for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from veilwalk.cli._output import announce_compiling, help_without_verb, print_table
from veilwalk.core.records import plain

if TYPE_CHECKING:
    from veilwalk.graphs import Graph, GraphSummary

_SHOWN_LABELS = 4

app = typer.Typer(rich_markup_mode=None)

SPEC_HELP = (
    "rrg:NODES:DEGREE, er:NODES:MEAN_DEGREE, ba:NODES:ATTACH, ws:NODES:DEGREE:REWIRE, "
    "geometric:NODES:RADIUS (each with :seed=S), "
    "ring:NODES, torus:SIDE:SIDE, hypercube:DIMENSION, complete:NODES, or file:PATH (edge list, CSV, TSV, GraphML, "
    "GML, node-link JSON, .adjlist, .mtx, .npz; .gz too); er, ws, geometric and file take :component=largest."
)


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Look at a network."""
    help_without_verb(context)


def network_of(spec: str) -> Graph:
    """Return the network that a spec names; whoever reads one may have to compile first, and says so."""
    from veilwalk.graphs import parse_graph_spec

    announce_compiling()
    return parse_graph_spec(spec)


@app.command("info")
def info(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help=SPEC_HELP, show_default=False)],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Print size, degrees, diameter, gap and shell sizes.

    Example: veilwalk graph info rrg:300:3:seed=1
    """
    from veilwalk.graphs import summary

    graph = network_of(spec)
    found = summary(graph)
    if as_json:
        typer.echo(json.dumps(plain({"graph": spec, **found.to_dict()}), indent=2))
        return
    print_table(spec, ("property", "value"), _rows(graph, found))
    print_table(
        f"nodes at each distance, mean over {'all' if found.shells_exact else found.shell_sources} nodes",
        (">distance", ">nodes"),
        [(str(distance), f"{size:.2f}") for distance, size in enumerate(found.mean_shell_sizes)],
    )


def _rows(graph: Graph, found: GraphSummary) -> list[tuple[str, str]]:
    regular = f"{found.degree_min} at every node"
    mixed = f"{found.degree_min} to {found.degree_max}, mean {found.degree_mean:.6g}"
    bounds = f"between {found.diameter_lower} and {found.diameter_upper}"
    rows = [
        ("nodes", str(found.nodes)),
        ("edges", str(found.edges)),
        ("degree", regular if found.regular else mixed),
        ("bipartite", "yes" if found.bipartite else "no"),
        ("diameter", str(found.diameter_upper) if found.diameter_exact else bounds),
        ("spectral gap", _gap(found.spectral_gap)),
        ("absolute spectral gap", _gap(found.absolute_spectral_gap)),
        ("digest", found.digest),
    ]
    if graph.labels is not None:
        first, last = graph.labels[:_SHOWN_LABELS], graph.labels[_SHOWN_LABELS:][-1:]
        rows.insert(1, ("labels", ", ".join([*first, *(["..."] if last else []), *last])))
    return rows


def _gap(value: float | None) -> str:
    return "not found: the graph is too large or mixes too slowly" if value is None else f"{value:.6g}"
