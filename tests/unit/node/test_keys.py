"""Keys on disk: who may read them, what opens them, how they rotate; and that TLS takes them."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from veilwalk.core.errors import ConfigError, CryptoError, InputFileError, InvalidParameterError, SpoolError
from veilwalk.node.members import _keyfile
from veilwalk.node.members._keyfile import read_password, read_secret, write_secret
from veilwalk.node.members._keys import (
    NodeKeys,
    _self_signed,
    delete_old_keys,
    held_epochs,
    load_node_keys,
    load_root_key,
    load_root_public_key,
    new_node_keys,
    new_root_key,
    rotate_node_keys,
)
from veilwalk.node.members._member import Member, make_card, read_card, spki_sha256
from veilwalk.node.sealing._context import SealContext
from veilwalk.node.sealing._envelope import open_header, seal
from veilwalk.node.sealing._kem import Suite

ABOUT = {"kind": "test"}


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretch passwords quickly; one test below holds the real cost."""
    monkeypatch.setattr(_keyfile, "ARGON2_COST", {"iterations": 1, "lanes": 1, "memory_kib": 64})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def new_keys(path: Path, **options: Any) -> NodeKeys:
    settled: dict[str, Any] = {"node_id": "clinic-a", "address": "127.0.0.1:7100", "suite": Suite.X25519} | options
    return new_node_keys(path, **settled)


# ---- key files ---------------------------------------------------------------------------------------------------


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
    with pytest.raises(InputFileError, match="must be between 1 and"):
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
        _keyfile._refuse_loose(Path("key"), os.stat_result(fields), 0o077, "600")


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


# ---- passwords ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "password"),
    [(b"pw", b"pw"), (b"pw\n", b"pw"), (b"a b \r\nmore\n", b"a b "), (b"x" * 1024, b"x" * 1024)],
)
def test_the_first_line_is_the_password(folder: Path, content: bytes, password: bytes) -> None:
    """Without its line end, and with its spaces."""
    path = folder / "password"
    path.write_bytes(content)
    path.chmod(0o600)
    assert read_password(path) == password


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\nsecond", b"x" * 1025, b"x" * 5000 + b"\n"])
def test_empty_and_endless_passwords_are_refused(folder: Path, content: bytes) -> None:
    """An empty first line is a mistake, not a password."""
    path = folder / "password"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="1 to 1024 bytes"):
        read_password(path)


def test_a_password_comes_from_a_descriptor(folder: Path) -> None:
    """A pipe at /dev/fd/N has no mode to check; a loose file has."""
    reader, writer = os.pipe()
    os.write(writer, b"piped\n")
    os.close(writer)
    try:
        assert read_password(Path(f"/dev/fd/{reader}")) == b"piped"
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
    path.write_bytes(b"pw\n")
    path.chmod(0o600)
    found = list(path.stat())
    found[0], found[4] = 0o100440, 0
    monkeypatch.setattr("veilwalk.node.members._keyfile.os.fstat", lambda _: os.stat_result(found))
    with pytest.raises(SpoolError, match="mode 440 lets others in"):
        read_password(path)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
    assert read_password(path) == b"pw"
    found[4] = 12345
    with pytest.raises(SpoolError, match="mode 440 lets others in"):
        read_password(path)


# ---- the root and the node ---------------------------------------------------------------------------------------


def test_the_root_key_comes_back_and_its_public_half_fits(folder: Path, cheap: None) -> None:
    """Signed with one, verified with the other."""
    made = new_root_key(folder / "root", password=b"pw")
    loaded = load_root_key(folder / "root", password=b"pw")
    public = load_root_public_key(folder / "root" / "root.pub")
    public.verify(loaded.sign(b"x"), b"x")
    assert made.private_bytes_raw() == loaded.private_bytes_raw()


@pytest.mark.parametrize("text", ["", "zz" * 32, "00" * 31, "AB" * 32, "00" * 100])
def test_a_bad_public_key_file_is_refused(folder: Path, text: str) -> None:
    """64 lower-case digits, nothing else."""
    (folder / "root.pub").write_text(text)
    with pytest.raises(InputFileError):
        load_root_public_key(folder / "root.pub")


