"""The mechanism between a learner and the token: clipping, noise, decay; what it guarantees, and the noise that takes.

``record`` protects one row of one node: every row's gradient is clipped, and noise is on each step's sum. ``node``
protects all rows of one node: the whole update is clipped, and noise is on that. A node may stop learning after
``most_updates``, so that what it can reveal is bounded before anything is walked.

Two worlds are told apart: the row, or all rows of the node, are used or not. What is clipped to norm C gets noise of
standard deviation z C (z is the noise multiplier). Everybody may see every model and know who made it: each release is
one Gaussian mechanism of sensitivity C, and these compose to one, whose epsilon is known exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.options import Specification, option
from veilwalk.core.rooms import import_extra
from veilwalk.core.spec import Spec
from veilwalk.learning._contract import (
    Learner,
    Params,
    StepContext,
    UpdateMod,
    UpdateResult,
    move_params,
    params_norm,
    shrink_change,
    subtract_params,
)

#: What can be protected, and what then cannot be told beyond epsilon.
UNITS = {
    "record": "whether one row of one node was there at all",
    "node": "whether one node's data, all of them, were used at all",
}
#: What noise alone moves each number of a model by until the end of a run, as a standard deviation, where step and clip
#: are left open. Tuned on public data, by ``tools.pages.noise --tune``; that of scattering on rows held back from
#: the training part of MNIST.
NOISE_BUDGET = {"record": 0.3, "node": 0.12, "record of scattering": 0.5}
#: Norm of a row's gradient to clip to, and of a node's whole gradient: public data again.
USUAL_GRADIENT = {"record": 1.0, "node": 0.2}
# The least number of updates after which a node only hands models on.
_LEAST_MOST = 10
DECAY_USAGE = "linear, fade:UPDATES or none"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSize:
    """How large a run is: numbers that everybody knows, and that noise is found by.

    Attributes:
        updates: Of all models together.
        nodes: Members that share them.
        rows: Of all members together.
        models: That walk side by side.
        decay: How updates count in an older model: ``linear``, ``fade:UPDATES`` or ``none``.
        is_scattered: Whether rows are the scattering of images.
    """

    updates: int
    nodes: int
    rows: int
    models: int = 1
    decay: str = "linear"
    is_scattered: bool = False

    @property
    def share(self) -> int:
        """Updates of a node, where all make the same number."""
        return -(-self.updates // self.nodes)

    @property
    def most_usual(self) -> int:
        """Updates after which a node only hands models on, unless a run says otherwise: three even shares, or ten."""
        return max(_LEAST_MOST, 3 * self.share)

    @property
    def rows_each(self) -> int:
        """Rows of a node, where all have the same number."""
        return max(-(-self.rows // self.nodes), 1)

    @property
    def age(self) -> int:
        """Updates of a model at the end."""
        return -(-self.updates // self.models)

    def decay_figures(self) -> dict[str, Any]:
        """Return ``decay`` and ``fade`` of the :class:`Protection`."""
        spec = Spec.parse(self.decay, parameter="decay")
        if spec.name == "fade" and spec.argument and not spec.options:
            return {"fade": spec.convert(spec.argument, float, DECAY_USAGE)}
        if spec.text not in {"linear", "none"}:
            raise spec.refuse(DECAY_USAGE)
        return {"decay": self.age} if spec.name == "linear" else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What every update of a run goes through, in the simulator and at a node.

    Where single rows are protected, every step of the learner clips the gradients of its rows. The sum of a batch is
    divided by the same public number at every node, not by how many rows it happened to have: one row more or less
    moves the result by at most the clip norm, divided so, and a node with few rows adds no more noise than others.

    Attributes:
        clip: Largest norm of a row's gradient where ``rows`` is given, else of an update; 0 does not clip.
        noise: Standard deviation of the noise, in units of ``clip``; 0 adds none.
        rows: By what sums over rows are divided where one row is protected: about the rows of a node, a number that
            everybody knows. 0 where a whole node is protected.
        most_updates: A node that has made so many hands models on as they are; 0: no such limit.
        decay: An update counts linearly less the older the model is, and nothing after so many; 0: always the same.
        fade: Where that end is not known: it counts half after so many updates of the model, after twice as many a
            third, and so on; 0: always the same.
        epsilon: For which the noise was found; 0 where it was given.
    """

    clip: float = 0.0
    noise: float = 0.0
    rows: int = 0
    most_updates: int = 0
    decay: int = 0
    fade: float = 0.0
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        validate.at_least(0, noise=self.noise, clip=self.clip, fade=self.fade)
        validate.finite(noise=self.noise, clip=self.clip, fade=self.fade)
        if self.noise and not self.clip:
            raise InvalidParameterError("noise", self.noise, "given with clip: noise hides only what is bounded")
        validate.integer(0, rows=self.rows, most_updates=self.most_updates, decay=self.decay)
        if self.rows and not self.clip:
            raise InvalidParameterError("clip", self.clip, "more than 0 where rows are protected")

    @classmethod
    def list_figures(cls) -> tuple[str, ...]:
        """Return the names of the numbers that every node follows; a run's figures have them too."""
        return tuple(item.name for item in fields(cls) if item.name != "epsilon")

    @property
    def unit(self) -> str:
        """What is protected: one record, or one node with all it has."""
        return "record" if self.rows else "node"

    def learner(self, learner: Learner) -> Learner:
        """Return ``learner``, or, where rows are protected, one that clips and noises row by row."""
        return _require_row_learner(learner).protect_rows(self) if self.rows else learner

    def shrinks(self, norms: FloatArray) -> FloatArray:
        """Return what clipping multiplies gradients of these norms with: 0 where a norm is not finite."""
        finite = np.isfinite(norms)
        return np.asarray(np.where(finite, self.clip / np.maximum(np.where(finite, norms, 0.0), self.clip), 0.0))

    def divisor(self, batch_size: int) -> int:
        """Return by what the sum over a batch is divided; 0 stands for a batch of all rows."""
        return min(self.rows, batch_size) if batch_size else self.rows

    def deviation(self, batch_size: int) -> float:
        """Return the standard deviation of the noise on each number of the divided sum."""
        return self.noise * self.clip / self.divisor(batch_size)

    def mod(self) -> UpdateMod | None:
        """Return what an update goes through after the learner; None where that is nothing."""
        return self if self.decay or self.fade or (self.clip and not self.rows) else None

    def share(self, age: int) -> float:
        """Return how much of an update counts in a model that has had ``age`` updates; after noise it is for free."""
        if self.decay:
            return max(1.0 - age / self.decay, 0.0)
        return self.fade / (self.fade + age) if self.fade else 1.0

    def __call__(self, before: Params, result: UpdateResult, ctx: StepContext) -> UpdateResult:
        """Return ``result`` clipped and noised, then moved towards ``before`` by the decay, in double precision."""
        after = result.params
        if self.clip and not self.rows:
            after = self._bound(before, after, ctx)
        share = self.share(ctx.age)
        if share < 1.0:
            after = shrink_change(before, after, share)
        return result if after is result.params else replace(result, params=after)

    def _bound(self, before: Params, after: Params, ctx: StepContext) -> Params:
        """Return ``after`` no further from ``before``, all arrays together, than the clip norm; with noise, if any.

        With noise nothing is refused, which would tell of the data: a difference that is not finite counts as none.
        Noise is on every number, rounded once. Arrays of whole numbers, which it cannot cover, stay as received.
        """
        changes = subtract_params(after, before, reals_only=True)
        norm, deviation = params_norm(changes), self.noise * self.clip
        if not self.noise and norm <= self.clip:
            return after
        if self.noise and not math.isfinite(norm):
            changes, norm = {name: np.zeros(change.shape) for name, change in changes.items()}, 0.0
        factor = self.clip / max(norm, self.clip)
        clipped = {name: factor * change for name, change in changes.items()}
        if not self.noise:
            return move_params(before, after, clipped)
        noisy = {name: change + deviation * ctx.normal(change.shape) for name, change in clipped.items()}
        return move_params(before, before, noisy)

    def releases(self, learner: Learner) -> int:
        """Return how many noisy results one update is made of: the steps of the learner, or the update itself."""
        return _require_row_learner(learner).local_steps if self.rows else 1


