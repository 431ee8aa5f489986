"""Cards and certificates: what a member shows of itself."""

from __future__ import annotations

import json
import socket
import ssl
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
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from tests.helpers.keys import new_keys

from veilwalk.core.errors import CryptoError, InputFileError
from veilwalk.node.members import first_roster
from veilwalk.node.members._keys import (
    NodeKeys,
    _self_signed,
)
from veilwalk.node.members._roster import Member, make_card, read_card, spki_sha256
from veilwalk.node.sealing._kem import Suite


def test_a_changed_card_is_refused(folder: Path) -> None:
    """The TLS key signs name, address and sealing keys."""
    new_keys(folder / "keys")
    text = (folder / "keys" / "card.json").read_text()
    for old, new in {"127.0.0.1:7100": "127.0.0.1:7101", '"suite":3': '"suite":2'}.items():
        with pytest.raises((CryptoError, InputFileError)):
            read_card(text.replace(old, new).encode(), "card")
    other = json.loads(text)
    kem = other["member"]["kem"]
    kem["0"], kem["1"] = kem["1"], kem["0"]
    changed = (json.dumps(other, sort_keys=True, separators=(",", ":")) + "\n").encode()
    with pytest.raises(CryptoError, match="not signed by the key it names"):
        read_card(changed, "card")


LOW_ORDER = {
    "zero": bytes(32),
    "one": bytes([1]) + bytes(31),
    "minus one": bytes([0xEC]) + bytes([0xFF]) * 30 + bytes([0x7F]),
    "of order eight": bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
}


@pytest.mark.parametrize("suite", list(Suite))
@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_card_with_a_key_that_nothing_can_be_sealed_to_is_refused(folder: Path, suite: Suite, point: str) -> None:
    """Whoever drew that member would set the walk aside, and its neighbours could not end the run."""
    keys = new_keys(folder / "keys", suite=suite)
    good = keys.member.kem[1]
    other = new_keys(folder / "other", node_id="zz", suite=suite)
    spoilt = replace(keys.member, kem={0: keys.member.kem[0], 1: good[:-32] + LOW_ORDER[point]})
    assert read_card(make_card(keys.member, suite, keys.tls_key), "card")[0].kem[1] == good
    with pytest.raises(InputFileError, match="can be sealed to"):
        read_card(make_card(spoilt, suite, keys.tls_key), "card")
    # Nor is a roster read that has one.
    with pytest.raises(InputFileError, match="can be sealed to"):
        first_roster({spoilt.id: spoilt, "zz": other.member}, [(spoilt.id, "zz")], suite=suite, now=1, days=1)


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
    with pytest.raises(InputFileError, match="certificate of a: must be a self-signed Ed25519 leaf"):
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
