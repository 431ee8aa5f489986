"""What nodes of a simulated run do with a model before and after its update: test it, keep it, spoil it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.learning._acceptance import Acceptance, Held, is_finite
from veilwalk.learning._api import Array, Params

if TYPE_CHECKING:
    from veilwalk.learning._training import TrainingTask

#: What is counted: models received from honest nodes and refused, from poisoners and refused or accepted, and models
#: given up for a newer one that the node held.
TALLIES = ("refused_honest", "refused_poisoned", "accepted_poisoned", "newer_held")


class Receivers:
    """All nodes' doors: what each holds, who spoils models, how old the models in flight are."""

    def __init__(self, task: TrainingTask, first: Params, *, n_nodes: int, n_models: int) -> None:
        self._task, self._rule = task, task.acceptance
        self._first = Held(params=first)
        self._poisoners = frozenset[int]() if task.poison is None else task.poison.nodes(n_nodes, seed=task.seed)
        self._held: dict[tuple[int, int], Held] = {}
        self._ages = [0] * n_models
        self._spoilt = [False] * n_models
        self._sound: list[Params] = [first] * n_models
        self._loss = math.nan
        self.tallies = dict.fromkeys(TALLIES, 0)

    def take(self, node: int, model: int, received: Params) -> tuple[Params, int]:
        """Return what a node goes on with, and its age: what came, or its own last model of this token."""
        age, held = self._ages[model], self._held.get((node, model), self._first)
        self._loss = math.nan
        if node in self._poisoners:
            # It needs a number to spoil.
            return (received, age) if is_finite(received) else (held.params, held.age)
        if self._rule is None:
            return received, age
        accepted, self._loss = self._look(self._rule, node, received, held, age)
        if self._spoilt[model]:
            self.tallies["accepted_poisoned" if accepted else "refused_poisoned"] += 1
        if not accepted:
            self.tallies["refused_honest"] += not self._spoilt[model]
            return held.params, held.age
        if held.age > age:
            self.tallies["newer_held"] += 1
            return held.params, held.age
        return received, age

    def _look(self, rule: Acceptance, node: int, received: Params, held: Held, age: int) -> tuple[bool, float]:
        rows, evaluate = self._task.partitions[node], self._task.learner.evaluate
        # Who has no rows has no loss to compare.
        loss_of = (lambda params: float(evaluate(params, rows)["loss"])) if len(rows) else (lambda _: 0.0)
        return rule.look(received, held, age=age, loss_of=loss_of)

    def send(self, node: int, model: int, before: Params, after: Params, *, age: int, step: int) -> Params:
        """Return what a node sends on after its update of ``before``, a model of that age."""
        self._ages[model] = age + 1
        poison = self._task.poison
        self._spoilt[model] = node in self._poisoners
        if poison is not None and self._spoilt[model]:
            return poison.spoil(before, after, seed=self._task.seed, node=node, step=step)
        self._sound[model] = after
        if self._rule is not None:
            self._held[node, model] = Held(params=after, age=age + 1, loss=self._loss)
        return after

    @property
    def sound(self) -> list[Params]:
        """What the last honest node made of each model in flight: whoever wants a model asks one of them."""
        return list(self._sound)

    @property
    def age(self) -> int:
        """The most updates that a model in flight has really had."""
        return max(self._ages)

    def to_arrays(self) -> dict[str, Array]:
        """Return all that is held, flat, for a checkpoint."""
        found: dict[str, Array] = {
            "ages": np.array(self._ages),
            "spoilt": np.array(self._spoilt),
            "tallies": np.array([self.tallies[name] for name in TALLIES]),
            "held": np.array([(*key, held.age) for key, held in self._held.items()], dtype=np.int64).reshape(-1, 3),
            "losses": np.array([held.loss for held in self._held.values()]),
        }
        for name in self._first.params:
            found[f"sound/{name}"] = np.stack([params[name] for params in self._sound])
            if self._held:
                found[f"held/{name}"] = np.stack([held.params[name] for held in self._held.values()])
        return found

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Go on from what :meth:`to_arrays` returned."""
        self._ages, self._spoilt = arrays["ages"].tolist(), arrays["spoilt"].tolist()
        self.tallies = dict(zip(TALLIES, arrays["tallies"].tolist(), strict=True))
        self._sound = [self._row(arrays, "sound", row) for row in range(len(self._ages))]
        keys: Sequence[tuple[int, int, int]] = arrays["held"].tolist()
        self._held = {
            (node, model): Held(params=self._row(arrays, "held", row), age=age, loss=float(arrays["losses"][row]))
            for row, (node, model, age) in enumerate(keys)
        }

    def _row(self, arrays: Mapping[str, Array], kind: str, row: int) -> Params:
        return {name: arrays[f"{kind}/{name}"][row].copy() for name in self._first.params}
