"""The keys of a node and of the root, the directory they live in, and the form of a key file.

    root.key  root.pub                          the root: signs rosters and manifests, kept offline
    tls.key  roster.key  kem-0000000000.key ...  card.json    a node: its TLS key, the key of its rows of rosters,
                                                one sealing key an epoch, its public card

A sealing key is deleted once its epoch is two behind: who steals the disk later cannot open what was recorded then.
A key file holds one secret, readable by its owner only, and sealed under a password when one is given. PKCS8 as the
library writes it stretches a password with 2,048 rounds of PBKDF2, and no more can be asked for; this container uses
Argon2id and AES-256-GCM instead.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.x509.oid import NameOID

from veilwalk.core import validate
from veilwalk.core.config import encode
from veilwalk.core.errors import ConfigError, CryptoError, InputFileError, InvalidParameterError, SpoolError
from veilwalk.core.files import name_os_errors
from veilwalk.core.records import write_atomically
from veilwalk.node.members._roster import (
    CARD_LIMIT,
    MOST_EPOCHS,
    Member,
    check_address,
    check_node_id,
    make_card,
    read_card,
)
from veilwalk.node.members._signed import (
    MAX_EPOCH,
    canonical_json,
    check_fields,
    check_format,
    decode_base64,
    decode_hex,
    parse_canonical,
    read_bounded,
)
from veilwalk.node.sealing import KemPrivateKey, Suite, kem_private_key, new_kem_secret

ROOT_PUBLIC_NAME = "root.pub"
CARD_NAME = "card.json"
_KEM_NAME = re.compile(r"kem-([0-9]{10})\.key")
# Validity is the roster's business: a clock that jumps must not cut a node off.
_NOT_BEFORE = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
_NOT_AFTER = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)
_FORMAT = "veilwalk-key-1"
_FILE_LIMIT = 4096
_PASSWORD_LIMIT = 1024
#: A new password has at least so many bytes: how-to pages make one of 32 from the system's source.
LEAST_PASSWORD = 8
_SALT_BYTES = 16
_NONCE_BYTES = 12
_TAG_BYTES = 16
# The second recommendation of RFC 9106: 64 MiB, three passes, four lanes; about 0.1 s.
ARGON2_COST = {"iterations": 3, "lanes": 4, "memory_kib": 64 * 1024}
# The least that is read: the first of OWASP's recommendations. Less is what a careless tool wrote.
ARGON2_LEAST = {"iterations": 2, "lanes": 1, "memory_kib": 19 * 1024}
# A file may ask for more, within what a node can spare.
_SEALING = (*ARGON2_COST, "salt", "nonce", "secret")
_ARGON2_MOST = {"iterations": 64, "lanes": 64, "memory_kib": 2 * 1024 * 1024}


@dataclass(frozen=True, kw_only=True)
class NodeKeys:
    """The keys one node holds. Secrets are kept out of its repr."""

    member: Member
    suite: Suite
    tls_key: Ed25519PrivateKey = field(repr=False)
    roster_key: KemPrivateKey = field(repr=False)
    kem: Mapping[int, KemPrivateKey] = field(repr=False)

    @property
    def id(self) -> str:
        """The name of the node."""
        return self.member.id

    def check_entry(self, entry: Member, since: int = 0) -> None:
        """Refuse a roster's entry for this node whose keys it does not hold: what is sealed to them would be lost.

        ``since`` is the first epoch that still counts.
        """
        if entry.id != self.id or entry.tls_spki_sha256 != self.member.tls_spki_sha256:
            raise ConfigError(f"the TLS key of {entry.id} in the roster is not the one in this key directory")
        for epoch in sorted(epoch for epoch in entry.kem if epoch >= since):
            if not self.holds(epoch, entry):
                raise ConfigError(f"the sealing key of {entry.id} for epoch {epoch} in the roster is not held here")

    def holds(self, epoch: int, member: Member) -> bool:
        """Return whether the private half of a member's sealing key is here."""
        return epoch in self.kem and self.kem[epoch].public == member.kem[epoch]

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
    refuse_existing(_key_path(directory, "root"))
    key = Ed25519PrivateKey.generate()
    # First: whoever is interrupted begins anew, and no key is left whose other half nobody can get.
    public = key.public_key().public_bytes_raw().hex() + "\n"
    write_atomically(directory / ROOT_PUBLIC_NAME, public.encode("ascii"))
    _write_key(directory, "root", key.private_bytes_raw(), password)
    return key


