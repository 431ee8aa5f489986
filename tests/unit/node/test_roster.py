"""The roster: what it says, what makes it valid, and every way it may be refused."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from veilwalk.core.errors import (
    ConfigError,
    CryptoError,
    GraphError,
    InputFileError,
    InvalidParameterError,
    ProtocolError,
    VeilwalkError,
)
from veilwalk.graphs import Graph, ring
from veilwalk.node.members import _roster
from veilwalk.node.members._drafts import (
    changed_roster,
    edges_of_graph,
    first_roster,
    read_cards,
    rotated_roster,
)
from veilwalk.node.members._keys import _self_signed
from veilwalk.node.members._manifest import Manifest, array_specs, sign_manifest
from veilwalk.node.members._member import Member, make_card, read_card
from veilwalk.node.members._roster import (
    Roster,
    check_succession,
    load_roster,
    parse_roster,
    read_signed_roster,
    sign_roster,
)
from veilwalk.node.members._signed import read_bounded, sign_file
from veilwalk.node.sealing._kem import Suite, kem_public_bytes, new_kem_secret

NOW = 1_800_000_000
DAY = 24 * 3600
EDGES = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("a", "c")]
ROOT = Ed25519PrivateKey.generate()
TLS = {name: Ed25519PrivateKey.generate() for name in "abcdef"}
CERTIFICATES = {name: _self_signed(key, name) for name, key in TLS.items()}


def member(name: str, epochs: tuple[int, ...] = (0, 1), suite: Suite = Suite.X25519, **options: Any) -> Member:
    kem = {epoch: kem_public_bytes(suite, new_kem_secret(suite)) for epoch in epochs}
    settled: dict[str, Any] = {
        "address": f"{name}.example:7100",
        "certificate": CERTIFICATES[name],
        "kem": kem,
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
    sign_roster(path, roster, key)
    return path


# ---- what it says ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", Suite)
def test_a_signed_roster_comes_back(tmp_path: Path, suite: Suite) -> None:
    """Every field, through the file; the digest is that of the bytes."""
    roster = first(members={name: member(name, suite=suite) for name in "abcd"}, suite=suite, network=b"r" * 16)
    found = load_roster(written(tmp_path / "roster.json", roster), ROOT.public_key(), NOW)
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
    arrays = array_specs({"w": np.zeros((100, 100))})
    manifest = Manifest(
        run_id=b"r" * 16,
        network=roster.network,
        arrays=arrays,
        suite=Suite.X25519,
        norm_bound=1.0,
        learner="linear",
        walk="simple",
        law_digest="0" * 64,
        graph_digest=roster.graph().digest,
        seed=0,
    )
    context = roster.seal_context(manifest)
    assert context.run_id == b"r" * 16
    assert (context.suite, context.epoch, context.bucket_bytes) == (Suite.X25519, 0, manifest.bucket_bytes)
    assert roster.seal_context(manifest, epoch=1).epoch == 1
    for other in (replace(manifest, network=bytes(16)), replace(manifest, suite=Suite.HYBRID)):
        with pytest.raises(ProtocolError, match="different networks or suites"):
            roster.seal_context(other)


# ---- signatures, time, succession --------------------------------------------------------------------------------


def test_forged_signatures_are_refused(tmp_path: Path) -> None:
    """Another key, a changed byte of either file, a signature of another document."""
    path = written(tmp_path / "roster.json", first())
    signature = path.with_name("roster.json.sig")
    good, good_signature = path.read_bytes(), signature.read_bytes()
    load_roster(path, ROOT.public_key(), NOW)
    with pytest.raises(CryptoError, match="not signed by this root key"):
        load_roster(path, Ed25519PrivateKey.generate().public_key(), NOW)
    for at in range(0, len(good), 37):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(CryptoError):
            load_roster(path, ROOT.public_key(), NOW)
    path.write_bytes(good)
    for text in (b"", b"AAAA\n", b"!" * 88, good_signature[:-5], b"A" * 200, b"\xff" * 88):
        signature.write_bytes(text)
        with pytest.raises((CryptoError, InputFileError)):
            load_roster(path, ROOT.public_key(), NOW)
    signature.write_bytes(b"A" * 86 + b"==\n")
    with pytest.raises(CryptoError):
        load_roster(path, ROOT.public_key(), NOW)
    signature.write_bytes(good_signature)
    load_roster(path, ROOT.public_key(), NOW)


def test_a_signature_is_for_one_kind_of_document(tmp_path: Path) -> None:
    """The root's signature on a manifest does not make a roster of it, nor the bare bytes of one."""
    roster = first()
    path = written(tmp_path / "roster.json", roster)
    for kind in ("manifest", ""):
        sign_file(path, kind, roster.data, ROOT)
        with pytest.raises(CryptoError):
            load_roster(path, ROOT.public_key(), NOW)


