"""``veilwalk design``: choose how destinations are drawn; say what that guarantees and costs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilwalk.cli._graph import SPEC_HELP, network_of
from veilwalk.cli._output import EngineOption, WorkOption, announce_compiling, drawn_or_kept, live_progress, say
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES, parse_memory
from veilwalk.core.records import plain, require_writable
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import WALKS, Walk

if TYPE_CHECKING:
    from veilwalk.graphs import Graph

_SUPPORT = DistanceSupport(2, 6)


def design(
    *,
    nodes: Annotated[int | None, typer.Option(help="Size N of a random regular network (closed forms).")] = None,
    degree: Annotated[int | None, typer.Option(help="Its degree c, at least 3.")] = None,
    graph: Annotated[
        str | None, typer.Option(metavar="SPEC", help=f"Design on this very graph instead, exactly. {SPEC_HELP}")
    ] = None,
    roster: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Or on the network of a roster, its nodes called as members.")
    ] = None,
    support: Annotated[
        str | None,
        typer.Option(
            metavar="LO:HI", help="Distances a destination may have. [default: 2 to as far as all nodes reach, or 6]"
        ),
    ] = None,
    law: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="paper-exact, uniform-node, optimal, paper, paper-printed, uniform-distance, plain, far:R. "
            "[default: the paper's rule, in closed form or with exact chains; uniform-node from 10,000 nodes on; "
            "with --recipients far:R, the farthest up to 4 that fits]",
        ),
    ] = None,
    walk: Annotated[
        str | None,
        typer.Option(metavar="KIND", help=f"{', '.join(WALKS)}; with --frontier several. [default: simple]"),
    ] = None,
    recipients: Annotated[
        str | None,
        typer.Option(metavar="K|auto", help="Seal for K hidden recipients, the first met opens; auto chooses K."),
    ] = None,
    keep: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="With auto: least share of the node entropy to keep. [default: 0.97]"),
    ] = None,
    model_bytes: Annotated[
        int | None,
        typer.Option(metavar="B", help="With recipients: bytes of the model. [default: 31400, MNIST softmax]"),
    ] = None,
    suite: Annotated[
        str | None, typer.Option(metavar="hybrid|x25519", help="With recipients: how it is sealed. [default: hybrid]")
    ] = None,
    budget_hops: Annotated[
        float | None, typer.Option(metavar="B", help="Most mean hops per update (laws for any graph).")
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(metavar="entropy|hit-ratio", help="What to optimise and certify. [default: entropy]"),
    ] = None,
    observer: Annotated[
        str | None,
        typer.Option(metavar="return-time|last-hop", help="Against whom; last-hop knows more. [default: return-time]"),
    ] = None,
    balanced: Annotated[
        bool | None,
        typer.Option("--balanced/--no-balanced", help="Every node updates equally often; optimal laws do anyway."),
    ] = None,
    frontier: Annotated[
        bool,
        typer.Option("--frontier", help="Walks and laws side by side: privacy against price; --out for the figure."),
    ] = False,
    window: Annotated[
        int | None, typer.Option(help="Half-width of the observer's window, in hops (delta). [default: 5]")
    ] = None,
    tail: Annotated[
        float | None, typer.Option(help="The guarantee holds with probability 1 - tail (delta'). [default: 0.3]")
    ] = None,
    return_time: Annotated[
        float | None, typer.Option(help="Return time designed for, in hops (kappa); inf for none seen.")
    ] = None,
    formulas: Annotated[
        str | None,
        typer.Option(
            metavar="corrected|printed", help="printed: what the paper's own text gives. [default: corrected]"
        ),
    ] = None,
    allow_neighbours: Annotated[
        bool, typer.Option("--allow-neighbours", help="Admit distance 1, against the paper's advice.")
    ] = False,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Most memory for tables, such as 8G. [default: 0.7 of all]")
    ] = None,
    engine: EngineOption = None,
    work: WorkOption = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the law to FILE, .npz or .json; with --frontier, a folder."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Choose how destinations are drawn; see privacy and price.

    Prints the law, what it guarantees, what it costs and which assumptions bend.

    Closed forms: veilwalk design --nodes 300 --degree 3 --support 2:6 --window 5 --tail 0.3

    A given graph: veilwalk design --graph rrg:300:3:seed=1 --support 2:6

    The best law there is: veilwalk design --graph rrg:300:3:seed=1 --law optimal --walk non-backtracking

    Privacy against price: veilwalk design --graph rrg:300:3:seed=1 --frontier --out frontier

    Sealed for several: veilwalk design --graph rrg:300:3:seed=1 --recipients 16 --law far:4 --walk non-backtracking

    For how many: veilwalk design --graph rrg:300:3:seed=1 --recipients auto --keep 0.97 --out several
    """
    given = {"budget_hops": budget_hops, "objective": objective, "observer": observer, "balanced": balanced}
    given |= {"window_radius": window, "tail_probability": tail, "return_time": return_time}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    distances = None if support is None else DistanceSupport.parse(support, allow_neighbours=allow_neighbours)
    several = {"keep": keep, "model_bytes": model_bytes, "suite": suite}
    _check_out(out, folder=frontier, either=recipients == "auto")
    network = _network(graph, roster)
    if network is None:
        if frontier or law is not None or memory is not None or recipients is not None:
            what = "--frontier" if frontier else f"--law {law}" if law else "--memory" if memory else "--recipients"
            raise ConfigError(f"{what} needs --graph")
        if walk not in {None, "simple"}:
            raise InvalidParameterError("walk", walk, "simple for --nodes and --degree; others need --graph")
        options["formulas"] = formulas or "corrected"
        _closed_form(nodes, degree, distances or _SUPPORT, options, out=out, as_json=as_json)
        return
    if nodes is not None or degree is not None or formulas is not None:
        raise ConfigError("--nodes, --degree and --formulas are for closed forms: leave them out with --graph")
    from veilwalk.core.sizes import LARGE_NODES
    from veilwalk.engine import JobStore

    if network.n_nodes < LARGE_NODES or recipients is not None or frontier:
        _refuse({"engine": engine, "work": work}, f"is for legs that are sampled, from {LARGE_NODES} nodes on")
    if recipients is not None or (law or "").startswith("far"):
        refused = {"frontier": frontier or None, "memory": memory} | options
        _several(network, recipients, law, walk, distances, several=several, refused=refused, out=out, as_json=as_json)
        return
    _refuse(several, "is for --recipients")
    if frontier:
        if law is not None:
            raise InvalidParameterError("law", law, "left out with a frontier, which has them all")
        if network.n_nodes >= LARGE_NODES:
            need = f"of fewer than {LARGE_NODES} for a frontier: beyond, design laws one by one and audit them"
            raise InvalidParameterError("graph", f"{network.n_nodes} nodes", need)
        _frontier(network, distances, walk, options, out=out, as_json=as_json)
        return
    limit = DEFAULT_MEMORY_BYTES if memory is None else parse_memory(memory)
    options |= {"support": distances, "walk": walk or "simple", "memory_bytes": limit, "executor": engine}
    options |= {"store": None if work is None else JobStore(work)}
    usual = "paper-exact" if network.n_nodes < LARGE_NODES else "uniform-node"
    _on_graph(network, law or usual, options, out, as_json=as_json)


