"""Versions of a signed document: each names the one before it, so that a history cannot be rewritten."""

from __future__ import annotations

from typing import Protocol

from veilwalk.core.errors import InvalidParameterError, ProtocolError
from veilwalk.node.sealing import DIGEST_BYTES

_CLOCK_TOLERANCE_S = 3600


class Versioned(Protocol):
    """One version of a document."""

    @property
    def version(self) -> int:
        """1 for the first, then one more each time."""
        ...

    @property
    def prev_digest(self) -> bytes | None:
        """Digest of the version before, None for the first."""
        ...

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical text."""
        ...


def check_first_link(version: int, prev_digest: bytes | None) -> None:
    """Refuse a first version that names one before it, and a later one that does not."""
    if (prev_digest is None) != (version == 1) or len(prev_digest or bytes(DIGEST_BYTES)) != DIGEST_BYTES:
        raise InvalidParameterError("prev_digest", prev_digest, "absent in version 1, 32 bytes in all others")


def check_follows(document: Versioned, current: Versioned | None, name: str) -> None:
    """Refuse a version that does not follow ``current``; the same one again is accepted.

    Raises:
        ProtocolError: Older, a second one of the same number, after a gap, or after another one.
    """
    if current is None or document.digest == current.digest:
        return
    version, held = document.version, current.version
    if version < held:
        raise ProtocolError(f"{name}: version {version} is older than {held}, which this node holds")
    if version == held:
        raise ProtocolError(f"{name}: a second version {version}: the root signed two; ask its keeper")
    if version > held + 1:
        raise ProtocolError(f"{name}: version {version} does not follow {held}; load {held + 1} first")
    if document.prev_digest != current.digest:
        raise ProtocolError(f"{name}: version {version} follows another {held} than this node holds")


def check_dates(version: int, now: float, *, created: int, expires: int | None, name: str) -> None:
    """Refuse a version that has expired, or that comes from the future by more than clocks differ."""
    if expires is not None and now >= expires:
        raise ProtocolError(f"{name}: version {version} expired {now - expires:.0f} s ago")
    if now < created - _CLOCK_TOLERANCE_S:
        raise ProtocolError(f"{name}: version {version} begins in {created - now:.0f} s; is this clock right?")
