"""Sealed messages: what walks. Only its recipients can open one, and nothing in it says who they are.

A message is 5 clear bytes that every message of a run and epoch shares, a fresh key, a slot for each recipient that
holds the key of the header, the header, and the body in chunks under a fresh key that the header carries. A relay looks
at no more than the slots, so to find none its own costs the same at any size. All messages of a run have one length.

The header is bound to everything in front of it, so nobody can take a slot out, or put one in, unnoticed. Slots and
header begin with 32 zero bytes. AES-GCM alone lets a malicious sender make one ciphertext that opens under two keys;
agreeing on 256 given bits as well is out of reach (Albertini et al., USENIX Security 2022). So a slot has one
recipient, and all recipients of a message read the same.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from veilwalk.core.errors import CryptoError, InvalidParameterError
from veilwalk.core.geometry import CLEAR_BYTES, HEADER_BYTES
from veilwalk.node.sealing._body import Bytes, decrypt_body, encrypt_body
from veilwalk.node.sealing._context import SealContext
from veilwalk.node.sealing._kem import KemPrivateKey, need_length
from veilwalk.node.sealing._slots import opened_slots, sealed_slots

UPDATE_ID_BYTES = 16
WALK_TAG_BYTES = 8

_COMMITMENT = bytes(32)
_KEY_BYTES = 32
# The key of a header is fresh, and seals nothing else.
_HEADER_NONCE = bytes(12)
# Commitment, key of the body, update id, flags, walk tag, iteration, body length, the iteration at which the walk was
# made; zeros up to HEADER_BYTES.
_LAYOUT = struct.Struct(">32s32s16sB8sIQI")
_RESERVED = bytes(HEADER_BYTES - _LAYOUT.size)
_FINAL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What whoever opens a message, and nobody else, reads about it. Its repr may be logged: it names no walk.

    Attributes:
        update_id: 16 bytes by which a recipient drops copies.
        walk_tag: 8 bytes that name the walk.
        iteration: Updates the model has had.
        final: The body is the finished model.
        made_at: Updates the model had had when this walk was made.
    """

    update_id: bytes = field(repr=False)
    walk_tag: bytes = field(repr=False)
    iteration: int
    body_length: int
    final: bool = False
    made_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedHeader:
    """A header that opened, with what is needed to open the body; its key is kept out of its repr."""

    header: Header
    context: SealContext
    key: bytes = field(repr=False)


def seal(
    context: SealContext,
    public_keys: Sequence[bytes],
    *,
    walk_tag: bytes,
    iteration: int,
    body: Bytes,
    final: bool = False,
    update_id: bytes | None = None,
    made_at: int = 0,
) -> bytes:
    """Return ``body`` sealed for the owners of ``public_keys``: always ``context.message_bytes`` long.

    They are the recipients' keys of that epoch, at most as many as there are slots; the body is no longer than the
    bucket. What the others say stands at :class:`Header`; the update id is from the OS source unless given.
    """
    header = Header(
        update_id=os.urandom(UPDATE_ID_BYTES) if update_id is None else update_id,
        walk_tag=walk_tag,
        iteration=iteration,
        body_length=len(memoryview(body).cast("B")),
        final=final,
        made_at=made_at,
    )
    return _filled(context.message_bytes, lambda out: seal_into(context, public_keys, header, body, out))


def seal_into(
    context: SealContext, public_keys: Sequence[bytes], header: Header, body: Bytes, out: bytearray | memoryview
) -> None:
    """Seal into ``out``, exactly ``context.message_bytes`` long: no allocation at any size when it is reused."""
    target, plain = memoryview(out).cast("B"), memoryview(body).cast("B")
    if len(target) != context.message_bytes:
        raise InvalidParameterError("out", len(target), f"{context.message_bytes} bytes, the length of a message")
    if len(plain) != header.body_length or len(plain) > context.bucket_bytes:
        need = f"the header's length, at most {context.bucket_bytes}"
        raise InvalidParameterError("body", f"{len(plain)} bytes", need)
    key, head = os.urandom(_KEY_BYTES), context.geometry.head_bytes
    target[:head] = _sealed_head(context, public_keys, header, key)
    encrypt_body(key, plain, context.bucket_bytes, target[head:])