@pytest.mark.parametrize("suite", Suite)
def test_a_node_s_keys_come_back_and_open_what_is_sealed_to_its_card(folder: Path, cheap: None, suite: Suite) -> None:
    """The public keys on the card belong to the private ones on disk, epoch by epoch."""
    new_keys(folder / "keys", suite=suite, epoch=4, password=b"pw")
    keys = load_node_keys(folder / "keys", password=b"pw")
    member, found = read_card((folder / "keys" / "card.json").read_bytes(), "card")
    assert (member, found) == (keys.member, suite)
    assert sorted(keys.kem) == sorted(member.kem) == [4, 5]
    for epoch in (4, 5):
        context = SealContext(run_id=bytes(16), suite=suite, epoch=epoch, bucket_bytes=16384)
        message = seal(context, [member.kem[epoch]], walk_tag=bytes(8), iteration=0, body=b"x")
        assert open_header(context, keys.kem[epoch], message) is not None
        assert open_header(context, keys.kem[9 - epoch], message) is None


@pytest.mark.parametrize(
    "options", [{"node_id": "Clinic"}, {"node_id": ""}, {"node_id": "a" * 64}, {"node_id": "../x"}, {"node_id": "a\n"}]
)
def test_bad_names_are_refused_before_anything_is_written(folder: Path, options: dict[str, str]) -> None:
    """A name is part of certificates, and of paths."""
    with pytest.raises(InputFileError, match="must be"):
        new_keys(folder / "keys", **options)
    assert not (folder / "keys").exists()


@pytest.mark.parametrize(
    "address", ["host", "host:", ":1", "host:0", "host:65536", "a b:1", "::1:7", "host:1\n", "[x]:1"]
)
def test_bad_addresses_are_refused(folder: Path, address: str) -> None:
    """host:port, with IPv6 in brackets."""
    with pytest.raises(InputFileError, match="must be host:port"):
        new_keys(folder / "keys", address=address)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("a.example:1", "a.example", 1), ("10.0.0.1:65535", "10.0.0.1", 65535), ("[::1]:7100", "::1", 7100)],
)
def test_addresses_fall_into_host_and_port(folder: Path, address: str, host: str, port: int) -> None:
    """As asyncio wants them."""
    member = new_keys(folder / "keys", address=address).member
    assert (member.host, member.port) == (host, port)


@pytest.mark.parametrize("epoch", [-1, 2**31, 1.5])
def test_bad_epochs_are_refused(folder: Path, epoch: Any) -> None:
    """Whole numbers that fit the roster."""
    with pytest.raises(InvalidParameterError, match=r"^epoch = "):
        new_keys(folder / "keys", epoch=epoch)


def test_mixed_up_directories_are_refused(folder: Path) -> None:
    """A card beside other keys than its own."""
    new_keys(folder / "one")
    new_keys(folder / "two")
    for name in ("card.json", "tls.key", "kem-0000000001.key"):
        content = (folder / "one" / name).read_bytes()
        (folder / "one" / name).write_bytes((folder / "two" / name).read_bytes())
        with pytest.raises(InputFileError, match="do not belong together"):
            load_node_keys(folder / "one")
        (folder / "one" / name).write_bytes(content)
    assert load_node_keys(folder / "one").id == "clinic-a"


def test_an_entry_of_the_roster_must_hold_this_node_s_keys(folder: Path) -> None:
    """Another TLS key, another sealing key or an epoch without one: what is sealed to it could never be opened."""
    keys, other = new_keys(folder / "keys"), new_keys(folder / "other")
    keys.check_entry(keys.member)
    with pytest.raises(ConfigError, match="the TLS key of clinic-a in the roster"):
        keys.check_entry(other.member)
    for kem in ({0: keys.member.kem[0], 1: other.member.kem[1]}, {1: keys.member.kem[1], 2: other.member.kem[1]}):
        with pytest.raises(ConfigError, match=r"the sealing key of clinic-a for epoch [12] in the roster"):
            keys.check_entry(replace(keys.member, kem=kem))
    keys.check_entry(replace(keys.member, kem={1: keys.member.kem[1]}))


