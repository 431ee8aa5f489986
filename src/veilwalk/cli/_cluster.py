"""``veilwalk cluster``: a whole network of real nodes on this machine."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilwalk.cli._graph import SPEC_HELP
from veilwalk.cli._output import (
    PAYLOAD_HELP,
    WALKS_HELP,
    Accept,
    AllowSandwich,
    Clip,
    Delta,
    Epsilon,
    MostUpdates,
    Noise,
    Protect,
    announce_compiling,
    console,
    help_without_verb,
    print_table,
)
from veilwalk.cli._watch import Watch, page_of
from veilwalk.core.records import plain, write_atomically

if TYPE_CHECKING:
    from veilwalk.core.records import Record
    from veilwalk.node.cluster import ClusterSettings, ClusterStatus

app = typer.Typer(rich_markup_mode=None)

DEFAULT_OUT = Path("out/cluster")
Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder for keys, configurations and state.")]


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Run a whole network of real nodes on this machine."""
    help_without_verb(context)


@app.command("up")
def up(
    context: typer.Context,
    *,
    nodes: Annotated[int, typer.Option(help="How many nodes.")] = 20,
    degree: Annotated[int, typer.Option(help="Neighbours of each.")] = 3,
    graph: Annotated[
        str | None, typer.Option(metavar="SPEC", help=f"The network, instead of a random regular one: {SPEC_HELP}")
    ] = None,
    data: Annotated[
        str, typer.Option(metavar="SPEC", help="digits, mnist:DIR, npz:FILE, csv:FILE or parquet:FILE.")
    ] = "digits",
    partition: Annotated[str, typer.Option(metavar="SPEC", help="iid, dirichlet:ALPHA, shards:N, ...")] = "iid",
    learner: Annotated[str, typer.Option(metavar="SPEC", help="softmax, mlp:hidden=64, or module:Class.")] = "softmax",
    updates: Annotated[int, typer.Option(help="The model is finished after so many.")] = 400,
    walks: Annotated[int, typer.Option(metavar="W", help=WALKS_HELP)] = 1,
    target_accuracy: Annotated[
        float | None, typer.Option(help="Or when it reaches this on the held-out data, which are then public.")
    ] = None,
    evaluations: Annotated[int, typer.Option(help="About how often to look whether it does.")] = 40,
    support: Annotated[
        str | None, typer.Option(metavar="LO:HI", help="Distances of a destination; 2 to as far as all reach, or 6.")
    ] = None,
    law: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Any law of veilwalk design, or a file that it wrote. [default: as recommended for the network, "
            "sealed for several; where another part of the scheme is given, paper-exact]",
        ),
    ] = None,
    walk: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="simple or non-backtracking. [default: non-backtracking, or the law file's own]",
        ),
    ] = None,
    recipients: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="For how many an update is sealed; the first met opens it. [default: as a law file says, or 1]",
        ),
    ] = None,
    allow_sandwich: AllowSandwich = False,
    dwell: Annotated[
        float | None,
        typer.Option(help="Seconds every message stays at every node; 0 for none. [default: by a trial update]"),
    ] = None,
    protect: Protect = "node",
    epsilon: Epsilon = 0.0,
    delta: Delta = 1e-5,
    clip: Clip = 0.0,
    noise: Noise = 0.0,
    most_updates: MostUpdates = 0,
    payload: Annotated[str, typer.Option(metavar="FORM", help=PAYLOAD_HELP)] = "fp32",
    accept: Accept = "none",
    away: Annotated[
        float,
        typer.Option(help="Seconds a member may be away without a walk being made in its stead; 0: by chance alone."),
    ] = 60.0,
    suite: Annotated[str, typer.Option(metavar="hybrid|x25519", help="hybrid: ML-KEM-768 and X25519.")] = "hybrid",
    seed: Annotated[int, typer.Option(help="Seed of network, data and training; walks are not seeded.")] = 1,
    timeout: Annotated[float, typer.Option(help="Give up after so many seconds.")] = 3600.0,
    out: Out = DEFAULT_OUT,
    watch: Watch = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Start every node as a process and train to the end.

    Makes keys, roster, law and configurations first. Ctrl-C stops all nodes cleanly. A cluster that is there goes on
    where it stopped, also after a restart of the machine: the folder knows its settings.

    Example: veilwalk cluster up --nodes 20 --degree 3 --data digits --updates 400

    Go on: veilwalk cluster up --out out/cluster
    """
    from veilwalk.node import ClusterSettings
    from veilwalk.node.cluster import settings_in

    flags: dict[str, Any] = {
        "graph": f"rrg:{nodes}:{degree}:seed={seed}" if graph is None else graph,
        "data": data, "partition": partition, "learner": learner, "law": law, "support": support, "walk": walk,
        "recipients": recipients, "allow_sandwich": allow_sandwich, "updates": updates,
        "walks": walks, "target_accuracy": target_accuracy, "evaluations": evaluations, "dwell": dwell, "clip": clip,
        "noise": noise, "protect": protect, "epsilon": epsilon, "delta": delta, "most_updates": most_updates,
        "payload": payload, "accept": accept,
        "away": away, "suite": suite, "seed": seed,
    }  # fmt: skip
    settings = settings_in(out, _given(context, flags)) or ClusterSettings(**flags)
    with page_of(out, wanted=watch):
        try:
            record = _run(settings, out, timeout)
        except KeyboardInterrupt:
            typer.echo(f"veilwalk cluster up --out {out} goes on where the nodes stopped", err=True)
            raise
        write_atomically(out / "result.json", record.to_json().encode())
        if as_json:
            typer.echo(json.dumps(plain(record.to_dict()), indent=2))
        else:
            _print(record.to_dict(), out)


def _given(context: typer.Context, flags: dict[str, Any]) -> dict[str, Any]:
    """Return the flags that were given, and not left at their defaults."""
    given = {name for name in context.params if str(context.get_parameter_source(name)).endswith("COMMANDLINE")}
    if given & {"nodes", "degree"}:
        given.add("graph")
    return {name: value for name, value in flags.items() if name in given}


def _run(settings: ClusterSettings, out: Path, timeout: float) -> Record:
    from veilwalk.node import cluster as room

    announce_compiling()
    screen = console()
    started = time.monotonic()
    with screen.status("designing the law, making keys") as line:
        setup = room.set_up_cluster(settings)
        for note in setup.scenario.notes:
            typer.echo(f"note: {note}", err=True)
        configs = room.prepare_or_resume(setup, out)
        rules = room.rules_in(out)
        if rules.seconds:
            about = f"dwell {rules.dwell_s:g} s at every node: at least {rules.seconds:.0f} s for the run"
            typer.echo(about, err=True)
        waits = f"{rules.late_s:.0f} s without one, or {rules.starve_s:.0f} s without one that opens"
        # Not among the results, which may be JSON.
        typer.echo(f"a walk is believed lost after {waits}: a member may be away for so long", err=True)

        several = f"{rules.walks} walks, " if rules.walks > 1 else ""

        trail = room.Trail(out, configs, updates=settings.updates, evaluate=setup.evaluate)

        def tell(status: ClusterStatus) -> None:
            trail.add(status)
            line.update(
                f"{status.alive} of {len(configs)} nodes up, {status.iteration} of {settings.updates} updates, "
                f"{several}{status.total('hops')} hops, {status.finished} nodes have the finished model"
            )

        with room.watching(out):
            final = room.run_cluster(configs, tell, timeout_s=timeout)
        line.update("comparing with the prediction")
        return room.cluster_record(setup, out, final, seconds=time.monotonic() - started)


def _print(result: dict[str, Any], out: Path) -> None:
    low = result["hops_per_update_predicted"] - 2 * result["hops_per_update_expected_error"]
    high = result["hops_per_update_predicted"] + 2 * result["hops_per_update_expected_error"]
    predicted = f"{result['hops_per_update_predicted']:.2f} ({result['hops_per_update_prediction']})"
    accuracy = result["accuracy"]
    rows = [
        ("updates", str(result["updates"])),
        ("ended by", result["ended_by"]),
        *([("walks", str(result["walks"])), ("model handed out", result["chosen"])] if result["walks"] > 1 else []),
        ("accuracy on held-out data", "" if accuracy is None else f"{accuracy:.2%}"),
        ("loss on held-out data, nats", f"{result['loss_nats']:.4f}"),
        ("hops", str(result["hops"])),
        ("hops per update, measured", f"{result['hops_per_update']:.2f}"),
        ("hops per update, predicted", predicted),
        ("where 95% of such runs fall, about", f"{max(low, 0):.1f} to {high:.1f}"),
        ("bytes of a message", str(result["message_bytes"])),
        ("bytes sent, MB", f"{result['bytes_sent'] / 1e6:.1f}"),
        ("seconds, this run", f"{result['seconds']:.1f}"),
        *((f"{name}, counted", str(value)) for name, value in result["counts"].items() if value),
    ]
    print_table(f"{result['nodes']} nodes in {out}", ("", ">value"), rows)
