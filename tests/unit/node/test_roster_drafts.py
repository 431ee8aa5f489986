"""Rosters in the making: the first, members that come and go, new keys, who is next to whom."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.helpers.rosters import NOW, TLS, first, member, successor

from veilwalk.core.errors import (
    ConfigError,
    GraphError,
    InputFileError,
    InvalidParameterError,
)
from veilwalk.graphs import Graph, ring
from veilwalk.node.members._drafts import (
    changed_roster,
    edges_of_graph,
    first_roster,
    read_cards,
    rotated_roster,
)
from veilwalk.node.members._keys import _self_signed
from veilwalk.node.members._roster import Member, make_card, read_card
from veilwalk.node.sealing._kem import Suite, kem_public_bytes, new_kem_secret


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
    two.check_follows(one, "roster")
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
    ]
    for given_cards, line in cases:
        with pytest.raises(ConfigError, match=line):
            rotated_roster(one, cards=given_cards, now=NOW, days=30)
    # A folder of cards may still have that of somebody who left.
    assert rotated_roster(one, cards=cards | {"e": member("e")}, now=NOW, days=30).ids == one.ids


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
    with pytest.raises(ConfigError, match="of suite 2, the others of 3"):
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


def test_a_roster_that_ends_before_its_epoch_begins_names_the_days() -> None:
    """Renewed for an hour on the day that an epoch was announced: the keeper gave days, and nothing else."""
    one = first()
    cards = {name: rotated_member(one.member(name), 1) for name in one.ids}
    two = rotated_roster(one, cards=cards, now=NOW, days=30, seals_from=NOW + 86400)
    with pytest.raises(InvalidParameterError, match=r"^days = 0\.5: must be more than 1: epoch 1 begins then$"):
        changed_roster(two, two.edges, cards={}, removed=[], now=NOW, days=0.5)
    assert changed_roster(two, two.edges, cards={}, removed=[], now=NOW, days=2).version == 3
