"""The body of a sealed message: padded to its bucket, cut into chunks, each an AES-256-GCM ciphertext of its own.

The construction is STREAM: the nonce of a chunk is its index and a flag on the last one, so chunks cannot be
swapped, dropped, repeated or appended unnoticed. The key is fresh for every message, so no nonce meets it twice.
Chunks small enough for the processor's cache are also what makes 100 MiB as fast as 1 MiB.
"""

from __future__ import annotations

from collections.abc import Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from veilwalk.core.errors import CryptoError, InvalidParameterError
from veilwalk.core.geometry import BUCKET_STEPS, CHUNK_BYTES, SMALLEST_BUCKET, TAG_BYTES, padded_bytes

Bytes = bytes | bytearray | memoryview

_SMALLEST_SHIFT = SMALLEST_BUCKET.bit_length() - BUCKET_STEPS.bit_length()
_LARGEST_CODE = 20 * BUCKET_STEPS - 1
LARGEST_BUCKET = (2 * BUCKET_STEPS - 1) << (_SMALLEST_SHIFT + _LARGEST_CODE // BUCKET_STEPS)


def bucket_bytes_of(code: int) -> int:
    """Return the size that ``code`` stands for: 16 even steps from each power of two to the next."""
    return (BUCKET_STEPS + code % BUCKET_STEPS) << (_SMALLEST_SHIFT + code // BUCKET_STEPS)


def bucket_code(bucket_bytes: int) -> int:
    """Return the number that stands for a bucket on the wire; refuse sizes that have none."""
    shift = bucket_bytes.bit_length() - BUCKET_STEPS.bit_length()
    code = (shift - _SMALLEST_SHIFT) * BUCKET_STEPS + (bucket_bytes >> max(shift, 0)) - BUCKET_STEPS
    if not 0 <= code <= _LARGEST_CODE or bucket_bytes_of(code) != bucket_bytes:
        raise InvalidParameterError("bucket_bytes", bucket_bytes, "one of the sizes bucket_for(bytes) returns")
    return code


def bucket_for(body_bytes: int) -> int:
    """Return the smallest bucket that holds ``body_bytes``: 1 KiB to 992 MiB, at most 1/17 of it padding."""
    if not 0 <= body_bytes <= LARGEST_BUCKET:
        raise InvalidParameterError("body_bytes", body_bytes, f"between 0 and {LARGEST_BUCKET}")
    return padded_bytes(body_bytes)


def encrypt_body(key: bytes, body: memoryview, bucket_bytes: int, out: memoryview) -> None:
    """Write the sealed body to ``out``, which has exactly its length."""
    cipher = AESGCM(key)
    at = 0
    for nonce, start, stop in _chunks(bucket_bytes):
        end = at + stop - start + TAG_BYTES
        cipher.encrypt_into(nonce, _padded(body, start, stop), None, out[at:end])
        at = end


def decrypt_body(key: bytes, sealed: memoryview, bucket_bytes: int, out: memoryview) -> None:
    """Write the first ``len(out)`` bytes of the body to ``out``, once every tag is checked and the padding is zero.

    Raises:
        CryptoError: Any chunk was refused; what ``out`` then holds is to be thrown away.
    """
    cipher = AESGCM(key)
    scratch = memoryview(bytearray(min(CHUNK_BYTES, bucket_bytes)))
    at = 0
    for nonce, start, stop in _chunks(bucket_bytes):
        end = at + stop - start + TAG_BYTES
        whole = stop <= len(out)
        target = out[start:stop] if whole else scratch[: stop - start]
        try:
            cipher.decrypt_into(nonce, sealed[at:end], None, target)
        except InvalidTag:
            raise CryptoError("the body of a message was refused") from None
        if not whole:
            _unpad(target, out[start:])
        at = end


def _chunks(bucket_bytes: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield nonce, start and stop of every chunk of the plain body."""
    for index, start in enumerate(range(0, bucket_bytes, CHUNK_BYTES)):
        stop = min(start + CHUNK_BYTES, bucket_bytes)
        last = stop == bucket_bytes
        yield index.to_bytes(11, "big") + bytes([last]), start, stop


def _padded(body: memoryview, start: int, stop: int) -> memoryview | bytes:
    piece = body[start:stop]
    missing = stop - start - len(piece)
    return bytes(piece) + bytes(missing) if missing else piece


def _unpad(chunk: memoryview, out: memoryview) -> None:
    """Copy the part of ``chunk`` that is body to ``out``; the rest is padding, and must be zero."""
    out[:] = chunk[: len(out)]
    padding = chunk[len(out) :]
    if padding != bytes(len(padding)):
        raise CryptoError("the body of a message was refused")