def test_the_signature_is_checked_before_anything_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who cannot sign does not reach the parser."""
    path = written(tmp_path / "roster.json", first(), Ed25519PrivateKey.generate())

    def fail(*_: object) -> Roster:
        raise AssertionError("parsed before verified")

    monkeypatch.setattr(_roster, "parse_roster", fail)
    with pytest.raises(CryptoError):
        load_roster(path, ROOT.public_key(), NOW)


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
        assert load_roster(path, ROOT.public_key(), now).version == 1
    else:
        with pytest.raises(ProtocolError, match=line):
            load_roster(path, ROOT.public_key(), now)
    assert read_signed_roster(path, ROOT.public_key()).version == 1


def test_only_the_next_version_follows(tmp_path: Path) -> None:
    """Rollback, fork, gap, another history and another network are refused; the same again is not."""
    one = first()
    two = successor(one)
    three = successor(two)
    path = tmp_path / "roster.json"

    def load(roster: Roster, current: Roster) -> Roster:
        return load_roster(written(path, roster), ROOT.public_key(), NOW, current)

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
            check_succession(following, ahead, "roster")
        else:
            with pytest.raises(ProtocolError, match="does not follow 5"):
                check_succession(following, ahead, "roster")


def test_an_oversized_file_is_refused_before_it_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded on reading, signed or not."""
    path = written(tmp_path / "roster.json", first())
    monkeypatch.setattr(_roster, "_FILE_LIMIT", path.stat().st_size)
    load_roster(path, ROOT.public_key(), NOW)
    monkeypatch.setattr(_roster, "_FILE_LIMIT", path.stat().st_size - 1)
    with pytest.raises(InputFileError, match="larger than the"):
        load_roster(path, ROOT.public_key(), NOW)


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
        load_roster(path, ROOT.public_key(), NOW)


