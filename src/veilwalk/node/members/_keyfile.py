"""Key files: one secret each, readable by their owner only, sealed under a password when one is given.

PKCS8 encryption as the library writes it stretches a password with 2,048 rounds of PBKDF2, and no more can be
asked for; this container uses Argon2id and AES-256-GCM instead.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from veilwalk.core.errors import ConfigError, CryptoError, InputFileError, SpoolError
from veilwalk.node.members._signed import (
    canonical_json,
    check_fields,
    check_format,
    decode_base64,
    encode_base64,
    parse_canonical,
)

_FORMAT = "veilwalk-key-1"
_FILE_LIMIT = 4096
_PASSWORD_LIMIT = 1024
_SALT_BYTES = 16
_NONCE_BYTES = 12
_TAG_BYTES = 16
# The second recommendation of RFC 9106: 64 MiB, three passes, four lanes; about 0.1 s.
ARGON2_COST = {"iterations": 3, "lanes": 4, "memory_kib": 64 * 1024}
# A file may ask for more, within what a node can spare; never for less than its writer's floor of one pass.
_ARGON2_MOST = {"iterations": 64, "lanes": 64, "memory_kib": 2 * 1024 * 1024}


def read_password(path: Path) -> bytes:
    """Return the first line of ``path``, which may be a pipe (``/dev/fd/3``); a file must be its owner's alone.

    A systemd credential is root's and opened to the service by an access list, which shows as the group's right.
    """
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            line = stream.readline(_PASSWORD_LIMIT + 2)
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}") from None
    if stat.S_ISREG(status.st_mode):
        credential = str(path.parent) == os.environ.get("CREDENTIALS_DIRECTORY") and status.st_uid == 0
        # Through a descriptor (/dev/fd/3) it is the file behind it that needs another mode.
        _refuse_loose(path.resolve(), status, 0o037 if credential else 0o077, "600")
    password = line.rstrip(b"\r\n")
    if not password or len(password) > _PASSWORD_LIMIT:
        raise ConfigError(f"{path}: the first line must hold a password of 1 to {_PASSWORD_LIMIT} bytes")
    return password


def make_private_directory(path: Path) -> None:
    """Make ``path`` with mode 0700, or accept it if it is there and no looser."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise SpoolError(f"{path}: not a directory") from None
    except OSError as error:
        raise SpoolError(f"{path}: {error.strerror or error}") from None
    check_private_directory(path)


def check_private_directory(path: Path) -> None:
    """Refuse a directory of keys that others may enter."""
    try:
        status = path.stat()
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise InputFileError(f"{path}: not a directory")
    _refuse_loose(path, status, 0o077, "700")


def write_secret(path: Path, secret: bytes, *, about: Mapping[str, Any], password: bytes | None) -> None:
    """Write ``secret`` to a new file of mode 0600; a key is never overwritten.

    Args:
        path: The file, in a directory of mode 0700.
        secret: The key itself.
        about: What kind of key it is; readable without the password, but not changeable.
        password: Seals the file; None leaves its mode as the only protection.
    """
    content: dict[str, Any] = {"format": _FORMAT, "about": dict(about)}
    if password is None:
        content["secret"] = encode_base64(secret)
    else:
        salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
        sealing = dict(ARGON2_COST) | {"salt": encode_base64(salt), "nonce": encode_base64(nonce)}
        sealed = AESGCM(_stretch(password, salt, ARGON2_COST)).encrypt(nonce, secret, canonical_json(content))
        content["sealed"] = sealing | {"secret": encode_base64(sealed)}
    _write_new(path, canonical_json(content))


def refuse_existing(path: Path) -> None:
    """Refuse to make a key where there is one."""
    if path.exists():
        raise _there_already(path)


def read_secret(path: Path, *, about: Mapping[str, Any], length: int, password: bytes | None) -> bytes:
    """Return the secret of ``length`` bytes in ``path``.

    Raises:
        SpoolError: Others may read the file.
        CryptoError: The password is wrong, or the file was changed.
        ConfigError: The file is sealed and no password was given.
        InputFileError: The file is missing, or is no such key.
    """
    data = _read_private(path)
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
    sealing = check_fields(content.pop("sealed"), (*ARGON2_COST, "salt", "nonce", "secret"), str(path))
    cost = {name: sealing[name] for name in ARGON2_COST}
    for name, most in _ARGON2_MOST.items():
        if type(cost[name]) is not int or not 1 <= cost[name] <= most:
            raise InputFileError(f"{path}: {name} must be between 1 and {most}")
    salt = decode_base64(sealing["salt"], _SALT_BYTES, str(path))
    nonce = decode_base64(sealing["nonce"], _NONCE_BYTES, str(path))
    secret = decode_base64(sealing["secret"], length + _TAG_BYTES, str(path))
    try:
        return AESGCM(_stretch(password, salt, cost)).decrypt(nonce, secret, canonical_json(content))
    except InvalidTag:
        raise CryptoError(f"{path}: wrong password, or the file was changed") from None


def _stretch(password: bytes, salt: bytes, cost: Mapping[str, int]) -> bytes:
    memory = max(cost["memory_kib"], 8 * cost["lanes"])
    kdf = Argon2id(salt=salt, length=32, iterations=cost["iterations"], lanes=cost["lanes"], memory_cost=memory)
    return kdf.derive(password)


def _there_already(path: Path) -> SpoolError:
    return SpoolError(f"{path}: there already; a key is never overwritten")


def _write_new(path: Path, data: bytes) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise _there_already(path) from None
    except OSError as error:
        raise SpoolError(f"{path}: {error.strerror or error}") from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException as error:
        # Also of Ctrl-C: half a key would stand in the way of the next.
        path.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise SpoolError(f"{path}: {error.strerror or error}") from None


def _read_private(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            _refuse_loose(path, os.fstat(stream.fileno()), 0o077, "600")
            data = stream.read(_FILE_LIMIT + 1)
    except SpoolError:
        raise
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}") from None
    if len(data) > _FILE_LIMIT:
        raise InputFileError(f"{path}: not a key file")
    return data


def _refuse_loose(path: Path, status: os.stat_result, mask: int, allowed: str) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if mode & mask:
        raise SpoolError(f"{path}: mode {mode:03o} lets others in; do: chmod {allowed} {path}")
    if status.st_uid not in {os.geteuid(), 0}:
        raise SpoolError(f"{path}: belongs to user {status.st_uid}, not to this one")
