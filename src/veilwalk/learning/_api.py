"""What a learner is: arrays in, arrays out, and nothing else travels.

A token carries parameters only. Whatever a node keeps for itself (optimiser momentum, counters) lives in
``StepContext.state`` and stays there: in the token it would be a fingerprint of its maker.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Params = Mapping[str, Array]
"""Named arrays, in a fixed order with fixed shapes and dtypes: the only thing a token carries."""


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """The data of one node: one row of ``features`` for each label."""

    features: Array
    labels: Array

    def __len__(self) -> int:
        return len(self.labels)


class NormalSource(Protocol):
    """Something that draws normal numbers."""

    def standard_normal(self, shape: tuple[int, ...], /) -> Array:
        """Return independent standard normal numbers."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What a node hands its learner with the model, besides its data.

    ``step`` counts the updates this node has made before, which it knows without being told anything about others.
    ``rng`` is the stream of that node and step, so that a simulated run and a real one give the same bits.
    ``age`` counts the updates that the model has had before, by anybody; its sealed header says so.
    ``secret`` is where noise that protects comes from; None: from ``rng``, right for a simulation alone.
    """

    rng: np.random.Generator
    step: int
    age: int = 0
    state: MutableMapping[str, Array] = field(default_factory=dict)
    secret: NormalSource | None = None

    def normal(self, shape: tuple[int, ...]) -> Array:
        """Return independent standard normal numbers to protect with, in double precision."""
        return (self.rng if self.secret is None else self.secret).standard_normal(shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """A model after one update. ``metrics`` stay at the node; they never enter a token."""

    params: Params
    num_examples: int
    metrics: Mapping[str, float] = field(default_factory=dict)


@runtime_checkable
class Learner(Protocol):
    """Stateless: the same arguments give the same arrays, and no argument but ``ctx.state`` is changed."""

    def init_params(self, rng: np.random.Generator) -> Params:
        """Return the parameters training starts from."""
        ...

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Return ``params`` improved on the data of one node."""
        ...

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return at least ``loss`` (mean, nats) and, for classifiers, ``accuracy`` on ``data``."""
        ...


class UpdateMod(Protocol):
    """Middleware between a learner and the token: clipping, noise, decay."""

    def __call__(self, before: Params, result: UpdateResult, ctx: StepContext) -> UpdateResult:
        """Return ``result`` changed; ``before`` is the model that was received."""
        ...
