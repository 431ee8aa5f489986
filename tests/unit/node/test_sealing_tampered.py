"""What was changed, is for others, or is of another context does not open."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.sealing import SMALL, THREE_CHUNKS, make_context, make_key, opened, sealed

from veilwalk.core.errors import CryptoError
from veilwalk.core.geometry import CHUNK_BYTES, CLEAR_BYTES, HEADER_BYTES
from veilwalk.node.sealing._body import bucket_bytes_of
from veilwalk.node.sealing._context import SealContext
from veilwalk.node.sealing._envelope import (
    open_body,
    open_header,
)
from veilwalk.node.sealing._kem import (
    Suite,
    kem_private_key,
    kem_public_bytes,
    new_kem_secret,
)
from veilwalk.node.sealing._slots import _sealed_slot


@pytest.mark.parametrize("recipients", [1, 3])
@pytest.mark.parametrize("suite", Suite)
def test_every_bit_flip_of_the_head_is_refused(suite: Suite, recipients: int) -> None:
    """Clear bytes, hints, slots, also those of others, sealed header and its tag: each byte is bound."""
    context, (public, private) = make_context(suite, recipients=recipients), make_key(suite)
    message = bytearray(sealed(context, public, b"body"))
    for at in range(context.geometry.head_bytes):
        message[at] ^= 1 << at % 8
        assert open_header(context, private, message) is None, at
        message[at] ^= 1 << at % 8
    assert open_header(context, private, message) is not None


def test_every_bit_flip_of_a_body_is_refused() -> None:
    """Body, padding and tag of a chunk; the header still opens: the message belongs in quarantine."""
    context, (public, private) = make_context(), make_key()
    message = bytearray(sealed(context, public, os.urandom(1000)))
    found = opened(context, private, bytes(message))
    for at in range(context.geometry.head_bytes, len(message)):
        message[at] ^= 1 << at % 8
        with pytest.raises(CryptoError):
            open_body(found, message)
        message[at] ^= 1 << at % 8
    assert len(open_body(found, message)) == 1000


def chunk_spans(context: SealContext) -> list[slice]:
    step = CHUNK_BYTES + 16
    return [
        slice(at, min(at + step, context.message_bytes))
        for at in range(context.geometry.head_bytes, context.message_bytes, step)
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
    assert open_body(found, message[: context.geometry.head_bytes] + honest) == b"body"
    plain[at] = 1
    noted = AESGCM(found.key).encrypt(bytes(11) + b"\1", bytes(plain), None)
    with pytest.raises(CryptoError):
        open_body(found, message[: context.geometry.head_bytes] + noted)


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
    key, ephemeral = os.urandom(32), X25519PrivateKey.generate()
    front = context.clear + ephemeral.public_key().public_bytes_raw() + _sealed_slot(context, public, key, ephemeral)
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
    "reserved, first byte": put(105, b"\1"),
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
    replaced = message[: context.geometry.head_bytes] + os.urandom(len(message) - context.geometry.head_bytes)
    assert opened(context, private, replaced) == opened(context, private, message)
