"""Contexts, keys and sealed messages for tests."""

from __future__ import annotations

import hmac
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from veilwalk.core.geometry import CHUNK_BYTES
from veilwalk.node.sealing._body import bucket_for
from veilwalk.node.sealing._context import SealContext
from veilwalk.node.sealing._envelope import (
    OpenedHeader,
    open_header,
    seal,
)
from veilwalk.node.sealing._kem import (
    HYBRID_HPKE,
    KemPrivateKey,
    Suite,
    kem_private_key,
    kem_public_bytes,
    new_kem_secret,
)

SMALL = 16 * 1024
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


# ---- slots, read by the description of the format -------------------------------------------------------------------

SLOTS = 5 + 32


def split_slots(context: SealContext, message: bytes) -> list[bytes]:
    """The slots of a message."""
    size = 80 if context.suite is Suite.X25519 else 1201
    return [message[at : at + size] for at in range(SLOTS, SLOTS + size * context.recipients, size)]


def slot_key(context: SealContext, private: KemPrivateKey, message: bytes) -> bytes:
    """What opens a member's slot, or gives its hint: HKDF of RFC 5869, of one block."""
    shown = message[5:SLOTS]
    shared = private.curve.exchange(X25519PublicKey.from_public_bytes(shown))
    extracted = hmac.digest(context.secret or bytes(32), shared, "sha256")
    return hmac.digest(extracted, context.info + shown + private.public[-32:] + b"\1", "sha256")


def read_slot(context: SealContext, private: KemPrivateKey, message: bytes, slot: bytes) -> bytes | None:
    """What a slot holds, None where it does not open with this key; hints are passed over."""
    try:
        if context.suite is Suite.HYBRID:
            return HYBRID_HPKE.decrypt(slot[1:], private.whole, info=context.info + context.secret)
        return AESGCM(slot_key(context, private, message)).decrypt(bytes(12), slot, None)
    except InvalidTag:
        return None
