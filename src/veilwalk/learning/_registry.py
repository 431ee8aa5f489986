"""Learners by a line of text: the names of ours, or ``module:Class`` for anybody's."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import Learner
from veilwalk.learning._mlp import MlpLearner
from veilwalk.learning._softmax import SoftmaxLearner


@dataclass(frozen=True, slots=True)
class LearnerKind:
    """A learner a spec can name.

    Attributes:
        usage: How it is written; options as ``name=value`` behind it.
        help: What it is, in one line.
        build: Makes it from ``n_features``, ``n_classes`` and the options.
    """

    usage: str
    help: str
    build: Callable[..., Learner]


def _sklearn(**options: Any) -> Learner:
    from veilwalk.learning.sklearn_learner import SklearnLearner

    return SklearnLearner(**options)


LEARNERS: Mapping[str, LearnerKind] = MappingProxyType(
    {
        "softmax": LearnerKind(
            "softmax[:learning_rate=..][:batch_size=..][:local_steps=..][:momentum=..]",
            "softmax regression in NumPy",
            SoftmaxLearner,
        ),
        "mlp": LearnerKind(
            "mlp[:hidden=..][:learning_rate=..][:batch_size=..][:local_steps=..][:momentum=..]",
            "one hidden layer in NumPy",
            MlpLearner,
        ),
        "sklearn": LearnerKind(
            "sklearn[:learning_rate=..][:batch_size=..]", "scikit-learn's SGDClassifier, by partial_fit", _sklearn
        ),
    }
)


def make_learner(spec: str, *, n_features: int, n_classes: int) -> Learner:
    """Make the learner that ``spec`` names for data of this shape.

    ``softmax``, ``mlp:hidden=128``, or ``module:Class``: any class or function that takes ``n_features`` and
    ``n_classes`` by keyword, with the options given, and returns a :class:`Learner`. Such a module is looked for
    where Python looks, and then in the folder the command runs in. Naming one runs its code.
    """
    fields = spec.strip().split(":")
    first_option = next((index for index, part in enumerate(fields) if "=" in part), len(fields))
    name, options = ":".join(fields[:first_option]), _options(spec, fields[first_option:])
    build = LEARNERS[name].build if name in LEARNERS else _imported(spec, name)
    try:
        learner = build(n_features=n_features, n_classes=n_classes, **options)
    except TypeError as error:
        raise InvalidParameterError("learner", spec, f"options that it takes ({error})") from error
    if not isinstance(learner, Learner):
        raise InvalidParameterError("learner", spec, "an object with init_params, update and evaluate")
    return learner


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


def _imported(spec: str, name: str) -> Callable[..., Any]:
    known = f"{', '.join(LEARNERS)} or module:Class"
    module_name, _, attribute = name.partition(":")
    if not attribute or not all(part.isidentifier() for part in [*module_name.split("."), attribute]):
        raise InvalidParameterError("learner", spec, known)
    here = os.getcwd()  # noqa: PTH109 - sys.path holds text
    if here not in sys.path:
        # Last, so that nothing installed is hidden by a file that happens to lie here.
        sys.path.append(here)
    try:
        build = getattr(importlib.import_module(module_name), attribute)
    except ImportError as error:
        raise InvalidParameterError("learner", spec, f"{known}; {module_name} cannot be imported ({error})") from error
    except AttributeError as error:
        raise InvalidParameterError("learner", spec, f"{known}; {module_name} has no {attribute}") from error
    if not callable(build):
        raise InvalidParameterError("learner", spec, f"{known}; {attribute} is not a class or function")
    return build  # type: ignore[no-any-return]
