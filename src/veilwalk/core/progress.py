"""Progress of long work: the type of its listeners, and a display on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from veilwalk.core.errors import InvalidParameterError

#: What a line in a log begins with.
SO_FAR = "veilwalk: so far: "


class Progress(Protocol):
    """Told the stage, how much of it is done, how much there is in all (0: unknown), and anything worth knowing."""

    def __call__(self, stage: str, done: int = 0, total: int = 0, news: str = "") -> None:
        """Hear it."""


def silent(stage: str, done: int = 0, total: int = 0, news: str = "") -> None:
    """Tell nobody."""


@contextmanager
def show_progress(*, progress: Progress | bool, first_s: float = 0.0, pause_s: float = 10.0) -> Iterator[Progress]:
    """Yield who is told: a listener that is given, nobody for False, and for True a display on standard error.

    The display has a bar a stage and the time left; in a log it is a line after ``first_s`` and every ``pause_s``.
    """
    if progress is not True:
        listener = silent if progress is False else progress
        if not callable(listener):
            raise InvalidParameterError("progress", progress, "True, False or a function")
        yield listener
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Display

    screen = Console(stderr=True)
    if not screen.is_terminal and not screen.is_jupyter:
        yield _spoken(first_s, pause_s)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[news]}"),
        TimeRemainingColumn(),
    )
    with Display(*columns, console=screen, transient=True) as live:
        lines: dict[str, Any] = {}

        def hear(stage: str, done: int = 0, total: int = 0, news: str = "") -> None:
            if stage not in lines:
                lines[stage] = live.add_task(stage, total=total or None, news="")
            live.update(lines[stage], completed=done, total=total or None, news=news)

        yield hear


def _spoken(first_s: float, pause_s: float) -> Progress:
    """Say how far it is, now and then: who reads a log cannot see whether anything happens."""
    due = time.monotonic() + first_s

    def hear(stage: str, done: int = 0, total: int = 0, news: str = "") -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + pause_s
            far = f"{done} of {total}" if total else ""
            print(SO_FAR + ", ".join(part for part in (stage, far, news) if part), file=sys.stderr)

    return hear
