"""How the command line prints: one console, one look of table."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from veilwalk.core.payload import PAYLOADS
from veilwalk.core.progress import Progress, show_progress
from veilwalk.core.records import Record, write_atomically
from veilwalk.core.walk import Walk

_PLAIN_WIDTH = 110
# What drawing needs and a plain installation has not.
_DRAWING = {"matplotlib", "jinja2"}
COMPILING = "veilwalk: compiling once, about half a minute"
_SPEAK_S = 60.0

AllowSandwich = Annotated[
    bool,
    typer.Option("--allow-sandwich", help="Admit the simple walk, under which a relay can be certain of the maker."),
]

EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        show_default="this process with all its threads",
        help="Where jobs are done: serial, process, process:N, ray, ray://HOST:PORT or dask://HOST:PORT. "
        "It has no say in the result.",
    ),
]
WorkOption = Annotated[
    Path | None,
    typer.Option(
        "--work", metavar="DIR", help="Keep every finished job there; run again, on any engine, it goes on from them."
    ),
]

Protect = Annotated[
    str, typer.Option(metavar="record|node", help="What noise protects: one row of a node, or all its rows together.")
]
Epsilon = Annotated[
    float,
    typer.Option(metavar="EPSILON", help="Find the noise for this epsilon, against everybody, sender known; 0: none."),
]
Delta = Annotated[float, typer.Option(metavar="DELTA", help="Of the guarantee (epsilon, delta).")]
Clip = Annotated[
    float,
    typer.Option(
        metavar="NORM",
        help="Largest norm of an update, or of a row's gradient for records; 0: none, or as usual for --epsilon.",
    ),
]
Noise = Annotated[float, typer.Option(metavar="MULTIPLIER", help="Or Gaussian noise by its size, in units of --clip.")]
MostUpdates = Annotated[
    int,
    typer.Option(
        metavar="COUNT",
        help="A node that has made so many hands models on as they are; 0: no limit, or even shares for --epsilon.",
    ),
]

PAYLOAD_HELP = f"How a model's numbers travel: {', '.join(PAYLOADS)}."
#: What may be asked of a received model, in one line.
ACCEPT_HELP = "none, finite, loss:RATIO, norm:STEP, or two of them with a comma"
Accept = Annotated[str, typer.Option(metavar="TESTS", help=f"What a node asks of a model it receives: {ACCEPT_HELP}.")]

WALKS_HELP = (
    "So many models walk at once, each with its share of the updates; the best end or their mean, by the public test "
    "set, is the finished model (without such a set: the first end). Where dwell or "
    "links set the pace, W times the updates a second, and a lost walk stops one W-th of them; but each model learns "
    "from 1/W of the updates, and members carry W times the messages."
)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # Rich would exit with 1, which here means that a check failed.
        raise BrokenPipeError


def by_walk(updates: Sequence[int]) -> str:
    """Return the updates of each walk as one cell of a table."""
    return ", ".join(map(str, updates))


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
    broken = [re.sub(r"(?<=[/,]) ?| ", "\n", name) for name in names]
    for gap, headings, rigid in ((3, names, True), (3, names, False), (1, broken, False)):
        sheet = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
        needed = 0
        for column, heading, held in zip(columns, headings, zip(*cells, strict=True), strict=False):
            right = column.startswith(">")
            # A word is the least that a column which may wrap needs; any other needs its longest cell.
            parts = [
                *heading.split("\n"),
                *(word for cell in held for word in (cell.split() if not (rigid or right) else [cell])),
            ]
            least = max(map(cell_len, parts), default=0)
            sheet.add_column(heading, justify="right" if right else "left", no_wrap=rigid or right, min_width=least)
            needed += least + gap
        for row in cells:
            # As text: a label may hold what would else be markup.
            sheet.add_row(*map(Text, row))
        if needed - gap <= screen.width:
            screen.print(sheet)
            break
    else:
        for row in cells:
            for name, cell in zip(names, row, strict=True):
                screen.print(Text(f"{name}: {cell}" if name else cell), soft_wrap=True)
            screen.print()
    screen.print()


@cache
def announce_compiling() -> None:
    """From now on say so, once, when numba compiles: with a cold cache it is silent for long, with a warm one never."""
    from numba.core import event

    class Announcer(event.Listener):
        told = False

        def on_start(self, _event: Any) -> None:
            if not self.told:
                self.told = True
                typer.echo(COMPILING, err=True)

        def on_end(self, _event: Any) -> None:
            pass

    # Numba tells of what it compiles, and not of what it finds in its cache.
    event.register("numba:compile", Announcer())  # type: ignore[no-untyped-call]


@contextmanager
def live_progress() -> Iterator[Progress]:
    """A live display on standard error: a line a stage, how far it is, time left; in a log a line a minute."""
    announce_compiling()
    with show_progress(progress=True, first_s=_SPEAK_S, pause_s=_SPEAK_S) as progress:
        yield progress


def asked_walk(kind: str | None) -> Walk | None:
    """Return the walk that ``--walk`` asks for, None where it was not given."""
    return None if kind is None else Walk.parse(kind)


def drawn(draw: Callable[[], list[Path]]) -> list[Path]:
    """Return what ``draw`` wrote; without the drawing libraries nothing, and one line that says so."""
    try:
        return draw()
    except ModuleNotFoundError as error:
        if error.name not in _DRAWING:
            raise
        typer.echo(f"figures are left out: {error.name} is missing; pip install 'veilwalk[report]' brings it", err=True)
        return []


def drawn_or_kept(drawer: str, record: Record, kept: Path) -> list[Path]:
    """Return what a function of ``report`` wrote beside ``kept``; where nothing can be drawn, the record alone."""

    def draw() -> list[Path]:
        files: list[Path] = getattr(import_module("veilwalk.report"), drawer)(record, kept.parent)
        return files

    made = drawn(draw)
    if not made:
        write_atomically(kept, record.to_json().encode())
    return made or [kept]


def help_without_verb(context: typer.Context) -> None:
    """Print the help of a group called without a verb, and end as a usage error does."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
