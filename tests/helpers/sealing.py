"""Contexts, keys and sealed messages for tests."""

from __future__ import annotations

from typing import Any

from veilwalk.core.geometry import CHUNK_BYTES, SMALLEST_BUCKET
from veilwalk.node.sealing._body import bucket_for
from veilwalk.node.sealing._context import SealContext
from veilwalk.node.sealing._envelope import (
    OpenedHeader,
    open_header,
    seal,
)
from veilwalk.node.sealing._kem import (
    KemPrivateKey,
    Suite,
    kem_private_key,
    kem_public_bytes,
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
