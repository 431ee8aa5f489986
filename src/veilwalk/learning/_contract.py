"""The interface of learners, and the algebra of models: arrays in, arrays out, and nothing else travels.

A token carries parameters only. What a node keeps for itself (optimiser momentum, counters) lives in
``StepContext.state`` and stays there: in the token it would be a fingerprint of its maker.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from veilwalk.core.arrays import FloatArray
from veilwalk.core.randomness import task_generator

if TYPE_CHECKING:
    # Types only: a node starts without SciPy.
    from scipy import sparse

_LEARN_TASK, _INIT_TASK = 0x6C656172, 0x696E6974
# Numbers that are moved at once: in double precision they stay in the caches.
_SLAB = 1 << 14

#: private-walk: sealed for distant nodes, of whom the first to be met opens. paper-walk: the same, sealed for one as in
#: the paper, many hops an update. plain-walk: handed to a neighbour, who updates it.
#: gossip: D-PSGD, everybody updates and averages with its neighbours in rounds; gossip-matching: in random pairs of
#: neighbours; gossip-push: everybody sends its model to one neighbour. fedavg: by a server, a tenth of the nodes a
#: round. central: all data in one place.
ALGORITHMS = (
    *("private-walk", "paper-walk", "plain-walk", "gossip", "gossip-matching", "gossip-push", "fedavg", "central"),
)
#: Those that make updates in rounds, and average models after each.
ROUND_ALGORITHMS = ("gossip", "gossip-matching", "gossip-push", "fedavg")
#: Name of the mean among the models that may be handed out.
MEAN = "mean"
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

    def take(self, rows: Any) -> Partition:
        """Return some rows: a slice, a mask or numbers."""
        return Partition(self.features[rows], self.labels[rows])


#: Draws independent standard normal numbers in an array of some shape.
DrawNormal = Callable[[tuple[int, ...]], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What a node hands its learner with the model, besides its data.

    ``step`` counts the updates this node has made before, which it knows without being told anything about others.
    ``rng`` is the stream of that node and step, so that a simulated run and a real one give the same bits.
    ``age`` counts the updates that the model has had before, by anybody; its sealed header says so.
    ``secret`` draws the noise that protects; None: from ``rng``, right for a simulation alone.
    """

    rng: np.random.Generator
    step: int
    age: int = 0
    state: MutableMapping[str, Array] = field(default_factory=dict)
    secret: DrawNormal | None = None

    def normal(self, shape: tuple[int, ...]) -> Array:
        """Return independent standard normal numbers to protect with, in double precision."""
        return (self.rng.standard_normal if self.secret is None else self.secret)(shape)


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


#: Middleware between a learner and the token: takes the model received and the result, and returns the result changed.
UpdateMod = Callable[[Params, UpdateResult, StepContext], UpdateResult]


def update_generator(seed: int, node: int, step: int) -> np.random.Generator:
    """Return the stream of the update that is the ``step``-th of ``node``, counted from 0."""
    return task_generator(seed, _LEARN_TASK, node, step)


