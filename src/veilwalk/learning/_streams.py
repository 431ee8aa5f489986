"""Random streams of updates: named by the run's seed, the node and how many updates it has made.

A stream is ``task_generator(seed, LEARN, node, step)``. NumPy takes longer to make one than half an update of a small
model; here the streams of many updates are seeded at once, with the same words that ``SeedSequence`` would give, so
that the draws are the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.random import PCG64, Generator, SeedSequence
from numpy.random.bit_generator import ISpawnableSeedSequence

from veilwalk.core.arrays import IntArray
from veilwalk.core.randomness import task_generator

_LEARN_TASK = 0x6C656172
_INIT_TASK = 0x696E6974
# The constants of NumPy's SeedSequence, which its compatibility policy holds fixed.
_POOL = 4
_INIT_A, _MULT_A = 0x43B0D7E5, 0x931E8875
_INIT_B, _MULT_B = 0x8B51F9DD, 0x58F38DED
_MIX_LEFT, _MIX_RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_SHIFT = np.uint32(16)
_WORD = 1 << 32

Words = npt.NDArray[np.uint32]


def update_generator(seed: int, node: int, step: int) -> Generator:
    """Return the stream of the update that is the ``step``-th of ``node``, counted from 0."""
    return task_generator(seed, _LEARN_TASK, node, step)


def init_generator(seed: int) -> Generator:
    """Return the stream the first parameters are drawn from."""
    return task_generator(seed, _INIT_TASK)


def update_generators(seed: int, nodes: IntArray, steps: IntArray) -> Iterator[Generator]:
    """Yield ``update_generator(seed, node, step)`` for each pair, the same bits for a tenth of the time."""
    for node, step, words in zip(nodes.tolist(), steps.tolist(), _state_words(seed, nodes, steps), strict=True):
        known = _Seeded(words, seed, (_LEARN_TASK, node, step))
        yield Generator(PCG64(known))  # type: ignore[arg-type]  # the stubs leave out the interface it implements


class _Seeded(ISpawnableSeedSequence):
    """A seed sequence whose first words are known; whatever else is asked of it, NumPy answers."""

    def __init__(self, words: npt.NDArray[np.uint64], seed: int, task: tuple[int, ...]) -> None:
        self._words, self._seed, self._task = words, seed, task

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        if n_words == len(self._words) and dtype is np.uint64:
            return self._words
        return self._whole().generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> Any:
        return self._whole().spawn(n_children)

    def _whole(self) -> SeedSequence:
        return SeedSequence(self._seed, spawn_key=self._task)


def _state_words(seed: int, nodes: IntArray, steps: IntArray) -> npt.NDArray[np.uint64]:
    """Return, for each pair, the four words that ``SeedSequence`` would seed its generator with."""
    shared = [seed >> shift & (_WORD - 1) for shift in range(0, max(seed.bit_length(), 1), 32)]
    # A key of its own is kept apart from a long seed by zeros.
    shared += [0] * (_POOL - len(shared))
    count = len(nodes)
    entropy = [np.full(count, word, dtype=np.uint32) for word in (*shared, _LEARN_TASK)]
    entropy += [nodes.astype(np.uint32), steps.astype(np.uint32)]
    with np.errstate(over="ignore"):
        pool = _mixed_pool(entropy)
        constant, out = _INIT_B, np.empty((count, 2 * _POOL), dtype=np.uint32)
        for index in range(2 * _POOL):
            word = pool[index % _POOL] ^ np.uint32(constant)
            constant = constant * _MULT_B % _WORD
            word = word * np.uint32(constant)
            out[:, index] = word ^ (word >> _SHIFT)
    return out.astype("<u4").view("<u8").astype(np.uint64)


def _mixed_pool(entropy: list[Words]) -> list[Words]:
    constant = _INIT_A

    def hashed(word: Words) -> Words:
        nonlocal constant
        word = word ^ np.uint32(constant)
        constant = constant * _MULT_A % _WORD
        word = word * np.uint32(constant)
        return word ^ (word >> _SHIFT)

    def mixed(one: Words, other: Words) -> Words:
        found: Words = one * _MIX_LEFT - other * _MIX_RIGHT
        return found ^ (found >> _SHIFT)

    pool = [hashed(word) for word in entropy[:_POOL]]
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                pool[target] = mixed(pool[target], hashed(pool[source]))
    for word in entropy[_POOL:]:
        for target in range(_POOL):
            pool[target] = mixed(pool[target], hashed(word))
    return pool
