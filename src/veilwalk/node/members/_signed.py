"""Documents the root signs: canonical JSON beside a detached Ed25519 signature in ``<file>.sig``.

There is one way to write a document, so that one digest names it; a reader accepts no other. The signature is
checked before the bytes are parsed, over the kind of document as well, so that a manifest is never a roster. Each
version names the one before it, so that a history cannot be rewritten.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from veilwalk.core import validate
from veilwalk.core.config import decode, encode
from veilwalk.core.errors import CryptoError, InputFileError, InvalidParameterError, ProtocolError, VeilwalkError
from veilwalk.core.files import name_os_errors
from veilwalk.core.records import write_atomically
from veilwalk.node.sealing import DIGEST_BYTES

SIGNATURE_SUFFIX = ".sig"
#: The numbers of versions and epochs are below this.
MAX_EPOCH = 2**31
_SIGNATURE_BYTES = 64
# Base64 of a signature and a newline, with room for an editor's habits.
_SIGNATURE_FILE_LIMIT = 128
_FORMAT_DIGITS = 6
_KINDS = ("manifest", "roster")
_CLOCK_TOLERANCE_S = 3600

_Record = TypeVar("_Record")


def canonical_json(content: Mapping[str, Any]) -> bytes:
    """Return the only JSON text of ``content``: keys sorted, ASCII, no spaces, a newline at the end."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.encode("ascii") + b"\n"


def parse_canonical(data: bytes, name: str) -> dict[str, Any]:
    """Return the object in ``data``; refuse any text but the canonical one (so also keys given twice)."""
    try:
        content = json.loads(data)
        canonical = isinstance(content, dict) and canonical_json(content) == data
    except (ValueError, RecursionError):
        raise InputFileError(f"{name}: not JSON") from None
    if not canonical:
        raise InputFileError(f"{name}: not canonical JSON (sorted keys, no spaces, one newline at the end)")
    return dict(content)


def write_record(record: object, form: str, **fields: Any) -> bytes:
    """Return the canonical text of a record: its format and its fields, some of them as given."""
    return canonical_json({"format": form, **encode(record), **fields})


def read_record(kind: type[_Record], data: bytes, form: str, name: str, **readers: Any) -> _Record:
    """Return the record in ``data``, checked: the inverse of :func:`write_record`.

    ``readers`` make a value of a field that :func:`decode` does not know.

    Raises:
        InputFileError: It is of another format, out of form, or says what cannot be.
    """
    content = parse_canonical(data, name)
    check_format(content, form, name)
    del content["format"]
    try:
        for field, read in readers.items():
            if isinstance(content.get(field), Mapping):
                content[field] = read(content[field])
        record = decode(kind, content, dashes=False)
    except InputFileError as error:
        raise InputFileError(str(error) if str(error).startswith(name) else f"{name}: {error}") from None
    except VeilwalkError as error:
        raise InputFileError(f"{name}: {error}") from None
    return record


def check_text(text: bytes, data: bytes, name: str) -> None:
    """Refuse a document that says the same as the one text of it in another way."""
    if text != data:
        raise InputFileError(f"{name}: not as this version writes it: a field is missing or written another way")


def check_fields(content: object, fields: Iterable[str], name: str) -> dict[str, Any]:
    """Return ``content`` if it is an object with exactly ``fields``; name the first that is missing or unknown."""
    if not isinstance(content, dict):
        raise InputFileError(f"{name}: must be an object")
    expected = set(fields)
    for field in sorted(expected - content.keys()):
        raise InputFileError(f"{name}: lacks the field {field!r}")
    for field in sorted(content.keys() - expected):
        raise InputFileError(f"{name}: unknown field {field[:40]!r}")
    return content


def check_format(content: Mapping[str, Any], ours: str, name: str) -> None:
    """Refuse a document of another format than ``ours``; asked before its fields, for another format has others."""
    kind, _, number = ours.rpartition("-")
    given = content.get("format")
    what, _, other = given.rpartition("-") if isinstance(given, str) else ("", "", "")
    if what != kind or not (other.isascii() and other.isdecimal() and len(other) <= _FORMAT_DIGITS):
        raise InputFileError(f"{name}: not a {kind.removeprefix('veilwalk-')} of this version")
    if int(other) > int(number):
        raise InputFileError(f"{name}: {given} is of a newer version, this one reads {ours}: upgrade veilwalk")
    if int(other) < int(number):
        raise InputFileError(f"{name}: {given} is of an older version, this one reads {ours}: make the run anew")


def read_bounded(path: Path, limit: int) -> bytes:
    """Return the bytes of ``path``; refuse more than ``limit`` before reading them."""
    with name_os_errors(InputFileError, path), path.open("rb") as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise InputFileError(f"{path}: larger than the {limit} bytes allowed")
    return data


def decode_base64(text: object, length: int, name: str) -> bytes:
    """Return the ``length`` bytes in canonical base64 ``text``."""
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        data = b""
    if len(data) != length or encode(data) != text:
        raise InputFileError(f"{name}: must be base64 of {length} bytes")
    return data


def decode_hex(text: object, length: int, name: str) -> bytes:
    """Return the ``length`` bytes in lower-case hexadecimal ``text``."""
    try:
        data = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        data = b""
    if len(data) != length or data.hex() != text:
        raise InputFileError(f"{name}: must be {2 * length} lower-case hexadecimal digits")
    return data


# ---- signatures ----------------------------------------------------------------------------------------------------


def _is_signed(data: bytes, signature: bytes, kind: str, root_public_key: Ed25519PublicKey) -> bool:
    try:
        root_public_key.verify(signature, _signed_bytes(kind, data))
    except InvalidSignature:
        return False
    return True


