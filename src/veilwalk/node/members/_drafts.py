"""Drafting rosters: the first, one with other members, one with the next epoch's keys. Signing comes after."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
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
DAY_S = 24 * 3600


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


def join_edges(
    previous: Roster, cards: Iterable[str], *, to: Sequence[str], replaced: Sequence[str] = ()
) -> tuple[tuple[str, str], ...]:
    """Return the edges of ``previous`` with those who join next to the members ``to``, and not to each other.

    Raises:
        InvalidParameterError: ``to`` is missing for a newcomer, or given where members are only replaced.
    """
    new = sorted(set(cards) - set(previous.ids))
    if new and not to:
        raise InvalidParameterError("to", None, f"the members that {new[0]} is to be next to, separated by commas")
    if to and replaced and not new:
        raise InvalidParameterError("to", ",".join(to), "left out: a member that is replaced keeps its edges")
    return edges_after(previous, added=[(name, neighbour) for name in new for neighbour in to])


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
    if roster.epoch != previous.epoch:
        rows.append(("epoch", str(previous.epoch), str(roster.epoch)))
    return rows


def _facts(member: Member) -> dict[str, str]:
    digests = {epoch: hashlib.sha256(key).hexdigest() for epoch, key in sorted(member.kem.items())}
    keys = {f"sealing key of epoch {epoch}": digest for epoch, digest in digests.items()}
    return {"TLS fingerprint": member.fingerprint, "address": member.address, **keys}


def first_roster(
    members: Mapping[str, Member], edges: Edges, *, suite: Suite, now: int, days: float, network: bytes | None = None
) -> Roster:
    """Return version 1, at the oldest epoch all members have a key for; a fresh id unless given."""
    if not members:
        raise InvalidParameterError("members", 0, "at least two cards")
    epoch = max(min(member.kem) for member in members.values())
    return Roster(
        network=os.urandom(RUN_ID_BYTES) if network is None else network,
        suite=suite,
        version=1,
        epoch=epoch,
        created=now,
        expires=expiry(now, days),
        prev_digest=None,
        members=_with_keys(members, range(epoch, epoch + 2)),
        edges=_sorted(edges),
    )


def changed_roster(
    previous: Roster,
    edges: Edges,
    *,
    cards: Mapping[str, Member] = MappingProxyType({}),
    removed: Iterable[str] = (),
    now: int,
    days: float,
    replaced: Iterable[str] = (),
) -> Roster:
    """Return the version after ``previous`` with other members and edges, in the same epoch.

    A card adds a member; one of those ``replaced`` takes the place of the member of that id, keys and all.
    """
    members = {member.id: member for member in previous.members}
    known, named = cards.keys() & members.keys(), set(replaced)
    for name in sorted(known - named):
        need = f"given as {name}: the card has the name of a member, whose place it would take"
        raise InvalidParameterError("replace", None, need)
    for name in sorted(named - known):
        raise InvalidParameterError("replace", name, "a member of whom there is a card")
    for node_id in removed:
        if members.pop(node_id, None) is None:
            raise InvalidParameterError("remove", node_id, "a member")
    return _successor(previous, {**members, **cards}, now=now, days=days, edges=_sorted(edges))


def rotated_roster(
    previous: Roster, *, cards: Mapping[str, Member], now: int, days: float, seals_from: int = 0
) -> Roster:
    """Return the version after ``previous`` in the next epoch: same members and edges, their new keys from cards.

    A card must carry the TLS key the roster knows, and the same sealing key for the epoch that now begins. Cards of
    others than members are passed over. Messages are sealed in the epoch from ``seals_from`` on; until then everybody
    has time to get the file.
    """
    epoch = previous.epoch + 1
    if previous.rolls_over and now < previous.seals_from:
        raise ConfigError(f"epoch {previous.epoch} begins in {previous.seals_from - now} s: rotate after that")
    members = {}
    for member in previous.members:
        card = cards.get(member.id)
        if card is None:
            raise ConfigError(f"no card of {member.id}: everybody needs a key for epoch {epoch + 1}")
        if card.certificate != member.certificate:
            raise ConfigError(
                f"the card of {member.id} has another TLS key; to replace a member, make a roster instead"
            )
        if card.kem.get(epoch, member.kem[epoch]) != member.kem[epoch]:
            raise ConfigError(f"the card of {member.id} has another key for epoch {epoch} than the roster announced")
        members[member.id] = replace(card, kem={**card.kem, **member.kem})
    return _successor(previous, members, now=now, days=days, epoch=epoch, seals_from=seals_from)


def _successor(previous: Roster, members: Mapping[str, Member], *, now: int, days: float, **changes: Any) -> Roster:
    expires, epoch = expiry(now, days), changes.get("epoch", previous.epoch)
    seals_from = changes.get("seals_from", previous.seals_from)
    if expires <= seals_from:
        # By its own name, which the keeper gave: the roster would name a field that nobody asked for.
        need = f"more than {(seals_from - now) / DAY_S:.2g}: epoch {epoch} begins then"
        raise InvalidParameterError("days", days, need)
    return replace(
        previous,
        version=previous.version + 1,
        created=now,
        expires=expires,
        prev_digest=previous.digest,
        members=_with_keys(members, range(epoch - (seals_from > now), epoch + 2)),
        **changes,
    )


def _with_keys(members: Mapping[str, Member], epochs: range) -> tuple[Member, ...]:
    renewed = []
    for node_id, member in sorted(members.items()):
        if not set(epochs) <= member.kem.keys():
            held, needs = (" and ".join(map(str, numbers)) for numbers in (sorted(member.kem), epochs))
            early = len(epochs) > 2 and epochs[0] not in member.kem
            wait = f"; {epochs[1]} has not begun: add members after that" if early else ""
            raise ConfigError(f"{node_id} has sealing keys for epochs {held}: needs {needs}{wait}")
        kem = {number: member.kem[number] for number in epochs}
        renewed.append(replace(member, kem=kem, roster_key=b""))
    return tuple(renewed)


def _sorted(edges: Edges) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((min(edge), max(edge)) for edge in edges))


def expiry(now: int, days: float) -> int:
    """Return when a version ends that holds for so many days from ``now``."""
    if not 0 < days <= 3660:
        raise InvalidParameterError("days", days, "more than 0, and at most 3660")
    return now + max(1, round(days * DAY_S))
