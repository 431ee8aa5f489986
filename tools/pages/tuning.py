"""The one rule by which every algorithm of the learning comparison gets its step size, local steps and fading.

The same grid for all algorithms: every step size of :data:`STEP_SIZES` with every number of local steps an update of
:data:`LOCAL_STEPS` and every fading of :data:`FADES`, batches as they are; for the network, of which a step costs
twenty times as much, :data:`NETWORK_GRID`. A fifth of the training rows is held back from everybody; what gives the
best accuracy there after a fixed small number of updates (whole rounds for gossip, whose average model is evaluated) is
chosen, for each algorithm and partition. The seed is none of the reported ones, and the test rows are not read.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from veilwalk.design import Scheme
from veilwalk.learning import Data, data_of, train
from veilwalk.training import Scenario, make_spec

STEP_SIZES = (0.03, 0.1, 0.3, 1.0)
LOCAL_STEPS = (1, 2, 5, 10)
FADES = (0, 10, 30)
#: Seed of validation rows, partition, walk and batches.
TUNING_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is tuned."""

    learning_rate: float
    local_steps: int
    fade: int = 0

    def spec(self, model: str = "softmax") -> str:
        """Return the learner so set."""
        return f"{model}:learning_rate={self.learning_rate:g}:local_steps={self.local_steps}"

    @property
    def decay(self) -> str:
        """How updates count in an older model."""
        return f"fade:{self.fade}" if self.fade else "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A setting and its accuracy on the validation rows."""

    setting: Setting
    accuracy: float


GRID = tuple(
    Setting(learning_rate=rate, local_steps=steps, fade=fade)
    for fade, rate, steps in itertools.product(FADES, STEP_SIZES, LOCAL_STEPS)
)
NETWORK_GRID = tuple(
    Setting(learning_rate=rate, local_steps=steps) for rate, steps in itertools.product((0.03, 0.1, 0.3), (1, 10))
)


def without_test_rows(data: Data) -> Data:
    """Return the training rows alone, a fifth of them held back to choose by; the test rows are gone."""
    rows = data.train
    return data_of(rows.features, rows.labels, columns=data.columns, seed=TUNING_SEED, name=data.name)


def accuracy_of(
    setting: Setting,
    scheme: Scheme,
    data: Data,
    partition: str,
    algorithm: str,
    *,
    updates: int,
    model: str = "softmax",
) -> float:
    """Return the accuracy of ``algorithm`` after ``updates`` on ``data.test``.

    ``data`` are those of :func:`without_test_rows`, made once for all.
    """
    learner = setting.spec(model)
    spec = make_spec(seed=TUNING_SEED, updates=updates, decay=setting.decay)
    scenario = Scenario.build(scheme, spec, data=data, partition=partition, learner=learner)
    run = train(scenario.task(algorithm), scenario.trace(algorithm), evaluations=1)
    return float(run.points[-1].accuracy or 0.0)


def best(tried: Sequence[Tried]) -> Setting:
    """Return the setting with the best accuracy; of equals the first, which fades less and has the smaller step."""
    return max(tried, key=lambda one: one.accuracy).setting
