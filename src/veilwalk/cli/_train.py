"""``veilwalk train``: private learning, end to end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilwalk.cli._config import collected
from veilwalk.cli._graph import SPEC_HELP
from veilwalk.cli._output import print_table
from veilwalk.core.errors import ConfigError

if TYPE_CHECKING:
    from veilwalk.core.records import Record
    from veilwalk.experiments import TrainSettings, Watch


def train(
    *,
    graph: Annotated[
        str | None, typer.Option(metavar="SPEC", help=f"Network: {SPEC_HELP} [default: rrg:300:3:seed=1]")
    ] = None,
    law: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="uniform-distance, uniform-node, paper, paper-printed, or a file written by design --out. "
            "[default: paper]",
        ),
    ] = None,
    support: Annotated[
        str | None, typer.Option(metavar="LO:HI", help="Distances of a law given by name. [default: 2:6]")
    ] = None,
    walk: Annotated[
        str | None,
        typer.Option(help="simple, lazy, metropolis, non-backtracking or least-recent. [default: simple]"),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="SPEC", help="digits, mnist:DIR or npz:FILE. [default: digits]")
    ] = None,
    learner: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="softmax, mlp, sklearn, or module:Class of your own, each with :name=value options. "
            "[default: softmax:learning_rate=0.3]",
        ),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="How data are dealt out: iid, dirichlet:ALPHA, shards:PER_NODE, pathological:CLASSES, "
            "graph:CORRELATION or natural:COLUMN. [default: dirichlet:0.3]",
        ),
    ] = None,
    tokens: Annotated[int | None, typer.Option(help="Models that walk side by side, averaged. [default: 1]")] = None,
    updates: Annotated[int | None, typer.Option(help="Updates of every algorithm. [default: 3000]")] = None,
    compare: Annotated[
        str | None,
        typer.Option(help="none, or some of plain-walk,gossip,central. [default: plain-walk,gossip,central]"),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(metavar="MULTIPLIER", help="Gaussian noise on every update, in units of --clip. [default: 0]"),
    ] = None,
    clip: Annotated[
        float | None, typer.Option(metavar="NORM", help="Largest norm of an update; 0 does not clip. [default: 0]")
    ] = None,
    attack: Annotated[
        int | None, typer.Option(help="Deliveries on which to try the content attack; 0 for none. [default: 400]")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything. [default: 7]")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the run there: settings, checkpoints, table, report.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    config: Annotated[Path | None, typer.Option(metavar="FILE.toml", help="Settings; flags win over it.")] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting; wins over --config.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON instead of tables.")] = False,
) -> None:
    """Train a model over a network of peers so that no receiver can tell whose update it got.

    Says what was gained and what it cost, beside a plain walk, gossip and central training on the same data. By
    default 300 peers learn to read digits: about a minute on two cores, offline.

    Example: veilwalk train --data mnist:DIR --partition iid --updates 5000 --out run
    """
    flags = {
        "graph": graph, "law": law, "support": support, "walk": walk, "data": data, "learner": learner,
        "partition": partition, "tokens": tokens, "updates": updates, "compare": compare, "noise": noise,
        "clip": clip, "attack": attack, "seed": seed,
    }  # fmt: skip
    from veilwalk.experiments import run_training

    settings = _settings(collected(config, sets or [], flags), out, resume=resume)
    try:
        with _watching() as watch:
            record = run_training(settings, out=out, resume=resume, watch=watch)
    except KeyboardInterrupt:
        if out is not None:
            typer.echo(f"veilwalk train --resume --out {out} goes on from the last checkpoint", err=True)
        raise
    paths = _write(record, out) if out is not None else []
    if as_json:
        typer.echo(json.dumps(record.to_dict(), indent=2))
        return
    print_training(record)
    for path in paths:
        typer.echo(f"wrote {path}")


def _settings(asked: dict[str, Any], out: Path | None, *, resume: bool) -> TrainSettings:
    """Return the settings asked for; a run that is resumed brings its own, which must agree with what is asked."""
    from veilwalk.experiments import RunFolder, TrainSettings

    if not resume:
        return TrainSettings.of(asked)
    if out is None:
        raise ConfigError("--resume needs --out: the folder of the run to go on with")
    folder = RunFolder(out)
    if not folder.started:
        raise ConfigError(f"{out} holds no run to resume: leave out --resume")
    return folder.settings(asked)


def _write(record: Record, folder: Path) -> list[Path]:
    from veilwalk.report import training_report

    return [folder / "record.json", folder / "metrics.csv", training_report(record, folder / "report.html")]


@contextmanager
def _watching() -> Iterator[Watch]:
    """A live display on standard error, where that is a terminal: updates, hops, accuracy, time left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    screen = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[news]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as live:
        rows: dict[str, Any] = {}

        def watch(stage: str, done: int, total: int, news: str) -> None:
            if stage not in rows:
                rows[stage] = live.add_task(stage, total=total or None, news="")
            live.update(rows[stage], completed=done, total=total or None, news=news)

        yield watch


