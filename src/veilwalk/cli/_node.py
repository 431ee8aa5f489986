"""``veilwalk node``: run one peer of a real network, and look after it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from veilwalk.cli import _rooms as rooms
from veilwalk.cli._doctor import show_findings
from veilwalk.cli._keys import PasswordFile, read_optional_password
from veilwalk.cli._options import AsJson, File, Sets, argument, flag, merge_settings, option, take_options
from veilwalk.cli._output import console, make_group, print_facts, print_records, print_table, show_result
from veilwalk.core.errors import InvalidParameterError, ProtocolError
from veilwalk.core.units import readable_seconds
from veilwalk.training import MANIFEST

app = make_group("Be one peer of a real network.")

Config = Annotated[File, argument("CONFIG", "The node's settings. [default: node.toml]")]
ConfigFile = Annotated[File, option("The same, as a flag.", "FILE", name="--config")]
_PREVIOUS = "The signed manifest that this one follows, for a run under way; what is not given stays as it is."
_NEIGHBOUR_COLUMNS = {
    "name": "{name}",
    "connected": "{up:yes or no}",
    ">seconds for a message": "{seconds:.3g}",
    ">handed to it": "{handed}",
    ">brought by it": "{brought}",
    "avoided or slowed now": "{remark}",
}


def settings_file(place: Path | None, flag: Path | None) -> Path:
    """Return the file that was given, by its place or by its flag, or the one that is taken without either."""
    if place is not None and flag is not None:
        raise InvalidParameterError("config", str(flag), f"left out: {place} is given")
    return place or flag or Path("node.toml")


@app.command("run")
def run(config: Config = None, *, config_file: ConfigFile = None) -> None:
    """Run a node until SIGTERM or Ctrl-C.

    Started again, it goes on where it stopped.

    node.toml names its keys, the root's public key, roster, manifest, law, its data and a folder for its state; see
    docs/how-to/deploy-on-three-machines.md. Events go to standard error, one JSON object a line. A new version of
    roster or manifest is followed when its file changes, or at once on SIGHUP.

    Example: veilwalk node run clinic-a/node.toml
    """
    rooms.node.run_node(settings_file(config, config_file))


@app.command("status")
def status(config: Config = None, *, config_file: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print what a node has done, for its operator only.

    From its own folder; it need not be running.

    Example: veilwalk node status clinic-a/node.toml
    """
    path = settings_file(config, config_file)
    state = rooms.node.node_status(rooms.node.load_config(path).state, with_versions=True)
    tallies = rooms.peer.describe_tallies(state.tallies, with_own=True)
    facts = {
        "finished": "yes" if state.finished else "no",
        "ends, by SHA-256": ", ".join(digest[:16] for digest in state.ends),
        "ends undone here, by SHA-256": ", ".join(digest[:16] for digest in state.undone),
        "updates that its newest model has had": f"{state.iteration} of {state.updates or '?'}",
        "the same of each walk": ", ".join(map(str, state.walks)) if len(state.walks) > 1 else None,
        "messages in custody": state.in_custody,
        "version of roster, of manifest": f"{state.roster_version}, {state.manifest_version}",
        "members that the law lacks": ", ".join(state.members_left_out),
        **{f"{metric.name}: {metric.about}": count for metric, count in tallies},
    }
    content = {name: value for name, value in asdict(state).items() if name != "models"}

    def show() -> None:
        print_facts(str(path), facts)
        if state.neighbours:
            rows = [{"name": name} | dict(neighbour) for name, neighbour in state.neighbours.items()]
            print_records("neighbours, when the node last looked", _NEIGHBOUR_COLUMNS, rows)
        if 0 < state.updates < state.iteration and not state.finished:
            typer.echo(
                "it has more updates than the manifest asks for: the next walk that some member makes ends the run"
            )

    show_result(content, show, as_json=as_json)


@app.command("unfinish")
def unfinish(config: Config = None, *, config_file: ConfigFile = None) -> None:
    """Undo the end of the run at a node that is stopped.

    For a finished model that is not the run's: forged, or made of wrong data. Started again, the node goes on from its
    own last model, and does not believe that finished one again. Do it at every node that has it before starting any.

    Example: veilwalk node unfinish clinic-a/node.toml
    """
    path = settings_file(config, config_file)
    undone = rooms.node.unfinish_node(rooms.node.load_config(path).state)
    typer.echo(f"{path}: {'goes on from its own last model' if undone else 'was not finished'}")


@app.command("check")
def check(
    config: Config = None,
    *,
    config_file: ConfigFile = None,
    peers: Annotated[bool, flag("--peers/--no-peers", "Shake hands with every neighbour.")] = True,
    as_json: AsJson = False,
) -> None:
    """Look at all a node needs, and start nothing.

    Keys, permissions, roster, manifest, data against the manifest, law, ports, disk, clock, whether neighbours answer,
    whether everybody trains under this roster, and the dwell that this machine needs: a line each, ok or fails. The
    node may be running.

    Example: veilwalk node check clinic-a1/node.toml

    Exit code 1 where something fails.
    """
    path = settings_file(config, config_file)
    show_findings(rooms.cluster.check_node(path, peers=peers), as_json=as_json)