def test_reprs_hold_no_secret(folder: Path) -> None:
    """Keys may be logged by mistake; their secrets may not."""
    keys = new_keys(folder / "keys")
    raw = keys.tls_key.private_bytes_raw()
    assert "PrivateKey" not in repr(keys)
    assert raw.hex() not in repr(keys)
    assert repr(raw)[2:-1] not in repr(keys)


# ---- rotation ----------------------------------------------------------------------------------------------------


def test_rotation_adds_the_next_epoch_and_deletes_two_behind(folder: Path, cheap: None) -> None:
    """A node in epoch e opens with e and e-1, has announced e+1, and no longer has e-2."""
    path = folder / "keys"
    new_keys(path, password=b"pw")
    for epoch in range(1, 6):
        keys = rotate_node_keys(path, password=b"pw")
        assert sorted(keys.member.kem) == [epoch, epoch + 1]
        assert delete_old_keys(path, epoch=epoch) == ([epoch - 2] if epoch >= 2 else [])
        assert held_epochs(path) == list(range(max(0, epoch - 1), epoch + 2))
    assert sorted(load_node_keys(path, password=b"pw").kem) == [4, 5, 6]


def test_rotation_keeps_every_other_key(folder: Path) -> None:
    """Certificate, address and the keys already announced stay as they are."""
    before = new_keys(folder / "keys")
    after = rotate_node_keys(folder / "keys")
    assert after.member.certificate == before.member.certificate
    assert after.member.kem[1] == before.member.kem[1]
    assert after.member.address == before.member.address


def test_an_interrupted_rotation_is_finished(folder: Path) -> None:
    """A crash between the new key and the new card: the next call uses that key, and skips no epoch."""
    path = folder / "keys"
    new_keys(path)
    card = (path / "card.json").read_bytes()
    keys = rotate_node_keys(path)
    (path / "card.json").write_bytes(card)
    again = rotate_node_keys(path)
    assert again.member == keys.member
    assert held_epochs(path) == [0, 1, 2]


def test_a_deleted_key_is_gone_from_its_file_too(folder: Path) -> None:
    """The bytes are overwritten before the name goes; a second name for the file shows it."""
    path = folder / "keys"
    new_keys(path)
    (path / "other").hardlink_to(path / "kem-0000000000.key")
    assert delete_old_keys(path, epoch=2) == [0]
    assert set((path / "other").read_bytes()) == {0}
    assert not (path / "kem-0000000000.key").exists()


# ---- cards and certificates --------------------------------------------------------------------------------------


def test_a_changed_card_is_refused(folder: Path) -> None:
    """The TLS key signs name, address and sealing keys."""
    new_keys(folder / "keys")
    text = (folder / "keys" / "card.json").read_text()
    for old, new in {"127.0.0.1:7100": "127.0.0.1:7101", '"suite":1': '"suite":2'}.items():
        with pytest.raises((CryptoError, InputFileError)):
            read_card(text.replace(old, new).encode(), "card")
    other = json.loads(text)
    other["member"]["kem"]["0"], other["member"]["kem"]["1"] = other["member"]["kem"]["1"], other["member"]["kem"]["0"]
    changed = (json.dumps(other, sort_keys=True, separators=(",", ":")) + "\n").encode()
    with pytest.raises(CryptoError, match="not signed by the key it names"):
        read_card(changed, "card")