@dataclass(frozen=True, kw_only=True)
class ProtectionRequest(Specification):
    """What noise has to protect: noise by its size, or by the epsilon that it has to reach."""

    protect: str = option(
        "node", "What noise protects: one row of a node, or all its rows together.", choices=("record", "node")
    )
    epsilon: float = option(
        0.0, "Find the noise for this epsilon, against everybody, sender known; 0: none.", "EPSILON"
    )
    delta: float = option(1e-5, "The delta of the guarantee (epsilon, delta).", "DELTA", rare=True)
    noise: float = option(0.0, "Or Gaussian noise, in units of --clip.", "MULTIPLIER", rare=True)
    clip: float = option(
        0.0, "Largest norm of an update, or of a row's gradient; 0: none, or one for --epsilon.", "NORM", rare=True
    )
    most_updates: int = option(
        0,
        "A node that has made so many hands models on as they are; 0: three even shares, or one with --epsilon.",
        "COUNT",
        rare=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.at_least(0, epsilon=self.epsilon)
        validate.finite(epsilon=self.epsilon)
        validate.probability(delta=self.delta)
        if self.epsilon and self.noise:
            raise InvalidParameterError("epsilon", self.epsilon, "given without noise: it finds the noise itself")
        if self.protect == "record" and not (self.epsilon or self.noise):
            raise InvalidParameterError("protect", self.protect, "given with epsilon or noise: nothing else protects")
        # The rest is refused as it would be once settled.
        Protection(clip=self.clip, noise=self.noise, most_updates=self.most_updates)

    def settle(self, learner: Learner, size: RunSize) -> Protection:
        """Return the protection of a run of that size with that learner."""
        record = self.protect == "record"
        rows = size.rows_each if record else 0
        clip, noise, limit, counting = self.clip, self.noise, self.most_updates or size.most_usual, size.decay_figures()
        if self.epsilon:
            noise = self.settle_noise(size, releases=_require_row_learner(learner).local_steps if record else 1)
            usual = USUAL_GRADIENT["record"] if record else self._deviation(size) / noise
            clip, limit, counting = clip or float(f"{usual:.4g}"), self.most_updates or size.share, {"decay": size.age}
        return Protection(clip=clip, noise=noise, rows=rows, most_updates=limit, epsilon=self.epsilon, **counting)

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
        updates = (self.most_updates or size.share) * releases
        least = noise_for(self.epsilon, self.delta, updates=updates)
        digit = 10.0 ** (math.floor(math.log10(least)) - 3)
        return float(f"{math.ceil(least / digit) * digit:.4g}")

    def _deviation(self, size: RunSize) -> float:
        """Return how much noise each number of an update gets, so that all of them, decaying, keep to the budget."""
        budget = NOISE_BUDGET[
            "record of scattering" if size.is_scattered and self.protect == "record" else self.protect
        ]
        return budget / math.sqrt(size.age / 3)


def _require_row_learner(learner: Learner) -> Any:
    """Return ``learner``, or refuse one that cannot clip row by row."""
    if not callable(getattr(learner, "protect_rows", None)):
        need = "node: this learner cannot clip row by row (softmax, linear, mlp and TorchLearner can)"
        raise InvalidParameterError("protect", "record", need)
    return learner


def epsilon_of(noise: float, delta: float, *, updates: int) -> float:
    """Return epsilon at ``delta`` of so many updates with noise of ``noise`` clip norms each, sender known.

    Count every update that a node may make; one with several noisy steps counts as so many.
    """
    validate.more_than(0, noise=noise)
    validate.finite(noise=noise)
    validate.probability(delta=delta)
    validate.integer(0, updates=updates)
    if not updates:
        return 0.0
    return float(import_extra("dp_accounting", "dp").get_epsilon_gaussian(1 / math.sqrt(updates / noise**2), delta))


def describe_privacy(noise: float, delta: float, *, updates: int, unit: str = "node") -> str:
    """Say in plain words what epsilon is and against whom it holds; ``unit`` is what is protected."""
    epsilon = epsilon_of(noise, delta, updates=updates)
    counted = f"  {updates} updates with noise multiplier {noise:g}, sender known.\n" if updates else ""
    return (
        f"epsilon <= {epsilon:.3g} at delta = {delta:g}: {UNITS[unit]}.\n{counted}"
        "Holds against everybody together, sender known: whatever they see of models and routes."
    )


def noise_for(epsilon: float, delta: float, *, updates: int) -> float:
    """Return the least noise multiplier that keeps ``updates`` updates, sender known, within (epsilon, delta)."""
    validate.more_than(0, epsilon=epsilon)
    validate.probability(delta=delta)
    validate.integer(1, updates=updates)
    return float(import_extra("dp_accounting", "dp").get_sigma_gaussian(epsilon, delta)) * math.sqrt(updates)
