"""``veilwalk keys``: make and rotate the keys of a node, make those of the root."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, get_args

import typer

from veilwalk.cli import _rooms as rooms
from veilwalk.cli._options import File, Text, argument, flag, option
from veilwalk.cli._output import make_group
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.geometry import SuiteName
from veilwalk.core.records import write_atomically

app = make_group("Make and rotate keys.")

_PROMPT = Path("-")
PasswordFile = Annotated[File, option("File whose first line is the password of the key files; - asks for it.", "FILE")]


@app.command("new")
def new(
    *,
    out: Annotated[File, option("Directory for the keys, of mode 0700.", "DIR", "keys/NAME; root for the root")] = None,
    is_root: Annotated[bool, flag("--root", "Make the root key, which signs rosters, instead.")] = False,
    node_id: Annotated[Text, option("Name of the node.", "NAME", "the directory's", name="--id")] = None,
    address: Annotated[Text, option("Where its neighbours reach it. Needed for a node.", "HOST:PORT")] = None,
    suite: Annotated[str, option("Ciphers of a message; x25519 is usual on overlays.", "hybrid|x25519")] = "hybrid",
    epoch: Annotated[int, option("First period to make a sealing key for.")] = 0,
    periods: Annotated[int, option("Periods that get one: all until the roster ends.")] = 13,
    password_file: PasswordFile = None,
) -> None:
    """Make the keys of a node, or of the root.

    The root's key (--root) signs rosters and manifests.

    A node: veilwalk keys new --id clinic-a1 --address 10.0.0.1:7101

    The root: veilwalk keys new --root --password-file /dev/fd/3 3<secret

    Send a node's card, NAME.json, to the root's keeper; it is public. Every other file stays where it is. Give every
    member the root's root.pub. Key files have mode 0600; without a password that is all that protects them.
    """
    password = read_optional_password(password_file, new=True)
    if is_root:
        if node_id is not None or address is not None:
            raise InvalidParameterError("root", "with --id or --address", "given without them")
        out = out or Path("root")
        public = rooms.members.new_root_key(out, password=password).public_key().public_bytes_raw()
        typer.echo(f"root key in {out}, {_protection(password)}; keep it offline")
        typer.echo(f"give every member {out / 'root.pub'}: {public.hex()}")
        return
    if address is None:
        raise InvalidParameterError("address", None, "host:port of the node (or --root for the root key)")
    if suite not in get_args(SuiteName):
        raise InvalidParameterError("suite", suite, "hybrid or x25519")
    if out is None:
        if node_id is None:
            raise InvalidParameterError("id", None, "the node's name (or --root for the root key)")
        out = Path("keys") / node_id
    keys = rooms.members.new_node_keys(
        out,
        node_id=out.resolve().name if node_id is None else node_id,
        address=address,
        suite=rooms.node.Suite[suite.upper()],
        epoch=epoch,
        periods=periods,
        password=password,
    )
    typer.echo(f"keys of {keys.id} in {out}, {_protection(password)}, for periods {epoch} to {max(keys.kem)}")
    card = _named_card(out, keys)
    typer.echo(f"send {card} to the root's keeper; TLS fingerprint {keys.member.tls_spki_sha256.hex()}")


@app.command("rotate")
def rotate(
    directory: Annotated[Path, argument("DIR", "The node's key directory.")],
    *,
    periods: Annotated[int, option("Periods that get a key, after those that have one.")] = 13,
    password_file: PasswordFile = None,
) -> None:
    """Make a node's sealing keys for further periods.

    And a card that shows them.

    Example: veilwalk keys rotate keys/clinic-a1 --password-file password

    Send the new card, NAME.json, to the root's keeper, who signs the next roster (veilwalk roster renew, or deal). The
    running node takes up the new keys with that roster, and deletes a key when its period is two behind.
    """
    keys = rooms.members.rotate_node_keys(directory, periods=periods, password=read_optional_password(password_file))
    typer.echo(f"{keys.id} has sealing keys for periods {min(keys.kem)} to {max(keys.kem)}")
    typer.echo(f"send {_named_card(directory, keys)} to the root's keeper")


def _named_card(directory: Path, keys: rooms.members.NodeKeys) -> Path:
    """Write the card under the member's name too, so that a folder can hold everybody's."""
    path = directory / f"{keys.id}.json"
    write_atomically(path, (directory / "card.json").read_bytes())
    return path


def read_optional_password(path: Path | None, *, new: bool = False) -> bytes | None:
    """Return the password in ``path``, or typed in for ``-``, a ``new`` one twice; None without one."""
    if path != _PROMPT:
        return None if path is None else rooms.members.read_password(path)
    if not sys.stdin.isatty():
        return rooms.members.read_password(Path("/dev/stdin"))
    typed: str = typer.prompt("password", hide_input=True, confirmation_prompt=new, err=True)
    return rooms.members.check_password(typed.encode(), "password")


def _protection(password: bytes | None) -> str:
    return "not sealed (no password given)" if password is None else "sealed with the password"
