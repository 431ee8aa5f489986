"""The jobs of :mod:`tools.pages.learning`: a setting tried, an algorithm trained, an attack, local steps.

A job says all that tells it from others; what is dealt and walked for it is kept for the jobs that follow here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tools.pages import local_steps
from tools.pages.learning_page import OWN_MODELS
from tools.pages.tuning import GRID, NETWORK_GRID, Setting, accuracy_of, without_test_rows
from veilwalk.core.arrays import FloatArray
from veilwalk.core.records import plain
from veilwalk.design import choose_scheme
from veilwalk.learning import Data, Learner, Params, Partition, Training, TrainingTrace, load_data, train
from veilwalk.training import (
    Scenario,
    attacked_rows,
    content_attack,
    gather_evidence,
    make_spec,
    route_anonymity,
)

if TYPE_CHECKING:
    from torch import Tensor, optim

PAPER = "paper-walk"
ALGORITHMS = ("private-walk", PAPER, "plain-walk", "gossip", "central")
PARTITIONS = ("iid", "dirichlet:0.3")
ATTACKED = (*PARTITIONS, "graph:0.9")
UNTUNED = Setting(learning_rate=0.1, local_steps=1)
MODELS = {"softmax": "softmax", "cnn": "tools.pages.learning_jobs:small_cnn"}
GRIDS = {"softmax": GRID, "cnn": NETWORK_GRID}
# Nodes whose own models are evaluated.
_OWNERS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How much to do."""

    seeds: tuple[int, ...]
    updates: dict[str, int]
    tuning_updates: int
    evaluations: dict[str, int]
    held_out: dict[str, int]
    # Deliveries a seed, and seeds: gradients of every candidate take two seconds a delivery.
    attacked: int
    attack_seeds: tuple[int, ...]
    graph: str = "rrg:300:3:seed=1"
    support: str = "2:6"
    far: str = "far:4"
    recipients: int = 16
    watched: int = 100
    speed: tuple[int, int] = (4000, 15)


PROFILES = {
    "full": Profile(
        seeds=(1, 2, 3),
        updates={"softmax": 6000, "cnn": 3000},
        tuning_updates=1500,
        evaluations={"softmax": 80, "cnn": 14},
        held_out={"softmax": 10_000, "cnn": 2000},
        attacked=24,
        attack_seeds=(1,),
    ),
    "reduced": Profile(
        seeds=(1, 2),
        updates={"softmax": 400, "cnn": 80},
        tuning_updates=120,
        evaluations={"softmax": 8, "cnn": 4},
        held_out={"softmax": 1000, "cnn": 200},
        attacked=40,
        attack_seeds=(1, 2),
        graph="rrg:40:3:seed=1",
        support="2:4",
        far="far:2",
        recipients=4,
        watched=20,
        speed=(1000, 3),
    ),
}


def small_cnn(*, n_features: int, n_classes: int, learning_rate: float = 0.1, local_steps: int = 1) -> Learner:
    """Two convolutions and a linear layer, 5,994 parameters for MNIST, plain SGD."""
    from torch import nn, optim

    from veilwalk.learning.torch_learner import TorchLearner

    side = round(n_features**0.5)

    def module() -> nn.Module:
        return nn.Sequential(
            nn.Unflatten(1, (1, side, side)), nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, n_classes),
        )  # fmt: skip

    def optimizer(tensors: list[Tensor]) -> optim.Optimizer:
        return optim.SGD(tensors, lr=learning_rate)

    return TorchLearner(module_fn=module, optimizer_fn=optimizer, local_steps=local_steps)


