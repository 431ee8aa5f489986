"""``veilwalk train``: private learning, end to end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilwalk.cli._config import collected
from veilwalk.cli._graph import SPEC_HELP
from veilwalk.cli._output import PAYLOAD_HELP, drawn, live_progress, print_table
from veilwalk.core.errors import ConfigError
from veilwalk.core.units import readable_bytes
from veilwalk.core.walk import WALKS
from veilwalk.training import TrainSettings
from veilwalk.training._settings import USUAL_LEARNER

if TYPE_CHECKING:
    from veilwalk.core.records import Record
    from veilwalk.training import TrainingRun

#: What is shown of each default, where nothing is chosen until the network is known.
_CHOSEN = {
    "law": "the scheme's; paper on regular graphs, uniform-node on others, where another part is given",
    "support": "2 to 6, or to as far as all nodes reach",
    "walk": "the scheme's, the one a law file was designed for, or simple",
    "recipients": "the scheme's, as a law file says, or 1",
    "learner": f"{USUAL_LEARNER}; with --epsilon whole batches and a step for it",
    "clip": "0; with --epsilon what is usual: 1 for records",
    "most_updates": "no limit; with --epsilon an even share of all updates",
}
_DEFAULTS = {field.name: field.default for field in fields(TrainSettings)} | _CHOSEN


def _setting(name: str, about: str, metavar: str | None = None) -> Any:
    """An option for one setting; its default is the setting's own."""
    default = _DEFAULTS[name]
    shown = f"{default:g}" if isinstance(default, float) else default
    return typer.Option(metavar=metavar, help=f"{about} [default: {shown}]")


