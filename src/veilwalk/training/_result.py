"""A training run that has ended: its model, its evaluations, its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from veilwalk.core.records import Record
from veilwalk.core.tables import frame, html_table
from veilwalk.core.units import readable_bytes
from veilwalk.learning import Data, Params, Training
from veilwalk.training._metrics import rows_of
from veilwalk.training._route import certain
from veilwalk.training._scenario import Scenario
from veilwalk.training._settings import PAPER, PRIVATE, TrainSettings

#: Version of what the record of a training run holds.
TRAIN_FORMAT = "veilwalk-train-1"
# Models looked at one by one, where many are in flight.
_SINGLE_MODELS = 16
_HOW = {
    "plain-walk": "the neighbour it came from made the update",
    "gossip": "every model comes straight from its maker",
    "central": "the data themselves were handed over",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingRun:
    """What was trained, what it cost and what leaks.

    Attributes:
        scenario: What was trained, by whom, over what.
        settings: How; what they left open is filled in.
        trainings: The private walk and every comparison, by name.
        leaks: What route and content give away of the private walk, and epsilon, as plain data.
        warnings: What a reader should know besides.
    """

    scenario: Scenario
    settings: TrainSettings
    trainings: Mapping[str, Training]
    leaks: Mapping[str, Any]
    warnings: tuple[str, ...] = ()

    @property
    def model(self) -> Params:
        """The model that the private walk ended with, as named arrays; of several tokens the average."""
        return self.trainings[PRIVATE].params

    def record(self) -> Record:
        """Return what was asked, by which code, and what came out."""
        return self._record

    def rows(self) -> list[dict[str, Any]]:
        """Return one row an evaluation, as ``metrics.csv`` has them."""
        return [row for name, run in self.trainings.items() for row in rows_of(self.settings, name, run.points)]

    def to_frame(self) -> Any:
        """Return :meth:`rows` as a pandas data frame; only this needs pandas."""
        return frame(self.rows())

    def _repr_html_(self) -> str:
        shown = []
        for name, found in self._record.result["algorithms"].items():
            leak, accuracy = found["anonymity"], found["accuracy"]
            shown.append(
                {
                    "algorithm": name,
                    "accuracy": "" if accuracy is None else f"{accuracy:.1%}",
                    "loss": f"{found['loss']:.3f}",
                    "hops/update": f"{found['hops_per_update']:.1f}",
                    "bytes/update": readable_bytes(found["bytes_per_update"]),
                    "node entropy, nats": f"{leak['node_entropy_nats']:.3f}",
                    "receiver names the maker": f"{leak['hit_ratio']:.2%}",
                }
            )
        return html_table(shown)

    def _anonymity(self, name: str) -> Mapping[str, Any]:
        """What a receiver learns of who made what it got, from the route alone."""
        walked = {PRIVATE: "route", PAPER: "paper_route"}
        return self.leaks[walked[name]] if name in walked else _known(self.scenario, name)

    @cached_property
    def _record(self) -> Record:
        scenario, sizes = self.scenario, self.scenario.partitions.sizes
        totals = [training.points[-1].hops for training in self.trainings.values()]
        equal_hops = min((total for total in totals if total), default=0)
        algorithms = {}
        for name, training in self.trainings.items():
            algorithms[name] = _summary(scenario, training, equal_hops) | {"anonymity": self._anonymity(name)}
        return Record(
            kind="train",
            params=self.settings.params(),
            seed=self.settings.seed,
            result={
                "format": TRAIN_FORMAT,
                "network": {
                    "nodes": scenario.graph.n_nodes,
                    "edges": scenario.graph.n_edges,
                    "graph_digest": scenario.graph.digest,
                    "support": str(scenario.scheme.law.support),
                    "recipients": scenario.scheme.recipients,
                },
                "data": {
                    "training_rows": len(scenario.partitions.rows),
                    "held_out_rows": len(scenario.data.test),
                    "rows_of_a_node": [int(sizes.min()), float(np.median(sizes)), int(sizes.max())],
                    "commonest_class_share": _commonest(scenario.data),
                }
                | data_facts(scenario),
                "equal_hops": equal_hops,
                "algorithms": algorithms,
                "content_attack": self.leaks["content"],
                "membership": self.leaks.get("membership"),
                "sample": self.leaks["sample"],
                "privacy": self.leaks["privacy"],
                "warnings": list(self.warnings),
            }
            | ({} if scenario.graph.labels is None else {"labels": list(scenario.graph.labels)}),
        )


def data_facts(scenario: Scenario) -> dict[str, Any]:
    """Return what a user of the model must know: its size, the names of classes, how numbers were scaled, notes."""
    data = scenario.data
    facts = {
        "class_names": list(data.class_names),
        **data.scaler.to_facts(),
        "target_range": data.target_range,
        "notes": list(scenario.notes),
    }
    sizes = {"features": data.n_features, "classes": data.n_classes}
    return sizes | {name: value for name, value in facts.items() if value}


def _commonest(data: Data) -> float | None:
    """The accuracy of always saying the commonest class of the training rows: what others are to be held against."""
    if not data.n_classes or not len(data.test):
        return None
    commonest = int(np.bincount(data.train.labels, minlength=data.n_classes).argmax())
    return float((data.test.labels == commonest).mean())


def _known(scenario: Scenario, name: str) -> dict[str, Any]:
    """Comparisons hide nothing: a receiver knows the maker, where blind it would pick one of its neighbours."""
    graph = scenario.graph
    blind = None if name == "central" else float((graph.stationary_distribution / graph.degrees).sum())
    return certain(_HOW[name], blind)


def _summary(scenario: Scenario, training: Training, equal_hops: int) -> dict[str, Any]:
    last = training.points[-1]
    within = [point for point in training.points if point.hops <= equal_hops]
    made = max(training.updates, 1)
    return {
        "reason": training.reason,
        "updates": training.updates,
        "accuracy": last.accuracy,
        "loss": last.loss,
        "scores": dict(last.scores),
        "accuracy_at_equal_hops": within[-1].accuracy,
        "single_models": _single(scenario, training),
        "message_bytes": training.costs.message_bytes,
        "hops": last.hops,
        "bytes": last.sent_bytes,
        "seconds_modelled": last.seconds,
        "hops_per_update": last.hops / made,
        "bytes_per_update": last.sent_bytes / made,
        "seconds_modelled_per_update": last.seconds / made,
        "points": [asdict(point) for point in training.points],
        "learner_failures": training.learner_failures,
    } | ({"received": dict(training.received)} if training.received else {})


def _single(scenario: Scenario, training: Training) -> dict[str, Any] | None:
    """How good single models are, where what is evaluated is an average that nobody holds."""
    models = training.models
    if len(models) == 1:
        return None
    chosen = np.unique(np.linspace(0, len(models) - 1, _SINGLE_MODELS).astype(np.int64))
    found = [scenario.learner.evaluate(models[int(m)], scenario.data.test).get("accuracy") for m in chosen]
    known = [accuracy for accuracy in found if accuracy is not None]
    if not known:
        return None
    return {"looked_at": len(known), "mean_accuracy": float(np.mean(known)), "least_accuracy": float(min(known))}