def open_header(context: SealContext, private_key: KemPrivateKey, message: Bytes) -> OpenedHeader | None:
    """Return the header if the message is for this key and context, else None, which never says why.

    The work is one key agreement, and with the hybrid one decapsulation for a recipient, at any size of the message.
    """
    view = memoryview(message).cast("B")
    if len(view) != context.message_bytes or view[:CLEAR_BYTES] != context.clear:
        return None
    front, head = context.geometry.front_bytes, context.geometry.head_bytes
    for key in opened_slots(context, private_key, view):
        try:
            plain = AESGCM(key).decrypt(_HEADER_NONCE, view[front:head], view[:front])
        except InvalidTag:
            continue
        return _read_header(context, plain)
    return None


def _read_header(context: SealContext, plain: bytes) -> OpenedHeader | None:
    commitment, key, update_id, flags, walk_tag, *numbers = _LAYOUT.unpack_from(plain)
    iteration, body_length, made_at = numbers
    if commitment != _COMMITMENT or plain[_LAYOUT.size :] != _RESERVED:
        return None
    if flags > _FINAL or body_length > context.bucket_bytes:
        return None
    header = Header(
        update_id=update_id,
        walk_tag=walk_tag,
        iteration=iteration,
        body_length=body_length,
        final=bool(flags),
        made_at=made_at,
    )
    return OpenedHeader(header=header, context=context, key=key)


def open_body(opened: OpenedHeader, message: Bytes) -> bytes:
    """Return the body of a message whose header opened.

    Raises:
        CryptoError: Some part of the body is not what was sealed: the message belongs in quarantine.
    """
    view, context = memoryview(message).cast("B"), opened.context
    if len(view) != context.message_bytes:
        raise CryptoError("the body of a message was refused")
    sealed = view[context.geometry.head_bytes :]
    return _filled(opened.header.body_length, lambda out: decrypt_body(opened.key, sealed, context.bucket_bytes, out))


class Opener:
    """The contexts a node opens messages in: those of the epochs around its own."""

    def __init__(self, keys: Iterable[tuple[SealContext, KemPrivateKey]], *, accepted: Iterable[SealContext]) -> None:
        self._keys = list(keys)
        self._clear = {context.clear for context in accepted} | {context.clear for context, _ in self._keys}

    @property
    def oldest_epoch(self) -> int:
        """The oldest epoch of which a message can still be opened here; 0 where none can."""
        return min((context.epoch for context, _ in self._keys), default=0)

    def is_current(self, message: Bytes) -> bool:
        """Return whether version, suite, epoch and bucket are such as members of this run accept now."""
        return bytes(memoryview(message)[:CLEAR_BYTES]) in self._clear

    def open(self, message: Bytes) -> OpenedHeader | None:
        """Return the header if the message is for this node."""
        clear = bytes(memoryview(message)[:CLEAR_BYTES])
        for context, key in self._keys:
            if context.clear == clear:
                opened = open_header(context, key, message)
                if opened is not None:
                    return opened
        return None


def _filled(length: int, fill: Callable[[memoryview], None]) -> bytes:
    """Return bytes that ``fill`` wrote in place: at 100 MiB a copy costs more than the cipher."""
    stream = io.BytesIO()
    if length:
        stream.seek(length - 1)
        stream.write(b"\0")
    with stream.getbuffer() as view:
        fill(view)
    return stream.getvalue()


def _sealed_head(context: SealContext, public_keys: Sequence[bytes], header: Header, key: bytes) -> bytes:
    need_length(UPDATE_ID_BYTES, update_id=header.update_id)
    need_length(WALK_TAG_BYTES, walk_tag=header.walk_tag)
    if not 0 <= header.iteration < 1 << 32:
        raise InvalidParameterError("iteration", header.iteration, "between 0 and 2^32 - 1")
    numbers = (header.iteration, header.body_length, header.made_at)
    fields = (header.update_id, header.final, header.walk_tag, *numbers)
    plain = _LAYOUT.pack(_COMMITMENT, key, *fields) + _RESERVED
    header_key = os.urandom(_KEY_BYTES)
    front = context.clear + sealed_slots(context, public_keys, header_key)
    return front + AESGCM(header_key).encrypt(_HEADER_NONCE, plain, front)
