"""Learners: linear models and a network with one hidden layer, in NumPy; users' own, made, guarded and checked.

A specification names a built-in learner, or ``module:Class``. What a user's own learner is given cannot be written to,
what it returns is checked before anything is done with it, and its errors are named as its own.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt

from veilwalk.core import validate
from veilwalk.core.arrays import BoolArray, FloatArray
from veilwalk.core.errors import InvalidParameterError, LearnerError, VeilwalkError
from veilwalk.core.randomness import task_generator
from veilwalk.core.spec import Spec
from veilwalk.learning._contract import Array, Learner, Params, Partition, StepContext, UpdateResult, torch_threads
from veilwalk.learning._features import check_width
from veilwalk.learning._mechanism import Protection

Float32Array = npt.NDArray[np.float32]
# Rows of logits held at once in an evaluation; more would only leave the caches.
_BLOCK_ROWS = 8192
# Classes are uneven where the commonest has so many times the rows of the mean class, or that share of all.
_UNEVEN, _UNEVEN_SHARE = 1.5, 2 / 3
#: Names of weight and bias, slope of the mean loss times the step size (unit by row), inputs (row by number).
Layer = tuple[str, str, Array, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescentLearner:
    """A linear model or a network, float32, trained by minibatch descent.

    Its outputs are logits under a softmax, or one number under a squared error. A network has one hidden layer of
    rectified units, whose weights are drawn evenly with variance 2 / inputs (He); all other numbers start at zero.

    Attributes:
        n_features: Numbers in a row of data.
        n_classes: Labels run from 0 to one less; 0 where they are real numbers to be fitted.
        learning_rate: Step size.
        batch_size: Rows of one step, drawn without repetition; a node with fewer uses all it has. 0: always all.
        local_steps: Steps of one visit.
        momentum: Share of the last step kept; the velocity stays at the node.
        rows: How single rows are protected in every step; None: not.
    """

    n_features: int
    n_classes: int
    learning_rate: float = 0.1
    batch_size: int = 32
    local_steps: int = 1
    momentum: float = 0.0
    rows: Protection | None = None

    def __post_init__(self) -> None:
        validate.integer(1, n_features=self.n_features, local_steps=self.local_steps)
        validate.integer(0, n_classes=self.n_classes, batch_size=self.batch_size)
        validate.more_than(0, learning_rate=self.learning_rate)
        validate.finite(learning_rate=self.learning_rate)
        if not 0.0 <= self.momentum < 1.0:
            raise InvalidParameterError("momentum", self.momentum, "in [0, 1)")

    @property
    def _hidden(self) -> int:
        """Units of the hidden layer; 0 for a linear model."""
        return int(getattr(self, "hidden", 0))

    def init_params(self, rng: np.random.Generator) -> Params:
        """Return the parameters training starts from."""
        params: dict[str, Array] = {}
        if self._hidden:
            shape, half_width = (self._hidden, self.n_features), (6 / self.n_features) ** 0.5
            params["hidden_weight"] = (2 * rng.random(shape, dtype=np.float32) - 1) * np.float32(half_width)
            params["hidden_bias"] = np.zeros(self._hidden, dtype=np.float32)
        # One number for each class, or the one that is fitted.
        n_outputs = self.n_classes or 1
        params["weight"] = np.zeros((n_outputs, self._hidden or self.n_features), dtype=np.float32)
        params["bias"] = np.zeros(n_outputs, dtype=np.float32)
        return params

    def _inputs(self, params: Params, features: Array) -> Float32Array:
        """Return what the last layer is given, unit by example."""
        if not self._hidden:
            return features.T
        units = _apply_layer(params["hidden_weight"], params["hidden_bias"], features.T)
        return np.maximum(units, 0, out=units)

    def _outputs(self, params: Params, features: Array) -> Float32Array:
        """Return the outputs, class by example, in a fresh array."""
        return _apply_layer(params["weight"], params["bias"], self._inputs(params, features))

    def _layers(self, params: Params, features: Array, labels: Array) -> tuple[Layer, ...]:
        """Return the layers in the order of their parameters."""
        inputs = self._inputs(params, features)
        slope = self._slope(_apply_layer(params["weight"], params["bias"], inputs), labels)
        last = ("weight", "bias", slope, inputs.T)
        if not self._hidden:
            return (last,)
        back = params["weight"].T @ slope
        # A unit at rest passes nothing back.
        back *= inputs > 0
        return ("hidden_weight", "hidden_bias", back, features), last

    def _slope(self, outputs: Float32Array, labels: Array) -> Float32Array:
        """Turn outputs (class by example) in place into the slope of the mean loss times the step size."""
        n_rows = len(labels)
        if not self.n_classes:
            outputs -= labels
            outputs *= 2 * self.learning_rate / n_rows
            return outputs
        outputs -= np.maximum.reduce(outputs, axis=0)
        np.exp(outputs, out=outputs)
        total = np.add.reduce(outputs, axis=0)
        # One division brings each column to the scale wanted.
        total *= n_rows / self.learning_rate
        outputs /= total
        # Logits are contiguous: one number finds an entry.
        truth = np.multiply(labels, n_rows, dtype=np.int64)
        truth += np.arange(n_rows)
        outputs.ravel()[truth] -= self.learning_rate / n_rows
        return outputs

    def _step(self, params: Params, features: Array, labels: Array, ctx: StepContext) -> dict[str, Array]:
        """Return the gradient of the mean loss times the step size, in fresh arrays; as protected, where it is."""
        step: dict[str, Array] = {}
        layers = self.bounded_layers(params, features, labels)
        for weight, bias, slope, inputs in layers:
            step[weight], step[bias] = slope @ inputs, np.add.reduce(slope, axis=1)
        if self.rows is None:
            return step
        deviation = self.learning_rate * self.rows.deviation(self.batch_size)
        # Rounded once, after the noise.
        return {
            name: np.asarray(step.get(name, 0.0) + deviation * ctx.normal(value.shape), dtype=np.float32)
            for name, value in params.items()
        }

    def predict(self, params: Params, features: Array) -> FloatArray:
        """Return the probability of each class in every row (row by class), or the number fitted to it."""
        check_width(features, self.n_features)
        outputs = self._outputs(params, features).astype(np.float64)
        if not self.n_classes:
            return np.asarray(outputs[0])
        chances = np.exp(outputs - outputs.max(axis=0))
        return np.asarray((chances / chances.sum(axis=0)).T)

    def bounded_layers(self, params: Params, features: Array, labels: Array) -> tuple[Layer, ...]:
        """Return the layers, the slope of every row shrunk to the clip norm and to its share of the public number.

        The gradient of a row at a layer is an outer product: its norm is the product of two norms, and no gradient of
        a row is ever written out. All this is in double precision, and a row whose gradient is not finite counts as
        none: whatever model came, one row changes the sum by no more than its share.
        """
        n_rows, protection = len(labels), self.rows
        if not n_rows:
            return ()
        layers = self._layers(params, features, labels)
        if protection is None:
            return layers
        exact = [(w, b, slope.astype(np.float64), inputs.astype(np.float64)) for w, b, slope, inputs in layers]
        squares = sum(
            np.square(slope).sum(axis=0) * (1.0 + np.einsum("ij,ij->i", inputs, inputs))
            for _, _, slope, inputs in exact
        )
        norms = np.sqrt(squares) * (n_rows / self.learning_rate)
        shares = protection.shrinks(norms) * (n_rows / protection.divisor(self.batch_size))
        # Nothing times what is not finite is not nothing.
        usable = np.isfinite(norms)
        return tuple(
            (weight, bias, np.where(usable, slope, 0.0) * shares, np.where(usable[:, np.newaxis], inputs, 0.0))
            for weight, bias, slope, inputs in exact
        )

    def protect_rows(self, protection: Protection) -> Self:
        """Return the same learner, each step of which clips row by row and adds noise."""
        return replace(self, rows=protection)

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Return ``params`` after ``local_steps`` minibatch steps on ``data``; a node without data changes nothing.

        Where rows are protected it adds its noise all the same: nobody shall see that it has none. A model that has
        diverged shows in its numbers; whether NumPy should warn as well is for the caller to say.
        """
        check_width(data.features, self.n_features)
        if not len(data) and not (self.rows and self.rows.noise):
            return UpdateResult(params=params, num_examples=0)
        count = 0
        for _ in range(self.local_steps):
            features, labels = draw_batch(data, self.batch_size, ctx.rng)
            step = self._step(params, features, labels, ctx)
            for name in step if self.momentum else ():
                last = ctx.state.get(f"velocity/{name}")
                step[name] += 0 if last is None else np.float32(self.momentum) * last
                ctx.state[f"velocity/{name}"] = step[name]
            params = {name: value - step[name] for name, value in params.items()}
            count += len(labels)
        return UpdateResult(params=params, num_examples=count)

    def example_losses(self, params: Params, data: Partition) -> FloatArray:
        """Return the loss of every row: nats, or the squared error."""
        return self._score(params, data)[0]

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return the mean ``loss`` on ``data`` and the ``accuracy``, or ``r2`` where labels are real numbers."""
        losses, hits = self._score(params, data)
        return fit_scores(losses, losses, data.labels) if hits is None else class_scores(losses, hits, data.labels)

    def _score(self, params: Params, data: Partition) -> tuple[FloatArray, BoolArray | None]:
        """Return the loss of every row, and where there are classes whether its label has the highest logit."""
        check_width(data.features, self.n_features)
        losses, hits = np.empty(len(data)), np.empty(len(data), dtype=np.bool_)
        with np.errstate(all="ignore"):
            for start in range(0, len(data), _BLOCK_ROWS):
                block = slice(start, start + _BLOCK_ROWS)
                outputs, labels = self._outputs(params, data.features[block]), data.labels[block]
                if not self.n_classes:
                    losses[block] = outputs[0]
                    losses[block] -= labels
                    continue
                hits[block] = outputs.argmax(axis=0) == labels
                outputs -= np.maximum.reduce(outputs, axis=0)
                of_truth = outputs[labels, np.arange(len(labels))]
                np.exp(outputs, out=outputs)
                losses[block] = np.log(np.add.reduce(outputs, axis=0)) - of_truth
            return (losses, hits) if self.n_classes else (losses * losses, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxLearner(DescentLearner):
    """Multinomial logistic regression. The problem is convex."""

    def __post_init__(self) -> None:
        DescentLearner.__post_init__(self)
        if not self.n_classes:
            raise InvalidParameterError("learner", "softmax", "linear or mlp where labels are real numbers")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearLearner(DescentLearner):
    """Least squares; slopes are not bounded as a softmax's are: steps are smaller."""

    n_classes: int = 0
    learning_rate: float = 0.02

    def __post_init__(self) -> None:
        DescentLearner.__post_init__(self)
        if self.n_classes:
            raise InvalidParameterError("learner", "linear", "softmax or mlp where labels are classes")


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpLearner(DescentLearner):
    """A network with one hidden layer of ``hidden`` units."""

    hidden: int = 64

    def __post_init__(self) -> None:
        DescentLearner.__post_init__(self)
        validate.integer(1, hidden=self.hidden)


