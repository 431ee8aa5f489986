"""Models on the wire: raw arrays, checked before use; nothing in them is ever executed."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.helpers.manifests import make_test_manifest

from veilwalk.core.errors import InputFileError, InvalidParameterError, ProtocolError, TrainingError
from veilwalk.core.payload import as_received
from veilwalk.node.members._encoding import decode_params, encode_params, params_norm
from veilwalk.node.members._manifest import Manifest


def manifest_for(params: dict[str, Any], norm_bound: float = 1e300, payload: str = "fp32") -> Manifest:
    return make_test_manifest(params, norm_bound=norm_bound, spec={"payload": payload})


def test_the_bytes_are_the_arrays_in_order() -> None:
    """Little-endian, row by row, one behind the other: written out by hand."""
    params = {"w": np.array([[1.0, -2.0], [0.5, 0.0]], np.float32), "n": np.array([258], np.int32)}
    data = encode_params(manifest_for(params), params)
    assert data.hex() == "0000803f" + "000000c0" + "0000003f" + "00000000" + "02010000"


def test_the_manifest_s_order_counts_not_the_mapping_s() -> None:
    """A learner may hand back its arrays in any order."""
    params = {"a": np.ones(2), "b": np.zeros(3)}
    manifest = manifest_for(params)
    turned = {"b": params["b"], "a": params["a"]}
    assert encode_params(manifest, turned) == encode_params(manifest, params)
    assert list(decode_params(manifest, encode_params(manifest, turned))) == ["a", "b"]


@settings(max_examples=60, deadline=None)
@given(
    arrays=st.lists(
        hnp.arrays(
            st.sampled_from([np.float16, np.float32, np.float64, np.int32, np.int64]),
            hnp.array_shapes(min_dims=0, max_dims=3, max_side=5),
            elements=st.integers(-100, 100),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_what_is_encoded_comes_back(arrays: list[Any]) -> None:
    """Values, shapes and types of any mixture; arrays are read-only and aligned."""
    params = {f"p{index}": array for index, array in enumerate(arrays)}
    manifest = manifest_for(params)
    data = encode_params(manifest, params)
    assert len(data) == manifest.body_bytes
    found = decode_params(manifest, data)
    for name, array in params.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
        assert found[name].shape == array.shape
        assert found[name].flags.aligned
        assert not found[name].flags.writeable


def test_layout_and_byte_order_of_the_maker_do_not_show() -> None:
    """Fortran order, strides and big-endian give the same bytes."""
    plain = np.arange(12, dtype=np.float64).reshape(3, 4)
    manifest = manifest_for({"w": plain})
    for other in (np.asfortranarray(plain), plain.astype(">f8"), np.repeat(plain, 2, axis=1)[:, ::2]):
        assert encode_params(manifest, {"w": other}) == encode_params(manifest, {"w": plain})


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"w": np.zeros(3), "extra": np.zeros(1)},
        {"v": np.zeros(3)},
        {"w": np.zeros(4)},
        {"w": np.zeros((3, 1))},
        {"w": np.zeros(3, np.float32)},
        {"w": np.zeros(3, np.int64)},
        {"w": np.array([None, 1, 2])},
    ],
)
def test_a_model_of_another_form_is_not_sent(params: dict[str, Any]) -> None:
    """Missing, unknown, misshapen, of another type."""
    with pytest.raises(InvalidParameterError):
        encode_params(manifest_for({"w": np.zeros(3)}), params)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_both_ways(dtype: Any, value: float) -> None:
    """NaN and infinities, wherever they stand, neither leave a node nor enter one."""
    for at in (0, 70_000, 99_999):
        params = {"w": np.zeros(100_000, dtype), "b": np.zeros(1, dtype)}
        params["w"][at] = value
        manifest = manifest_for(params)
        with pytest.raises(TrainingError, match="must be finite"):
            encode_params(manifest, params)
        with pytest.raises(ProtocolError, match="not finite"):
            decode_params(manifest, params["w"].tobytes() + params["b"].tobytes())


def test_the_norm_is_bounded_both_ways() -> None:
    """At the bound a model passes, above it none does; the norm is over all arrays together."""
    params = {"w": np.full(9, 3.0, np.float32), "b": np.full(1, 40.0)}
    assert params_norm(params) == 41.0
    data = encode_params(manifest_for(params, norm_bound=41.0), params)
    assert decode_params(manifest_for(params, norm_bound=41.0), data)
    tight = manifest_for(params, norm_bound=40.999)
    with pytest.raises(TrainingError, match=r"^the norm of the model is 41: must be finite and <= 40.999"):
        encode_params(tight, params)
    with pytest.raises(ProtocolError):
        decode_params(tight, data)


def test_the_norm_does_not_overflow_or_lose_digits() -> None:
    """Half precision beyond its range, and many small values beside a large one."""
    assert params_norm({"w": np.full(10_000, 60_000, np.float16)}) == pytest.approx(
        float(np.float16(60_000)) * 100, rel=1e-12
    )
    assert params_norm({"w": np.array([1e200])}) == np.inf
    assert params_norm({"w": np.full(200_000, 1e-3, np.float32)}) == pytest.approx(
        float(np.float32(1e-3)) * np.sqrt(200_000), rel=1e-9
    )


@pytest.mark.parametrize("length", [0, 23, 25, 1000])
def test_other_lengths_are_refused(length: int) -> None:
    """The length is the manifest's, to the byte."""
    with pytest.raises(ProtocolError, match=f"a model has {length} bytes: the manifest says 24"):
        decode_params(manifest_for({"w": np.zeros(3)}), bytes(length))


