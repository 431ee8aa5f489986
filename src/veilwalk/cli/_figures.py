"""``veilwalk frontier``, ``sweep`` and ``paper``: schemes, settings and the paper's own figures, side by side."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from veilwalk.cli import _design
from veilwalk.cli import _rooms as rooms
from veilwalk.cli._interrupt import GUARD
from veilwalk.cli._options import ENGINES, AsJson, Count, File, Text, argument, flag, option
from veilwalk.cli._output import (
    console,
    draw,
    draw_or_write,
    live_progress,
    make_group,
    print_records,
    say,
    show_result,
)
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.core.records import Record, require_writable
from veilwalk.core.sizes import LARGE_NODES
from veilwalk.core.support import DistanceSupport
from veilwalk.core.units import readable_bytes, readable_seconds
from veilwalk.core.walk import WALKS, Walk

app = make_group("The paper's figures and claims, printed and corrected.")

_CLAIM_COLUMNS = {"label": "{label}", "kind": "{kind}", "status": "{status}", "function": "{short}"}
_MEASURES = ("accuracy", "loss", "node_entropy_nats", "hit_ratio", "hops_per_update")


def frontier(
    *,
    graph: _design.Graph = None,
    roster: _design.Roster = None,
    support: _design.Support = None,
    walk: Annotated[Text, option(f"{', '.join(WALKS)}.", "KIND[,KIND...]", "all that differ")] = None,
    observer: Annotated[str, option(_design.OBSERVER, "return-time|last-hop")] = "return-time",
    allow_neighbours: _design.AllowNeighbours = False,
    out: Annotated[File, option("Write the record and its figure there.", "DIR")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare price and privacy of laws for one recipient.

    Walks and laws side by side: mean hops of an update against the entropy of its maker.

    Example: veilwalk frontier --graph rrg:300:3:seed=1 --out frontier
    """
    if out is not None:
        require_writable(out)
    distances = None if support is None else DistanceSupport.parse(support, allow_neighbours=allow_neighbours)
    network = _design.read_network(graph, roster)
    if network.n_nodes >= LARGE_NODES:
        need = f"of fewer than {LARGE_NODES} for a frontier: beyond, design laws one by one and audit them"
        raise InvalidParameterError("graph", f"{network.n_nodes} nodes", need)
    with live_progress() as progress:
        record = rooms.experiments.privacy_price(
            network,
            support=distances or rooms.design.default_support(network),
            walks=_distinct_walks(network) if walk is None else [Walk.parse(kind) for kind in walk.split(",")],
            observer=observer,
            progress=progress,
        )
    paths = [] if out is None else draw_or_write("frontier_files", record, out / "frontier.json")
    show_result(record.to_dict(), lambda: _print_frontier(record), paths, as_json=as_json)


def _distinct_walks(graph: rooms.graphs.Graph) -> list[Walk]:
    """Return the walks that differ on this graph."""
    # On a regular graph a Metropolis walk refuses no move. On a ring a non-backtracking walk never turns.
    is_ring = graph.is_regular and graph.degrees[0] == 2
    kinds = ["simple", *([] if graph.is_regular else ["metropolis"]), *([] if is_ring else ["non-backtracking"])]
    return [Walk(kind) for kind in kinds]


def _print_frontier(record: Record) -> None:
    """Print walks and laws side by side."""
    params, rows = record.params, record.result["rows"]
    print_records(
        f"privacy and price: {params['graph']}, distances {params['support']}, {params['observer']} observer",
        {
            "walk": "{walk}",
            "law": "{name}",
            ">hops": "{mean_iteration_hops:.1f}",
            ">entropy": "{node_entropy_nats:.4f}",
            ">at most": "{node_entropy_bound_nats:.4f}",
            ">hit ratio": "{hit_ratio:.3%}",
            ">worst": "{worst_node_entropy_nats:.3f}",
            ">updates": "{prior_range[0]:.2f}-{prior_range[1]:.2f}",
        },
        [
            row | {"name": row["law"] + (", balanced" if row["balanced"] and row["law"] != "optimal" else "")}
            for row in rows
        ],
    )
    say(
        "hops: mean per update. entropy: expected node entropy, in nats. at most: bound on any balanced law with as "
        "many hops. worst: at the destination that knows most. updates: how often a node updates, times the mean, "
        "least to most. Optimal laws are balanced."
    )
    for walk, channel in params["channels"].items():
        say(f"{walk} walk: return times {channel['kind']}, to {channel['horizon']} hops.")


