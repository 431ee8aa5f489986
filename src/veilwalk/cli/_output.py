"""How the command line prints: one console, one look of table."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import typer
from rich.console import Console
from rich.table import Table

_PLAIN_WIDTH = 110


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # Rich would exit with 1, which here means that a check failed.
        raise BrokenPipeError


def console() -> Console:
    """Return a console on standard output; plain text of a fixed width when that is not a terminal."""
    return _Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table under its title; columns whose heading starts with ``>`` are set to the right."""
    screen = console()
    sheet = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for column in columns:
        sheet.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    for row in rows:
        sheet.add_row(*row)
    screen.print(f"[bold]{title}[/bold]", soft_wrap=True)
    screen.print(sheet)
    screen.print()


def help_without_verb(context: typer.Context) -> None:
    """Print the help of a group called without a verb, and end as a usage error does."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