def load_root_key(directory: Path, *, password: bytes | None = None) -> Ed25519PrivateKey:
    """Return the root key in ``directory``."""
    check_private_directory(directory)
    return Ed25519PrivateKey.from_private_bytes(_read_key(directory, "root", 32, password))


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
    periods: int = 2,
    password: bytes | None = None,
) -> NodeKeys:
    """Make a node's keys in ``directory`` (mode 0700): TLS, rows of rosters, and sealing keys from ``epoch`` on."""
    check_node_id(node_id)
    check_address(address, node_id)
    validate.integer(epoch=epoch)
    _check_periods(periods, least=2)
    if not 0 <= epoch <= MAX_EPOCH - periods:
        raise InvalidParameterError("epoch", epoch, f"between 0 and {MAX_EPOCH - periods}")
    tls_key, roster_secret = Ed25519PrivateKey.generate(), new_kem_secret(Suite.HYBRID)
    roster_key = kem_private_key(Suite.HYBRID, roster_secret)
    secrets = {number: new_kem_secret(suite) for number in range(epoch, epoch + periods)}
    kem = {number: kem_private_key(suite, secret) for number, secret in secrets.items()}
    public = {number: key.public for number, key in kem.items()}
    certificate = _self_signed(tls_key, node_id)
    member = Member(id=node_id, address=address, certificate=certificate, kem=public, roster_key=roster_key.public)
    make_private_directory(directory)
    _refuse_unfinished(directory)
    _write_key(directory, "tls", tls_key.private_bytes_raw(), password)
    _write_key(directory, "roster", roster_secret, password)
    for number, secret in secrets.items():
        _write_key(directory, "kem", secret, password, epoch=number, suite=int(suite))
    write_atomically(directory / CARD_NAME, make_card(member, suite, tls_key))
    return NodeKeys(member=member, suite=suite, tls_key=tls_key, roster_key=roster_key, kem=kem)


def load_node_keys(directory: Path, *, password: bytes | None = None) -> NodeKeys:
    """Return the keys in ``directory``: every epoch it still holds."""
    check_private_directory(directory)
    _refuse_unfinished(directory)
    member, suite = read_card(read_bounded(directory / CARD_NAME, CARD_LIMIT), str(directory / CARD_NAME))
    tls_key = Ed25519PrivateKey.from_private_bytes(_read_key(directory, "tls", 32, password))
    secret = _read_key(directory, "roster", Suite.HYBRID.secret_bytes, password)
    roster_key, kem = kem_private_key(Suite.HYBRID, secret), {}
    for epoch in held_epochs(directory):
        secret = _read_key(directory, "kem", suite.secret_bytes, password, epoch=epoch, suite=int(suite))
        kem[epoch] = kem_private_key(suite, secret)
    keys = NodeKeys(member=member, suite=suite, tls_key=tls_key, roster_key=roster_key, kem=kem)
    own = tls_key.public_key() == x509.load_der_x509_certificate(member.certificate).public_key()
    # Of a card for many periods the first keys are deleted one after the other.
    listed = [epoch for epoch in member.kem if epoch >= min(kem, default=0)]
    if not own or not listed or not all(keys.holds(epoch, member) for epoch in listed):
        raise InputFileError(f"{directory}: {CARD_NAME} and the key files do not belong together")
    return keys


class KeyRing:
    """A node's key directory with its password, which is asked for once: a pipe cannot be read again.

    The password itself stays in memory, for keys that come later. It is stretched once for all keys of a directory.
    """

    def __init__(self, directory: Path, *, password: bytes | None = None) -> None:
        self._directory = directory
        self._password = password

    def load(self) -> NodeKeys:
        """Return the keys that are there now."""
        return load_node_keys(self._directory, password=self._password)

    def delete_before(self, epoch: int) -> None:
        """Delete the sealing keys that epoch ``epoch`` no longer opens with, those before ``epoch - 1``.

        The file is overwritten first. That is no promise on flash, which keeps copies of its own.
        """
        check_private_directory(self._directory)
        for number in held_epochs(self._directory):
            if number >= epoch - 1:
                return
            path = _key_path(self._directory, "kem", number)
            with name_os_errors(SpoolError, path):
                with path.open("r+b") as stream:
                    stream.write(bytes(path.stat().st_size))
                    stream.flush()
                    os.fsync(stream.fileno())
                path.unlink()
                _sync_directory(self._directory)


