"""The keys of a node and of the root, and the directory they live in.

    root.key  root.pub                          the root: signs rosters and manifests, kept offline
    tls.key  kem-0000000000.key ...  card.json    a node: its TLS key, one sealing key an epoch, its public card

A sealing key is deleted once its epoch is two behind: who steals the disk later cannot open what was recorded then.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.x509.oid import NameOID

from veilwalk.core import validate
from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError, SpoolError
from veilwalk.core.records import write_atomically
from veilwalk.node.members._keyfile import (
    check_private_directory,
    make_private_directory,
    read_secret,
    refuse_existing,
    write_secret,
)
from veilwalk.node.members._member import CARD_LIMIT, MAX_EPOCH, Member, check_node_id, make_card, read_card
from veilwalk.node.members._signed import decode_hex, read_bounded
from veilwalk.node.sealing import KemPrivateKey, Suite, kem_private_key, kem_public_bytes, new_kem_secret

ROOT_PUBLIC_NAME = "root.pub"
CARD_NAME = "card.json"
_ROOT_NAME = "root.key"
_TLS_NAME = "tls.key"
_ROOT_ABOUT = {"kind": "root"}
_TLS_ABOUT = {"kind": "tls"}
_KEM_NAME = re.compile(r"kem-([0-9]{10})\.key")
# Validity is the roster's business: a clock that jumps must not cut a node off.
_NOT_BEFORE = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
_NOT_AFTER = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)


@dataclass(frozen=True, kw_only=True)
class NodeKeys:
    """The keys one node holds. Secrets are kept out of its repr."""

    member: Member
    suite: Suite
    tls_key: Ed25519PrivateKey = field(repr=False)
    kem: Mapping[int, KemPrivateKey] = field(repr=False)
    kem_public: Mapping[int, bytes] = field(repr=False)

    @property
    def id(self) -> str:
        """The name of the node."""
        return self.member.id

    def check_entry(self, entry: Member) -> None:
        """Refuse a roster's entry for this node whose keys it does not hold: what is sealed to them would be lost."""
        if entry.id != self.id or entry.tls_spki_sha256 != self.member.tls_spki_sha256:
            raise ConfigError(f"the TLS key of {entry.id} in the roster is not the one in this key directory")
        for epoch, key in sorted(entry.kem.items()):
            if self.kem_public.get(epoch) != key:
                raise ConfigError(f"the sealing key of {entry.id} for epoch {epoch} in the roster is not held here")

    def load_into(self, context: ssl.SSLContext) -> None:
        """Give ``context`` this node's certificate and key, through memory: the key never lies on a disk in clear."""
        password = os.urandom(32).hex().encode("ascii")
        key = self.tls_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password))
        handle = os.memfd_create("veilwalk-tls")
        try:
            os.write(handle, key + ssl.DER_cert_to_PEM_cert(self.member.certificate).encode("ascii"))
            context.load_cert_chain(f"/proc/self/fd/{handle}", password=password)
        finally:
            os.close(handle)


def new_root_key(directory: Path, *, password: bytes | None = None) -> Ed25519PrivateKey:
    """Make the root key in ``directory`` (mode 0700), with its public half in ``root.pub``."""
    make_private_directory(directory)
    refuse_existing(directory / _ROOT_NAME)
    key = Ed25519PrivateKey.generate()
    # First: whoever is interrupted begins anew, and no key is left whose other half nobody can get.
    public = key.public_key().public_bytes_raw().hex() + "\n"
    write_atomically(directory / ROOT_PUBLIC_NAME, public.encode("ascii"))
    write_secret(directory / _ROOT_NAME, key.private_bytes_raw(), about=_ROOT_ABOUT, password=password)
    return key


def load_root_key(directory: Path, *, password: bytes | None = None) -> Ed25519PrivateKey:
    """Return the root key in ``directory``."""
    check_private_directory(directory)
    secret = read_secret(directory / _ROOT_NAME, about=_ROOT_ABOUT, length=32, password=password)
    return Ed25519PrivateKey.from_private_bytes(secret)


def load_root_public_key(path: Path) -> Ed25519PublicKey:
    """Return the root's public key from its file, 64 hexadecimal digits."""
    text = read_bounded(path, 128).decode("ascii", "replace").strip()
    return Ed25519PublicKey.from_public_bytes(decode_hex(text, 32, str(path)))


def new_node_keys(
    directory: Path,
    *,
    node_id: str,
    address: str,
    suite: Suite = Suite.HYBRID,
    epoch: int = 0,
    password: bytes | None = None,
) -> NodeKeys:
    """Make a node's keys in ``directory`` (mode 0700): TLS, and sealing keys of ``epoch`` and the next."""
    check_node_id(node_id)
    validate.integer(epoch=epoch)
    if not 0 <= epoch < MAX_EPOCH - 1:
        raise InvalidParameterError("epoch", epoch, f"between 0 and {MAX_EPOCH - 2}")
    tls_key = Ed25519PrivateKey.generate()
    secrets = {number: new_kem_secret(suite) for number in (epoch, epoch + 1)}
    # Building the member checks the address before anything is written.
    member = Member(
        id=node_id, address=address, certificate=_self_signed(tls_key, node_id), kem=_public_keys(suite, secrets)
    )
    make_private_directory(directory)
    _refuse_unfinished(directory)
    write_secret(directory / _TLS_NAME, tls_key.private_bytes_raw(), about=_TLS_ABOUT, password=password)
    for number, secret in secrets.items():
        write_secret(_kem_path(directory, number), secret, about=_kem_about(number, suite), password=password)
    write_atomically(directory / CARD_NAME, make_card(member, suite, tls_key))
    return _node_keys(member, suite, tls_key, secrets)


