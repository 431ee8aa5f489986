"""Tests of received models, the fallback when one fails, and simulated nodes that spoil models.

A node that refuses a model goes on with its own last one, which is older by about as many updates as there are nodes.
A later node that holds a newer one goes on with that, so that most of what was lost comes back after a few nodes.
Nobody is blamed: the routing hides who made a model, from honest receivers too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.core.spec import Spec
from veilwalk.learning._contract import (
    Array,
    Params,
    is_finite,
    params_norm,
    split_models,
    stack_models,
    subtract_params,
)

if TYPE_CHECKING:
    from veilwalk.learning._training import TrainingTask

ACCEPT_USAGE = "none, or finite, loss:RATIO, norm:STEP or two of them (finite is in both)"
#: How a model is spoilt, and the number that follows the name where none is said.
POISONS = {"sign-flip": 10.0, "nan": 1.0, "random": 1.0, "drift": 1.0}
#: What is counted: models received from honest nodes and refused, from poisoners and refused or accepted, and models
#: given up for a newer one that the node held.
TALLIES = ("refused_honest", "refused_poisoned", "accepted_poisoned", "newer_held")

_TESTS = {"loss": "max_loss_ratio", "norm": "max_step"}
# By how much a refusal raises what a node compares with: one that was lucky once would refuse everybody for ever. Each
# honest model refused sets the run back, so that luck must be forgotten within one or two of them.
_LEAK = 1.5
# What is raised must be more than nothing: anybody can make a model that is right about all rows of one class.
_LEAST = 1e-9
_WHO_TASK, _WHAT_TASK, _WAY_TASK = 0x706F6973, 0x73706F69, 0x64726966


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Held:
    """A node's own last model.

    Attributes:
        params: The model, as the node sent it on.
        age: Updates that it has had.
        loss: What losses on the node's rows are held against: the least of the models accepted there, half as much
            again for each refused since; NaN where that is not known.
    """

    params: Params
    age: int = 0
    loss: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The tests of a received model. One that is not finite is always refused.

    Attributes:
        max_loss_ratio: Refused where its loss on the node's rows is more than so many times that of the model
            accepted there that had the least (half as much again for each refused since); 0 for no such test.
        max_step: Refused where it is farther (Euclidean norm) from the node's own last model than so much for each
            update between them; 0 for no such test. Where updates are clipped to this, no honest one is refused.
    """

    max_loss_ratio: float = 0.0
    max_step: float = 0.0

    def __post_init__(self) -> None:
        validate.finite(max_loss_ratio=self.max_loss_ratio, max_step=self.max_step)
        validate.at_least(0, max_loss_ratio=self.max_loss_ratio, max_step=self.max_step)
        if 0 < self.max_loss_ratio < 1:
            raise InvalidParameterError("max_loss_ratio", self.max_loss_ratio, "0, or at least 1")

    @classmethod
    def parse(cls, text: str) -> Acceptance | None:
        """Read ``loss:1.5,norm:2`` and the like; None where it is ``none``."""
        if text.strip() == "none":
            return None
        values: dict[str, float] = {}
        for part in text.split(","):
            spec = Spec.parse(part, parameter="accept")
            field = _TESTS.get(spec.name, "")
            if (spec.name, spec.argument, spec.options) == ("finite", "", ()):
                continue
            if not field or field in values or spec.options:
                raise InvalidParameterError("accept", text, ACCEPT_USAGE)
            values[field] = spec.convert(spec.argument, float, ACCEPT_USAGE)
            validate.more_than(0, accept=values[field])
        return cls(**values)

    def test(self, received: Params, held: Held, *, age: int, loss_of: Callable[[Params], float]) -> tuple[bool, float]:
        """Return whether a model is accepted, and the loss that later ones are held against (NaN where none is known).

        ``held`` is the node's own last model, or the first of the run; ``age`` is of the received one, as it is said.
        """
        if not is_finite(received):
            return False, held.loss
        step = params_norm(subtract_params(received, held.params)) if self.max_step else 0.0
        if step > self.max_step * max(age - held.age, 1):
            return False, held.loss
        if not self.max_loss_ratio:
            return True, held.loss
        loss = loss_of(received)
        before = max(held.loss if math.isfinite(held.loss) else loss_of(held.params), _LEAST)
        # A loss that is not a number is refused as well.
        if loss <= self.max_loss_ratio * before:
            # The best so far: were it the last, a little worse each time would go through.
            return True, min(loss, before)
        return False, _LEAK * before


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison:
    """What some nodes of a simulated run send on instead of their update, to see what tests are worth.

    Attributes:
        kind: ``sign-flip``: so many times their update, backwards. ``nan``: nothing but NaN. ``random``: Gaussian
            numbers of that deviation. ``drift``: as far as so many of their updates would go, all in one and the same
            direction: no single step of it shows.
        scale: That number.
        share: Share of the nodes.
    """

    kind: str
    scale: float
    share: float

    def __post_init__(self) -> None:
        if self.kind not in POISONS:
            raise InvalidParameterError("poison", self.kind, f"one of {', '.join(POISONS)}, or none")
        validate.finite(scale=self.scale)
        validate.more_than(0, scale=self.scale)
        if not 0 <= self.share < 1:
            raise InvalidParameterError("poisoners", self.share, "a share of the nodes, from 0 to below 1")

    @classmethod
    def parse(cls, text: str, share: float) -> Poison | None:
        """Read ``sign-flip:10`` and the like; None where it is ``none``."""
        if text == "none":
            return None
        spec = Spec.parse(text, parameter="poison")
        usual = POISONS.get(spec.name, 1.0)
        scale = spec.convert(spec.argument, float, "KIND or KIND:NUMBER") if spec.argument else usual
        return cls(kind=spec.name, scale=scale, share=share)

    def select_nodes(self, n_nodes: int, *, seed: int) -> frozenset[int]:
        """Return the nodes that do it, drawn by the seed."""
        order = task_generator(seed, _WHO_TASK).permutation(n_nodes)
        return frozenset(order[: round(self.share * n_nodes)].tolist())

    def spoil(self, before: Params, after: Params, *, seed: int, node: int, step: int) -> Params:
        """Return what is sent on in the place of ``after``, an honest update of ``before``."""
        changes = subtract_params(after, before, reals_only=True)
        stream = (seed, _WAY_TASK) if self.kind == "drift" else (seed, _WHAT_TASK, node, step)
        rng = task_generator(*stream)
        match self.kind:
            case "nan":
                spoilt = {name: np.full(change.shape, np.nan) for name, change in changes.items()}
            case "sign-flip":
                spoilt = {name: before[name] - self.scale * change for name, change in changes.items()}
            case "random":
                spoilt = {name: self.scale * rng.standard_normal(change.shape) for name, change in changes.items()}
            case _:
                way = {name: rng.standard_normal(change.shape) for name, change in changes.items()}
                size = self.scale * params_norm(changes) / params_norm(way)
                spoilt = {name: before[name] + size * way[name] for name in way}
        return {name: spoilt[name].astype(value.dtype) if name in spoilt else value for name, value in after.items()}