def rotate_node_keys(directory: Path, *, periods: int = 1, password: bytes | None = None) -> NodeKeys:
    """Make the sealing keys of the next epochs, and a new card with all that are held; delete nothing."""
    _check_periods(periods, least=1)
    keys = load_node_keys(directory, password=password)
    newest = max(keys.member.kem)
    following = range(newest + 1, newest + 1 + periods)
    # A key that is there already is one whose card was not written before a crash.
    for epoch in [epoch for epoch in following if epoch not in keys.kem]:
        _write_key(directory, "kem", new_kem_secret(keys.suite), password, epoch=epoch, suite=int(keys.suite))
    keys = load_node_keys(directory, password=password)
    kem = {epoch: keys.kem[epoch].public for epoch in sorted(keys.kem)[-MOST_EPOCHS:]}
    member = replace(keys.member, kem=kem)
    write_atomically(directory / CARD_NAME, make_card(member, keys.suite, keys.tls_key))
    return replace(keys, member=member)


def _check_periods(periods: int, *, least: int) -> None:
    validate.integer(periods=periods)
    if not least <= periods < MOST_EPOCHS:
        raise InvalidParameterError("periods", periods, f"between {least} and {MOST_EPOCHS - 1}")


def held_epochs(directory: Path) -> list[int]:
    """Return the epochs ``directory`` holds sealing keys of, oldest first."""
    return sorted(int(match[1]) for match in (_KEM_NAME.fullmatch(path.name) for path in directory.iterdir()) if match)


def _refuse_unfinished(directory: Path) -> None:
    """Refuse keys whose making was interrupted: the card comes last, so nobody knows them."""
    if _key_path(directory, "tls").exists() and not (directory / CARD_NAME).exists():
        raise InputFileError(
            f"{directory}: keys without {CARD_NAME}: if making them was interrupted nobody has them yet; "
            f"remove the directory and make them anew"
        )


def _key_path(directory: Path, kind: str, epoch: int | None = None) -> Path:
    return directory / (f"{kind}.key" if epoch is None else f"{kind}-{epoch:010d}.key")


def _write_key(directory: Path, kind: str, secret: bytes, password: bytes | None, **more: int) -> None:
    path = _key_path(directory, kind, more.get("epoch"))
    write_secret(path, secret, about={"kind": kind, **more}, password=password)


def _read_key(directory: Path, kind: str, length: int, password: bytes | None, **more: int) -> bytes:
    path = _key_path(directory, kind, more.get("epoch"))
    return read_secret(path, about={"kind": kind, **more}, length=length, password=password)


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


# ---- key files -----------------------------------------------------------------------------------------------------


def read_password(path: Path) -> bytes:
    """Return the first line of ``path``, which may be a pipe (``/dev/fd/3``); a file must be its owner's alone.

    A systemd credential is root's and opened to the service by an access list, which shows as the group's right.
    """
    with name_os_errors(InputFileError, path), path.open("rb") as stream:
        status = os.fstat(stream.fileno())
        line = stream.readline(_PASSWORD_LIMIT + 2)
    if stat.S_ISREG(status.st_mode):
        credential = str(path.parent) == os.environ.get("CREDENTIALS_DIRECTORY") and status.st_uid == 0
        # Through a descriptor (/dev/fd/3) it is the file behind it that needs another mode.
        _refuse_loose(path.resolve(), status, 0o037 if credential else 0o077, "600")
    return check_password(line.rstrip(b"\r\n"), str(path))


def check_password(password: bytes, name: str) -> bytes:
    """Return a password of a length that is allowed; its text stays out of the error."""
    if not LEAST_PASSWORD <= len(password) <= _PASSWORD_LIMIT:
        raise ConfigError(f"{name}: the first line must hold a password of {LEAST_PASSWORD} to {_PASSWORD_LIMIT} bytes")
    return password


def make_private_directory(path: Path) -> None:
    """Make ``path`` with mode 0700, or accept it if it is there and no looser."""
    with name_os_errors(SpoolError, path):
        if path.exists() and not path.is_dir():
            raise SpoolError(f"{path}: not a directory")
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private_directory(path)


def check_private_directory(path: Path) -> None:
    """Refuse a directory of keys that others may enter."""
    with name_os_errors(InputFileError, path):
        status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise InputFileError(f"{path}: not a directory")
    _refuse_loose(path, status, 0o077, "700")


