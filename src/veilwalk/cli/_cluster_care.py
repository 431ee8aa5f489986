"""``veilwalk cluster status | down | logs``: a cluster from another terminal, or after a restart."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilwalk.cli._cluster import DEFAULT_OUT, Out, app
from veilwalk.cli._output import by_walk, print_table
from veilwalk.core.errors import InvalidParameterError

if TYPE_CHECKING:
    from veilwalk.node import NodeStatus

# These commands and those of _cluster are one group.
__all__ = ["app"]


@app.command("status")
def status(
    *,
    out: Out = DEFAULT_OUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Print how far a cluster is, whoever runs it.

    Example: veilwalk cluster status --out out/cluster
    """
    from veilwalk.node import load_config
    from veilwalk.node.cluster import cluster_configs, look_at_cluster
    from veilwalk.node.peer import is_running

    configs, found = cluster_configs(out), look_at_cluster(out)
    up = [is_running(load_config(path).state) for path in configs]
    names = [path.parent.name for path in configs]
    if as_json:
        nodes = {
            name: {"running": runs} | ({} if node is None else _plain(node))
            for name, runs, node in zip(names, up, found.nodes, strict=True)
        }
        about = {"running": found.alive, "finished": found.finished, "iteration": found.iteration}
        typer.echo(json.dumps({**about, "walks": found.walks, "nodes": nodes}, indent=2))
        return
    rows = [
        (name, "yes" if runs else "no", *_row(node)) for name, runs, node in zip(names, up, found.nodes, strict=True)
    ]
    several = f" in {len(found.walks)} walks ({by_walk(found.walks)})" if len(found.walks) > 1 else ""
    print_table(
        f"{out}: {found.alive} of {len(names)} nodes run, the newest model has had {found.iteration} updates{several}",
        ("node", "runs", "finished", ">holds", ">hops", ">updates made"),
        rows,
    )
    if not found.alive and found.finished < len(names):
        typer.echo(f"veilwalk cluster up --out {out} goes on")


@app.command("down")
def down(*, out: Out = DEFAULT_OUT) -> None:
    """Stop all nodes of a cluster; they can go on later.

    Also those that outlived their cluster up. What they hold stays on disk.

    Example: veilwalk cluster down --out out/cluster
    """
    from veilwalk.node.cluster import stop_cluster

    typer.echo(f"{stop_cluster(out)} nodes were running, none is now; veilwalk cluster up --out {out} goes on")


@app.command("logs")
def logs(
    node: Annotated[str | None, typer.Argument(metavar="NODE", help="Of this node only.", show_default=False)] = None,
    *,
    out: Out = DEFAULT_OUT,
    lines: Annotated[int, typer.Option(help="The last so many of each node.")] = 10,
) -> None:
    """Print the last events of the nodes.

    Example: veilwalk cluster logs n07 --lines 50
    """
    from veilwalk.node.cluster import cluster_configs

    if lines < 1:
        raise InvalidParameterError("--lines", lines, "at least 1")
    folders = [path.parent for path in cluster_configs(out)]
    if node is not None and node not in {folder.name for folder in folders}:
        raise InvalidParameterError("node", node, f"one of {folders[0].name} to {folders[-1].name}")
    for folder in folders:
        if node in {None, folder.name}:
            for line in _last_lines(folder / "log.jsonl", lines):
                typer.echo(line if node is not None else f"{folder.name} {line}")


def _last_lines(path: Path, count: int) -> list[str]:
    if not path.exists():
        return []
    return path.read_text(errors="replace").splitlines()[-count:]


# What a look at all nodes does not read: its fields would say 0, or nothing, of what is otherwise.
_NOT_READ = ("models", "roster_version", "manifest_version", "members_left_out")


def _plain(node: NodeStatus) -> dict[str, Any]:
    return {name: value for name, value in asdict(node).items() if name not in _NOT_READ}


def _row(node: NodeStatus | None) -> tuple[str, str, str, str]:
    if node is None:
        return "no", "-", "-", "-"
    tallies = node.tallies
    finished = "yes" if node.finished else "no"
    return finished, str(node.in_custody), str(tallies.get("hops", 0)), str(tallies.get("updates", 0))