def _apply_layer(weight: Array, bias: Array, inputs: Array) -> Float32Array:
    outputs: Float32Array = weight @ inputs
    outputs += bias[:, np.newaxis]
    return outputs


def draw_batch(data: Partition, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return ``size`` different rows drawn evenly; all rows, in order, where there are no more, or ``size`` is 0."""
    features, labels = data.features, data.labels
    if not 0 < size < len(labels):
        return features, labels
    rows = rng.choice(len(labels), size, replace=False, shuffle=False)
    return features.take(rows, axis=0), labels.take(rows)


def fit_scores(losses: FloatArray, squares: FloatArray, labels: Array) -> Mapping[str, float]:
    """Return mean ``loss`` and ``r2``, the share of the labels' variance that is explained, from squared errors."""
    loss, real = _average_losses(losses), np.asarray(labels, dtype=np.float64)
    spread, left = float(np.square(real - real.mean()).sum()), float(squares.sum())
    # Labels that are all the same have nothing to be explained.
    r2 = 1 - left / spread if spread > 0 else float(left == 0)
    return {"loss": loss, "r2": r2}


def class_scores(losses: FloatArray, hits: BoolArray, labels: Array, *, balanced: bool = False) -> Mapping[str, float]:
    """Return mean ``loss`` and ``accuracy``; where classes are uneven or ``balanced``, also the mean over classes."""
    scores = {"loss": _average_losses(losses), "accuracy": float(hits.mean())}
    _, number, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if balanced or (len(counts) > 1 and counts.max() > min(_UNEVEN * counts.mean(), _UNEVEN_SHARE * counts.sum())):
        scores["balanced_accuracy"] = float((np.bincount(number, weights=hits) / counts).mean())
    return scores


def _average_losses(losses: FloatArray) -> float:
    if not len(losses):
        raise InvalidParameterError("data", "no rows", "at least one row to evaluate on")
    return float(losses.mean())


#: Built-in learners. Every field but the sizes and ``rows`` may be given as ``name=value`` behind the name.
LEARNERS: Mapping[str, type[DescentLearner]] = MappingProxyType(
    {"softmax": SoftmaxLearner, "linear": LinearLearner, "mlp": MlpLearner}
)
#: Local steps of a built-in learner that does not say them, as measured: a network gains by more, others do not.
USUAL_LOCAL_STEPS = MappingProxyType({"softmax": 10, "linear": 10, "mlp": 50})
# Packages that a user's own learner may want, and the extra that brings each.
_EXTRAS = {"torch": "torch", "pyarrow": "parquet", "dp_accounting": "dp"}
_USAGE = f"{', '.join(LEARNERS)} or module:Class"
_LONGEST = 200


def make_learner(spec: str, *, n_features: int, n_classes: int) -> Learner:
    """Make the learner that ``spec`` names for data of this shape; ``n_classes`` is 0 where labels are real numbers.

    ``softmax``, ``mlp:hidden=128``, or ``module:Class``: any class or function that takes ``n_features`` and
    ``n_classes`` by keyword, with the options given, and returns a :class:`Learner`. Such a module is looked for
    where Python looks, and then in the folder the command runs in. Naming one runs its code, :func:`guarded`.
    """
    parsed = Spec.parse(spec, parameter="learner")
    options = {key: _convert_option(value) for key, value in parsed.options}
    arguments: dict[str, Any] = {"n_features": n_features, "n_classes": n_classes, **options}
    if parsed.name in LEARNERS and not parsed.arguments:
        parsed.require_options(list_options(parsed.name))
        for option, value in options.items():
            if isinstance(value, str):
                raise InvalidParameterError(option, value, "a number")
        return LEARNERS[parsed.name](**arguments)
    home, build = _import_attribute(parsed)
    name = f"{parsed.name}:{parsed.argument}"
    try:
        inspect.signature(build).bind(**arguments)
    except TypeError as error:
        raise parsed.refuse(f"one that takes {', '.join(arguments)} ({error})") from error
    learner = _call_user_code(name, "when made", home, lambda: build(**arguments))
    if not isinstance(learner, Learner):
        raise parsed.refuse("an object with init_params, update and evaluate")
    return guarded(learner, name=name, home=home)


def set_local_steps(learner: str | Learner, steps: int | None, *, is_usual: bool = True) -> str | Learner:
    """Return a learner, or its spec, that makes so many local steps an update.

    Without ``steps`` a built-in one whose spec does not say them makes the usual number, where ``is_usual``.

    Raises:
        InvalidParameterError: The spec says them too, or the learner has no such field.
    """
    parsed = Spec.parse(learner, parameter="learner") if isinstance(learner, str) else None
    is_said = parsed is not None and any(key == "local_steps" for key, _ in parsed.options)
    if parsed is not None and steps is None and is_usual and not is_said and parsed.name in LEARNERS:
        # What is wrong with the spec is said of the text that was given.
        parsed.require_options(list_options(parsed.name))
        steps = USUAL_LOCAL_STEPS.get(parsed.name)
    if steps is None:
        return learner
    if is_said or (parsed is None and not hasattr(learner, "local_steps")):
        raise InvalidParameterError("local_steps", steps, "left out: the learner says it itself, or has no local_steps")
    return f"{learner}:local_steps={steps}" if isinstance(learner, str) else replace(learner, local_steps=steps)  # type: ignore[type-var]


def list_options(name: str) -> list[str]:
    """Return the options of a built-in learner."""
    return [field.name for field in fields(LEARNERS[name]) if field.name not in {"n_features", "n_classes", "rows"}]


def is_own_learner(learner: str | Learner) -> bool:
    """Return whether a learner is the user's own: ``module:Class``, a torch module, or an object of another class."""
    if isinstance(learner, str):
        return Spec.parse(learner, parameter="learner").name not in LEARNERS
    return not isinstance(learner, DescentLearner)


def _convert_option(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _import_attribute(spec: Spec) -> tuple[str | None, Callable[..., Any]]:
    """Return the file of a module, and the class or function that a specification names in it."""
    module_name, attribute = spec.name, spec.argument
    if not all(part.isidentifier() for part in [*module_name.split("."), attribute]):
        raise spec.refuse(_USAGE)
    here = os.getcwd()  # noqa: PTH109 - sys.path holds text
    if here not in sys.path:
        # Last, so that nothing installed is hidden by a file that happens to lie here.
        sys.path.append(here)
    name = f"{module_name}:{attribute}"
    try:
        module = _call_user_code(name, "when imported", None, lambda: importlib.import_module(module_name))
        build = getattr(module, attribute)
    except LearnerError as error:
        if not isinstance(cause := error.__cause__, ImportError):
            raise
        extra = _EXTRAS.get((cause.name or "").partition(".")[0])
        advice = "" if extra is None else f": pip install 'veilwalk[{extra}]' brings it"
        raise spec.refuse(f"{_USAGE}; {module_name} cannot be imported ({cause}){advice}") from error
    except AttributeError as error:
        raise spec.refuse(f"{_USAGE}; {module_name} has no {attribute}") from error
    if not callable(build):
        raise spec.refuse(f"{_USAGE}; {attribute} is not a class or function")
    return module.__file__, build


def guarded(learner: Learner, *, name: str | None = None, home: str | None = None) -> Learner:
    """Return ``learner`` with its mistakes turned into :class:`LearnerError`; the package's own, in NumPy, as it is.

    Errors say its ``name``, or its class, and the line in ``home``, the file of its code.
    """
    if isinstance(learner, DescentLearner | _Guarded):
        return learner
    home = home or getattr(sys.modules.get(type(learner).__module__), "__file__", None)
    return _Guarded(learner, name or type(learner).__name__, home)


def _call_user_code(name: str, where: str, home: str | None, call: Callable[[], Any]) -> Any:
    """Return what ``call``, code that is not ours, returns; name its error, and the innermost line in ``home``."""
    try:
        return call()
    except VeilwalkError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST]}"
        if isinstance(error, ValueError) and "read-only" in str(error):
            what = f"changes what it was given, which is to be copied first: {what}"
        if isinstance(error, SyntaxError) and error.filename:
            places = [(error.filename, error.lineno)]
        else:
            # The first frames are our own calls.
            frames = traceback.extract_tb(error.__traceback__)[2:]
            places = [(frame.filename, frame.lineno) for frame in frames]
            places = [place for place in places if place[0] == home] or places
        line = f" ({Path(places[-1][0]).name}, line {places[-1][1]})" if places else ""
        raise LearnerError(f"learner {name}, {where}: {what}{line}") from error