def require_unsigned(path: Path) -> None:
    """Refuse to write over what is signed: its members may hold it, and nothing else says what it was."""
    if path.exists() and signature_path(path).exists():
        raise InvalidParameterError("out", str(path), "another file: a signed one is there, and it may be the only one")


def signature_path(path: Path) -> Path:
    """Return where the signature of ``path`` lies."""
    return path.with_name(path.name + SIGNATURE_SUFFIX)


def _signed_bytes(kind: str, data: bytes) -> bytes:
    return f"veilwalk {kind} signature 1".encode("ascii") + b"\0" + data


# ---- versions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class SignedDocument:
    """One version of a roster or a manifest, which the root signs.

    Args:
        version: 1 for the first, then one more each time.
        prev_digest: Digest of the version before, None for the first.
        expires: Seconds since 1970 from when it is not accepted any more; None for never.
    """

    #: What it is called, in signatures and errors.
    kind: ClassVar[str]
    form: ClassVar[str]
    limit: ClassVar[int]
    #: Functions that read the fields that :func:`decode` does not know.
    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}

    version: int
    prev_digest: bytes | None
    expires: int | None

    def __post_init__(self) -> None:
        validate.integer(1, version=self.version)
        if self.version >= MAX_EPOCH:
            raise InvalidParameterError("version", self.version, f"below {MAX_EPOCH}")
        first, length = self.prev_digest is None, len(self.prev_digest or bytes(DIGEST_BYTES))
        if first != (self.version == 1) or length != DIGEST_BYTES:
            raise InvalidParameterError("prev_digest", self.prev_digest, "absent in version 1, 32 bytes in all others")

    @classmethod
    def parse(cls, data: bytes, name: str) -> Self:
        """Return the version in ``data``, checked in itself; :meth:`load` checks who signed it, and its time."""
        document = read_record(cls, data, cls.form, name, **cls.readers)
        check_text(document.data, data, name)
        return document

    @classmethod
    def read_draft(cls, path: Path) -> Self:
        """Return the version at ``path``, signed or not: for the root's keeper, and for what a node has checked."""
        return cls.parse(read_bounded(path, cls.limit), str(path))

    @classmethod
    def read_signed(cls, path: Path, root_public_key: Ed25519PublicKey) -> Self:
        """Return the version at ``path`` once its signature is checked, whatever its date.

        Raises:
            CryptoError: The signature is not the root's.
            InputFileError: The file or its signature is missing, too large or not readable.
        """
        data, beside = read_bounded(path, cls.limit), signature_path(path)
        text = read_bounded(beside, _SIGNATURE_FILE_LIMIT).decode("ascii", "replace").strip()
        signature = decode_base64(text, _SIGNATURE_BYTES, str(beside))
        kinds = [kind for kind in _KINDS if _is_signed(data, signature, kind, root_public_key)]
        if cls.kind not in kinds:
            what = f"a {kinds[0]}, not a {cls.kind}" if kinds else "not signed by this root key"
            raise CryptoError(f"{path}: {what}")
        return cls.parse(data, str(path))

    @classmethod
    def load(
        cls, path: Path, root_public_key: Ed25519PublicKey, now: float | None = None, current: Self | None = None
    ) -> Self:
        """Return the version at ``path`` if a node that holds ``current`` may use it at ``now``.

        Raises:
            CryptoError: The signature is not the root's.
            ProtocolError: Expired, not yet valid, older than ``current``, or not its successor: a fork or a gap.
            InputFileError: Missing, too large, or malformed.
        """
        document = cls.read_signed(path, root_public_key)
        document.check_follows(current, str(path))
        document.check_time(time.time() if now is None else now, str(path))
        return document

    def sign(self, path: Path, root_key: Ed25519PrivateKey) -> None:
        """Write it and its signature, which is first: a reader never meets it unsigned."""
        signature: str = encode(root_key.sign(_signed_bytes(self.kind, self.data)))
        write_atomically(signature_path(path), f"{signature}\n".encode("ascii"))
        write_atomically(path, self.data)

    @cached_property
    def data(self) -> bytes:
        """Its canonical JSON."""
        return write_record(self, self.form)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical text."""
        return hashlib.sha256(self.data).digest()

    @property
    def begins(self) -> int:
        """Seconds since 1970 from when it may be used; 0 where it does not say."""
        return 0

    def check_follows(self, current: Self | None, name: str) -> None:
        """Refuse a version that does not follow ``current``; the same one again is accepted.

        Raises:
            ProtocolError: Older, a second one of the same number, after a gap, or after another one.
        """
        if current is None or self.digest == current.digest:
            return
        version, held = self.version, current.version
        if version < held:
            raise ProtocolError(f"{name}: version {version} is older than {held}, which this node holds")
        if version == held:
            raise ProtocolError(f"{name}: a second version {version}: the root signed two; ask its keeper")
        if version > held + 1:
            raise ProtocolError(f"{name}: version {version} does not follow {held}; load {held + 1} first")
        if self.prev_digest != current.digest:
            raise ProtocolError(f"{name}: version {version} follows another {held} than this node holds")

    def check_time(self, now: float, name: str) -> None:
        """Refuse a version that has expired, or that comes from the future by more than clocks differ."""
        if self.expires is not None and now >= self.expires:
            raise ProtocolError(f"{name}: version {self.version} expired {now - self.expires:.0f} s ago")
        if now < self.begins - _CLOCK_TOLERANCE_S:
            raise ProtocolError(
                f"{name}: version {self.version} begins in {self.begins - now:.0f} s; is this clock right?"
            )
