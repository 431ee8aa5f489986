"""``veilwalk roster add | remove | renew | edges``: the next version from the one before, one command each."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilwalk.cli._output import print_table
from veilwalk.cli._roster import Days, app, read_draft, write_draft
from veilwalk.core.errors import ConfigError, InvalidParameterError

if TYPE_CHECKING:
    from veilwalk.node.members import Roster

# These commands and those of _roster are one group.
__all__ = ["app"]

Before = Annotated[Path, typer.Option("--roster", metavar="FILE", help="The roster that members hold now.")]
Draft = Annotated[Path, typer.Option(metavar="FILE", help="Where to write the draft.")]
Links = Annotated[
    list[str] | None, typer.Option("--link", metavar="A,B", help="Two members to join besides; may repeat.")
]
_NOW, _NEXT = Path("roster.json"), Path("next.json")


@app.command("add")
def add(
    cards: Annotated[
        list[Path], typer.Argument(metavar="CARD", help="Cards of who joins, or key directories.", show_default=False)
    ],
    *,
    to: Annotated[
        str | None, typer.Option(metavar="A,B", help="Who is next to it. Kept for a member that is replaced.")
    ] = None,
    roster: Before = _NOW,
    out: Draft = _NEXT,
    days: Days = 90,
) -> None:
    """Draft a roster with one more member, or new keys of one.

    Nothing is signed yet. All others keep their neighbours.

    Somebody joins: veilwalk roster add cards/clinic-d1.json --to clinic-a1,clinic-b2

    Somebody has lost a key, and made new ones: veilwalk roster add cards/clinic-a1.json
    """
    from veilwalk.node.members import changed_roster, edges_after, read_cards

    old = read_draft(roster)
    members, suite = read_cards(cards)
    if suite is not None and suite != old.suite:
        raise ConfigError(f"the cards are of suite {int(suite)}, the roster of {int(old.suite)}")
    new = sorted(members.keys() - set(old.ids))
    if new and to is None:
        raise InvalidParameterError("to", None, f"the members that {new[0]} is to be next to, separated by commas")
    added: list[tuple[str, str]] = []
    if to is not None:
        # Several that join at once are joined to the same members, not to each other.
        added = [(name, neighbour) for name in members for neighbour in _names(to, old, "to")]
        if any(name == neighbour for name, neighbour in added):
            raise InvalidParameterError("to", to, "others than who joins")
    edges = edges_after(old, added=[edge for edge in added if not _has(old, edge)])
    write_draft(out, changed_roster(old, edges, cards=members, removed=[], now=int(time.time()), days=days), roster)


@app.command("remove")
def remove(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Who leaves.", show_default=False)],
    *,
    links: Links = None,
    roster: Before = _NOW,
    out: Draft = _NEXT,
    days: Days = 90,
) -> None:
    """Draft a roster without a member.

    Nothing is signed yet. Its edges go with it; a network that would fall apart is refused, and needs a --link.

    Example: veilwalk roster remove clinic-b2 --link clinic-a1,clinic-c1
    """
    from veilwalk.node.members import changed_roster, edges_after

    old = read_draft(roster)
    pairs = [_pair(text, old, leaving=names) for text in links or []]
    edges = edges_after(old, added=pairs, removed=names)
    draft = changed_roster(old, edges, cards={}, removed=names, now=int(time.time()), days=days)
    write_draft(out, draft, roster)


@app.command("renew")
def renew(*, roster: Before = _NOW, out: Draft = _NEXT, days: Days = 90) -> None:
    """Draft the same roster with a later end.

    Nothing is signed yet. Members, edges and keys stay as they are. When the old one ends, everybody stops.

    Example: veilwalk roster renew --days 90
    """
    from veilwalk.node.members import changed_roster

    old = read_draft(roster)
    write_draft(out, changed_roster(old, old.edges, cards={}, removed=[], now=int(time.time()), days=days), roster)


@app.command("edges")
def edges(
    roster: Annotated[Path, typer.Argument(metavar="ROSTER", help="A roster file.")] = _NOW,
    *,
    of: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this member.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Write them as an edge list, for design --graph file:FILE.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Print who is next to whom, and at which address.

    For firewalls: each member must reach the addresses of its neighbours, and nobody else's.

    Example: veilwalk roster edges roster.json --of clinic-a1
    """
    found = read_draft(roster)
    members = found.ids if of is None else tuple(_names(of, found, "of"))
    if out is not None:
        from veilwalk.core.records import write_atomically

        lines = [f"{a},{b}\n" for a, b in found.edges if not {a, b}.isdisjoint(members)]
        write_atomically(out, "".join(["source,target\n", *lines]).encode())
    if as_json:
        typer.echo(json.dumps({name: _addresses(found, name) for name in members}, indent=2))
        return
    rows = [
        (name if place == 0 else "", peer, address)
        for name in members
        for place, (peer, address) in enumerate(_addresses(found, name).items())
    ]
    print_table(f"version {found.version}", ("member", "must reach", "at"), rows)


def _addresses(roster: Roster, name: str) -> dict[str, str]:
    return {peer: roster.member(peer).address for peer in roster.neighbours(name)}


def _names(text: str, roster: Roster, option: str) -> Iterable[str]:
    for name in (part.strip() for part in text.split(",")):
        if name not in roster.ids:
            raise InvalidParameterError(option, name, f"among the members of version {roster.version}")
        yield name


def _pair(text: str, roster: Roster, *, leaving: Iterable[str]) -> tuple[str, str]:
    names = tuple(_names(text, roster, "link"))
    if len(names) != 2 or names[0] == names[1] or not set(names).isdisjoint(leaving):
        raise InvalidParameterError("link", text, "two members that stay, A,B")
    return names[0], names[1]


def _has(roster: Roster, edge: tuple[str, str]) -> bool:
    return (min(edge), max(edge)) in roster.edges
