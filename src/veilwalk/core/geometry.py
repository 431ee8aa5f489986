"""How long a sealed message is: sealing makes messages of these lengths, the cost of training counts them.

A message is a few clear bytes, an encapsulated key, a sealed header, and the body: padded to its bucket, one tag a
chunk. All messages of a run have one length, so nothing is learnt from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

SuiteName = Literal["x25519", "hybrid"]

CLEAR_BYTES = 4
HEADER_BYTES = 512
TAG_BYTES = 16
CHUNK_BYTES = 256 * 1024
#: Buckets from each power of two to the next, in even steps.
BUCKET_STEPS = 16
SMALLEST_BUCKET = 16 * 1024

_KEY_BYTES: dict[SuiteName, int] = {"x25519": 32, "hybrid": 1120}


def padded_bytes(body_bytes: int) -> int:
    """Return the smallest bucket that holds so many bytes: at most 1/17 of it is padding above the smallest."""
    padded = max(body_bytes, SMALLEST_BUCKET)
    step = 1 << ((padded - 1).bit_length() - BUCKET_STEPS.bit_length())
    return -(-padded // step) * step


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageGeometry:
    """The lengths of every message of a run.

    Attributes:
        key_bytes: The encapsulated key in front of the sealed header.
        bucket_bytes: The padded body.
    """

    key_bytes: int
    bucket_bytes: int

    @classmethod
    def for_body(cls, body_bytes: int, *, suite: SuiteName) -> Self:
        """Return the lengths of messages that carry so many bytes."""
        return cls(key_bytes=_KEY_BYTES[suite], bucket_bytes=padded_bytes(body_bytes))

    @property
    def head_bytes(self) -> int:
        """The clear part, the key and the sealed header."""
        return CLEAR_BYTES + self.key_bytes + HEADER_BYTES + TAG_BYTES

    @property
    def body_bytes(self) -> int:
        """The sealed body: the bucket and one tag a chunk."""
        return self.bucket_bytes + TAG_BYTES * -(-self.bucket_bytes // CHUNK_BYTES)

    @property
    def message_bytes(self) -> int:
        """The whole message."""
        return self.head_bytes + self.body_bytes
