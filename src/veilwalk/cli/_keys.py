"""``veilwalk keys``: make and rotate the keys of a node, make those of the root."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilwalk.cli._output import help_without_verb
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.records import write_atomically

if TYPE_CHECKING:
    from veilwalk.node.members import NodeKeys

app = typer.Typer(rich_markup_mode=None)

_ASKED = Path("-")
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File whose first line is the password that seals the key files; - asks for it, /dev/fd/3 reads a "
        "descriptor.",
    ),
]


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Make and rotate keys."""
    help_without_verb(context)


@app.command("new")
def new(
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Directory for the keys; made with mode 0700. [default: keys/NAME; root for the root]"
        ),
    ] = None,
    is_root: Annotated[bool, typer.Option("--root", help="Make the root key, which signs rosters, instead.")] = False,
    node_id: Annotated[
        str | None, typer.Option("--id", metavar="NAME", help="Name of the node; the directory's unless given.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where its neighbours reach it. Needed for a node.")
    ] = None,
    suite: Annotated[
        str,
        typer.Option(metavar="hybrid|x25519", help="hybrid: ML-KEM-768 and X25519; the same for all members."),
    ] = "hybrid",
    epoch: Annotated[int, typer.Option(help="First epoch to make sealing keys for; the next gets one too.")] = 0,
    password_file: PasswordFile = None,
) -> None:
    """Make the keys of a node, or of the root.

    The root's key (--root) signs rosters and manifests.

    A node: veilwalk keys new --id clinic-a1 --address 10.0.0.1:7101

    The root: veilwalk keys new --root --password-file /dev/fd/3 3<secret

    Send a node's card, NAME.json, to the root's keeper; it is public. Every other file stays where it is. Give every
    member the root's root.pub. Key files have mode 0600; without a password that is all that protects them.
    """
    from veilwalk.node import Suite
    from veilwalk.node.members import new_node_keys, new_root_key

    password = read_optional_password(password_file, new=True)
    if is_root:
        if node_id is not None or address is not None:
            raise InvalidParameterError("root", "with --id or --address", "given without them")
        out = out or Path("root")
        public = new_root_key(out, password=password).public_key().public_bytes_raw()
        typer.echo(f"root key in {out}, {_protection(password)}; keep it offline")
        typer.echo(f"give every member {out / 'root.pub'}: {public.hex()}")
        return
    if address is None:
        raise InvalidParameterError("address", None, "host:port of the node (or --root for the root key)")
    if suite.upper() not in Suite.__members__:
        raise InvalidParameterError("suite", suite, "hybrid or x25519")
    if out is None:
        if node_id is None:
            raise InvalidParameterError("id", None, "the node's name (or --root for the root key)")
        out = Path("keys") / node_id
    keys = new_node_keys(
        out,
        node_id=out.resolve().name if node_id is None else node_id,
        address=address,
        suite=Suite[suite.upper()],
        epoch=epoch,
        password=password,
    )
    typer.echo(f"keys of {keys.id} in {out}, {_protection(password)}, for epochs {epoch} and {epoch + 1}")
    card = _named_card(out, keys)
    typer.echo(f"send {card} to the root's keeper; TLS fingerprint {keys.member.tls_spki_sha256.hex()}")


@app.command("rotate")
def rotate(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The node's key directory.", show_default=False)],
    *,
    password_file: PasswordFile = None,
) -> None:
    """Make a node's sealing key for the next epoch.

    And a card that shows it.

    Example: veilwalk keys rotate keys/clinic-a1 --password-file password

    Send the new card, NAME.json, to the root's keeper, who signs the next roster (veilwalk roster rotate). The running
    node takes up the new key with that roster, and then deletes the keys that are two epochs old.
    """
    from veilwalk.node.members import rotate_node_keys

    keys = rotate_node_keys(directory, password=read_optional_password(password_file))
    typer.echo(f"{keys.id} has a sealing key for epoch {max(keys.kem)}")
    typer.echo(f"send {_named_card(directory, keys)} to the root's keeper")


def _named_card(directory: Path, keys: NodeKeys) -> Path:
    """Write the card under the member's name too, so that a folder can hold everybody's."""
    path = directory / f"{keys.id}.json"
    write_atomically(path, (directory / "card.json").read_bytes())
    return path


def read_optional_password(path: Path | None, *, new: bool = False) -> bytes | None:
    """Return the password in ``path``, or typed in for ``-``, a ``new`` one twice; None without one."""
    from veilwalk.node.members import read_password

    if path != _ASKED:
        return None if path is None else read_password(path)
    if not sys.stdin.isatty():
        return read_password(Path("/dev/stdin"))
    typed: str = typer.prompt("password", hide_input=True, confirmation_prompt=new, err=True)
    return typed.encode()


def _protection(password: bytes | None) -> str:
    return "not sealed (no password given)" if password is None else "sealed with the password"
