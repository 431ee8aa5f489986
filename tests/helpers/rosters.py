"""Rosters of a few members, with keys made for the tests."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from veilwalk.node.members._drafts import (
    changed_roster,
    first_roster,
)
from veilwalk.node.members._keys import _self_signed
from veilwalk.node.members._roster import Member, Roster
from veilwalk.node.members._signed import _signed_bytes, signature_path
from veilwalk.node.sealing._kem import Suite, kem_private_key, kem_public_bytes, new_kem_secret

NOW = 1_800_000_000


DAY = 24 * 3600


EDGES = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("a", "c")]


ROOT = Ed25519PrivateKey.generate()


TLS = {name: Ed25519PrivateKey.generate() for name in "abcdefghijkl"}


ROSTER_KEYS = {name: kem_private_key(Suite.HYBRID, new_kem_secret(Suite.HYBRID)) for name in TLS}


CERTIFICATES = {name: _self_signed(key, name) for name, key in TLS.items()}


def member(name: str, epochs: tuple[int, ...] = (0, 1), suite: Suite = Suite.X25519, **options: Any) -> Member:
    kem = {epoch: kem_public_bytes(suite, new_kem_secret(suite)) for epoch in epochs}
    settled: dict[str, Any] = {
        "address": f"{name}.example:7100",
        "certificate": CERTIFICATES[name],
        "kem": kem,
        "roster_key": ROSTER_KEYS[name].public,
    } | options
    return Member(id=name, **settled)


def members(names: str = "abcd", epochs: tuple[int, ...] = (0, 1)) -> dict[str, Member]:
    return {name: member(name, epochs) for name in names}


def first(**options: Any) -> Roster:
    settled: dict[str, Any] = {"suite": Suite.X25519, "now": NOW, "days": 30} | options
    return first_roster(settled.pop("members", None) or members(), settled.pop("edges", EDGES), **settled)


def successor(previous: Roster, **options: Any) -> Roster:
    settled: dict[str, Any] = {"cards": {}, "removed": [], "now": NOW, "days": 30} | options
    return changed_roster(previous, settled.pop("edges", EDGES), **settled)


def written(path: Path, roster: Roster, key: Ed25519PrivateKey = ROOT) -> Path:
    roster.sign(path, key)
    return path


def sign_file(path: Path, kind: str, data: bytes, key: Ed25519PrivateKey) -> None:
    """Write any bytes and the root's signature of them, as of a document of that kind."""
    signature_path(path).write_bytes(base64.b64encode(key.sign(_signed_bytes(kind, data))) + b"\n")
    path.write_bytes(data)
