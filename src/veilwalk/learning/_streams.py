"""Random streams of updates: named by the run's seed, the node and how many updates it has made."""

from __future__ import annotations

from numpy.random import Generator

from veilwalk.core.randomness import task_generator

_LEARN_TASK = 0x6C656172
_INIT_TASK = 0x696E6974


def update_generator(seed: int, node: int, step: int) -> Generator:
    """Return the stream of the update that is the ``step``-th of ``node``, counted from 0."""
    return task_generator(seed, _LEARN_TASK, node, step)


def init_generator(seed: int) -> Generator:
    """Return the stream the first parameters are drawn from."""
    return task_generator(seed, _INIT_TASK)
