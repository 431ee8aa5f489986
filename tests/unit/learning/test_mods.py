"""Clipping, noise, quantisation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.learning import (
    Array,
    ClipUpdate,
    GaussianNoise,
    Params,
    Quantise,
    StepContext,
    UpdateResult,
    compose,
)


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
    """All arrays share one norm; clipping each apart, a named mutant, would leave it longer."""
    result = ClipUpdate(0.5)(before(), after(3.0), context())
    assert distance(result.params, before()) == pytest.approx(0.5, abs=1e-6)
    assert result.params["weight"] - 1 == pytest.approx((after(3.0).params["weight"] - 1) / 6, abs=1e-6)
    assert result.params["weight"].dtype == np.float32
    assert (result.num_examples, result.metrics) == (5, {"loss": 1.0})
    apart = [
        ClipUpdate(0.5)({n: before()[n]}, UpdateResult(params={n: after(3.0).params[n]}, num_examples=1), context())
        for n in before()
    ]
    assert distance({n: r.params[n] for r in apart for n in r.params}, before()) > 0.6


def test_a_short_difference_is_left_as_it_is() -> None:
    """Bit for bit."""
    result = after(0.4)
    assert ClipUpdate(0.5)(before(), result, context()) is result


def test_noise_has_the_deviation_asked_for_on_every_number() -> None:
    """Also on arrays that did not change; half the deviation, a named mutant, is told apart."""
    start = {"weight": np.zeros(20_000), "still": np.zeros(20_000)}
    moved = UpdateResult(params={"weight": np.full(20_000, 1e-3), "still": np.zeros(20_000)}, num_examples=1)
    noisy = GaussianNoise(2.0, 0.5)(start, moved, context()).params
    for name, middle in (("weight", 1e-3), ("still", 0.0)):
        drawn = noisy[name] - middle
        assert stats.kstest(drawn, "norm", args=(0, 1.0)).pvalue > 1e-6
        assert stats.kstest(drawn, "norm", args=(0, 0.5)).pvalue < 1e-6
    assert abs(np.corrcoef(noisy["weight"], noisy["still"])[0, 1]) < 0.03


def test_noise_comes_from_the_stream_of_the_node() -> None:
    """Same stream, same bits."""
    mod = GaussianNoise(1.0, 0.5)
    one, two, other = (mod(before(), after(3.0), context(seed)).params["weight"] for seed in (0, 0, 1))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("size", [3.0, 0.4, np.inf, np.nan])
def test_noise_clips_in_double_precision_and_refuses_nothing(size: float) -> None:
    """Exactly ``max_norm`` of a longer difference is left, and nothing of one that is not finite."""
    noise = task_generator(0).standard_normal(15)
    noisy = GaussianNoise(1.0, 0.5)(before(), after(size), context()).params
    clipped = np.concatenate([(noisy[name].astype(np.float64) - before()[name]).ravel() for name in before()])
    left = {3.0: 0.5, 0.4: 0.4}.get(size, 0.0)
    assert np.linalg.norm(clipped - 0.5 * noise) == pytest.approx(left, abs=1e-6)


def test_what_a_model_in_its_own_type_cannot_hold_is_noised_all_the_same() -> None:
    """Near 1000 a float16 has steps of a half; the update is shorter, and the noise has its size."""
    start = {"weight": np.full(10_000, 1000.0, dtype=np.float16)}
    moved = UpdateResult(params={"weight": start["weight"] + np.float16(0.5)}, num_examples=1)
    noisy = GaussianNoise(4.0, 0.5)(start, moved, context()).params["weight"]
    assert np.std(noisy.astype(np.float64) - 1000.0) == pytest.approx(2.0, rel=0.05)


def test_a_composed_mod_counts_as_its_parts() -> None:
    """Whatever it is composed with."""
    nested = compose([compose([GaussianNoise(1.0, 0.5)]), Quantise(8)])
    assert [type(mod).__name__ for mod in nested.mods] == ["GaussianNoise", "Quantise"]


def test_what_noise_cannot_cover_stays_as_it_was() -> None:
    """A counter that the update moved would tell of it."""
    start: dict[str, Array] = {"weight": np.zeros(2, dtype=np.float32), "count": np.array(3)}
    moved = UpdateResult(params={"weight": np.zeros(2, dtype=np.float32), "count": np.array(4)}, num_examples=1)
    assert GaussianNoise(1.0, 0.5)(start, moved, context()).params["count"] == 3
    assert ClipUpdate(0.5)(start, moved, context()).params["count"] == 4


def test_quantising_leaves_few_values_and_small_errors() -> None:
    """At most 2^bits - 1 levels, each within half a step; stochastic rounding keeps the mean."""
    rng = task_generator(1)
    start = {"weight": np.zeros(5000)}
    moved = UpdateResult(params={"weight": rng.uniform(-1, 1, 5000)}, num_examples=1)
    near = Quantise(3)(start, moved, context()).params["weight"]
    step = np.abs(moved.params["weight"]).max() / 3
    assert len(np.unique(np.rint(near / step))) == 7
    assert np.abs(near - moved.params["weight"]).max() <= step / 2 + 1e-12
    drawn = np.mean(
        [Quantise(3, stochastic=True)(start, moved, context(s)).params["weight"] for s in range(200)], axis=0
    )
    assert np.abs(drawn - moved.params["weight"]).mean() < 0.1 * np.abs(near - moved.params["weight"]).mean() + 0.02


def test_quantising_nothing_changes_nothing() -> None:
    """Zero is a level."""
    result = Quantise(2)(before(), UpdateResult(params=before(), num_examples=1), context())
    assert all(np.array_equal(result.params[name], before()[name]) for name in before())


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: ClipUpdate(0), "max_norm"),
        (lambda: GaussianNoise(0, 1), "multiplier"),
        (lambda: GaussianNoise(1, np.inf), "max_norm"),
        (lambda: Quantise(1), "bits"),
        (lambda: Quantise(17), "bits"),
    ],
)
def test_bad_parameters_are_refused_by_name(make: object, name: str) -> None:
    """One line that names the parameter."""
    with pytest.raises(InvalidParameterError, match=f"^{name} = "):
        make()  # type: ignore[operator]
