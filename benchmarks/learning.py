"""Learning over a network of 300 peers, measured: MNIST, two partitions, two models, four algorithms, noise, attacks.

Run ``python -m benchmarks.learning`` from the checkout, with MNIST's four files in ``../shared/data/mnist`` or where
``--data`` says. It writes ``docs/reference/learning.md`` and ``docs/images/learning.png``. Every finished cell is a
file under ``--work``; run it again to go on where it stopped. ``--profile reduced`` is a smoke test of a minute or two
that leaves the docs alone.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.learning_page import page
from benchmarks.learning_speed import speed_lines

from veilwalk import __version__
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.records import Record, plain, write_atomically
from veilwalk.experiments import TrainSettings
from veilwalk.experiments._attribution import route_anonymity, unwatched
from veilwalk.experiments._train_content import attacked_rows, content_attack, gather_evidence
from veilwalk.experiments._train_privacy import sender_unknown
from veilwalk.experiments._train_setup import Setup, set_up
from veilwalk.learning import (
    Learner,
    Partition,
    TrainingTrace,
    noise_for,
    parse_partition_spec,
    partitions_of,
    train,
)
from veilwalk.report import learning_figure

ALGORITHMS = ("private-walk", "plain-walk", "gossip", "central")
PARTITIONS = ("iid", "dirichlet:0.3")
ATTACKED = (*PARTITIONS, "graph:0.9")
EPSILONS, DELTA, CLIP = (8.0, 1.0), 1e-5, 0.05
MODELS = {"softmax": "softmax:learning_rate=0.1", "cnn": "benchmarks.learning:small_cnn"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How much to do."""

    seeds: tuple[int, ...]
    updates: dict[str, int]
    evaluations: dict[str, int]
    held_out: dict[str, int]
    attacked: int
    graph: str = "rrg:300:3:seed=1"
    support: str = "2:6"
    speed: tuple[int, int] = (4000, 15)


PROFILES = {
    "full": Profile(
        seeds=(1, 2, 3),
        updates={"softmax": 6000, "cnn": 3000},
        evaluations={"softmax": 30, "cnn": 14},
        held_out={"softmax": 10_000, "cnn": 2000},
        attacked=200,
    ),
    "reduced": Profile(
        seeds=(1, 2),
        updates={"softmax": 400, "cnn": 80},
        evaluations={"softmax": 8, "cnn": 4},
        held_out={"softmax": 1000, "cnn": 200},
        attacked=40,
        graph="rrg:40:3:seed=1",
        support="2:4",
        speed=(1000, 3),
    ),
}


def small_cnn(*, n_features: int, n_classes: int) -> Learner:
    """Two convolutions and a linear layer, 5,994 parameters for MNIST, plain SGD."""
    from torch import nn, optim

    from veilwalk.learning.torch_learner import TorchLearner

    side = round(n_features**0.5)

    def module() -> nn.Module:
        return nn.Sequential(
            nn.Unflatten(1, (1, side, side)), nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, n_classes),
        )  # fmt: skip

    return TorchLearner(module_fn=module, optimizer_fn=lambda tensors: optim.SGD(tensors, lr=0.1))


