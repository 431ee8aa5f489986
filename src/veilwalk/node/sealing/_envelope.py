"""Sealed messages: what walks. Only the destination can open one, and nothing in it says who that is.

A message is 4 clear bytes that every message of a run and epoch shares, a header sealed with HPKE to the
destination's key, and the body in chunks under a fresh key that the header carries. A relay opens no more than the
header, so a failed trial costs the same at any size. All messages of a run have one length.

The header begins with 32 zero bytes. AES-GCM alone lets a malicious sender make one ciphertext that opens under two
keys; agreeing on 256 given bits as well is out of reach (Albertini et al., USENIX Security 2022).
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from cryptography.exceptions import InvalidTag

from veilwalk.core import validate
from veilwalk.core.errors import CryptoError, InvalidParameterError
from veilwalk.core.geometry import CLEAR_BYTES, HEADER_BYTES, MessageGeometry
from veilwalk.node.sealing._body import Bytes, bucket_code, decrypt_body, encrypt_body
from veilwalk.node.sealing._kem import KemPrivateKey, Suite, kem_public_key

WIRE_VERSION = 1
RUN_ID_BYTES = 16
UPDATE_ID_BYTES = 16
WALK_TAG_BYTES = 8
DIGEST_BYTES = 32

_COMMITMENT = bytes(32)
_KEY_BYTES = 32
_LABEL = b"veilwalk/1"
# Commitment, key of the body, update id, flags, walk tag, iteration, body length; zeros up to HEADER_BYTES.
_LAYOUT = struct.Struct(">32s32s16sB8sIQ")
_RESERVED = bytes(HEADER_BYTES - _LAYOUT.size)
_DUMMY, _FINAL = 1, 2


@dataclass(frozen=True, kw_only=True)
class SealContext:
    """What every message of a run and epoch shares; a message sealed in one context opens in no other."""

    run_id: bytes
    roster_digest: bytes
    suite: Suite
    epoch: int
    bucket_bytes: int

    def __post_init__(self) -> None:
        _need_length(RUN_ID_BYTES, run_id=self.run_id)
        _need_length(DIGEST_BYTES, roster_digest=self.roster_digest)
        validate.integer(epoch=self.epoch, bucket_bytes=self.bucket_bytes)
        validate.at_least(0, epoch=self.epoch)
        bucket_code(self.bucket_bytes)

    @cached_property
    def clear(self) -> bytes:
        """The clear part: version, suite, epoch mod 256, bucket code."""
        return bytes([WIRE_VERSION, self.suite, self.epoch % 256, bucket_code(self.bucket_bytes)])

    @cached_property
    def info(self) -> bytes:
        """What HPKE binds into every header: the clear part, the whole epoch, the run and the roster."""
        return _LABEL + self.clear + self.epoch.to_bytes(8, "big") + self.run_id + self.roster_digest

    @cached_property
    def geometry(self) -> MessageGeometry:
        """The lengths of every message of the run."""
        return MessageGeometry(key_bytes=self.suite.enc_bytes, bucket_bytes=self.bucket_bytes)

    @cached_property
    def head_bytes(self) -> int:
        """Length of the clear part and the sealed header."""
        return self.geometry.head_bytes

    @cached_property
    def message_bytes(self) -> int:
        """Length of every message of the run."""
        return self.geometry.message_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the destination, and nobody else, reads about a message. Its repr may be logged: it names no walk."""

    update_id: bytes = field(repr=False)
    walk_tag: bytes = field(repr=False)
    iteration: int
    body_length: int
    dummy: bool = False
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedHeader:
    """A header that opened, with what is needed to open the body; its key is kept out of its repr."""

    header: Header
    context: SealContext
    key: bytes = field(repr=False)


def seal(
    context: SealContext,
    public_key_bytes: bytes,
    *,
    walk_tag: bytes,
    iteration: int,
    body: Bytes,
    dummy: bool = False,
    final: bool = False,
    update_id: bytes | None = None,
) -> bytes:
    """Return ``body`` sealed to ``public_key_bytes``: always ``context.message_bytes`` long.

    Args:
        context: Run, roster, suite, epoch and bucket.
        public_key_bytes: The destination's key of that epoch, from the roster.
        walk_tag: 8 bytes that name the walk, for the destination only.
        iteration: Updates the model has had.
        body: The encoded model, no longer than the bucket.
        dummy: The message is cover; the destination throws its body away.
        final: The body is the finished model.
        update_id: 16 bytes by which the destination drops copies; from the OS source unless given.
    """
    header = Header(
        update_id=os.urandom(UPDATE_ID_BYTES) if update_id is None else update_id,
        walk_tag=walk_tag,
        iteration=iteration,
        body_length=len(memoryview(body).cast("B")),
        dummy=dummy,
        final=final,
    )
    return _filled(context.message_bytes, lambda out: seal_into(context, public_key_bytes, header, body, out))


