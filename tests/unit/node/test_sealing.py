"""What is sealed opens, shows nothing of itself, and bad wishes are named."""

from __future__ import annotations

import os
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.helpers.sealing import SMALL, THREE_CHUNKS, make_context, make_key, opened, sealed

from veilwalk.core.errors import CryptoError, InvalidParameterError
from veilwalk.core.geometry import CHUNK_BYTES, CLEAR_BYTES, SMALLEST_BUCKET
from veilwalk.node.sealing._body import LARGEST_BUCKET, bucket_bytes_of, bucket_code, bucket_for
from veilwalk.node.sealing._envelope import (
    Header,
    open_body,
    open_header,
    seal,
    seal_into,
)
from veilwalk.node.sealing._kem import (
    Suite,
)


@pytest.mark.parametrize("suite", Suite)
@pytest.mark.parametrize("length", [0, 1, SMALL - 1, SMALL])
def test_what_is_sealed_opens(suite: Suite, length: int) -> None:
    """Header and body come back, whatever the length, and every message has the one length."""
    context, (public, private) = make_context(suite), make_key(suite)
    body = os.urandom(length)
    message = sealed(context, public, body, final=True, update_id=b"u" * 16)
    assert type(message) is bytes
    assert len(message) == context.message_bytes
    found = opened(context, private, message)
    assert found.header == Header(
        update_id=b"u" * 16, walk_tag=b"walk-tag", iteration=5, body_length=length, final=True
    )
    assert open_body(found, message) == body


@settings(max_examples=30, deadline=None)
@given(length=st.integers(0, THREE_CHUNKS), final=st.booleans(), iteration=st.integers(0, 2**32 - 1))
def test_buffers_hold_the_same_message(length: int, final: bool, iteration: int) -> None:
    """Sealed into a buffer, at any length over several chunks; a buffer may be used again."""
    context, (public, private) = make_context(bucket_bytes=THREE_CHUNKS), make_key()
    body = os.urandom(length)
    header = Header(update_id=os.urandom(16), walk_tag=bytes(8), iteration=iteration, body_length=length, final=final)
    message = bytearray(os.urandom(context.message_bytes))
    for _ in range(2):
        seal_into(context, [public], header, memoryview(body), message)
        found = opened(context, private, bytes(message))
        assert found.header == header
        assert open_body(found, message) == body


def test_a_hundred_mebibytes_without_a_second_copy() -> None:
    """Sealing into a buffer allocates one chunk at most; opening allocates the body and a chunk."""
    size = 100 * 1024 * 1024
    context, (public, private) = make_context(Suite.HYBRID, bucket_for(size)), make_key(Suite.HYBRID)
    assert context.bucket_bytes == size
    body = os.urandom(1024 * 1024) * 100
    header = Header(update_id=bytes(16), walk_tag=bytes(8), iteration=0, body_length=size)
    message = bytearray(context.message_bytes)
    tracemalloc.start()
    try:
        seal_into(context, [public], header, body, message)
        sealing = tracemalloc.get_traced_memory()[1]
        found = open_header(context, private, message)
        assert found is not None
        tracemalloc.reset_peak()
        result = open_body(found, message)
        opening = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result == body
    assert sealing < 4 * CHUNK_BYTES
    assert opening < size + 4 * CHUNK_BYTES
    message[-1] ^= 1
    with pytest.raises(CryptoError):
        open_body(found, message)


def test_two_seals_of_one_body_share_nothing_but_the_clear_bytes() -> None:
    """Fresh keys each time: equal bodies, even to one member, do not look equal."""
    context, (public, private) = make_context(), make_key()
    one, other = sealed(context, public, b"same"), sealed(context, public, b"same")
    assert one[:CLEAR_BYTES] == other[:CLEAR_BYTES]
    assert sum(a == b for a, b in zip(one[CLEAR_BYTES:], other[CLEAR_BYTES:], strict=True)) < len(one) / 64
    assert opened(context, private, one).key != opened(context, private, other).key
    assert opened(context, private, one).header.update_id != opened(context, private, other).header.update_id


@pytest.mark.parametrize("suite", Suite)
def test_a_message_does_not_show_for_whom_it_is(suite: Suite) -> None:
    """Same length and clear bytes for all, no trace of the key, and bytes that look alike for two members."""
    context = make_context(suite)
    publics = [make_key(suite)[0] for _ in range(2)]
    messages = [[sealed(context, public, b"body") for _ in range(150)] for public in publics]
    flat = [message for group in messages for message in group]
    assert {len(message) for message in flat} == {context.message_bytes}
    assert {message[:CLEAR_BYTES] for message in flat} == {context.clear}
    for public, group in zip(publics, messages, strict=True):
        for at in range(0, len(public) - 8, 8):
            assert public[at : at + 8] not in group[0]
    heads = [
        np.frombuffer(b"".join(m[CLEAR_BYTES : context.geometry.head_bytes] for m in group), np.uint8)
        for group in messages
    ]
    counts = np.array([np.bincount(head, minlength=256) for head in heads])
    assert stats.chi2_contingency(counts).pvalue > 1e-9
    # Named mutant: a message that carries 32 bytes of its recipient's key.
    marked = counts + np.array(
        [np.bincount(np.frombuffer(public[-32:] * 150, np.uint8), minlength=256) for public in publics]
    )
    assert stats.chi2_contingency(marked).pvalue < 1e-9


