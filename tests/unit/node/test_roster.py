"""Signed rosters: what they say, whose they must be, which follows which."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.helpers.manifests import make_test_manifest
from tests.helpers.rosters import DAY, EDGES, NOW, ROOT, first, member, members, sign_file, successor, written

from veilwalk.core.errors import (
    CryptoError,
    InputFileError,
    InvalidParameterError,
    ProtocolError,
)
from veilwalk.node.members._roster import Roster
from veilwalk.node.members._signed import read_bounded
from veilwalk.node.sealing._kem import Suite


@pytest.mark.parametrize("suite", Suite)
def test_a_signed_roster_comes_back(tmp_path: Path, suite: Suite) -> None:
    """Every field, through the file; the digest is that of the bytes."""
    roster = first(members={name: member(name, suite=suite) for name in "abcd"}, suite=suite, network=b"r" * 16)
    found = Roster.load(written(tmp_path / "roster.json", roster), ROOT.public_key(), NOW)
    assert found.data == roster.data == (tmp_path / "roster.json").read_bytes()
    assert found.digest == roster.digest
    assert found.members == roster.members
    assert (found.network, found.version, found.epoch, found.prev_digest) == (b"r" * 16, 1, 0, None)


def test_nodes_of_the_graph_are_members_in_order_of_their_names() -> None:
    """Index, neighbours and keys by name agree with the graph."""
    roster = first()
    graph = roster.graph()
    assert roster.ids == ("a", "b", "c", "d")
    assert [roster.index(name) for name in roster.ids] == [0, 1, 2, 3]
    assert roster.neighbours("a") == ("b", "c", "d")
    assert roster.neighbours("b") == ("a", "c")
    for name in roster.ids:
        assert [roster.ids[node] for node in graph.neighbours(roster.index(name))] == list(roster.neighbours(name))
    assert roster.kem_key("b", 1) == roster.member("b").kem[1]
    assert roster.peer_of_certificate(roster.member("c").tls_spki_sha256) == "c"
    assert roster.peer_of_certificate(bytes(32)) is None
    assert roster.trust_anchors(["a", "b"]).count("BEGIN CERTIFICATE") == 2


def test_strangers_and_other_epochs_are_named() -> None:
    """One line each."""
    roster = first()
    with pytest.raises(InvalidParameterError, match=r"^node = 'z': must be a member of roster version 1"):
        roster.neighbours("z")
    with pytest.raises(InvalidParameterError, match=r"^epoch = 2: must be one of \[0, 1\]"):
        roster.kem_key("a", 2)


def test_order_of_cards_and_edges_does_not_matter() -> None:
    """One roster, one digest, however it was put together."""
    cards = members()
    turned = {name: cards[name] for name in "dcba"}
    one = first(members=cards, network=b"r" * 16)
    other = first(members=turned, edges=[(b, a) for a, b in reversed(EDGES)], network=b"r" * 16)
    assert one.digest == other.digest


def test_the_context_of_messages_is_the_roster_s() -> None:
    """Run, suite, epoch and bucket; a manifest of another network is refused."""
    roster = first()
    manifest = make_test_manifest({"w": np.zeros((100, 100))}, run_id=b"r" * 16, network=roster.network)
    context = roster.seal_context(manifest)
    assert context.run_id == b"r" * 16
    assert (context.suite, context.epoch, context.bucket_bytes) == (Suite.X25519, 0, manifest.bucket_bytes)
    assert roster.seal_context(manifest, epoch=1).epoch == 1
    for other in (replace(manifest, network=bytes(16)), replace(manifest, suite=Suite.HYBRID)):
        with pytest.raises(ProtocolError, match="different networks or suites"):
            roster.seal_context(other)


def test_forged_signatures_are_refused(tmp_path: Path) -> None:
    """Another key, a changed byte of either file, a signature of another document."""
    path = written(tmp_path / "roster.json", first())
    signature = path.with_name("roster.json.sig")
    good, good_signature = path.read_bytes(), signature.read_bytes()
    Roster.load(path, ROOT.public_key(), NOW)
    with pytest.raises(CryptoError, match="not signed by this root key"):
        Roster.load(path, Ed25519PrivateKey.generate().public_key(), NOW)
    for at in range(0, len(good), 37):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(CryptoError):
            Roster.load(path, ROOT.public_key(), NOW)
    path.write_bytes(good)
    for text in (b"", b"AAAA\n", b"!" * 88, good_signature[:-5], b"A" * 200, b"\xff" * 88):
        signature.write_bytes(text)
        with pytest.raises((CryptoError, InputFileError)):
            Roster.load(path, ROOT.public_key(), NOW)
    signature.write_bytes(b"A" * 86 + b"==\n")
    with pytest.raises(CryptoError):
        Roster.load(path, ROOT.public_key(), NOW)
    signature.write_bytes(good_signature)
    Roster.load(path, ROOT.public_key(), NOW)


def test_a_signature_is_for_one_kind_of_document(tmp_path: Path) -> None:
    """The root's signature on a manifest does not make a roster of it, nor the bare bytes of one."""
    roster = first()
    path = written(tmp_path / "roster.json", roster)
    for kind in ("manifest", ""):
        sign_file(path, kind, roster.data, ROOT)
        with pytest.raises(CryptoError):
            Roster.load(path, ROOT.public_key(), NOW)


