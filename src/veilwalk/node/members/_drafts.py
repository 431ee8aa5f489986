"""Drafts rosters: the first, and one with other members, links or keys. Signing comes after."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.node.members._keys import CARD_NAME
from veilwalk.node.members._roster import CARD_LIMIT, Member, Roster, read_card
from veilwalk.node.members._signed import decode_hex, read_bounded
from veilwalk.node.sealing import RUN_ID_BYTES, Suite

if TYPE_CHECKING:
    from veilwalk.graphs import Graph

Edges = Iterable[tuple[str, str]]
_DAY_S = 24 * 3600


def parse_network(text: str) -> bytes:
    """Return the id of a network written as 32 hexadecimal digits."""
    return decode_hex(text, RUN_ID_BYTES, "network id")


def read_cards(paths: Iterable[Path]) -> tuple[dict[str, Member], Suite | None]:
    """Return the members whose cards lie at ``paths`` (files, or key directories), and their suite."""
    members: dict[str, Member] = {}
    common: Suite | None = None
    for path in paths:
        file = path / CARD_NAME if path.is_dir() else path
        member, suite = read_card(read_bounded(file, CARD_LIMIT), str(file))
        if member.id in members:
            raise ConfigError(f"{file}: a second card for {member.id}")
        if common is not None and suite != common:
            raise ConfigError(f"{file}: of suite {int(suite)}, the others of {int(common)}; all members need the same")
        members[member.id], common = member, suite
    return members, common


def edges_of_graph(graph: Graph, ids: Iterable[str]) -> list[tuple[str, str]]:
    """Return the edges of ``graph`` between ids: its labels, or where it has none node ``i`` is the ``i``-th id.

    Raises:
        InvalidParameterError: The nodes are more or fewer than the ids, or have other labels.
    """
    names = sorted(ids)
    if len(names) != graph.n_nodes:
        raise InvalidParameterError("graph", f"{graph.n_nodes} nodes", f"of {len(names)} nodes, one for each member")
    called = [graph.label(node) for node in range(graph.n_nodes)]
    if set(called) == set(names):
        names = called
    elif graph.labels is not None:
        stranger = min(set(called) - set(names))
        raise InvalidParameterError("graph", f"a node called {stranger[:60]}", "of nodes called as the members are")
    return [(names[a], names[b]) for a, b in graph.edges()]


def edges_after(previous: Roster, *, added: Edges = (), removed: Iterable[str] = ()) -> tuple[tuple[str, str], ...]:
    """Return the edges of ``previous`` with some added, and without those of the members ``removed``.

    Raises:
        InvalidParameterError: One to be added is there.
    """
    edges = set(previous.edges)
    for edge in _sorted(added):
        if edge in edges:
            raise InvalidParameterError("edge", "-".join(edge), "one that the roster does not have yet")
        edges.add(edge)
    gone = set(removed)
    return tuple(sorted(edge for edge in edges if not gone & set(edge)))


def describe_changes(previous: Roster, roster: Roster) -> list[tuple[str, str, str]]:
    """Return what a version changes as rows of what, before and now: all that the root's keeper signs."""
    rows: list[tuple[str, str, str]] = []
    before, now = ({member.id: _facts(member) for member in version.members} for version in (previous, roster))
    for name in sorted(before.keys() | now.keys()):
        if name not in now:
            rows += [(f"{name} leaves", before[name]["TLS fingerprint"], ""), ("", before[name]["address"], "")]
        elif name not in before:
            rows += [(f"{name} joins", "", now[name]["TLS fingerprint"]), ("", "", now[name]["address"])]
        else:
            pairs = {what: (fact, now[name].get(what, fact)) for what, fact in before[name].items()}
            rows += [(f"{name}: {what}", *pair) for what, pair in pairs.items() if len(set(pair)) == 2]
    rows += [("edge", " - ".join(edge), "") for edge in sorted(set(previous.edges) - set(roster.edges))]
    rows += [("edge", "", " - ".join(edge)) for edge in sorted(set(roster.edges) - set(previous.edges))]
    old, new = (f"{version.epoch} to {version.key_epochs[-1]}" for version in (previous, roster))
    return rows + [("keys for periods", old, new)] * (old != new)


def _facts(member: Member) -> dict[str, str]:
    digests = {epoch: hashlib.sha256(key).hexdigest() for epoch, key in sorted(member.kem.items())}
    keys = {f"sealing key of period {epoch}": digest for epoch, digest in digests.items()}
    return {"TLS fingerprint": member.fingerprint, "address": member.address, **keys}


def first_roster(
    members: Mapping[str, Member],
    edges: Edges,
    *,
    suite: Suite,
    now: int,
    days: float,
    period_s: int = 7 * _DAY_S,
    network: bytes | None = None,
) -> Roster:
    """Return version 1, from the oldest period that all members have a key for."""
    about = first_facts(members, suite=suite, now=now, days=days, period_s=period_s, network=network)
    return Roster(**about, members=_published(members, about["epoch"]), edges=_sorted(edges))