def certificate(
    name: str = "a", *, ca: bool = False, issuer: str = "", plain: bool = False, curve: bool = False
) -> bytes:
    key: Any = ec.generate_private_key(ec.SECP256R1()) if curve else Ed25519PrivateKey.generate()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issued = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer or name)])
    own = x509.load_der_x509_certificate(_self_signed(Ed25519PrivateKey.generate(), "x"))
    builder = x509.CertificateBuilder(issued, subject, key.public_key(), 1)
    builder = builder.not_valid_before(own.not_valid_before_utc).not_valid_after(own.not_valid_after_utc)
    if not plain:
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    return builder.sign(key, hashes.SHA256() if curve else None).public_bytes(Encoding.DER)


CERTIFICATES: dict[str, Callable[[], bytes]] = {
    "another name": lambda: certificate("b"),
    "an authority": lambda: certificate(ca=True),
    "issued by another": lambda: certificate(issuer="b"),
    "no constraints": lambda: certificate(plain=True),
    "another kind of key": lambda: certificate(curve=True),
    "cut": lambda: certificate()[:-1],
    "garbage": lambda: b"garbage",
    "signature changed": lambda: (made := certificate())[:-1] + bytes([made[-1] ^ 1]),
}


@pytest.mark.parametrize("case", CERTIFICATES)
def test_certificates_we_would_not_make_are_refused(folder: Path, case: str) -> None:
    """They become trust anchors: an authority among them could vouch for others."""
    kem = new_keys(folder / "keys").member.kem
    assert Member(id="a", address="h:1", certificate=certificate(), kem=kem).id == "a"
    with pytest.raises(InputFileError, match="tls_cert of a: must be a self-signed Ed25519 leaf"):
        Member(id="a", address="h:1", certificate=CERTIFICATES[case](), kem=kem)


def test_a_peer_s_certificate_that_is_garbage_is_refused() -> None:
    """What ssl hands over is the peer's choice."""
    with pytest.raises(CryptoError):
        spki_sha256(b"garbage")


def handshake(server: NodeKeys, client: NodeKeys, *, trusted: Member, expected: Member) -> tuple[bytes, bytes]:
    """Mutual TLS 1.3 over a socket pair; return the key digests each side saw."""

    def context(keys: NodeKeys, peer: Member, side: int) -> ssl.SSLContext:
        made = ssl.SSLContext(side)
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        made.check_hostname = False
        made.verify_mode = ssl.CERT_REQUIRED
        made.load_verify_locations(cadata=ssl.DER_cert_to_PEM_cert(peer.certificate))
        keys.load_into(made)
        return made

    left, right = socket.socketpair()
    left.settimeout(10)
    right.settimeout(10)
    seen: list[bytes] = []

    def serve() -> None:
        try:
            with context(server, trusted, ssl.PROTOCOL_TLS_SERVER).wrap_socket(left, server_side=True) as end:
                seen.append(spki_sha256(end.getpeercert(binary_form=True) or b""))
                end.sendall(b"hello")
        except ssl.SSLError:
            left.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with context(client, expected, ssl.PROTOCOL_TLS_CLIENT).wrap_socket(right) as end:
            assert end.recv(5) == b"hello"
            seen.append(spki_sha256(end.getpeercert(binary_form=True) or b""))
    finally:
        right.close()
        thread.join()
    return seen[0], seen[1]


def test_mutual_tls_with_these_keys(folder: Path) -> None:
    """Each side sees the other's pinned key; a key that is not the one trusted does not get through."""
    one, two, other = (new_keys(folder / name, node_id=name) for name in ("one", "two", "other"))
    before = set(Path("/proc/self/fd").iterdir())
    seen = handshake(one, two, trusted=two.member, expected=one.member)
    assert seen == (two.member.tls_spki_sha256, one.member.tls_spki_sha256)
    with pytest.raises(ssl.SSLError):
        handshake(one, two, trusted=two.member, expected=other.member)
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        handshake(one, other, trusted=two.member, expected=one.member)
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_a_card_of_one_node_is_none_of_another(folder: Path) -> None:
    """Signing with another TLS key than the certificate's."""
    one, two = new_keys(folder / "one"), new_keys(folder / "two")
    with pytest.raises(CryptoError, match="not signed by the key it names"):
        read_card(make_card(one.member, one.suite, two.tls_key), "card")
