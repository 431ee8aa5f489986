"""``veilwalk roster``: draft, sign, check and change the list of members."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from veilwalk.cli import _rooms as rooms
from veilwalk.cli._design import SPEC_HELP, read_graph_spec
from veilwalk.cli._keys import PasswordFile, read_optional_password
from veilwalk.cli._options import AsJson, Count, File, Text, argument, option
from veilwalk.cli._output import make_group, print_facts, print_table, show_result
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.core.records import write_atomically

app = make_group("Draft, sign, check and change the list of members.")

Cards = Annotated[list[Path], argument("CARD", "Members' card.json files, or key directories.")]
RosterFile = Annotated[Path, argument("ROSTER", "A roster file.")]
Days = Annotated[float, option("Days until it expires.")]
Out = Annotated[Path, option("Where to write the draft.", "FILE")]
Before = Annotated[Path, option("The roster that members hold now.", "FILE")]
Edges = Annotated[File, option("The network as a file of any format, nodes called as the members.", "FILE")]
Replace = Annotated[list[str] | None, option("Member whose place a card of its name takes; may repeat.", "NAME")]
_GRAPH = f"The network; nodes without labels are the members in order of their names. {SPEC_HELP}"
_NOW, _NEXT = Path("roster.json"), Path("next.json")


@app.command("make")
def make(
    cards: Cards,
    *,
    graph: Annotated[Text, option(_GRAPH, "SPEC")] = None,
    edges: Edges = None,
    overlay: Annotated[Count, option("A secret overlay of so many links each, instead.", default="none")] = None,
    period: Annotated[float, option("Hours of a period of the sealing keys; the last stays to the end.")] = 168,
    network: Annotated[Text, option("Id of the network, 32 digits; fresh unless given.", "HEX")] = None,
    out: Out = _NOW,
    days: Days = 90,
) -> None:
    """Draft the first roster from members' cards and a network.

    Nothing is signed yet. Afterwards add, remove and renew change it. Of a secret overlay the links are drawn and
    sealed for each member; deal changes it. OUT.deal names all of them: keep it as the root's key.

    Published links: veilwalk roster make keys/* --graph rrg:20:3:seed=1 --out roster.json

    Secret links: veilwalk roster make cards/*.json --overlay 3
    """
    members, suite = rooms.members.read_cards(cards)
    if suite is None or [graph, edges, overlay].count(None) != 2:
        raise ConfigError("the network: give one of --graph, --edges and --overlay")
    about: dict[str, Any] = {"suite": suite, "now": int(time.time()), "days": days, "period_s": round(period * 3600)}
    about["network"] = None if network is None else rooms.members.parse_network(network)
    if overlay is not None:
        draft, deal = rooms.members.deal_roster(members, degree=overlay, **about)
        _write_draft(out, draft, deal=deal)
        return
    links = rooms.graphs.read_graph(edges) if edges is not None else read_graph_spec(graph or "")
    if links.is_overlay:
        raise InvalidParameterError("graph", graph, "a published graph; --overlay DEGREE deals a secret one")
    pairs = rooms.members.edges_of_graph(links, set(members))
    _write_draft(out, rooms.members.first_roster(members, pairs, **about))


@app.command("add")
def add(
    cards: Cards,
    *,
    to: Annotated[Text, option("The members next to it. Kept for a member that is replaced.", "A,B")] = None,
    replace: Replace = None,
    roster: Before = _NOW,
    out: Out = _NEXT,
    days: Days = 90,
) -> None:
    """Draft a roster with one more member, or new keys of one.

    Nothing is signed yet. All others keep their neighbours.

    A member joins: veilwalk roster add cards/clinic-d1.json --to clinic-a1,clinic-b2

    A member has lost a key, and made new ones: veilwalk roster add cards/clinic-a1.json --replace clinic-a1
    """
    old = _read_published(roster)
    members = _read_cards(cards, old)
    near, new = [] if to is None else _split_names(to, old, "to"), sorted(members.keys() - set(old.ids))
    if bool(near) != bool(new):
        need = (
            f"the members that {new[0]} is to be next to" if new else "left out: a member that is there keeps its own"
        )
        raise InvalidParameterError("to", to, need)
    edges = rooms.members.edges_after(old, added=[(name, other) for name in new for other in near])
    now = int(time.time())
    draft = rooms.members.changed_roster(old, edges, cards=members, replaced=replace or (), now=now, days=days)
    _write_draft(out, draft, roster, old)


@app.command("remove")
def remove(
    names: Annotated[list[str], argument("NAME", "The members that leave.")],
    *,
    link: Annotated[list[str] | None, option("Two members to join besides; may repeat.", "A,B")] = None,
    roster: Before = _NOW,
    out: Out = _NEXT,
    days: Days = 90,
) -> None:
    """Draft a roster without a member.

    Nothing is signed yet. Its edges go with it; a network that would fall apart is refused, and needs a --link.

    Example: veilwalk roster remove clinic-b2 --link clinic-a1,clinic-c1
    """
    old = _read_published(roster)
    added = []
    for text in link or []:
        first, *others = _split_names(text, old, "link")
        if len(others) != 1 or first in others or {first, *others} & set(names):
            raise InvalidParameterError("link", text, "two members that stay, A,B")
        added.append((first, others[0]))
    edges = rooms.members.edges_after(old, added=added, removed=names)
    now = int(time.time())
    _write_draft(out, rooms.members.changed_roster(old, edges, removed=names, now=now, days=days), roster, old)


@app.command("renew")
def renew(
    cards: Annotated[list[Path] | None, argument("CARD", "Members' new cards, with keys of further periods.")] = None,
    *,
    edges: Edges = None,
    roster: Before = _NOW,
    out: Out = _NEXT,
    days: Days = 90,
) -> None:
    """Draft the same roster with a later end, keys or links.

    Nothing is signed yet. Members stay as they are, and links without --edges. When the old roster ends, everybody
    stops; its last period of keys stays until then. Keys of further periods come with new cards (keys rotate), and the
    periods end with the last that all members have a key for.

    A later end: veilwalk roster renew --days 90

    And further keys: veilwalk roster renew cards/*.json
    """
    old = _read_published(roster)
    members = _read_cards(cards or [], old)
    for what, names in (
        ("passed over, no members", members.keys() - set(old.ids)),
        ("no card", old.ids - members.keys()),
    ):
        if names and cards:
            typer.echo(f"{what}: {', '.join(sorted(names))}")
    pairs = old.edges
    if edges is not None:
        pairs = tuple(rooms.members.edges_of_graph(rooms.graphs.read_graph(edges), set(old.ids)))
    known = {name: card for name, card in members.items() if name in old.ids}
    draft = rooms.members.changed_roster(old, pairs, cards=known, now=int(time.time()), days=days)
    _write_draft(out, draft, roster, old)


@app.command("edges")
def edges(
    roster: Annotated[Path, argument("ROSTER", "A roster file. [default: roster.json]")] = _NOW,
    *,
    of: Annotated[Text, option("Only those of this member.", "NAME")] = None,
    out: Annotated[File, option("Write them as an edge list, for design --graph file:FILE.", "FILE.csv")] = None,
    as_json: AsJson = False,
) -> None:
    """Print who is next to whom, and at which address.

    For firewalls: each member must reach the addresses of its neighbours, and nobody else's.

    Example: veilwalk roster edges roster.json --of clinic-a1
    """
    version = _read_published(roster)
    members = list(version.ids) if of is None else _split_names(of, version, "of")
    addresses = {name: {peer: version.member(peer).address for peer in version.neighbours(name)} for name in members}
    if out is not None:
        lines = [f"{a},{b}\n" for a, b in version.edges if not {a, b}.isdisjoint(members)]
        write_atomically(out, "".join(["source,target\n", *lines]).encode())
    rows = [
        (name if place == 0 else "", peer, address)
        for name, peers in addresses.items()
        for place, (peer, address) in enumerate(peers.items())
    ]
    title = f"version {version.version}"
    show_result(addresses, lambda: print_table(title, ("member", "must reach", "at"), rows), as_json=as_json)


@app.command("deal")
def deal(
    cards: Annotated[list[Path] | None, argument("CARD", "Cards of newcomers, or new ones of members.")] = None,
    *,
    remove: Annotated[Text, option("The members that leave.", "A,B")] = None,
    replace: Replace = None,
    roster: Before = _NOW,
    out: Out = _NEXT,
    days: Days = 90,
) -> None:
    """Draft the next roster of a secret overlay.

    With all changes at once. Nothing is signed yet. Links stay as they are. Members' new cards (keys rotate) bring keys
    of further periods; newcomers get the places of those who left with the version before, or new ones.

    Example: veilwalk roster deal cards/*.json --remove clinic-b2

    ROSTER.deal must lie beside the roster; the next one is written beside the draft.
    """
    old = rooms.members.Roster.read_draft(roster)
    if not old.is_overlay:
        raise ConfigError(f"{roster}: its links are published: add, remove and renew change it")
    before = rooms.members.Deal.read(rooms.members.deal_path(roster), old)
    gone = [] if remove is None else _split_names(remove, old, "remove")
    about: dict[str, Any] = {"removed": gone, "replaced": replace or (), "now": int(time.time()), "days": days}
    draft, dealt = rooms.members.deal_again(old, before, cards=_read_cards(cards or [], old), **about)
    _write_draft(out, draft, roster, old, deal=dealt)


@app.command("sign")
def sign(
    roster: RosterFile,
    *,
    root_dir: Annotated[Path, option("The root's key directory.", "DIR", name="--root")],
    current: Annotated[File, option("The version members hold now; refuse to fork from it.", "ROSTER")] = None,
    manifest: Annotated[
        File, option("The manifest of the run: refuse where members would never train.", "FILE")
    ] = None,
    law: Annotated[File, option("Its law, where the manifest names a file.", "FILE.npz")] = None,
    password_file: PasswordFile = None,
) -> None:
    """Sign a drafted roster with the root key.

    The signature goes beside it, into ROSTER.sig.

    Example: veilwalk roster sign roster.json --root root --password-file /dev/fd/3 3<secret

    Look at the members and fingerprints it prints before handing the two files to everybody.
    """
    draft = rooms.members.Roster.read_draft(roster)
    draft.check_time(time.time(), str(roster))
    if current is None and draft.version > 1:
        raise InvalidParameterError("current", None, f"the roster before version {draft.version}, to sign no fork")
    key = rooms.members.load_root_key(root_dir, password=read_optional_password(password_file))
    held = None
    if current is not None:
        # What another root has signed its members hold, and nobody follows this one from there.
        held = rooms.members.Roster.read_signed(current, key.public_key())
        if held.digest == draft.digest:
            raise InvalidParameterError("current", str(current), f"the version before {draft.version}, not the same")
        draft.check_follows(held, str(roster))
    if manifest is not None:
        idle, _ = rooms.cluster.check_members(rooms.members.Manifest.read_draft(manifest), draft, law)
        if idle:
            raise InvalidParameterError("manifest", str(manifest), f"of a run in which everybody trains: {idle}")
    draft.sign(roster, key)
    _print(draft, held)
    typer.echo(f"signed: {roster} and {roster}.sig")


@app.command("check")
def check(
    roster: RosterFile,
    *,
    root_public: Annotated[Path, option("The root's root.pub.", "FILE")],
    current: Annotated[File, option("The signed version a node holds; ROSTER must follow it.", "ROSTER")] = None,
) -> None:
    """Check a signed roster as a node would.

    Signature, dates, form, and that it follows the version held.

    Example: veilwalk roster check roster.json --root-public root.pub

    Exit code 3 for a bad signature, an expired roster, a rollback, a gap or a fork.
    """
    key = rooms.members.load_root_public_key(root_public)
    held = None if current is None else rooms.members.Roster.read_signed(current, key)
    _print(rooms.members.Roster.load(roster, key, time.time(), held), held)
    typer.echo("valid")


def _read_published(path: Path) -> rooms.members.Roster:
    """Return the draft of a roster that shows its links."""
    roster = rooms.members.Roster.read_draft(path)
    if roster.is_overlay:
        raise ConfigError(
            f"{path}: its links are secret: veilwalk roster deal changes it, node check shows a node its own"
        )
    return roster


def _read_cards(cards: Sequence[Path], old: rooms.members.Roster) -> dict[str, rooms.members.Member]:
    """Return the members of cards that join a roster, or replace its members."""
    members, suite = rooms.members.read_cards(cards)
    if suite is not None and suite != old.suite:
        raise ConfigError(f"the cards are of suite {int(suite)}, the roster of {int(old.suite)}")
    return members


def _write_draft(
    path: Path,
    roster: rooms.members.Roster,
    previous: Path | None = None,
    old: rooms.members.Roster | None = None,
    *,
    deal: rooms.members.Deal | None = None,
) -> None:
    """Write a draft that follows ``previous``, show it and say what comes next; ``deal`` is the dealer's part of it."""
    if previous is not None and path.resolve() == previous.resolve():
        raise InvalidParameterError("out", str(path), "another file: members still hold the one before")
    rooms.members.require_unsigned(path)
    owners: dict[str, str] = {}
    for member in (deal or roster).members:
        other = owners.setdefault(member.address, member.id)
        if other != member.id:
            raise ConfigError(f"{other} and {member.id} have the same address, {member.address}: must differ")
    replaced = path.exists()
    if deal is not None:
        deal.write(rooms.members.deal_path(path))
    write_atomically(path, roster.data)
    _print(roster, old)
    if replaced:
        typer.echo(f"what was in {path} is replaced: a change that was drafted there is not in this one")
    current = "" if previous is None else f" --current {previous}"
    hint = f"veilwalk roster sign {path} --root DIR{current} --password-file FILE"
    typer.echo(f"drafted, not signed: {path}; next: {hint}")
    if deal is not None:
        typer.echo(f"{path}.deal names all links: keep it beside the root's key, and delete it when the network ends")


def _print(roster: rooms.members.Roster, old: rooms.members.Roster | None = None) -> None:
    """Show a roster, and what it changes of the one before."""
    span = f"{roster.epoch} to {roster.key_epochs[-1]}, {roster.period_s / 3600:g} h each, the last to the end"
    facts = {
        "network": roster.network.hex(),
        "version": roster.version,
        "period": roster.epoch_at(time.time()),
        "keys for periods": span,
        "suite": roster.suite.name.lower(),
        "created": _date(roster.created),
        "expires": _date(roster.expires),
        "members": len(roster.members),
        "edges": f"secret, {roster.degree} each" if roster.is_overlay else len(roster.edges),
        "digest": roster.digest.hex(),
    }
    print_facts("roster", facts)
    secret, pins = roster.is_overlay, {member.id: member.fingerprint for member in roster.members}
    links = {name: "sealed" if secret else str(len(roster.neighbours(name))) for name in pins}
    rows = [(name, roster.member(name).address or "sealed", links[name], pin) for name, pin in pins.items()]
    print_table("members", ("name", "address", ">neighbours", "TLS fingerprint"), rows)
    if (warning := rooms.cluster.describe_crowd(len(roster.members) - 1)) is not None:
        typer.echo(f"note: {warning}")
    if old is not None:
        changes = rooms.members.describe_changes(old, roster) or [("members, keys, addresses, edges", "", "as before")]
        print_table(f"changes from version {old.version}", ("what", "before", "now"), changes)
        if any("TLS fingerprint" in what or what.endswith(" joins") for what, _, _ in changes):
            typer.echo("compare every new fingerprint with its member by another way before you sign")


def _date(seconds: int) -> str:
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _split_names(text: str, roster: rooms.members.Roster, option_name: str) -> list[str]:
    """Return names of members that commas separate."""
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name not in roster.ids:
            raise InvalidParameterError(option_name, name, f"among the members of version {roster.version}")
    return names
