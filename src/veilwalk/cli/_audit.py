"""``veilwalk audit``: attack a scheme and report what really leaks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilwalk.cli._device import DeviceOption, ReplicasOption
from veilwalk.cli._graph import SPEC_HELP, network_of
from veilwalk.cli._output import EngineOption, WorkOption, console, drawn, live_progress, print_table
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.memory import parse_memory
from veilwalk.core.records import plain, require_writable, write_atomically
from veilwalk.core.walk import Walk
from veilwalk.training import SCHEMES

if TYPE_CHECKING:
    from veilwalk.audit import AuditSettings
    from veilwalk.core.records import Record
    from veilwalk.design import Scheme
    from veilwalk.graphs import Graph

_ENTROPIES = ("observer", "return times", ">node entropy", ">in bits", ">distance entropy")
_GUESSES = (">hit ratio", ">blind guess", ">95% interval", ">times floor")
_STRONGEST = "coalition"


def audit(
    *,
    graph: Annotated[str, typer.Option(metavar="SPEC", help=f"Network: {SPEC_HELP}")] = "rrg:300:3:seed=1",
    scheme: Annotated[
        str,
        typer.Option(
            metavar="|".join(SCHEMES),
            help="What train uses too: auto, sealed for several as recommended, or the paper's, for one; law, support, "
            "walk or recipients, where given, say it themselves.",
        ),
    ] = "auto",
    law: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            show_default="the scheme's; paper on regular graphs, uniform-node on others, where another part is given",
            help="plain, uniform-distance, uniform-node, far:R (everybody at distance R or more), paper, "
            "paper-printed, paper-exact, optimal, or a file written by design --out, which brings its walk.",
        ),
    ] = None,
    support: Annotated[
        str | None,
        typer.Option(
            metavar="LO:HI", show_default="the scheme's, or what fits", help="Distances of a law given by name."
        ),
    ] = None,
    walk: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            show_default="the scheme's, the law file's, or simple",
            help="simple, lazy, metropolis or non-backtracking.",
        ),
    ] = None,
    recipients: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            show_default="the scheme's, the law file's, or 1",
            help="For how many a source seals; the first of them to be met opens.",
        ),
    ] = None,
    observers: Annotated[
        str,
        typer.Option(
            metavar="NAME[,NAME...]",
            help="all that suit the scheme, or some of prior, window, return-time, last-hop, memory, repeated, "
            "neighbour, linked-neighbour, first-sight, coalition, linked-coalition, path.",
        ),
    ] = "all",
    updates: Annotated[int, typer.Option(help="Updates to play.")] = 500_000,
    seed: Annotated[int, typer.Option(help="Seed of walks and colluders.")] = 7,
    colluders: Annotated[
        str,
        typer.Option(
            metavar="N|SHARE%",
            help="How many nodes pool what they see, 30 or 5%; several, 1%,5%,10%, add a curve over them.",
        ),
    ] = "10%",
    placement: Annotated[
        str, typer.Option(metavar="random|spread", help="Which nodes collude: random ones, or as far apart as can be.")
    ] = "random",
    posterior: Annotated[
        str,
        typer.Option(
            metavar="auto|exact|rehearsed|by-class",
            help="How return times are read: exact up to 500 nodes, and at 64 destinations up to 2000; rehearsed for "
            "any walk (1 to 9 % of the hits lost on five graphs); by-class for any size (4 to 17 %); auto takes the "
            "first it can.",
        ),
    ] = "auto",
    window: Annotated[int, typer.Option(help="Half-width of the window observer's window, in hops.")] = 5,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", show_default="0.7 of the machine's", help="Memory it may take, such as 8G."),
    ] = None,
    replicas: ReplicasOption = 64,
    device: DeviceOption = "cpu",
    engine: EngineOption = None,
    work: WorkOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the memory it would take, and stop.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the record and its figures there.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON instead of tables.")] = False,
) -> None:
    """Attack a design and report what really leaks.

    Plays the protocol, attacks it with every observer, and scores their guesses against the truth. Some minutes for
    300 nodes and 500,000 updates on two cores. Ctrl-C while walking audits what was walked.

    What train does on a network: veilwalk audit --graph rrg:300:3:seed=1

    The paper's law: veilwalk audit --graph rrg:300:3:seed=1 --law paper --support 2:6 --observers all --seed 7
    """
    import veilwalk.audit as auditing

    if out is not None:
        require_writable(out)
    if scheme not in SCHEMES:
        raise InvalidParameterError("scheme", scheme, f"one of {', '.join(SCHEMES)}")
    network = network_of(graph)
    counts = auditing.parse_colluders(colluders, network.n_nodes)
    settings = auditing.AuditSettings(
        observers=observers,
        updates=updates,
        seed=seed,
        replicas=replicas,
        colluders=counts[-1],
        placement=placement,
        posterior=posterior,
        window_radius=window,
        **({} if memory is None else {"memory_bytes": parse_memory(memory)}),
    )
    parts = {"law": law, "support": support, "walk": walk, "recipients": recipients}
    attacked, called = _choose(network, scheme, parts)
    if remark := attacked.remark():
        typer.echo(f"veilwalk: {remark}", err=True)
    if len(counts) > 1:
        # Before anything is walked: a curve that cannot be drawn is refused.
        for count in counts:
            here = replace(settings, colluders=count)
            names, _ = auditing.coalitions(attacked, here)
            auditing.make_plan(attacked, replace(here, observers=names))
    if dry_run:
        needed = auditing.predicted_memory(auditing.make_plan(attacked, settings))
        size = f"{needed / 2**20:.0f} MiB beyond the program itself"
        typer.echo(f"would take about {size} for {updates} updates on {network.n_nodes} nodes")
        return
    record, curve = _attack(
        attacked, settings, counts if len(counts) > 1 else (), engine=engine, work=work, device=device
    )
    _show(record, curve, out, network, called, as_json=as_json)


def _choose(graph: Graph, scheme: str, parts: dict[str, Any]) -> tuple[Scheme, str]:
    """Return the scheme to attack, and what it is called: the recommended one, the paper's, or by its own parts."""
    from veilwalk.design import choose_scheme, recommended_scheme

    if any(part is not None for part in parts.values()):
        return choose_scheme(graph, **parts), ""
    if scheme == "paper":
        return choose_scheme(graph), "scheme paper, "
    with live_progress() as progress:
        return recommended_scheme(graph, progress=progress), "recommended scheme, "


