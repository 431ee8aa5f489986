"""``veilwalk train``: private learning, end to end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilwalk.cli._config import collected
from veilwalk.cli._graph import SPEC_HELP
from veilwalk.cli._output import ACCEPT_HELP, PAYLOAD_HELP, drawn, live_progress
from veilwalk.cli._train_plan import large_checkpoints, print_plan
from veilwalk.cli._train_tables import print_training
from veilwalk.cli._watch import Watch, page_of
from veilwalk.core.errors import ConfigError
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
    "target_accuracy": "never",
    "max_hops": "never",
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
            "uniform-distance, uniform-node, far:R, paper, paper-printed, paper-exact, optimal, "
            "or a file written by design --out.",
            "NAME|FILE",
        ),
    ] = None,
    support: Annotated[str | None, _setting("support", "Distances of a law given by name.", "LO:HI")] = None,
    walk: Annotated[
        str | None,
        _setting("walk", f"{', '.join(WALKS)}.", "KIND"),
    ] = None,
    recipients: Annotated[
        int | None, _setting("recipients", "For how many an update is sealed; the first met opens it.", "K")
    ] = None,
    data: Annotated[
        str | None,
        _setting("data", "digits, mnist:DIR, npz:FILE, csv:FILE, arff:FILE, parquet:FILE or ratings:FILE.", "SPEC"),
    ] = None,
    learner: Annotated[
        str | None,
        _setting(
            "learner",
            "softmax, linear, mlp, factorisation, sklearn, or module:Class of your own, each with :name=value options.",
            "SPEC",
        ),
    ] = None,
    partition: Annotated[
        str | None,
        _setting(
            "partition",
            "How data are dealt out: iid, dirichlet:ALPHA, shards:PER_NODE, pathological:CLASSES, "
            "graph:CORRELATION, natural:COLUMN or groups:COLUMN.",
            "SPEC",
        ),
    ] = None,
    tokens: Annotated[
        int | None, _setting("tokens", "Models that walk side by side; the best or their mean is handed out.")
    ] = None,
    updates: Annotated[int | None, _setting("updates", "Updates of every algorithm.")] = None,
    compare: Annotated[
        str | None, _setting("compare", "none, or some of paper-walk, plain-walk, gossip and central.", "NAMES")
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
        _setting(
            "clip",
            "Largest norm of an update, or of a row's gradient for records; 0: none, or as usual for --epsilon.",
            "NORM",
        ),
    ] = None,
    most_updates: Annotated[
        int | None,
        _setting(
            "most_updates",
            "A node that has made so many hands models on as they are; 0: no limit, or even shares for --epsilon.",
            "COUNT",
        ),
    ] = None,
    payload: Annotated[str | None, _setting("payload", PAYLOAD_HELP, "FORM")] = None,
    accept: Annotated[
        str | None, _setting("accept", f"What a node asks of a model it receives: {ACCEPT_HELP}.", "TESTS")
    ] = None,
    poison: Annotated[
        str | None,
        _setting("poison", "What some nodes do to it: sign-flip:10, nan, random, drift or none.", "KIND[:NUMBER]"),
    ] = None,
    poisoners: Annotated[float | None, _setting("poisoners", "Share of the nodes that do.", "SHARE")] = None,
    target_accuracy: Annotated[
        float | None, _setting("target_accuracy", "Stop at the first evaluation that reaches it.", "SHARE")
    ] = None,
    patience: Annotated[
        int | None,
        _setting("patience", "Stop after so many evaluations, evenly apart, without a better loss; 0 never.", "COUNT"),
    ] = None,
    max_hops: Annotated[int | None, _setting("max_hops", "Stop before more hops.", "HOPS")] = None,
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
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:WHERE]",
            help="Tell every evaluation to tensorboard:DIR, wandb:PROJECT, trackio:PROJECT or mlflow:EXPERIMENT.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check everything, say what the run will take, and stop.")
    ] = False,
    watch: Watch = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON instead of tables.")] = False,
) -> None:
    """Train a model over a network of peers, privately.

    No receiver can tell whose update it got. Says what was gained and what it cost, beside the paper's scheme, a plain
    walk, gossip and central training on the same data. By default 300 peers learn to read digits: about a minute on two
    cores, offline.

    Example: veilwalk train --data mnist:DIR --partition iid --updates 5000 --out run
    """
    flags = {
        "graph": graph, "scheme": scheme, "law": law, "support": support, "walk": walk, "recipients": recipients,
        "data": data, "learner": learner,
        "partition": partition, "tokens": tokens, "updates": updates, "compare": compare,
        "protect": protect, "epsilon": epsilon, "delta": delta, "noise": noise, "clip": clip,
        "most-updates": most_updates, "payload": payload, "attack": attack, "seed": seed,
        "accept": accept, "poison": poison, "poisoners": poisoners, "target_accuracy": target_accuracy,
        "patience": patience, "max_hops": max_hops,
    }  # fmt: skip
    settings = _settings(collected(config, sets or [], flags), out, resume=resume)
    if dry_run:
        print_plan(settings, out)
        return
    if watch and out is None:
        raise ConfigError("--watch needs --out: the folder that is watched")
    with page_of(out, wanted=watch):
        _train(settings, out, track or [], resume=resume, as_json=as_json)


def _train(settings: TrainSettings, out: Path | None, track: list[str], *, resume: bool, as_json: bool) -> None:
    try:
        run = _trained(settings, out, track, resume=resume)
    except KeyboardInterrupt:
        if out is not None:
            typer.echo(f"veilwalk train --resume --out {out} goes on from the last checkpoint", err=True)
        raise
    record = run.record()
    paths = (
        []
        if out is None
        else [
            *(out / name for name in ("model.npz", "record.json", "metrics.csv", "metrics.jsonl")),
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


def _trained(settings: TrainSettings, out: Path | None, track: Sequence[str], *, resume: bool) -> TrainingRun:
    from veilwalk.training import Scenario, run_training, trackers

    with trackers(track, settings.params()) as told, live_progress() as progress:
        scenario = Scenario.of(settings)
        for note in (scenario.scheme.remark(), *scenario.notes):
            if note is not None:
                typer.echo(f"note: {note}", err=True)
        alarm = None if out is None else large_checkpoints(scenario, settings, out)
        if alarm is not None:
            typer.echo(f"note: {alarm}", err=True)
        return run_training(scenario, settings, out=out, resume=resume, progress=progress, track=told)


def _draw(record: Record, folder: Path) -> list[Path]:
    from veilwalk.report import training_report

    return [training_report(record, folder / "report.html")]