def seal_into(
    context: SealContext,
    public_key_bytes: bytes,
    header: Header,
    body: Bytes,
    out: bytearray | memoryview,
) -> None:
    """Seal into ``out``, exactly ``context.message_bytes`` long: no allocation at any size when it is reused."""
    target = memoryview(out).cast("B")
    if len(target) != context.message_bytes:
        raise InvalidParameterError("out", len(target), f"{context.message_bytes} bytes, the length of a message")
    key = os.urandom(_KEY_BYTES)
    plain = _checked_body(context, header, body)
    target[: context.head_bytes] = _sealed_head(context, public_key_bytes, header, key)
    encrypt_body(key, plain, context.bucket_bytes, target[context.head_bytes :])


def open_header(context: SealContext, private_key: KemPrivateKey, message: Bytes) -> OpenedHeader | None:
    """Return the header if the message is for this key and context, else None, which never says why.

    The work is one decapsulation and 512 bytes of AES-GCM whatever the size of the message.
    """
    view = memoryview(message).cast("B")
    if len(view) != context.message_bytes or view[:CLEAR_BYTES] != context.clear:
        return None
    try:
        plain = context.suite.hpke.decrypt(view[CLEAR_BYTES : context.head_bytes], private_key, info=context.info)
    except InvalidTag:
        return None
    commitment, key, update_id, flags, walk_tag, iteration, body_length = _LAYOUT.unpack_from(plain)
    if commitment != _COMMITMENT or plain[_LAYOUT.size :] != _RESERVED:
        return None
    if flags > _DUMMY | _FINAL or body_length > context.bucket_bytes:
        return None
    header = Header(
        update_id=update_id,
        walk_tag=walk_tag,
        iteration=iteration,
        body_length=body_length,
        dummy=bool(flags & _DUMMY),
        final=bool(flags & _FINAL),
    )
    return OpenedHeader(header=header, context=context, key=key)


def open_body(opened: OpenedHeader, message: Bytes) -> bytes:
    """Return the body of a message whose header opened.

    Raises:
        CryptoError: Some part of the body is not what was sealed: the message belongs in quarantine.
    """
    return _filled(opened.header.body_length, lambda out: open_body_into(opened, message, out))


def open_body_into(opened: OpenedHeader, message: Bytes, out: bytearray | memoryview) -> None:
    """Open into ``out``, exactly the header's body length; after an error its content is to be thrown away.

    Raises:
        CryptoError: As :func:`open_body`.
    """
    view, target = memoryview(message).cast("B"), memoryview(out).cast("B")
    context, length = opened.context, opened.header.body_length
    if len(target) != length:
        raise InvalidParameterError("out", len(target), f"{length} bytes, the length of the body")
    if len(view) != context.message_bytes:
        raise CryptoError("the body of a message was refused")
    decrypt_body(opened.key, view[context.head_bytes :], context.bucket_bytes, target)


def _filled(length: int, fill: Callable[[memoryview], None]) -> bytes:
    """Return bytes that ``fill`` wrote in place: at 100 MiB a copy costs more than the cipher."""
    stream = io.BytesIO()
    if length:
        stream.seek(length - 1)
        stream.write(b"\0")
    with stream.getbuffer() as view:
        fill(view)
    return stream.getvalue()


def _checked_body(context: SealContext, header: Header, body: Bytes) -> memoryview:
    view = memoryview(body).cast("B")
    if len(view) != header.body_length or len(view) > context.bucket_bytes:
        raise InvalidParameterError(
            "body", f"{len(view)} bytes", f"the header's length, at most {context.bucket_bytes}"
        )
    return view


def _sealed_head(context: SealContext, public_key_bytes: bytes, header: Header, key: bytes) -> bytes:
    _need_length(UPDATE_ID_BYTES, update_id=header.update_id)
    _need_length(WALK_TAG_BYTES, walk_tag=header.walk_tag)
    if not 0 <= header.iteration < 1 << 32:
        raise InvalidParameterError("iteration", header.iteration, "between 0 and 2^32 - 1")
    flags = _DUMMY * header.dummy | _FINAL * header.final
    fields = (header.update_id, flags, header.walk_tag, header.iteration, header.body_length)
    plain = _LAYOUT.pack(_COMMITMENT, key, *fields) + _RESERVED
    public_key = kem_public_key(context.suite, public_key_bytes)
    try:
        return context.clear + context.suite.hpke.encrypt(plain, public_key, info=context.info)
    except ValueError:
        # The library refuses points of low order: such a key would seal for everybody.
        raise CryptoError("a public key was refused") from None


def _need_length(length: int, **named: bytes) -> None:
    for name, value in named.items():
        if len(value) != length:
            raise InvalidParameterError(name, f"{len(value)} bytes", f"{length} bytes")
