"""Whose privacy a run protects, how, and how much noise that takes: asked for in few words, settled before training.

``record``: one row of one node. Every row's gradient is clipped; noise is on each step's sum. ``node``: all rows of one
node. The whole update is clipped, and noise is on that. Either way a node may stop learning after ``most_updates``, so
that what it can reveal is bounded before anything is walked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Self

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import Learner, UpdateMod
from veilwalk.learning._guard import guarded
from veilwalk.learning._mods import ClipUpdate, Decay, GaussianNoise, compose
from veilwalk.learning._rows import RowLearner, RowProtection

UNITS = ("record", "node")
#: What noise alone moves each number of a model by until the end of a run, as a standard deviation, where step and clip
#: are left open. Tuned on public data, by ``tools.pages.noise --tune``.
NOISE_BUDGET = {"record": 0.3, "node": 0.12}
#: Norm of a row's gradient to clip to, and of a node's whole gradient: public data again.
USUAL_GRADIENT = {"record": 1.0, "node": 0.2}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSize:
    """How large a run is: numbers that everybody knows, and that noise is found by.

    Attributes:
        updates: Of all models together.
        nodes: Members that share them.
        rows: Of all members together.
        models: That walk side by side.
    """

    updates: int
    nodes: int
    rows: int
    models: int = 1

    @property
    def share(self) -> int:
        """Updates of a node, where all make the same number."""
        return -(-self.updates // self.nodes)

    @property
    def rows_each(self) -> int:
        """Rows of a node, where all have the same number."""
        return max(-(-self.rows // self.nodes), 1)

    @property
    def age(self) -> int:
        """Updates of a model at the end."""
        return -(-self.updates // self.models)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What every update of a run goes through, in the simulator and at a node.

    Attributes:
        clip: Largest norm of a row's gradient where ``rows`` is given, else of an update; 0 does not clip.
        noise: Standard deviation of the noise, in units of ``clip``; 0 adds none.
        rows: What sums over rows are divided by, where one row is protected; 0 where a whole node is.
        most_updates: A node that has made so many hands models on as they are; 0: no such limit.
        decay: An update counts less the older the model is, and nothing after so many; 0: always the same.
        epsilon: For which the noise was found; 0 where it was given.
    """

    clip: float = 0.0
    noise: float = 0.0
    rows: int = 0
    most_updates: int = 0
    decay: int = 0
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        check_mechanism(clip=self.clip, noise=self.noise)
        whole = {"rows": self.rows, "most_updates": self.most_updates, "decay": self.decay}
        validate.integer(**whole)
        validate.at_least(0, **whole)
        if self.rows and not self.clip:
            raise InvalidParameterError("clip", self.clip, "more than 0 where rows are protected")

    @property
    def unit(self) -> str:
        """What is protected: one record, or one node with all it has."""
        return "record" if self.rows else "node"

    def learner(self, learner: Learner) -> Learner:
        """Return ``learner``, or, where rows are protected, one that clips and noises row by row."""
        if not self.rows:
            return learner
        able = row_learner(learner)
        return guarded(able.protect_rows(RowProtection(clip=self.clip, noise=self.noise, rows=self.rows)))

    def mod(self) -> UpdateMod | None:
        """Return what an update goes through after the learner."""
        mods: list[UpdateMod] = [Decay(self.decay)] if self.decay else []
        if self.clip and not self.rows:
            mods.insert(0, GaussianNoise(self.noise, self.clip) if self.noise else ClipUpdate(self.clip))
        return compose(mods) if mods else None

    def share(self, age: int) -> float:
        """Return how much of an update counts in a model that has had ``age`` updates."""
        return Decay(self.decay).share(age) if self.decay else 1.0

    def releases(self, learner: Learner) -> int:
        """Return how many noisy results one update is made of: the steps of the learner, or the update itself."""
        return row_learner(learner).local_steps if self.rows else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectionRequest:
    """What is asked for: noise by its size, or by what it has to reach.

    Attributes:
        protect: ``record``, one row, or ``node``, all rows of a node.
        clip: Norm to clip to; 0 for the usual one, where ``epsilon`` is given.
        noise: Standard deviation in units of ``clip``; 0 where ``epsilon`` finds it.
        epsilon: Of the guarantee, against everybody, sender known; 0 where ``noise`` is given, or none.
        delta: Of the guarantee.
        most_updates: Largest number of updates of a node; 0: even shares of all, where ``epsilon`` is given.
    """

    protect: str = "node"
    clip: float = 0.0
    noise: float = 0.0
    epsilon: float = 0.0
    delta: float = 1e-5
    most_updates: int = 0

    def __post_init__(self) -> None:
        if self.protect not in UNITS:
            raise InvalidParameterError("protect", self.protect, f"one of {', '.join(UNITS)}")
        validate.at_least(0, epsilon=self.epsilon)
        validate.finite(epsilon=self.epsilon)
        validate.probability(delta=self.delta)
        if self.epsilon and self.noise:
            raise InvalidParameterError("epsilon", self.epsilon, "given without noise: it finds the noise itself")
        if self.protect == "record" and not (self.epsilon or self.noise):
            raise InvalidParameterError("protect", self.protect, "given with epsilon or noise: nothing else protects")
        # The rest is refused as it would be once settled.
        Protection(clip=self.clip, noise=self.noise, most_updates=self.most_updates)

    @classmethod
    def of(cls, settings: object) -> Self:
        """Return what ``settings`` of any kind ask for, by fields of the same names."""
        return cls(**{one.name: getattr(settings, one.name) for one in fields(cls)})

    def settle(self, learner: Learner, size: RunSize) -> Protection:
        """Return the protection of a run of that size with that learner."""
        record = self.protect == "record"
        rows = size.rows_each if record else 0
        if not self.epsilon:
            return Protection(clip=self.clip, noise=self.noise, rows=rows, most_updates=self.most_updates)
        noise = self.settle_noise(size, releases=row_learner(learner).local_steps if record else 1)
        usual = USUAL_GRADIENT["record"] if record else self._deviation(size) / noise
        return Protection(
            clip=self.clip or float(f"{usual:.4g}"),
            noise=noise,
            rows=rows,
            most_updates=self.most_updates or size.share,
            decay=size.age,
            epsilon=self.epsilon,
        )

    def usual_learner(self, size: RunSize) -> str:
        """Return the softmax whose step fits the noise: all rows at once, and what noise does to it within bounds."""
        noise, deviation = self.settle_noise(size), self._deviation(size)
        if self.protect == "record":
            rate = deviation * size.rows_each / (noise * (self.clip or USUAL_GRADIENT["record"]))
        else:
            rate = (self.clip or deviation / noise) / USUAL_GRADIENT["node"]
        return f"softmax:learning_rate={rate:.3g}:batch_size=0"

    def settle_noise(self, size: RunSize, *, releases: int = 1) -> float:
        """Return the least noise for an epsilon, ``releases`` an update, rounded up: rules and records are text."""
        from veilwalk.learning._privacy import noise_for

        updates = (self.most_updates or size.share) * releases
        least = noise_for(self.epsilon, self.delta, updates=updates)
        digit = 10.0 ** (math.floor(math.log10(least)) - 3)
        return float(f"{math.ceil(least / digit) * digit:.4g}")

    def _deviation(self, size: RunSize) -> float:
        """Return how much noise each number of an update gets, so that all of them, decaying, keep to the budget."""
        return NOISE_BUDGET[self.protect] / math.sqrt(size.age / 3)


def row_learner(learner: Learner) -> RowLearner:
    """Return ``learner``, or refuse one that cannot clip row by row."""
    if not callable(getattr(learner, "protect_rows", None)):
        need = "node: this learner cannot clip row by row (softmax, linear, mlp and TorchLearner can)"
        raise InvalidParameterError("protect", "record", need)
    return learner  # type: ignore[return-value]  # a guarded one answers for what it guards


def check_mechanism(*, clip: float, noise: float) -> None:
    """Refuse noise that hides nothing."""
    validate.at_least(0, noise=noise, clip=clip)
    validate.finite(noise=noise, clip=clip)
    if noise and not clip:
        raise InvalidParameterError("noise", noise, "given with clip: noise hides only what is bounded")
