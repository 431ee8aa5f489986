"""The random source: the published vectors, and choices that are exactly uniform."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from veilwalk.walks import _kernels_random as random_kernels
from veilwalk.walks._compile import jit
from veilwalk.walks._tables import digits_per_word

# Random123 1.14.0, tests/kat_vectors, lines "philox4x32 10": counter, key, output.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words_of(text: str) -> list[np.uint64]:
    """Return hexadecimal words as the kernels hold them."""
    return [np.uint64(int(word, 16)) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "output"), KNOWN_ANSWERS)
def test_philox_gives_the_published_vectors(counter: str, key: str, output: str) -> None:
    """The generator is Philox4x32-10, not something like it."""
    assert list(random_kernels.philox(*words_of(counter), *words_of(key))) == words_of(output)


def test_streams_do_not_share_blocks() -> None:
    """Seed, job, purpose, attempt and block each give other words."""
    seen = {
        random_kernels.block_words(*(np.uint64(number) for number in name))
        for name in [
            (1, 0, 0, 0, 0),
            (2, 0, 0, 0, 0),
            (1 << 40, 0, 0, 0, 0),
            (1, 1, 0, 0, 0),
            (1, 1 << 40, 0, 0, 0),
            (1, 0, 1, 0, 0),
            (1, 0, 0, 1, 0),
            (1, 0, 0, 0, 1),
            (1, 0, 0, 0, 1 << 40),
        ]
    }

    assert len(seen) == 9


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 6, 7, 8, 20, 300, 5000, 70_000])
def test_a_word_holds_as_many_digits_as_promised(width: int) -> None:
    """Words serve an even number of steps, or one, and are rarely rejected."""
    digits = digits_per_word(width)
    span = width**digits

    assert digits == 1 or digits % 2 == 0
    assert span <= 1 << 32
    assert ((1 << 32) % span) / (1 << 32) < 2**-8


@pytest.mark.parametrize("width", [3, 5, 6, 7])
def test_accepted_words_give_every_digit_string_equally_often(width: int) -> None:
    """Counting all 2**32 words by arithmetic: each accepted value has the same number of words."""
    span = width ** digits_per_word(width)
    limit = (1 << 32) % span
    for value in (0, 1, span // 2, span - 1):
        # Words w with floor(w * span / 2**32) == value, less those whose low half is below the limit.
        first = -(-(value << 32) // span)
        last = -(-((value + 1) << 32) // span)
        rejected = sum((word * span) % (1 << 32) < limit for word in (first, last - 1, first + 1))

        assert last - first - rejected == (1 << 32) // span


@jit
def rejected_words(span: Any, limit: Any, n_jobs: int) -> tuple[int, int]:
    """Return how many words the plain stream has below the limit, and how many are left after filling."""
    jobs = np.arange(n_jobs).astype(np.uint64)
    blocks = np.zeros(n_jobs, np.uint64)
    words = np.empty((4, n_jobs), np.uint64)
    random_kernels.fill_words(words, n_jobs, np.uint64(9), jobs, blocks, span, np.uint64(0))
    before = np.sum(((words * span) & random_kernels.MASK) < limit)
    random_kernels.fill_words(words, n_jobs, np.uint64(9), jobs, blocks, span, limit)
    return before, np.sum(((words * span) & random_kernels.MASK) < limit)


def test_biased_words_are_replaced() -> None:
    """Filling leaves no word that would favour some digit string, and there was something to do."""
    span = 3 ** digits_per_word(3)
    before, after = rejected_words(np.uint64(span), np.uint64((1 << 32) % span), 20_000)

    assert before > 0
    assert after == 0


@jit
def count_choices(counts: Any, n_draws: int, n_choices: Any) -> None:
    """Count what ``choice`` makes of the words of one stream."""
    for number in range(n_draws):
        index = np.uint64(number)
        word, _, _, _ = random_kernels.block_words(np.uint64(4), np.uint64(0), random_kernels.WALK, np.uint64(0), index)
        counts[random_kernels.choice(np.uint64(4), np.uint64(0), index, word, n_choices)] += 1


@pytest.mark.parametrize("n_choices", [1, 3, 7, 1000])
def test_choice_is_uniform(n_choices: int) -> None:
    """Lemire's choice has the uniform law and never leaves its range."""
    counts = np.zeros(n_choices + 1, dtype=np.int64)
    count_choices(counts, 200_000, np.uint64(n_choices))

    assert counts[-1] == 0
    if n_choices > 1:
        assert stats.chisquare(counts[:-1]).pvalue > 1e-6


def test_rejected_choices_are_drawn_again() -> None:
    """With 3 * 2**30 choices a quarter of the words is rejected; without that, a third of values doubles."""
    counts = np.zeros(3, dtype=np.int64)
    for number in range(20_000):
        index = np.uint64(number)
        word = random_kernels.block_words(np.uint64(4), np.uint64(0), random_kernels.WALK, np.uint64(0), index)[0]
        value = random_kernels.choice(np.uint64(4), np.uint64(0), index, np.uint64(word), np.uint64(3 << 30))
        counts[int(value) % 3] += 1
    biased = np.array([2.0, 1.0, 1.0]) / 4.0 * counts.sum()

    assert stats.chisquare(counts).pvalue > 1e-6
    assert stats.chisquare(counts, biased).pvalue < 1e-6
