"""How models travel: what each form does to numbers, how long it is, and what rounding may not do."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.payload import PAYLOADS, array_bytes, as_received, check_payload, decoded, encoded, rounding
from veilwalk.learning import update_generator

ARRAYS = hnp.arrays(
    st.sampled_from([np.float16, np.float32, np.float64, np.int64]),
    hnp.array_shapes(min_dims=0, max_dims=3, max_side=9),
    elements=st.integers(-60, 60),
)


def there_and_back(payload: str, array: Any, seed: int | None = None) -> Any:
    draws = None if seed is None else rounding(payload, seed=seed, updates=1)
    return decoded(payload, encoded(payload, array, draws).data, array.shape, array.dtype)


def test_one_byte_each_written_out_by_hand() -> None:
    """A block of 127, -64 and 0.5 times 2**-3, one of zeros and of 3: exponents first, each the least that will do."""
    array = np.zeros((2, 32), "<f4")
    array[0, :3] = np.array([127.0, -64.0, 0.5]) / 8
    array[1, 31] = 3.0
    data = encoded("int8-nearest", array).tobytes()
    # 3 = 96 * 2**-5; half a step goes to the even one.
    assert data[:2] == bytes([127 - 3, 127 - 5])
    assert data[2:5] == bytes([127, 256 - 64, 0])
    assert data[5:65] == bytes(60)
    assert data[-1] == 96
    back = decoded("int8-nearest", memoryview(data), (2, 32), "<f4")
    assert back[0, :3].tolist() == [127 / 8, -8.0, 0.0]
    assert back[1, 31] == 3.0


@settings(max_examples=80, deadline=None)
@given(array=ARRAYS, payload=st.sampled_from(sorted(PAYLOADS)), scale=st.floats(1e-3, 8))
def test_length_form_and_rounding_twice(array: Any, payload: str, scale: float) -> None:
    """The length is as foretold; shape and type come back; what was decoded is encoded without another loss."""
    array = (array * scale).astype(array.dtype)
    data = encoded(payload, array, rounding(payload, seed=3, updates=1))
    assert data.size == array_bytes(payload, array.shape, array.dtype)
    once = decoded(payload, data.data, array.shape, array.dtype)
    assert (once.shape, once.dtype) == (array.shape, array.dtype)
    again = encoded(payload, once, rounding(payload, seed=4, updates=9))
    assert again.tobytes() == data.tobytes()
    largest = float(np.abs(array).max(initial=0))
    exact = payload == "fp32" or array.dtype.kind == "i" or (array.ndim < 2 and payload != "fp16")
    # A step is at most 1/63.5 of the largest of its block; half precision has eleven digits.
    share = 0 if exact else 2.0**-11 if payload == "fp16" else 1 / 63.5
    assert np.abs(once.astype(np.float64) - array).max(initial=0) <= share * largest + 2.0**-25 * (not exact)


def test_random_rounding_is_right_on_average_and_the_nearest_is_not() -> None:
    """A fifth of a step survives among 4000 numbers within 5 deviations; the nearest loses it all."""
    array = np.full((1000, 32), 64.2, np.float64)
    array[:, 0] = 127.0
    deviation = np.sqrt(0.2 * 0.8 / (1000 * 31))
    found = there_and_back("int8", array, seed=5)[:, 1:].mean()
    assert abs(found - 64.2) < 5 * deviation
    assert abs(there_and_back("int8-nearest", array)[:, 1:].mean() - 64.2) > 50 * deviation


def test_draws_are_those_of_the_run_and_the_age_and_of_nobody() -> None:
    """The same for whoever rounds; others after another update, and for another run."""
    params = {"w": np.random.default_rng(0).normal(size=(40, 50)).astype(np.float32), "b": np.array([0.1], np.float32)}
    one, two = (as_received("int8", params, seed=1, updates=7) for _ in range(2))
    assert np.array_equal(one["w"], two["w"])
    assert np.array_equal(one["b"], params["b"])
    assert not np.array_equal(one["w"], as_received("int8", params, seed=1, updates=8)["w"])
    assert not np.array_equal(one["w"], as_received("int8", params, seed=2, updates=7)["w"])
    assert as_received("fp32", params, seed=1, updates=7) is params


def test_dice_of_the_maker_s_own_would_name_it() -> None:
    """Who knows the model before sees how numbers that were not trained were rounded: only one candidate's draws fit.

    With those of run and age all candidates fit alike.
    """
    before = there_and_back("int8", np.random.default_rng(4).normal(size=(20, 32)), seed=1)
    after = before.copy()
    # One number of each block grows, and the step of its block with it: all others are rounded anew.
    after[:, 0] = 5.0

    def fitting(draws_of: Any, maker: int) -> list[int]:
        sent = encoded("int8", after, draws_of(maker)).tobytes()
        # The attacker puts in what it sees of the trained ones, and knows the rest.
        return [node for node in range(12) if encoded("int8", after, draws_of(node)).tobytes() == sent]

    assert fitting(lambda node: update_generator(9, node, 3), maker=7) == [7]
    assert fitting(lambda node: rounding("int8", seed=9, updates=40), maker=7) == list(range(12))  # noqa: ARG005


def test_a_number_that_did_not_move_stays_though_others_grow() -> None:
    """The step of a block is a power of two: it changes seldom, and nothing is rounded anew until it does."""
    before = there_and_back("int8", np.random.default_rng(1).normal(size=(8, 32)), seed=1)
    after = before.copy()
    after[:, 0] += 0.01
    assert np.array_equal(there_and_back("int8", after, seed=2)[:, 1:], before[:, 1:])


@pytest.mark.parametrize("payload", ["fp16", "int8", "int8-nearest"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_what_has_no_number_stays_none(payload: str, value: float) -> None:
    """NaN, infinity and what is too large do not come back as something that looks well."""
    array = np.ones((4, 40))
    array[2, 3] = value
    with np.errstate(invalid="ignore"):
        assert not np.isfinite(there_and_back(payload, array, seed=1)).all()


def test_any_bytes_are_numbers() -> None:
    """A peer may send what it likes: it is read as numbers, of the shape that was agreed, and in little memory."""
    rng = np.random.default_rng(2)
    for payload in PAYLOADS:
        data = rng.bytes(array_bytes(payload, (7, 33), "<f4"))
        found = decoded(payload, memoryview(data), (7, 33), "<f4")
        assert (found.shape, found.dtype) == ((7, 33), np.dtype(np.float32))
    size = 1 << 21
    data = bytes(array_bytes("int8", (size // 64, 64), "<f4"))
    tracemalloc.start()
    try:
        decoded("int8", memoryview(data), (size // 64, 64), "<f4")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * size + (2 << 20)


def test_another_payload_is_refused() -> None:
    """By name."""
    with pytest.raises(InvalidParameterError, match=r"^payload = 'int4'"):
        check_payload("int4")
