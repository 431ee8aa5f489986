"""Private learning, end to end: walk, train, compare, attribute; one record comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from veilwalk.core.arrays import IntArray
from veilwalk.core.records import Record
from veilwalk.experiments._attribution import Watch, certain, route_anonymity, unwatched
from veilwalk.experiments._train_content import attacked_rows, content_attack, gather_evidence
from veilwalk.experiments._train_folder import RunFolder
from veilwalk.experiments._train_privacy import privacy, require_accountant
from veilwalk.experiments._train_settings import PRIVATE, TrainSettings
from veilwalk.experiments._train_setup import Setup, set_up
from veilwalk.graphs import distances
from veilwalk.learning import Point, Tell, Training, TrainingTrace, train

#: Version of what the record of a training run holds.
TRAIN_FORMAT = "veilwalk-train-1"
_CHECKPOINT_S = 0.5
# Fewer deliveries than this say nothing about an attack.
_FEWEST_ATTACKED = 20
# Models looked at one by one, where many are in flight.
_SINGLE_MODELS = 16
_HOW = {
    "plain-walk": "the neighbour it came from made the update",
    "gossip": "every model comes straight from its maker",
    "central": "the data themselves were handed over",
}


def run_training(
    settings: TrainSettings,
    *,
    out: Path | None = None,
    resume: bool = False,
    watch: Watch = unwatched,
) -> Record:
    """Train privately, and by every comparison asked for; say what was gained, what it cost and what leaks.

    Args:
        settings: What to train.
        out: Folder to keep the run in, so that it can be resumed and its report drawn.
        resume: Go on with the run that is in ``out``.
        watch: Told how far it is.
    """
    if out is None:
        return _trained(settings, None, [], watch)
    with RunFolder(out) as folder:
        return _trained(settings, folder, folder.open(settings, resume=resume), watch)


def _trained(settings: TrainSettings, folder: RunFolder | None, warnings: list[str], watch: Watch) -> Record:
    require_accountant(settings)
    setup = set_up(settings)
    runs: dict[str, Training] = {}
    traces: dict[str, TrainingTrace] = {}
    for name in (PRIVATE, *settings.comparisons):
        traces[name] = setup.trace(name, folder.trace if folder is not None else None)
        runs[name] = train(
            setup.task(name),
            traces[name],
            stopping=settings.stopping,
            cost=settings.cost,
            evaluations=settings.evaluations,
            checkpoint=folder.checkpoint(name) if folder is not None else None,
            identity=setup.identity,
            every_s=_CHECKPOINT_S,
            tell=_teller(name, watch),
        )
        # What was not trained is not accounted either.
        traces[name] = traces[name].first(runs[name].updates)
    leaks = _attribution(setup, traces, folder, watch)
    record = _record(setup, runs, leaks, warnings)
    if folder is not None:
        folder.finish(record, metric_rows(record))
    return record


def _teller(name: str, watch: Watch) -> Tell:
    def tell(done: int, total: int, point: Point) -> None:
        accuracy = "" if point.accuracy is None else f", accuracy {point.accuracy:.1%}"
        watch(name, done, total, f"{point.hops} hops{accuracy}")

    return tell


def _attribution(
    setup: Setup, traces: Mapping[str, TrainingTrace], folder: RunFolder | None, watch: Watch
) -> dict[str, Any]:
    """What route and content give away of the private run, and epsilon; kept in the folder once known."""
    trace = traces[PRIVATE]
    kept = folder.kept("attribution") if folder is not None else None
    if kept is not None:
        return kept
    attacked = attacked_rows(trace, setup.settings.attack)
    if len(attacked) < _FEWEST_ATTACKED:
        attacked = attacked[:0]
    rows = np.append(attacked, _typical(trace)).astype(np.int64)
    route = route_anonymity(setup, trace, rows, watch)
    found: dict[str, Any] = {"route": route.summary, "content": None, "sample": None}
    found["privacy"] = privacy(setup, traces, route.tops)
    if len(rows):
        found["sample"] = _sample(setup, trace, int(rows[-1]), route.posteriors[-1])
    if len(attacked):
        evidence = gather_evidence(setup, trace, attacked, tell=_teller("content attack", watch))
        found["content"] = content_attack(setup, evidence, route.posteriors[:-1])
    if folder is not None:
        folder.keep("attribution", found)
    return found


def _typical(trace: TrainingTrace) -> IntArray:
    """The delivery of median return time, to be shown; none of an empty trace."""
    order = np.argsort(trace.return_time, kind="stable")
    return order[len(order) // 2 : len(order) // 2 + 1]


def _sample(setup: Setup, trace: TrainingTrace, row: int, posterior: Any) -> dict[str, Any]:
    """One delivery with the posterior of its receiver and the network around it."""
    graph, node = setup.graph, int(trace.node[row])
    starts = np.repeat(np.arange(graph.n_nodes), graph.degrees)
    once = starts < graph.indices
    return {
        "update": row + 1,
        "destination": node,
        "source": int(trace.source[row]),
        "last_hop": int(trace.last_hop[row]),
        "return_time": int(trace.return_time[row]),
        "posterior": posterior,
        "hops_away": distances(graph)[node],
        "edges": np.stack((starts[once], graph.indices[once]), axis=1),
    }


def _record(setup: Setup, runs: dict[str, Training], leaks: Mapping[str, Any], warnings: list[str]) -> Record:
    settings, sizes = setup.settings, setup.partitions.sizes
    totals = [run.points[-1].hops for run in runs.values()]
    equal_hops = min((total for total in totals if total), default=0)
    algorithms = {}
    for name, run in runs.items():
        anonymity = leaks["route"] if name == PRIVATE else _known(setup, name)
        algorithms[name] = _summary(setup, run, equal_hops) | {"anonymity": anonymity}
    return Record(
        kind="train",
        params=asdict(settings),
        seed=settings.seed,
        result={
            "format": TRAIN_FORMAT,
            "network": {
                "nodes": setup.graph.n_nodes,
                "edges": setup.graph.n_edges,
                "graph_digest": setup.graph.digest,
                "support": str(setup.law.support),
            },
            "data": {
                "training_rows": len(setup.partitions.rows),
                "held_out_rows": len(setup.data.test),
                "classes": setup.data.n_classes,
                "rows_of_a_node": [int(sizes.min()), float(np.median(sizes)), int(sizes.max())],
            },
            "equal_hops": equal_hops,
            "algorithms": algorithms,
            "content_attack": leaks["content"],
            "sample": leaks["sample"],
            "privacy": leaks["privacy"],
            "warnings": warnings,
        },
    )


def _known(setup: Setup, name: str) -> dict[str, Any]:
    """Comparisons hide nothing: a receiver knows the maker, where blind it would pick one of its neighbours."""
    graph = setup.graph
    blind = None if name == "central" else float((graph.stationary_distribution / graph.degrees).sum())
    return certain(_HOW[name], blind)


def _summary(setup: Setup, run: Training, equal_hops: int) -> dict[str, Any]:
    last = run.points[-1]
    within = [point for point in run.points if point.hops <= equal_hops]
    made = max(run.updates, 1)
    return {
        "reason": run.reason,
        "updates": run.updates,
        "accuracy": last.accuracy,
        "loss": last.loss,
        "accuracy_at_equal_hops": within[-1].accuracy,
        "single_models": _single(setup, run),
        "message_bytes": run.costs.message_bytes,
        "hops": last.hops,
        "bytes": last.sent_bytes,
        "seconds_modelled": last.seconds,
        "hops_per_update": last.hops / made,
        "bytes_per_update": last.sent_bytes / made,
        "seconds_modelled_per_update": last.seconds / made,
        "points": [asdict(point) for point in run.points],
    }


def _single(setup: Setup, run: Training) -> dict[str, Any] | None:
    """How good single models are, where what is evaluated is an average that nobody holds."""
    if len(run.models) == 1:
        return None
    chosen = np.unique(np.linspace(0, len(run.models) - 1, _SINGLE_MODELS).astype(np.int64))
    found = [setup.learner.evaluate(run.models[int(m)], setup.data.test).get("accuracy") for m in chosen]
    known = [accuracy for accuracy in found if accuracy is not None]
    if not known:
        return None
    return {"looked_at": len(known), "mean_accuracy": float(np.mean(known)), "least_accuracy": float(min(known))}


def metric_rows(record: Record) -> list[dict[str, Any]]:
    """Return one row an evaluation, as ``metrics.csv`` has them."""
    kind, _, value = str(record.params["partition"]).partition(":")
    return [
        {
            "algorithm": name,
            "dataset": record.params["data"],
            "partitioner": kind,
            "alpha": value,
            "peer": -1,
            "round": point["update"],
            "time": point["seconds"],
            "accuracy": "" if point["accuracy"] is None else point["accuracy"],
            "loss": point["loss"],
            "hops": point["hops"],
            "bytes": point["sent_bytes"],
        }
        for name, found in record.result["algorithms"].items()
        for point in found["points"]
    ]
