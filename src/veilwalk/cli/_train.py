"""``veilwalk demo``, ``init`` and ``train``: a first look, a start with one's own data, and private learning."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from veilwalk.cli import _rooms as rooms
from veilwalk.cli._interrupt import GUARD, NOTHING_KEPT
from veilwalk.cli._options import (
    AsJson,
    File,
    Sets,
    Watch,
    argument,
    flag,
    format_settings,
    merge_settings,
    option,
    take_options,
)
from veilwalk.cli._output import draw, format_share, live_progress, page_of, print_records, say, show_result
from veilwalk.core.errors import ConfigError
from veilwalk.core.records import Record, require_writable, score_of, write_atomically
from veilwalk.core.sizes import FEW_NODES
from veilwalk.core.tables import csv_table
from veilwalk.core.units import readable_bytes, readable_seconds
from veilwalk.training import TRAIN

_LARGE = 500_000_000
# The share of members that colludes where an overlay is recommended.
_COLLUDING = 0.1
_PEERS, _NEIGHBOURS, _ROWS_OF_A_PEER, _FEATURES = 30, 4, 20, 5
_KINDS = ("low", "middle", "high")
_HEAD = """\
# Settings of one training run. It runs as it stands, on the small made-up data beside it:
#
#     veilwalk train --config train.toml --out run
#
# Then put your own data and network in. Lines that begin with "# key =" show defaults: remove the # to change one.
# Flags win over this file, and so does --set key=value. Paths are relative to where you call veilwalk.
# What the recommended scheme hides and costs here, before anything is trained:
#
#     veilwalk recommend --graph file:peers.csv
"""
#: Settings that the starter files need.
_STARTER = {
    "graph": "file:peers.csv",
    "data": "csv:sites:label=kind",
    "learner": "softmax:learning_rate=0.5:local_steps=5",
    "updates": 200,
    "compare": "paper-walk,plain-walk,gossip,gossip-push,fedavg,central",
}
_ABOUT_STARTER = {
    "train.toml": "every setting, with what it means",
    "sites": "made-up rows, one file a peer: a label, and numbers",
    "peers.csv": "a made-up network: two names a line",
}
_RESULT_FILES = ("model.npz", "record.json", "metrics.csv", "metrics.jsonl")
_CONTENT_COLUMNS = {
    "attacker": "{attacker}",
    ">names maker": "{hit_ratio:.2%}",
    ">95% interval": "{hit_ratio_interval[0]:.2%} to {hit_ratio_interval[1]:.2%}",
    ">entropy, nats": "{node_entropy_nats:.3f}",
    "granted": "{granted}",
}
_ATTACKERS = (
    "Strongest first. data: every candidate's. gradient: the update itself, compared with the one each candidate"
    " would have made; that takes the model before it, which its predecessor holds. step: how far each candidate's"
    " loss fell, with the same grant. count: how often each candidate took part since the receiver's last model,"
    " with drop; the receiver can do it alone. drop: how far the loss fell since then. loss: of the received model,"
    " lowest first."
)


def demo(
    *,
    out: Annotated[Path, option("Where the run is kept.", "DIR")] = Path("veilwalk-demo"),
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Show it: 300 peers learn to read digits, privately.

    The same as veilwalk train with nothing said: about a minute on two cores, offline, on data that come with the
    package. Called again it shows the finished run, or goes on with one that was stopped. With --watch a page in the
    browser shows it live: the walk on the network, what was learnt, what an observer can infer.

    Example: veilwalk demo --watch
    """
    folder = rooms.training.RunFolder(out)
    # A run also holds what was chosen for it.
    if folder.started and folder.spec() != rooms.training.Scenario.from_spec(TRAIN.defaults).spec:
        raise ConfigError(f"{out} holds another run than the demo: choose another folder with --out")
    with _measure_paper_route(enabled=not (out / "record.json").exists()):
        train(out=out, resume=folder.started, watch=watch, as_json=as_json)
    if not as_json:
        page = out / "report.html"
        page_hint = f"open {page} in a browser; " if page.exists() else ""
        typer.echo(f"next: {page_hint}veilwalk init DIR starts with data and a network of your own")


@contextmanager
def _measure_paper_route(*, enabled: bool) -> Iterator[None]:
    """Measure what the paper's route tells by a process of its own, on a core that the demo leaves idle.

    The demo needs it last, and finds it in the user's cache folder; where it comes too late the demo measures it.
    """
    if not enabled or len(os.sched_getaffinity(0)) < 2:
        yield
        return
    settings = ("--scheme", "paper", "--compare", "none", "--updates", "1", "--attack", "0", "--json")
    command, quiet = [sys.executable, "-m", "veilwalk", "train", *settings], subprocess.DEVNULL
    ahead = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)  # noqa: S603  our own program
    try:
        yield
    finally:
        ahead.terminate()
        ahead.wait()