@app.command("drain")
def drain(
    config: Config = None,
    *,
    config_file: ConfigFile = None,
    timeout: Annotated[float, option("Wait so many seconds until it has stopped.")] = 600.0,
) -> None:
    """Have a running node hand on what it holds, then stop.

    It takes nothing new meanwhile. For maintenance: nothing of the run waits on a machine that is away.

    Example: veilwalk node drain clinic-a1/node.toml

    Exit code 3 where it has not stopped in time; it goes on handing out, and stops when it is done.
    """
    path = settings_file(config, config_file)
    state = rooms.node.load_config(path).state
    if not rooms.peer.is_running(state):
        typer.echo("no node runs with this configuration")
        return
    with console().status("draining") as line:
        done = rooms.peer.drain_node(state, timeout_s=timeout, tell=lambda held: line.update(f"{held} messages held"))
    if not done:
        raise ProtocolError(f"still holds messages after {timeout:g} s: its neighbours take them when they can")
    typer.echo("drained and stopped; it holds nothing")


@app.command("watch")
def watch(
    config: Config = None,
    *,
    config_file: ConfigFile = None,
    own: Annotated[bool, flag("--own", "Also show what this node has trained: for its operator only.")] = False,
    port: Annotated[int, option("Port of the page, on this machine only; 0: any that is free.")] = 0,
) -> None:
    """Show a node's own state in a browser, on this machine.

    What the metrics of a node say and no more: nothing from which to tell when or whether it trained, unless --own asks
    for it. Read from its folder; it need not be running. Ctrl-C ends the page.

    Example: veilwalk node watch clinic-a1/node.toml
    """
    source = rooms.watch.NodeSource(settings_file(config, config_file), own=own)
    rooms.watch.serve(rooms.watch.Feed(source), port=port, announce=typer.echo)


@app.command("manifest")
@take_options(MANIFEST)
def manifest(
    *,
    root_keys: Annotated[Path, typer.Option("--root", metavar="DIR", help="Directory of the root key.")],
    roster: Annotated[Path, option("The signed roster.", "FILE")],
    features: Annotated[int, option("Numbers in a row of everybody's data.")],
    classes: Annotated[int, option("Labels run from 0 to one less; 0 for real labels.")],
    out: Annotated[Path, option("Where to write the manifest and its signature.", "FILE")],
    previous: Annotated[File, option(_PREVIOUS, "FILE")] = None,
    days: Annotated[float | None, option("Days until it expires.", default="never")] = None,
    test: Annotated[File, option("Public test set of --target-accuracy, .npz of features and labels.", "FILE")] = None,
    rows: Annotated[int, option("Rows of the largest member's data, for the trial of the dwell.")] = 1000,
    norm_bound: Annotated[
        float | None, option("Models of a larger norm are refused.", default="1e6, or as before")
    ] = None,
    sets: Sets = None,
    password_file: PasswordFile = None,
    **values: Any,
) -> None:
    """Make and sign what all members of a run agree on.

    Model, learner, law, walk and end. --law takes far:R or uniform-node:LO:HI, which every node computes from the
    roster, or a law file (.npz) that design --graph made for its graph; by default far:R as recommended.

    Flags for rare cases: {rare}.

    Example: veilwalk node manifest --root root --roster roster.json --law law.npz --features 64 --classes 10
    --updates 400 --out manifest.json
    """
    rooms.members.require_unsigned(out)
    settings = merge_settings(MANIFEST, None, sets or [], values)
    if previous is None and "updates" not in settings:
        raise InvalidParameterError("updates", None, "a whole number: the model is finished after so many")
    spec = MANIFEST.read(settings) if previous is None else rooms.cluster.read_previous(settings, previous, root_keys)
    signed, warning = rooms.node.make_manifest(
        spec,
        n_features=features,
        n_classes=classes,
        root_keys=root_keys,
        roster=roster,
        out=out,
        previous=previous,
        test=test,
        rows=rows,
        norm_bound=norm_bound,
        days=days,
        password=read_optional_password(password_file),
    )
    typer.echo(f"{out} and its signature: {signed.body_bytes} bytes of model in buckets of {signed.bucket_bytes}")
    law = signed.law or f"of {spec.scheme.law}"
    rules = signed.rules
    typer.echo(f"version {signed.version}; law: {law}; walk: {rules.walk}; sealed for {signed.recipients}")
    typer.echo(f"every message stays {rules.dwell_s:g} s at every node")
    typer.echo(
        f"all {rules.updates} updates take at least {readable_seconds(rules.seconds)}: hops per update times the dwell"
    )
    print_table("what members agree on", ("what", "value"), rooms.cluster.describe_manifest(signed))
    if warning is not None:
        typer.echo(f"note: {warning}")
    if previous is not None:
        changes = rooms.cluster.describe_manifest_changes(rooms.members.Manifest.read_draft(previous), signed)
        print_table(f"changes from version {signed.version - 1}", ("what", "before", "now"), changes)
    typer.echo(
        f"walks are believed lost after {rules.late_s:.0f} s without a visit (by exact return times, and time for "
        f"outages), or {rules.starve_s:.0f} s without an opening (estimated); one false alarm in "
        f"{spec.timing.alarm_hops:g} hops is expected"
    )