def _network(graph: str | None, roster: Path | None) -> Graph | None:
    """Return the network to design on; None where there is none, and closed forms are asked for."""
    if roster is None:
        return None if graph is None else network_of(graph)
    if graph is not None:
        raise InvalidParameterError("roster", str(roster), "left out with --graph")
    from veilwalk.node.members import read_roster_draft

    announce_compiling()
    return read_roster_draft(roster).graph()


def _check_out(out: Path | None, *, folder: bool, either: bool) -> None:
    """Refuse what cannot be written, before anything is computed; ``either`` a folder or a file will do."""
    if out is None:
        return
    is_file = out.suffix in {".json", ".npz"}
    is_folder = folder or (either and not is_file)
    require_writable(out if is_folder else out.parent)
    if not is_folder and not is_file:
        raise InvalidParameterError("out", str(out), "a .json or .npz file")


def _refuse(options: Mapping[str, object], why: str) -> None:
    for name in (name for name, value in options.items() if value is not None):
        raise ConfigError(f"--{name.replace('_', '-')} {why}")


def _several(
    network: Graph,
    recipients: str | None,
    law: str | None,
    walk: str | None,
    support: DistanceSupport | None,
    *,
    several: Mapping[str, Any],
    refused: Mapping[str, object],
    out: Path | None,
    as_json: bool,
) -> None:
    from veilwalk.cli._design_several import design_recipients
    from veilwalk.design import MODEL_BYTES, Sealing

    _refuse(refused, "is for designs of one recipient: leave it out")
    size = several["model_bytes"]
    sealing = Sealing(model_bytes=MODEL_BYTES if size is None else size, suite=several["suite"] or "hybrid")
    design_recipients(
        network,
        recipients=recipients,
        keep=several["keep"],
        law=law,
        walk=walk,
        support=support,
        sealing=sealing,
        out=out,
        as_json=as_json,
    )


