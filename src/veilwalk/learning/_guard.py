"""Other people's learners, called so that what goes wrong in them is shown as theirs.

What they are given cannot be written to, and what they return is looked at before anything is done with it.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import LearnerError, VeilwalkError
from veilwalk.learning._api import Array, Learner, Params, Partition, StepContext, UpdateResult
from veilwalk.learning._descent import DescentLearner

_LONGEST = 200


def guarded(learner: Learner, *, name: str | None = None, home: str | None = None) -> Learner:
    """Return ``learner`` with its mistakes turned into :class:`LearnerError`; the package's own, in NumPy, as it is.

    Args:
        learner: Any learner.
        name: What to call it; its class where nothing is said.
        home: File of its code, whose line is named.
    """
    if isinstance(learner, DescentLearner | _Guarded):
        return learner
    kind = _GuardedScorer if callable(getattr(learner, "example_losses", None)) else _Guarded
    return kind(learner, name or type(learner).__name__, home)


def theirs(name: str, where: str, home: str | None, call: Callable[[], Any]) -> Any:
    """Return what ``call``, code that is not ours, returns; name its error, file and line where it raises one."""
    try:
        return call()
    except VeilwalkError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST]}"
        if isinstance(error, ValueError) and "read-only" in str(error):
            what = f"changes what it was given, which is to be copied first: {what}"
        raise LearnerError(f"learner {name}, {where}: {what}{_line(error, home)}") from error


def _line(error: Exception, home: str | None) -> str:
    """Return file and line: the innermost in ``home``, or the innermost of all."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({Path(error.filename).name}, line {error.lineno})"
    # The first frame is our own call.
    frames = traceback.extract_tb(error.__traceback__)[2:]
    own = [frame for frame in frames if frame.filename == home] or frames
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


class _Guarded:
    def __init__(self, learner: Learner, name: str, home: str | None) -> None:
        self._learner, self._name = learner, name
        self._home = home or _file_of(learner)
        self._watched = False

    def __getattr__(self, name: str) -> Any:
        # What else a learner offers is its own affair; a copy or a pickle asks before there is one.
        if name == "_learner":
            raise AttributeError(name)
        return getattr(self._learner, name)

    def init_params(self, rng: np.random.Generator) -> Params:
        made = self._call("init_params", rng)
        if not _named_arrays(made, np.ndarray):
            self._refuse("init_params", made, "named arrays")
        return made  # type: ignore[no-any-return]

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        given, rows = _locked(params), Partition(_read_only(data.features), _read_only(data.labels))
        made = self._call("update", given, rows, ctx) if self._watched else self._first_update(given, rows, ctx)
        if not isinstance(made, UpdateResult):
            self._refuse("update", made, "an UpdateResult")
        # NumPy makes a scalar of a sum of arrays without axes.
        if not _named_arrays(made.params, np.ndarray | np.generic):
            self._refuse("update", made.params, "an UpdateResult whose params are named arrays")
        return made

    def _first_update(self, params: Params, data: Partition, ctx: StepContext) -> Any:
        """Update, and compare what was given bit by bit: other libraries write to memory that NumPy has locked."""
        given = {**params, "the features": data.features, "the labels": data.labels}
        before = {name: array.copy() for name, array in given.items()}
        made = self._call("update", params, data, ctx)
        for name, array in given.items():
            if array.tobytes() != before[name].tobytes():
                raise LearnerError(f"learner {self._name}, in update: changes {name}, which it was given: copy first")
        self._watched = True
        return made

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        rows = Partition(_read_only(data.features), _read_only(data.labels))
        scores = self._call("evaluate", _locked(params), rows)
        if not isinstance(scores, Mapping) or "loss" not in scores:
            self._refuse("evaluate", scores, "scores by name, with a loss")
        for name, score in scores.items():
            if not isinstance(score, float | int | np.number):
                self._refuse("evaluate", score, f"a number as {name}")
        return scores

    def _call(self, method: str, *values: Any) -> Any:
        return theirs(self._name, f"in {method}", self._home, lambda: getattr(self._learner, method)(*values))

    def _refuse(self, method: str, made: object, need: str) -> NoReturn:
        found = f"a mapping with {', '.join(map(str, made)) or 'nothing'}" if isinstance(made, Mapping) else repr(made)
        shown = found if len(found) <= _LONGEST else type(made).__name__
        raise LearnerError(f"learner {self._name}, in {method}: must return {need}, not {shown}")


class _GuardedScorer(_Guarded):
    """One that scores rows: only such a learner may look as if it did."""

    def example_losses(self, params: Params, data: Partition) -> FloatArray:
        rows = Partition(_read_only(data.features), _read_only(data.labels))
        losses = self._call("example_losses", _locked(params), rows)
        if not isinstance(losses, np.ndarray) or losses.shape != (len(data),):
            self._refuse("example_losses", losses, f"one number for each of {len(data)} rows")
        return losses


def _named_arrays(made: object, kind: Any) -> bool:
    if not isinstance(made, Mapping):
        return False
    return all(isinstance(name, str) and isinstance(array, kind) for name, array in made.items())


def _locked(params: Params) -> Params:
    return {name: _read_only(array) for name, array in params.items()}


def _read_only(array: Array) -> Array:
    view = np.asarray(array).view()
    view.setflags(write=False)
    return view


def _file_of(learner: object) -> str | None:
    return getattr(sys.modules.get(type(learner).__module__), "__file__", None)