def print_training(record: Record) -> None:
    """Print one table of what was gained, what it cost and what leaks; then the attacks, and what is not protected."""
    result, params = record.result, record.params
    noisy = result["privacy"]
    rows = [_algorithm_row(name, found, noisy) for name, found in result["algorithms"].items()]
    print_table(
        f"{params['data']} over {params['graph']} ({result['network']['nodes']} peers), {params['partition']}, "
        f"{params['learner']}",
        (
            "algorithm",
            ">accuracy",
            f">at {result['equal_hops']} hops",
            ">hops/update",
            ">bytes/update",
            ">entropy, nats",
            ">named (blind)",
            *([">epsilon"] if noisy else []),
        ),
        rows,
    )
    route = result["algorithms"]["private-walk"]["anonymity"]
    bits = route["node_entropy_bits"]
    typer.echo(
        f"Node entropy ({bits:.3f} bits for the private walk) of the receiver's posterior over who made the update, "
        f"and how often its first guess names the maker: {route['kind']}; law {params['law']}, {params['walk']} walk."
    )
    for line in (_ended(result), _gossip(result), _privacy(result), _tokens(result, params)):
        if line:
            typer.echo(line)
    typer.echo()
    if result["content_attack"]:
        _print_content(result["content_attack"], params["partition"])
    for warning in result["warnings"]:
        typer.echo(f"warning: {warning}")


def _algorithm_row(name: str, found: dict[str, Any], noisy: dict[str, Any] | None) -> tuple[str, ...]:
    from veilwalk.learning import readable_bytes

    leak = found["anonymity"]
    epsilon = []
    if noisy:
        known = noisy["algorithms"].get(name, {}).get("epsilon_sender_known")
        epsilon = ["-" if known is None else f"{known:.3g}"]
    return (
        name,
        _share(found["accuracy"]),
        _share(found["accuracy_at_equal_hops"]) if found["hops"] else "-",
        f"{found['hops_per_update']:.1f}",
        readable_bytes(found["bytes_per_update"]),
        f"{leak['node_entropy_nats']:.3f}",
        f"{_share(leak['hit_ratio'], 2)} ({_share(leak['blind_hit_ratio'], 2)})",
        *epsilon,
    )


def _ended(result: Mapping[str, Any]) -> str:
    """Say why runs ended, unless they just made all their updates."""
    early = {name: found["reason"] for name, found in result["algorithms"].items()}
    told = [f"{name} after {result['algorithms'][name]['updates']} updates: {why}" for name, why in early.items()]
    return "" if set(early.values()) == {"all updates made"} else "Ended: " + "; ".join(told) + "."


def _gossip(result: Mapping[str, Any]) -> str:
    found = result["algorithms"].get("gossip")
    if not found or not found["single_models"]:
        return ""
    single = found["single_models"]["mean_accuracy"]
    return f"Gossip's accuracy is that of the average of all models, which no peer holds; single ones: {single:.1%}."


def _privacy(result: Mapping[str, Any]) -> str:
    found = result["privacy"]
    return str(found["sentence"]) if found else ""


def _tokens(result: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    if params["tokens"] == 1:
        return ""
    found = result["algorithms"]["private-walk"]
    single = found["single_models"]
    average, alone = _share(found["accuracy"]), _share(single["mean_accuracy"] if single else None)
    return (
        f"{params['tokens']} tokens train each for itself and are averaged when read: accuracy {average} averaged, "
        f"{alone} a single one; {found['seconds_modelled_per_update']:.2f} modelled seconds per update. "
        f"Entropy is {found['anonymity']['tokens']}."
    )


def _print_content(rows: list[dict[str, Any]], partition: str) -> None:
    print_table(
        f"what content gives away ({rows[0]['deliveries']} deliveries; attacker granted every candidate's data; "
        f"{partition})",
        ("attacker", ">names maker", ">95% interval", ">node entropy, nats"),
        [
            (
                row["attacker"],
                f"{row['hit_ratio']:.2%}",
                "{:.2%} to {:.2%}".format(*row["hit_ratio_interval"]),
                f"{row['node_entropy_nats']:.3f}",
            )
            for row in rows
        ],
    )
    typer.echo(
        "loss: of the received model, lowest first. drop: since the receiver's own last model. step: over the very "
        "update; that takes the model before it, which only the predecessor holds, who knows the maker anyway: the "
        "most that evidence of this kind could give."
    )


def _share(value: float | None, digits: int = 1) -> str:
    if value is None:
        return "-"
    return "100%" if value == 1.0 else f"{value:.{digits}%}"
