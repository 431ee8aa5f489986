"""A dealt roster says to everybody who belongs, and to each member what it needs of links and keys, and no more."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.rosters import DAY, NOW, ROSTER_KEYS, members, written

from veilwalk.core.errors import (
    ConfigError,
    GraphError,
    InputFileError,
    InvalidParameterError,
    ProtocolError,
    SpoolError,
)
from veilwalk.node.members import Deal, Member, Roster, deal_again, deal_path, deal_roster
from veilwalk.node.sealing import Suite

PERIOD_S = 100
NAMES = "abcdefghij"


def deal(names: str = NAMES, *, epochs: tuple[int, ...] = (0, 1, 2, 3), degree: int = 3) -> tuple[Roster, Deal]:
    cards = members(names, epochs)
    return deal_roster(cards, degree=degree, period_s=PERIOD_S, suite=Suite.X25519, now=NOW, days=30)


def change(roster: Roster, kept: Deal, cards: str = "", **options: Any) -> tuple[Roster, Deal]:
    now = int(options.pop("now", NOW + 10))
    drawn = members(cards, (0, 1, 2, 3))
    return deal_again(roster, kept, cards=drawn, now=now, days=30, **options)


def opened(roster: Roster, name: str) -> Roster:
    return roster.open_row(name, ROSTER_KEYS[name])


def links(kept: Deal, name: str) -> set[str]:
    """The neighbours of a member who are there."""
    ends = {other for edge in kept.edges if name in edge for other in edge}
    return ends - {name} - set(kept.left)


def test_each_member_reads_its_own_links_keys_and_addresses() -> None:
    """All that the dealer drew, and both ends of a link read the same of it."""
    roster, kept = deal()
    cards = {member.id: member for member in kept.members}
    for name in NAMES:
        own = opened(roster, name)
        assert set(own.neighbours(name)) == links(kept, name)
        assert len(own.neighbours(name)) == 3
        for other in {name, *own.neighbours(name)}:
            assert own.member(other).address == cards[other].address
            assert own.member(other).kem == cards[other].kem
        for epoch in range(4):
            near = {cards[other].kem[epoch] for other in {name, *own.neighbours(name)}}
            assert set(own.foreign_keys(epoch)) == {card.kem[epoch] for card in cards.values()} - near


def test_the_open_part_names_no_link_address_or_owner_of_a_key() -> None:
    """What everybody reads is the same text whatever the dealer drew, but for what is shuffled or sealed."""
    roster, kept = deal()
    assert roster.edges == ()
    for member in kept.members:
        assert member.address.encode() not in roster.data
        assert not {roster.member(member.id).address, *roster.member(member.id).kem.values()} - {""}
    assert len(set(map(len, roster.rows))) == 1
    with pytest.raises(ConfigError, match="sealed for each member"):
        roster.neighbours("a")
    other = opened(roster, "a")
    stranger = next(name for name in NAMES if name != "a" and name not in other.neighbours("a"))
    assert other.member(stranger).address == ""
    with pytest.raises(ConfigError, match="sealed for each member"):
        other.neighbours(stranger)
    with pytest.raises(InvalidParameterError, match="epoch"):
        other.kem_key(stranger, 0)


def test_a_row_opens_for_its_member_and_version_alone() -> None:
    """Not with the key of another member, nor in another version."""
    roster, kept = deal()
    with pytest.raises(ConfigError, match="row of a in roster version 1"):
        roster.open_row("a", ROSTER_KEYS["b"])
    following, _ = change(roster, kept)
    moved = replace(following, rows=roster.rows)
    with pytest.raises(ConfigError, match="row of a in roster version 2"):
        opened(moved, "a")


def test_the_form_reads_back_and_the_digest_is_that_of_the_signed_text(tmp_path: Path) -> None:
    """Signed, loaded and opened, it is the same roster."""
    roster, _ = deal()
    read = Roster.read_draft(written(tmp_path / "roster.json", roster))
    assert read.digest == roster.digest == opened(read, "c").digest


def test_the_dealer_keeps_its_part_for_itself_and_by_the_roster(tmp_path: Path) -> None:
    """A file that others may read, or that belongs to another roster, is refused."""
    roster, kept = deal()
    path = deal_path(tmp_path / "roster.json")
    kept.write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Deal.read(path, roster) == kept
    with pytest.raises(ConfigError, match="another roster"):
        Deal.read(path, change(roster, kept)[0])
    path.chmod(0o644)
    with pytest.raises(SpoolError, match="mode 644"):
        Deal.read(path, roster)


def test_periods_begin_by_the_rosters_time_and_the_last_one_stays() -> None:
    """Messages of the period before are opened, and so are those of clocks that are ahead."""
    roster, _ = deal()
    assert [roster.epoch_at(NOW + seconds) for seconds in (-50, 0, 99, 100, 250, 399, 10**6)] == [0, 0, 0, 1, 2, 3, 3]
    assert [list(roster.open_epochs(NOW + seconds)) for seconds in (0, 100, 250, 999)] == [
        [0, 1],
        [0, 1, 2],
        [1, 2, 3],
        [2, 3],
    ]


def test_orders_of_keys_and_links_are_drawn_evenly() -> None:
    """Each of two members has either place of the list, and each link is as likely; over 200 deals."""
    first, linked = Counter[bool](), Counter[str]()
    cards = members("abcdef", (0, 1))
    for _ in range(200):
        roster, kept = deal_roster(cards, degree=3, period_s=PERIOD_S, suite=Suite.X25519, now=NOW, days=30)
        first[roster.keys[0].index(cards["a"].kem[0]) < roster.keys[0].index(cards["b"].kem[0])] += 1
        linked.update(links(kept, "a"))
    # 200 fair coins, and 200 draws of 3 of 5: farther off than 5 standard deviations is no chance.
    assert abs(first[True] - 100) < 5 * 7.1
    assert all(abs(linked[name] - 120) < 5 * 6.9 for name in "bcdef")


def test_a_member_that_left_leaves_its_place_until_the_next_version_and_has_it_back() -> None:
    """Nobody is given another neighbour meanwhile; then a returning member has the neighbours that it had."""
    roster, kept = deal()
    before = {name: links(kept, name) for name in NAMES}
    second, after = change(roster, kept, removed=["d"])
    assert "d" not in second.ids
    assert {name: links(after, name) for name in second.ids} == {
        name: near - {"d"} for name, near in before.items() if name != "d"
    }
    third, back = change(second, after, "d")
    assert {name: links(back, name) for name in third.ids} == before


def test_a_place_that_nobody_took_is_closed_with_the_next_version() -> None:
    """Its neighbours are joined to each other, all but one whom parity leaves with two, and nobody else is touched."""
    roster, kept = deal()
    near = links(kept, "d")
    second, after = change(roster, kept, removed=["d"])
    _, closed = change(second, after)
    degrees = {name: len(links(closed, name)) for name in set(NAMES) - {"d"}}
    assert sorted(degrees.values()) == [2, *[3] * 8]
    added = set(closed.edges) - set(kept.edges)
    assert len(added) <= 2
    assert near & {end for edge in added for end in edge}


def test_newcomers_take_places_and_links_stay() -> None:
    """One in the place that was left, two more between links that are there."""
    roster, kept = deal()
    second, after = change(roster, kept, removed=["d"])
    third, grown = change(second, after, "k")
    assert links(grown, "k") == links(kept, "d")
    _, wide = change(third, grown, "dl")
    assert sorted(len(links(wide, name)) for name in set(NAMES) | set("dkl")) == [3] * 12
    kept_links = set(grown.edges) & set(wide.edges)
    assert len(set(grown.edges) - kept_links) <= 3


def test_a_replaced_member_keeps_its_place_and_needs_to_be_named() -> None:
    """A lost machine: other keys, the same neighbours."""
    roster, kept = deal()
    card = replace(members("c", (0, 1, 2, 3))["c"], address="new.example:1")
    with pytest.raises(ConfigError, match="another key for period 0"):
        change_with(roster, kept, card)
    lost = replace(card, roster_key=ROSTER_KEYS["l"].public)
    with pytest.raises(InvalidParameterError, match="replace"):
        change_with(roster, kept, lost)
    second, after = change_with(roster, kept, lost, replaced=["c"])
    assert links(after, "c") == links(kept, "c")
    neighbour = min(links(after, "c"))
    assert opened(second, neighbour).member("c").address == "new.example:1"
    assert second.open_row("c", ROSTER_KEYS["l"]).member("c").kem == card.kem


def change_with(roster: Roster, kept: Deal, card: Member, **options: Any) -> tuple[Roster, Deal]:
    return deal_again(roster, kept, cards={card.id: card}, now=NOW + 10, days=30, **options)


def test_new_cards_bring_further_periods_and_what_is_sealed_already_opens() -> None:
    """The period that runs and the one before stay as they are, with their secrets."""
    roster, kept = deal(epochs=(0, 1, 2))
    cards = {
        member.id: replace(member, kem={2: member.kem[2], **{epoch: card.kem[epoch] for epoch in (3, 4)}})
        for member, card in ((member, members(member.id, (3, 4))[member.id]) for member in kept.members)
    }
    following, after = deal_again(roster, kept, cards=cards, now=NOW + 2 * PERIOD_S, days=30)
    assert list(following.key_epochs) == [1, 2, 3, 4]
    assert following.epoch_at(NOW + 2 * PERIOD_S) == roster.epoch_at(NOW + 2 * PERIOD_S) == 2
    assert {epoch: kept.secrets[epoch] for epoch in (1, 2)} == {epoch: after.secrets[epoch] for epoch in (1, 2)}
    assert set(following.keys[0]) == set(roster.keys[1])
    following.check_follows(roster, "next.json")
    with pytest.raises(ConfigError, match="k has no key for period 2"):
        deal_again(roster, kept, cards=members("k", (0, 1)), now=NOW + 2 * PERIOD_S, days=30)


def test_a_network_keeps_its_degree_and_stays_whole() -> None:
    """Another degree is another network; so many leave at once that nobody could hold it together is refused."""
    roster, kept = deal()
    other = replace(deal(degree=4)[0], network=roster.network, version=2, prev_digest=roster.digest)
    with pytest.raises(ProtocolError, match="degree 4, not 3"):
        other.check_follows(roster, "next.json")
    with pytest.raises(GraphError, match="fewer leave"):
        change(roster, kept, removed=list("abcdefgh"))
    with pytest.raises(InvalidParameterError, match="overlay"):
        deal("abcd")


def test_many_leave_and_the_rest_is_one_network() -> None:
    """Whoever would have fewer than two neighbours has others at once."""
    roster, kept = deal()
    for gone in itertools.islice(itertools.combinations(NAMES, 4), 0, 210, 30):
        second, after = change(roster, kept, removed=list(gone))
        assert min(len(links(after, name)) for name in second.ids) >= 2
        reached = {second.ids[0]}
        for _ in second.ids:
            reached |= {other for name in reached for other in links(after, name)}
        assert reached == set(second.ids)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"degree": 1}, "degree"),
        ({"period_s": 0}, "period_s"),
        ({"keys": ()}, "keys"),
        ({"rows": ()}, "rows"),
        ({"edges": (("a", "b"),)}, "without them"),
        ({"epoch": 1, "seals_from": NOW + DAY}, "begun"),
        ({"degree": 0}, "degree"),
    ],
)
def test_a_dealt_roster_out_of_form_is_refused(changes: dict[str, Any], line: str) -> None:
    """By the name of the field."""
    roster, _ = deal()
    with pytest.raises(InvalidParameterError, match=line):
        replace(roster, **changes)


def test_a_row_that_is_no_row_is_refused_in_one_line() -> None:
    """The dealer's program wrote something else."""
    from veilwalk.node.members._roster import row_info
    from veilwalk.node.sealing import seal_for_member

    roster, _ = deal()
    junk = seal_for_member(ROSTER_KEYS["a"].public, b"{}\n", row_info(roster.network, roster.version))
    rows = (junk, *(row[: len(junk)].ljust(len(junk)) for row in roster.rows[1:]))
    with pytest.raises((ConfigError, InputFileError), match="row"):
        opened(replace(roster, rows=rows), "a")


def test_whatever_comes_and_goes_the_overlay_stays_whole() -> None:
    """Of 40 changes drawn by a seed: one network, two to three links each, and links of those who stay are kept."""
    dice = np.random.default_rng(5)
    roster, kept = deal()
    for _ in range(40):
        present, away = set(roster.ids), sorted(set("abcdefghijkl") - set(roster.ids))
        joined = "".join(dice.permutation(away)[: dice.integers(len(away) + 1)].tolist())
        removed = dice.permutation(sorted(present))[: dice.integers(max(1, len(present) - 6))].tolist()
        before = {edge for edge in kept.edges if not set(edge) & {*kept.left, *removed}}
        roster, kept = change(roster, kept, joined, removed=removed)
        assert set(roster.ids) == (present | set(joined)) - set(removed)
        degrees = [len(links(kept, name)) for name in roster.ids]
        assert set(degrees) <= {2, 3}
        reached = {roster.ids[0]}
        for _ in roster.ids:
            reached |= {other for name in reached for other in links(kept, name)}
        assert reached == set(roster.ids)
        # A switch takes a link away and two stubs, of newcomers and of the neighbours of closed places.
        assert len(before - set(kept.edges)) <= 3 * (len(removed) + len(away)) // 2
