"""How long messages are to stay at every node, so that training fits into it: by a trial of the learner."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.core.errors import ConfigError
from veilwalk.node.peer import SecretNormal

if TYPE_CHECKING:
    from veilwalk.learning import Learner, Partition, Protection

#: No run dwells less unless told to: opening, storing, sealing and handing the work to another process take their time
#: too, and on a busy machine several times what a trial finds.
LEAST_DWELL_S = 0.05

_TRIALS = 5
_MARGIN = 1.5
_STEP_S = 0.005


def measured_dwell(
    learner: Learner, data: Partition, protection: Protection | None = None, *, tested: bool = False
) -> float:
    """Return the dwell that some trial updates on ``data`` fit into: half as much again as the slowest.

    ``tested``: each with a loss on the data, as where received models are tested.

    This machine's time, and that of these data: members with more data, or less of a machine, count over-runs.

    Raises:
        ConfigError: The learner fails.
    """
    from veilwalk.learning import Protection, apply_update, init_generator

    protection = protection or Protection()
    params, slowest = learner.init_params(init_generator(0)), 0.0
    learner, mod, secret = protection.learner(learner), protection.mod(), SecretNormal()
    for step in range(1 + _TRIALS):
        started = time.perf_counter()
        try:
            if tested:
                learner.evaluate(params, data)
            params = apply_update(
                learner, params, data, seed=0, node=0, step=step, age=step, state={}, mod=mod, secret=secret
            ).params
        except Exception as error:  # noqa: BLE001  a learner may be anybody's code
            raise ConfigError(f"the learner failed in a trial update ({error}): say --dwell SECONDS") from None
        # The first also loads what the learner needs.
        slowest = max(slowest, time.perf_counter() - started) if step else 0.0
    return max(LEAST_DWELL_S, math.ceil(_MARGIN * slowest / _STEP_S) * _STEP_S)


def trial_data(*, rows: int, n_features: int, n_classes: int) -> Partition:
    """Return random data of the shape that members will have."""
    from veilwalk.learning import Partition

    rng = np.random.default_rng(0)
    features = rng.random((rows, n_features), dtype=np.float32)
    labels = rng.integers(n_classes, size=rows) if n_classes else rng.random(rows, dtype=np.float32)
    return Partition(features, labels)
