"""``veilwalk roster``: draft, sign, check and rotate the list of members."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilwalk.cli._graph import SPEC_HELP, network_of
from veilwalk.cli._keys import PasswordFile, read_optional_password
from veilwalk.cli._output import help_without_verb, print_table
from veilwalk.core import validate
from veilwalk.core.errors import ConfigError, InvalidParameterError

if TYPE_CHECKING:
    from veilwalk.node.members import Member, Roster

app = typer.Typer(rich_markup_mode=None)

Cards = Annotated[
    list[Path] | None,
    typer.Argument(metavar="CARD", help="Members' card.json files, or key directories.", show_default=False),
]
RosterFile = Annotated[Path, typer.Argument(metavar="ROSTER", help="A roster file.", show_default=False)]
Days = Annotated[float, typer.Option(help="Days until it expires.")]
Out = Annotated[Path, typer.Option(metavar="FILE", help="Where to write the draft.")]


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Draft, sign, check and rotate the list of members."""
    help_without_verb(context)


@app.command("make")
def make(
    cards: Cards = None,
    *,
    out: Out,
    graph: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help=f"The network; nodes without labels are the members in order of their names. {SPEC_HELP}",
        ),
    ] = None,
    edges: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The network as a file of any such format, nodes called as the members."),
    ] = None,
    previous: Annotated[
        Path | None, typer.Option(metavar="ROSTER", help="Change this roster instead of making the first.")
    ] = None,
    remove: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Member to leave out; may repeat.")] = None,
    network: Annotated[
        str | None, typer.Option(metavar="HEX", help="Id of the network, 32 digits; fresh unless given.")
    ] = None,
    days: Days = 90,
) -> None:
    """Draft a roster from members' cards and a network.

    Nothing is signed yet.

    The first: veilwalk roster make keys/* --graph rrg:20:3:seed=1 --out roster.json

    A change: veilwalk roster make new/card.json --previous roster.json --remove clinic-b --edges net --out next.json

    With --previous, cards add members or replace those of their name; all others stay as they are.
    """
    from veilwalk.node.members import changed_roster, first_roster, parse_network, read_cards

    members, suite = read_cards(cards or [])
    now = int(time.time())
    if previous is None:
        if suite is None or remove:
            raise ConfigError("a first roster needs members' cards, and nobody to remove")
        network_id = None if network is None else parse_network(network)
        pairs = _edges(graph, edges, set(members))
        roster = first_roster(members, pairs, suite=suite, now=now, days=days, network=network_id)
    else:
        if network is not None:
            raise InvalidParameterError("network", network, "given for a first roster only")
        old = read_draft(previous)
        if suite is not None and suite != old.suite:
            raise ConfigError(f"the cards are of suite {int(suite)}, the roster of {int(old.suite)}")
        pairs = _edges(graph, edges, (set(old.ids) - set(remove or [])) | set(members))
        roster = changed_roster(old, pairs, cards=members, removed=remove or [], now=now, days=days)
    write_draft(out, roster, previous)


@app.command("rotate")
def rotate(
    roster: RosterFile,
    cards: Cards = None,
    *,
    out: Out,
    days: Days = 90,
    seals_in: Annotated[
        float, typer.Option(help="Hours until messages are sealed in the new epoch: time for all to get the file.")
    ] = 24,
) -> None:
    """Draft the next epoch's roster from members' new cards.

    Nothing is signed yet.

    Example: veilwalk roster rotate roster.json cards/*.json --out next.json

    Every member first runs veilwalk keys rotate and sends its new card. Hand the roster out before the epoch begins.
    """
    from veilwalk.node.members import read_cards, rotated_roster

    old = read_draft(roster)
    members, suite = read_cards(cards or [])
    if suite is not None and suite != old.suite:
        raise ConfigError(f"the cards are of suite {int(suite)}, the roster of {int(old.suite)}")
    validate.more_than(0, days=days)
    if not 0 <= seals_in <= 24 * days:
        raise InvalidParameterError("seals_in", seals_in, "hours from now, before the roster ends")
    now = int(time.time())
    begins = now + round(seals_in * 3600)
    write_draft(out, rotated_roster(old, cards=members, now=now, days=days, seals_from=begins), roster)


