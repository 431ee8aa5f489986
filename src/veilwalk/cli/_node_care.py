"""``veilwalk node check | drain | watch``: before a node starts, before it stops for a while, and meanwhile."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from veilwalk.cli._node import Config, ConfigFile, RunName, app, settings_file
from veilwalk.cli._output import console
from veilwalk.core.errors import ProtocolError

# These commands and those of _node are one group.
__all__ = ["app"]


@app.command("check")
def check(
    config: Config = None,
    *,
    config_file: ConfigFile = None,
    run: RunName = None,
    peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="Shake hands with every neighbour.", show_default=True)
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
) -> None:
    """Look at all a node needs, and start nothing.

    Keys, permissions, roster, manifest, data against the manifest, law, ports, disk, clock, and whether neighbours
    answer: a line each, ok or fails. The node may be running. Of several runs all are looked at, or the one of --run.

    Example: veilwalk node check clinic-a1/node.toml

    Exit code 1 where something fails.
    """
    from veilwalk.node.peer import check_node

    found = []
    for finding in check_node(settings_file(config, config_file), run=run, peers=peers):
        found.append(finding)
        if not as_json:
            typer.echo(f"{'ok   ' if finding.ok else 'fails'}  {finding.name}: {' '.join(finding.what.split())}")
    well = all(finding.ok for finding in found)
    if as_json:
        typer.echo(json.dumps({"ok": well, "findings": [asdict(finding) for finding in found]}, indent=2))
    if not well:
        raise typer.Exit(1)


@app.command("drain")
def drain(
    config: Config = None,
    *,
    config_file: ConfigFile = None,
    run: RunName = None,
    timeout: Annotated[float, typer.Option(help="Wait so many seconds until it has stopped.")] = 600.0,
) -> None:
    """Have a running node hand on what it holds, then stop.

    It takes nothing new meanwhile. For maintenance: nothing of the run waits on a machine that is away. Of several runs
    all are drained, or the one of --run: the others go on, and it starts again on SIGHUP or with the node.

    Example: veilwalk node drain clinic-a1/node.toml

    Exit code 3 where it has not stopped in time; it goes on handing out, and stops when it is done.
    """
    from veilwalk.node import load_config, load_configs
    from veilwalk.node.peer import drain_node, is_running

    path = settings_file(config, config_file)
    configs = load_configs(path) if run is None else (load_config(path, run),)
    states = [one.state for one in configs]
    if not any(is_running(state) for state in states):
        typer.echo("no node runs with this configuration")
        return
    with console().status("draining") as line:
        done = drain_node(states, timeout_s=timeout, tell=lambda held: line.update(f"{held} messages held"))
    if not done:
        raise ProtocolError(f"still holds messages after {timeout:g} s: its neighbours take them when they can")
    typer.echo("drained and stopped; it holds nothing")


@app.command("watch")
def watch(
    config: Config = None,
    *,
    config_file: ConfigFile = None,
    run: RunName = None,
    own: Annotated[
        bool, typer.Option("--own", help="Also show what this node itself has trained: for its operator's eyes only.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of the page, on this machine only; 0: any that is free.")] = 0,
) -> None:
    """Show a node's own state in a browser, on this machine.

    What the metrics of a node say and no more: nothing from which to tell when or whether it trained, unless --own asks
    for it. Read from its folder; it need not be running. Ctrl-C ends the page.

    Example: veilwalk node watch clinic-a1/node.toml
    """
    from veilwalk.watch import Feed, NodeSource, serve

    serve(Feed(NodeSource(settings_file(config, config_file), run=run, own=own)), port=port, tell=typer.echo)
