"""Deals a secret overlay: draws links and orders of keys, and seals for each member the part that it needs.

The dealer is whoever drafts the rosters, offline. Between versions it keeps a :class:`Deal`, which names every link,
so it is as secret as the root's key, and is deleted when the network ends. All chance is the operating system's.

Links are kept. A member that is away keeps its place. One that leaves has it back if it returns with the next version;
else a newcomer takes the place, or its neighbours are joined to each other then, and not before.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from veilwalk.core import validate
from veilwalk.core.config import encode
from veilwalk.core.errors import ConfigError, GraphError, InvalidParameterError
from veilwalk.core.records import write_atomically
from veilwalk.node.members._drafts import first_facts, list_members, next_facts, next_members
from veilwalk.node.members._keys import read_private
from veilwalk.node.members._roster import Member, OwnRow, Roster, row_info
from veilwalk.node.members._signed import canonical_json, read_record, write_record
from veilwalk.node.sealing import SECRET_BYTES, Suite, seal_for_member

Edge = tuple[str, str]

_FORMAT = "veilwalk-deal-1"
_LIMIT = 256 * 1024 * 1024
# A change is drawn anew if the network would fall apart; so often only where hardly anything else can be drawn.
_REDRAWS = 200
_LEAST_LINKS = 2
_dice = secrets.SystemRandom()


@dataclass(frozen=True, kw_only=True)
class Deal:
    """What the dealer keeps of one version of an overlay's roster.

    Args:
        digest: Of that roster.
        members: As on their cards.
        edges: All links, those of ``left`` with them.
        left: Who left with that version; their places are kept until the next.
        secrets: By period, what goes into every key derivation.
    """

    digest: bytes
    members: tuple[Member, ...]
    edges: tuple[Edge, ...]
    left: tuple[str, ...]
    secrets: Mapping[int, bytes]

    def write(self, path: Path) -> None:
        """Write it to a file that only its owner reads."""
        write_atomically(path, write_record(self, _FORMAT), mode=0o600)

    @classmethod
    def read(cls, path: Path, roster: Roster) -> Deal:
        """Return what the dealer kept of ``roster``; refuse what belongs to another."""
        deal = read_record(cls, read_private(path, _LIMIT), _FORMAT, str(path))
        if deal.digest != roster.digest:
            raise ConfigError(f"{path}: belongs to another roster than version {roster.version}: keep the two together")
        return deal


def deal_path(roster: Path) -> Path:
    """Return where the dealer's part of a roster lies."""
    return roster.with_name(roster.name + ".deal")


def deal_roster(
    cards: Mapping[str, Member],
    *,
    degree: int,
    period_s: int,
    suite: Suite,
    now: int,
    days: float,
    network: bytes | None = None,
    edges: Iterable[Edge] | None = None,
) -> tuple[Roster, Deal]:
    """Return version 1 of the roster of a secret overlay, and what the dealer keeps; links are drawn unless given."""
    validate.integer(2, degree=degree)
    validate.integer(1, period_s=period_s)
    if len(cards) < degree + 2:
        raise InvalidParameterError("overlay", degree, f"at most {len(cards) - 2}: members seal for no neighbour")
    if edges is None:
        from veilwalk.graphs import overlay

        names = sorted(cards)
        _dice.shuffle(names)
        edges = [(names[a], names[b]) for a, b in overlay(len(names), degree, seed=secrets.randbits(256)).edges()]
    about = first_facts(cards, suite=suite, now=now, days=days, period_s=period_s, network=network)
    about["degree"] = degree
    first = about["epoch"]
    return _issue(about, cards, {_edge(*edge) for edge in edges}, (), needed=range(first, first + 1), secrets_of={})


def deal_again(
    previous: Roster,
    deal: Deal,
    *,
    cards: Mapping[str, Member],
    removed: Collection[str] = (),
    replaced: Collection[str] = (),
    now: int,
    days: float,
) -> tuple[Roster, Deal]:
    """Return the next version, for further periods and with all changes of members at once, and what the dealer keeps.

    Cards of others than members are newcomers', or of those who left with the version before.
    """
    members = next_members(deal.members, cards, removed=removed, replaced=replaced)
    joined = sorted(members.keys() - {member.id for member in deal.members})
    about = {name: getattr(previous, name) for name in ("network", "suite", "degree", "period_s")}
    about |= next_facts(previous, now=now, days=days)
    left = tuple(sorted(removed))
    edges = _change_links(deal, joined, left, previous.degree)
    needed = range(previous.epoch_at(now), previous.key_epochs[-1] + 1)
    return _issue(about, members, edges, left, needed=needed, secrets_of=deal.secrets)


