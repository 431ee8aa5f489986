"""Learning over a network of 300 peers, measured: MNIST, two partitions, two models, five algorithms, noise, attacks.

Run ``python -m benchmarks.tables.learning`` from the checkout, with MNIST's four files in ``../shared/data/mnist`` or
where ``--data`` says. It writes ``docs/reference/learning.md`` and ``docs/images/learning.png``. Every finished cell is
a file under ``--work``; run it again to go on where it stopped. ``--only softmax`` renews one section and leaves the
others as they were written. ``--profile reduced`` is a smoke test of a minute or two that leaves the docs alone.

Every algorithm is tuned by one rule (:mod:`benchmarks.tables.tuning`), for both models; the noise and the attacks have
step size 0.1 and one step an update.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.speed.learning import speed_lines
from benchmarks.tables import local_steps
from benchmarks.tables.cells import kept, refuse_others
from benchmarks.tables.learning_page import OWN_MODELS, page
from benchmarks.tables.tuning import GRID, NETWORK_GRID, Setting, best, tune, without_test_rows
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.records import Record, write_atomically
from veilwalk.design import choose_scheme, require_destinations
from veilwalk.learning import Data, Learner, Params, Partition, Training, TrainingTrace, load_data, noise_for, train
from veilwalk.report import learning_figure
from veilwalk.training import (
    Scenario,
    TrainSettings,
    attacked_rows,
    content_attack,
    gather_evidence,
    route_anonymity,
)

if TYPE_CHECKING:
    from torch import Tensor, optim

PAPER = "paper-walk"
ALGORITHMS = ("private-walk", PAPER, "plain-walk", "gossip", "central")
PARTITIONS = ("iid", "dirichlet:0.3")
ATTACKED = (*PARTITIONS, "graph:0.9")
EPSILONS, DELTA, CLIP = (8.0, 1.0), 1e-5, 0.05
UNTUNED = Setting(learning_rate=0.1, local_steps=1)
MODELS = {"softmax": "softmax", "cnn": "benchmarks.tables.learning:small_cnn"}
GRIDS = {"softmax": GRID, "cnn": NETWORK_GRID}
PARTS = (*MODELS, "steps", "noise", "attack", "speed")
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
    """All cells of one profile; each is computed once and kept."""

    def __init__(self, profile: Profile, data: str, work: Path, parts: Sequence[str] = PARTS) -> None:
        self.profile, self._data, self._work, self._parts = profile, data, work, parts

    @cached_property
    def _base(self) -> Scenario:
        profile = self.profile
        return Scenario.of(TrainSettings(graph=profile.graph, support=profile.support, data=self._data, seed=0))

    @cached_property
    def _several(self) -> Scenario:
        """The same with the scheme that seals for several."""
        profile = self.profile
        scheme = choose_scheme(self._base.graph, profile.far, walk="non-backtracking", recipients=profile.recipients)
        return replace(self._base, scheme=require_destinations(scheme))

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

    def scenario(
        self, model: str, partition: str, seed: int, *, learner: str = "", noise: float = 0.0, clip: float = 0.0
    ) -> Scenario:
        """Return a cell's scenario; the data are read once for all."""
        scheme, fewer = self._base.scheme, _fewer(self._base.data, self.profile.held_out[model])
        spec = learner or UNTUNED.spec(MODELS[model])
        parts: dict[str, Any] = {"data": fewer, "partition": partition, "learner": spec}
        return Scenario.make(scheme, **parts, seed=seed, noise=noise, clip=clip)

    def trace(self, name: str, model: str, seed: int) -> TrainingTrace:
        """Return who updates when."""
        walked, kind = self._walked(name)
        return walked.trace(kind, updates=self.profile.updates[model], seed=seed)

    def cell(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return a cell from its file, or compute and keep it."""
        return kept(self._work, name, compute)

    def tuned(self, model: str, partition: str, algorithm: str) -> dict[str, Any]:
        """Try the whole grid of a model."""
        walked, kind = self._walked(algorithm)
        how: dict[str, Any] = {"updates": self.profile.tuning_updates, "grid": GRIDS[model], "model": MODELS[model]}
        tried = tune(walked.scheme, self._validation[model], partition, kind, **how)
        return {"chosen": asdict(best(tried)), "tried": [asdict(one) for one in tried]}

    def setting(self, model: str, partition: str, algorithm: str) -> Setting:
        """Return the setting with which an algorithm trains."""
        name = f"tune-{model}-{partition}-{algorithm}"
        return Setting(**self.cell(name, partial(self.tuned, model, partition, algorithm))["chosen"])

    def trained(self, model: str, partition: str, seed: int) -> dict[str, Any]:
        """Train by every algorithm, each with its setting."""
        runs = {}
        for name in ALGORITHMS:
            setting, trace = self.setting(model, partition, name), self.trace(name, model, seed)
            learner = setting.spec(MODELS[model])
            scenario, own = self.scenario(model, partition, seed, learner=learner), OwnModels(trace)
            gossip = name == "gossip"
            run = train(
                scenario.task(name, seed=seed),
                trace,
                # A round of gossip costs so much that every one counts.
                evaluations=2 * len(trace) // trace.n_models if gossip else self.profile.evaluations[model],
                observe=own.see if gossip else None,
            )
            points = [asdict(point) for point in run.points]
            facts = {"setting": asdict(setting), "message_bytes": run.costs.message_bytes}
            runs[name] = facts | {"points": points}
            if gossip:
                scores = own.accuracies(run, scenario)
                runs[OWN_MODELS] = facts | {
                    "points": [point | {"accuracy": scores[point["clock"]]} for point in points]
                }
        return runs

    def route(self, seed: int) -> tuple[TrainingTrace, IntArray, FloatArray]:
        """Return the softmax trace of a seed, deliveries to attack, and their exact posteriors."""
        trace = self.trace(PAPER, "softmax", seed)
        rows = attacked_rows(trace, self.profile.attacked)
        path = self._work / f"route-{seed}.npz"
        if not path.exists():
            start = time.perf_counter()
            found = route_anonymity(self._base.scheme, trace, rows, seed=seed)
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(".draft.npz")
            np.savez(draft, posteriors=found.posteriors)
            draft.replace(path)
            print(f"route-{seed}: {time.perf_counter() - start:.1f} s", flush=True)
        with np.load(path) as kept:
            return trace, rows, kept["posteriors"]

    def attacked(self, partition: str, seed: int) -> dict[str, Any]:
        """Attack the content of a softmax run."""
        trace, rows, posteriors = self.route(seed)
        scenario = self.scenario("softmax", partition, seed)
        evidence = gather_evidence(scenario, trace, rows, seed=seed)
        return {"rows": content_attack(scenario, evidence, posteriors)}

    def noisy(self, partition: str, seed: int, epsilon: float) -> dict[str, Any]:
        """Train the softmax privately with the least noise that keeps epsilon against everybody."""
        trace = self.trace(PAPER, "softmax", seed)
        multiplier = noise_for(epsilon, DELTA, updates=int(np.bincount(trace.node).max()))
        scenario = self.scenario("softmax", partition, seed, noise=multiplier, clip=CLIP)
        run = train(scenario.task("private-walk", seed=seed), trace, evaluations=2)
        return {"noise_multiplier": multiplier, "accuracy": run.points[-1].accuracy}

    def run(self) -> Record:
        """Compute every cell that is not there yet; refuse cells that were computed with other settings."""
        params = asdict(self.profile) | {"data": "MNIST", "delta": DELTA, "clip": CLIP, "models": MODELS}
        params["grids"] = {model: [asdict(setting) for setting in grid] for model, grid in GRIDS.items()}
        refuse_others(self._work, params | {"from": self._data})
        result: dict[str, Any] = {"cells": list(self._cells())}
        if "steps" in self._parts:
            result["steps"] = self.cell("steps", self._steps)
        if "speed" in self._parts:
            result |= self.cell("speed", self._speed)
        return Record(kind="learning", params=params, result=result)

    def _steps(self) -> dict[str, Any]:
        scheme, watched = self._several.scheme, self.profile.watched
        data = {"MNIST": (self._base.data, watched), "digits": (load_data("digits", seed=0), 2 * watched)}
        return local_steps.measure(scheme, data, seeds=self.profile.seeds)

    def _speed(self) -> dict[str, Any]:
        lines, medians = speed_lines(*self.profile.speed)
        return {"speed": [asdict(line) for line in lines], "microseconds": medians}

    def _cells(self) -> Iterator[dict[str, Any]]:
        for seed in self.profile.seeds:
            for partition in PARTITIONS:
                for model in (model for model in MODELS if model in self._parts):
                    found = self.cell(
                        f"train-{model}-{partition}-{seed}", partial(self.trained, model, partition, seed)
                    )
                    yield {"kind": "train", "model": model, "partition": partition, "seed": seed, "found": found}
                for epsilon in EPSILONS if "noise" in self._parts else ():
                    name = f"noise-{partition}-{epsilon:g}-known-{seed}"
                    found = self.cell(name, partial(self.noisy, partition, seed, epsilon))
                    yield {"kind": "noise", "partition": partition, "seed": seed, "epsilon": epsilon, "found": found}
            attacked = "attack" in self._parts and seed in self.profile.attack_seeds
            for partition in ATTACKED if attacked else ():
                found = self.cell(f"attack-{partition}-{seed}", partial(self.attacked, partition, seed))
                yield {"kind": "attack", "partition": partition, "seed": seed, "found": found}


def _fewer(data: Data, count: int) -> Data:
    """Return data with the first so many held-out rows, for models that are slow to evaluate."""
    return replace(data, test=Partition(data.test.features[:count], data.test.labels[:count]))


def main() -> None:
    """Run the campaign and write its page and figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", default="mnist:../shared/data/mnist")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="full")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="sections to renew")
    parser.add_argument("--work", type=Path, help="where cells are kept; out/learning-PROFILE by default")
    parser.add_argument("--docs", type=Path, help="where to write; the checkout's docs for the full profile")
    options = parser.parse_args()
    work = options.work or Path("out") / f"learning-{options.profile}"
    docs = options.docs or (Path(__file__).parents[2] / "docs" if options.profile == "full" else work / "docs")
    start = time.perf_counter()
    record = Campaign(PROFILES[options.profile], options.data, work, options.only).run()
    path = docs / "reference" / "learning.md"
    write_atomically(path, page(record, before=path.read_text() if path.exists() else "").encode())
    if any(cell["kind"] == "train" for cell in record.result["cells"]):
        write_atomically(docs / "images" / "learning.png", learning_figure(record))
    print(f"wrote {path} after {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
