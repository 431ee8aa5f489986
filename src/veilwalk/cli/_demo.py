"""``veilwalk demo``: the main job on one screen, offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veilwalk.cli._output import console, print_table


def demo(
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the figure.")] = Path("out/demo"),
) -> None:
    """Design a law for the paper's network, draw what it costs, and check it against exact chains.

    About half a minute, offline.
    """
    from veilwalk import experiments, theory
    from veilwalk.core.support import DistanceSupport
    from veilwalk.design import design_on_graph, design_regular
    from veilwalk.graphs import parse_graph_spec
    from veilwalk.report import figure_files

    spec = "rrg:300:3:seed=1"
    support = DistanceSupport(2, 6)
    screen = console()
    with screen.status("designing"):
        model = theory.AnonymityModel(walk=theory.WalkModel(n_nodes=300, degree=3), support=support)
        closed, printed = design_regular(model), design_regular(model, formulas="printed")
        exact = design_on_graph(parse_graph_spec(spec), support=support)
    with screen.status("drawing the trade-off against exact chains on sampled graphs"):
        files = figure_files(experiments.reproduce("trade-off"), out)

    columns = ("", ">corrected", ">printed", f">{spec}")
    designs = (closed, printed, exact)
    print_table(
        "300 peers with 3 neighbours each: a destination so many hops away is drawn with probability",
        columns,
        [
            (f"{distance} hops", *(f"{found.distance_pmf[index]:.4f}" for found in designs))
            for index, distance in enumerate(closed.distances)
        ],
    )
    lines = (
        ("return time designed for, hops", "return_time_design", 0),
        ("return times covered with probability 0.7, hops from", "return_time_from", 0),
        ("distance entropy when designed for, nats (at most log 5 = 1.6094)", "distance_entropy_nats", 4),
        ("distance entropy floor over the times covered, nats", "anonymity_floor_nats", 4),
        ("node entropy when designed for, nats", "node_entropy_nats", 4),
        ("mean hops per update", "mean_iteration_hops", 1),
    )
    print_table(
        "what that guarantees and costs",
        columns,
        [(title, *(f"{getattr(found, name):.{digits}f}" for found in designs)) for title, name, digits in lines],
    )
    screen.print(
        "corrected: closed forms, repaired; floor proved. printed: the paper's own text. "
        f"{spec}: exact chains on that graph; entropies and floor are minima over its 300 destinations. "
        "All entropies are of the paper's window notion, which is not the best observer: SECURITY.md says what "
        "else a destination may learn."
    )
    for warning in closed.warnings:
        screen.print(f"warning: {warning}")
    screen.print(f"\nfigure: {next(path for path in files if path.suffix == '.png')}")