class Receivers:
    """The nodes of a simulated run that test what they receive: what each holds, and which of them spoil models."""

    def __init__(self, task: TrainingTask, first: Params, *, n_nodes: int, n_models: int) -> None:
        self._task, self._first = task, Held(params=first)
        poison = task.poison
        self._poisoners = frozenset[int]() if poison is None else poison.select_nodes(n_nodes, seed=task.seed)
        self._held: dict[tuple[int, int], Held] = {}
        self._ages = [0] * n_models
        self._spoilt = [False] * n_models
        self._loss = math.nan
        self.tallies = dict.fromkeys(TALLIES, 0)
        #: What the last honest node made of each model in flight: a user asks one of them for a model.
        self.honest_models: list[Params] = [first] * n_models

    def take(self, node: int, model: int, received: Params) -> tuple[Params, int]:
        """Return what a node goes on with, and its age: what came, or its own last model of this token."""
        age, held, rule = self._ages[model], self._held.get((node, model), self._first), self._task.acceptance
        self._loss = math.nan
        if node in self._poisoners:
            # It needs a number to spoil.
            return (received, age) if is_finite(received) else (held.params, held.age)
        if rule is None:
            return received, age
        rows, evaluate = self._task.partitions[node], self._task.learner.evaluate
        # A node without rows has no loss to compare.
        loss_of = (lambda params: float(evaluate(params, rows)["loss"])) if len(rows) else (lambda _: 0.0)
        accepted, self._loss = rule.test(received, held, age=age, loss_of=loss_of)
        if self._spoilt[model]:
            self.tallies["accepted_poisoned" if accepted else "refused_poisoned"] += 1
        self.tallies["refused_honest"] += not accepted and not self._spoilt[model]
        self.tallies["newer_held"] += accepted and held.age > age
        return (received, age) if accepted and held.age <= age else (held.params, held.age)

    def send(self, node: int, model: int, before: Params, after: Params, *, age: int, step: int) -> Params:
        """Return what a node sends on after its update of ``before``, a model of that age."""
        self._ages[model] = age + 1
        self._spoilt[model] = node in self._poisoners
        if self._task.poison is not None and self._spoilt[model]:
            return self._task.poison.spoil(before, after, seed=self._task.seed, node=node, step=step)
        self.honest_models[model] = after
        if self._task.acceptance is not None:
            self._held[node, model] = Held(params=after, age=age + 1, loss=self._loss)
        return after

    @property
    def age(self) -> int:
        """The most updates that a model in flight has really had."""
        return max(self._ages)

    def to_arrays(self) -> dict[str, Array]:
        """Return all that is held, flat, for a checkpoint."""
        return {
            "ages": np.array(self._ages),
            "spoilt": np.array(self._spoilt),
            "tallies": np.array([self.tallies[name] for name in TALLIES]),
            "held": np.array([(*key, held.age) for key, held in self._held.items()], dtype=np.int64).reshape(-1, 3),
            "losses": np.array([held.loss for held in self._held.values()]),
            **stack_models(self.honest_models, "honest/"),
            **stack_models([held.params for held in self._held.values()], "held/"),
        }

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Go on from what :meth:`to_arrays` returned."""
        self._ages, self._spoilt = arrays["ages"].tolist(), arrays["spoilt"].tolist()
        self.tallies = dict(zip(TALLIES, arrays["tallies"].tolist(), strict=True))
        self.honest_models = split_models(arrays, "honest/")
        rows = zip(arrays["held"].tolist(), split_models(arrays, "held/"), arrays["losses"].tolist(), strict=True)
        self._held = {
            (node, model): Held(params=params, age=age, loss=loss) for (node, model, age), params, loss in rows
        }
