"""``veilwalk design``: choose how destinations are drawn; say what that guarantees and costs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilwalk.cli import _design_laws
from veilwalk.cli._graph import SPEC_HELP
from veilwalk.cli._output import console, print_table
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.records import plain
from veilwalk.core.support import DistanceSupport

if TYPE_CHECKING:
    from veilwalk.design import Design
    from veilwalk.graphs import Graph


def design(
    *,
    nodes: Annotated[int | None, typer.Option(help="Size N of a random regular network (closed forms).")] = None,
    degree: Annotated[int | None, typer.Option(help="Its degree c, at least 3.")] = None,
    graph: Annotated[
        str | None, typer.Option(metavar="SPEC", help=f"Design on this very graph instead, exactly. {SPEC_HELP}")
    ] = None,
    support: Annotated[str, typer.Option(metavar="LO:HI", help="Distances a destination may have, in hops.")] = "2:6",
    law: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="paper, or for any graph uniform-node, equalised or optimal, with a certificate."
        ),
    ] = "paper",
    walk: Annotated[
        str | None,
        typer.Option(
            help="simple, lazy, metropolis or non-backtracking; with --frontier several, separated by commas."
        ),
    ] = None,
    budget_hops: Annotated[
        float | None, typer.Option(metavar="B", help="Most mean hops per update (laws for any graph).")
    ] = None,
    objective: Annotated[
        str, typer.Option(help="What to optimise and certify: entropy (node entropy) or hit-ratio.")
    ] = "entropy",
    observer: Annotated[
        str, typer.Option(help="Against whom: return-time, or last-hop, who also knows the last hop.")
    ] = "return-time",
    balanced: Annotated[
        bool | None,
        typer.Option("--balanced/--no-balanced", help="Every node updates equally often; optimal laws do anyway."),
    ] = None,
    frontier: Annotated[
        bool,
        typer.Option("--frontier", help="Walks and laws side by side: privacy against price; --out for the figure."),
    ] = False,
    window: Annotated[int, typer.Option(help="Half-width of the observer's window, in hops (delta).")] = 5,
    tail: Annotated[float, typer.Option(help="The guarantee holds with probability 1 - tail (delta').")] = 0.3,
    return_time: Annotated[
        float | None, typer.Option(help="Return time designed for, in hops (kappa); inf for none seen.")
    ] = None,
    formulas: Annotated[
        str, typer.Option(help="corrected, or printed: what the paper's own text gives.")
    ] = "corrected",
    allow_neighbours: Annotated[
        bool, typer.Option("--allow-neighbours", help="Admit distance 1, against the paper's advice.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the law to FILE, .npz or .json; with --frontier, a folder."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Design a destination law: print it, what it guarantees, what it costs, which assumptions bend.

    Closed forms: veilwalk design --nodes 300 --degree 3 --support 2:6 --window 5 --tail 0.3

    A given graph: veilwalk design --graph rrg:300:3:seed=1 --support 2:6

    The best law there is: veilwalk design --graph rrg:300:3:seed=1 --law optimal --walk non-backtracking

    Privacy against price: veilwalk design --graph rrg:300:3:seed=1 --frontier --out frontier
    """
    distances = DistanceSupport.parse(support, allow_neighbours=allow_neighbours)
    window_options: dict[str, Any] = {"tail_probability": tail, "window_radius": window}
    if frontier:
        network = _network(graph, "frontier", nodes=nodes, degree=degree, formulas=formulas)
        options = {"name": graph, "observer": observer, "as_json": as_json} | window_options
        _design_laws.frontier(network, distances, walk, out, **options)
        return
    window_options["return_time"] = return_time
    if law != "paper":
        network = _network(graph, f"law {law}", nodes=nodes, degree=degree, formulas=formulas)
        options = {"budget_hops": math.inf if budget_hops is None else budget_hops, "balanced": balanced}
        options |= {"objective": objective, "observer": observer, "walk": walk or "simple"} | window_options
        _design_laws.any_graph(network, law, distances, out, as_json=as_json, **options)
        return
    if budget_hops is not None or balanced is not None or objective != "entropy" or observer != "return-time":
        need = "uniform-node, equalised or optimal with --budget-hops, --balanced, --objective or --observer"
        raise InvalidParameterError("law", law, need)
    if graph is not None:
        from veilwalk.design import design_on_graph

        network = _network(graph, "graph", nodes=nodes, degree=degree, formulas=formulas)
        result = design_on_graph(network, support=distances, walk=walk or "simple", **window_options)
    else:
        if walk not in {None, "simple"}:
            raise InvalidParameterError("walk", walk, "simple for the closed forms; give --graph instead")
        result = _closed_form(nodes, degree, distances, formulas, **window_options)
    _finish(result, out, as_json=as_json)


