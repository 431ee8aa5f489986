"""The slots of a message: the key of its header, sealed once for every recipient, in random order.

A run has one number of slots. Where there are fewer recipients the rest is sealed for keys that nobody has, so a slot
does not show whether anybody can open it. A recipient learns its own slot and nothing of the others.

To try K slots costs K decapsulations. So a message for several carries one X25519 key; what that and a member's own key
agree on gives one byte for each of its slots. A member computes its byte once and tries only the slots that show it:
its own, and one in 256 of the others. That byte is so short on purpose: whoever breaks X25519 one day, and recorded the
message, sees whose byte stands before a slot, and beside the recipients about K in 256 of all other members fit.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Iterator, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from veilwalk.core.errors import CryptoError, InvalidParameterError
from veilwalk.core.geometry import CLEAR_BYTES, HINT_BYTES, SLOT_BYTES
from veilwalk.node.sealing._context import SealContext
from veilwalk.node.sealing._kem import (
    KemPrivateKey,
    curve_public_bytes,
    kem_public_bytes,
    kem_public_key,
    new_kem_secret,
)

_COMMITMENT = bytes(32)
_LABEL = b"hint"
# Whoever seals may put a member's byte before every slot, to keep that member busy: no more than so many are tried, and
# one for so many slots. By chance as many others show it in one of 10^10 messages at most.
_TRIED, _SLOTS_FOR_ONE_MORE = 6, 32
_dice = secrets.SystemRandom()


def sealed_slots(context: SealContext, public_keys: Sequence[bytes], key: bytes) -> bytes:
    """Return the key of the hints and all slots, each with its hint, holding the header's ``key``."""
    if not 1 <= len(public_keys) <= context.recipients or len(set(public_keys)) != len(public_keys):
        need = f"1 to {context.recipients}, none twice"
        raise InvalidParameterError("public_keys", f"{len(public_keys)} keys", need)
    nobody = [
        kem_public_bytes(context.suite, new_kem_secret(context.suite))
        for _ in range(context.recipients - len(public_keys))
    ]
    ephemeral = X25519PrivateKey.from_private_bytes(os.urandom(32)) if context.geometry.ephemeral_bytes else None
    slots = [_sealed_slot(context, public, key, ephemeral) for public in (*public_keys, *nobody)]
    _dice.shuffle(slots)
    return b"".join([*([] if ephemeral is None else [ephemeral.public_key().public_bytes_raw()]), *slots])


def opened_slots(context: SealContext, private_key: KemPrivateKey, message: memoryview) -> Iterator[bytes]:
    """Yield the header's key from every slot that opens with ``private_key``."""
    geometry = context.geometry
    hint, left = b"", _TRIED + context.recipients // _SLOTS_FOR_ONE_MORE
    if geometry.ephemeral_bytes:
        ephemeral = bytes(message[CLEAR_BYTES : CLEAR_BYTES + geometry.ephemeral_bytes])
        try:
            shared = private_key.curve.exchange(X25519PublicKey.from_public_bytes(ephemeral))
        except ValueError:
            # A point of low order: no honest sender has one.
            return
        hint = _hint(context, shared, ephemeral, curve_public_bytes(private_key.public))
    for at in range(CLEAR_BYTES + geometry.ephemeral_bytes, geometry.front_bytes, geometry.slot_bytes):
        if message[at : at + len(hint)] != hint:
            continue
        if not left:
            return
        left -= 1
        try:
            sealed = message[at + len(hint) : at + geometry.slot_bytes]
            plain = context.suite.hpke.decrypt(sealed, private_key.whole, info=context.info)
        except InvalidTag:
            continue
        if plain[: len(_COMMITMENT)] == _COMMITMENT and len(plain) == SLOT_BYTES:
            yield plain[len(_COMMITMENT) :]


def _sealed_slot(context: SealContext, public: bytes, key: bytes, ephemeral: X25519PrivateKey | None) -> bytes:
    public_key = kem_public_key(context.suite, public)
    try:
        sealed = context.suite.hpke.encrypt(_COMMITMENT + key, public_key, info=context.info)
        if ephemeral is None:
            return sealed
        curve = curve_public_bytes(public)
        shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(curve))
    except ValueError:
        # The library refuses points of low order: such a key would seal for everybody.
        raise CryptoError("a public key was refused") from None
    return _hint(context, shared, ephemeral.public_key().public_bytes_raw(), curve) + sealed


def _hint(context: SealContext, shared: bytes, ephemeral: bytes, curve_public: bytes) -> bytes:
    return hmac.digest(shared, _LABEL + context.info + ephemeral + curve_public, "sha256")[:HINT_BYTES]
