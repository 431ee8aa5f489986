"""What a node asks of a model that it receives, and what it goes on with where it refuses it.

There is one token, and a node that refuses what it carries has nothing but its own last model to go on with: older, by
about as many updates as there are nodes. So a refusal sets the model back, and whoever gets it next and holds a newer
one goes on with that: after a few nodes most of what was lost is found again.

Nobody is blamed: who made a model is what the routing hides, from honest receivers too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import Params

ACCEPT_USAGE = "none, or finite, loss:RATIO, norm:STEP or two of them (finite is in both)"


# Not all that float() reads: no sign, no inf, no blanks.
_NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e-?[0-9]+)?")
# By how much a refusal raises what a node compares with: one that was lucky once would refuse everybody for ever. Each
# honest model refused sets the run back, so that luck must be forgotten within one or two of them.
_LEAK = 1.5
# What is raised must be more than nothing: anybody can make a model that is right about all rows of one class.
_LEAST = 1e-9


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Held:
    """A node's own last model.

    Attributes:
        params: The model, as the node sent it on.
        age: Updates that it has had.
        loss: What losses on the node's rows are held against: the least of the models accepted there, half as much
            again for each refused since; NaN where that is not known.
    """

    params: Params
    age: int = 0
    loss: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The tests of a received model. One that is not finite is always refused.

    Attributes:
        max_loss_ratio: Refused where its loss on the node's rows is more than so many times that of the model
            accepted there that had the least (half as much again for each refused since); 0 for no such test.
        max_step: Refused where it is farther (Euclidean norm) from the node's own last model than so much for each
            update between them; 0 for no such test. Where updates are clipped to this, no honest one is refused.
    """

    max_loss_ratio: float = 0.0
    max_step: float = 0.0

    def __post_init__(self) -> None:
        validate.finite(max_loss_ratio=self.max_loss_ratio, max_step=self.max_step)
        validate.at_least(0, max_loss_ratio=self.max_loss_ratio, max_step=self.max_step)
        if 0 < self.max_loss_ratio < 1:
            raise InvalidParameterError("max_loss_ratio", self.max_loss_ratio, "0, or at least 1")

    @classmethod
    def of(cls, text: str) -> Acceptance | None:
        """Read ``loss:1.5,norm:2`` and the like; None where it is ``none``."""
        names = {"loss": "max_loss_ratio", "norm": "max_step"}
        values: dict[str, float] = {}
        parts = [part.strip() for part in text.split(",")]
        if parts == ["none"]:
            return None
        for part in parts:
            kind, _, value = part.partition(":")
            if part == "finite":
                continue
            found = _NUMBER.fullmatch(value)
            if kind not in names or names[kind] in values or found is None or not float(value):
                raise InvalidParameterError("accept", text, ACCEPT_USAGE)
            values[names[kind]] = float(value)
        return cls(**values)

    def look(self, received: Params, held: Held, *, age: int, loss_of: Callable[[Params], float]) -> tuple[bool, float]:
        """Return whether a model is accepted, and the loss that later ones are held against (NaN where none is known).

        Args:
            received: The model.
            held: The node's own last one; the first of the run where it has none.
            age: Updates that the received one is said to have had.
            loss_of: Loss of a model on the node's rows.
        """
        if not is_finite(received):
            return False, held.loss
        if self.max_step and distance(received, held.params) > self.max_step * max(age - held.age, 1):
            return False, held.loss
        if not self.max_loss_ratio:
            return True, held.loss
        loss = loss_of(received)
        before = max(held.loss if math.isfinite(held.loss) else loss_of(held.params), _LEAST)
        # A loss that is not a number is refused as well.
        if loss <= self.max_loss_ratio * before:
            # The best so far: were it the last, a little worse each time would go through.
            return True, min(loss, before)
        return False, _LEAK * before


def is_finite(params: Params) -> bool:
    """Return whether no number of a model is infinite or NaN."""
    for array in params.values():
        # A finite sum of squares is quick proof; one that overflowed is none.
        if array.dtype.kind == "f" and not math.isfinite(np.vdot(array, array)) and not np.isfinite(array).all():
            return False
    return True


def distance(one: Params, other: Params) -> float:
    """Return the Euclidean norm of the difference of two models."""
    total = 0.0
    for name, array in one.items():
        apart = np.subtract(array, other[name], dtype=np.float64)
        total += float(np.vdot(apart, apart))
    return math.sqrt(total)
