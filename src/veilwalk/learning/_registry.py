"""Learners by a line of text: the names of ours, or ``module:Class`` for anybody's."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from veilwalk.core.errors import InvalidParameterError, LearnerError
from veilwalk.learning._api import Learner
from veilwalk.learning._factorisation import FactorisationLearner
from veilwalk.learning._guard import guarded, theirs
from veilwalk.learning._numpy_learners import LinearLearner, MlpLearner, SoftmaxLearner

# Packages that somebody's own learner may want, and the extra that brings each.
_EXTRAS = {"torch": "torch", "sklearn": "sklearn", "pyarrow": "parquet", "dp_accounting": "dp"}
_DESCENT = ("learning_rate", "batch_size", "local_steps", "momentum", "fade")


@dataclass(frozen=True, slots=True)
class LearnerKind:
    """A learner a spec can name.

    Attributes:
        name: How it is called.
        help: What it is, in one line.
        build: Makes it from ``n_features``, ``n_classes`` (0 where labels are real numbers) and the options.
        options: Numbers that may be given as ``name=value`` behind it.
    """

    name: str
    help: str
    build: Callable[..., Learner]
    options: tuple[str, ...]

    @property
    def usage(self) -> str:
        """How it is written."""
        return self.name + "".join(f"[:{option}=..]" for option in self.options)


def _sklearn(**options: Any) -> Learner:
    from veilwalk.learning.sklearn_learner import SklearnLearner

    return SklearnLearner(**options)


LEARNERS: Mapping[str, LearnerKind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            LearnerKind("softmax", "softmax regression in NumPy, for classes", SoftmaxLearner, _DESCENT),
            LearnerKind("linear", "least squares in NumPy, for real labels", LinearLearner, _DESCENT),
            LearnerKind("mlp", "one hidden layer in NumPy, for either", MlpLearner, ("hidden", *_DESCENT)),
            LearnerKind(
                "factorisation",
                "matrix factorisation in NumPy, for ratings:FILE",
                FactorisationLearner,
                ("users", "items", "factors", "learning_rate", "batch_size", "local_steps"),
            ),
            LearnerKind(
                "sklearn",
                "scikit-learn's SGDClassifier, or SGDRegressor, by partial_fit",
                _sklearn,
                ("learning_rate", "batch_size"),
            ),
        )
    }
)


def make_learner(spec: str, *, n_features: int, n_classes: int) -> Learner:
    """Make the learner that ``spec`` names for data of this shape; ``n_classes`` is 0 where labels are real numbers.

    ``softmax``, ``mlp:hidden=128``, or ``module:Class``: any class or function that takes ``n_features`` and
    ``n_classes`` by keyword, with the options given, and returns a :class:`Learner`. Such a module is looked for
    where Python looks, and then in the folder the command runs in. Naming one runs its code, :func:`guarded`.
    """
    name, fields = _split_spec(spec)
    options = _options(spec, fields)
    if name in LEARNERS:
        _check_options(spec, LEARNERS[name], options)
        return LEARNERS[name].build(n_features=n_features, n_classes=n_classes, **options)
    home, build = _imported(spec, name)
    given = {"n_features": n_features, "n_classes": n_classes, **options}
    try:
        inspect.signature(build).bind(**given)
    except TypeError as error:
        raise InvalidParameterError("learner", spec, f"one that takes {', '.join(given)} ({error})") from error
    learner = theirs(name, "when made", home, lambda: build(**given))
    if not isinstance(learner, Learner):
        raise InvalidParameterError("learner", spec, "an object with init_params, update and evaluate")
    return guarded(learner, name=name, home=home)


def is_own_learner(learner: str | Learner) -> bool:
    """Return whether a learner is the user's own: ``module:Class``, a torch module, or an object of another class."""
    if isinstance(learner, str):
        return _split_spec(learner)[0] not in LEARNERS
    built_in = (SoftmaxLearner, LinearLearner, MlpLearner, FactorisationLearner)
    return not isinstance(learner, built_in) and type(learner).__name__ != "SklearnLearner"


def _split_spec(spec: str) -> tuple[str, list[str]]:
    """Return the name of a learner and its options as they are written."""
    fields = spec.strip().split(":")
    first_option = next((index for index, part in enumerate(fields) if "=" in part), len(fields))
    return ":".join(fields[:first_option]), fields[first_option:]


def _check_options(spec: str, kind: LearnerKind, options: Mapping[str, int | float | str]) -> None:
    for option, value in options.items():
        if option not in kind.options:
            known = ", ".join(kind.options)
            raise InvalidParameterError("learner", spec, f"{kind.name} with options among {known} (not {option})")
        if isinstance(value, str):
            raise InvalidParameterError(option, value, "a number")


def _options(spec: str, fields: list[str]) -> dict[str, int | float | str]:
    options: dict[str, int | float | str] = {}
    for field in fields:
        key, _, value = field.partition("=")
        if not key.isidentifier() or not value:
            raise InvalidParameterError("learner", spec, f"followed by name=value (not {field!r})")
        options[key] = _value(value)
    return options


def _value(text: str) -> int | float | str:
    for to in (int, float):
        try:
            return to(text)
        except ValueError:
            continue
    return text


def _bringing(missing: ImportError) -> str:
    """Say what installs a missing package that an extra of this one brings."""
    extra = _EXTRAS.get((missing.name or "").partition(".")[0])
    return "" if extra is None else f": pip install 'veilwalk[{extra}]' brings it"


def _imported(spec: str, name: str) -> tuple[str | None, Callable[..., Any]]:
    """Return the file of a module and what it has under the name."""
    known = f"{', '.join(LEARNERS)} or module:Class"
    module_name, _, attribute = name.partition(":")
    if not attribute or not all(part.isidentifier() for part in [*module_name.split("."), attribute]):
        raise InvalidParameterError("learner", spec, known)
    here = os.getcwd()  # noqa: PTH109 - sys.path holds text
    if here not in sys.path:
        # Last, so that nothing installed is hidden by a file that happens to lie here.
        sys.path.append(here)
    try:
        module = theirs(name, "when imported", None, lambda: importlib.import_module(module_name))
        build = getattr(module, attribute)
    except LearnerError as error:
        if isinstance(error.__cause__, ImportError):
            need = f"{known}; {module_name} cannot be imported ({error.__cause__}){_bringing(error.__cause__)}"
            raise InvalidParameterError("learner", spec, need) from error
        raise
    except AttributeError as error:
        raise InvalidParameterError("learner", spec, f"{known}; {module_name} has no {attribute}") from error
    if not callable(build):
        raise InvalidParameterError("learner", spec, f"{known}; {attribute} is not a class or function")
    return module.__file__, build
