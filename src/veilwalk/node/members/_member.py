"""A member as the others know it: name, address, TLS certificate and sealing keys; and the card it joins with."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from veilwalk.core.errors import CryptoError, InputFileError
from veilwalk.node.members._signed import (
    canonical_json,
    check_fields,
    check_format,
    decode_base64,
    encode_base64,
    parse_canonical,
)
from veilwalk.node.sealing import Suite, check_kem_public_key

CARD_LIMIT = 64 * 1024
MAX_EPOCH = 2**31
_CARD_FORMAT = "veilwalk-card-1"
_CARD_KIND = b"veilwalk card signature 1\0"
_SIGNATURE_BYTES = 64
_CERTIFICATE_LIMIT = 1024
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)
_ADDRESS = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[A-Za-z0-9.-]{1,253}):([1-9][0-9]{0,4})", re.ASCII)
_FIELDS = ("addr", "id", "kem", "tls_cert")


@dataclass(frozen=True, kw_only=True)
class Member:
    """One node of the roster. ``kem`` maps an epoch to the public key messages of that epoch are sealed to."""

    id: str
    address: str
    certificate: bytes
    kem: Mapping[int, bytes]

    def __post_init__(self) -> None:
        check_node_id(self.id)
        match = _ADDRESS.fullmatch(self.address)
        if not match or int(match[2]) > 65535:
            raise InputFileError(f"address {self.address[:80]!r} of {self.id}: must be host:port")
        _check_certificate(self.certificate, self.id)
        object.__setattr__(self, "kem", MappingProxyType(dict(self.kem)))

    @property
    def host(self) -> str:
        """The host part of the address, without brackets."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port of the address."""
        return int(self.address.rpartition(":")[2])

    @cached_property
    def tls_spki_sha256(self) -> bytes:
        """SHA-256 of the TLS public key: what a peer is pinned to."""
        return spki_sha256(self.certificate)

    def to_dict(self) -> dict[str, Any]:
        """Return the member as it stands in a roster."""
        return {
            "addr": self.address,
            "id": self.id,
            "kem": {str(epoch): encode_base64(key) for epoch, key in self.kem.items()},
            "tls_cert": encode_base64(self.certificate),
        }


def check_node_id(name: str) -> None:
    """Refuse what cannot name a node: names stand in certificates and in paths."""
    if not _ID.fullmatch(name):
        raise InputFileError(f"member id {name[:64]!r}: must be 1 to 63 of a-z 0-9 . _ - and begin with a-z 0-9")


def member_from_dict(content: object, suite: Suite, name: str) -> Member:
    """Return the member in ``content``; refuse unknown fields and keys that are not of ``suite``."""
    fields = check_fields(content, _FIELDS, name)
    for field in ("addr", "id", "tls_cert"):
        if not isinstance(fields[field], str):
            raise InputFileError(f"{name}: {field} must be text")
    if not isinstance(fields["kem"], dict) or not 1 <= len(fields["kem"]) <= 4:
        raise InputFileError(f"{name}: kem must hold 1 to 4 epochs")
    kem = {_epoch(text, name): _kem_key(key, suite, name) for text, key in fields["kem"].items()}
    length = len(fields["tls_cert"]) // 4 * 3 - fields["tls_cert"].count("=")
    if not 0 < length <= _CERTIFICATE_LIMIT:
        raise InputFileError(f"{name}: tls_cert must be at most {_CERTIFICATE_LIMIT} bytes")
    certificate = decode_base64(fields["tls_cert"], length, f"{name}: tls_cert")
    return Member(id=fields["id"], address=fields["addr"], certificate=certificate, kem=kem)


def spki_sha256(certificate: bytes) -> bytes:
    """Return SHA-256 of the public key in a DER certificate, as ``ssl`` hands it over after a handshake."""
    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
    except _BAD_CERTIFICATE:
        raise CryptoError("a certificate was refused") from None
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


def make_card(member: Member, suite: Suite, tls_key: Ed25519PrivateKey) -> bytes:
    """Return what a member sends to the root to join: public, and signed by its TLS key."""
    content = {"format": _CARD_FORMAT, "member": member.to_dict(), "suite": int(suite)}
    signature = tls_key.sign(_CARD_KIND + canonical_json(content))
    return canonical_json(content | {"signature": encode_base64(signature)})


def read_card(data: bytes, name: str) -> tuple[Member, Suite]:
    """Return the member on a card, once it is shown to hold its TLS key."""
    found = parse_canonical(data, name)
    check_format(found, _CARD_FORMAT, name)
    content = check_fields(found, ("format", "member", "signature", "suite"), name)
    suite = parse_suite(content["suite"], name)
    member = member_from_dict(content["member"], suite, name)
    signature = decode_base64(content.pop("signature"), _SIGNATURE_BYTES, f"{name}: signature")
    try:
        _public_key(member.certificate).verify(signature, _CARD_KIND + canonical_json(content))
    except InvalidSignature:
        raise CryptoError(f"{name}: not signed by the key it names") from None
    return member, suite


def parse_suite(value: object, name: str) -> Suite:
    """Return the suite numbered ``value``."""
    if type(value) is not int or value not in set(Suite):
        raise InputFileError(f"{name}: suite must be one of {', '.join(str(int(suite)) for suite in Suite)}")
    return Suite(value)


def _epoch(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and str(int(text)) == text and int(text) < MAX_EPOCH):
        raise InputFileError(f"{name}: epoch {text[:40]!r} must be a whole number")
    return int(text)


def _kem_key(text: object, suite: Suite, name: str) -> bytes:
    key = decode_base64(text, suite.public_key_bytes, f"{name}: kem key")
    try:
        check_kem_public_key(suite, key)
    except CryptoError:
        # Every walk would end with whoever draws this member.
        raise InputFileError(f"{name}: kem key must be one that messages can be sealed to") from None
    return key


# What the library raises for certificates that are out of form, one way or another.
_BAD_CERTIFICATE = (
    *(ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm),
    *(x509.DuplicateExtension, x509.ExtensionNotFound, x509.InvalidVersion, x509.UnsupportedGeneralNameType),
)


def _check_certificate(certificate: bytes, name: str) -> None:
    """Refuse what this program would not have made: these certificates become trust anchors of TLS."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    try:
        parsed = x509.load_der_x509_certificate(certificate)
        parsed.verify_directly_issued_by(parsed)
        constraints = parsed.extensions.get_extension_for_class(x509.BasicConstraints).value
        fit = parsed.subject == subject and not constraints.ca and len(parsed.extensions) == 1
        fit = fit and isinstance(parsed.public_key(), Ed25519PublicKey)
    except _BAD_CERTIFICATE:
        fit = False
    if not fit:
        raise InputFileError(f"tls_cert of {name}: must be a self-signed Ed25519 leaf for that name")


def _public_key(certificate: bytes) -> Ed25519PublicKey:
    key = x509.load_der_x509_certificate(certificate).public_key()
    assert isinstance(key, Ed25519PublicKey)  # noqa: S101  Member refuses any other
    return key
