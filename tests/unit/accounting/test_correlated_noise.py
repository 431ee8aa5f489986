"""Noise correlated along the walk: what it takes back, what it must be scaled by, and that it is the same for all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tools.accounting.correlated_noise import SharedNoise, inverse_series, sqrt_series, walk_sensitivity

from veilwalk.core.errors import InvalidParameterError
from veilwalk.graphs import ring
from veilwalk.learning import plain_trace

LENGTH = 40


def matrix(terms: np.ndarray) -> np.ndarray:
    """The lower triangular Toeplitz matrix of a series."""
    whole = np.zeros(LENGTH)
    whole[: len(terms)] = terms
    return np.array(
        [[whole[row - column] if row >= column else 0.0 for column in range(LENGTH)] for row in range(LENGTH)]
    )


@pytest.mark.parametrize("band", [1, 2, 5, LENGTH])
def test_the_series_are_inverses_and_what_is_left_is_never_negative(band: int) -> None:
    """A full band is the square root of the sum of all updates."""
    taken, left = matrix(sqrt_series(band)), matrix(inverse_series(band, LENGTH))
    assert taken @ left == pytest.approx(np.eye(LENGTH), abs=1e-12)
    assert (left >= 0).all()
    if band == LENGTH:
        assert left @ left == pytest.approx(np.tril(np.ones((LENGTH, LENGTH))))


@pytest.mark.parametrize("band", [1, 4])
def test_the_sensitivity_is_the_distance_of_both_worlds_under_the_noise(band: int) -> None:
    """Mahalanobis' distance of a node's updates, all one way, by the covariance of the noise; other ways give less."""
    trace = plain_trace(ring(5), updates=LENGTH, seed=3)
    taken = matrix(sqrt_series(band))
    inverse = np.linalg.inv(taken @ taken.T)
    used = [(trace.node == node).astype(float) for node in range(5)]
    assert walk_sensitivity(trace, band=band) == pytest.approx(math.sqrt(max(one @ inverse @ one for one in used)))
    signs = np.random.default_rng(1).choice([-1.0, 1.0], (50, LENGTH))
    worst = max(float((one * sign) @ inverse @ (one * sign)) for one in used for sign in signs)
    assert math.sqrt(worst) <= walk_sensitivity(trace, band=band) + 1e-9
    # Named mutant: to count updates, as if noise were independent.
    most = int(np.bincount(trace.node).max())
    assert (walk_sensitivity(trace, band=band) > math.sqrt(most) * 1.2) == (band > 1)
    assert walk_sensitivity(trace, band=1, most_updates=2) == pytest.approx(math.sqrt(2))


def test_an_update_takes_back_what_the_one_before_has_added() -> None:
    """Whoever has the secret draws the same; sums grow far less than those of independent noise."""
    band, drawn = 8, 4000

    def noise(age: int) -> np.ndarray:
        source = SharedNoise(5, age, band=band)
        first = source.standard_normal((drawn,))
        assert not np.array_equal(first, source.standard_normal((drawn,)))
        return np.asarray(first)

    fresh = [SharedNoise(5, age, band=1).standard_normal((drawn,)) for age in range(LENGTH)]
    added = [noise(age) for age in range(LENGTH)]
    expected = sum(share * fresh[20 - back] for back, share in enumerate(sqrt_series(band)))
    assert added[20] == pytest.approx(expected, abs=1e-12)
    assert np.std(np.sum(added, axis=0)) < 0.5 * np.std(np.sum(fresh, axis=0))


def test_one_walk_only() -> None:
    """Two tokens are two sums."""
    with pytest.raises(InvalidParameterError, match=r"^tokens = 2"):
        walk_sensitivity(plain_trace(ring(5), updates=8, seed=1, tokens=2), band=2)