def _network(graph: str | None, what: str, *, nodes: int | None, degree: int | None, formulas: str) -> Graph:
    """Read the graph, which rules out all that belongs to the closed forms."""
    from veilwalk.graphs import parse_graph_spec

    if graph is None:
        raise InvalidParameterError(what, "without a graph", "given with --graph")
    if nodes is not None or degree is not None or formulas != "corrected":
        raise InvalidParameterError("graph", graph, "given without --nodes, --degree or --formulas")
    return parse_graph_spec(graph)


def _closed_form(
    nodes: int | None,
    degree: int | None,
    support: DistanceSupport,
    formulas: str,
    *,
    window_radius: int,
    **options: Any,
) -> Design:
    from veilwalk import theory
    from veilwalk.design import design_regular

    if nodes is None or degree is None:
        raise InvalidParameterError("nodes, degree", (nodes, degree), "both given, or --graph instead")
    walk = theory.WalkModel(n_nodes=nodes, degree=degree)
    model = theory.AnonymityModel(walk=walk, support=support, window_radius=window_radius)
    return design_regular(model, formulas=formulas, **options)


def _finish(result: Design, out: Path | None, *, as_json: bool) -> None:
    from veilwalk.design import save_law

    if out is not None:
        save_law(out, result.law)
    if as_json:
        typer.echo(json.dumps(plain(as_dict(result)), indent=2, allow_nan=False))
    else:
        _print(result)


def as_dict(result: Design) -> dict[str, Any]:
    """Return the design as plain data under its stable JSON keys."""
    from veilwalk.design import DestinationLaw

    content: dict[str, Any] = {
        "n_nodes": result.n_nodes,
        "degree": result.degree,
        "formulas": result.formulas,
        "support": [int(result.distances[0]), int(result.distances[-1])],
        "window_radius": result.window_radius,
        "tail_probability": result.tail_probability,
        "return_time_design": result.return_time_design,
        "return_time_from": result.return_time_from,
        "distance_pmf": result.distance_pmf,
        "shell_sizes": result.shell_sizes,
        "distance_entropy_nats": result.distance_entropy_nats,
        "node_entropy_nats": result.node_entropy_nats,
        "anonymity_floor_nats": result.anonymity_floor_nats,
        "floor_kind": result.floor_kind,
        "mean_iteration_hops": result.mean_iteration_hops,
        "warnings": list(result.warnings),
    }
    if isinstance(result.law, DestinationLaw):
        content["graph_digest"] = result.law.graph_digest
        content["worst_destination"] = result.worst_destination
        content["destination_pmf"] = result.law.matrix.toarray()
    return content


def _print(result: Design) -> None:
    where = f"{result.n_nodes} nodes" + (f" of degree {result.degree}" if result.degree else "")
    print_table(
        f"destination law, {where}, {result.formulas}",
        (">distance", ">probability", ">nodes there", ">each"),
        [
            (str(distance), f"{share:.6f}", f"{size:.2f}", f"{share / size:.3e}" if size else "-")
            for distance, share, size in zip(result.distances, result.distance_pmf, result.shell_sizes, strict=True)
        ],
    )
    bits = 1 / math.log(2)
    floor, kept = result.anonymity_floor_nats, 1 - result.tail_probability
    rows = [
        ("return time designed for", f"{result.return_time_design:.0f} hops", "chosen"),
        ("return times covered", f">= {result.return_time_from:.0f} hops", f"with probability >= {kept:g}"),
    ]
    for name, nats in (("distance", result.distance_entropy_nats), ("node", result.node_entropy_nats)):
        kind = "window notion, at the return time designed for"
        rows.append((f"{name} entropy", f"{nats:.4f} nats = {nats * bits:.4f} bits", kind))
    rows.append(("distance entropy floor", f"{floor:.4f} nats = {floor * bits:.4f} bits", result.floor_kind))
    rows.append(("price", f"{result.mean_iteration_hops:.1f} hops per update", "mean"))
    if result.worst_destination is not None:
        rows.append(("worst destination", f"node {result.worst_destination}", "least node entropy"))
    print_table("what it guarantees and costs", ("what", ">value", "kind"), rows)
    for warning in result.warnings:
        console().print(f"warning: {warning}")
