"""Clipping and noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.learning import (
    Array,
    Params,
    Protection,
    StepContext,
    UpdateResult,
)
from veilwalk.learning._contract import shrink_change


def context(seed: int = 0) -> StepContext:
    return StepContext(rng=task_generator(seed), step=0)


def before() -> dict[str, Array]:
    return {"weight": np.ones((3, 4), dtype=np.float32), "bias": np.full(3, 2.0, dtype=np.float32)}


def after(size: float) -> UpdateResult:
    """A model ``size`` away from ``before``: 15 numbers, each moved alike."""
    moved = {name: (value + size / 15**0.5).astype(np.float32) for name, value in before().items()}
    return UpdateResult(params=moved, num_examples=5, metrics={"loss": 1.0})


def distance(one: Params, two: Params) -> float:
    return float(np.sqrt(sum(np.sum((one[name].astype(np.float64) - two[name]) ** 2) for name in one)))


def test_clipping_bounds_the_whole_difference_and_keeps_its_direction() -> None:
    """All arrays share one norm; clipping each array, a named mutant, would leave it longer."""
    result = Protection(clip=0.5)(before(), after(3.0), context())
    assert distance(result.params, before()) == pytest.approx(0.5, abs=1e-6)
    assert result.params["weight"] - 1 == pytest.approx((after(3.0).params["weight"] - 1) / 6, abs=1e-6)
    assert result.params["weight"].dtype == np.float32
    assert (result.num_examples, result.metrics) == (5, {"loss": 1.0})
    apart = [
        Protection(clip=0.5)(
            {n: before()[n]}, UpdateResult(params={n: after(3.0).params[n]}, num_examples=1), context()
        )
        for n in before()
    ]
    assert distance({n: r.params[n] for r in apart for n in r.params}, before()) > 0.6


def test_a_short_difference_is_left_as_it_is() -> None:
    """Bit for bit."""
    result = after(0.4)
    assert Protection(clip=0.5)(before(), result, context()) is result


def test_noise_has_the_deviation_asked_for_on_every_number() -> None:
    """Also on arrays that did not change; half the deviation, a named mutant, is told apart."""
    start = {"weight": np.zeros(20_000), "still": np.zeros(20_000)}
    moved = UpdateResult(params={"weight": np.full(20_000, 1e-3), "still": np.zeros(20_000)}, num_examples=1)
    noisy = Protection(clip=0.5, noise=2.0)(start, moved, context()).params
    for name, middle in (("weight", 1e-3), ("still", 0.0)):
        drawn = noisy[name] - middle
        assert stats.kstest(drawn, "norm", args=(0, 1.0)).pvalue > 1e-6
        assert stats.kstest(drawn, "norm", args=(0, 0.5)).pvalue < 1e-6
    assert abs(np.corrcoef(noisy["weight"], noisy["still"])[0, 1]) < 0.03


def test_noise_comes_from_the_stream_of_the_node() -> None:
    """Same stream, same bits."""
    mod = Protection(clip=0.5, noise=1.0)
    one, two, other = (mod(before(), after(3.0), context(seed)).params["weight"] for seed in (0, 0, 1))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("size", [3.0, 0.4, np.inf, np.nan])
def test_noise_clips_in_double_precision_and_refuses_nothing(size: float) -> None:
    """Exactly ``max_norm`` of a longer difference is left, and nothing of one that is not finite."""
    noise = task_generator(0).standard_normal(15)
    noisy = Protection(clip=0.5, noise=1.0)(before(), after(size), context()).params
    clipped = np.concatenate([(noisy[name].astype(np.float64) - before()[name]).ravel() for name in before()])
    left = {3.0: 0.5, 0.4: 0.4}.get(size, 0.0)
    assert np.linalg.norm(clipped - 0.5 * noise) == pytest.approx(left, abs=1e-6)


def test_what_a_model_in_its_own_type_cannot_hold_is_noised_all_the_same() -> None:
    """Near 1000 a float16 has steps of a half; the update is shorter, and the noise has its size."""
    start = {"weight": np.full(10_000, 1000.0, dtype=np.float16)}
    moved = UpdateResult(params={"weight": start["weight"] + np.float16(0.5)}, num_examples=1)
    noisy = Protection(clip=0.5, noise=4.0)(start, moved, context()).params["weight"]
    assert np.std(noisy.astype(np.float64) - 1000.0) == pytest.approx(2.0, rel=0.05)


def test_decay_follows_the_noise_and_ends_in_nothing() -> None:
    """Half the noisy difference at half the age, none at the end; what it would have been is rounded in between."""
    noisy = Protection(clip=0.5, noise=1.0)(before(), after(3.0), context()).params["weight"]
    mod = Protection(clip=0.5, noise=1.0, decay=8)
    for age, share in ((0, 1.0), (4, 0.5), (8, 0.0), (9, 0.0)):
        ctx = StepContext(rng=task_generator(0), step=0, age=age)
        changed = mod(before(), after(3.0), ctx).params["weight"]
        assert changed == pytest.approx(1 + share * (noisy - 1), abs=1e-6)
    assert Protection().mod() is None
    assert Protection(clip=1.0, rows=3).mod() is None


def test_without_a_known_end_updates_fade() -> None:
    """Whole in a new model, half at the age of ``fade``, a third at twice that; counts are not made smaller."""
    start: dict[str, Array] = {"weight": np.ones(3, dtype=np.float32), "count": np.array(3)}
    moved = UpdateResult(params={"weight": np.full(3, 4, dtype=np.float32), "count": np.array(5)}, num_examples=1)
    for age, share in ((0, 1.0), (10, 1 / 2), (20, 1 / 3), (30, 1 / 4)):
        ctx = StepContext(rng=task_generator(0), step=0, age=age)
        changed = Protection(fade=10)(start, moved, ctx).params
        assert changed["weight"] == pytest.approx(1 + 3 * share)
        assert changed["count"] == 5
        assert changed["weight"].dtype == np.float32


def test_what_noise_cannot_cover_stays_as_it_was() -> None:
    """A counter that the update moved would tell of it."""
    start: dict[str, Array] = {"weight": np.zeros(2, dtype=np.float32), "count": np.array(3)}
    moved = UpdateResult(params={"weight": np.zeros(2, dtype=np.float32), "count": np.array(4)}, num_examples=1)
    assert Protection(clip=0.5, noise=1.0)(start, moved, context()).params["count"] == 3
    assert Protection(clip=0.5)(start, moved, context()).params["count"] == 4


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Protection(clip=-1), "clip"),
        (lambda: Protection(clip=np.inf, noise=1), "clip"),
        (lambda: Protection(noise=1), "noise"),
        (lambda: Protection(decay=-1), "decay"),
        (lambda: Protection(fade=-1), "fade"),
    ],
)
def test_bad_parameters_are_refused_by_name(make: object, name: str) -> None:
    """One line that names the parameter."""
    with pytest.raises(InvalidParameterError, match=f"^{name} = "):
        make()  # type: ignore[operator]


def test_a_large_array_moves_as_a_small_one_does() -> None:
    """Numbers are moved some after the other; each comes out as if all were moved at once, rounded once."""
    rng = np.random.default_rng(1)
    before, after = ({"w": rng.standard_normal((5, 7001)).astype(np.float32)} for _ in range(2))
    moved = shrink_change(before, after, 0.37)["w"]
    exact = before["w"] + 0.37 * np.subtract(after["w"], before["w"], dtype=np.float64)
    assert moved.tobytes() == exact.astype(np.float32).tobytes()