def load_node_keys(directory: Path, *, password: bytes | None = None) -> NodeKeys:
    """Return the keys in ``directory``: every epoch it still holds."""
    check_private_directory(directory)
    _refuse_unfinished(directory)
    member, suite = read_card(read_bounded(directory / CARD_NAME, CARD_LIMIT), str(directory / CARD_NAME))
    secret = read_secret(directory / _TLS_NAME, about=_TLS_ABOUT, length=32, password=password)
    tls_key = Ed25519PrivateKey.from_private_bytes(secret)
    secrets = {epoch: _read_kem_secret(directory, epoch, suite, password) for epoch in held_epochs(directory)}
    keys = _node_keys(member, suite, tls_key, secrets)
    own = tls_key.public_key() == x509.load_der_x509_certificate(member.certificate).public_key()
    if not own or any(keys.kem_public.get(epoch) != key for epoch, key in member.kem.items()):
        raise InputFileError(f"{directory}: {CARD_NAME} and the key files do not belong together")
    return keys


class KeyRing:
    """A node's key directory with its password, which is asked for once: a pipe cannot be read again.

    The password itself stays in memory, since every key file is stretched with a salt of its own.
    """

    def __init__(self, directory: Path, *, password: bytes | None = None) -> None:
        self._directory = directory
        self._password = password

    def load(self) -> NodeKeys:
        """Return the keys that are there now; takes as long as the password is stretched for each of them."""
        return load_node_keys(self._directory, password=self._password)

    def delete_before(self, epoch: int) -> None:
        """Delete the sealing keys that epoch ``epoch`` no longer opens with."""
        delete_old_keys(self._directory, epoch=epoch)


def rotate_node_keys(directory: Path, *, password: bytes | None = None) -> NodeKeys:
    """Make the sealing key of the next epoch and a new card with the two newest keys; delete nothing."""
    keys = load_node_keys(directory, password=password)
    following = max(keys.member.kem) + 1
    # A key that is there already is one whose card was not written before a crash.
    if following not in keys.kem:
        secret, about = new_kem_secret(keys.suite), _kem_about(following, keys.suite)
        write_secret(_kem_path(directory, following), secret, about=about, password=password)
    secrets = {epoch: _read_kem_secret(directory, epoch, keys.suite, password) for epoch in (following - 1, following)}
    member = replace(keys.member, kem=_public_keys(keys.suite, secrets))
    write_atomically(directory / CARD_NAME, make_card(member, keys.suite, keys.tls_key))
    return load_node_keys(directory, password=password)


def delete_old_keys(directory: Path, *, epoch: int) -> list[int]:
    """Delete the sealing keys that epoch ``epoch`` no longer opens with, those before ``epoch - 1``; return which.

    The file is overwritten first. That is no promise on flash, which keeps copies of its own.
    """
    check_private_directory(directory)
    old = [number for number in held_epochs(directory) if number < epoch - 1]
    for number in old:
        path = _kem_path(directory, number)
        try:
            with path.open("r+b") as stream:
                stream.write(bytes(path.stat().st_size))
                stream.flush()
                os.fsync(stream.fileno())
            path.unlink()
            _sync_directory(directory)
        except OSError as error:
            raise SpoolError(f"{path}: {error.strerror or error}") from None
    return old


def held_epochs(directory: Path) -> list[int]:
    """Return the epochs ``directory`` holds sealing keys of, oldest first."""
    return sorted(int(match[1]) for match in (_KEM_NAME.fullmatch(path.name) for path in directory.iterdir()) if match)


def _refuse_unfinished(directory: Path) -> None:
    """Refuse keys whose making was interrupted: the card comes last, so nobody knows them."""
    if (directory / _TLS_NAME).exists() and not (directory / CARD_NAME).exists():
        raise InputFileError(
            f"{directory}: keys without {CARD_NAME}: if making them was interrupted nobody has them yet; "
            f"remove the directory and make them anew"
        )


def _public_keys(suite: Suite, secrets: Mapping[int, bytes]) -> dict[int, bytes]:
    return {epoch: kem_public_bytes(suite, secret) for epoch, secret in secrets.items()}


def _node_keys(member: Member, suite: Suite, tls_key: Ed25519PrivateKey, secrets: Mapping[int, bytes]) -> NodeKeys:
    private = {epoch: kem_private_key(suite, secret) for epoch, secret in secrets.items()}
    return NodeKeys(
        member=member,
        suite=suite,
        tls_key=tls_key,
        kem=MappingProxyType(private),
        kem_public=MappingProxyType(_public_keys(suite, secrets)),
    )


def _read_kem_secret(directory: Path, epoch: int, suite: Suite, password: bytes | None) -> bytes:
    about, path = _kem_about(epoch, suite), _kem_path(directory, epoch)
    return read_secret(path, about=about, length=suite.secret_bytes, password=password)


def _kem_path(directory: Path, epoch: int) -> Path:
    return directory / f"kem-{epoch:010d}.key"


def _kem_about(epoch: int, suite: Suite) -> dict[str, object]:
    return {"kind": "kem", "epoch": epoch, "suite": int(suite)}


def _self_signed(key: Ed25519PrivateKey, name: str) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(_NOT_BEFORE).not_valid_after(_NOT_AFTER)
    # Not an authority: it vouches for nothing but itself.
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    return builder.sign(key, None).public_bytes(Encoding.DER)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