@app.command("sign")
def sign(
    roster: RosterFile,
    *,
    root_dir: Annotated[Path, typer.Option("--root", metavar="DIR", help="The root's key directory.")],
    current: Annotated[
        Path | None, typer.Option(metavar="ROSTER", help="The version members hold now; refuse to fork from it.")
    ] = None,
    password_file: PasswordFile = None,
) -> None:
    """Sign a drafted roster with the root key.

    The signature goes beside it, into ROSTER.sig.

    Example: veilwalk roster sign roster.json --root root --password-file /dev/fd/3 3<secret

    Look at the members and fingerprints it prints before handing the two files to everybody.
    """
    from veilwalk.node.members import check_succession, check_time, load_root_key, read_signed_roster, sign_roster

    draft = read_draft(roster)
    check_time(draft, time.time(), str(roster))
    if current is None and draft.version > 1:
        raise InvalidParameterError("current", None, f"the roster before version {draft.version}, to sign no fork")
    key = load_root_key(root_dir, password=read_optional_password(password_file))
    if current is not None:
        # What another root has signed its members hold, and nobody follows this one from there.
        held = read_signed_roster(current, key.public_key())
        if held.digest == draft.digest:
            raise InvalidParameterError("current", str(current), f"the version before {draft.version}, not the same")
        check_succession(draft, held, str(roster))
    sign_roster(roster, draft, key)
    _print(draft)
    typer.echo(f"signed: {roster} and {roster}.sig")


@app.command("check")
def check(
    roster: RosterFile,
    *,
    root_public: Annotated[Path, typer.Option(metavar="FILE", help="The root's root.pub.")],
    current: Annotated[
        Path | None, typer.Option(metavar="ROSTER", help="The signed version a node holds; ROSTER must follow it.")
    ] = None,
) -> None:
    """Check a signed roster as a node would.

    Signature, dates, form, and that it follows the version held.

    Example: veilwalk roster check roster.json --root-public root.pub

    Exit code 3 for a bad signature, an expired roster, a rollback, a gap or a fork.
    """
    from veilwalk.node.members import load_root_public_key, load_roster, read_signed_roster

    key = load_root_public_key(root_public)
    held = None if current is None else read_signed_roster(current, key)
    _print(load_roster(roster, key, time.time(), held))
    typer.echo("valid")


def _edges(graph: str | None, edges: Path | None, ids: set[str]) -> list[tuple[str, str]]:
    from veilwalk.graphs import read_graph
    from veilwalk.node.members import edges_of_graph

    if (graph is None) == (edges is None):
        raise ConfigError("the network: give either --graph or --edges")
    return edges_of_graph(network_of(graph or "") if edges is None else read_graph(edges), ids)


def read_draft(path: Path) -> Roster:
    """Return a roster, signed or not."""
    from veilwalk.node.members import read_roster_draft

    return read_roster_draft(path)


def write_draft(path: Path, roster: Roster, previous: Path | None = None) -> None:
    """Write a draft that follows ``previous``, show it and say what comes next."""
    from veilwalk.core.records import write_atomically
    from veilwalk.node.members import require_unsigned

    if previous is not None and path.resolve() == previous.resolve():
        raise InvalidParameterError("out", str(path), "another file: members still hold the one before")
    require_unsigned(path)
    seen: dict[str, str] = {}
    for member in roster.members:
        other = seen.setdefault(member.address, member.id)
        if other != member.id:
            raise ConfigError(f"{other} and {member.id} have the same address, {member.address}: must differ")
    replaced = path.exists()
    write_atomically(path, roster.data)
    _print(roster)
    if replaced:
        typer.echo(f"what was in {path} is replaced: a change that was drafted there is not in this one")
    current = "" if previous is None else f" --current {previous}"
    typer.echo(f"drafted, not signed: {path}; next: veilwalk roster sign {path} --root DIR{current}")


def _print(roster: Roster) -> None:
    about = [
        ("network", roster.network.hex()),
        ("version", str(roster.version)),
        ("epoch", str(roster.epoch)),
        ("suite", roster.suite.name.lower()),
        ("created", _date(roster.created)),
        *([("sealed in from", _date(roster.seals_from))] if roster.rolls_over else []),
        ("expires", _date(roster.expires)),
        ("members", str(len(roster.members))),
        ("edges", str(len(roster.edges))),
        ("digest", roster.digest.hex()),
    ]
    print_table("roster", ("field", "value"), about)
    rows = [_row(roster, member) for member in roster.members]
    print_table("members", ("name", "address", ">neighbours", "TLS fingerprint"), rows)


def _row(roster: Roster, member: Member) -> tuple[str, str, str, str]:
    return member.id, member.address, str(len(roster.neighbours(member.id))), member.tls_spki_sha256.hex()


def _date(seconds: int) -> str:
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