def test_pickles_are_numbers_here() -> None:
    """Bytes that would run code elsewhere are read as the numbers they are, or refused."""

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (exec, ("raise SystemExit",))

    data = pickle.dumps(Trap())
    manifest = manifest_for({"w": np.zeros(len(data) // 4 + 1, np.int32)})
    found = decode_params(manifest, data.ljust(manifest.body_bytes, b"\0"))
    assert found["w"].tobytes().startswith(data)


def test_decoding_copies_nothing() -> None:
    """The arrays of an aligned model share the memory of the body."""
    params = {"w": np.zeros((4096, 1024), np.float32)}
    manifest = manifest_for(params)
    data = encode_params(manifest, params)
    tracemalloc.start()
    try:
        found = decode_params(manifest, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.shares_memory(found["w"], np.frombuffer(data, np.uint8))
    assert peak < 2 * 1024 * 1024


@pytest.mark.parametrize("payload", ["fp16", "int8", "int8-nearest"])
def test_a_smaller_form_is_what_the_simulator_rounds_to(payload: str) -> None:
    """As long as the manifest says, the same bits as a simulated run, and passed on without another change."""
    rng = np.random.default_rng(3)
    params: dict[str, Any] = {
        "w": rng.normal(size=(30, 45)).astype(np.float32),
        "b": rng.normal(size=30),
        "n": np.array([7]),
    }
    manifest = manifest_for(params, payload=payload)
    data = encode_params(manifest, params, updates=12)
    assert len(data) == manifest.body_bytes < sum(array.nbytes for array in params.values())
    expected = as_received(payload, params, seed=manifest.spec.seed, updates=12)
    found = decode_params(manifest, data)
    for name, array in expected.items():
        assert np.array_equal(found[name], array)
        assert found[name].dtype == params[name].dtype
        assert not found[name].flags.writeable
    assert encode_params(manifest, found) == data


@pytest.mark.parametrize("payload", ["fp16", "int8"])
def test_a_smaller_form_is_checked_as_it_will_be_found(payload: str) -> None:
    """What does not fit the form is not sent; bytes that say no number are refused, and so are other lengths."""
    params = {"w": np.zeros((4, 32))}
    manifest = manifest_for(params, payload=payload)
    params["w"][1, 2] = 1e60
    with pytest.raises(TrainingError, match="must be finite"):
        encode_params(manifest, params)
    with pytest.raises(ProtocolError, match="not finite"):
        decode_params(manifest, b"\xff" * manifest.body_bytes)
    with pytest.raises(ProtocolError, match="bytes: the manifest says"):
        decode_params(manifest, bytes(manifest.body_bytes + 1))


def test_the_norm_is_that_of_what_arrives() -> None:
    """Rounded up, a model may be longer than it was, and nobody would take it."""
    params = {"w": np.full((4, 32), 100.6)}
    assert 1138 < params_norm(params) < 1140 < 101 * np.sqrt(128)
    assert encode_params(manifest_for(params, norm_bound=1140), params)
    with pytest.raises(TrainingError, match=r"the norm of the model is 1142\.68"):
        encode_params(manifest_for(params, norm_bound=1140, payload="int8"), params)


def test_the_manifest_says_the_payload() -> None:
    """Nodes count the bytes of a message by it."""
    small = manifest_for({"w": np.zeros((4, 32), np.float32)}, payload="int8")
    assert Manifest.parse(small.data, "m") == small
    assert small.body_bytes == 4 * 32 + 4
    with pytest.raises(InputFileError, match="payload"):
        Manifest.parse(small.data.replace(b"int8", b"int4"), "m")
