"""``veilwalk node``: be one peer of a real network."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from veilwalk.cli._keys import PasswordFile, read_optional_password
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
    asked_walk,
    by_walk,
    help_without_verb,
    print_table,
)
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.units import readable_seconds

app = typer.Typer(rich_markup_mode=None)

Config = Annotated[
    Path | None,
    typer.Argument(metavar="CONFIG", help="The node's settings. [default: node.toml]", show_default=False),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The same, as a flag.", show_default=False)
]
RunName = Annotated[
    str | None, typer.Option(metavar="NAME", help="Which run, where node.toml has several.", show_default=False)
]


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Be one peer of a real network."""
    help_without_verb(context)


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
    roster or manifest is followed when its file changes, or at once on SIGHUP. With several [[run]] tables it works in
    all these runs, at one port and with one key set; see docs/how-to/several-runs-on-one-node.md.

    Example: veilwalk node run clinic-a/node.toml
    """
    from veilwalk.node import run_node

    run_node(settings_file(config, config_file))


@app.command("status")
def status(
    config: Config = None,
    *,
    config_file: ConfigFile = None,
    run: RunName = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Print what a node has done, for its operator only.

    From its own folder; it need not be running.

    Example: veilwalk node status clinic-a/node.toml
    """
    from veilwalk.node import load_config, node_status

    path = settings_file(config, config_file)
    found = node_status(load_config(path, run).state, with_versions=True)
    if as_json:
        content = asdict(found)
        del content["models"]
        typer.echo(json.dumps(content, indent=2))
        return
    rows = [
        ("finished", "yes" if found.finished else "no"),
        ("updates that its newest model has had", str(found.iteration)),
        *([(f"the same of each of {len(found.walks)} walks", by_walk(found.walks))] if len(found.walks) > 1 else []),
        ("messages in custody", str(found.in_custody)),
        ("version of roster, of manifest", f"{found.roster_version}, {found.manifest_version}"),
        *([("members that the law lacks", ", ".join(found.members_left_out))] if found.members_left_out else []),
        *((f"{name.replace('_', ' ')}, counted", str(value)) for name, value in sorted(found.tallies.items())),
    ]
    print_table(str(path), ("", ">value"), rows)


@app.command("unfinish")
def unfinish(config: Config = None, *, config_file: ConfigFile = None, run: RunName = None) -> None:
    """Undo the end of the run at a node that is stopped.

    For a finished model that is not the run's: forged, or made of wrong data. Started again, the node goes on from its
    own last model, and does not believe that finished one again. Do it at every node that has it before starting any.

    Example: veilwalk node unfinish clinic-a/node.toml
    """
    from veilwalk.node import load_config, unfinish_node

    path = settings_file(config, config_file)
    undone = unfinish_node(load_config(path, run).state)
    typer.echo(f"{path}: {'goes on from its own last model' if undone else 'was not finished'}")


