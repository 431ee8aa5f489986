"""Rosters in the making: the first, members that come and go, new keys, who is next to whom."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.helpers.rosters import EDGES, NOW, ROSTER_KEYS, TLS, first, member, successor

from veilwalk.core.errors import (
    ConfigError,
    GraphError,
    InputFileError,
    InvalidParameterError,
)
from veilwalk.graphs import Graph, ring
from veilwalk.node.members._drafts import (
    edges_of_graph,
    first_roster,
    read_cards,
)
from veilwalk.node.members._keys import _self_signed
from veilwalk.node.members._roster import Member, make_card, read_card
from veilwalk.node.sealing._kem import Suite, kem_public_bytes, new_kem_secret


def test_a_first_roster_begins_where_all_have_keys() -> None:
    """The oldest period that everybody has a key for, and to the last of these."""
    cards = {"a": member("a", (1, 2)), "b": member("b", (1, 2)), "c": member("c", (1, 2)), "d": member("d", (1, 2))}
    assert first(members=cards).epoch == 1
    cards["d"] = member("d", (2, 3))
    assert list(first(members=cards).key_epochs) == [2]
    cards["d"] = member("d", (3, 4))
    with pytest.raises(ConfigError, match="a has no key for period 3, in a network with those of 3 to 3"):
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


def renewed(old: Member, epochs: tuple[int, ...]) -> Member:
    """The new card of a member: keys for these periods, of which it keeps those that it had."""
    made = {epoch: kem_public_bytes(Suite.X25519, new_kem_secret(Suite.X25519)) for epoch in epochs}
    kem = {epoch: old.kem.get(epoch, key) for epoch, key in made.items()}
    return replace(old, kem=kem, roster_key=ROSTER_KEYS[old.id].public)


def test_new_cards_bring_further_periods() -> None:
    """Periods go on as they were; those that are over are gone, but for the last of them."""
    one = first()
    cards = {name: renewed(one.member(name), (0, 1, 2, 3)) for name in one.ids}
    two = successor(one, cards=cards)
    assert (two.version, list(two.key_epochs), two.edges) == (2, [0, 1, 2, 3], one.edges)
    two.check_follows(one, "roster")
    for name in one.ids:
        assert {epoch: two.kem_key(name, epoch) for epoch in (0, 1)} == one.member(name).kem
        assert two.kem_key(name, 3) == cards[name].kem[3]
    late = NOW + 2 * one.period_s
    three = successor(two, now=late)
    assert list(three.key_epochs) == [1, 2, 3]
    for seconds in range(0, 3 * one.period_s, one.period_s // 3):
        assert three.epoch_at(late + seconds) == two.epoch_at(late + seconds)
    # Who brings no card holds the others up.
    assert list(successor(one, cards={"a": cards["a"]}).key_epochs) == [0, 1]


def test_a_network_renewed_late_goes_on_with_the_next_period() -> None:
    """Its last period has lasted for five: what was sealed in it opens, and the next is the next, a whole one later."""
    one = first()
    late = NOW + 6 * one.period_s
    assert one.epoch_at(late) == 1
    two = successor(one, cards={name: renewed(one.member(name), (0, 1, 2, 3)) for name in one.ids}, now=late)
    assert [two.epoch_at(late + seconds) for seconds in (0, one.period_s - 1, one.period_s)] == [1, 1, 2]
    assert 1 in two.open_epochs(late + one.period_s)


def test_a_card_changes_nothing_but_keys_to_come() -> None:
    """Another TLS key, another key for a period that is listed, a newcomer for too few: each has its line."""
    one = first()
    other_key = kem_public_bytes(Suite.X25519, new_kem_secret(Suite.X25519))
    fake = replace(renewed(one.member("a"), (0, 1)), certificate=_self_signed(Ed25519PrivateKey.generate(), "a"))
    with pytest.raises(InvalidParameterError, match="given as a: the card has other keys than that member"):
        successor(one, cards={"a": fake})
    with pytest.raises(ConfigError, match="the card of a has another key for period 1 than the one before"):
        successor(one, cards={"a": replace(one.member("a"), kem={1: other_key})})
    with pytest.raises(ConfigError, match="e has no key for period 1, in a network with those of 0 to 1"):
        successor(one, cards={"e": member("e", (0,))}, edges=[*EDGES, ("a", "e")])


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