def init(folder: Annotated[Path, argument("DIR", "A new folder, or an empty one.")]) -> None:
    """Write settings for your own data and network.

    DIR gets train.toml, every setting with a comment, and small made-up data, one file a peer, and a network, in the
    form that yours must have, with which it runs as it stands. Nothing that is there already is touched.

    Example: veilwalk init mine
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not an empty folder: choose another")
    require_writable(folder)
    for name, content in _starter_files().items():
        write_atomically(folder / name, content)
    for name, about in _ABOUT_STARTER.items():
        typer.echo(f"wrote {folder / name}: {about}")
    typer.echo(f"next: cd {folder} && veilwalk train --config train.toml --out run")


def _starter_files() -> dict[str, bytes]:
    """Return the files by name. The random numbers in them are the same every time."""
    import numpy as np

    source = np.random.default_rng(20250507)
    names = [f"peer-{number:02}" for number in range(1, _PEERS + 1)]
    edges = rooms.graphs.random_regular(_PEERS, _NEIGHBOURS, seed=1).edges()
    links = [{"source": names[a], "target": names[b]} for a, b in edges]
    settings = (_HEAD + format_settings(TRAIN, _STARTER)).encode()
    files = {"train.toml": settings, "peers.csv": csv_table(links)}
    for name in names:
        rows = []
        kinds = source.integers(len(_KINDS), size=_ROWS_OF_A_PEER)
        values = source.normal(kinds[:, None], 1.0, size=(_ROWS_OF_A_PEER, _FEATURES))
        for kind, row in zip(kinds, values, strict=True):
            measures = {f"measure-{place}": f"{value:.2f}" for place, value in enumerate(row, start=1)}
            rows.append({"kind": _KINDS[kind]} | measures)
        files[f"sites/{name}.csv"] = csv_table(rows)
    return files


@take_options(TRAIN)
def train(
    *,
    out: Annotated[File, option("Folder of the run, with its report.", "DIR")] = None,
    resume: Annotated[bool, flag("--resume", "Continue the run in --out.")] = False,
    config: Annotated[File, option("Settings; flags and --set win over it.", "FILE.toml")] = None,
    sets: Sets = None,
    track: Annotated[list[str] | None, option("Pass every evaluation to tensorboard:DIR.", "NAME[:WHERE]")] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Check everything, print what the run will take, and stop.")] = False,
    watch: Watch = False,
    as_json: AsJson = False,
    **values: Any,
) -> None:
    """Train a model over a network of peers, privately.

    A receiver can hardly tell whose update it got. The output shows what was gained and what it cost, beside the
    paper's scheme, a plain walk, gossip and central training on the same data. By default 300 peers learn to read
    digits: about a minute on two cores, offline.

    Flags for rare cases: {rare}.

    Example: veilwalk train --data mnist:DIR --partition iid --updates 5000 --out run
    """
    values, folder = merge_settings(TRAIN, config, sets or [], values), None
    GUARD.advise(NOTHING_KEPT)
    if out is not None:
        folder = rooms.training.RunFolder(out)
        folder.check(resume=resume)
        # Before the folder is begun there is nothing to resume.
        resume_hint = f"veilwalk train --resume --out {out} goes on from the last checkpoint"
        GUARD.advise(lambda: resume_hint if folder.started else NOTHING_KEPT)
    elif resume or watch:
        raise ConfigError(f"--{'resume' if resume else 'watch'} needs --out: the folder of the run")
    # A run that is resumed brings its own settings, which must agree with these.
    spec = folder.spec(values) if folder is not None and resume else TRAIN.read(values)
    if dry_run:
        _print_plan(spec, out)
        return
    with page_of(out, enabled=watch):
        record = _run(spec, out, track or [], resume=resume).record()
        paths = [] if out is None else [out / name for name in _RESULT_FILES]
        paths += [] if out is None else draw("training_report", record, out / "report.html")
        show_result(record.to_dict(), lambda: print_training(record), paths, as_json=as_json)


def _run(
    spec: rooms.training.RunSpec, out: Path | None, track: list[str], *, resume: bool
) -> rooms.training.TrainingRun:
    with rooms.training.open_trackers(track, spec.params(TRAIN)) as tracker, live_progress() as progress:
        scenario = rooms.training.Scenario.from_spec(spec, progress=progress)
        notes = [scenario.scheme.remark(), *scenario.notes]
        # A look at the size first: only large models are tried out.
        if out is not None and rooms.training.plan_run(scenario, trial=False).total_bytes >= _LARGE:
            notes.append(_warn_of_size(rooms.training.plan_run(scenario, times=False).total_bytes, out))
        for note in filter(None, notes):
            typer.echo(f"note: {note}", err=True)
        return rooms.training.run_training(
            scenario, out=out, resume=resume, progress=progress, track=tracker if track else None
        )


def _print_plan(spec: rooms.training.RunSpec, out: Path | None) -> None:
    """Read and check everything that a run names, and print what it will take."""
    with live_progress() as progress:
        scenario = rooms.training.Scenario.from_spec(spec, progress=progress)
        plan, learning = rooms.training.plan_run(scenario), scenario.spec.learning
    print_records(
        f"{learning.data} over {scenario.spec.graph} ({scenario.graph.n_nodes} peers), {learning.learner}",
        {
            "algorithm": "{name}",
            ">updates": "{updates}",
            ">time, estimated": "{seconds:seconds}",
            ">checkpoint, at most": "{size:bytes}",
        },
        [
            {"name": name, "updates": spec.end.updates, "seconds": plan.training_s[name], "size": size}
            for name, size in plan.checkpoint_bytes.items()
        ],
    )
    for note in scenario.notes:
        say(f"note: {note}")
    sizes = {"model": plan.model_bytes, "sealed message": plan.message_bytes, "kept by a node": plan.state_bytes}
    say(", ".join(f"{name} {readable_bytes(size)}" for name, size in sizes.items()))
    say(
        f"whole run: about {readable_seconds(plan.total_s)} here: {readable_seconds(sum(plan.training_s.values()))} of "
        f"training, {readable_seconds(plan.route_s)} to measure what the route tells (--audit none leaves it out), "
        f"{readable_seconds(plan.attack_s)} of the content attack (--attack 0 leaves it out); estimated from "
        f"{plan.trials} updates of {readable_seconds(plan.update_s)} each"
    )
    if out is not None and (warning := _warn_of_size(plan.total_bytes, out)):
        say(f"note: {warning}")


def _warn_of_size(total: int, out: Path) -> str | None:
    """Return a warning where checkpoints are large, or the disk is small."""
    place = next(path for path in (out, *out.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    if total < _LARGE and total < free / 4:
        return None
    return (
        f"checkpoints will take up to {readable_bytes(total)} in {out}, where {readable_bytes(free)} are free, and the "
        "largest as much again in memory while it is written; --compare without gossip takes less"
    )


def print_training(record: Record) -> None:
    """Print one table of what was gained, what it cost and what leaks; then the attacks, and what is not protected."""
    result, params = record.result, record.params
    noisy, private = result["privacy"], result["algorithms"]["private-walk"]
    route = private["anonymity"]
    print_records(
        f"{params['data']} over {params['graph']} ({result['network']['nodes']} peers), {params['partition']}, "
        f"{params['learner']}",
        {
            "algorithm": "{name}",
            f">{score_of(private['points'][-1])[0]}": "{score}",
            # Only where classes are so uneven that it is among the scores.
            ">balanced": "{scores[balanced_accuracy]:share}",
            f">at {result['equal_hops']} hops": "{score_at_equal_hops}",
            ">hops/update": "{hops_per_update:.1f}",
            ">bytes/update": "{bytes_per_update:bytes}",
            ">entropy, nats": "{anonymity[node_entropy_nats]:.3f}",
            ">named (blind)": "{anonymity[hit_ratio]:small share} ({anonymity[blind_hit_ratio]:small share})",
            f">epsilon ({noisy['against']})" if noisy else "": "{epsilon:.3g}",
        },
        [_algorithm_row(name, row, result) for name, row in result["algorithms"].items()],
    )
    print_records(
        "modelled time of all updates, by line of a peer",
        {"algorithm": "{name}"} | {f">{line}": f"{{{line}:seconds}}" for line in private["seconds_by_line"]},
        [{"name": name} | row["seconds_by_line"] for name, row in result["algorithms"].items()],
    )
    if (nats := route["node_entropy_nats"]) is not None:
        say(
            f"Entropy is the receiver's doubt about the maker: {nats:.3f} nats ({route['node_entropy_bits']:.3f} bits) "
            f"are as good as {math.exp(nats):,.0f} equally likely makers. Named: how often its first guess is right; "
            "blind: a guess without looking."
        )
    say(
        f"Private walk: {route['kind']}; sealed for {params['recipients']}, law {params['law']}, {params['walk']} walk."
    )
    for line in filter(None, _describe_run(result, params)):
        say(line)
    say()
    if result["sites"]:
        # The baseline always says the commonest class of the site's own training rows.
        measure = result["sites"][0]["measure"]
        form = "share" if measure == "accuracy" else ".3f"
        print_records(
            "the private walk's model at each site, on rows that the site held out",
            {
                "site": "{name}",
                ">rows": "{rows}",
                f">{measure}": f"{{score:{form}}}",
                ">its own baseline": f"{{baseline:{form}}}",
            },
            result["sites"],
        )
    if attacks := result["content_attack"]:
        title = f"what content gives away ({attacks[0]['deliveries']} deliveries; {params['partition']})"
        print_records(title, _CONTENT_COLUMNS, [{"granted": "-"} | row for row in attacks])
        say(_ATTACKERS)
    for warning in result["warnings"]:
        say(f"warning: {warning}")
    if not params["graph"].startswith("overlay:") and result["network"]["nodes"] > FEW_NODES:
        say(_hint_at_overlay(result["network"]["nodes"]))


def _hint_at_overlay(nodes: int) -> str:
    """Return a line on what a secret overlay would give."""
    # Three links each take an even number of members.
    degree = 3 + nodes % 2
    named = rooms.design.exposed_share(_COLLUDING, degree)
    return (
        f"All members know these links. On a secret overlay (--graph overlay:{nodes}:{degree}) a tenth in collusion "
        f"names about {named:.0%} of the members at most, however many updates are linked; here nothing bounds that."
    )


def _algorithm_row(name: str, row: dict[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the record with its name, its scores as text and its epsilon, where any algorithm has one."""
    reached = [point for point in row["points"] if point["hops"] <= result["equal_hops"]]
    cells = {"name": name, "score": _score(row["points"][-1]), "score_at_equal_hops": "-"}
    if row["hops"]:
        cells["score_at_equal_hops"] = _score(reached[-1])
    if result["privacy"]:
        cells["epsilon"] = result["privacy"]["algorithms"].get(name, {}).get("epsilon_sender_known")
    scores = row["scores"]
    if any("balanced_accuracy" in other["scores"] for other in result["algorithms"].values()):
        scores = {"balanced_accuracy": None} | scores
    return row | cells | {"scores": scores}