def write_secret(path: Path, secret: bytes, *, about: Mapping[str, Any], password: bytes | None) -> None:
    """Write ``secret`` to a new file of mode 0600; a key is never overwritten.

    ``about``, what kind of key it is, can be read without the password, but not changed. Without a password the mode is
    the only protection.
    """
    content: dict[str, Any] = {"format": _FORMAT, "about": dict(about)}
    if password is None:
        content["secret"] = encode(secret)
    else:
        salt, nonce = _salt_of(path.parent), os.urandom(_NONCE_BYTES)
        sealing = dict(ARGON2_COST) | {"salt": encode(salt), "nonce": encode(nonce)}
        sealed = AESGCM(_stretch(password, salt, **ARGON2_COST)).encrypt(nonce, secret, canonical_json(content))
        content["sealed"] = sealing | {"secret": encode(sealed)}
    _write_new(path, canonical_json(content))


def refuse_existing(path: Path) -> None:
    """Refuse to make a key where there is one."""
    if path.exists():
        raise SpoolError(f"{path}: there already; a key is never overwritten")


def read_secret(path: Path, *, about: Mapping[str, Any], length: int, password: bytes | None) -> bytes:
    """Return the secret of ``length`` bytes in ``path``.

    Raises:
        SpoolError: Others may read the file.
        CryptoError: The password is wrong, or the file was changed.
        ConfigError: The file is sealed and no password was given.
        InputFileError: The file is missing, or is no such key.
    """
    data = read_private(path, _FILE_LIMIT)
    content = parse_canonical(data, str(path))
    check_format(content, _FORMAT, str(path))
    sealed = "sealed" in content
    check_fields(content, ("format", "about", "sealed" if sealed else "secret"), str(path))
    if content["about"] != dict(about):
        raise InputFileError(f"{path}: not a key file for {dict(about)}")
    if not sealed:
        return decode_base64(content["secret"], length, str(path))
    if password is None:
        raise ConfigError(f"{path}: sealed with a password; none was given")
    return _unseal(path, content, length, password)


def _unseal(path: Path, content: dict[str, Any], length: int, password: bytes) -> bytes:
    sealing = check_fields(content.pop("sealed"), _SEALING, str(path))
    cost = {name: sealing[name] for name in ARGON2_COST}
    for name, most in _ARGON2_MOST.items():
        least = ARGON2_LEAST[name]
        if type(cost[name]) is not int or not least <= cost[name] <= most:
            raise InputFileError(f"{path}: {name} must be between {least} and {most}: the password is stretched by it")
    salt = decode_base64(sealing["salt"], _SALT_BYTES, str(path))
    nonce = decode_base64(sealing["nonce"], _NONCE_BYTES, str(path))
    secret = decode_base64(sealing["secret"], length + _TAG_BYTES, str(path))
    try:
        return AESGCM(_stretch(password, salt, **cost)).decrypt(nonce, secret, canonical_json(content))
    except InvalidTag:
        raise CryptoError(f"{path}: wrong password, or the file was changed") from None


def _salt_of(folder: Path) -> bytes:
    """Return the salt of the keys in a folder, so that a password is stretched once for all of them; or a new one."""
    for path in folder.glob("*.key"):
        sealing = parse_canonical(read_private(path, _FILE_LIMIT), str(path)).get("sealed")
        if sealing is not None:
            return decode_base64(check_fields(sealing, _SEALING, str(path))["salt"], _SALT_BYTES, str(path))
    return os.urandom(_SALT_BYTES)


@lru_cache(maxsize=8)
def _stretch(password: bytes, salt: bytes, *, iterations: int, lanes: int, memory_kib: int) -> bytes:
    memory = max(memory_kib, 8 * lanes)
    return Argon2id(salt=salt, length=32, iterations=iterations, lanes=lanes, memory_cost=memory).derive(password)


def _write_new(path: Path, data: bytes) -> None:
    refuse_existing(path)
    with name_os_errors(SpoolError, path):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        except BaseException:
            # Also of Ctrl-C: half a key would stand in the way of the next.
            path.unlink(missing_ok=True)
            raise


def read_private(path: Path, limit: int) -> bytes:
    """Return a file of secrets; refuse one that others may read, or that is too large."""
    with name_os_errors(InputFileError, path), path.open("rb") as stream:
        _refuse_loose(path, os.fstat(stream.fileno()), 0o077, "600")
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise InputFileError(f"{path}: not a key file")
    return data


def _refuse_loose(path: Path, status: os.stat_result, mask: int, allowed: str) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if mode & mask:
        raise SpoolError(f"{path}: mode {mode:03o} lets others in; do: chmod {allowed} {path}")
    if status.st_uid not in {os.geteuid(), 0}:
        raise SpoolError(f"{path}: belongs to user {status.st_uid}, not to this one")
