"""``veilwalk audit``: attack a scheme and report what really leaks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from veilwalk.cli import _rooms as rooms
from veilwalk.cli._design import read_graph_spec
from veilwalk.cli._interrupt import GUARD, NOTHING_KEPT
from veilwalk.cli._options import ENGINES, AsJson, File, Text, flag, merge_settings, option, take_options
from veilwalk.cli._output import console, draw, live_progress, print_records, show_result
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.records import Record, require_writable, write_atomically
from veilwalk.core.sizes import parse_memory
from veilwalk.core.walk import Walk
from veilwalk.training import AUDIT

_PRICE_COLUMNS = {
    "": "hops per update",
    ">measured": "{hops_per_update:.2f}",
    ">95% interval": "{hops_per_update_interval[0]:.2f} to {hops_per_update_interval[1]:.2f}",
    ">predicted": "{hops_per_update_predicted:.2f}",
}
_OBSERVER_COLUMNS = {
    "observer": "{label}",
    "return times": "{times}",
    ">node entropy": "{node_entropy_nats:.3f}",
    ">in bits": "{node_entropy_bits:.3f}",
    ">distance entropy": "{distance_entropy_nats:.3f}",
    ">hit ratio": "{hit_ratio:.4f}",
    ">blind guess": "{blind_hit_ratio:.4f}",
    ">95% interval": "{hit_ratio_interval[0]:.4f} to {hit_ratio_interval[1]:.4f}",
    # Only coalitions have a floor.
    ">times floor": "{times_floor:.2f}",
}
_LINKED_COLUMNS = {
    "": "{of}",
    ">updates linked": "{linked}",
    ">node entropy, nats": "{node_entropy_nats:.3f}",
    ">hit ratio": "{hit_ratio:.4f}",
    ">groups": "{updates}",
}
_COLLUSION_COLUMNS = {
    ">colluders": "{colluders}",
    ">first-sight names": "{first-sight[hit_ratio]:.4f}",
    ">times floor": "{first-sight[times_floor]:.2f}",
    ">coalition names": "{coalition[hit_ratio]:.4f}",
    ">times floor, coalition": "{coalition[times_floor]:.2f}",
    ">blind guess": "{blind_hit_ratio:.4f}",
    ">reads": "{members[reads]:.1%}",
    ">can make": "{members[makes]:.1%}",
}
_PART_COLUMNS = {
    "": "{part}",
    ">updates": "{updates}",
    ">hit ratio": "{hit_ratio:.4f}",
    ">95% interval": "{hit_ratio_interval[0]:.4f} to {hit_ratio_interval[1]:.4f}",
    ">mean top posterior": "{top_posterior:.4f}",
}
_MEMBER_COLUMNS = {"members": "{what} ({of})", ">share": "{share:.1%}", ">95% interval": "{shown}"}
_OBSERVERS = (
    "all that suit the scheme, or some of prior, window, return-time, last-hop, memory, repeated, previous-maker, "
    "neighbour, linked-neighbour, first-sight, coalition, linked-coalition, path."
)
_POSTERIORS = (
    "How return times are read: exact up to 500 nodes, and at 64 destinations up to 2000; rehearsed from simulated "
    "updates, for any walk; by-class for any size; auto takes the first it can."
)
_COLLUDERS = "Nodes that pool what they see, 30 or 5%; several, 1%,5%,10%, add a curve."


@take_options(AUDIT)
def audit(
    *,
    observers: Annotated[str, option(_OBSERVERS, "NAME[,NAME...]")] = "all",
    updates: Annotated[int, option("Updates to play.")] = 500_000,
    seed: Annotated[int, option("Seed of walks and colluders.")] = 7,
    colluders: Annotated[str, option(_COLLUDERS, "N|SHARE%")] = "10%",
    placement: Annotated[str, option("Colluders are random nodes, or far apart.", "random|spread")] = "random",
    posterior: Annotated[str, option(_POSTERIORS, "auto|exact|rehearsed|by-class")] = "auto",
    window: Annotated[int, option("Half-width of the window observer's window, in hops.")] = 5,
    memory: Annotated[Text, option("Memory it may take, such as 8G.", "SIZE", "0.7 of the machine's")] = None,
    replicas: Annotated[int, option("Independent lanes of the updates; a graphics card wants thousands.")] = 64,
    device: Annotated[str, option("What plays it, to the same result; cuda: a graphics card.", "cpu|cuda")] = "cpu",
    engine: Annotated[Text, option(ENGINES, "NAME", "this process with all its threads")] = None,
    work: Annotated[File, option("Keep finished jobs there; run again, on any engine, it resumes.", "DIR")] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Print the memory it would take, and stop.")] = False,
    out: Annotated[File, option("Write the record and its figures there.", "DIR")] = None,
    as_json: AsJson = False,
    **scheme: Any,
) -> None:
    """Attack a design and report what really leaks.

    Plays the protocol, attacks it with every observer, and scores their guesses against the truth. Some minutes for
    300 nodes and 500,000 updates. Ctrl-C audits what was played. Flags for rare cases: {rare}.

    What train does on a network: veilwalk audit --graph rrg:300:3:seed=1

    Without protection: veilwalk audit --graph rrg:300:3:seed=1 --law plain

    The paper's law: veilwalk audit --graph rrg:300:3:seed=1 --law paper --support 2:6 --observers all --seed 7
    """
    resume = f"finished jobs are in {work}: run the same command again to resume"
    GUARD.advise(NOTHING_KEPT if work is None else resume)
    if out is not None:
        require_writable(out)
    spec = AUDIT.read(merge_settings(AUDIT, None, [], scheme))
    network = read_graph_spec(spec.network)
    counts = rooms.audit.parse_colluders(colluders, network.n_nodes)
    if max(counts) >= network.n_nodes:
        need = f"fewer than all {network.n_nodes} nodes: at most {network.n_nodes - 1}, and less than 100%"
        raise InvalidParameterError("colluders", colluders, need)
    settings = rooms.audit.AuditSettings(
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
    with live_progress() as progress:
        attacked = rooms.training.build_scheme(network, spec, progress=progress)
    label = {"auto": "recommended scheme, ", "paper": "scheme paper, "}[spec.scheme.choice] * spec.scheme.is_open
    if remark := attacked.remark():
        typer.echo(f"veilwalk: {remark}", err=True)
    # On a small network several shares may be one number: the table then has one row.
    several = counts if "," in colluders else ()
    for count in several:
        # Before anything is walked: a curve that cannot be drawn is refused.
        rooms.audit.plan_collusion(attacked, settings, count)
    if dry_run:
        needed = rooms.audit.make_plan(attacked, settings).predicted_bytes
        size = f"{needed / 2**20:.0f} MiB beyond the program itself"
        typer.echo(f"would take about {size} for {updates} updates on {network.n_nodes} nodes")
        return
    floor = None
    if attacked.law.name == "paper" and attacked.walk == Walk():
        floor = rooms.design.closed_form(network, attacked.law.support).anonymity_floor_nats
    with live_progress() as progress, rooms.engine.open_engine(engine) as executor:
        store = None if work is None else rooms.engine.JobStore(work)
        options: dict[str, Any] = {"executor": executor, "store": store, "device": device, "progress": progress}
        result = rooms.audit.audit(attacked, settings, floor=floor, **options)
        curve = rooms.audit.audit_collusion(attacked, settings, several, **options) if several else None
    for reason in dict.fromkeys(result.left_out.values()):
        names = ", ".join(name for name, why in result.left_out.items() if why == reason)
        typer.echo(f"veilwalk: not run: {names}: {reason}", err=True)
    record = result.record()
    content = record.to_dict() | ({} if curve is None else {"by_colluders": curve.result["rows"]})

    def show() -> None:
        _print_audit(record, network, label)
        if curve is not None:
            _print_collusion(curve)

    show_result(content, show, [] if out is None else _write(out, record, curve), as_json=as_json)


def _write(folder: Path, record: Record, curve: Record | None) -> list[Path]:
    """Write the records, and their figures where they can be drawn."""
    write_atomically(folder / "audit.json", record.to_json().encode())
    paths = [folder / "audit.json", *draw("audit_figures", record, folder)]
    if curve is not None:
        write_atomically(folder / "colluders.json", curve.to_json().encode())
        paths += [folder / "colluders.json", *draw("collusion_figures", curve, folder)]
    return paths


def _print_audit(record: Record, graph: rooms.graphs.Graph, label: str) -> None:
    """Print what each observer learns of a scheme, overall and in the worst tenth of return times."""
    result, params = record.result, record.params
    several = params.get("recipients", 1)
    print_records(
        f"{params['graph'] or 'graph'}, {label}law {params['law']}, {params['walk']} walk"
        + (f", sealed for {several}: " if several > 1 else ": ")
        + f"{result['updates']} updates"
        + ("" if result["complete"] else " (interrupted)"),
        _PRICE_COLUMNS,
        [result],
    )
    observers: dict[str, Any] = {name: report for name, report in result["observers"].items() if "overall" in report}
    print_records(
        "what an observer learns (mean entropies in nats, of nodes also in bits)",
        _OBSERVER_COLUMNS,
        [row for name, report in observers.items() for row in _observer_rows(name, report, graph)],
    )
    if observers:
        peers = ", ".join(
            f"{name} {report['overall']['effective_anonymity_set']:.1f}" for name, report in observers.items()
        )
        console().print(
            f"The maker is hidden as well as among this number of equally likely peers: {peers}, of {graph.n_nodes}. "
            f"The blind guess knows only the destination, so it is right more often than 1 in {graph.n_nodes}.\n"
        )
    if "first-sight" in observers and (reason := result["left_out"].get("coalition")):
        console().print(f"strongest coalition not run: {reason}\n")
    for name, report in result["observers"].items():
        print_records(
            f"{name}: updates known to have one source", _LINKED_COLUMNS, report.get("by_linked_updates") or ()
        )
        parts = [row | {"part": f"{row['of']} ({row['share']:.0%} of all)"} for row in report.get("by_knowledge", ())]
        parts += [row | {"part": f"by {row['makers']} ({row['of']} members)"} for row in report.get("by_maker", ())]
        print_records(f"{name}: of all honest updates, by what it sees of them and by maker", _PART_COLUMNS, parts)
    members = [
        row | {"shown": "not sampled" if row["interval"] is None else "{:.1%} to {:.1%}".format(*row["interval"])}
        for row in result["members"]
    ]
    print_records("what members read, make and know", _MEMBER_COLUMNS, members)


def _print_collusion(curve: Record) -> None:
    """Print the chance of naming the source against the number of colluders."""
    rows = curve.result["rows"]
    print_records("makers named by so many colluders (coalition: of all honest updates)", _COLLUSION_COLUMNS, rows)
    for row in rows:
        if "coalition" in row["left_out"]:
            console().print(f"strongest coalition of {row['colluders']} not run: {row['left_out']['coalition']}")


def _observer_rows(name: str, report: dict[str, Any], graph: rooms.graphs.Graph) -> list[dict[str, Any]]:
    """Return the rows of an observer: overall, at short return times, and at its worst."""
    rows = [report["overall"] | {"label": name, "times": "all"}]
    if report["by_return_time"] and name != "prior" and not rooms.audit.OBSERVERS[name].colluding:
        shortest = report["by_return_time"][0]
        rows.append(shortest | {"times": f"to {shortest['hi']} ({shortest['share']:.0%})"})
    worst, arc, percent = report["worst_destination"], report.get("worst_arc"), report.get("worst_percent")
    if worst is not None and name == "last-hop":
        rows.append(worst | {"times": f"worst: {graph.label(worst['destination'])}"})
    if arc is not None and name == "last-hop":
        rows.append(arc | {"times": f"worst: {graph.label(arc['last_hop'])} to {graph.label(arc['destination'])}"})
    if percent is not None and name != "prior":
        rows.append(percent | {"times": "worst 1% of updates"})
    return rows