@app.command("manifest")
def manifest(
    *,
    root_keys: Annotated[Path, typer.Option("--root", metavar="DIR", help="Directory of the root key.")],
    roster: Annotated[Path, typer.Option(metavar="FILE", help="The signed roster.")],
    features: Annotated[int, typer.Option(help="Numbers in a row of everybody's data.")],
    classes: Annotated[int, typer.Option(help="Labels run from 0 to one less; 0 for real labels.")],
    updates: Annotated[int, typer.Option(help="The model is finished after so many.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the manifest and its signature.")],
    law: Annotated[
        str | None,
        typer.Option(
            metavar="RULE|FILE",
            help="far:R or uniform-node:LO:HI, which every node works out from the roster; or a law, .npz, made by "
            "design --graph for its graph. [default: far:R as recommended for it]",
        ),
    ] = None,
    previous: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The signed manifest that this one follows, for a run under way."),
    ] = None,
    walks: Annotated[
        int | None, typer.Option(metavar="W", help=f"{WALKS_HELP} [default: 1, or as before]", show_default=False)
    ] = None,
    days: Annotated[float | None, typer.Option(help="Days until it expires. [default: never]")] = None,
    target_accuracy: Annotated[
        float | None, typer.Option(help="Or when it reaches this on the public test set; needs --test.")
    ] = None,
    test: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The public test set, .npz with features and labels.")
    ] = None,
    evaluations: Annotated[int, typer.Option(help="About how often to look whether it does.")] = 40,
    learner: Annotated[str, typer.Option(metavar="SPEC", help="softmax, mlp:hidden=64, or module:Class.")] = "softmax",
    walk: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="simple or non-backtracking. [default: the law's own]"),
    ] = None,
    recipients: Annotated[
        int | None,
        typer.Option(
            metavar="K", help="For how many an update is sealed; the first met opens it. [default: the law's own]"
        ),
    ] = None,
    allow_sandwich: AllowSandwich = False,
    dwell: Annotated[
        float | None,
        typer.Option(help="Seconds every message stays at every node; 0 for none. [default: by a trial update]"),
    ] = None,
    rows: Annotated[int, typer.Option(help="Rows of the largest member's data, for that trial.")] = 1000,
    protect: Protect = "node",
    epsilon: Epsilon = 0.0,
    delta: Delta = 1e-5,
    clip: Clip = 0.0,
    noise: Noise = 0.0,
    most_updates: MostUpdates = 0,
    payload: Annotated[
        str | None,
        typer.Option(metavar="FORM", help=f"{PAYLOAD_HELP} [default: fp32, or as before]", show_default=False),
    ] = None,
    accept: Accept = "none",
    spare: Annotated[
        float,
        typer.Option(help="Keep a spare copy of what was handed on until so many seconds after that; 0 for none."),
    ] = 0.0,
    hop: Annotated[float, typer.Option(help="Seconds a hop takes where nothing dwells.")] = 0.05,
    away: Annotated[
        float,
        typer.Option(help="Seconds a member may be away without a walk being made in its stead; 0: by chance alone."),
    ] = 60.0,
    alarm_hops: Annotated[float, typer.Option(help="A walk is believed lost once in so many hops by mistake.")] = 1e7,
    norm_bound: Annotated[float, typer.Option(help="Models of a larger norm are refused.")] = 1e6,
    seed: Annotated[int, typer.Option(help="Seed of training; walks draw from the operating system.")] = 1,
    password_file: PasswordFile = None,
) -> None:
    """Make and sign what all members of a run agree on.

    Model, learner, law, walk and end.

    Example: veilwalk node manifest --root root --roster roster.json --law law.npz --features 64 --classes 10
    --updates 400 --out manifest.json
    """
    from veilwalk.node import RunRequest, make_manifest
    from veilwalk.node.members import require_unsigned

    require_unsigned(out)
    request = RunRequest(
        learner=learner,
        n_features=features,
        n_classes=classes,
        walk=asked_walk(walk),
        recipients=recipients,
        allow_sandwich=allow_sandwich,
        updates=updates,
        walks=walks,
        target_accuracy=target_accuracy,
        test=test,
        evaluations=evaluations,
        dwell_s=dwell,
        rows=rows,
        protect=protect,
        epsilon=epsilon,
        delta=delta,
        clip=clip,
        noise=noise,
        most_updates=most_updates,
        payload=payload,
        accept=accept,
        spare_s=spare,
        hop_s=hop,
        away_s=away,
        alarm_hops=alarm_hops,
        norm_bound=norm_bound,
        seed=seed,
        days=days,
    )
    made, lost, seconds = make_manifest(
        request,
        root_keys=root_keys,
        roster=roster,
        out=out,
        law=law,
        previous=previous,
        password=read_optional_password(password_file),
    )
    typer.echo(f"{out} and its signature: {made.body_bytes} bytes of model in buckets of {made.bucket_bytes}")
    law_text = made.law or f"of {law}"
    typer.echo(f"version {made.version}; law: {law_text}; walk: {made.walk}; sealed for {made.recipients}")
    typer.echo(f"all {updates} updates take at least {readable_seconds(seconds)}: hops per update times the dwell")
    typer.echo(f"walks are believed lost after {lost}; one false alarm in {alarm_hops:g} hops is to be expected")
