"""``veilwalk audit``: attack a design and report what really leaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilwalk.cli._graph import SPEC_HELP
from veilwalk.cli._output import console, print_table
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.records import plain
from veilwalk.core.support import DistanceSupport

if TYPE_CHECKING:
    from veilwalk.audit import AuditSettings
    from veilwalk.core.records import Record
    from veilwalk.graphs import Graph


def audit(
    *,
    graph: Annotated[str, typer.Option(metavar="SPEC", help=f"Network: {SPEC_HELP}")] = "rrg:300:3:seed=1",
    law: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="plain, uniform-distance, uniform-node, paper, paper-printed, or a file written by design --out.",
        ),
    ] = "paper",
    support: Annotated[str, typer.Option(metavar="LO:HI", help="Distances of a law given by name.")] = "2:6",
    walk: Annotated[
        str, typer.Option(help="Kind of walk: simple, lazy, metropolis, non-backtracking or least-recent.")
    ] = "simple",
    mix: Annotated[
        float, typer.Option(help="Share of plain non-backtracking steps of a least-recent walk, from 0 to 1.")
    ] = 0.0,
    observers: Annotated[
        str,
        typer.Option(
            help="all that suit the walk, or some of prior, window, return-time, last-hop, repeated, first-sight, "
            "bridge, predecessor, path, round, separated by commas."
        ),
    ] = "all",
    updates: Annotated[int, typer.Option(help="Updates to play.")] = 500_000,
    seed: Annotated[int, typer.Option(help="Seed of walks and colluders.")] = 7,
    colluders: Annotated[
        str, typer.Option(help="How many nodes pool what they see; several numbers, 1,3,15,30, add a curve over them.")
    ] = "30",
    posterior: Annotated[
        str,
        typer.Option(
            help="exact (up to 500 nodes), estimated (nearly exact, at 64 destinations), rehearsed (nearly exact, any "
            "walk), or by-class (cruder; any walk)."
        ),
    ] = "exact",
    window: Annotated[int, typer.Option(help="Half-width of the window observer's window, in hops.")] = 5,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the memory it would take, and stop.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the record and its figures there.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON instead of tables.")] = False,
) -> None:
    """Play the protocol, attack it with every observer, and score their guesses against the truth.

    About a minute for 300 nodes and 500,000 updates on two cores. Ctrl-C while walking audits what was walked.

    Example: veilwalk audit --graph rrg:300:3:seed=1 --law paper --support 2:6 --observers all --seed 7
    """
    from veilwalk import audit as auditing
    from veilwalk.graphs import parse_graph_spec

    every = auditing.all_observers(walk, posterior)
    names = every if observers == "all" else tuple(name.strip() for name in observers.split(","))
    counts = _counts(colluders)
    settings = auditing.AuditSettings(
        observers=names,
        updates=updates,
        seed=seed,
        walk=walk,  # type: ignore[arg-type]  # checked by AuditSettings
        mix=mix,
        colluders=counts[-1],
        posterior=posterior,
        window_radius=window,
    )
    network, distances = parse_graph_spec(graph), DistanceSupport.parse(support)
    if settings.colluding or len(counts) > 1:
        for count in counts:
            auditing.check_colluders(network, count)
    if dry_run:
        # A plain walk has no law; as a bound on its memory any will do.
        chosen = auditing.chosen_law("uniform-node" if law == "plain" else law, network, distances)
        needed = auditing.predicted_memory(network, chosen, settings)
        size = f"{needed / 2**20:.0f} MiB beyond the program itself"
        typer.echo(f"would take about {size} for {updates} updates on {network.n_nodes} nodes")
        return
    curve_over = counts if len(counts) > 1 else []
    record, curve = _attack(network, law, distances, settings, names=(graph, law), counts=curve_over)
    _show(record, curve, out, as_json=as_json)


def _attack(
    graph: Graph,
    law: str,
    support: DistanceSupport,
    settings: AuditSettings,
    *,
    names: tuple[str, str],
    counts: list[int],
) -> tuple[Record, Record | None]:
    """Run the audit, and the curve over several numbers of colluders where there are several."""
    from veilwalk import audit as auditing

    if law == "plain":
        return auditing.audit_plain(graph, settings, names=names), None
    chosen = auditing.chosen_law(law, graph, support)
    floor = _floor(law, graph, support)
    with console().status("starting") as status:
        record = auditing.audit(graph, chosen, settings, names=names, floor=floor, say=status.update)
        if not counts:
            return record, None
        return record, auditing.collusion(graph, chosen, settings, counts, names=names, say=status.update)


def _show(record: Record, curve: Record | None, out: Path | None, *, as_json: bool) -> None:
    paths = _write(out, record, curve) if out is not None else []
    if as_json:
        content = record.to_dict()
        if curve is not None:
            content["by_colluders"] = plain(curve.result["rows"])
        typer.echo(json.dumps(content, indent=2))
        return
    print_audit(record)
    if curve is not None:
        print_collusion(curve)
    for path in paths:
        typer.echo(f"wrote {path}")


def _counts(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidParameterError("colluders", text, "one or more whole numbers, separated by commas") from None


def _floor(law: str, graph: Graph, support: DistanceSupport) -> float | None:
    """The floor the closed form promises for the paper's own law; nothing for others."""
    if law != "paper":
        return None
    from veilwalk import theory
    from veilwalk.design import design_regular

    walk = theory.WalkModel(n_nodes=graph.n_nodes, degree=int(graph.degrees[0]))
    model = theory.AnonymityModel(walk=walk, support=support)
    return design_regular(model).anonymity_floor_nats


