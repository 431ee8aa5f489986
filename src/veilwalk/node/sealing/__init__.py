"""Sealed messages: the envelope with its slots and header, the body, the keys that open them."""

from veilwalk.node.sealing._body import Bytes, bucket_code, bucket_for
from veilwalk.node.sealing._context import (
    DIGEST_BYTES,
    RUN_ID_BYTES,
    WIRE_VERSION,
    SealContext,
    check_recipients,
    need_length,
)
from veilwalk.node.sealing._envelope import VOUCH_BYTES, Header, OpenedHeader, open_body, seal
from veilwalk.node.sealing._kem import (
    KemPrivateKey,
    Suite,
    check_kem_public_key,
    kem_private_key,
    kem_public_bytes,
    new_kem_secret,
)
from veilwalk.node.sealing._opener import Opener

__all__ = [
    "DIGEST_BYTES",
    "RUN_ID_BYTES",
    "VOUCH_BYTES",
    "WIRE_VERSION",
    "Bytes",
    "Header",
    "KemPrivateKey",
    "OpenedHeader",
    "Opener",
    "SealContext",
    "Suite",
    "bucket_code",
    "bucket_for",
    "check_kem_public_key",
    "check_recipients",
    "kem_private_key",
    "kem_public_bytes",
    "need_length",
    "new_kem_secret",
    "open_body",
    "seal",
]
