"""``veilwalk demo``: the main job on one screen, offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilwalk.cli._output import console, print_table

if TYPE_CHECKING:
    from veilwalk.core.records import Record
    from veilwalk.design import Design

SPEC = "rrg:300:3:seed=1"


def demo(
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the figure.")] = Path("out/demo"),
) -> None:
    """Design a law for the paper's network, check it against exact chains, and attack it.

    About half a minute, offline.
    """
    from veilwalk import experiments, theory
    from veilwalk.audit import AuditSettings, audit, scheme_law
    from veilwalk.core.support import DistanceSupport
    from veilwalk.design import design_on_graph, design_regular
    from veilwalk.graphs import parse_graph_spec
    from veilwalk.report import figure_files

    support = DistanceSupport(2, 6)
    screen = console()
    with screen.status("designing") as status:
        model = theory.AnonymityModel(walk=theory.WalkModel(n_nodes=300, degree=3), support=support)
        closed, printed = design_regular(model), design_regular(model, formulas="printed")
        graph = parse_graph_spec(SPEC)
        exact = design_on_graph(graph, support=support)
        status.update("drawing the trade-off against exact chains on sampled graphs")
        files = figure_files(experiments.reproduce("trade-off"), out)
        settings = AuditSettings(
            observers=("prior", "last-hop", "first-sight", "predecessor"), updates=100_000, posterior="by-class"
        )
        law = scheme_law("paper", graph, support)
        attacked = audit(graph, law, settings, names=(SPEC, "paper"), say=status.update)
    _print_designs(closed, printed, exact)
    _print_attack(attacked)
    screen.print(
        "corrected: closed forms, repaired; the floor is proved. printed: the paper's own text. "
        f"{SPEC}: exact chains on that graph; entropies and floor are minima over its 300 destinations. Guarantees are "
        "of the paper's window notion, which is not the best observer: the last table is of real ones."
    )
    for warning in closed.warnings:
        screen.print(f"warning: {warning}")
    screen.print(f"figure: {next(path for path in files if path.suffix == '.png')}")


def _print_designs(*designs: Design) -> None:
    columns = ("", ">corrected", ">printed", f">{SPEC}")
    print_table(
        "300 peers with 3 neighbours each: a destination so many hops away is drawn with probability",
        columns,
        [
            (f"{distance} hops", *(f"{found.distance_pmf[index]:.4f}" for found in designs))
            for index, distance in enumerate(designs[0].distances)
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


def _print_attack(record: Record) -> None:
    titles = {
        "prior": "destination: knows it was chosen",
        "last-hop": "destination: return time, last hop",
        "first-sight": "30 colluders: first sightings",
        "predecessor": "30 colluders: one may be predecessor",
    }
    rows = []
    for name, title in titles.items():
        row = record.result["observers"][name]["overall"]
        low, high = row["hit_ratio_interval"]
        chances = (f"{row['hit_ratio']:.2%}", f"{low:.2%} to {high:.2%}", f"{row['blind_hit_ratio']:.2%}")
        rows.append((title, f"{row['node_entropy_nats']:.3f}", *chances))
    print_table(
        f"what leaks, measured on {record.result['updates']} updates (corrected law; second row estimated by class)",
        ("observer", ">node entropy, nats", ">names the source", ">95% interval", ">blind guess"),
        rows,
    )