def sweep(
    file: Annotated[Path, argument("FILE.toml", "kind, [settings], [grid] and [[cases]].")],
    *,
    out: Annotated[Path, option("Folder of the sweep: finished cases, tables, figure, page.", "DIR")] = Path("sweep"),
    engine: Annotated[Text, option(ENGINES, "NAME", "process")] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Do one case, print the time and memory of all, and stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train, audit or design over a grid or list of settings.

    Every finished case is kept in --out: run again after a stop, or with more seeds, it goes on from there, on any
    engine. Cases that fail are listed with their error, and do not stop the rest; the exit code is then 1.

    Example: veilwalk sweep seeds.toml --out seeds --engine process:4
    """
    require_writable(out)
    plan = rooms.experiments.SweepPlan.read(file)
    store, cases, cores = rooms.engine.JobStore(out / "jobs"), len(plan.jobs()), len(os.sched_getaffinity(0))
    if dry_run:
        _print_estimate(plan, store, min(cores, cases))
        return
    plan.save(out)
    GUARD.advise(f"finished cases are in {out}: run the same command again to resume")
    chosen = engine or ("serial" if min(cores, cases) == 1 else "process")
    with live_progress() as progress:
        result = rooms.experiments.sweep(plan, executor=chosen, store=store, progress=progress)
    record = result.record()
    paths = [*result.write(out), *draw("sweep_files", record, out)]
    show_result(record.to_dict(), lambda: _print_sweep(record), paths, as_json=as_json)
    for case in result.failed:
        typer.echo(f"veilwalk: case {case['job']} failed: {case['error']}", err=True)
    if result.failed:
        raise typer.Exit(1)


def _print_estimate(plan: rooms.experiments.SweepPlan, store: rooms.engine.JobStore, workers: int) -> None:
    with live_progress() as progress:
        progress("doing one case")
        cost = plan.estimate_cost(workers=workers, store=store)
    typer.echo(f"{cost['jobs']} cases of {plan.kind}, {cost['done']} of them done; swept: {', '.join(plan.swept)}")
    if cost["error"] is not None:
        typer.echo(f"the first of the others fails: {cost['error']}")
    elif cost["seconds_each"]:
        typer.echo(
            f"one took {readable_seconds(cost['seconds_each'])} and is kept; the others about "
            f"{readable_seconds(cost['seconds'])} on {workers} cores, {readable_bytes(cost['memory_bytes'])} each, if "
            "they are alike"
        )


def _print_sweep(record: Record) -> None:
    """Print means over seeds, a row a group."""
    rows = [row | {f"mean {key}": _format_mean(row, key) for key in _MEASURES} for row in record.result["summary"]]
    columns = {key: f"{{{key}}}" for key in (*record.result["swept"], "algorithm", "observer", "linked")}
    columns |= {">runs": "{runs}"} | {f">{key.replace('_', ' ')}": f"{{mean {key}}}" for key in _MEASURES}
    print_records(record.params["sweep"], columns, rows)
    if rows:
        typer.echo(record.result["meaning"])


def _format_mean(row: Mapping[str, Any], key: str) -> str:
    """Return a mean with half of its interval, where it has one."""
    if key not in row:
        return ""
    half = (row.get(f"{key}_high", row[key]) - row.get(f"{key}_low", row[key])) / 2
    return f"{row[key]:.4g}" + (f" ± {half:.2g}" if half else "")


@app.command("law")
def law(
    *,
    nodes: Annotated[Count, option("Size N of a random regular network.")] = None,
    degree: Annotated[Count, option("Its degree c, at least 3.")] = None,
    support: Annotated[str, option("Distances a destination may have.", "LO:HI")] = "2:6",
    window: Annotated[int, option("Half-width of the observer's window, in hops (delta).")] = 5,
    tail: Annotated[float, option("The guarantee holds with probability 1 - tail (delta').")] = 0.3,
    return_time: Annotated[
        float | None, option("Return time to design for, in hops; inf: none.", default="the paper's rule")
    ] = None,
    formulas: Annotated[str, option("printed: formulas as the paper prints them.", "corrected|printed")] = "corrected",
    allow_neighbours: _design.AllowNeighbours = False,
    out: _design.LawFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the paper's own law and its guarantee.

    The closed forms for a random regular network, the guarantee, the price, and the assumptions that bend. On a
    network of your own design has the same law, --law paper-exact, from exact chains.

    Example: veilwalk paper law --nodes 300 --degree 3 --support 2:6 --window 5 --tail 0.3
    """
    _design.require_law_file(out)
    distances = DistanceSupport.parse(support, allow_neighbours=allow_neighbours)
    if nodes is None or degree is None:
        raise ConfigError("the network is not given: give both --nodes and --degree")
    walk = rooms.theory.WalkModel(n_nodes=nodes, degree=degree)
    model = rooms.theory.AnonymityModel(walk=walk, support=distances, window_radius=window)
    options = dict[str, Any](tail_probability=tail, return_time=return_time, formulas=formulas)
    closed = rooms.design.design_regular(model, **options)
    if out is not None:
        rooms.design.save_law(out, closed.law)
    show_result(
        closed.to_dict(), lambda: _design.print_window_design(closed), [] if out is None else [out], as_json=as_json
    )
    if not as_json:
        say(f"warning: {closed.relay_warning}")


@app.command("reproduce")
def reproduce(
    figure: Annotated[
        str, argument("FIGURE", "side-information, probability, trade-off or all. [default: all]")
    ] = "all",
    *,
    out: Annotated[File, option("Folder for PNG, SVG, CSV and JSON.", "DIR", default="needed")] = None,
    graphs: Annotated[int, option("Sampled graphs behind the exact curves, for each degree.")] = 5,
    seed: Annotated[int, option("Seed of the sampled graphs.")] = 1,
    nodes: Annotated[int, option("Of another network than the paper's: its nodes.")] = 300,
    degree: Annotated[str, option("Its degree; several are drawn side by side.", "C[,C...]")] = "3,4",
    support: Annotated[str, option("Distances that destinations are drawn from.", "LO:HI")] = "2:6",
) -> None:
    """Draw the paper's figures: printed, corrected and exact.

    For c = 3 and c = 4: printed formulas, corrected ones, and exact chains. The same for other random regular graphs.

    Example: veilwalk paper reproduce trade-off --out figures
    """
    if figure not in (*rooms.experiments.FIGURES, "all"):
        raise InvalidParameterError("figure", figure, f"one of {', '.join(rooms.experiments.FIGURES)}, all")
    if out is None:
        raise InvalidParameterError("out", None, "a folder for the figures")
    network: dict[str, Any] = {"n_nodes": nodes, "degrees": _degrees(degree), "support": DistanceSupport.parse(support)}
    require_writable(out)
    for name in rooms.experiments.FIGURES if figure == "all" else (figure,):
        with live_progress() as progress:
            record = rooms.experiments.reproduce(name, n_graphs=graphs, seed=seed, progress=progress, **network)
        for path in draw_or_write("figure_files", record, out / f"{name}.json"):
            typer.echo(f"wrote {path}")


def _degrees(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidParameterError("degree", text, "one or more whole numbers, such as 3 or 3,4") from None


@app.command("claims")
def list_claims(*, as_json: AsJson = False) -> None:
    """List the paper's claims and how each stands here.

    Each with the function that implements it.

    as-printed: holds as the paper has it. corrected: wrong or loose in print, right here. not-reproduced: the
    paper's own numbers cannot be had, and the note says why.
    """
    claims = [asdict(claim) for claim in rooms.experiments.load_claims()]

    def show() -> None:
        rows = [claim | {"short": claim["function"].removeprefix("veilwalk.")} for claim in claims]
        print_records("the paper's claims", _CLAIM_COLUMNS, rows)
        for claim in claims:
            if claim["note"]:
                console().print(f"{claim['label']}: {claim['note']}", style="dim")

    show_result(claims, show, as_json=as_json)
