"""Prints results: one console, one kind of table, one form of JSON, one way to figures."""

from __future__ import annotations

import json
import re
import string
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from veilwalk.cli import _rooms as rooms
from veilwalk.cli._interrupt import GUARD
from veilwalk.core.progress import Progress, show_progress
from veilwalk.core.records import Record, plain, write_atomically
from veilwalk.core.units import readable_bytes, readable_seconds

_PLAIN_WIDTH = 110
# Names so long may be broken at their hyphens where a table is narrow.
_LONG_NAME = re.compile(r"(?=[a-z-]{13})[a-z]+(?:-[a-z]+)+")
# What drawing needs and a plain installation has not.
_DRAWING = {"matplotlib", "jinja2"}
COMPILING = "veilwalk: compiling once, about half a minute"
_SPEAK_S = 60.0
_END_S = 3.0


def format_share(share: float, digits: int = 1) -> str:
    """Return a share as a percentage with digits behind the point, which a whole has not."""
    return "100%" if share == 1.0 else f"{share:.{digits}%}"


#: Formats of cells besides Python's own.
_FORMATS: dict[str, Callable[[Any], str]] = {
    "bytes": readable_bytes,
    "seconds": readable_seconds,
    "share": format_share,
    "small share": lambda share: format_share(share, 2),
    "yes or no": lambda holds: "yes" if holds else "no",
}


class _Cells(string.Formatter):
    """Formats the cells of a record: None is a dash, and a key that the record lacks is nothing."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        try:
            value, key = super().get_field(field_name, args, kwargs)
        except (KeyError, TypeError):
            return "", field_name
        return value, str(key)

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None or value == "":
            return "-" if value is None else ""
        return _FORMATS.get(format_spec, lambda cell: format(cell, format_spec))(value)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # Rich would exit with 1, which here means that a check failed.
        raise BrokenPipeError


def console() -> Console:
    """Return a console on standard output; plain text of a fixed width when that is not a terminal."""
    return _Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)


def say(text: str = "") -> None:
    """Print a sentence: on a terminal words stay whole, and elsewhere a line is a line."""
    console().print(Text(text), soft_wrap=not sys.stdout.isatty())


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table under its title; columns whose heading starts with ``>`` are set to the right.

    Where it is wider than the screen, words wrap, then gaps are narrowed and headings broken; where even that is too
    wide, every row becomes a list of its own. No word and no number is ever cut.
    """
    screen, cells = console(), [tuple(row) for row in rows]
    screen.print(Text(title, style="bold"), soft_wrap=not sys.stdout.isatty())
    names = [column.removeprefix(">") for column in columns]
    is_right = [column.startswith(">") for column in columns]
    broken = [re.sub(r"(?<=[/,]) ?| ", "\n", name) for name in names]
    split = [tuple(_LONG_NAME.sub(lambda name: name[0].replace("-", "-\n"), cell) for cell in row) for row in cells]
    for gap, headings, lines in ((3, names, cells), (3, broken, cells), (1, broken, split)):
        widths = _fit_widths(headings, lines, is_right, screen.width - gap * (len(names) - 1))
        if widths is not None:
            sheet = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
            for heading, right, width in zip(headings, is_right, widths, strict=True):
                sheet.add_column(heading, justify="right" if right else "left", width=width)
            for row in lines:
                # As text: a label may hold what would else be markup.
                sheet.add_row(*map(Text, row))
            screen.print(sheet)
            break
    else:
        for row in cells:
            for name, cell in zip(names, row, strict=True):
                screen.print(Text(f"{name}: {cell}" if name else cell), soft_wrap=True)
            screen.print()
    screen.print()


def _fit_widths(
    headings: Sequence[str], rows: Sequence[Sequence[str]], is_right: Sequence[bool], room: int
) -> list[int] | None:
    """Return widths that fit into ``room``, None where none do; words of columns set to the left may wrap."""
    widths, longest = [], []
    for place, (heading, right) in enumerate(zip(headings, is_right, strict=True)):
        lines = [*heading.split("\n"), *(line for row in rows for line in row[place].split("\n"))]
        words = lines if right else [*heading.split("\n"), *(word for line in lines for word in line.split())]
        widths.append(max(map(cell_len, words), default=0))
        longest.append(max(map(cell_len, lines), default=0))
    slack = room - sum(widths)
    if slack < 0:
        return None
    for place, most in enumerate(longest):
        more = min(most - widths[place], slack)
        widths[place] += more
        slack -= more
    return widths