def test_the_bytes_of_a_message_are_uniform() -> None:
    """Chi-square over a body of zeros and over one of text; padding left in clear would fail by far."""
    context, (public, _) = make_context(Suite.HYBRID, THREE_CHUNKS), make_key(Suite.HYBRID)
    for body in (b"", b"all work and no play " * 1000):
        message = sealed(context, public, body)
        counts = np.bincount(np.frombuffer(message, np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-9
        mutant = message[: -4 * 1024] + bytes(4 * 1024)
        assert stats.chisquare(np.bincount(np.frombuffer(mutant, np.uint8), minlength=256)).pvalue < 1e-9


def test_reprs_hold_no_key_and_name_no_walk() -> None:
    """What may end up in a log."""
    context, (public, private) = make_context(), make_key()
    found = opened(
        context, private, sealed(context, public, b"body", walk_tag=b"secretag", update_id=b"secret-update-id")
    )
    text = repr(found)
    for secret in (found.key, b"secretag", b"secret-update-id"):
        assert repr(secret)[2:-1] not in text
        assert secret.hex() not in text


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"run_id": b"short"}, "run_id"),
        ({"epoch": -1}, "epoch"),
        ({"epoch": 1.5}, "epoch"),
        ({"bucket_bytes": SMALL + 1}, "bucket_bytes"),
        ({"bucket_bytes": LARGEST_BUCKET * 2}, "bucket_bytes"),
        ({"recipients": 0}, "recipients"),
        ({"recipients": 2**16}, "recipients"),
    ],
)
def test_a_bad_context_is_named(change: dict[str, Any], name: str) -> None:
    """One line with the parameter."""
    with pytest.raises(InvalidParameterError, match=f"^{name} = "):
        make_context(**change)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"walk_tag": b"short"}, "walk_tag"),
        ({"update_id": b"short"}, "update_id"),
        ({"iteration": -1}, "iteration"),
        ({"iteration": 2**32}, "iteration"),
        ({"body": bytes(SMALL + 1)}, "body"),
    ],
)
def test_a_bad_message_is_named(options: dict[str, Any], name: str) -> None:
    """One line with the parameter, and none of its bytes."""
    context, (public, _) = make_context(), make_key()
    settled: dict[str, Any] = {"walk_tag": bytes(8), "iteration": 0, "body": b""} | options
    with pytest.raises(InvalidParameterError, match=f"^{name} = "):
        seal(context, [public], **settled)


@pytest.mark.parametrize("suite", Suite)
def test_bad_public_keys_are_refused(suite: Suite) -> None:
    """Wrong length; points of low order, whose messages anybody could open; a lattice key out of range."""
    context, (public, _) = make_context(suite), make_key(suite)
    with pytest.raises(InvalidParameterError, match=r"^key = "):
        sealed(context, public[:-1], b"")
    for point in (bytes(32), bytes([1]) + bytes(31)):
        with pytest.raises(CryptoError, match=r"^a public key was refused$"):
            sealed(context, public[:-32] + point, b"")
    if suite is Suite.HYBRID:
        with pytest.raises(CryptoError):
            sealed(context, b"\xff" * 1184 + public[-32:], b"")


def test_a_buffer_of_the_wrong_length_is_refused() -> None:
    """Nothing is written beyond what was given, and nothing is cut off."""
    context, (public, _) = make_context(), make_key()
    header = Header(update_id=bytes(16), walk_tag=bytes(8), iteration=0, body_length=0)
    with pytest.raises(InvalidParameterError, match=r"^out = "):
        seal_into(context, [public], header, b"", bytearray(context.message_bytes - 1))
    with pytest.raises(InvalidParameterError, match=r"^body = "):
        seal_into(context, [public], header, b"not empty", bytearray(context.message_bytes))


def test_the_bucket_byte_and_the_size_stand_for_each_other() -> None:
    """320 sizes, growing, each with its own code."""
    sizes = [bucket_bytes_of(code) for code in range(320)]
    assert sizes == sorted(set(sizes))
    assert [bucket_code(size) for size in sizes] == list(range(320))
    assert (sizes[0], sizes[-1]) == (SMALLEST_BUCKET, LARGEST_BUCKET) == (1024, 992 * 1024 * 1024)


@given(length=st.integers(0, LARGEST_BUCKET))
def test_a_bucket_is_the_smallest_that_fits(length: int) -> None:
    """Nothing smaller holds the body, and at most a sixteenth is padding."""
    bucket = bucket_for(length)
    code = bucket_code(bucket)
    assert bucket >= length
    assert code == 0 or bucket_bytes_of(code - 1) < length
    assert code == 0 or bucket <= length * 17 / 16


@pytest.mark.parametrize("size", [-1, 0, 1, SMALL - 1, SMALL + 1, LARGEST_BUCKET + 1])
def test_other_sizes_are_no_buckets(size: int) -> None:
    """A bucket outside the ladder has no byte on the wire."""
    with pytest.raises(InvalidParameterError, match=r"^bucket_bytes = "):
        bucket_code(size)


@pytest.mark.parametrize("length", [-1, LARGEST_BUCKET + 1])
def test_bodies_beyond_every_bucket_are_refused(length: int) -> None:
    """The largest bucket is 992 MiB."""
    with pytest.raises(InvalidParameterError, match=r"^body_bytes = "):
        bucket_for(length)
