"""Sealed messages: what opens, what does not, and what they give away."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from veilwalk.core.errors import CryptoError, InvalidParameterError
from veilwalk.core.geometry import CHUNK_BYTES, CLEAR_BYTES, HEADER_BYTES, SMALLEST_BUCKET
from veilwalk.node.sealing._body import LARGEST_BUCKET, bucket_bytes_of, bucket_code, bucket_for
from veilwalk.node.sealing._context import SealContext
from veilwalk.node.sealing._envelope import (
    Header,
    OpenedHeader,
    open_body,
    open_body_into,
    open_header,
    seal,
    seal_into,
)
from veilwalk.node.sealing._kem import (
    KemPrivateKey,
    Suite,
    kem_private_key,
    kem_public_bytes,
    kem_public_key,
    new_kem_secret,
)

SMALL = SMALLEST_BUCKET
THREE_CHUNKS = bucket_for(2 * CHUNK_BYTES + 1)


def make_context(suite: Suite = Suite.X25519, bucket_bytes: int = SMALL, **changes: Any) -> SealContext:
    fixed: dict[str, Any] = {"run_id": b"r" * 16, "epoch": 3}
    return SealContext(**(fixed | changes), suite=suite, bucket_bytes=bucket_bytes)


def make_key(suite: Suite = Suite.X25519) -> tuple[bytes, KemPrivateKey]:
    secret = new_kem_secret(suite)
    return kem_public_bytes(suite, secret), kem_private_key(suite, secret)


def sealed(context: SealContext, public: bytes, body: bytes, **options: Any) -> bytes:
    settled: dict[str, Any] = {"walk_tag": b"walk-tag", "iteration": 5} | options
    return seal(context, [public], **settled, body=body)


def opened(context: SealContext, private: KemPrivateKey, message: bytes) -> OpenedHeader:
    found = open_header(context, private, message)
    assert found is not None
    return found


# ---- round trips -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", Suite)
@pytest.mark.parametrize("length", [0, 1, SMALL - 1, SMALL])
def test_what_is_sealed_opens(suite: Suite, length: int) -> None:
    """Header and body come back, whatever the length, and every message has the one length."""
    context, (public, private) = make_context(suite), make_key(suite)
    body = os.urandom(length)
    message = sealed(context, public, body, dummy=True, update_id=b"u" * 16)
    assert type(message) is bytes
    assert len(message) == context.message_bytes
    found = opened(context, private, message)
    assert found.header == Header(
        update_id=b"u" * 16, walk_tag=b"walk-tag", iteration=5, body_length=length, dummy=True, final=False
    )
    assert open_body(found, message) == body


@settings(max_examples=30, deadline=None)
@given(length=st.integers(0, THREE_CHUNKS), final=st.booleans(), iteration=st.integers(0, 2**32 - 1))
def test_buffers_hold_the_same_message(length: int, final: bool, iteration: int) -> None:
    """Into a buffer and out of one, at any length over several chunks; a buffer may be used again."""
    context, (public, private) = make_context(bucket_bytes=THREE_CHUNKS), make_key()
    body = os.urandom(length)
    header = Header(update_id=os.urandom(16), walk_tag=bytes(8), iteration=iteration, body_length=length, final=final)
    message, out = bytearray(os.urandom(context.message_bytes)), bytearray(os.urandom(length))
    for _ in range(2):
        seal_into(context, [public], header, memoryview(body), message)
        found = opened(context, private, bytes(message))
        assert found.header == header
        open_body_into(found, message, memoryview(out))
        assert out == body == open_body(found, message)


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


# ---- what does not open ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipients", [1, 3])
@pytest.mark.parametrize("suite", Suite)
def test_every_bit_flip_of_the_head_is_refused(suite: Suite, recipients: int) -> None:
    """Clear bytes, hints, slots, also those of others, sealed header and its tag: each byte is bound."""
    context, (public, private) = make_context(suite, recipients=recipients), make_key(suite)
    message = bytearray(sealed(context, public, b"body"))
    for at in range(context.head_bytes):
        message[at] ^= 1 << at % 8
        assert open_header(context, private, message) is None, at
        message[at] ^= 1 << at % 8
    assert open_header(context, private, message) is not None


def test_every_bit_flip_of_a_body_is_refused() -> None:
    """Body, padding and tag of a chunk; the header still opens: the message belongs in quarantine."""
    context, (public, private) = make_context(), make_key()
    message = bytearray(sealed(context, public, os.urandom(1000)))
    found = opened(context, private, bytes(message))
    for at in range(context.head_bytes, len(message)):
        message[at] ^= 1 << at % 8
        with pytest.raises(CryptoError):
            open_body(found, message)
        message[at] ^= 1 << at % 8
    assert len(open_body(found, message)) == 1000


def chunk_spans(context: SealContext) -> list[slice]:
    step = CHUNK_BYTES + 16
    return [
        slice(at, min(at + step, context.message_bytes))
        for at in range(context.head_bytes, context.message_bytes, step)
    ]


def swapped(message: bytes, spans: list[slice]) -> bytes:
    return message[: spans[0].start] + message[spans[1]] + message[spans[0]] + message[spans[2].start :]


def repeated(message: bytes, spans: list[slice]) -> bytes:
    return message[: spans[1].start] + message[spans[0]] + message[spans[2].start :]


def flipped(chunk: int, place: Callable[[slice], int]) -> Callable[[bytes, list[slice]], bytes]:
    def change(message: bytes, spans: list[slice]) -> bytes:
        at = place(spans[chunk])
        return message[:at] + bytes([message[at] ^ 0x80]) + message[at + 1 :]

    return change


CHANGES: dict[str, Callable[[bytes, list[slice]], bytes]] = {
    "two chunks swapped": swapped,
    "a chunk repeated": repeated,
    "cut by one byte": lambda message, _: message[:-1],
    "cut by the last chunk": lambda message, spans: message[: spans[-1].start],
    "one byte longer": lambda message, _: message + b"\0",
    "one chunk longer": lambda message, spans: message + message[spans[-1]],
    "last chunk zero": lambda message, spans: message[: spans[-1].start] + bytes(len(message[spans[-1]])),
    "body empty": lambda message, spans: message[: spans[0].start],
} | {
    f"{where} of chunk {chunk}": flipped(chunk, place)
    for chunk in range(3)
    for where, place in {
        "first byte": lambda span: int(span.start),
        "last byte": lambda span: int(span.stop) - 17,
        "tag": lambda span: int(span.stop) - 1,
    }.items()
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_a_body_of_three_chunks_is_refused(change: str) -> None:
    """Each chunk stands in its place, and the last one is known to be last."""
    context, (public, private) = make_context(bucket_bytes=THREE_CHUNKS), make_key()
    message = sealed(context, public, os.urandom(2 * CHUNK_BYTES))
    found = opened(context, private, message)
    changed = CHANGES[change](message, chunk_spans(context))
    assert changed != message
    with pytest.raises(CryptoError, match=r"^the body of a message was refused$"):
        open_body(found, changed)


@pytest.mark.parametrize(
    ("index", "last", "refused"),
    [(2, 1, False), (2, 0, True), (1, 1, True), (3, 1, True)],
    ids=["as sealed", "last flag missing", "wrong index", "index beyond"],
)
def test_the_last_chunk_carries_its_flag_and_index(index: int, last: int, refused: bool) -> None:
    """Sealed anew with the right key but another nonce, a chunk is refused; the right nonce shows the test can pass."""
    context, (public, private) = make_context(bucket_bytes=THREE_CHUNKS), make_key()
    message = sealed(context, public, b"")
    found = opened(context, private, message)
    span = chunk_spans(context)[-1]
    plain = bytes(span.stop - span.start - 16)
    chunk = AESGCM(found.key).encrypt(index.to_bytes(11, "big") + bytes([last]), plain, None)
    changed = message[: span.start] + chunk
    if refused:
        with pytest.raises(CryptoError):
            open_body(found, changed)
    else:
        assert open_body(found, changed) == b""


@pytest.mark.parametrize("at", [4, 100, SMALL - 1])
def test_padding_that_is_not_zero_is_refused(at: int) -> None:
    """A body has one message form: no room for notes of a malicious sender behind it."""
    context, (public, private) = make_context(), make_key()
    message = sealed(context, public, b"body")
    found = opened(context, private, message)
    plain = bytearray(SMALL)
    plain[:4] = b"body"
    honest = AESGCM(found.key).encrypt(bytes(11) + b"\1", bytes(plain), None)
    assert open_body(found, message[: context.head_bytes] + honest) == b"body"
    plain[at] = 1
    noted = AESGCM(found.key).encrypt(bytes(11) + b"\1", bytes(plain), None)
    with pytest.raises(CryptoError):
        open_body(found, message[: context.head_bytes] + noted)


OTHER_CONTEXTS: dict[str, dict[str, Any]] = {
    "another run": {"run_id": b"s" * 16},
    "the next epoch": {"epoch": 4},
    "an epoch with the same byte": {"epoch": 3 + 256},
    "another bucket": {"bucket_bytes": bucket_bytes_of(1)},
    "another number of slots": {"recipients": 2},
}


@pytest.mark.parametrize("other", OTHER_CONTEXTS)
@pytest.mark.parametrize("suite", Suite)
def test_a_message_opens_in_its_own_context_only(suite: Suite, other: str) -> None:
    """Run, roster, epoch and bucket are bound, even when the clear bytes and the length are made to fit."""
    context, (public, private) = make_context(suite), make_key(suite)
    message = sealed(context, public, b"body")
    changed = replace(context, **OTHER_CONTEXTS[other])
    assert open_header(changed, private, message) is None
    fitted = (changed.clear + message[CLEAR_BYTES:]).ljust(changed.message_bytes, b"\0")
    assert open_header(changed, private, fitted) is None
    assert open_header(context, private, message) is not None


def test_the_suite_is_bound() -> None:
    """A header of one suite is no header of the other, nor is its key."""
    context, (public, _) = make_context(Suite.X25519), make_key(Suite.X25519)
    message = sealed(context, public, b"body")
    hybrid, (_, private) = make_context(Suite.HYBRID), make_key(Suite.HYBRID)
    fitted = (hybrid.clear + message[CLEAR_BYTES:]).ljust(hybrid.message_bytes, b"\0")
    assert open_header(hybrid, private, message) is None
    assert open_header(hybrid, private, fitted) is None


@pytest.mark.parametrize("suite", Suite)
def test_another_key_opens_nothing(suite: Suite) -> None:
    """For hybrid keys also one that shares half of itself with the right one."""
    context, secret = make_context(suite), new_kem_secret(suite)
    message = sealed(context, kem_public_bytes(suite, secret), b"body")
    assert open_header(context, make_key(suite)[1], message) is None
    if suite is Suite.HYBRID:
        other = new_kem_secret(suite)
        for half in (secret[:64] + other[64:], other[:64] + secret[64:]):
            assert open_header(context, kem_private_key(suite, half), message) is None


def crafted(context: SealContext, public: bytes, change: Callable[[bytearray], None]) -> bytes:
    """A message whose header a malicious sender filled in by hand."""
    plain = bytearray(HEADER_BYTES)
    plain[32:64] = os.urandom(32)
    change(plain)
    key = os.urandom(32)
    slot = context.suite.hpke.encrypt(bytes(32) + key, kem_public_key(context.suite, public), info=context.info)
    front = context.clear + slot
    return (front + AESGCM(key).encrypt(bytes(12), bytes(plain), front)).ljust(context.message_bytes, b"\0")


def put(at: int, value: bytes) -> Callable[[bytearray], None]:
    def change(plain: bytearray) -> None:
        plain[at : at + len(value)] = value

    return change


MALFORMED = {
    "commitment, first byte": put(0, b"\1"),
    "commitment, last byte": put(31, b"\1"),
    "unknown flag": put(80, b"\4"),
    "all flags": put(80, b"\xff"),
    "body longer than the bucket": put(93, (SMALL + 1).to_bytes(8, "big")),
    "body of 2^64 - 1": put(93, b"\xff" * 8),
    "reserved, first byte": put(201, b"\1"),
    "reserved, last byte": put(HEADER_BYTES - 1, b"\1"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_header_out_of_form_is_not_opened(case: str) -> None:
    """Sealed to the right key in the right context, and refused all the same; without the fault it opens."""
    context, (public, private) = make_context(), make_key()
    assert open_header(context, private, crafted(context, public, lambda _: None)) is not None
    assert open_header(context, private, crafted(context, public, MALFORMED[case])) is None


@settings(max_examples=200, deadline=None)
@given(message=st.binary(max_size=2000))
def test_garbage_is_refused_without_an_error(message: bytes) -> None:
    """Any bytes, of any length, and of the right length with the right start."""
    context, (_, private) = make_context(), make_key()
    assert open_header(context, private, message) is None
    assert open_header(context, private, (context.clear + message).ljust(context.message_bytes, b"\0")) is None


def test_a_trial_reads_the_head_only() -> None:
    """The header opens whatever the body holds: so a trial costs the same at any size."""
    context, (public, private) = make_context(), make_key()
    message = sealed(context, public, b"body")
    replaced = message[: context.head_bytes] + os.urandom(len(message) - context.head_bytes)
    assert opened(context, private, replaced) == opened(context, private, message)


# ---- what a message gives away -----------------------------------------------------------------------------------


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
        np.frombuffer(b"".join(m[CLEAR_BYTES : context.head_bytes] for m in group), np.uint8) for group in messages
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


# ---- bad arguments -----------------------------------------------------------------------------------------------


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
    context, (public, private) = make_context(), make_key()
    header = Header(update_id=bytes(16), walk_tag=bytes(8), iteration=0, body_length=0)
    with pytest.raises(InvalidParameterError, match=r"^out = "):
        seal_into(context, [public], header, b"", bytearray(context.message_bytes - 1))
    with pytest.raises(InvalidParameterError, match=r"^body = "):
        seal_into(context, [public], header, b"not empty", bytearray(context.message_bytes))
    message = sealed(context, public, b"body")
    with pytest.raises(InvalidParameterError, match=r"^out = "):
        open_body_into(opened(context, private, message), message, bytearray(3))


# ---- buckets -----------------------------------------------------------------------------------------------------


def test_the_bucket_byte_and_the_size_stand_for_each_other() -> None:
    """256 sizes, growing, each with its own code."""
    sizes = [bucket_bytes_of(code) for code in range(256)]
    assert sizes == sorted(set(sizes))
    assert [bucket_code(size) for size in sizes] == list(range(256))
    assert (sizes[0], sizes[-1]) == (SMALLEST_BUCKET, LARGEST_BUCKET) == (16 * 1024, 992 * 1024 * 1024)


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