class OwnModels:
    """What some nodes of gossip hold after every round: each is shown when its owner begins the next."""

    def __init__(self, trace: TrainingTrace) -> None:
        self._n_nodes, self._every = trace.n_models, max(trace.n_models // _OWNERS, 1)
        self._held: dict[int, list[Params]] = {}

    def see(self, update: int, before: Params, after: Params) -> None:  # noqa: ARG002 - what it holds, not what it makes
        """Keep what the owner of this update held."""
        done, node = divmod(update, self._n_nodes)
        if node % self._every == 0:
            self._held.setdefault(done, []).append(before)

    def accuracies(self, run: Training, scenario: Scenario) -> list[float]:
        """Return their mean accuracy after no round, one, and so on to the last."""
        rounds = [*self._held.values(), run.models[:: self._every]]
        evaluate, test = scenario.learner.evaluate, scenario.data.test
        return [float(np.mean([evaluate(params, test)["accuracy"] for params in models])) for models in rounds]


class Campaign:
    """What the jobs of one profile share."""

    def __init__(self, profile: Profile, data: str) -> None:
        self.profile, self._data = profile, data
        self._walked_steps = cache(self._walk_steps)

    @cached_property
    def _base(self) -> Scenario:
        profile = self.profile
        return Scenario.from_spec(make_spec(graph=profile.graph, support=profile.support, data=self._data, seed=0))

    @cached_property
    def _several(self) -> Scenario:
        """The same with the scheme that seals for several."""
        profile = self.profile
        scheme = choose_scheme(self._base.graph, profile.far, walk="non-backtracking", recipients=profile.recipients)
        return replace(self._base, scheme=scheme.require_sealed())

    def _walked(self, algorithm: str) -> tuple[Scenario, str]:
        """Return with which scheme an algorithm walks, and how."""
        if algorithm == PAPER:
            return self._base, "private-walk"
        return self._several if algorithm == "private-walk" else self._base, algorithm

    @cached_property
    def _validation(self) -> dict[str, Data]:
        """Training rows with some held back to choose by, no more than are evaluated later."""
        data = without_test_rows(self._base.data)
        return {model: _fewer(data, count) for model, count in self.profile.held_out.items()}

    def _scenario(self, model: str, partition: str, seed: int, *, setting: Setting = UNTUNED) -> Scenario:
        """Return a job's scenario; the data are read once for all."""
        scheme, fewer = self._base.scheme, _fewer(self._base.data, self.profile.held_out[model])
        parts: dict[str, Any] = {"data": fewer, "partition": partition, "learner": setting.spec(MODELS[model])}
        spec = make_spec(seed=seed, updates=self.profile.updates[model], decay=setting.decay)
        return Scenario.build(scheme, spec, **parts)

    def _trace(self, name: str, model: str, seed: int) -> TrainingTrace:
        """Return who updates when."""
        walked, kind = self._walked(name)
        return walked.change(updates=self.profile.updates[model], seed=seed).trace(kind)

    def tune(self, *, model: str, partition: str, algorithm: str, setting: Mapping[str, Any]) -> float:
        """Try a setting on rows held back."""
        walked, kind = self._walked(algorithm)
        how: dict[str, Any] = {"updates": self.profile.tuning_updates, "model": MODELS[model]}
        return accuracy_of(Setting(**setting), walked.scheme, self._validation[model], partition, kind, **how)

    def train(
        self, *, model: str, partition: str, seed: int, algorithm: str, setting: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Train by one algorithm with its setting; of gossip what single nodes hold is told too."""
        trace = self._trace(algorithm, model, seed)
        scenario = self._scenario(model, partition, seed, setting=Setting(**setting))
        own, gossip = OwnModels(trace), algorithm == "gossip"
        run = train(
            scenario.task(algorithm),
            trace,
            # A round of gossip costs so much that every one counts.
            evaluations=2 * len(trace) // trace.n_models if gossip else self.profile.evaluations[model],
            observe=own.see if gossip else None,
        )
        # Without the seconds it took: a job gives the same again.
        points = [{key: one for key, one in asdict(point).items() if key != "seconds"} for point in run.points]
        facts = {"setting": dict(setting), "message_bytes": run.costs.message_bytes}
        runs: dict[str, Any] = {algorithm: facts | {"points": points}}
        if gossip:
            scores = own.accuracies(run, scenario)
            runs[OWN_MODELS] = facts | {"points": [point | {"accuracy": scores[point["clock"]]} for point in points]}
        return runs

    def route(self, *, seed: int) -> FloatArray:
        """Return the exact posteriors of the deliveries to attack, on the softmax trace of a seed."""
        trace = self._trace(PAPER, "softmax", seed)
        rows = attacked_rows(trace, self.profile.attacked)
        return route_anonymity(self._base.scheme, trace, rows).posteriors

    def attack(self, posteriors: FloatArray, *, partition: str, seed: int) -> dict[str, Any]:
        """Attack the content of a softmax run."""
        trace = self._trace(PAPER, "softmax", seed)
        scenario = self._scenario("softmax", partition, seed)
        evidence = gather_evidence(scenario, trace, attacked_rows(trace, self.profile.attacked))
        return dict(plain({"rows": content_attack(scenario, evidence, posteriors)}))

    def steps(self, *, data: str, seeds: list[int], **tried: Any) -> dict[str, dict[str, float]]:
        """Train with so many local steps, so much fading and one step size, with every seed."""
        return local_steps.tried(self._walked_steps(data, tuple(seeds)), **tried)

    def leak(self, *, seed: int) -> list[dict[str, Any]]:
        """Return what an average that travels would give away, on the smaller data."""
        return local_steps.leak(self._several.scheme, load_data("digits", seed=0), seed=seed)

    def _walk_steps(self, data: str, seeds: tuple[int, ...]) -> local_steps.Walked:
        watched = self.profile.watched
        rows, updates = {
            "MNIST": (self._base.data, watched),
            "digits": (load_data("digits", seed=0), 2 * watched),
        }[data]
        return local_steps.walked(self._several.scheme, rows, updates, seeds)


_campaigns = cache(lambda profile, data: Campaign(PROFILES[profile], data))


def do(profile: str, data: str, job: Mapping[str, Any]) -> Any:
    """Do one job: ``do`` names it, the rest says which."""
    asked = dict(job)
    return getattr(_campaigns(profile, data), asked.pop("do"))(**asked)


def attack(profile: str, data: str, routes: Mapping[int, FloatArray], job: Mapping[str, Any]) -> dict[str, Any]:
    """Attack one run; ``routes`` has the posteriors of each seed."""
    found: dict[str, Any] = _campaigns(profile, data).attack(routes[job["seed"]], **job)
    return found


def _fewer(data: Data, count: int) -> Data:
    """Return data with the first so many held-out rows, for models that are slow to evaluate."""
    return replace(data, test=Partition(data.test.features[:count], data.test.labels[:count]))