def _closed_form(
    nodes: int | None,
    degree: int | None,
    support: DistanceSupport,
    options: dict[str, Any],
    *,
    out: Path | None,
    as_json: bool,
) -> None:
    from veilwalk import theory
    from veilwalk.cli._design_tables import print_window_design
    from veilwalk.design import design_regular, relay_warning, save_law

    if nodes is None or degree is None:
        raise ConfigError("what to design for: give --graph, or both --nodes and --degree")
    taken = {"window_radius", "tail_probability", "return_time", "formulas"}
    for name in options.keys() - taken:
        raise InvalidParameterError(name, options[name], "left out, or given with a graph and a law that takes it")
    model = theory.AnonymityModel(
        walk=theory.WalkModel(n_nodes=nodes, degree=degree),
        support=support,
        window_radius=options.pop("window_radius", 5),
    )
    found = design_regular(model, **options)
    if out is not None:
        save_law(out, found.law)
    _show(found.to_dict(), lambda: print_window_design(found), out, as_json=as_json)
    if not as_json:
        say(f"warning: {relay_warning(1 / degree, turns=True)}")


def _on_graph(graph: Graph, law: str, options: dict[str, Any], out: Path | None, *, as_json: bool) -> None:
    from veilwalk.cli._design_tables import print_design
    from veilwalk.design import design as make_design
    from veilwalk.design import save_scheme

    with live_progress() as progress:
        progress(f"designing {law}")
        found = make_design(graph, law, **options)
    if out is not None:
        save_scheme(out, found.scheme)
    _show(found.to_dict(), lambda: print_design(found), out, as_json=as_json)
    if not as_json and (warning := found.scheme.relay_warning()):
        say(f"warning: {warning}")


def _show(content: Mapping[str, Any], show: Any, out: Path | None, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(plain(content), indent=2, allow_nan=False))
        return
    show()
    if out is not None:
        typer.echo(f"wrote {out}")


def _frontier(
    graph: Graph,
    support: DistanceSupport | None,
    walks: str | None,
    options: dict[str, Any],
    *,
    out: Path | None,
    as_json: bool,
) -> None:
    """Put walks and laws side by side, write the figure where asked, and print the table."""
    from veilwalk.cli._design_tables import print_frontier
    from veilwalk.design import default_support
    from veilwalk.experiments import privacy_price

    for name in options.keys() - {"observer"}:
        raise InvalidParameterError(name, options[name], "left out with a frontier")
    if walks is None:
        # On a regular graph a Metropolis walk refuses no move: it is the simple one. On a ring a non-backtracking walk
        # never turns.
        is_ring = graph.is_regular and graph.degrees[0] == 2
        kinds = ["simple", *([] if graph.is_regular else ["metropolis"]), *([] if is_ring else ["non-backtracking"])]
        walks = ",".join(kinds)
    with live_progress() as progress:
        record = privacy_price(
            graph,
            support=support or default_support(graph),
            walks=[Walk.parse(kind) for kind in walks.split(",")],
            progress=progress,
            **options,
        )
    paths: list[Path] = []
    if out is not None:
        paths = drawn_or_kept("frontier_files", record, out / "frontier.json")
    if as_json:
        typer.echo(record.to_json(), nl=False)
        return
    print_frontier(record)
    for path in paths:
        typer.echo(f"wrote {path}")