def _issue(
    about: Mapping[str, Any],
    members: Mapping[str, Member],
    edges: set[Edge],
    left: tuple[str, ...],
    *,
    needed: range,
    secrets_of: Mapping[int, bytes],
) -> tuple[Roster, Deal]:
    """Shuffle the keys of each period, seal each member's row, and return the roster with what the dealer keeps.

    The periods end with the last that all members have a key for; everybody has one for all that are ``needed``.
    """
    listed = list_members(members, about["epoch"], needed)
    epochs = range(about["epoch"], min(max(member.kem) for member in listed.values()) + 1)
    lists = []
    for epoch in epochs:
        keys = [member.kem[epoch] for member in listed.values() if epoch in member.kem]
        _dice.shuffle(keys)
        lists.append(tuple(keys))
    shared = {epoch: secrets_of.get(epoch) or secrets.token_bytes(SECRET_BYTES) for epoch in epochs}
    places = [{key: place for place, key in enumerate(keys)} for keys in lists]
    rows = []
    for name in listed:
        near = [name, *sorted(_neighbours(edges, name) & listed.keys())]
        row = OwnRow(
            addresses={other: listed[other].address for other in near},
            places={
                other: tuple(
                    at.get(listed[other].kem.get(epoch, b""), -1) for epoch, at in zip(epochs, places, strict=True)
                )
                for other in near
            },
            secrets=tuple(shared.values()),
        )
        rows.append(canonical_json(encode(row)))
    info, length = row_info(about["network"], about["version"]), max(map(len, rows))
    sealed = zip(listed.values(), rows, strict=True)
    roster = Roster(
        **about,
        members=tuple(replace(member, address="", kem={}, roster_key=b"") for member in listed.values()),
        edges=(),
        keys=tuple(lists),
        rows=tuple(seal_for_member(member.roster_key, row.ljust(length), info) for member, row in sealed),
    )
    dealt = tuple(listed.values())
    return roster, Deal(digest=roster.digest, members=dealt, edges=tuple(sorted(edges)), left=left, secrets=shared)


# ---- links ----------------------------------------------------------------------------------------------------------


def _change_links(deal: Deal, joined: Iterable[str], left: Collection[str], degree: int) -> set[Edge]:
    """Return the links after members joined and others left; as many as can be are those of before.

    Those who come back have their own place, newcomers one of those that were left with the version before, or a new
    one. The neighbours of a place that nobody took are joined to each other, and where one cannot be, a link is
    switched. Of those who leave now the place is kept, unless the network would fall apart.

    Raises:
        GraphError: It falls apart whatever is drawn.
    """
    for _ in range(_REDRAWS):
        vacant, new = sorted(set(deal.left) - set(joined)), sorted(set(joined) - set(deal.left))
        _dice.shuffle(vacant)
        _dice.shuffle(new)
        taken = dict(zip(vacant, new, strict=False))
        edges = {_edge(taken.get(a, a), taken.get(b, b)) for a, b in deal.edges}
        members = {member.id for member in deal.members} | set(joined)
        closed = set(vacant) - taken.keys()
        # Nobody has an empty name: at first all places are kept.
        for place in ("", *_dice.sample(sorted(left), len(left))):
            closed.add(place)
            trial = {edge for edge in edges if not closed & set(edge)}
            _fill_links(trial, sorted(members - closed), degree, fixed=left)
            staying = sorted(members - set(left))
            if _holds_together({edge for edge in trial if not set(left) & set(edge)}, staying):
                return trial
    raise GraphError("the overlay would fall apart without those who leave: let fewer leave at once")


def _fill_links(edges: set[Edge], members: Iterable[str], degree: int, *, fixed: Collection[str]) -> None:
    """Give every member but those ``kept`` as they are ``degree`` links, as far as that can be."""
    stubs = [name for name in members if name not in fixed for _ in range(degree - len(_neighbours(edges, name)))]
    _dice.shuffle(stubs)
    while len(stubs) > 1:
        first, second = stubs.pop(), stubs.pop()
        if first != second and _edge(first, second) not in edges:
            edges.add(_edge(first, second))
            continue
        switches = [
            (near, far)
            for edge in sorted(edges)
            for near, far in (edge, edge[::-1])
            if not set(edge) & set(fixed)
            and near != first
            and far != second
            and not {_edge(first, near), _edge(second, far)} & edges
        ]
        if switches:
            near, far = _dice.choice(switches)
            edges.remove(_edge(near, far))
            edges.update((_edge(first, near), _edge(second, far)))


def _holds_together(edges: set[Edge], members: list[str]) -> bool:
    """Return whether every member has two links or more, and a way to every other."""
    if any(len(_neighbours(edges, name)) < _LEAST_LINKS for name in members):
        return False
    reached, ahead = {members[0]}, [members[0]]
    for name in ahead:
        new = _neighbours(edges, name) - reached
        reached |= new
        ahead += new
    return len(reached) == len(members)


def _neighbours(edges: set[Edge], name: str) -> set[str]:
    return {b if a == name else a for a, b in edges if name in (a, b)}


def _edge(first: str, second: str) -> Edge:
    return (first, second) if first < second else (second, first)
