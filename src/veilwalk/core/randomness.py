"""Random sources for science: seeded, the same on one core, many cores and many machines.

A stream is named by the run's seed and the task it serves, never by the worker that happens to run it.
"""

from __future__ import annotations

import numpy as np

from veilwalk.core import validate


def task_generator(seed: int, *task: int) -> np.random.Generator:
    """Return the generator of one task of the run seeded ``seed``; tasks are numbered from 0."""
    validate.integer(0, seed=seed)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=task))
