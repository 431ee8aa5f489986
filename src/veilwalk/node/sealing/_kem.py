"""Suites and the keys that messages are sealed to."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import IntEnum

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from veilwalk.core.errors import CryptoError, InvalidParameterError
from veilwalk.core.geometry import SuiteName

_MLKEM_SEED_BYTES = 64
_MLKEM_PUBLIC_BYTES = 1184
_X25519_BYTES = 32


class Suite(IntEnum):
    """How slots are sealed. Both use HKDF-SHA256 and AES-256-GCM; the key exchange differs."""

    X25519 = 3
    """One key of the sender for all slots: small."""
    HYBRID = 2
    """ML-KEM-768 and X25519 (X-Wing), by HPKE slot by slot: a record stays closed unless both are broken."""

    @property
    def geometry_name(self) -> SuiteName:
        """What lengths of messages are known by."""
        return "x25519" if self is Suite.X25519 else "hybrid"

    @property
    def public_key_bytes(self) -> int:
        """Length of a public key: for the hybrid, ML-KEM-768 and then X25519."""
        return _X25519_BYTES if self is Suite.X25519 else _MLKEM_PUBLIC_BYTES + _X25519_BYTES

    @property
    def secret_bytes(self) -> int:
        """Length of a secret: for the hybrid, the seed of ML-KEM-768 and then X25519."""
        return _X25519_BYTES if self is Suite.X25519 else _MLKEM_SEED_BYTES + _X25519_BYTES


#: What seals the slots of the hybrid (RFC 9180).
HYBRID_HPKE = hpke.Suite(hpke.KEM.MLKEM768_X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)


@dataclass(frozen=True, slots=True, eq=False)
class KemPrivateKey:
    """A private key of a member.

    Attributes:
        whole: What opens its slots.
        curve: Its X25519 part, by which it finds them.
        public: The public key, as it stands in the roster.
    """

    whole: X25519PrivateKey | hpke.MLKEM768X25519PrivateKey = field(repr=False)
    curve: X25519PrivateKey = field(repr=False)
    public: bytes


def need_length(length: int, **named: bytes) -> None:
    """Refuse bytes that are not so many; their value stays out of the message, for it may be a secret."""
    for name, value in named.items():
        if len(value) != length:
            raise InvalidParameterError(name, f"{len(value)} bytes", f"{length} bytes")


def new_kem_secret(suite: Suite) -> bytes:
    """Return a fresh secret of ``suite`` from the OS source; any bytes of that length are one."""
    return os.urandom(suite.secret_bytes)


def kem_private_key(suite: Suite, secret: bytes) -> KemPrivateKey:
    """Return the private key that ``secret`` stands for."""
    need_length(suite.secret_bytes, key=secret)
    curve = X25519PrivateKey.from_private_bytes(secret[-_X25519_BYTES:])
    public = curve.public_key().public_bytes_raw()
    if suite is Suite.X25519:
        return KemPrivateKey(curve, curve, public)
    lattice = MLKEM768PrivateKey.from_seed_bytes(secret[:_MLKEM_SEED_BYTES])
    public = lattice.public_key().public_bytes_raw() + public
    return KemPrivateKey(hpke.MLKEM768X25519PrivateKey(lattice, curve), curve, public)


def kem_public_bytes(suite: Suite, secret: bytes) -> bytes:
    """Return the public key of ``secret`` as it stands in the roster."""
    return kem_private_key(suite, secret).public


def kem_public_key(suite: Suite, data: bytes) -> X25519PublicKey | hpke.MLKEM768X25519PublicKey:
    """Return the public key in ``data``."""
    need_length(suite.public_key_bytes, key=data)
    try:
        curve = X25519PublicKey.from_public_bytes(data[-_X25519_BYTES:])
        if suite is Suite.X25519:
            return curve
        return hpke.MLKEM768X25519PublicKey(MLKEM768PublicKey.from_public_bytes(data[:_MLKEM_PUBLIC_BYTES]), curve)
    except ValueError:
        raise CryptoError("a public key was refused") from None


def check_kem_public_key(suite: Suite, data: bytes) -> None:
    """Refuse a public key that nothing can be sealed to: a point of low order agrees with everybody on nothing.

    Raises:
        CryptoError: It is such a key, or none at all.
    """
    kem_public_key(suite, data)
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(curve_public_bytes(data)))
    except ValueError:
        raise CryptoError("a public key was refused") from None


def seal_for_member(public_key: bytes, data: bytes, info: bytes) -> bytes:
    """Return ``data`` sealed with the hybrid for the owner of one key, whatever the suite of messages is."""
    return HYBRID_HPKE.encrypt(data, kem_public_key(Suite.HYBRID, public_key), info=info)


def open_for_member(private_key: KemPrivateKey, sealed: bytes, info: bytes) -> bytes:
    """Return what :func:`seal_for_member` sealed.

    Raises:
        CryptoError: It is for another key, for another purpose, or changed.
    """
    try:
        return HYBRID_HPKE.decrypt(sealed, private_key.whole, info=info)
    except InvalidTag:
        raise CryptoError("sealed for another key") from None


def curve_public_bytes(public_key_bytes: bytes) -> bytes:
    """Return the X25519 part of a public key of any suite."""
    return public_key_bytes[-_X25519_BYTES:]