def test_the_signature_is_checked_before_anything_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who cannot sign does not reach the parser."""
    path = written(tmp_path / "roster.json", first(), Ed25519PrivateKey.generate())

    def fail(*_: object) -> Roster:
        raise AssertionError("parsed before verified")

    monkeypatch.setattr(Roster, "parse", fail)
    with pytest.raises(CryptoError):
        Roster.load(path, ROOT.public_key(), NOW)


@pytest.mark.parametrize(
    ("now", "line"),
    [
        (NOW - 3600, None),
        (NOW, None),
        (NOW + 30 * DAY - 1, None),
        (NOW + 30 * DAY, "version 1 expired 0 s ago"),
        (NOW + 40 * DAY, "version 1 expired 864000 s ago"),
        (NOW - 3601, "begins in 3601 s; is this clock right"),
        (float("inf"), "expired"),
    ],
)
def test_a_roster_holds_between_its_dates(tmp_path: Path, now: float, line: str | None) -> None:
    """Expired, and from the future by more than clocks differ."""
    path = written(tmp_path / "roster.json", first())
    if line is None:
        assert Roster.load(path, ROOT.public_key(), now).version == 1
    else:
        with pytest.raises(ProtocolError, match=line):
            Roster.load(path, ROOT.public_key(), now)
    assert Roster.read_signed(path, ROOT.public_key()).version == 1


def test_only_the_next_version_follows(tmp_path: Path) -> None:
    """Rollback, fork, gap, another history and another network are refused; the same again is not."""
    one = first()
    two = successor(one)
    three = successor(two)
    path = tmp_path / "roster.json"

    def load(roster: Roster, current: Roster) -> Roster:
        return Roster.load(written(path, roster), ROOT.public_key(), NOW, current)

    assert load(two, one).version == 2
    assert load(three, two).version == 3
    assert load(two, two).digest == two.digest
    cases: list[tuple[Roster, Roster, str]] = [
        (one, two, "version 1 is older than 2"),
        (successor(one, days=31), two, "a second version 2: the root signed two"),
        (three, one, "version 3 does not follow 1; load 2 first"),
        (successor(successor(one, days=31)), two, "version 3 follows another 2 than this node holds"),
        (first(), one, "of another network"),
        (replace(two, version=3), two, "version 3 follows another 2"),
    ]
    for roster, current, line in cases:
        with pytest.raises(ProtocolError, match=line):
            load(roster, current)


def test_epochs_follow_one_another() -> None:
    """Neither back nor two at once: a node holds the keys of one epoch before and after."""
    ahead = first(members=members(epochs=(5, 6)))
    for epochs, good in (((4, 5), False), ((5, 6), True), ((6, 7), True), ((7, 8), False)):
        cards = {name: member(name, epochs) for name in "abcd"}
        following = replace(
            ahead, version=2, prev_digest=ahead.digest, epoch=epochs[0], members=tuple(cards[name] for name in "abcd")
        )
        if good:
            following.check_follows(ahead, "roster")
        else:
            with pytest.raises(ProtocolError, match="does not follow 5"):
                following.check_follows(ahead, "roster")


def test_an_oversized_file_is_refused_before_it_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded on reading, signed or not."""
    path = written(tmp_path / "roster.json", first())
    monkeypatch.setattr(Roster, "limit", path.stat().st_size)
    Roster.load(path, ROOT.public_key(), NOW)
    monkeypatch.setattr(Roster, "limit", path.stat().st_size - 1)
    with pytest.raises(InputFileError, match="larger than the"):
        Roster.load(path, ROOT.public_key(), NOW)


def test_no_file_takes_more_memory_than_its_limit(tmp_path: Path) -> None:
    """64 MiB of nothing under a limit of 100 bytes: refused after 101."""
    path = tmp_path / "large"
    with path.open("wb") as stream:
        stream.truncate(64 * 1024 * 1024)
    tracemalloc.start()
    try:
        with pytest.raises(InputFileError, match="larger than the 100 bytes allowed"):
            read_bounded(path, 100)
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("missing", ["roster.json", "roster.json.sig"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    """The roster or its signature."""
    path = written(tmp_path / "roster.json", first())
    (tmp_path / missing).unlink()
    with pytest.raises(InputFileError, match=f"{missing}: No such file"):
        Roster.load(path, ROOT.public_key(), NOW)


def test_a_manifest_is_no_roster(tmp_path: Path) -> None:
    """Signed by the same root, laid where the roster belongs."""
    make_test_manifest().sign(tmp_path / "roster.json", ROOT)
    with pytest.raises(CryptoError):
        Roster.load(tmp_path / "roster.json", ROOT.public_key(), NOW)