def _write(folder: Path, record: Record, curve: Record | None) -> list[Path]:
    from veilwalk.report import audit_files, collusion_files

    return audit_files(record, folder) + (collusion_files(curve, folder) if curve is not None else [])


def print_audit(record: Record) -> None:
    """Print what each observer learns, overall and in the worst tenth of return times."""
    result = record.result
    low, high = result["hops_per_update_interval"]
    print_table(
        f"{record.params['graph']}, law {record.params['law']}, {record.params['walk']} walk: "
        f"{result['updates']} updates" + ("" if result["complete"] else " (interrupted)"),
        ("", ">measured", ">95% interval", ">predicted"),
        [
            (
                "hops per update",
                f"{result['hops_per_update']:.2f}",
                f"{low:.2f} to {high:.2f}",
                "-" if (expected := result["hops_per_update_predicted"]) is None else f"{expected:.2f}",
            )
        ],
    )
    observers: dict[str, Any] = dict(result["observers"])
    rows = [row for name, found in observers.items() if "overall" in found for row in _observer_rows(name, found)]
    if rows:
        columns = (
            "observer",
            "return times",
            ">node entropy",
            ">bits",
            ">distance entropy",
            ">hit ratio",
            ">blind",
            ">95%",
        )
        print_table("what an observer learns (entropies of its posterior, in nats unless said; means)", columns, rows)
    for name, found in observers.items():
        if "by_linked_updates" in found:
            print_table(
                f"{name}: updates known to have one source (last-hop observer)",
                (">updates linked", ">node entropy, nats", ">hit ratio", ">groups"),
                [
                    (
                        str(row["linked"]),
                        f"{row['node_entropy_nats']:.3f}",
                        f"{row['hit_ratio']:.4f}",
                        str(row["updates"]),
                    )
                    for row in found["by_linked_updates"]
                ],
            )


def print_collusion(curve: Record) -> None:
    """Print the chance of naming the source against the number of colluders."""
    names = ("first-sight", "bridge", "predecessor")
    print_table(
        "share of sources named by so many colluders, the destination among them",
        (">colluders", *(f">{name}" for name in names), ">blind"),
        [
            (
                str(row["colluders"]),
                *(f"{row[name]['hit_ratio']:.4f}" if name in row else "-" for name in names),
                f"{row['blind_hit_ratio']:.4f}",
            )
            for row in curve.result["rows"]
        ],
    )


def _observer_rows(name: str, found: dict[str, Any]) -> list[tuple[str, ...]]:
    rows = [(name, "all", found["overall"])]
    if found["by_return_time"] and name not in {"prior", "first-sight", "bridge", "predecessor"}:
        shortest = found["by_return_time"][0]
        rows.append(("", f"to {shortest['hi']} ({shortest['share']:.0%})", shortest))
    worst = found["worst_destination"]
    if worst is not None and name == "last-hop":
        rows.append(("", f"worst: node {worst['destination']}", worst))
    shown: list[tuple[str, ...]] = []
    for label, times, row in rows:
        low, high = row["hit_ratio_interval"]
        shown.append(
            (
                label,
                times,
                f"{row['node_entropy_nats']:.3f}",
                f"{row['node_entropy_bits']:.3f}",
                f"{row['distance_entropy_nats']:.3f}",
                f"{row['hit_ratio']:.4f}",
                f"{row['blind_hit_ratio']:.4f}",
                f"{low:.4f}-{high:.4f}",
            )
        )
    return shown