def _describe_run(result: Mapping[str, Any], params: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences on ends, the baseline, gossip, several walks and noise, where they apply."""
    reasons = {name: row["reason"] for name, row in result["algorithms"].items()}
    if set(reasons.values()) != {"all updates made"}:
        ends = [f"{name} after {result['algorithms'][name]['updates']} updates: {why}" for name, why in reasons.items()]
        yield f"Ended: {'; '.join(ends)}."
    if (share := result["data"]["commonest_class_share"]) is not None:
        yield f"Always saying the commonest class would be right for {format_share(share)}."
    private = result["algorithms"]["private-walk"]
    if counts := private.get("received"):
        yield _describe_acceptance(counts, params)
    singles = {name: row["single_models"] for name, row in result["algorithms"].items() if name.startswith("gossip")}
    if means := [f"{format_share(row['mean_accuracy'])} ({name})" for name, row in singles.items() if row]:
        single = f"single ones: {', '.join(means)}"
        yield f"Gossip's accuracy is that of the average of all models, which no peer holds; {single}."
    if "fedavg" in result["algorithms"]:
        yield "FedAvg has a server with ten times a peer's line, which sees who sent what."
    if params["walks"] > 1:
        last, singles = private["points"][-1], private["single_models"]
        single = format_share(singles["mean_accuracy"]) if singles else "-"
        chosen = "the mean" if last["chosen"] == "mean" else last["chosen"]
        yield (
            f"{params['walks']} walks train a model each. Of their ends and their mean, the one with the least loss "
            f"on the held-out rows is handed out: {chosen}, {score_of(last)[0]} {_score(last)} (single ones on average "
            f"{single}). {private['seconds_modelled_per_update']:.2f} modelled seconds per update."
        )
        if private["anonymity"]["walks"]:
            yield f"Entropy is {private['anonymity']['walks']}."
    if result["privacy"]:
        yield result["privacy"]["sentence"]


def _describe_acceptance(counts: Mapping[str, int], params: Mapping[str, Any]) -> str:
    """Return how many models were refused by nodes that test them."""
    share, poisoned = f"{params['poisoners']:.0%}", counts["refused_poisoned"] + counts["accepted_poisoned"]
    who = "" if params["poison"] == "none" else f"{share} of the nodes send {params['poison']}. "
    of_poisoned = f"{counts['refused_poisoned']} of {poisoned} poisoned models and " if poisoned else ""
    return (
        f"{who}Tests ({params['accept']}) of the private walk refused {of_poisoned}{counts['refused_honest']} "
        f"honest ones; {counts['newer_held']} times a node continued with a newer model of its own. The model has had "
        f"{counts['age']} updates. Only walks are tested and poisoned, not gossip and central training."
    )


def _score(point: Mapping[str, Any]) -> str:
    name, value = score_of(point)
    return format_share(value) if name == "accuracy" else f"{value:.3f}"