def train(
    *,
    graph: Annotated[str | None, _setting("graph", f"Network: {SPEC_HELP}", "SPEC")] = None,
    scheme: Annotated[
        str | None,
        _setting(
            "scheme",
            "auto: sealed for several, as recommended for the network; paper: for one, as in the paper. "
            "--law, --walk or --recipients say it themselves.",
            "auto|paper",
        ),
    ] = None,
    law: Annotated[
        str | None,
        _setting(
            "law",
            "uniform-distance, uniform-node, far:R, equalised, paper, paper-printed, paper-exact, optimal, "
            "or a file written by design --out.",
            "NAME|FILE",
        ),
    ] = None,
    support: Annotated[str | None, _setting("support", "Distances of a law given by name.", "LO:HI")] = None,
    walk: Annotated[
        str | None,
        _setting("walk", f"{', '.join(WALKS)}; least-recent:MIX takes a share of plain steps.", "KIND[:MIX]"),
    ] = None,
    recipients: Annotated[
        int | None, _setting("recipients", "For how many an update is sealed; the first met opens it.", "K")
    ] = None,
    data: Annotated[
        str | None, _setting("data", "digits, mnist:DIR, npz:FILE, csv:FILE or parquet:FILE.", "SPEC")
    ] = None,
    learner: Annotated[
        str | None,
        _setting(
            "learner",
            "softmax, linear, mlp, sklearn, or module:Class of your own, each with :name=value options.",
            "SPEC",
        ),
    ] = None,
    partition: Annotated[
        str | None,
        _setting(
            "partition",
            "How data are dealt out: iid, dirichlet:ALPHA, shards:PER_NODE, pathological:CLASSES, "
            "graph:CORRELATION or natural:COLUMN.",
            "SPEC",
        ),
    ] = None,
    tokens: Annotated[int | None, _setting("tokens", "Models that walk side by side, averaged.")] = None,
    updates: Annotated[int | None, _setting("updates", "Updates of every algorithm.")] = None,
    compare: Annotated[
        str | None, _setting("compare", "none, or some of paper-walk, plain-walk, gossip and central.")
    ] = None,
    protect: Annotated[
        str | None,
        _setting("protect", "What noise protects: one row of a node, or all its rows together.", "record|node"),
    ] = None,
    epsilon: Annotated[
        float | None,
        _setting("epsilon", "Find the noise for this epsilon, against everybody, sender known; 0: none.", "EPSILON"),
    ] = None,
    delta: Annotated[float | None, _setting("delta", "Of the guarantee (epsilon, delta).", "DELTA")] = None,
    noise: Annotated[
        float | None, _setting("noise", "Or Gaussian noise by its size, in units of --clip.", "MULTIPLIER")
    ] = None,
    clip: Annotated[
        float | None,
        _setting("clip", "Largest norm of an update, or of a row's gradient for records; 0 does not clip.", "NORM"),
    ] = None,
    most_updates: Annotated[
        int | None, _setting("most_updates", "A node that has made so many hands models on as they are.", "COUNT")
    ] = None,
    payload: Annotated[str | None, _setting("payload", PAYLOAD_HELP, "FORM")] = None,
    attack: Annotated[
        int | None, _setting("attack", "Deliveries on which to try the content attack; 0 for none.")
    ] = None,
    seed: Annotated[int | None, _setting("seed", "Seed of everything.")] = None,
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
    """Train a model over a network of peers, privately.

    No receiver can tell whose update it got. Says what was gained and what it cost, beside a plain walk, gossip and
    central training on the same data. By default 300 peers learn to read digits: about a minute on two cores, offline.

    Example: veilwalk train --data mnist:DIR --partition iid --updates 5000 --out run
    """
    flags = {
        "graph": graph, "scheme": scheme, "law": law, "support": support, "walk": walk, "recipients": recipients,
        "data": data, "learner": learner,
        "partition": partition, "tokens": tokens, "updates": updates, "compare": compare,
        "protect": protect, "epsilon": epsilon, "delta": delta, "noise": noise, "clip": clip,
        "most-updates": most_updates, "payload": payload, "attack": attack, "seed": seed,
    }  # fmt: skip
    settings = _settings(collected(config, sets or [], flags), out, resume=resume)
    try:
        run = _trained(settings, out, resume=resume)
    except KeyboardInterrupt:
        if out is not None:
            typer.echo(f"veilwalk train --resume --out {out} goes on from the last checkpoint", err=True)
        raise
    record = run.record()
    paths = (
        []
        if out is None
        else [
            *(out / name for name in ("model.npz", "record.json", "metrics.csv")),
            *drawn(partial(_draw, record, out)),
        ]
    )
    if as_json:
        typer.echo(json.dumps(record.to_dict(), indent=2))
        return
    print_training(record)
    for path in paths:
        typer.echo(f"wrote {path}")


def _settings(asked: dict[str, Any], out: Path | None, *, resume: bool) -> TrainSettings:
    """Return the settings asked for; a run that is resumed brings its own, which must agree with what is asked."""
    from veilwalk.training import RunFolder

    if out is None:
        if resume:
            raise ConfigError("--resume needs --out: the folder of the run to go on with")
        return TrainSettings.of(asked)
    folder = RunFolder(out)
    folder.check(resume=resume)
    return folder.settings(asked) if resume else TrainSettings.of(asked)


def _trained(settings: TrainSettings, out: Path | None, *, resume: bool) -> TrainingRun:
    from veilwalk.training import Scenario, run_training

    with live_progress() as progress:
        scenario = Scenario.of(settings)
        remark = scenario.scheme.remark()
        if remark is not None:
            typer.echo(f"note: {remark}", err=True)
        return run_training(scenario, settings, out=out, resume=resume, progress=progress)


def _draw(record: Record, folder: Path) -> list[Path]:
    from veilwalk.report import training_report

    return [training_report(record, folder / "report.html")]


def print_training(record: Record) -> None:
    """Print one table of what was gained, what it cost and what leaks; then the attacks, and what is not protected."""
    from veilwalk.core.records import score_of

    result, params = record.result, record.params
    noisy = result["privacy"]
    rows = [_algorithm_row(name, found, noisy, result["equal_hops"]) for name, found in result["algorithms"].items()]
    print_table(
        f"{params['data']} over {params['graph']} ({result['network']['nodes']} peers), {params['partition']}, "
        f"{params['learner']}",
        (
            "algorithm",
            f">{score_of(result['algorithms']['private-walk']['points'][-1])[0]}",
            f">at {result['equal_hops']} hops",
            ">hops/update",
            ">bytes/update",
            ">entropy, nats",
            ">named (blind)",
            *([f">epsilon ({noisy['against']})"] if noisy else []),
        ),
        rows,
    )
    route = result["algorithms"]["private-walk"]["anonymity"]
    bits = route["node_entropy_bits"]
    typer.echo(
        f"Node entropy ({bits:.3f} bits for the private walk) of the receiver's posterior over who made the update, "
        f"and how often its first guess names the maker: {route['kind']}; "
        f"sealed for {params['recipients']}, law {params['law']}, {params['walk']} walk."
    )
    for line in (_ended(result), _gossip(result), _privacy(result), _tokens(result, params)):
        if line:
            typer.echo(line)
    typer.echo()
    if result["content_attack"]:
        _print_content(result["content_attack"], params["partition"])
    for warning in result["warnings"]:
        typer.echo(f"warning: {warning}")


def _algorithm_row(name: str, found: dict[str, Any], noisy: dict[str, Any] | None, hops: int) -> tuple[str, ...]:
    leak = found["anonymity"]
    epsilon = []
    if noisy:
        known = noisy["algorithms"].get(name, {}).get("epsilon_sender_known")
        epsilon = ["-" if known is None else f"{known:.3g}"]
    return (
        name,
        _score(found["points"][-1]),
        _score([point for point in found["points"] if point["hops"] <= hops][-1]) if found["hops"] else "-",
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
    from veilwalk.core.records import score_of

    found = result["algorithms"]["private-walk"]
    single = found["single_models"]
    average, alone = _score(found["points"][-1]), _share(single["mean_accuracy"] if single else None)
    return (
        f"{params['tokens']} tokens train each for itself and are averaged when read: "
        f"{score_of(found['points'][-1])[0]} {average} averaged, "
        f"{alone} a single one; {found['seconds_modelled_per_update']:.2f} modelled seconds per update. "
        f"Entropy is {found['anonymity']['tokens']}."
    )


def _print_content(rows: list[dict[str, Any]], partition: str) -> None:
    print_table(
        f"what content gives away ({rows[0]['deliveries']} deliveries; {partition})",
        ("attacker", ">names maker", ">95% interval", ">entropy, nats", "granted"),
        [
            (
                row["attacker"],
                f"{row['hit_ratio']:.2%}",
                "{:.2%} to {:.2%}".format(*row["hit_ratio_interval"]),
                f"{row['node_entropy_nats']:.3f}",
                row.get("granted", "-"),
            )
            for row in rows
        ],
    )
    typer.echo(
        "Strongest first; data: every candidate's. gradient: the very update, held against the one each candidate"
        " would have made; that takes the model before it, which its predecessor holds, and whoever colludes with"
        " it. step: how far each candidate's loss fell, with the same grant. count: how often each candidate took"
        " part since the receiver's own last model, with drop; the receiver can do it alone. drop: how far the "
        "loss fell since then. loss: of the received model, lowest first."
    )


def _score(point: Mapping[str, Any]) -> str:
    from veilwalk.core.records import score_of

    name, value = score_of(point)
    return _share(value) if name == "accuracy" else f"{value:.3f}"


def _share(value: float | None, digits: int = 1) -> str:
    if value is None:
        return "-"
    return "100%" if value == 1.0 else f"{value:.{digits}%}"