class _Guarded:
    def __init__(self, learner: Learner, name: str, home: str | None) -> None:
        self._learner, self._name, self._home = learner, name, home
        self._is_checked = False

    def __getattr__(self, name: str) -> Any:
        # What else a learner offers is its own affair; a copy or a pickle asks before there is one.
        if name == "_learner":
            raise AttributeError(name)
        value = getattr(self._learner, name)
        return {"example_losses": self._score_rows, "protect_rows": self._protect_rows}.get(name, value)

    def init_params(self, rng: np.random.Generator) -> Params:
        params = self._call("init_params", rng)
        if not _is_named_arrays(params, np.ndarray):
            self._refuse("init_params", params, "named arrays")
        return params  # type: ignore[no-any-return]

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Update; the first time compare what was given: other libraries write to memory that NumPy has locked."""
        locked, rows = _lock(params), _lock_rows(data)
        arrays = {} if self._is_checked else {**locked, "the features": rows.features, "the labels": rows.labels}
        before = {name: array.tobytes() for name, array in arrays.items()}
        result = self._call("update", locked, rows, ctx)
        for name, array in arrays.items():
            if array.tobytes() != before[name]:
                raise LearnerError(f"learner {self._name}, in update: changes {name}, which it was given: copy first")
        self._is_checked = True
        if not isinstance(result, UpdateResult):
            self._refuse("update", result, "an UpdateResult")
        # NumPy makes a scalar of a sum of arrays without axes.
        if not _is_named_arrays(result.params, np.ndarray | np.generic):
            self._refuse("update", result.params, "an UpdateResult whose params are named arrays")
        return result

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        scores = self._call("evaluate", _lock(params), _lock_rows(data))
        if not isinstance(scores, Mapping) or "loss" not in scores:
            self._refuse("evaluate", scores, "scores by name, with a loss")
        for name, score in scores.items():
            if not isinstance(score, float | int | np.number):
                self._refuse("evaluate", score, f"a number as {name}")
        return scores

    def _score_rows(self, params: Params, data: Partition) -> FloatArray:
        losses = self._call("example_losses", _lock(params), _lock_rows(data))
        if not isinstance(losses, np.ndarray) or losses.shape != (len(data),):
            self._refuse("example_losses", losses, f"one number for each of {len(data)} rows")
        return losses

    def _protect_rows(self, protection: Protection) -> Learner:
        return guarded(self._call("protect_rows", protection), name=self._name, home=self._home)

    def _call(self, method: str, *values: Any) -> Any:
        threads = getattr(self._learner, "threads", 1)
        with torch_threads(threads if isinstance(threads, int) else 1):
            return _call_user_code(
                self._name, f"in {method}", self._home, lambda: getattr(self._learner, method)(*values)
            )

    def _refuse(self, method: str, value: object, need: str) -> NoReturn:
        text = (
            f"a mapping with {', '.join(map(str, value)) or 'nothing'}" if isinstance(value, Mapping) else repr(value)
        )
        text = text if len(text) <= _LONGEST else type(value).__name__
        raise LearnerError(f"learner {self._name}, in {method}: must return {need}, not {text}")


def _is_named_arrays(value: object, kind: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(isinstance(name, str) and isinstance(array, kind) for name, array in value.items())


def _lock(params: Params) -> Params:
    """Return views that cannot be written to."""
    views = {name: np.asarray(array).view() for name, array in params.items()}
    for view in views.values():
        view.setflags(write=False)
    return views


def _lock_rows(data: Partition) -> Partition:
    return Partition(**_lock({"features": data.features, "labels": data.labels}))


def check_learner(learner: Learner, data: Partition, *, seed: int = 0) -> None:
    """Run ``learner`` on ``data`` and refuse it, with the reason, where it breaks the contract of :class:`Learner`.

    It must be reproducible (the same arguments give the same bits), stateless (what it did before does not matter,
    what it keeps for a node is in ``ctx.state``, as arrays), leave its arguments alone, and return parameters with
    the names, order, shapes and types it started from, all finite, sharing no memory with its arguments or state.
    What it raises, and what it changes of what it was given, is a :class:`~veilwalk.core.errors.LearnerError`.
    ``data`` are at least two rows of the kind it is for.
    """
    validate.instance(Learner, "an object with init_params, update and evaluate", learner=learner)
    validate.instance(Partition, "a Partition of features and labels", data=data)
    if len(data) < 2:
        raise InvalidParameterError("data", f"{len(data)} rows", "at least two rows to try a learner on")
    trial, name = guarded(learner), type(learner).__name__
    # Read-only: a learner that writes to its data fails at once, and on its own line.
    rows = _lock_rows(Partition(data.features.copy(), data.labels.copy()))

    def need(holds: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
        if not holds:
            raise InvalidParameterError("learner", name, f"one {what}")

    def need_same(left: Params, right: Params, what: str) -> None:
        need(list(left) == list(right), f"whose {what} gives the same names")
        for key in left:
            need(np.array_equal(left[key], right[key]), f"whose {what} gives the same {key!r}")

    def start() -> Params:
        return trial.init_params(task_generator(seed, 0))

    def update(params: Params, state: MutableMapping[str, Array], part: Partition, step: int = 0) -> UpdateResult:
        ctx = StepContext(rng=task_generator(seed, 1, step), step=step, state=state)
        return trial.update(params, part, ctx)

    first = start()
    need(len(first) > 0, "whose init_params returns named arrays")
    for key, array in first.items():
        need(array.dtype.kind in "biuf", f"whose parameter {key!r} is an array of numbers")
        need(bool(np.isfinite(array).all()), f"whose first parameter {key!r} is finite")
    params = _lock({key: array.copy() for key, array in first.items()})
    need_same(params, start(), "init_params with the same stream")
    state: dict[str, Array] = {}
    result = update(params, state, rows)
    need(list(result.params) == list(params), "whose update keeps the names and order of the parameters")
    for key, array in result.params.items():
        same = (array.shape, array.dtype) == (params[key].shape, params[key].dtype)
        need(same, f"whose update keeps the shape and type of {key!r}")
        need(bool(np.isfinite(array).all()), f"whose update leaves {key!r} finite")
        shares = any(np.shares_memory(array, other) for other in (*params.values(), rows.features, *state.values()))
        need(not shares, f"whose new {key!r} shares no memory with its arguments or state")
    need(all(isinstance(array, np.ndarray) for array in state.values()), "that keeps only arrays in state")
    need(result.num_examples >= 1, "whose num_examples counts at least one example")
    need(all(isinstance(value, float) for value in result.metrics.values()), "whose metrics are floats")
    need_same(result.params, update(params, {}, rows).params, "update with the same arguments")
    copied = {key: array.copy() for key, array in state.items()}
    undisturbed = update(result.params, state, rows, step=1).params
    # An update in between, for another node, changes nothing: what matters is in ``ctx.state``.
    update(params, {}, rows.take(slice(len(rows) // 2)), step=7)
    again = update(result.params, copied, rows, step=1).params
    need_same(undisturbed, again, "update with another node's update in between")
    scores = trial.evaluate(params, rows)
    need(bool(np.isfinite(scores["loss"])), "whose evaluate gives a finite loss")
    need(0 <= scores.get("accuracy", 0) <= 1, "whose accuracy is between 0 and 1")
    need(dict(scores) == dict(trial.evaluate(params, rows)), "that evaluates alike twice")
