"""Checks that turn bad input into one clear line.

Each takes the parameter as a keyword, so that the message carries the caller's own name for it:
``at_least(3, degree=degree)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, cast

from veilwalk.core.errors import InvalidParameterError

#: Names of version 0.2 that are gone, by parameter, and what it needs instead of each.
REMOVED: dict[str, dict[str, str]] = {
    "key": {
        "membership": "left out; `python -m examples.comparisons.membership` does it in a checkout",
        "tokens": "walks",
        **dict.fromkeys(
            ("exact-nodes", "exact_nodes"), "left out: posteriors are exact up to 500 nodes, sealed for one"
        ),
    },
    "data": {
        "arff": "npz:FILE, which examples/comparisons/arff_to_npz.py writes",
        "ratings": "npz:FILE, which examples/comparisons/ratings_to_npz.py writes",
        **dict.fromkeys(("only", "pool"), "npz:FILE, which examples/comparisons/prepare_rows.py writes"),
    },
    "engine": {"dask": "ray://HOST:PORT; in Python also executor=Client(...).get_executor()"},
    "kind": {
        "learn": 'train, with audit = "none" and attack = 0',
        "routes": "train, audit or design; routes are compared by `python -m tools.rivals.sweep` in a checkout",
    },
    "law": {"equalised": "paper-exact or optimal"},
    "learner": {
        "fade": "left out of a learner: the option --decay fade:UPDATES of a run does it for every learner",
        "factorisation": "examples.comparisons.factorisation:FactorisationLearner, in a checkout",
        "sklearn": "softmax or linear, or examples.sklearn_learner:SklearnLearner in a checkout",
    },
    "observers": {
        "bridge": "coalition, which uses all that colluders saw",
        "predecessor": "coalition, which knows what colluders drew",
        "round": "path, which knows every hop",
    },
    "partition": {
        "groups": "natural:COLUMN; examples/comparisons/ratings_to_npz.py writes such a column",
        "pathological": "shards:PER_NODE; in Python also PathologicalPartitioner of flwr-datasets",
    },
    "posterior": {"estimated": "auto, which is exact at some destinations up to 2000 nodes and rehearsed beyond"},
    "track": dict.fromkeys(("wandb", "trackio", "mlflow"), "tensorboard; examples/trackers.py has the others"),
    "walk": {"least-recent": "non-backtracking, with several recipients (--recipients) for fewer hops"},
}
_CLOSED_FORM = "is a flag of veilwalk paper law"
#: Flags and verbs of version 0.2 that moved, and those that other verbs have, by verb or group.
MOVED_FLAGS: dict[str, dict[str, str]] = {
    "train": {
        "--tokens": "is called --walks",
        "--membership": "is gone: `python -m examples.comparisons.membership` does it in a checkout",
    },
    "design": {
        **dict.fromkeys(("--nodes", "--degree", "--formulas", "--window", "--tail", "--return-time"), _CLOSED_FORM),
        "--recipients auto": "is a verb: veilwalk recommend chooses their number for a network",
        "--frontier": "is a verb: veilwalk frontier",
        "--keep": "is a flag of veilwalk recommend",
        "--objective": "is gone: laws are optimised for node entropy; more recipients and another walk cut hits more",
        **dict.fromkeys(("--engine", "--work"), "is gone: large networks are sampled here, in a minute or so"),
    },
    "manifest": {"--spare": "is gone: no node keeps spare copies; a lost walk is made anew"},
    "cluster": {"logs": "is gone: tail -n 10 FOLDER/*/log.jsonl prints the last events of the nodes"},
    "roster": {"rotate": "is gone: roster renew CARD... brings keys of further periods, which begin by the clock"},
    "make": dict.fromkeys(("--previous", "--remove"), "is gone: roster add, remove and renew change a roster"),
}


def instance(kind: type | tuple[type, ...], need: str, **named: object) -> None:
    """Refuse what is not of ``kind``."""
    for name, value in named.items():
        if not isinstance(value, kind):
            raise InvalidParameterError(name, value, need)


def options(kind: Any, given: Mapping[str, object]) -> None:
    """Refuse options that are no field of the dataclass ``kind``, or none of a list, and name the nearest that is."""
    names = [field.name for field in (fields(kind) if is_dataclass(kind) else kind)]
    for name, value in given.items():
        if name not in names:
            refuse_removed("key", name)
            known = get_close_matches(name, names, n=1) or names
            raise InvalidParameterError(name, value, f"left out, or another option: {', '.join(known)}")


def integer(low: int | None = None, /, **named: object) -> None:
    """Refuse what is not a whole number (booleans included), and with ``low`` also what is below it."""
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise InvalidParameterError(name, value, "a whole number")
    if low is not None:
        at_least(low, **cast(dict[str, float], named))


def at_least(low: float, **named: float) -> None:
    """Refuse numbers below ``low``, and NaN."""
    # "not >=" rather than "<": NaN must not slip through.
    _require(lambda value: value >= low, f">= {low}", named)


def more_than(low: float, **named: float) -> None:
    """Refuse numbers at or below ``low``, and NaN."""
    _require(lambda value: value > low, f"> {low}", named)


def finite(**named: float) -> None:
    """Refuse infinities and NaN."""
    _require(math.isfinite, "a finite number", named)


def probability(**named: float) -> None:
    """Refuse what is not strictly between 0 and 1."""
    _require(lambda value: 0.0 < value < 1.0, "between 0 and 1, both excluded", named)


def _require(holds: Callable[[float], bool], need: str, named: Mapping[str, float]) -> None:
    instance(Real, "a number", **named)
    for name, value in named.items():
        if not holds(value):
            raise InvalidParameterError(name, value, need)


def refuse_removed(parameter: str, name: str) -> None:
    """Refuse a name that version 0.2 had for ``parameter``, and say what replaces it; accept any other name."""
    replacement = REMOVED.get(parameter, {}).get(name)
    if replacement is not None:
        raise InvalidParameterError(parameter, name, f"{replacement} ({name} was removed in version 0.3)")
