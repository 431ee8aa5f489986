"""Key files and passwords: modes, damage, cost, descriptors."""

from __future__ import annotations

import base64
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from tests.helpers.keys import new_keys

from veilwalk.core.errors import ConfigError, CryptoError, InputFileError, SpoolError
from veilwalk.node.members import _keys
from veilwalk.node.members._keys import (
    load_node_keys,
    load_root_key,
    new_root_key,
    read_password,
    read_secret,
    write_secret,
)

ABOUT = {"kind": "test"}


@pytest.mark.parametrize("password", [None, b"correct horse"])
def test_a_secret_comes_back(folder: Path, cheap: None, password: bytes | None) -> None:
    """With and without a password; the file is its owner's alone, and holds no clear secret when sealed."""
    path, secret = folder / "key", os.urandom(32)
    write_secret(path, secret, about=ABOUT, password=password)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_secret(path, about=ABOUT, length=32, password=password) == secret
    assert (base64.b64encode(secret) in path.read_bytes()) == (password is None)


def test_the_mode_does_not_hang_on_the_umask(folder: Path) -> None:
    """A careless umask must not open the file, not even for an instant."""
    old = os.umask(0)
    try:
        write_secret(folder / "key", b"s" * 32, about=ABOUT, password=None)
        new_root_key(folder / "root")
    finally:
        os.umask(old)
    assert stat.S_IMODE((folder / "key").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "root").stat().st_mode) == 0o700


def test_a_sealed_file_reads_as_the_format_says(folder: Path) -> None:
    """Opened by hand with Argon2id and AES-256-GCM, at the second recommendation of RFC 9106."""
    write_secret(folder / "key", b"s" * 32, about=ABOUT, password=b"pw")
    content = json.loads((folder / "key").read_text())
    sealing = content.pop("sealed")
    assert (sealing["iterations"], sealing["lanes"], sealing["memory_kib"]) == (3, 4, 65536)
    salt, nonce, box = (base64.b64decode(sealing[name]) for name in ("salt", "nonce", "secret"))
    key = Argon2id(salt=salt, length=32, iterations=3, lanes=4, memory_cost=65536).derive(b"pw")
    aad = b'{"about":{"kind":"test"},"format":"veilwalk-key-1"}\n'
    assert AESGCM(key).decrypt(nonce, box, aad) == b"s" * 32


def test_the_password_decides(folder: Path, cheap: None) -> None:
    """A wrong one and a missing one each have their line; neither shows what was tried."""
    path = folder / "key"
    write_secret(path, b"s" * 32, about=ABOUT, password=b"right")
    with pytest.raises(CryptoError, match="wrong password, or the file was changed") as refused:
        read_secret(path, about=ABOUT, length=32, password=b"guess")
    assert "guess" not in str(refused.value)
    with pytest.raises(ConfigError, match="sealed with a password; none was given"):
        read_secret(path, about=ABOUT, length=32, password=None)


def test_a_password_is_stretched_once_for_all_keys_of_a_folder(folder: Path, tmp_path: Path, cheap: None) -> None:
    """They share a salt, and nothing else: nonces differ, and so do the salts of two folders."""
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    paths = [folder / "one.key", folder / "two.key", other / "one.key"]
    for path in paths:
        write_secret(path, b"s" * 32, about=ABOUT, password=b"right")
        assert read_secret(path, about=ABOUT, length=32, password=b"right") == b"s" * 32
    sealed = [json.loads(path.read_text())["sealed"] for path in paths]
    assert sealed[0]["salt"] == sealed[1]["salt"] != sealed[2]["salt"]
    assert len({box["nonce"] for box in sealed}) == len({box["secret"] for box in sealed}) == 3


