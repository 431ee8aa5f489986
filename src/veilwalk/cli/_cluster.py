"""``veilwalk cluster``: a whole network of real nodes on this machine, and a look at it from another terminal."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from veilwalk.cli import _rooms as rooms
from veilwalk.cli._interrupt import GUARD
from veilwalk.cli._options import AsJson, Count, Sets, Watch, merge_settings, option, take_options
from veilwalk.cli._output import (
    announce_compiling,
    console,
    make_group,
    page_of,
    print_facts,
    print_records,
    show_result,
)
from veilwalk.core.errors import ConfigError
from veilwalk.core.records import Record, write_atomically
from veilwalk.training import CLUSTER

app = make_group("Run a whole network of real nodes on this machine.")

# A look at all nodes does not read these: their fields would say 0, or nothing.
_NOT_READ = ("models", "roster_version", "manifest_version", "members_left_out", "updates")
Out = Annotated[Path, option("Folder for keys, configurations and state.", "DIR")]
_OUT = Path("out/cluster")
_NODE_COLUMNS = {
    "node": "{name}",
    "runs": "{running:yes or no}",
    "finished": "{finished:yes or no}",
    ">holds": "{in_custody}",
    ">hops": "{tallies[hops]}",
    ">updates made": "{tallies[updates]}",
}


@app.command("up")
@take_options(CLUSTER, but=("seed",))
def up(
    *,
    nodes: Annotated[
        Count,
        option(
            "How many nodes, instead of --graph: on a secret overlay, or published links with a law or walk.",
            default="20",
        ),
    ] = None,
    degree: Annotated[Count, option("Neighbours of each, with --nodes.", default="3")] = None,
    seed: Annotated[Count, option("Seed of network, data and training; walks are not seeded.", default="1")] = None,
    sets: Sets = None,
    timeout: Annotated[float, option("Give up after so many seconds.")] = 3600.0,
    out: Out = _OUT,
    watch: Watch = False,
    as_json: AsJson = False,
    **values: Any,
) -> None:
    """Start every node as a process and train to the end.

    Makes keys, roster, law and configurations first. Ctrl-C stops all nodes cleanly. A cluster in --out continues where
    it stopped, also after a restart of the machine: the folder holds its settings.

    Flags for rare cases: {rare}.

    Example: veilwalk cluster up --nodes 20 --degree 3 --data digits --updates 400

    Continue: veilwalk cluster up --out out/cluster
    """
    has_own_scheme = any(values[name] is not None for name in ("law", "support", "walk"))
    if nodes is not None or degree is not None or (has_own_scheme and values["graph"] is None):
        if values["graph"] is not None:
            raise ConfigError("--graph and --nodes, --degree name the network twice: leave one out")
        values["graph"] = _name_network(nodes or 20, degree or 3, seed, is_published=has_own_scheme)
    settings = merge_settings(CLUSTER, None, sets or [], values | {"seed": seed})
    spec = rooms.cluster.read_cluster_spec(out, settings) or CLUSTER.read(settings)
    with page_of(out, enabled=watch):
        record = _run(spec, out, timeout)
        write_atomically(out / "result.json", record.to_json().encode())
        content = record.to_dict()
        show_result(content, lambda: _print(content, out), as_json=as_json)


def _name_network(nodes: int, degree: int, seed: int | None, *, is_published: bool) -> str:
    """Return the spec of a network of so many nodes: an overlay, unless a scheme of one's own needs published links.

    Where all are neighbours there is nobody to seal for on an overlay.
    """
    kind = "rrg" if is_published or nodes <= degree + 1 else "overlay"
    return f"{kind}:{nodes}:{degree}:seed={1 if seed is None else seed}"


def _run(spec: rooms.training.RunSpec, out: Path, timeout: float) -> Record:
    announce_compiling()
    screen, started = console(), time.monotonic()
    with screen.status("designing the law, making keys") as line:
        setup = rooms.cluster.set_up_cluster(spec)
        for note in setup.scenario.notes:
            typer.echo(f"note: {note}", err=True)
        configs = rooms.cluster.prepare_or_resume(setup, out)
        rules = rooms.cluster.manifest_in(out).rules
        if rules.seconds:
            about = f"dwell {rules.dwell_s:g} s at every node: at least {rules.seconds:.0f} s for the run"
            typer.echo(about, err=True)
        waits = f"{rules.late_s:.0f} s without one, or {rules.starve_s:.0f} s without one that opens"
        # Not among the results, which may be JSON.
        typer.echo(f"a walk is believed lost after {waits}: a member may be away for so long", err=True)
        several = f"{rules.walks} walks, " if rules.walks > 1 else ""
        trail = rooms.cluster.Trail(out, configs, updates=spec.end.updates, evaluate=setup.evaluate)

        def report(status: rooms.cluster.ClusterStatus) -> None:
            trail.add(status)
            line.update(
                f"{status.alive} of {len(configs)} nodes up, {status.iteration} of {spec.end.updates} updates, "
                f"{several}{status.total('hops')} hops, {status.finished} nodes have the finished model"
            )

        # From here on Ctrl-C stops the nodes cleanly, however long that takes.
        GUARD.stop()
        GUARD.advise(f"veilwalk cluster up --out {out} goes on where the nodes stopped")
        with rooms.cluster.watching(out):
            final = rooms.cluster.run_cluster(configs, report, timeout_s=timeout)
        line.update("comparing with the prediction")
        return rooms.cluster.cluster_record(setup, out, final, seconds=time.monotonic() - started)


def _print(result: dict[str, Any], out: Path) -> None:
    mean, error = result["hops_per_update_predicted"], result["hops_per_update_expected_error"]
    has_walks = result["walks"] > 1
    facts = {
        "updates": result["updates"],
        "ended by": result["ended_by"],
        "walks": result["walks"] if has_walks else None,
        "model handed out": result["chosen"] if has_walks else None,
        "accuracy on held-out data": None if result["accuracy"] is None else f"{result['accuracy']:.2%}",
        "loss on held-out data, nats": f"{result['loss_nats']:.4f}",
        "hops": result["hops"],
        "hops per update, measured": f"{result['hops_per_update']:.2f}",
        "hops per update, predicted": f"{mean:.2f} ({result['hops_per_update_prediction']})",
        "where 95% of such runs fall, about": f"{max(mean - 2 * error, 0):.1f} to {mean + 2 * error:.1f}",
        "bytes of a message": result["message_bytes"],
        "bytes sent, MB": f"{result['bytes_sent'] / 1e6:.1f}",
        "seconds, this run": f"{result['seconds']:.1f}",
        **{f"{name}, counted": count or None for name, count in result["counts"].items()},
    }
    print_facts(f"{result['nodes']} nodes in {out}", facts)


@app.command("status")
def status(*, out: Out = _OUT, as_json: AsJson = False) -> None:
    """Print how far a cluster is, whoever runs it.

    The events of a node are in its log.jsonl.

    Example: veilwalk cluster status --out out/cluster
    """
    configs, state = rooms.cluster.cluster_configs(out), rooms.cluster.look_at_cluster(out)
    nodes, rows = {}, []
    for path, node in zip(configs, state.nodes, strict=True):
        runs, name = rooms.peer.is_running(rooms.node.load_config(path).state), path.parent.name
        known = {} if node is None else {key: value for key, value in asdict(node).items() if key not in _NOT_READ}
        nodes[name] = {"running": runs} | known
        # A node whose folder could not be read has dashes.
        tallies = {"hops": None, "updates": None} if node is None else {"hops": 0, "updates": 0} | node.tallies
        rows.append({"name": name, "finished": False, "in_custody": None} | nodes[name] | {"tallies": tallies})
    about = {"running": state.alive, "finished": state.finished, "iteration": state.iteration, "walks": state.walks}
    several = f" in {len(state.walks)} walks ({', '.join(map(str, state.walks))})" if len(state.walks) > 1 else ""
    title = (
        f"{out}: {state.alive} of {len(nodes)} nodes run, the newest model has had {state.iteration} updates{several}"
    )

    def show() -> None:
        print_records(title, _NODE_COLUMNS, rows)
        if not state.alive and state.finished < len(nodes):
            typer.echo(f"veilwalk cluster up --out {out} goes on")

    show_result({**about, "nodes": nodes}, show, as_json=as_json)


@app.command("down")
def down(*, out: Out = _OUT) -> None:
    """Stop all nodes of a cluster; they can go on later.

    Also those that outlived their cluster up. What they hold stays on disk.

    Example: veilwalk cluster down --out out/cluster
    """
    stopped = rooms.cluster.stop_cluster(out)
    typer.echo(f"{stopped} nodes were running, none is now; veilwalk cluster up --out {out} goes on")