def init_generator(seed: int) -> np.random.Generator:
    """Return the stream the first parameters are drawn from."""
    return task_generator(seed, _INIT_TASK)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Hold torch, where it is loaded, to so many threads; 0 leaves it alone. One gives the same bits on any machine."""
    torch = sys.modules.get("torch") if count else None
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def has_reals(array: Array) -> bool:
    """Return whether an array holds real numbers, which alone are clipped, noised and spoilt."""
    return bool(array.dtype.kind == "f")


def subtract_params(after: Params, before: Params, *, reals_only: bool = False) -> dict[str, FloatArray]:
    """Return how far each array moved, in double precision; of arrays of real numbers alone, where asked."""
    return {
        name: np.subtract(after[name], value, dtype=np.float64)
        for name, value in before.items()
        if not reals_only or has_reals(value)
    }


def params_norm(params: Params) -> float:
    """Return the Euclidean norm of all arrays together."""
    return math.sqrt(sum(float(np.vdot(array, array)) for array in params.values()))


def shrink_change(before: Params, after: Params, share: float) -> dict[str, Array]:
    """Return ``before`` moved by a share of the way to ``after``; arrays of whole numbers are those of ``after``."""
    return {
        name: _move_towards(value, after[name], share) if has_reals(value) else after[name]
        for name, value in before.items()
    }


def _move_towards(before: Array, after: Array, share: float) -> Array:
    """Return an array moved by a share of the way to another, in double precision, some numbers after the other."""
    moved = np.empty(before.shape, dtype=before.dtype)
    ends, flat = (before.reshape(-1), after.reshape(-1)), moved.reshape(-1)
    for start in range(0, flat.size, _SLAB):
        old, new = (end[start : start + _SLAB] for end in ends)
        flat[start : start + _SLAB] = old + share * np.subtract(new, old, dtype=np.float64)
    return moved


def move_params(before: Params, after: Params, changes: Params) -> dict[str, Array]:
    """Return ``before`` moved by ``changes``, in its own types; arrays without a change are those of ``after``."""
    return {
        name: (value + changes[name]).astype(value.dtype) if name in changes else after[name]
        for name, value in before.items()
    }


def is_finite(params: Params) -> bool:
    """Return whether no number of a model is infinite or NaN."""
    for array in params.values():
        # A finite sum of squares is quick proof; one that overflowed is none.
        if has_reals(array) and not math.isfinite(np.vdot(array, array)) and not np.isfinite(array).all():
            return False
    return True


def average_params(models: Sequence[Params]) -> Params:
    """Return the mean of several models, in their own types, whole numbers rounded; a single one as it is."""
    if len(models) == 1:
        return models[0]
    means: dict[str, Array] = {}
    for name, array in models[0].items():
        mean = np.asarray(np.mean([model[name] for model in models], axis=0, dtype=np.float64))
        means[name] = (np.rint(mean) if array.dtype.kind in "iu" else mean).astype(array.dtype)
    return means


def stack_models(models: Sequence[Params], start: str = "") -> dict[str, Array]:
    """Return several models as one array for each name, a model a row; names begin with ``start``."""
    # One large model is not copied to stand alone in a row.
    return {
        f"{start}{name}": np.stack([model[name] for model in models]) if len(models) > 1 else models[0][name][None]
        for name in (models[0] if models else {})
    }


def split_models(arrays: Mapping[str, Array], start: str = "") -> list[Params]:
    """Return the models that :func:`stack_models` put together under names that begin with ``start``."""
    rows = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
    count = len(next(iter(rows.values()), ()))
    return [{name: array[number].copy() for name, array in rows.items()} for number in range(count)]


def mix_params(models: list[Params], mixing: sparse.csr_array) -> list[Params]:
    """Return every model averaged with its neighbours': one round of gossip."""
    stacked = stack_models(models)
    for name, rows in stacked.items():
        stacked[name] = np.asarray(mixing @ rows.reshape(len(models), -1)).reshape(rows.shape).astype(rows.dtype)
    return split_models(stacked)


def candidate_models(models: Sequence[Params]) -> dict[str, Params]:
    """Return what a run of several walks may hand out, by name: the mean, and the end of each walk."""
    ends = {f"walk {number}": model for number, model in enumerate(models, start=1)} if len(models) > 1 else {}
    return {MEAN: average_params(models), **ends}


def least_loss(scores: Mapping[str, Mapping[str, float]]) -> str:
    """Return which of some scored models has the least loss, the first of equals; a loss that is no number is worst.

    The mean of networks that were trained apart may be far worse than each of them.
    """
    return min(scores, key=lambda name: (not math.isfinite(scores[name]["loss"]), scores[name]["loss"]))


def choose_model(
    models: Sequence[Params], evaluate: Callable[[Params], Mapping[str, float]] | None
) -> tuple[str, Params]:
    """Return the model that several walks hand out, after its name: of them and their mean the one with least loss.

    ``evaluate`` scores a model on public rows. Where it is None the first end is handed out: nobody knows whether the
    mean is any good.
    """
    if evaluate is None or len(models) == 1:
        return MEAN if len(models) == 1 else "walk 1", models[0]
    candidates = candidate_models(models)
    chosen = least_loss({name: evaluate(params) for name, params in candidates.items()})
    return chosen, candidates[chosen]