@pytest.mark.parametrize("field", ["salt", "nonce", "secret", "iterations", "memory_kib", "about"])
def test_a_changed_sealed_file_is_refused(folder: Path, cheap: None, field: str) -> None:
    """Every field is bound: by the key, the tag, or the associated data."""
    path = folder / "key"
    write_secret(path, b"s" * 32, about=ABOUT, password=b"right")
    content = json.loads(path.read_text())
    about: dict[str, Any] = ABOUT
    if field == "about":
        content["about"] = about = {"kind": "other"}
    elif isinstance(content["sealed"][field], int):
        content["sealed"][field] += 8
    else:
        changed = bytearray(base64.b64decode(content["sealed"][field]))
        changed[0] ^= 1
        content["sealed"][field] = base64.b64encode(changed).decode()
    path.write_bytes((json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n").encode())
    with pytest.raises(CryptoError, match="wrong password, or the file was changed"):
        read_secret(path, about=about, length=32, password=b"right")


@pytest.mark.parametrize("cost", [{"memory_kib": 2**40}, {"iterations": 10**9}, {"lanes": 0}, {"lanes": True}])
def test_a_file_cannot_ask_for_any_amount_of_work(folder: Path, cheap: None, cost: dict[str, int]) -> None:
    """A planted key file must not eat the machine."""
    path = folder / "key"
    write_secret(path, b"s" * 32, about=ABOUT, password=b"right")
    content = json.loads(path.read_text())
    content["sealed"] |= cost
    path.write_bytes((json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n").encode())
    with pytest.raises(InputFileError, match="must be between"):
        read_secret(path, about=ABOUT, length=32, password=b"right")


@pytest.mark.parametrize("cost", [{"memory_kib": 8 * 1024}, {"iterations": 1}])
def test_a_password_that_is_hardly_stretched_is_refused(folder: Path, cost: dict[str, int]) -> None:
    """A careless tool wrote such a file: who steals it tries passwords a thousand times as fast."""
    path = folder / "key"
    write_secret(path, b"s" * 32, about=ABOUT, password=b"right")
    content = json.loads(path.read_text())
    content["sealed"] |= cost
    path.write_bytes((json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n").encode())
    with pytest.raises(InputFileError, match=next(iter(cost))):
        read_secret(path, about=ABOUT, length=32, password=b"right")


@pytest.mark.parametrize("content", [b"", b"{}\n", b"\xff" * 100, b"[" * 5000, b'{"format":"other"}\n', b"1" * 4000])
def test_what_is_no_key_file_is_refused(folder: Path, content: bytes) -> None:
    """Empty, binary, nested, too long, of another format."""
    path = folder / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(InputFileError):
        read_secret(path, about=ABOUT, length=32, password=None)


def test_a_key_of_another_kind_or_length_is_refused(folder: Path) -> None:
    """A TLS key is no sealing key, and the key of one epoch is not that of another."""
    write_secret(folder / "key", b"s" * 32, about={"kind": "kem", "epoch": 1}, password=None)
    with pytest.raises(InputFileError, match="not a key file for"):
        read_secret(folder / "key", about={"kind": "kem", "epoch": 2}, length=32, password=None)
    with pytest.raises(InputFileError, match="base64 of 31 bytes"):
        read_secret(folder / "key", about={"kind": "kem", "epoch": 1}, length=31, password=None)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_loose_files_are_refused_with_the_remedy(folder: Path, mode: int) -> None:
    """As OpenSSH does; the line says which command puts it right."""
    path = folder / "key"
    write_secret(path, b"s" * 32, about=ABOUT, password=None)
    path.chmod(mode)
    with pytest.raises(SpoolError, match=f"mode {mode:o} lets others in; do: chmod 600 "):
        read_secret(path, about=ABOUT, length=32, password=None)
    path.chmod(0o400)
    assert read_secret(path, about=ABOUT, length=32, password=None) == b"s" * 32


def test_loose_directories_are_refused(folder: Path) -> None:
    """Before any key in them is read or made."""
    loose = folder / "keys"
    loose.mkdir()
    loose.chmod(0o750)
    with pytest.raises(SpoolError, match="mode 750 lets others in; do: chmod 700 "):
        new_keys(loose)
    assert list(loose.iterdir()) == []
    with pytest.raises(SpoolError, match="chmod 700"):
        load_root_key(loose)


def test_files_of_somebody_else_are_refused() -> None:
    """A key another user owns is one another user can change."""
    fields = (stat.S_IFREG | 0o600, 0, 0, 1, os.geteuid() + 4242, 0, 0, 0, 0, 0)
    with pytest.raises(SpoolError, match="belongs to user"):
        _keys._refuse_loose(Path("key"), os.stat_result(fields), 0o077, "600")


def test_a_key_is_never_overwritten(folder: Path) -> None:
    """Making keys twice in one place is refused, and the first stay."""
    first = new_keys(folder / "keys")
    with pytest.raises(SpoolError, match="there already; a key is never overwritten"):
        new_keys(folder / "keys")
    assert load_node_keys(folder / "keys").member == first.member


def test_a_full_disk_is_a_storage_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC while a key is written."""

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(SpoolError, match="No space left on device"):
        write_secret(folder / "key", b"s" * 32, about=ABOUT, password=None)
    assert not (folder / "key").exists()


@pytest.mark.parametrize(
    ("content", "password"),
    [
        (b"password", b"password"),
        (b"password\n", b"password"),
        (b"pass word \r\nmore\n", b"pass word "),
        (b"x" * 1024, b"x" * 1024),
    ],
)
def test_the_first_line_is_the_password(folder: Path, content: bytes, password: bytes) -> None:
    """Without its line end, and with its spaces."""
    path = folder / "password"
    path.write_bytes(content)
    path.chmod(0o600)
    assert read_password(path) == password


@pytest.mark.parametrize("content", [b"", b"\n", b"x", b"1234567\nsecond", b"x" * 1025, b"x" * 5000])
def test_short_and_endless_passwords_are_refused(folder: Path, content: bytes) -> None:
    """An empty first line is a mistake, not a password; one of a byte protects nothing."""
    path = folder / "password"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="8 to 1024 bytes"):
        read_password(path)


def test_a_password_comes_from_a_descriptor(folder: Path) -> None:
    """A pipe at /dev/fd/N has no mode to check; a loose file has."""
    reader, writer = os.pipe()
    os.write(writer, b"password\n")
    os.close(writer)
    try:
        assert read_password(Path(f"/dev/fd/{reader}")) == b"password"
    finally:
        os.close(reader)
    (folder / "password").write_bytes(b"pw\n")
    (folder / "password").chmod(0o644)
    with pytest.raises(SpoolError, match="lets others in"):
        read_password(folder / "password")
    with pytest.raises(InputFileError, match="No such file"):
        read_password(folder / "missing")


def test_a_systemd_credential_is_roots_and_readable_by_an_access_list(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which shows as mode 440; elsewhere, or of another owner, that mode is refused."""
    path = folder / "password"
    path.write_bytes(b"password\n")
    path.chmod(0o600)
    found = list(path.stat())
    found[0], found[4] = 0o100440, 0
    monkeypatch.setattr("veilwalk.node.members._keys.os.fstat", lambda _: os.stat_result(found))
    with pytest.raises(SpoolError, match="mode 440 lets others in"):
        read_password(path)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
    assert read_password(path) == b"password"
    found[4] = 12345
    with pytest.raises(SpoolError, match="mode 440 lets others in"):
        read_password(path)
