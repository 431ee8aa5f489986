"""The scorer against cases worked out by hand, and its intervals against how often they hold."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from veilwalk.audit import SCORES, estimate_over_lanes, score_posteriors
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.support import DistanceSupport

SUPPORT = DistanceSupport(2, 3)
# Node 0 is the destination, 1 its neighbour; 2, 3 and 4 are two hops away, 5 and 6 three.
HOPS_AWAY = np.array([0, 1, 2, 2, 2, 3, 3])


def scored(posterior: list[float], source: int) -> dict[str, float]:
    row = score_posteriors(np.array([posterior]), np.array([source]), HOPS_AWAY, SUPPORT)[0]
    return dict(zip(SCORES, row.tolist(), strict=True))


def test_a_certain_posterior() -> None:
    """No entropy; right it has every score at one, wrong the source shares the places left."""
    right = scored([0, 0, 1, 0, 0, 0, 0], 2)
    assert right == dict.fromkeys(SCORES[:3], 0.0) | dict.fromkeys(SCORES[3:], 1.0)
    wrong = scored([0, 0, 1, 0, 0, 0, 0], 5)
    assert wrong["hit_ratio"] == 0
    assert wrong["top_posterior"] == 1
    assert wrong["inverse_rank"] == pytest.approx(sum(1 / place for place in range(2, 8)) / 6, rel=1e-14)


def test_a_uniform_posterior_has_the_logarithm_of_its_size_in_nats() -> None:
    """log 5 = 1.609, not the 2.322 of bits; a blind guess hits one in five; both distances weigh the same."""
    got = scored([0, 0, 0.2, 0.2, 0.2, 0.2, 0.2], 4)
    assert got["node_entropy_nats"] == pytest.approx(math.log(5), rel=1e-14)
    assert got["min_entropy_nats"] == pytest.approx(math.log(5), rel=1e-14)
    assert got["distance_entropy_nats"] == pytest.approx(math.log(2), rel=1e-14)
    assert got["top_posterior"] == 0.2
    assert got["hit_ratio"] == pytest.approx(0.2, rel=1e-14)


def test_distance_entropy_weighs_one_node_of_each_distance() -> None:
    """The paper's notion by hand: 0.6 over three nodes and 0.4 over two are 0.2 each; shells would give 0.673."""
    got = scored([0, 0, 0.5, 0.1, 0.0, 0.4, 0.0], 2)["distance_entropy_nats"]
    assert got == pytest.approx(math.log(2), rel=1e-14)
    by_shell = -(0.6 * math.log(0.6) + 0.4 * math.log(0.4))
    assert abs(got - by_shell) > 0.01
    uneven = scored([0, 0, 0.3, 0.3, 0.3, 0.1, 0.0], 2)["distance_entropy_nats"]
    near, far = 0.3 / 0.35, 0.05 / 0.35
    assert uneven == pytest.approx(-near * math.log(near) - far * math.log(far), rel=1e-14)


def test_node_entropy_and_min_entropy_by_hand() -> None:
    """1/2, 1/4, 1/8, 1/8: 1.75 log 2 and log 2."""
    got = scored([0, 0, 0.5, 0.25, 0.125, 0.125, 0], 3)
    assert got["node_entropy_nats"] == pytest.approx(1.75 * math.log(2), rel=1e-14)
    assert got["min_entropy_nats"] == pytest.approx(math.log(2), rel=1e-14)
    assert (got["hit_ratio"], got["inverse_rank"]) == (0, 0.5)
    assert got["ndcg"] == pytest.approx(1 / math.log2(3), rel=1e-14)


@pytest.mark.parametrize("source", range(7))
@pytest.mark.parametrize(
    "posterior",
    [
        [0.0, 0.0, 0.25, 0.25, 0.25, 0.125, 0.125],
        [0.0, 0.1, 0.1, 0.2, 0.2, 0.2, 0.2],
        [1 / 7] * 7,
        [0.0, 0.0, 0.5, 0.0, 0.3, 0.2, 0.0],
    ],
    ids=["top tie", "two ties", "all tie", "zeros tie"],
)
def test_ties_share_their_places_evenly(posterior: list[float], source: int) -> None:
    """Hit ratio, inverse rank and NDCG are means over all 5040 ways to list equal nodes in some order."""
    places = []
    for order in itertools.permutations(range(7)):
        listed = sorted(order, key=lambda node: -posterior[node])
        places.append(listed.index(source) + 1)
    got = scored(posterior, source)
    assert got["hit_ratio"] == pytest.approx(np.mean([place == 1 for place in places]), rel=1e-12)
    assert got["inverse_rank"] == pytest.approx(np.mean([1 / place for place in places]), rel=1e-12)
    assert got["ndcg"] == pytest.approx(np.mean([1 / math.log2(1 + place) for place in places]), rel=1e-12)


def test_rows_are_scored_each_for_itself() -> None:
    """A table gives what its rows give one by one."""
    table = np.random.default_rng(1).dirichlet(np.full(7, 0.3), size=20)
    sources = np.random.default_rng(2).integers(0, 7, 20)
    together = score_posteriors(table, sources, HOPS_AWAY, SUPPORT)
    for row in range(20):
        alone = score_posteriors(table[row : row + 1], sources[row : row + 1], HOPS_AWAY, SUPPORT)
        np.testing.assert_allclose(together[row], alone[0], rtol=1e-14)


def correlated(rng: np.random.Generator, lanes: IntArray, spread: float) -> FloatArray:
    """Values of mean 0.3 whose lanes have a part in common."""
    common = rng.normal(0.0, spread, int(lanes.max()) + 1)
    return np.asarray(0.3 + common[lanes] + rng.normal(0.0, 1.0, len(lanes)))