def print_records(title: str, columns: Mapping[str, str], records: Iterable[Mapping[str, Any]]) -> None:
    """Print a table with a row for each record; ``columns`` has the heading and the format string of each column.

    A column that is empty in every row is left out, and so is a table without records.
    """
    rows = [[_Cells().format(template, **record) for template in columns.values()] for record in records]
    used = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    if rows:
        print_table(title, [list(columns)[place] for place in used], [[row[place] for place in used] for row in rows])


def print_facts(title: str, facts: Mapping[str, Any]) -> None:
    """Print a table of facts by name; those that are None or empty are left out."""
    print_table(title, ("", ">value"), [(name, str(fact)) for name, fact in facts.items() if fact not in {None, ""}])


def show_result(content: object, show: Callable[[], None], paths: Sequence[Path] = (), *, as_json: bool) -> None:
    """Print the content as JSON, in which a number that is not finite is null; or tables and the files written."""
    if as_json:
        typer.echo(json.dumps(plain(content), indent=2, allow_nan=False))
        return
    show()
    for path in paths:
        typer.echo(f"wrote {path}")


@cache
def announce_compiling() -> None:
    """From now on say so, once, when numba compiles: with a cold cache it is silent for long, with a warm one never."""
    from numba.core import event

    class Announcer(event.Listener):
        is_announced = False

        def on_start(self, _event: Any) -> None:
            GUARD.begin_compiling()
            if not self.is_announced:
                self.is_announced = True
                typer.echo(COMPILING, err=True)

        def on_end(self, _event: Any) -> None:
            GUARD.end_compiling()

    # Numba reports what it compiles, and not what it finds in its cache.
    event.register("numba:compile", Announcer())  # type: ignore[no-untyped-call]


@contextmanager
def live_progress() -> Iterator[Progress]:
    """A live display on standard error: a line a stage, how far it is, time left; in a log a line a minute."""
    announce_compiling()
    with show_progress(progress=True, first_s=_SPEAK_S, pause_s=_SPEAK_S) as progress:
        yield progress


def draw(drawer: str, record: Record, place: Path) -> list[Path]:
    """Return the files that a function of ``report`` wrote; without the drawing libraries none, and say so once."""
    try:
        files = getattr(rooms.report, drawer)(record, place)
    except ModuleNotFoundError as error:
        if error.name not in _DRAWING:
            raise
        typer.echo(f"figures are left out: {error.name} is missing; pip install 'veilwalk[report]' brings it", err=True)
        return []
    return [files] if isinstance(files, Path) else list(files)


def draw_or_write(drawer: str, record: Record, path: Path) -> list[Path]:
    """Return the files that were drawn beside ``path``; where nothing can be drawn, the record alone."""
    files = draw(drawer, record, path.parent)
    if not files:
        write_atomically(path, record.to_json().encode())
    return files or [path]


@contextmanager
def page_of(folder: Path | None, *, enabled: bool) -> Iterator[None]:
    """Show ``folder`` while what is inside goes on, and after that until the page is ended.

    By a process of its own: what is trained here has the same time and the same bits as without.
    """
    if not enabled or folder is None:
        yield
        return
    command = [sys.executable, "-m", "veilwalk", "watch", str(folder), "--wait"]
    # Not among the results, which may be JSON.
    page = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)  # noqa: S603  our own program
    try:
        yield
        with suppress(KeyboardInterrupt):
            GUARD.stop()
            typer.echo("the page stays until Ctrl-C", err=True)
            page.wait()
    finally:
        page.terminate()
        try:
            page.wait(_END_S)
        except subprocess.TimeoutExpired:
            # In the midst of a posterior; it has nothing to lose.
            page.kill()
            page.wait()


def make_group(about: str) -> typer.Typer:
    """Return a group of verbs; called without a verb it prints its help, and ends as a usage error does."""
    group = typer.Typer(rich_markup_mode=None)
    group.callback(invoke_without_command=True, help=about)(help_without_verb)
    return group


def help_without_verb(context: typer.Context) -> None:
    """Print the help of a group that is called without a verb."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