def _attack(
    scheme: Scheme,
    settings: AuditSettings,
    counts: tuple[int, ...],
    *,
    engine: str | None,
    work: Path | None,
    device: str,
) -> tuple[Record, Record | None]:
    """Run the audit, and the curve over several numbers of colluders where there are several."""
    import veilwalk.audit as auditing
    from veilwalk.design import closed_form
    from veilwalk.engine import JobStore, open_engine

    floor = None
    if scheme.law.name == "paper" and scheme.walk == Walk():
        floor = closed_form(scheme.graph, scheme.law.support).anonymity_floor_nats
    store = None if work is None else JobStore(work)
    with live_progress() as progress, open_engine(engine) as executor:
        options: dict[str, Any] = {"executor": executor, "store": store, "device": device, "progress": progress}
        found = auditing.audit(scheme, settings, floor=floor, **options)
        curve = auditing.collusion(scheme, settings, counts, **options) if counts else None
    by_reason: dict[str, list[str]] = {}
    for name, reason in found.left_out.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        typer.echo(f"veilwalk: not run: {', '.join(names)}: {reason}", err=True)
    return found.record(), curve


def _show(record: Record, curve: Record | None, out: Path | None, graph: Graph, called: str, *, as_json: bool) -> None:
    paths = _write(out, record, curve) if out is not None else []
    if as_json:
        content = record.to_dict()
        if curve is not None:
            content["by_colluders"] = plain(curve.result["rows"])
        typer.echo(json.dumps(content, indent=2))
        return
    print_audit(record, graph, called)
    if curve is not None:
        print_collusion(curve)
    for path in paths:
        typer.echo(f"wrote {path}")


def _write(folder: Path, record: Record, curve: Record | None) -> list[Path]:
    """Write the records, then whatever can be drawn of them."""
    records = {"audit.json": record} | ({} if curve is None else {"colluders.json": curve})
    for name, one in records.items():
        write_atomically(folder / name, one.to_json().encode())

    def draw() -> list[Path]:
        from veilwalk.report import audit_figures, collusion_figures

        return audit_figures(record, folder) + ([] if curve is None else collusion_figures(curve, folder))

    return [folder / name for name in records] + drawn(draw)