@pytest.mark.parametrize("spread", [0.0, 0.5], ids=["independent", "correlated"])
def test_intervals_hold_as_often_as_they_say(spread: float) -> None:
    """95% of 400 repetitions (400 * 0.95 +- 3 sigma); lanes of 30 and 40 updates, as when updates do not divide."""
    lanes = np.concatenate((np.repeat(np.arange(16), 40), np.repeat(np.arange(16, 32), 30)))
    rng = np.random.default_rng(11)
    ours = naive = 0
    for _ in range(400):
        values = correlated(rng, lanes, spread)
        found = estimate_over_lanes(values, lanes)
        ours += found.low <= 0.3 <= found.high
        # The named mutant: every update counted as an independent sample.
        naive += bool(abs(values.mean() - 0.3) <= 1.96 * values.std(ddof=1) / math.sqrt(len(values)))
        assert found.mean == pytest.approx(values.mean(), rel=1e-12)
    assert 367 <= ours <= 393
    assert (naive < 300) == (spread > 0)


def test_the_interval_of_two_lanes_by_hand() -> None:
    """Means 1 and 3: 2 +- 12.706, the 97.5% point of Student's t with one degree of freedom."""
    found = estimate_over_lanes(np.array([0.0, 2.0, 3.0, 3.0]), np.array([0, 0, 4, 4]))
    assert found.mean == 2
    assert found.high - found.mean == pytest.approx(math.tan(math.pi * 0.475), rel=1e-9)
    assert found.mean - found.low == pytest.approx(math.tan(math.pi * 0.475), rel=1e-9)


def test_one_lane_says_nothing_about_its_spread() -> None:
    """The mean is there; the interval is everything."""
    found = estimate_over_lanes(np.array([1.0, 2.0]), np.array([3, 3]))
    assert (found.mean, found.low, found.high) == (1.5, -math.inf, math.inf)


@pytest.mark.parametrize("share", [False, True])
def test_intervals_of_shares_stay_within_bounds(share: bool) -> None:
    """Of few hits in few lanes: Wilson's by hand with as many updates as spread so far; inside nothing changes."""
    values, lanes = np.zeros(40), np.repeat(np.arange(8), 5)
    values[0] = 1.0
    found = estimate_over_lanes(values, lanes, share=share)
    assert found.mean == pytest.approx(1 / 40)
    assert (found.low < 0) == (not share)
    if share:
        # Lane means are one fifth and seven times nothing: their mean spreads by 1/40.
        t, mean, variance = 2.3646242515927844, 1 / 40, (1 / 40) ** 2
        size = mean * (1 - mean) / variance
        root = math.sqrt(mean * (1 - mean) / size + t**2 / (4 * size**2))
        centre, scale = mean + t**2 / (2 * size), 1 + t**2 / size
        assert found.low == pytest.approx((centre - t * root) / scale, rel=1e-9)
        assert found.high == pytest.approx((centre + t * root) / scale, rel=1e-9)
        assert 0 < found.low < found.mean < found.high < 1
    even = np.tile([0.0, 1.0, 1.0, 0.0, 0.0], 8)
    even[:5] = 1.0
    assert estimate_over_lanes(even, lanes, share=True) == estimate_over_lanes(even, lanes)


@pytest.mark.parametrize("hits", [0, 3, 40])
def test_few_hits_or_misses_are_no_certainty(hits: int) -> None:
    """Lanes that agree by chance, as all must where all hit or none: Wilson's for as many updates as there are."""
    values, lanes = np.zeros(40), np.arange(40)
    values[:hits] = 1.0
    found = estimate_over_lanes(values, lanes, share=True)
    t, mean = 2.0226909200367595, hits / 40
    root = math.sqrt(mean * (1 - mean) / 40 + t**2 / (4 * 40**2))
    # Where some hit and some do not, forty lanes of one spread by 1/39 more than as many updates would.
    near = 1e-9 if hits in {0, 40} else 0.03
    assert found.high - found.low == pytest.approx(2 * t * root / (1 + t**2 / 40), rel=near)
    assert found.low <= mean <= found.high
    by_lanes = estimate_over_lanes(values, lanes)
    assert (by_lanes.low == by_lanes.high) == (hits in {0, 40})


def test_what_is_the_same_every_time_is_certain() -> None:
    """A guess among many that are equally likely is worth a hundredth of a hit, each time."""
    found = estimate_over_lanes(np.full(40, 0.01), np.repeat(np.arange(8), 5), share=True)
    assert (found.low, found.high) == pytest.approx((0.01, 0.01), abs=1e-9)


def test_one_lane_leaves_a_share_anywhere() -> None:
    """From nothing to all."""
    found = estimate_over_lanes(np.array([1.0, 0.0]), np.array([3, 3]), share=True)
    assert (found.mean, found.low, found.high) == (0.5, 0.0, 1.0)


def test_wilsons_intervals_hold_as_often_as_they_say() -> None:
    """Of a share of two percent in 32 lanes of 30: at least as often as the normal ones, which leave 0 to 1."""
    lanes, rng = np.repeat(np.arange(32), 30), np.random.default_rng(5)
    ours = normal = 0
    for _ in range(400):
        values = (rng.random(len(lanes)) < 0.004).astype(np.float64)
        inside, plain = estimate_over_lanes(values, lanes, share=True), estimate_over_lanes(values, lanes)
        assert 0 <= inside.low <= inside.mean <= inside.high <= 1
        ours += inside.low <= 0.004 <= inside.high
        normal += plain.low <= 0.004 <= plain.high
    assert ours > 367
    assert ours >= normal