class Campaign:
    """All cells of one profile; each is computed once and kept."""

    def __init__(self, profile: Profile, data: str, work: Path) -> None:
        self.profile, self._data, self._work = profile, data, work

    def settings(self, model: str, partition: str, seed: int, **other: Any) -> TrainSettings:
        """Return the settings of a cell."""
        return TrainSettings(
            graph=self.profile.graph,
            support=self.profile.support,
            data=self._data,
            learner=MODELS[model],
            partition=partition,
            updates=self.profile.updates[model],
            seed=seed,
            **other,
        )

    @cached_property
    def _base(self) -> Setup:
        return set_up(self.settings("softmax", "iid", 0))

    def setup(self, model: str, partition: str, seed: int, **other: Any) -> Setup:
        """Return a cell's set-up; the data are read once for all."""
        from veilwalk.learning import make_learner

        settings, base = self.settings(model, partition, seed, **other), self._base
        dealt = partitions_of(parse_partition_spec(partition, graph=base.graph, seed=seed), base.data)
        learner = make_learner(settings.learner, n_features=base.data.n_features, n_classes=base.data.n_classes)
        test, count = base.data.test, self.profile.held_out[model]
        # The first so many held-out rows, for models that are slow to evaluate.
        data = replace(base.data, test=Partition(test.features[:count], test.labels[:count]))
        return replace(base, settings=settings, partitions=dealt, learner=learner, data=data)

    def cell(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return a cell from its file, or compute and keep it."""
        path = self._work / f"{name.replace(':', '-')}.json"
        if not path.exists():
            start = time.perf_counter()
            found = plain(compute())
            write_atomically(path, json.dumps(found).encode())
            print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
        return dict(json.loads(path.read_text()))

    def trained(self, model: str, partition: str, seed: int) -> dict[str, Any]:
        """Train by every algorithm."""
        setup = self.setup(model, partition, seed)
        runs = {}
        for name in ALGORITHMS:
            run = train(setup.task(name), setup.trace(name), evaluations=self.profile.evaluations[model])
            runs[name] = {"points": [asdict(point) for point in run.points], "message_bytes": run.costs.message_bytes}
            if name == "gossip":
                chosen = run.models[:: max(len(run.models) // 16, 1)]
                scores = [setup.learner.evaluate(params, setup.data.test)["accuracy"] for params in chosen]
                runs[name]["single_accuracy"] = float(np.mean(scores))
        return runs

    def route(self, seed: int) -> tuple[TrainingTrace, IntArray, FloatArray, FloatArray]:
        """Return the softmax trace of a seed, deliveries to attack, their exact posteriors, and all top weights."""
        setup = self.setup("softmax", "iid", seed)
        trace = setup.trace("private-walk")
        rows = attacked_rows(trace, self.profile.attacked)
        path = self._work / f"route-{seed}.npz"
        if not path.exists():
            start = time.perf_counter()
            found = route_anonymity(setup, trace, rows, unwatched)
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(".draft.npz")
            np.savez(draft, posteriors=found.posteriors, tops=np.asarray(found.tops))
            draft.replace(path)
            print(f"route-{seed}: {time.perf_counter() - start:.1f} s", flush=True)
        with np.load(path) as kept:
            return trace, rows, kept["posteriors"], kept["tops"]

    def attacked(self, partition: str, seed: int) -> dict[str, Any]:
        """Attack the content of a softmax run."""
        trace, rows, posteriors, _ = self.route(seed)
        setup = self.setup("softmax", partition, seed)
        return {"rows": content_attack(setup, gather_evidence(setup, trace, rows), posteriors)}

    def noisy(self, partition: str, seed: int, epsilon: float, case: str) -> dict[str, Any]:
        """Train the softmax privately with the least noise that keeps epsilon, in one of the two cases."""
        trace, _, _, tops = self.route(seed)
        most = int(np.bincount(trace.node).max())
        multiplier = noise_for(epsilon, DELTA, updates=most)
        if case == "sender unknown":
            multiplier = self._least_noise(trace, tops, epsilon, multiplier)
        setup = self.setup("softmax", partition, seed, noise=multiplier, clip=CLIP)
        run = train(setup.task("private-walk"), trace, evaluations=2)
        return {"noise_multiplier": multiplier, "accuracy": run.points[-1].accuracy}

    def _least_noise(self, trace: TrainingTrace, tops: FloatArray, epsilon: float, known: float) -> float:
        """Halve between noise that surely suffices (the known case's, if it does) and noise that does not."""

        def enough(multiplier: float) -> bool:
            accountant = sender_unknown(self._base.law, trace, tops, noise=multiplier)
            return accountant.get_epsilon(DELTA) <= epsilon

        low, high = 0.05 * known, known
        if not enough(high):
            return known
        while high / low > 1.02:
            middle = (low * high) ** 0.5
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

    def run(self) -> Record:
        """Compute every cell that is not there yet; refuse cells that were computed with other settings."""
        params = asdict(self.profile) | {"data": "MNIST", "delta": DELTA, "clip": CLIP, "models": MODELS}
        asked = plain(params | {"from": self._data, "veilwalk": __version__})
        if self.cell("settings", lambda: asked) != asked:
            raise SystemExit(f"{self._work} holds cells of other settings: remove it, or choose another --work")
        rows, speed = list(self._cells()), self.cell("speed", self._speed)
        return Record(
            kind="learning",
            params=params,
            result={"cells": rows, "speed": speed["lines"], "microseconds": speed["microseconds"]},
        )

    def _speed(self) -> dict[str, Any]:
        lines, medians = speed_lines(*self.profile.speed)
        return {"lines": [asdict(line) for line in lines], "microseconds": medians}

    def _cells(self) -> Iterator[dict[str, Any]]:
        for seed in self.profile.seeds:
            for partition in PARTITIONS:
                for model in MODELS:
                    found = self.cell(
                        f"train-{model}-{partition}-{seed}", partial(self.trained, model, partition, seed)
                    )
                    yield {"kind": "train", "model": model, "partition": partition, "seed": seed, "found": found}
                for epsilon in EPSILONS:
                    for case in ("sender known", "sender unknown"):
                        found = self.cell(
                            f"noise-{partition}-{epsilon:g}-{case.split()[1]}-{seed}",
                            partial(self.noisy, partition, seed, epsilon, case),
                        )
                        yield {
                            "kind": "noise", "partition": partition, "seed": seed, "epsilon": epsilon, "case": case,
                            "found": found,
                        }  # fmt: skip
            for partition in ATTACKED:
                found = self.cell(f"attack-{partition}-{seed}", partial(self.attacked, partition, seed))
                yield {"kind": "attack", "partition": partition, "seed": seed, "found": found}


def main() -> None:
    """Run the campaign and write its page and figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", default="mnist:../shared/data/mnist")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="full")
    parser.add_argument("--work", type=Path, help="where cells are kept; out/learning-PROFILE by default")
    parser.add_argument("--docs", type=Path, help="where to write; the checkout's docs for the full profile")
    options = parser.parse_args()
    work = options.work or Path("out") / f"learning-{options.profile}"
    docs = options.docs or (Path(__file__).parents[1] / "docs" if options.profile == "full" else work / "docs")
    start = time.perf_counter()
    record = Campaign(PROFILES[options.profile], options.data, work).run()
    write_atomically(docs / "reference" / "learning.md", page(record).encode())
    write_atomically(docs / "images" / "learning.png", learning_figure(record))
    print(f"wrote {docs / 'reference' / 'learning.md'} after {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