def print_audit(record: Record, graph: Graph, called: str) -> None:
    """Print what each observer learns of a scheme so ``called``, overall and in the worst tenth of return times."""
    result, params = record.result, record.params
    low, high = result["hops_per_update_interval"]
    expected = result["hops_per_update_predicted"]
    several = params.get("recipients", 1)
    print_table(
        f"{params['graph'] or 'graph'}, {called}law {params['law']}, {params['walk']} walk"
        + (f", sealed for {several}: " if several > 1 else ": ")
        + f"{result['updates']} updates"
        + ("" if result["complete"] else " (interrupted)"),
        ("", ">measured", ">95% interval", ">predicted"),
        [
            (
                "hops per update",
                f"{result['hops_per_update']:.2f}",
                f"{low:.2f} to {high:.2f}",
                "-" if expected is None else f"{expected:.2f}",
            )
        ],
    )
    observers: dict[str, Any] = dict(result["observers"])
    rows = [
        row for name, found in observers.items() if "overall" in found for row in _observer_rows(name, found, graph)
    ]
    not_run = result["left_out"].get(_STRONGEST) if "first-sight" in observers else None
    if not_run is not None:
        rows.append((_STRONGEST, "not run", *[""] * (len(_ENTROPIES) + len(_GUESSES) - 2)))
    if rows:
        # Only coalitions have a floor.
        kept = None if any(row[-1] for row in rows) else -1
        print_table(
            "what an observer learns (mean entropies in nats, of nodes also in bits)",
            (*_ENTROPIES, *_GUESSES)[:kept],
            [row[:kept] for row in rows],
        )
        console().print(_yardsticks(observers, graph))
        if not_run is not None:
            console().print(f"strongest coalition not run: {not_run}\n")
    for name, found in observers.items():
        if "by_linked_updates" in found:
            print_table(
                f"{name}: updates known to have one source",
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


def _yardsticks(observers: dict[str, Any], graph: Graph) -> str:
    """Say in peers what the entropies come to, and what a blind guess is."""
    among = ", ".join(
        f"{name} {found['overall']['effective_anonymity_set']:.1f}"
        for name, found in observers.items()
        if "overall" in found
    )
    return (
        f"as if among so many equally likely peers: {among}, of {graph.n_nodes}. blind guess: the likeliest of those "
        f"who may choose that destination at all, so more often right than 1 in {graph.n_nodes}.\n"
    )


def print_collusion(curve: Record) -> None:
    """Print the chance of naming the source against the number of colluders."""
    rows = list(curve.result["rows"])
    names = ("first-sight", _STRONGEST)
    print_table(
        "share of sources named by so many colluders, the destination among them",
        (">colluders", *(f">{name} (times floor)" for name in names), ">blind guess"),
        [
            (
                str(row["colluders"]),
                *(_named(row[name]) if name in row else "not run" for name in names),
                f"{row['blind_hit_ratio']:.4f}",
            )
            for row in rows
        ],
    )
    for row in rows:
        if _STRONGEST in row["left_out"]:
            reason = row["left_out"][_STRONGEST]
            console().print(f"strongest coalition of {row['colluders']} not run: {reason}")


def _named(row: dict[str, Any]) -> str:
    return f"{row['hit_ratio']:.4f} ({row['times_floor']:.2f})"


def _observer_rows(name: str, found: dict[str, Any], graph: Graph) -> list[tuple[str, ...]]:
    from veilwalk.audit import OBSERVERS

    rows = [(name, "all", found["overall"])]
    if found["by_return_time"] and name != "prior" and not OBSERVERS[name].colluding:
        shortest = found["by_return_time"][0]
        rows.append(("", f"to {shortest['hi']} ({shortest['share']:.0%})", shortest))
    worst = found["worst_destination"]
    if worst is not None and name == "last-hop":
        rows.append(("", f"worst: {graph.label(worst['destination'])}", worst))
    arc, percent = found.get("worst_arc"), found.get("worst_percent")
    if arc is not None and name == "last-hop":
        rows.append(("", f"worst: {graph.label(arc['last_hop'])} to {graph.label(arc['destination'])}", arc))
    if percent is not None and name != "prior":
        rows.append(("", "any (the 1% it knows most of)", percent))
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
                f"{low:.4f} to {high:.4f}",
                f"{row['times_floor']:.2f}" if "times_floor" in row else "",
            )
        )
    return shown
