"""The slots of a message: the key of its header, sealed once for every recipient, in random order.

A run has one number of slots. Where there are fewer recipients the rest is sealed for keys that nobody has, so a slot
does not show whether anybody can open it. A recipient learns its own slot and nothing of the others.

A message carries one X25519 key. What that and a member's own key agree on gives each of them a key of its own: with
``x25519`` it opens the member's slot, which has nothing before it, and all slots are tried with it.

With ``hybrid`` every slot is an HPKE ciphertext, and to try K of them costs K decapsulations. So one byte of that key
stands before each slot. A member tries only the slots that show its byte: its own, and one in 256 of the others. It is
so short on purpose: whoever breaks X25519 one day, and recorded the message and knows the secret of its epoch, sees
whose byte stands before a slot, and beside the recipients about K in 256 of all other members fit.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from veilwalk.core.errors import CryptoError, InvalidParameterError
from veilwalk.core.geometry import CLEAR_BYTES, EPHEMERAL_BYTES
from veilwalk.node.sealing._context import SealContext
from veilwalk.node.sealing._kem import (
    HYBRID_HPKE,
    KemPrivateKey,
    Suite,
    curve_public_bytes,
    kem_public_bytes,
    kem_public_key,
    new_kem_secret,
)

_COMMITMENT = bytes(32)
# A slot's key is of this message and this recipient, and seals nothing else.
_NONCE = bytes(12)
# Whoever seals may put a member's byte before every slot, to keep that member busy: no more than so many are tried, and
# one for so many slots. By chance as many others show it in one of 10^10 messages at most.
_TRIED, _SLOTS_FOR_ONE_MORE = 6, 32
_dice = secrets.SystemRandom()


def sealed_slots(context: SealContext, public_keys: Sequence[bytes], key: bytes) -> bytes:
    """Return the key that all slots share, and the slots, which hold the header's ``key``."""
    if not 1 <= len(public_keys) <= context.recipients or len(set(public_keys)) != len(public_keys):
        need = f"1 to {context.recipients}, none twice"
        raise InvalidParameterError("public_keys", f"{len(public_keys)} keys", need)
    suite, missing = context.suite, context.recipients - len(public_keys)
    nobody = [kem_public_bytes(suite, new_kem_secret(suite)) for _ in range(missing)]
    ephemeral = X25519PrivateKey.from_private_bytes(os.urandom(32))
    slots = [_sealed_slot(context, public, key, ephemeral) for public in (*public_keys, *nobody)]
    _dice.shuffle(slots)
    return ephemeral.public_key().public_bytes_raw() + b"".join(slots)


def opened_slots(context: SealContext, private_key: KemPrivateKey, message: memoryview) -> Iterator[bytes]:
    """Yield the header's key from every slot that opens with ``private_key``."""
    start, size = CLEAR_BYTES + EPHEMERAL_BYTES, context.geometry.slot_bytes
    shown = bytes(message[CLEAR_BYTES:start])
    try:
        shared = private_key.curve.exchange(X25519PublicKey.from_public_bytes(shown))
    except ValueError:
        # A point of low order: no honest sender has one.
        return
    own = _slot_key(context, shared, shown, curve_public_bytes(private_key.public))
    slots = [message[at : at + size] for at in range(start, context.geometry.front_bytes, size)]
    if context.suite is Suite.HYBRID:
        slots = [slot[1:] for slot in slots if slot[:1] == own[:1]][
            : _TRIED + context.recipients // _SLOTS_FOR_ONE_MORE
        ]
    for slot in slots:
        try:
            plain = _open_slot(context, private_key, own, slot)
        except InvalidTag:
            continue
        if plain[: len(_COMMITMENT)] == _COMMITMENT:
            yield plain[len(_COMMITMENT) :]


def _sealed_slot(context: SealContext, public: bytes, key: bytes, ephemeral: X25519PrivateKey) -> bytes:
    public_key, curve = kem_public_key(context.suite, public), curve_public_bytes(public)
    try:
        shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(curve))
        own = _slot_key(context, shared, ephemeral.public_key().public_bytes_raw(), curve)
        if context.suite is Suite.X25519:
            return AESGCM(own).encrypt(_NONCE, _COMMITMENT + key, None)
        return own[:1] + HYBRID_HPKE.encrypt(_COMMITMENT + key, public_key, info=context.info + context.secret)
    except ValueError:
        # The library refuses points of low order: such a key would seal for everybody.
        raise CryptoError("a public key was refused") from None


def _open_slot(context: SealContext, private_key: KemPrivateKey, own: bytes, slot: memoryview) -> bytes:
    if context.suite is Suite.X25519:
        return AESGCM(own).decrypt(_NONCE, slot, None)
    return HYBRID_HPKE.decrypt(slot, private_key.whole, info=context.info + context.secret)


def _slot_key(context: SealContext, shared: bytes, shown: bytes, curve: bytes) -> bytes:
    """Return the key of a recipient's slot, or of its hint, from what both ends agree on and what all members know."""
    info = context.info + shown + curve
    return HKDF(algorithm=SHA256(), length=32, salt=context.secret or None, info=info).derive(shared)