def changed_roster(
    previous: Roster,
    edges: Edges,
    *,
    cards: Mapping[str, Member] = MappingProxyType({}),
    removed: Collection[str] = (),
    now: int,
    days: float,
    replaced: Collection[str] = (),
) -> Roster:
    """Return the version after ``previous``, with further periods, other members and other edges."""
    about = next_facts(previous, now=now, days=days)
    members = next_members(previous.members, cards, removed=removed, replaced=replaced)
    listed = _published(members, about["epoch"], previous.key_epochs[-1])
    return replace(previous, **about, members=listed, edges=_sorted(edges))


def _published(members: Mapping[str, Member], first: int, last: int = 0) -> tuple[Member, ...]:
    listed = list_members(members, first, range(first, max(first, last) + 1))
    return tuple(replace(member, roster_key=b"") for member in listed.values())


# ---- what secret overlays have as well ------------------------------------------------------------------------------


def first_facts(
    members: Mapping[str, Member], *, suite: Suite, now: int, days: float, period_s: int, network: bytes | None
) -> dict[str, Any]:
    """Return what version 1 says of times and keys; a fresh network unless given."""
    if not members:
        raise InvalidParameterError("members", 0, "at least two cards")
    return {
        "network": os.urandom(RUN_ID_BYTES) if network is None else network,
        "suite": suite,
        "version": 1,
        "prev_digest": None,
        "epoch": max(min(member.kem) for member in members.values()),
        "created": now,
        "expires": expiry(now, days),
        "seals_from": now,
        "period_s": period_s,
    }


def next_facts(previous: Roster, *, now: int, days: float) -> dict[str, Any]:
    """Return what the version after ``previous`` says anew of times: without the periods that are over."""
    running = previous.epoch_at(now)
    epoch = max(previous.epoch, running - 1)
    # A clock may have been put back since.
    begun = min(previous.seals_from + (epoch - previous.epoch) * previous.period_s, now)
    if now >= begun + (running - epoch + 1) * previous.period_s:
        # The last period has lasted for longer than one: the next begins a whole one after this version.
        begun = now - (running - epoch) * previous.period_s
    about: dict[str, Any] = {"version": previous.version + 1, "prev_digest": previous.digest, "created": now}
    return about | {"expires": expiry(now, days), "epoch": epoch, "seals_from": begun}


def next_members(
    members: Iterable[Member], cards: Mapping[str, Member], *, removed: Collection[str], replaced: Collection[str]
) -> dict[str, Member]:
    """Return the members of the next version by name.

    The card of a member brings keys of further periods, and its address of now. One with another TLS key must be named
    in ``replaced``: it takes the place. All other cards are newcomers'.
    """
    after = {member.id: member for member in members}
    for name in removed:
        if name not in after or name in cards:
            raise InvalidParameterError("remove", name, "a member, and no card of it")
    for name in set(replaced) - (after.keys() & cards.keys()):
        raise InvalidParameterError("replace", name, "a member of whom there is a card")
    for name, card in cards.items():
        after[name] = card if name in replaced or name not in after else _renew_member(after[name], card)
    return {name: member for name, member in after.items() if name not in removed}


def _renew_member(member: Member, card: Member) -> Member:
    """Return a member with the keys of its new card beside those that it had."""
    if card.certificate != member.certificate or member.roster_key not in {b"", card.roster_key}:
        need = f"given as {member.id}: the card has other keys than that member, whose place it would take"
        raise InvalidParameterError("replace", None, need)
    for epoch in card.kem.keys() & member.kem.keys():
        if card.kem[epoch] != member.kem[epoch]:
            raise ConfigError(f"the card of {member.id} has another key for period {epoch} than the one before")
    return replace(card, kem={**member.kem, **card.kem})


def list_members(members: Mapping[str, Member], first: int, needed: range) -> dict[str, Member]:
    """Return members in order, with their keys from period ``first`` to the last that all have one for.

    Raises:
        ConfigError: One has no key for a period from the first that is ``needed`` on.
    """
    last = min(max(member.kem) for member in members.values())
    for name, member in sorted(members.items()):
        if lacking := {*needed, *range(needed[0], last + 1)} - member.kem.keys():
            need = f"those of {needed[0]} to {max(last, needed[-1])}: it needs a new card"
            raise ConfigError(f"{name} has no key for period {min(lacking)}, in a network with {need}")
    epochs = range(first, last + 1)
    return {
        name: replace(member, kem={epoch: key for epoch, key in member.kem.items() if epoch in epochs})
        for name, member in sorted(members.items())
    }


def _sorted(edges: Edges) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((min(edge), max(edge)) for edge in edges))


def expiry(now: int, days: float) -> int:
    """Return when a version ends that holds for so many days from ``now``."""
    if not 0 < days <= 3660:
        raise InvalidParameterError("days", days, "more than 0, and at most 3660")
    return now + max(1, round(days * _DAY_S))
