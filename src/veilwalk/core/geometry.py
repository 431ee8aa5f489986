"""How long a sealed message is: sealing makes messages of these lengths, the cost of training counts them.

A message is a few clear bytes, a fresh key, a slot for each recipient, a sealed header, and the body: padded to its
bucket, one tag a chunk. All messages of a run have one length, so nothing is learnt from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

SuiteName = Literal["x25519", "hybrid"]
SuiteChoice = Literal["auto", "x25519", "hybrid"]

CLEAR_BYTES = 5
#: The key that all slots share, or their hints.
EPHEMERAL_BYTES = 32
#: What a slot holds: 32 zero bytes that commit to its key, and the key of the sealed header.
SLOT_BYTES = 64
HEADER_BYTES = 128
TAG_BYTES = 16
CHUNK_BYTES = 256 * 1024
#: Buckets from each power of two to the next, in even steps.
BUCKET_STEPS = 16
SMALLEST_BUCKET = 1024

#: What stands before the sealed part of a slot: of the hybrid, a hint and the encapsulated key.
_KEY_BYTES: dict[SuiteName, int] = {"x25519": 0, "hybrid": 1 + 1120}


def choose_suite(choice: SuiteChoice = "auto", *, is_overlay: bool) -> SuiteName:
    """Return the suite that is given, or what a network takes unless told otherwise.

    Slots are small on overlays: rosters bring a secret for each period, sealed by the hybrid, that every key hangs on.
    """
    if choice != "auto":
        return choice
    return "x25519" if is_overlay else "hybrid"


def padded_bytes(body_bytes: int) -> int:
    """Return the smallest bucket that holds so many bytes: at most 1/17 of it is padding above the smallest."""
    padded = max(body_bytes, SMALLEST_BUCKET)
    step = 1 << ((padded - 1).bit_length() - BUCKET_STEPS.bit_length())
    return -(-padded // step) * step


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageGeometry:
    """The lengths of every message of a run, by the suite of its slots, the padded body and the number of slots."""

    suite: SuiteName
    bucket_bytes: int
    recipients: int = 1

    @classmethod
    def for_body(cls, body_bytes: int, *, suite: SuiteName, recipients: int = 1) -> Self:
        """Return the lengths of messages that carry so many bytes."""
        return cls(suite=suite, bucket_bytes=padded_bytes(body_bytes), recipients=recipients)

    @property
    def slot_bytes(self) -> int:
        """A slot: its hint and its encapsulated key, where it has them, and what is sealed."""
        return _KEY_BYTES[self.suite] + SLOT_BYTES + TAG_BYTES

    @property
    def front_bytes(self) -> int:
        """The clear part, the shared key and all slots."""
        return CLEAR_BYTES + EPHEMERAL_BYTES + self.recipients * self.slot_bytes

    @property
    def head_bytes(self) -> int:
        """What is in front of the body: the clear part, the slots and the sealed header."""
        return self.front_bytes + HEADER_BYTES + TAG_BYTES

    @property
    def body_bytes(self) -> int:
        """The sealed body: the bucket and one tag a chunk."""
        return self.bucket_bytes + TAG_BYTES * -(-self.bucket_bytes // CHUNK_BYTES)

    @property
    def message_bytes(self) -> int:
        """The whole message."""
        return self.head_bytes + self.body_bytes