# ---- form --------------------------------------------------------------------------------------------------------


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    content = json.loads(first().data)
    change(content)
    return (json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n").encode()


def node(content: dict[str, Any], index: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = content["nodes"][index]
    return found


MALFORMED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "unknown field": (lambda c: c.update(extra=1), "unknown field 'extra'"),
    "missing field": (lambda c: c.pop("epoch"), "lacks the field 'epoch'"),
    "other format": (lambda c: c.update(format="x"), "not a roster of this version"),
    "version zero": (lambda c: c.update(version=0), "version = 0"),
    "version true": (lambda c: c.update(version=True), "version must be a whole number"),
    "version text": (lambda c: c.update(version="1"), "version must be a whole number"),
    "version fraction": (lambda c: c.update(version=1.0), "version must be a whole number"),
    "version huge": (lambda c: c.update(version=2**40, prev_digest="00" * 32), "epoch and version"),
    "first with a predecessor": (lambda c: c.update(prev_digest="00" * 32), "prev_digest"),
    "second without": (lambda c: c.update(version=2), "prev_digest"),
    "short predecessor": (lambda c: c.update(version=2, prev_digest="00"), "64 lower-case hexadecimal"),
    "upper-case id": (lambda c: c.update(run=c["run"].upper().replace("0", "A")), "32 lower-case hexadecimal"),
    "suite unknown": (lambda c: c.update(suite=3), "suite must be one of 1, 2"),
    "suite of other keys": (lambda c: c.update(suite=2), "base64 of 1216 bytes"),
    "expires before created": (lambda c: c.update(expires=c["created"]), "expires"),
    "expires never": (lambda c: c.update(expires=10**15), "expires"),
    "negative epoch": (lambda c: c.update(epoch=-1), "epoch = -1"),
    "other epoch than the keys": (lambda c: c.update(epoch=1), "sealing keys of a"),
    "nodes not a list": (lambda c: c.update(nodes={}), "nodes must be a list"),
    "no nodes": (lambda c: c.update(nodes=[]), "edges"),
    "node not an object": (lambda c: c.update(nodes=[1]), "must be an object"),
    "nodes unsorted": (lambda c: c["nodes"].reverse(), "sorted, each once"),
    "node twice": (lambda c: c["nodes"].insert(0, c["nodes"][0]), "sorted, each once"),
    "node with a field more": (lambda c: node(c).update(weight=1), "unknown field 'weight'"),
    "node id a number": (lambda c: node(c).update(id=1), "id must be text"),
    "name of another": (lambda c: node(c).update(id="b"), "tls_cert of b"),
    "bad address": (lambda c: node(c).update(addr="nowhere"), "must be host:port"),
    "no keys": (lambda c: node(c).update(kem={}), "kem must hold"),
    "key for a bad epoch": (lambda c: node(c)["kem"].update({"01": ""}), "must be a whole number"),
    "key not base64": (lambda c: node(c)["kem"].update({"0": "?"}), "base64 of 32 bytes"),
    "a third key": (lambda c: node(c)["kem"].update({"2": "A" * 43 + "="}), "sealing keys of a"),
    "certificate cut": (lambda c: node(c).update(tls_cert=node(c)["tls_cert"][:40]), "tls_cert"),
    "certificate empty": (lambda c: node(c).update(tls_cert=""), "tls_cert"),
    "certificate huge": (lambda c: node(c).update(tls_cert="A" * 4000), "at most 1024 bytes"),
    "one sealing key for two": (lambda c: node(c, 1).update(kem=node(c)["kem"]), "their sealing keys"),
    "one sealing key for two epochs": (lambda c: node(c)["kem"].update({"1": node(c)["kem"]["0"]}), "their sealing"),
    "edges not a list": (lambda c: c.update(edges="ab"), "edges must be a list"),
    "edge of three": (lambda c: c["edges"].append(["a", "b", "c"]), "a pair of ids"),
    "edge of numbers": (lambda c: c["edges"].append([0, 1]), "a pair of ids"),
    "edge to a stranger": (lambda c: c["edges"].append(["d", "z"]), "between members"),
    "edge the wrong way": (lambda c: c.update(edges=[["b", "a"]]), "the smaller id first"),
    "edge to itself": (lambda c: c.update(edges=[["a", "a"]]), "the smaller id first"),
    "edge twice": (lambda c: c["edges"].insert(0, c["edges"][0]), "sorted, each once"),
    "no edges": (lambda c: c.update(edges=[]), "no edge"),
    "not connected": (lambda c: c.update(edges=[["a", "b"], ["c", "d"]]), "must be connected"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_roster_out_of_form_is_refused_in_one_line(case: str) -> None:
    """The line names the file and what is wrong."""
    change, line = MALFORMED[case]
    with pytest.raises(InputFileError, match=line) as refused:
        parse_roster(changed(change), "roster.json")
    assert "\n" not in str(refused.value)
    assert parse_roster(changed(lambda _: None), "roster.json").version == 1


@pytest.mark.parametrize(
    "turn",
    [
        lambda data: data + b"\n",
        lambda data: data[:-1],
        lambda data: b" " + data,
        lambda data: data.replace(b":", b": ", 1),
        lambda data: b'{"created":1,' + data[1:],
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b'"a"', b'"\\u0061"', 1),
        lambda data: b"[" + data[:-1] + b"]\n",
        lambda _: b"[" * 100_000,
        lambda _: b"9" * 10_000,
        lambda _: b"NaN\n",
        lambda _: b"",
    ],
)
def test_there_is_one_text_of_a_roster(turn: Callable[[bytes], bytes]) -> None:
    """Spaces, keys twice, escapes, marks, nesting: not canonical, not a roster."""
    with pytest.raises(InputFileError):
        parse_roster(turn(first().data), "roster.json")


BASE = first().data
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), value=PLAIN)
def test_no_document_crashes_the_parser(data: st.DataObject, value: Any) -> None:
    """Any value at any place: accepted with its own bytes, or refused on purpose."""
    content = json.loads(BASE)
    place: Any = content
    while True:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(list(keys)))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = value
            break
        place = place[key]
    raw = (json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n").encode()
    try:
        assert parse_roster(raw, "roster.json").data == raw
    except VeilwalkError as error:
        assert "\n" not in str(error)  # noqa: PT017  whichever it is, it is one line


@given(raw=st.binary(max_size=300))
def test_no_bytes_crash_the_parser(raw: bytes) -> None:
    """Refused, whatever they are."""
    with pytest.raises(InputFileError):
        parse_roster(raw, "roster.json")


# ---- drafting ----------------------------------------------------------------------------------------------------


def test_a_first_roster_begins_where_all_have_keys() -> None:
    """The oldest epoch that everybody can open and announce the next for."""
    cards = {"a": member("a", (1, 2)), "b": member("b", (1, 2)), "c": member("c", (1, 2)), "d": member("d", (1, 2))}
    assert first(members=cards).epoch == 1
    cards["d"] = member("d", (2, 3))
    with pytest.raises(ConfigError, match="a has sealing keys for epochs 1 and 2: needs 2 and 3"):
        first(members=cards)
    with pytest.raises(InvalidParameterError, match="members"):
        first_roster({}, [], suite=Suite.X25519, now=NOW, days=1)


def test_members_come_and_go() -> None:
    """Added, removed, replaced; the others keep their entries, the chain goes on."""
    one = first()
    card = member("e")
    edges = [("a", "b"), ("b", "d"), ("d", "e"), ("e", "a")]
    two = successor(one, cards={"e": card}, removed=["c"], edges=edges)
    assert two.ids == ("a", "b", "d", "e")
    assert (two.version, two.prev_digest, two.epoch) == (2, one.digest, 0)
    assert two.member("a") == one.member("a")
    with pytest.raises(InvalidParameterError, match=r"^remove = 'z'"):
        successor(one, removed=["z"])
    with pytest.raises(InvalidParameterError, match="between members"):
        successor(one, removed=["c"])
    with pytest.raises(GraphError, match="must be connected"):
        successor(one, cards={"e": card})


def test_rotation_moves_everybody_to_the_next_epoch() -> None:
    """The announced key becomes current, the card brings the one after."""
    one = first()
    cards = {name: rotated_member(one.member(name), 1) for name in one.ids}
    two = rotated_roster(one, cards=cards, now=NOW, days=30)
    assert (two.version, two.epoch, two.edges) == (2, 1, one.edges)
    check_succession(two, one, "roster")
    for name in one.ids:
        assert two.kem_key(name, 1) == one.kem_key(name, 1)
        assert two.kem_key(name, 2) == cards[name].kem[2]


def rotated_member(old: Member, epoch: int) -> Member:
    key = kem_public_bytes(Suite.X25519, new_kem_secret(Suite.X25519))
    return replace(old, kem={epoch: old.kem[epoch], epoch + 1: key})


def test_rotation_changes_nothing_but_the_next_key() -> None:
    """A missing card, another TLS key, another announced key, an old card, a stranger: each has its line."""
    one = first()
    cards = {name: rotated_member(one.member(name), 1) for name in one.ids}
    other_key = {**cards["a"].kem, 1: new_kem_secret(Suite.X25519)}
    fake = _self_signed(Ed25519PrivateKey.generate(), "a")
    cases: list[tuple[dict[str, Member], str]] = [
        ({name: card for name, card in cards.items() if name != "a"}, "no card of a"),
        (cards | {"a": replace(cards["a"], certificate=fake)}, "the card of a has another TLS key"),
        (cards | {"a": replace(cards["a"], kem=other_key)}, "another key for epoch 1"),
        (cards | {"a": one.member("a")}, "a has sealing keys for epochs 0 and 1: needs 1 and 2"),
        (cards | {"e": member("e")}, "e is no member"),
    ]
    for given_cards, line in cases:
        with pytest.raises(ConfigError, match=line):
            rotated_roster(one, cards=given_cards, now=NOW, days=30)


@pytest.mark.parametrize("days", [0, -1, 4000, float("nan")])
def test_a_roster_ends(days: float) -> None:
    """Neither at once nor never."""
    with pytest.raises(InvalidParameterError, match=r"^days = "):
        first(days=days)


def test_cards_are_read_from_files_and_directories(tmp_path: Path) -> None:
    """Two of one name, and two suites, are refused."""
    for name, suite in {"a": Suite.X25519, "b": Suite.X25519, "c": Suite.HYBRID}.items():
        (tmp_path / name).mkdir()
        card = make_card(member(name, suite=suite), suite, TLS[name])
        (tmp_path / name / "card.json").write_bytes(card)
        assert read_card(card, "card")[0].id == name
    found, suite_found = read_cards([tmp_path / "a", tmp_path / "b" / "card.json"])
    assert (sorted(found), suite_found) == (["a", "b"], Suite.X25519)
    assert read_cards([]) == ({}, None)
    with pytest.raises(ConfigError, match="a second card for a"):
        read_cards([tmp_path / "a", tmp_path / "a"])
    with pytest.raises(ConfigError, match="of suite 2, the others of 1"):
        read_cards([tmp_path / "a", tmp_path / "c"])
    with pytest.raises(InputFileError, match="No such file"):
        read_cards([tmp_path / "d"])


def test_edges_come_from_graphs_by_label() -> None:
    """Nodes called as the members are stand for them, in whatever order; unnamed ones for the members in order."""
    assert edges_of_graph(ring(3), ["c", "a", "b"]) == [("a", "b"), ("a", "c"), ("b", "c")]
    path = Graph.from_edges(3, [(0, 1), (1, 2)], labels=["c", "a", "b"])
    assert edges_of_graph(path, ["a", "b", "c"]) == [("c", "a"), ("a", "b")]
    # Numbers sort otherwise as text, and are names all the same.
    many = edges_of_graph(ring(12), [str(number) for number in range(12)])
    assert {("9", "10"), ("0", "11")} <= set(many)
    with pytest.raises(InvalidParameterError, match="of 2 nodes, one for each member"):
        edges_of_graph(ring(3), ["a", "b"])
    with pytest.raises(InvalidParameterError, match="a node called c"):
        edges_of_graph(path, ["a", "b", "d"])


def test_the_graph_of_a_roster_has_the_names_of_its_members() -> None:
    """So that laws find their rows by name."""
    roster = first()
    assert roster.graph().labels == roster.ids


def test_a_manifest_is_no_roster(tmp_path: Path) -> None:
    """Signed by the same root, laid where the roster belongs."""
    manifest = Manifest(
        run_id=bytes(16),
        arrays=array_specs({"w": np.zeros(3)}),
        suite=Suite.X25519,
        norm_bound=1.0,
        learner="",
        walk="",
        law_digest="0" * 64,
        graph_digest="0" * 64,
        seed=0,
    )
    sign_manifest(tmp_path / "roster.json", manifest, ROOT)
    with pytest.raises(CryptoError):
        load_roster(tmp_path / "roster.json", ROOT.public_key(), NOW)
