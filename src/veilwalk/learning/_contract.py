"""The contract of a learner, as a check that anybody can run on theirs."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping

import numpy as np

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.learning._api import Array, Learner, Params, Partition, StepContext, UpdateResult
from veilwalk.learning._guard import guarded


def check_learner(learner: Learner, data: Partition, *, seed: int = 0) -> None:
    """Run ``learner`` on ``data`` and refuse it, with the reason, where it breaks the contract of :class:`Learner`.

    It must be reproducible (the same arguments give the same bits), stateless (what it did before does not matter,
    what it keeps for a node is in ``ctx.state``, as arrays), leave its arguments alone, and return parameters with
    the names, order, shapes and types it started from, all finite, sharing no memory with its arguments or state.
    What it raises, and what it changes of what it was given, is a :class:`~veilwalk.core.errors.LearnerError`.

    Args:
        learner: The learner.
        data: At least two rows of the kind it is for.
        seed: Of the streams it is given.
    """
    if len(data) < 2:
        raise InvalidParameterError("data", f"{len(data)} rows", "at least two rows to try a learner on")
    contract = _Contract(learner, data, seed)
    for check in (contract.starts, contract.updates, contract.remembers_nothing, contract.evaluates):
        check()


class _Contract:
    def __init__(self, learner: Learner, data: Partition, seed: int) -> None:
        self._learner, self._seed, self._name = guarded(learner), seed, type(learner).__name__
        # Read-only: a learner that writes to its data fails at once, and on its own line.
        self._data = Partition(_read_only(data.features), _read_only(data.labels))
        half = len(data) // 2
        self._other = Partition(self._data.features[:half], self._data.labels[:half])

    def _need(self, holds: bool, need: str) -> None:  # noqa: FBT001 - reads as a sentence
        if not holds:
            raise InvalidParameterError("learner", self._name, need)

    def _start(self) -> Params:
        params = self._learner.init_params(task_generator(self._seed, 0))
        return {name: _read_only(array) for name, array in params.items()}

    def _update(
        self, params: Params, state: MutableMapping[str, Array], *, data: Partition | None = None, step: int = 0
    ) -> UpdateResult:
        ctx = StepContext(rng=task_generator(self._seed, 1, step), step=step, state=state)
        return self._learner.update(params, data or self._data, ctx)

    def starts(self) -> None:
        """Named arrays of numbers, the same for the same stream."""
        params = self._learner.init_params(task_generator(self._seed, 0))
        self._need(len(params) > 0, "one whose init_params returns named arrays")
        for name, array in params.items():
            self._need(array.dtype.kind in "biuf", f"one whose parameter {name!r} is an array of numbers")
            self._need(bool(np.isfinite(array).all()), f"one whose first parameter {name!r} is finite")
        self._same(params, self._start(), "init_params with the same stream")

    def updates(self) -> None:
        """Same layout, finite, arguments untouched, the same bits twice."""
        params = self._start()
        state: dict[str, Array] = {}
        made = self._update(params, state)
        self._need(list(made.params) == list(params), "one whose update keeps the names and order of the parameters")
        for name, array in made.params.items():
            kept = (array.shape, array.dtype) == (params[name].shape, params[name].dtype)
            self._need(kept, f"one whose update keeps the shape and type of {name!r}")
            self._need(bool(np.isfinite(array).all()), f"one whose update leaves {name!r} finite")
            self._shares_nothing(name, array, [*params.values(), self._data.features, *state.values()])
        self._need(all(isinstance(kept, np.ndarray) for kept in state.values()), "one that keeps only arrays in state")
        self._need(made.num_examples >= 1, "one whose num_examples counts at least one example")
        self._need(all(isinstance(m, float) for m in made.metrics.values()), "one whose metrics are floats")
        self._same(made.params, self._update(params, {}).params, "update with the same arguments")

    def remembers_nothing(self) -> None:
        """An update in between, for another node, changes nothing; what matters is in ``ctx.state``."""
        params = self._start()

        def second_of_two(between: Callable[[], object]) -> Params:
            state: dict[str, Array] = {}
            first = self._update(params, state)
            kept = {name: array.copy() for name, array in state.items()}
            between()
            return self._update(first.params, kept, step=1).params

        alone = second_of_two(lambda: None)
        disturbed = second_of_two(lambda: self._update(params, {}, data=self._other, step=7))
        self._same(alone, disturbed, "update with another node's update in between")

    def evaluates(self) -> None:
        """A finite loss, an accuracy between 0 and 1, the same twice."""
        params = self._start()
        scores = self._learner.evaluate(params, self._data)
        self._need(bool(np.isfinite(scores["loss"])), "one whose evaluate gives a finite loss")
        self._need(0 <= scores.get("accuracy", 0) <= 1, "one whose accuracy is between 0 and 1")
        self._need(dict(scores) == dict(self._learner.evaluate(params, self._data)), "one that evaluates alike twice")

    def _same(self, one: Params, two: Params, what: str) -> None:
        self._need(list(one) == list(two), f"one whose {what} gives the same names")
        for name in one:
            self._need(np.array_equal(one[name], two[name]), f"one whose {what} gives the same {name!r}")

    def _shares_nothing(self, name: str, array: Array, others: list[Array]) -> None:
        apart = not any(np.shares_memory(array, other) for other in others)
        self._need(apart, f"one whose new {name!r} shares no memory with its arguments or state")


def _read_only(array: Array) -> Array:
    copied = np.array(array)
    copied.setflags(write=False)
    return copied
