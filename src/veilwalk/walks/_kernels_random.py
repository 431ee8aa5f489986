"""Philox4x32-10, and words of it that turn into exactly uniform choices.

A stream is named by the seed and the number of its job; ``purpose`` keeps the streams of one job apart.
Word ``w`` of a stream is a pure function of these, so results cannot depend on threads, lanes or chunks.

A word that would bias the choice made from it is replaced, not skipped: attempt ``a`` at word ``w`` has a
counter of its own. So step ``s`` is always served by word ``s // digits``, and any step can be replayed.

Reference: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11.
All values here are uint64; those called words hold 32 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from veilwalk.walks._compile import jit_inline_nogc, jit_noinline_nogc

# numba turns a mix of signed and unsigned 64-bit numbers into floats: every constant is typed.
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
MASK = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
ZERO = np.uint64(0)
U1 = np.uint64(1)
_TWO = np.uint64(2)
_PURPOSE_SHIFT = np.uint64(24)
_ATTEMPT_SHIFT = np.uint64(16)
_MANTISSA_LOW = np.uint64(11)
_MANTISSA_HIGH = np.uint64(21)
TWO_TO_32 = np.uint64(1 << 32)

#: What a stream is for.
WALK = np.uint64(0)
RETRY = np.uint64(1)
DESTINATION = np.uint64(2)
START = np.uint64(4)
RECIPIENTS = np.uint64(5)
#: Keeps the replacements of destination words apart from those of walk words.
DESTINATION_NUMBERS = np.uint64(1 << 47)

Word = Any
Words = tuple[Any, Any, Any, Any]


@jit_inline_nogc
def philox(c0: Word, c1: Word, c2: Word, c3: Word, k0: Word, k1: Word) -> Words:
    """Return the four words of counter ``c`` under key ``k``."""
    for _ in range(10):
        product_0 = _MULTIPLIER_0 * c0
        product_1 = _MULTIPLIER_1 * c2
        c0 = (product_1 >> HALF) ^ c1 ^ k0
        c1 = product_1 & MASK
        c2 = (product_0 >> HALF) ^ c3 ^ k1
        c3 = product_0 & MASK
        k0 = (k0 + _WEYL_0) & MASK
        k1 = (k1 + _WEYL_1) & MASK
    return c0, c1, c2, c3


@jit_inline_nogc
def block_words(seed: Word, job: Word, purpose: Word, attempt: Word, block: Word) -> Words:
    """Return block ``block`` (below 2**48) of a job's stream for one purpose."""
    tag = (purpose << _PURPOSE_SHIFT) | (attempt << _ATTEMPT_SHIFT) | (block >> HALF)
    return philox(block & MASK, tag, job & MASK, job >> HALF, seed & MASK, seed >> HALF)


@jit_noinline_nogc
def replacement_word(seed: Word, job: Word, word: Word, span: Word, limit: Word) -> Word:
    """Return the word that stands in for a rejected one."""
    attempt = ZERO
    while True:
        first, _, _, _ = block_words(seed, job, RETRY, attempt, word)
        if ((first * span) & MASK) >= limit:
            return first
        attempt += U1


@jit_inline_nogc
def fill_words(words: Any, n_lanes: int, seed: Word, jobs: Any, blocks: Any, span: Word, limit: Word) -> None:
    """Fill ``words[:, lane]`` with the accepted words of block ``blocks[lane]`` of job ``jobs[lane]``.

    A word is accepted when it gives ``span`` values equally often: Lemire's test on the low half of the
    product, with ``limit = 2**32 % span``.
    """
    for lane in range(n_lanes):
        first, second, third, fourth = block_words(seed, jobs[lane], WALK, ZERO, blocks[lane])
        words[0, lane] = first
        words[1, lane] = second
        words[2, lane] = third
        words[3, lane] = fourth
    if limit > ZERO:
        for part in range(4):
            for lane in range(n_lanes):
                if ((words[part, lane] * span) & MASK) < limit:
                    word = (blocks[lane] << _TWO) | np.uint64(part)
                    words[part, lane] = replacement_word(seed, jobs[lane], word, span, limit)


@jit_inline_nogc
def split_words(digits: Any, words: Any, n_lanes: int, base: Word) -> None:
    """Write into ``digits[part, place, lane]`` the leading digits of every word in ``base``.

    Apart from the walk itself this is a loop over lanes that the compiler turns into vector instructions.
    """
    bits = ZERO
    while (U1 << bits) < base:
        bits += U1
    if base == U1 << bits:
        # The digits of a power of two stand in the word as they are.
        for part in range(4):
            for place in range(digits.shape[1]):
                shift = HALF - bits * np.uint64(place + 1)
                for lane in range(n_lanes):
                    digits[part, place, lane] = np.uint32((words[part, lane] >> shift) & (base - U1))
        return
    for part in range(4):
        for place in range(digits.shape[1]):
            for lane in range(n_lanes):
                product = words[part, lane] * base
                words[part, lane] = product & MASK
                digits[part, place, lane] = np.uint32(product >> HALF)


@jit_inline_nogc
def choice(seed: Word, job: Word, number: Word, word: Word, n_choices: Word) -> Word:
    """Return one of ``n_choices`` equally likely values from a word, which has ``number`` in its stream."""
    product = word * n_choices
    # The remainder costs a division; below n_choices is where it can matter at all.
    if (product & MASK) < n_choices:
        limit = TWO_TO_32 % n_choices
        if (product & MASK) < limit:
            product = replacement_word(seed, job, number, n_choices, limit) * n_choices
    return product >> HALF


@jit_inline_nogc
def next_word(state: Word) -> tuple[Word, Word]:
    """Return the next state of a stream of splitmix64, and its word of 64 bits."""
    state += np.uint64(0x9E3779B97F4A7C15)
    word = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state, word ^ (word >> np.uint64(31))


@jit_inline_nogc
def unit_interval(high: Word, low: Word) -> Any:
    """Return a number in [0, 1) with 53 random bits."""
    return np.float64((high << _MANTISSA_HIGH) | (low >> _MANTISSA_LOW)) * 2.0**-53
